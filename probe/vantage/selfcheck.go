package vantage

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	loadEvery    = 250 * time.Millisecond
	clockEvery   = time.Second
	measureEvery = 5 * time.Second // descriptors, demand, lag for the health
	cpuEvery     = 2 * time.Second
	lagMemory    = 15 * time.Second // how long a delay of over a second impairs
	fullShare    = 0.9              // of the descriptors that we may have
	demandSlices = 6                // of ten seconds
	demandSlice  = 10 * time.Second
)

// selfCheck is what the loop knows about itself (corroboration.md, Is it me?).
// Its own times are monotonic.
type selfCheck struct {
	conditions conditions
	canary     canaryWatch
	spike      *spike
	clock      clockWatch
	origin     time.Time
	disturbed  time.Time // newest suspension or clock jump
	tempo      *tempo
	slowAt     time.Time // when last all relays were a second slower than usual

	nextLoad, nextClock, nextMeasure time.Time

	cpuAt    time.Time
	cpuUsed  time.Duration
	cpuShare float64
	p95      time.Duration
}

func (s *selfCheck) init(v *Vantage) {
	now := time.Now()
	s.spike, s.tempo = newSpike(), newTempo()
	s.origin = now
	s.clock.look(v.clocks(now))
	s.cpuUsed, _ = v.cpu()
	s.cpuAt = now
	s.nextLoad, s.nextClock, s.nextMeasure = now.Add(loadEvery), now.Add(clockEvery), now
}

func (s *selfCheck) untilNext(now time.Time) time.Duration { return max(0, s.nextLoad.Sub(now)) }

// checkSelf does what is due of the self-check. now has its monotonic reading.
func (l *loop) checkSelf(now time.Time) {
	s := &l.self
	if !now.Before(s.nextClock) {
		s.nextClock = now.Add(clockEvery)
		l.checkClock(now)
	}
	if !now.Before(s.nextMeasure) {
		s.nextMeasure = now.Add(measureEvery)
		l.checkResources()
		l.replan()
		s.p95 = l.v.lag.p95()
		l.judgeSpike(s.spike.judge(wall()))
		l.publish()
	}
	if !now.Before(s.nextLoad) {
		s.nextLoad = now.Add(loadEvery)
		l.checkLoad(now)
		l.publish()
	}
}

// checkLoad lets the pace answer to what the process feels.
func (l *loop) checkLoad(now time.Time) {
	s := &l.self
	if d := now.Sub(s.cpuAt); d >= cpuEvery {
		s.cpuShare = 0
		if used, ok := l.v.cpu(); ok {
			s.cpuShare = float64(used-s.cpuUsed) / float64(d) / float64(runtime.GOMAXPROCS(0))
			s.cpuUsed = used
		}
		s.cpuAt = now
	}
	median, worst := l.v.lag.take(now)
	slow := s.tempo.judge(now, l.pace.lowest())
	if s.tempo.excess >= lagLimit {
		s.slowAt = now
	}
	l.pace.adapt(load{lag: max(median, l.v.latency()), late: worst, cpu: s.cpuShare, slow: slow}, wall())

	over := l.v.lag.lastOver()
	l.impair(monitor.ImpairedLag, !over.IsZero() && now.Sub(over) < lagMemory, wall(), "this process ran more than a second late")
}

func (l *loop) checkClock(now time.Time) {
	d := l.self.clock.look(l.v.clocks(l.self.origin))
	if d.kind == "" {
		return
	}
	if d.shift != 0 {
		l.shift(d.shift)
	}
	l.self.disturbed = now
	l.v.log.Warn("vantage disturbed", "impairment", string(d.kind), "since", d.since, "clock_moved", d.shift)
	l.recovered(d.kind, d.since, d.at)
}

// shift moves the whole schedule along with a clock that was set.
func (l *loop) shift(d time.Duration) {
	for _, w := range l.relays {
		w.shift(d)
		switch w.phase {
		case planned:
			l.heap.Set(w.relay, w.due)
		case waiting:
			l.heap.Set(w.relay, w.latest)
		case inFlight: // not on the heap
		}
	}
	l.self.conditions.shift(d)
	l.self.canary.shift(d)
}

