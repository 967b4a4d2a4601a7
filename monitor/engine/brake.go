package engine

import (
	"slices"
	"sort"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// brakeState is what the brake needs to know of the last interval.
type brakeState struct {
	departures []time.Time // those that the brake released apart
	arrivals   []time.Time
	electorate monitor.Electorate
	engaged    bool
}

// moved notes a transition over the border of the online set.
func (b *brakeState) moved(from, to monitor.State, released bool, now time.Time) {
	switch {
	case from == monitor.StateOnline && !released:
		b.departures = append(b.departures, now)
	case to == monitor.StateOnline:
		b.arrivals = append(b.arrivals, now)
	}
}

// judge counts the pending relays and says whether the brake holds.
func (b *brakeState) judge(e *Engine, el *election, now time.Time) {
	old := func(t time.Time) bool { return now.Sub(t) >= e.cfg.Corroboration.Interval }
	b.departures = slices.DeleteFunc(b.departures, old)
	b.arrivals = slices.DeleteFunc(b.arrivals, old)

	online, pending, fresh := 0, 0, 0
	var successes []time.Time
	for _, r := range e.relays {
		if r.Verdict.State != monitor.StateOnline {
			continue
		}
		online++
		if e.cfg.Freshness.Fresh(r.Verdict.LastSuccess, now) {
			fresh++
		}
		if r.pending {
			pending++
		} else {
			successes = append(successes, r.Verdict.LastSuccess)
		}
	}
	sorted := false
	b.electorate = monitor.Electorate{
		Online: online, Pending: pending, Departures: b.departures, Arrivals: b.arrivals, EligibleGroups: el.groups,
		SucceededShare: func(since time.Time) float64 {
			if len(successes) == 0 {
				return 0
			}
			if !sorted {
				slices.SortFunc(successes, time.Time.Compare)
				sorted = true
			}
			i := sort.Search(len(successes), func(i int) bool { return successes[i].After(since) })
			return float64(len(successes)-i) / float64(len(successes))
		},
	}
	if online > 0 {
		b.electorate.FreshShare = float64(fresh) / float64(online)
	}
	engaged := e.cfg.Corroboration.Brake().Engaged(b.electorate, now)
	if engaged && !b.engaged {
		e.log.Warn("departures held back: too many relays seem to fail at once", "pending", pending, "online", online)
	}
	if !engaged && b.engaged {
		e.log.Info("departures no longer held back", "pending", pending, "online", online)
	}
	b.engaged = engaged
}
