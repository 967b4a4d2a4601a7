package engine

import (
	"fmt"
	"slices"

	"github.com/pharos-nostr/pharos/monitor"
)

// room is how many relays strangers may still submit.
type room struct {
	watched int
	hosts   map[string]int // watched relays of the hosts that are asked for
	// dead are submitted candidates that were never seen alive, the oldest
	// first: they make room.
	dead []*relay
}

// submit makes a stranger's relay a candidate, within the bounds.
func (o *order) submit(u monitor.RelayURL) string {
	switch {
	case o.e.byURL[u] != nil:
		return whyWatched
	case o.excluded(u) != "":
		return whyRefusedToWatch
	case o.e.bounds.ours(u):
		return "is this monitor itself"
	}
	if base, ok := withoutSlash(u); ok && o.e.byURL[base] != nil {
		return "is watched as " + string(base)
	}
	if o.room == nil {
		o.room = o.e.room(o.Relays)
	}
	m, cfg, host := o.room, &o.e.cfg, u.Host()
	if cfg.MaxPerHost > 0 && m.hosts[host] >= cfg.MaxPerHost {
		return fmt.Sprintf("is one too many: %d relays of host %s are watched already", m.hosts[host], host)
	}
	if cfg.MaxRelays > 0 && m.watched >= cfg.MaxRelays {
		if len(m.dead) == 0 {
			return fmt.Sprintf("cannot be watched now: this monitor is full with %d relays", m.watched)
		}
		old := m.dead[0]
		m.dead = m.dead[1:]
		next := old.WatchedRelay
		next.Source, next.Candidate = monitor.SourceNone, false
		o.out.part(old, next, endMadeRoom)
		m.watched--
		m.hosts[old.URL.Host()]--
	}
	o.watch(u, monitor.SourceSubmitted, true)
	m.watched++
	m.hosts[host]++
	return ""
}

// room counts what is watched, for a submission of these relays.
func (e *Engine) room(submitted []monitor.RelayURL) *room {
	m := &room{watched: len(e.relays), hosts: map[string]int{}}
	named := setOf(submitted)
	for u := range named {
		m.hosts[u.Host()] = 0
	}
	for _, r := range e.relays {
		if host := r.URL.Host(); e.cfg.MaxPerHost > 0 {
			if n, asked := m.hosts[host]; asked {
				m.hosts[host] = n + 1
			}
		}
		if r.Source == monitor.SourceSubmitted && r.Candidate && r.Verdict.State == monitor.StateDead && !named[r.URL] {
			m.dead = append(m.dead, r)
		}
	}
	slices.SortStableFunc(m.dead, func(a, b *relay) int { return a.FirstSeen.Compare(b.FirstSeen) })
	return m
}
