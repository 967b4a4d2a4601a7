package vantage

import (
	"container/list"
	"context"
	"net/netip"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// giveUp is how long probes may take to end once their context has.
const giveUp = 3 * time.Second

// loop is the one goroutine that owns the schedule, the records, the permits'
// queues and the self-check. The times of the schedule are wall-clock ones
// without a monotonic part, as slots and records are; when the clock is set they
// move along. Times that say how often we look at ourselves are monotonic.
type loop struct {
	v      *Vantage
	set    *setup          // that it works by
	probes context.Context // of the probes

	tasks    chan monitor.Tasks
	canaries chan canaryRound
	proxies  chan proxyRound
	answers  chan monitor.Answer
	results  chan result
	gone     chan struct{} // closed when nobody reads results any more

	relays   map[monitor.RelayURL]*watched
	round    uint64 // counts task lists
	heap     monitor.DueHeap
	observer *monitor.Observer
	networks []*lane // those that can be reached
	lanes    map[monitor.Network]*lane
	flying   int
	permits  *permits
	pace     *pacer
	turn     float64 // of the network that started a probe last

	self selfCheck

	expedited  uint64
	notStarted uint64 // expedites
	deep       uint64 // probes that tested capabilities
	proxySkips uint64 // for want of a proxy that answers
}

// lane is what is separate for each network.
type lane struct {
	network  monitor.Network
	limit    int
	inFlight int
	urgent   *list.List // of *watched: expedited, first come first served
	ready    *list.List // of *watched: due
	relays   int        // that belong to it, at the last replan
	turn     float64    // see turnOf

	// Of a network behind a proxy that is asked whether it works (proxy.go).
	proxied   bool
	down      bool // it does not
	downSince time.Time
	failedAt  time.Time // when it last did not, zero = never
	held      []result  // failures that it has not vouched for yet
}

func newLane(n monitor.Network) *lane {
	return &lane{network: n, urgent: list.New(), ready: list.New()}
}

func (n *lane) room() bool { return n.inFlight < n.limit }

// result is a probe that has ended.
type result struct {
	w       *watched
	lane    *lane // that it ran in
	obs     monitor.Observation
	begun   mark       // for our own lag
	ended   time.Time  // with its monotonic part, of one that is held
	places  []place    // permits that it held
	addr    netip.Addr // that it dialled or would have dialled
	refused bool       // there was no permit for addr

	facts, deep bool // were asked for; deep: capabilities
}

func newLoop(v *Vantage, probes context.Context) *loop {
	now := wall()
	set := v.present()
	l := &loop{
		v: v, set: set, probes: probes,
		tasks:    make(chan monitor.Tasks),
		canaries: make(chan canaryRound),
		proxies:  make(chan proxyRound),
		answers:  make(chan monitor.Answer),
		results:  make(chan result, 64),
		gone:     make(chan struct{}),
		relays:   map[monitor.RelayURL]*watched{},
		observer: monitor.NewObserver(now),
		permits:  newPermits(set.cfg.PerIP, set.cfg.PerSubnet),
		pace:     newPacer(set.cfg.Rate, now),
	}
	l.relane(now)
	l.self.init(v)
	return l
}

// wall is the wall clock alone.
func wall() time.Time { return time.Now().Round(0) }

// run schedules probes until ctx ends.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.checkSelf(time.Now())
		now := wall()
		wake := l.dispatch(now)
		timer.Reset(min(max(0, wake.Sub(now)), l.self.untilNext(time.Now())))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case r := <-l.results:
			l.finish(r)
			l.finishAll()
		case t := <-l.tasks:
			l.setTasks(t.Relays, wall())
			l.replan()
			l.publish()
		case a := <-l.answers:
			l.hurry(a.Expedite, wall())
			l.bringForward(a.Due, wall())
		case r := <-l.canaries:
			l.adopt(wall()) // which this round may have been the first to know of
			if r.of == l.set {
				l.canaryRound(r, wall())
			}
		case r := <-l.proxies:
			l.adopt(wall())
			if r.of == l.set {
				l.proxyRound(r, wall())
			}
		case <-l.set.replaced:
			l.adopt(wall())
		}
	}
}

