package world_test

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Simpler policies, on the same truth and the same slots every interval. None of
// them looks at itself: without a network every relay fails.

// policy judges one relay.
type policy struct {
	name string
	run  func(w *truth, r *trueRelay, rules rules) []move
}

var simple = []policy{
	{"one vantage, one failure", func(w *truth, r *trueRelay, rules rules) []move { return inARow(w, r, rules, 1) }},
	{"one vantage, three in a row", func(w *truth, r *trueRelay, rules rules) []move { return inARow(w, r, rules, 3) }},
	{"half of the vantages", half},
}

// inARow calls a relay offline after n failures of the first vantage in a row,
// and online after a success.
func inARow(w *truth, r *trueRelay, rules rules, n int) []move {
	v := w.vantages[0]
	var moves []move
	state, failed := monitor.StateUnknown, 0
	for t := rules.cadence.Phase(r.url, v.name); t < w.length; t += rules.cadence.Interval {
		now := state
		if v.sees(r, t) {
			failed, now = 0, monitor.StateOnline
		} else if failed++; failed >= n {
			now = monitor.StateOffline
		}
		if now != state {
			state = now
			moves = append(moves, move{at: t, to: state})
		}
	}
	return moves
}

// half calls a relay offline while at least half of the vantages failed to see
// it the last time. A vantage that has no way to the core leaves its last word.
func half(w *truth, r *trueRelay, rules rules) []move {
	type slot struct {
		v  *trueVantage
		at int64
		ok bool
	}
	slots := make([]slot, len(w.vantages))
	for i, v := range w.vantages {
		slots[i] = slot{v, int64(rules.cadence.Phase(r.url, v.name)), true}
	}
	slices.SortFunc(slots, func(a, b slot) int { return int(a.at - b.at) })
	var moves []move
	state, failed := monitor.StateUnknown, 0
	for base := int64(0); ; base += int64(rules.cadence.Interval) {
		for i := range slots {
			s := &slots[i]
			t := time.Duration(base + s.at)
			if t >= w.length {
				return moves
			}
			if len(slots) > 1 && s.v.lost.has(t) {
				continue
			}
			if ok := s.v.sees(r, t); ok != s.ok {
				s.ok = ok
				if ok {
					failed--
				} else {
					failed++
				}
			}
			now := monitor.StateOnline
			if 2*failed >= len(slots) {
				now = monitor.StateOffline
			}
			if now != state {
				state = now
				moves = append(moves, move{at: t, to: state})
			}
		}
	}
}
