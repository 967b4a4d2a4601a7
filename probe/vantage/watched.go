package vantage

import (
	"container/list"
	"net/netip"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// phase of a relay's way through the schedule: it is always in exactly one.
type phase uint8

const (
	planned  phase = iota // on the heap with its due time
	waiting               // due: in a ready list or in a permit's queue; on the heap with the latest time to start
	inFlight              // being probed; not on the heap
)

// watched is one relay of the schedule. It belongs to the loop.
type watched struct {
	relay   monitor.RelayURL
	task    monitor.Task
	lane    *lane  // its network's, nil = out of reach
	round   uint64 // of the task list that last named it
	removed bool   // no task names it any more, but its probe is in flight

	record   monitor.Record
	outcome  monitor.Outcome // last measured
	cause    monitor.Cause   // of that
	infoRead time.Time       // when its NIP-11 document was last read, zero = never
	document document        // as last read
	facts    extra           // both address families
	depth    extra           // capabilities, and writing
	addr     netip.Addr      // literal or last dialled; zero = not known
	open     time.Duration   // how long it usually takes to open, 0 = not known
	quiet    time.Time       // it asked us to stay away until then

	basis  basis // of due, as far as that is no first look
	phase  phase
	due    time.Time // of the next probe, or of the one that waits or is in flight
	latest time.Time // waiting: not started by then, it is given up
	// urgent: an expedited probe, which came before the slot at plan.
	urgent bool
	plan   time.Time

	list     *list.List    // the ready list that it is in, nil = none
	element  *list.Element // in list, or in the queue of parkedAt
	parkedAt place         // the queue that it is in, zero = none
	woken    place         // whose queue it was taken from for its present try
}

func newWatched(t monitor.Task, n *lane) *watched {
	w := &watched{relay: t.Relay, task: t, lane: n}
	if t.Relay.Network() == monitor.Clearnet {
		// A literal address needs no probe to be known.
		w.addr, _ = netip.ParseAddr(t.Relay.Host())
	}
	return w
}

// paused reports whether an operator wants it left alone now.
func (w *watched) paused(now time.Time) bool { return now.Before(w.task.PausedUntil) }

// places are what a probe of w occupies, as far as known beforehand.
func (w *watched) places() []place { return places(w.addr, w.relay.Host()) }

// target is the network that a failure of w speaks against.
func (w *watched) target() place {
	if w.addr.IsValid() {
		return around(w.addr)
	}
	return place{host: w.relay.Host()}
}

// shift moves all its times along with a clock that was set.
func (w *watched) shift(d time.Duration) {
	r, b := &w.record, &w.basis.before
	for _, t := range []*time.Time{
		&w.infoRead, &w.facts.last, &w.facts.from, &w.depth.last, &w.depth.from, &w.quiet, &w.due, &w.latest, &w.plan, &w.basis.at,
		&r.FirstFailure, &r.LastFailure, &r.LastSuccess, &r.BackoffUntil, &r.SessionSuccess, &r.OnlineSince,
		&b.FirstFailure, &b.LastFailure, &b.LastSuccess, &b.BackoffUntil, &b.SessionSuccess, &b.OnlineSince,
	} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}