// finishAll takes the results that have come meanwhile.
func (l *loop) finishAll() {
	for {
		select {
		case r := <-l.results:
			l.finish(r)
		default:
			return
		}
	}
}

// drain waits for the probes in flight: for DrainLimit as they are, then with
// their contexts ended, and leaves behind what does not end even so. What waits
// for a proxy's word waits no longer.
func (l *loop) drain(endProbes context.CancelFunc) {
	defer func() {
		for _, n := range l.networks {
			l.noProxy(n, wall())
		}
		l.publish()
	}()
	defer close(l.gone)
	limit := time.NewTimer(l.v.drainLimit)
	defer limit.Stop()
	ended := false
	for l.flying > 0 {
		select {
		case r := <-l.results:
			l.finish(r)
		case <-l.answers:
			// Too late: nothing is started any more.
		case <-limit.C:
			if ended {
				l.v.log.Error("probes left behind", "count", l.flying)
				return
			}
			ended = true
			endProbes()
			limit.Reset(giveUp)
		}
	}
}

// firstPace is how far apart the first looks at new relays are at the most: a
// short list need not take the whole of Cadence.FirstWithin.
const firstPace = 100 * time.Millisecond

// setTasks follows a new list: what is on it already keeps its record and its
// slot.
func (l *loop) setTasks(tasks []monitor.Task, now time.Time) {
	l.round++
	restarted := len(l.relays) == 0 // what is on the list is not new, as far as we know
	fresh := 0
	for _, t := range tasks {
		if l.relays[t.Relay] == nil && !t.Candidate {
			fresh++
		}
	}
	first := l.set.cfg.Cadence
	first.FirstWithin = min(first.FirstWithin, time.Duration(fresh)*firstPace)
	for _, t := range tasks {
		w := l.relays[t.Relay]
		if w == nil {
			w = newWatched(t, l.lanes[t.Relay.Network()])
			l.relays[t.Relay] = w
			w.depth.from = first.FirstDepth(w.relay, l.v.name, t.Candidate || !restarted, now)
			l.plan(w, first.First(w.relay, l.v.name, t, now))
		}
		promoted := w.task.Candidate && !t.Candidate
		w.task, w.round, w.removed = t, l.round, false
		switch {
		case promoted && w.phase == planned:
			l.sooner(w, l.again(w, now))
		case w.phase == waiting && w.paused(now):
			l.unqueue(w)
			l.rest(w, now)
		}
	}
	for _, w := range l.relays {
		switch {
		case w.round == l.round:
		case w.phase == inFlight:
			w.removed = true
		default:
			l.forget(w)
		}
	}
}

// again is when w would be due by its record and last outcome alone.
func (l *loop) again(w *watched, now time.Time) time.Time {
	c := l.set.cfg.Cadence
	if w.outcome == monitor.OutcomeNone {
		return c.First(w.relay, l.v.name, w.task, now)
	}
	return c.Next(w.record, w.record, w.relay, l.v.name, w.task, w.outcome, 0, now)
}

// sooner moves a planned probe forward to at, but not into a time in which the
// relay wants to be left alone.
func (l *loop) sooner(w *watched, at time.Time) {
	if at.Before(w.due) && !at.Before(w.quiet) {
		l.plan(w, at)
	}
}

// bringForward follows the core's record where that wants a relay earlier than
// our own does: a record there may have lost what ours still has.
func (l *loop) bringForward(due map[monitor.RelayURL]time.Time, now time.Time) {
	for relay, at := range due {
		if at.Before(now) {
			at = now
		}
		if w := l.relays[relay]; w != nil && w.phase == planned && w.lane != nil {
			l.sooner(w, at)
		}
	}
}

func (l *loop) plan(w *watched, at time.Time) {
	w.phase, w.due, w.urgent = planned, at, false
	l.heap.Set(w.relay, at)
}

func (l *loop) forget(w *watched) {
	l.unqueue(w)
	l.heap.Remove(w.relay)
	delete(l.relays, w.relay)
}
