package engine

import (
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// bounds are what the configuration names and what it excludes.
type bounds struct {
	configured, barred map[monitor.RelayURL]bool
	own                map[string]bool // authorities of ourselves
	discovery          bool
}

func boundsOf(c *Config) bounds {
	b := bounds{
		configured: make(map[monitor.RelayURL]bool, len(c.Relays)), barred: setOf(c.Exclude),
		own: make(map[string]bool, len(c.Own)), discovery: c.Discovery,
	}
	for _, u := range c.Own {
		b.own[authority(u)] = true
	}
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
	case b.ours(r.URL):
		return r.Source == monitor.SourceOperator
	}
	return true
}

// endsFor says why a relay is not to be watched any longer.
func (b *bounds) endsFor(u monitor.RelayURL) string {
	switch {
	case b.barred[u]:
		return endBarred
	case b.ours(u):
		return endOwn
	}
	return endNotConfigured
}

// ours reports whether a URL leads to this monitor itself, which is a relay at any
// path.
func (b *bounds) ours(u monitor.RelayURL) bool { return len(b.own) > 0 && b.own[authority(u)] }

// authority returns a URL's host and port.
func authority(u monitor.RelayURL) string {
	_, rest, _ := strings.Cut(string(u), "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// keeps reports whether discovery keeps a relay that the configuration named once:
// it leaves like one that only discovery found.
func (b *bounds) keeps(r *relay, now time.Time) bool {
	return b.discovery && !b.ours(r.URL) && r.Source.Configured() && !b.configured[r.URL] &&
		r.provenance != nil && now.Sub(r.provenance.LastSeen) <= unnamedFor
}

func setOf(urls []monitor.RelayURL) map[monitor.RelayURL]bool {
	m := make(map[monitor.RelayURL]bool, len(urls))
	for _, u := range urls {
		m[u] = true
	}
	return m
}
