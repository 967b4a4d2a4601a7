package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// bounds are what the configuration names and what it excludes.
type bounds struct {
	configured, barred map[monitor.RelayURL]bool
	discovery          bool
}

func boundsOf(c *Config) bounds {
	b := bounds{configured: make(map[monitor.RelayURL]bool, len(c.Relays)), barred: setOf(c.Exclude), discovery: c.Discovery}
	for i := range c.Relays {
		b.configured[c.Relays[i].URL] = true
	}
	return b
}

// watched reports whether a relay with these settings is to be watched.
func (b *bounds) watched(r *monitor.WatchedRelay) bool {
	switch {
	case r.Excluded, b.barred[r.URL], r.Source == monitor.SourceNone:
		return false
	case r.Source.Configured():
		return b.configured[r.URL]
	}
	return true
}

// keeps reports whether discovery keeps a relay that the configuration named once:
// it leaves like one that only discovery found.
func (b *bounds) keeps(r *relay, now time.Time) bool {
	return b.discovery && r.Source.Configured() && !b.configured[r.URL] &&
		r.provenance != nil && now.Sub(r.provenance.LastSeen) <= unnamedFor
}

func setOf(urls []monitor.RelayURL) map[monitor.RelayURL]bool {
	m := make(map[monitor.RelayURL]bool, len(urls))
	for _, u := range urls {
		m[u] = true
	}
	return m
}
