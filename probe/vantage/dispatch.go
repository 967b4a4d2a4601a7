package vantage

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

const (
	expediteWithin = time.Minute
	// unreachableEvery is how often a relay of a network without a proxy gets a
	// row that says so: nothing changes before another configuration.
	unreachableEvery = time.Hour
)

// dispatch takes what is due from the heap and starts what may start. It
// returns when to come again if nothing else happens.
func (l *loop) dispatch(now time.Time) (wake time.Time) {
	for {
		relay, _, ok := l.heap.Pop(now)
		if !ok {
			break
		}
		w := l.relays[relay]
		switch {
		case w.phase == waiting:
			l.expire(w, now)
		case w.lane == nil:
			l.skip(w, monitor.CauseNoProxy, fmt.Sprintf("this vantage has no proxy for %s relays", relay.Network()), now)
			l.plan(w, now.Add(max(unreachableEvery, l.set.cfg.Cadence.Interval)))
		case w.paused(now):
			l.rest(w, now)
		case w.lane.down:
			l.skipDown(w, now)
			l.planDown(w, now)
		default:
			w.phase = waiting
			// The next slot of most relays; those that fail or return have
			// earlier ones, but any look at them is worth having.
			w.latest = now.Add(l.set.cfg.Cadence.Interval)
			l.enqueue(w, false)
		}
	}
	wake = now.Add(time.Hour)
	if _, at, ok := l.heap.Peek(); ok {
		wake = at
	}
	return earlier(wake, l.startReady(now))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// startReady starts probes as long as there is a relay for which there are room,
// permits and a place in the pace. It returns when the pace may allow more.
func (l *loop) startReady(now time.Time) (wake time.Time) {
	never := now.Add(time.Hour)
	for {
		w := l.nextReady(now)
		if w == nil {
			if l.hurried() {
				return l.pace.urgent.next(now)
			}
			return never
		}
		if l.v.lag.late(time.Now()) >= holdLate {
			return now.Add(lagTick)
		}
		ks := w.places()
		if k, full := l.permits.blocked(ks); full {
			l.park(w, k)
			continue
		}
		if !l.pace.ready(now) {
			return l.pace.starts.next(now)
		}
		if !l.permits.claim(ks) {
			continue // a probe under way was quicker
		}
		l.start(w, ks, now)
	}
}

// nextReady is the relay to start next: an expedited one within its part of the
// budget, else the one that is due longest of the network whose turn it is, of
// those that have room.
func (l *loop) nextReady(now time.Time) *watched {
	if l.pace.urgent.ready(now) {
		for _, n := range l.networks {
			if n.room() && n.urgent.Len() > 0 {
				return n.urgent.Front().Value.(*watched)
			}
		}
	}
	var best *lane
	for _, n := range l.networks {
		if n.room() && n.ready.Len() > 0 && (best == nil || l.turnOf(n) < l.turnOf(best)) {
			best = n
		}
	}
	if best == nil {
		return nil
	}
	return best.ready.Front().Value.(*watched)
}

// turnOf tells when n may start its next probe, in a time of its own: lower goes
// first. While several networks have probes that are due, the pace is shared by
// how many relays each has; room that was not used is not made up for.
func (l *loop) turnOf(n *lane) float64 { return max(n.turn, l.turn) }

func (l *loop) takeTurn(n *lane) {
	l.turn = l.turnOf(n)
	n.turn = l.turn + 1/float64(max(1, n.relays))
}

// hurried reports whether an expedited probe only waits for its budget.
func (l *loop) hurried() bool {
	return slices.ContainsFunc(l.networks, func(n *lane) bool { return n.room() && n.urgent.Len() > 0 })
}

// enqueue puts a waiting relay into its ready list; first ahead of the others.
func (l *loop) enqueue(w *watched, first bool) {
	w.list = w.lane.ready
	if w.urgent {
		w.list = w.lane.urgent
	}
	if first {
		w.element = w.list.PushFront(w)
	} else {
		w.element = w.list.PushBack(w)
	}
	l.heap.Set(w.relay, w.latest)
}

// wake lets relays that waited for a permit try again before others, the one
// that waited longest first.
func (l *loop) wake(ws []*watched) {
	for _, w := range slices.Backward(ws) {
		l.enqueue(w, true)
	}
}

// park lets w wait for a permit at k. A permit that it was woken for and cannot
// use goes to the next in that queue.
func (l *loop) park(w *watched, k place) {
	l.unlist(w)
	l.permits.park(w, k)
	l.passOn(w)
}

func (l *loop) passOn(w *watched) {
	if k := w.woken; k != (place{}) {
		w.woken = place{}
		l.wake(l.permits.wake(k))
	}
}

func (l *loop) unlist(w *watched) {
	if w.list != nil {
		w.list.Remove(w.element)
		w.list, w.element = nil, nil
	}
}

// unqueue takes w out of whatever it waits in.
func (l *loop) unqueue(w *watched) {
	l.unlist(w)
	l.permits.leave(w)
	l.passOn(w)
}

// expire gives up a probe that was not admitted in time.
func (l *loop) expire(w *watched, now time.Time) {
	l.unqueue(w)
	if w.urgent {
		// Nobody waits for it any more; the ordinary slot is still to come.
		l.notStarted++
		l.plan(w, w.plan)
		return
	}
	l.skip(w, monitor.CauseOverload, fmt.Sprintf("it was due for %s, but there was no room for its probe in time", now.Sub(w.due).Round(time.Second)), now)
	l.planSkipped(w, now)
}

// rest leaves w alone at a time at which it would have been probed. It comes
// back at each slot, so at the first one after the pause it is probed.
func (l *loop) rest(w *watched, now time.Time) {
	l.skipPaused(w, now)
	l.planSkipped(w, now)
}

func (l *loop) skipPaused(w *watched, now time.Time) {
	l.skip(w, monitor.CausePaused, "an operator paused it until "+w.task.PausedUntil.UTC().Format(time.RFC3339), now)
}

// planSkipped plans w anew after a slot at which it was not measured.
func (l *loop) planSkipped(w *watched, now time.Time) {
	w.basis = basis{at: now, before: w.record, outcome: monitor.OutcomeSkipped}
	l.plan(w, l.next(w, 0, now))
}

// skip reports that w was not measured.
func (l *loop) skip(w *watched, cause monitor.Cause, evidence string, now time.Time) {
	l.report(w, monitor.Observation{
		Relay: w.relay, Start: now, At: now,
		Outcome: monitor.OutcomeSkipped, Cause: cause, Evidence: evidence,
		Lag: max(0, now.Sub(w.due)),
	})
}

func (l *loop) report(w *watched, o monitor.Observation) {
	o.Vantage = l.v.name
	l.v.outbox.add(o, batchSize)
	l.lose(l.v.outbox.losses())
}

// hurry takes the core's requests for expedited probes.
func (l *loop) hurry(relays []monitor.RelayURL, now time.Time) {
	for _, relay := range relays {
		w := l.relays[relay]
		switch {
		case w == nil || w.removed || w.lane == nil:
			l.notStarted++
		case w.paused(now):
			l.skipPaused(w, now)
		case w.lane.down:
			l.skipDown(w, now)
		case now.Before(w.quiet):
			l.skip(w, monitor.CauseRateLimited, fmt.Sprintf("the relay asked not to be asked before %s", w.quiet.UTC().Format(time.RFC3339)), now)
		case w.phase == planned:
			w.phase, w.urgent, w.plan = waiting, true, w.due
			w.due, w.latest = now, now.Add(expediteWithin)
			l.enqueue(w, false)
		case w.list != nil && !w.urgent:
			w.list.MoveToFront(w.element) // it is due in any case
		}
	}
}

// start begins a probe of w, which holds permits for ks.
func (l *loop) start(w *watched, ks []place, now time.Time) {
	l.unlist(w)
	l.heap.Remove(w.relay)
	w.woken = place{}
	w.phase = inFlight
	l.pace.starts.take()
	if w.urgent {
		l.pace.urgent.take()
		l.expedited++
	} else {
		l.takeTurn(w.lane)
	}
	w.lane.inFlight++
	l.flying++
	req := probe.Request{Relay: w.relay, LastOutcome: w.outcome}
	l.extras(&req, w, now)
	r := result{
		w: w, lane: w.lane, places: ks, addr: w.addr, begun: l.v.lag.mark(time.Now()),
		facts: req.Facts, deep: req.Capabilities,
	}
	checker := l.set.checker
	clearnet := w.lane.network == monitor.Clearnet
	go func() {
		req.Admit = func(_ context.Context, addr netip.Addr) (func(), bool) {
			if !clearnet || !addr.IsValid() {
				return nil, true
			}
			// Permits that it holds for another address, or for the name,
			// are kept to the end of the probe: they are few.
			r.addr = addr
			more := slices.DeleteFunc(places(r.addr, ""), func(k place) bool { return slices.Contains(r.places, k) })
			if !l.permits.claim(more) {
				r.refused = true
				return nil, false
			}
			r.places = append(r.places, more...)
			return nil, true
		}
		r.obs = checker.Check(l.probes, req)
		select {
		case l.results <- r:
		case <-l.gone:
		}
	}()
}

// finish takes the result of a probe.
func (l *loop) finish(r result) {
	w, now := r.w, wall()
	l.flying--
	r.lane.inFlight--
	l.wake(l.permits.release(r.places))
	if w.removed {
		w.phase = planned
		l.forget(w)
		return
	}
	if r.addr.IsValid() {
		w.addr = r.addr
	}
	if r.refused {
		// Its name turned out to belong to a place that is full: it waits
		// there like the others.
		w.phase = waiting
		switch {
		case w.lane == nil: // which it lost meanwhile
			l.plan(w, now)
		case w.paused(now):
			l.rest(w, now)
		case w.lane.down:
			l.skipDown(w, now)
			l.planDown(w, now)
		case now.Before(w.latest):
			l.enqueue(w, true)
		default:
			l.expire(w, now)
		}
		return
	}
	o := &r.obs
	o.Start, o.At = o.Start.Round(0), o.At.Round(0)
	o.Lag = max(0, o.Start.Sub(w.due))
	*o = l.doubt(*o, &r)
	if o.Outcome == monitor.OutcomeFailed && r.lane.proxied {
		r.ended = time.Now()
		r.lane.held = append(r.lane.held, r)
		return
	}
	l.conclude(r, now)
}

// conclude takes what a probe came to and plans the next.
func (l *loop) conclude(r result, now time.Time) {
	w, o := r.w, &r.obs
	if w.removed {
		w.phase = planned
		l.forget(w)
		return
	}
	l.learn(w, &r, now)
	clearnet := r.lane.network == monitor.Clearnet
	if o.Outcome.Success() && clearnet {
		w.open = l.self.tempo.add(o.RTTOpen, w.open, r.begun.at)
	}
	before := w.record
	if o.Outcome.Measured() {
		w.outcome, w.cause = o.Outcome, o.Cause
		w.record, _ = l.set.cfg.Liveness.Step(before, l.observer, w.relay, o.Outcome, o.Start, o.At)
		if clearnet { // a proxy that fails is no spike, and its relays have no target networks
			l.watchSpike(w, before, *o, now)
		}
	}
	w.quiet = time.Time{}
	w.basis = basis{at: now, before: before, outcome: o.Outcome, retry: o.RetryAfter}
	next := l.next(w, o.RetryAfter, now)
	if o.RetryAfter > 0 {
		w.quiet = earlier(next, now.Add(o.RetryAfter))
	}
	l.plan(w, next)
	l.report(w, *o)
}
