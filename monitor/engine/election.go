package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// election is who may vote in one round.
type election struct {
	c        *monitor.Corroboration
	vantages []monitor.Vantage
	alone    map[monitor.Network]time.Time
	noLeave  bool
	watching time.Time
	groups   int // eligible ones, over all networks
	buf      []monitor.Ballot
}

// elect finds who may vote now, and since when groups are missing.
func (e *Engine) elect(now time.Time) *election {
	el := &election{c: &e.cfg.Corroboration, vantages: make([]monitor.Vantage, len(e.vantages))}
	eligible := map[monitor.Network]map[string]bool{}
	able := map[monitor.Network]map[string]bool{}
	groups := map[string]bool{}
	for i, v := range e.vantages {
		el.vantages[i] = e.judged(v, now)
		ok := e.cfg.Corroboration.VantageEligible(&el.vantages[i], now)
		for _, n := range v.Networks {
			if able[n] == nil {
				able[n], eligible[n] = map[string]bool{}, map[string]bool{}
			}
			able[n][v.Group] = true
			if ok && !v.Lost(n) {
				eligible[n][v.Group] = true
				groups[v.Group] = true
			}
		}
	}
	for n := range able {
		switch {
		case len(able[n]) < 2 || len(eligible[n]) >= 2:
			delete(e.alone, n)
		case e.alone[n].IsZero():
			e.alone[n] = now
		}
	}
	switch {
	case len(groups) == 0:
		e.watching = time.Time{}
	case e.watching.IsZero():
		e.watching = now
	}
	el.alone, el.watching, el.groups = e.alone, e.watching, len(groups)
	el.noLeave = e.warmUp.persisted && now.Sub(e.started) < e.cfg.StartHold
	return el
}

// ballots returns the relay's ballots, valid until the next call.
func (el *election) ballots(r *relay, now time.Time) []monitor.Ballot {
	el.buf = el.c.AppendBallots(el.buf[:0], r.URL, el.vantages, r.seen, now)
	return el.buf
}

// situation returns what else the verdict on r depends on.
func (el *election) situation(r *relay) monitor.Situation {
	return monitor.Situation{
		AloneSince: el.alone[r.URL.Network()], WatchingSince: el.watching, NoLeave: el.noLeave, Paused: !r.PausedUntil.IsZero(),
	}
}