func (l *loop) checkResources() {
	if used, limit, ok := l.v.descriptors(); ok {
		l.impair(monitor.ImpairedDescriptors, float64(used) > fullShare*float64(limit), wall(),
			fmt.Sprintf("%d of %d file descriptors are open: raise the limit (ulimit -n, LimitNOFILE) or lower probe.concurrency", used, limit))
	}
	l.impair(monitor.ImpairedRoots, !l.set.checker.HasRoots(), wall(),
		"there are no CA roots, every wss relay would look untrusted: set probe.tls_ca_file, or install ca-certificates and restart")
}

func (l *loop) canaryRound(r canaryRound, now time.Time) {
	c := &l.self.canary
	changed := c.round(r)
	l.observer.CanarySucceeded(r.succeeded)
	if !changed {
		return
	}
	l.observer.SetNetworkAvailable(!c.down, now)
	l.impair(monitor.ImpairedNetwork, c.down, c.since, "no canary answers: "+r.problem)
}

// noCanaries makes the network count as available: nobody asks any more.
func (l *loop) noCanaries(now time.Time) {
	c := &l.self.canary
	if !c.down {
		return
	}
	c.down = false
	l.observer.SetNetworkAvailable(true, now)
	l.impair(monitor.ImpairedNetwork, false, now, "")
}

// watchSpike counts a measured probe of a relay that was online here. While the
// network is known to be away it tells nothing new.
func (l *loop) watchSpike(w *watched, before monitor.Record, o monitor.Observation, now time.Time) {
	if before.State != monitor.StateOnline || l.self.canary.down {
		return
	}
	l.judgeSpike(l.self.spike.add(o.Outcome == monitor.OutcomeFailed, w.target(), o.Start, now))
}

func (l *loop) judgeSpike(changed bool) {
	if s := l.self.spike; changed {
		l.impair(monitor.ImpairedSpike, s.on, s.since, fmt.Sprintf("%d of the last %d probes of relays that were online failed, in %d networks", s.failures, len(s.ring), len(s.places)))
	}
}

// impair notes whether an impairment is there; its end may be a recovery.
func (l *loop) impair(i monitor.Impairment, on bool, began time.Time, why string) {
	changed, since := l.self.conditions.set(i, on, began)
	if !changed {
		return
	}
	if on {
		l.v.log.Warn("vantage impaired", "impairment", string(i), "since", began, "reason", why)
	} else {
		l.v.log.Info("vantage recovered", "impairment", string(i), "since", since)
		if recovers(i) {
			l.recovered(i, since, wall())
		}
	}
	l.publish()
}

// recovered applies S26 to our own records, as the core will to its own, and
// tells the core.
func (l *loop) recovered(i monitor.Impairment, since, now time.Time) {
	c := l.set.cfg.Cadence
	if i != monitor.ImpairedNetwork { // for which the observer has seen it already
		l.observer.Recovered(now)
	}
	for _, w := range l.relays {
		r := l.set.cfg.Liveness.Recover(w.record, since, now)
		if r == w.record {
			continue
		}
		w.record = r
		if w.phase == planned {
			l.sooner(w, c.Next(r, r, w.relay, l.v.name, w.task, monitor.OutcomeSkipped, 0, now))
		}
	}
	l.v.outbox.recovered(monitor.Recovery{Impairment: i, Since: since, At: now})
	if i != monitor.ImpairedSpike {
		// What was seen meanwhile says nothing about now.
		l.self.spike.clear()
		l.judgeSpike(l.self.spike.judge(now))
	}
}

