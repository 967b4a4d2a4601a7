package vantage

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// basis is what a planned time was reckoned from, so that another cadence can
// reckon it anew. The zero value: from no probe.
type basis struct {
	at      time.Time
	before  monitor.Record // before the step
	outcome monitor.Outcome
	retry   time.Duration // that was asked for
}

// adopt follows the vantage's present setup, where that is a new one.
func (l *loop) adopt(now time.Time) {
	select {
	case <-l.set.replaced:
	default:
		return
	}
	old := l.set
	l.set = l.v.present()
	cfg := &l.set.cfg
	l.relane(now)
	l.wake(l.permits.bound(cfg.PerIP, cfg.PerSubnet))
	if cfg.Cadence != old.cfg.Cadence {
		for _, w := range l.relays {
			l.reslot(w, now)
		}
	}
	if len(cfg.Canaries) == 0 {
		l.noCanaries(now)
	}
	l.checkResources()
	l.pace.set(cfg.Rate)
	l.replan()
	l.publish()
}

// relane makes a lane for each network of the present setup and takes away the
// others. Relays follow: those of a network that is new come as for a first look.
func (l *loop) relane(now time.Time) {
	cfg, old := &l.set.cfg, l.lanes
	l.lanes, l.networks = map[monitor.Network]*lane{}, nil
	moved := false
	for _, network := range cfg.reached() {
		n := old[network]
		if n == nil {
			n, moved = newLane(network), true
		}
		n.limit, n.proxied = cfg.Networks[network], cfg.Proxies[network] != nil
		l.lanes[network] = n
		l.networks = append(l.networks, n)
	}
	if moved || len(l.networks) < len(old) {
		for _, w := range l.relays {
			if n := l.lanes[w.relay.Network()]; n != w.lane {
				l.move(w, n, now)
			}
		}
	}
	for _, n := range old {
		if l.lanes[n.network] == nil || !n.proxied {
			l.noProxy(n, now)
		}
	}
}

// move takes w from its lane to n; either may be nil.
func (l *loop) move(w *watched, n *lane, now time.Time) {
	if w.phase == waiting {
		l.unqueue(w)
		if w.urgent {
			l.notStarted++
		}
		l.plan(w, now) // to say why it is not probed
	}
	w.lane = n
	if n != nil && w.phase == planned {
		at := l.again(w, now)
		if at.Before(w.quiet) {
			at = w.quiet
		}
		l.plan(w, at)
	}
}

// reslot moves what is planned for w to where the present cadence would have
// planned it. Slots lie at each relay's own phase, so that no burst comes of it;
// those that would be past already are dropped like any that was missed.
func (l *loop) reslot(w *watched, now time.Time) {
	if w.phase == waiting && !w.urgent {
		w.latest = earlier(w.latest, now.Add(l.set.cfg.Cadence.Interval))
		l.heap.Set(w.relay, w.latest)
	}
	if w.basis.at.IsZero() || w.lane == nil {
		return // a first look
	}
	if own := l.set.cfg.Cadence.FirstDepth(w.relay, l.v.name, false, now); own.Before(w.depth.from) {
		w.depth.from = own
	}
	b := &w.basis
	at := l.next(w, b.retry, b.at)
	if !at.After(now) {
		at = l.next(w, 0, now)
	}
	switch {
	case w.urgent:
		w.plan = at
	case w.phase == planned:
		l.plan(w, at)
	}
}

// next is when w is due by the present cadence, reckoned at now from the last
// probe.
func (l *loop) next(w *watched, retry time.Duration, now time.Time) time.Time {
	b := &w.basis
	return l.set.cfg.Cadence.Next(b.before, w.record, w.relay, l.v.name, w.task, b.outcome, retry, now)
}