// doubt takes back what was measured while we could not measure: a delay of our
// own of more than a second, no descriptors or no roots make any result unclear,
// and a failure proves nothing either where shorter delays add up to that, where
// all others were slow at the same time, or where the machine slept, its clock
// jumped or the network's proxy was away meanwhile.
func (l *loop) doubt(o monitor.Observation, r *result) monitor.Observation {
	begun := r.begun
	if !o.Outcome.Measured() {
		return o
	}
	failed := o.Outcome == monitor.OutcomeFailed
	over, starved := l.v.lag.since(begun, time.Now())
	switch {
	case over:
		return unclear(o, monitor.CauseLag, "this vantage ran more than a second late meanwhile")
	case failed && starved > lagLimit:
		return unclear(o, monitor.CauseLag, fmt.Sprintf("delays of this vantage itself added up to %s meanwhile", starved.Round(time.Millisecond)))
	case failed && l.self.slowAt.After(begun.at):
		return unclear(o, monitor.CauseLag, "all that this vantage probed meanwhile took over a second longer than usual")
	case l.self.conditions.has(monitor.ImpairedDescriptors):
		return unclear(o, monitor.CauseLocalNetwork, "this vantage has run out of file descriptors")
	case l.self.conditions.has(monitor.ImpairedRoots):
		return unclear(o, monitor.CauseLocalNetwork, "this vantage has no CA roots")
	case failed && l.self.disturbed.After(begun.at):
		return unclear(o, monitor.CauseLocalNetwork, "this machine slept or its clock was set meanwhile")
	case failed && r.lane.failedAt.After(begun.at):
		return unclear(o, monitor.CauseLocalNetwork, fmt.Sprintf("the proxy of this vantage for %s did not answer meanwhile", r.lane.network))
	}
	return o
}

func unclear(o monitor.Observation, c monitor.Cause, why string) monitor.Observation {
	o.Evidence = fmt.Sprintf("not believed, since %s; it looked like %s", why, o.Outcome)
	if o.Cause != monitor.CauseNone {
		o.Evidence += " (" + o.Cause.String() + ")"
	}
	o.Outcome, o.Cause = monitor.OutcomeUnclear, c
	// What did not answer to these may be our fault as well. That an event was sent
	// stays true.
	o.DNS, o.Capabilities = nil, nil
	return o
}

// replan counts how many probes the schedule needs in the next minute.
func (l *loop) replan() {
	now := wall()
	var due [demandSlices]int
	reachable := 0
	for _, n := range l.networks {
		n.relays = 0
	}
	for _, w := range l.relays {
		if w.lane == nil {
			continue
		}
		reachable++
		w.lane.relays++
		if w.phase != planned {
			continue
		}
		if i := max(0, int(w.due.Sub(now)/demandSlice)); i < len(due) {
			due[i]++
		}
	}
	// The busiest slice, and not the mean: a first pass must not grow slower as
	// it gets on.
	need := max(float64(slices.Max(due[:]))/demandSlice.Seconds(), float64(reachable)/l.set.cfg.Cadence.Interval.Seconds())
	// Expedited probes live within the budget, they do not raise it.
	ready, _ := l.backlog()
	l.pace.demand(need, ready, now)
}

// backlog counts the relays that wait for the pace or for room.
func (l *loop) backlog() (ready, urgent int) {
	for _, n := range l.networks {
		ready += n.ready.Len()
		urgent += n.urgent.Len()
	}
	return ready, urgent
}

// publish makes health and figures visible to other goroutines.
func (l *loop) publish() {
	s := &l.self
	h := monitor.Health{
		Lag: s.p95, CanarySuccess: s.canary.lastSuccess, InFlight: l.flying, Watched: len(l.relays),
		Networks: l.set.cfg.reached(),
	}
	s.conditions.health(&h)
	flying, held := make(map[monitor.Network]int, len(l.networks)), 0
	for _, n := range l.networks {
		flying[n.network] = n.inFlight
		held += len(n.held)
		if n.down {
			h.Down = append(h.Down, n.network)
		}
	}
	ready, urgent := l.backlog()
	g := Stats{
		Ready: ready + urgent, Parked: l.permits.waiting, Rate: l.pace.rate,
		InFlight: flying, Held: held,
		Expedited: l.expedited, ExpeditesDropped: l.notStarted,
		DeepProbes: l.deep, ProxySkips: l.proxySkips,
	}
	l.v.mu.Lock()
	defer l.v.mu.Unlock()
	l.v.state, l.v.gauges = h, g
}
