package world_test

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// rules are what the simulated Pharos works by; the tests that show what a rule
// is good for take one away.
type rules struct {
	corroboration monitor.Corroboration
	liveness      monitor.Liveness
	cadence       monitor.Cadence
	noSuspicion   bool // an older up counts as it is
	noSelfCheck   bool // neither canaries nor spikes
	noExpedites   bool // nobody is asked for a second opinion
}

func defaultRules() rules {
	return rules{corroboration: monitor.DefaultCorroboration(), liveness: monitor.DefaultLiveness(), cadence: monitor.DefaultCadence()}
}

// pharos is vantages and a core in a world: records, votes, verdicts and brake
// are package monitor's; what drives them is the vantage's and the engine's way
// of doing so, over virtual time. A relay that everybody sees up is left alone
// until the first probe that fails to see it: then all its probes are made, until
// everybody sees it up again.
type pharos struct {
	rules
	*truth
	now    time.Duration
	queue  queue
	relays []*simRelay
	points []*point
	active []*simRelay
	asleep int // relays that are online and left alone

	vantages             []monitor.Vantage // as the core knows them
	alone, watching      time.Time
	departures, arrivals []time.Time
	engaged              bool
	round                time.Duration // when the next one is planned
	swept, sweptAll      time.Duration
	ballots              []monitor.Ballot
	judged               []*simRelay
	probes, decisions    int
}

// simRelay is one relay at all vantages and in the core.
type simRelay struct {
	*trueRelay
	i       int32
	phase   []time.Duration // by vantage
	awake   bool
	place   int                    // in active
	own     []monitor.VantageRelay // what the vantage knows
	seen    []monitor.VantageRelay // what the core knows
	due     []time.Duration
	token   []uint32
	fails   []time.Duration // the next slot that fails
	begun   []time.Duration // the probe in flight, or −1
	queued  int             // observations on their way to the core
	verdict monitor.Verdict
	// proposal is the newest one, made at judged.
	proposal monitor.Verdict
	judged   time.Duration
	pending  bool
	dirty    bool
	votes    uint64        // a mark of the newest ballots
	calm     time.Duration // it is judged at every sweep until then
	moves    []move
}

// move is a change of a verdict, or of the marks that tell that something is
// wrong with the relay.
type move struct {
	at    time.Duration
	to    monitor.State
	marks monitor.Marks // of telling
}

// telling are the marks by which a reader sees that an online relay is in doubt.
const telling = monitor.MarkPartial | monitor.MarkHeld | monitor.MarkFlapping

// point is one vantage.
type point struct {
	*trueVantage
	i        int32
	observer *monitor.Observer
	tick     time.Duration // of its batches
	outbox   []parcel
	batch    time.Duration // when the next one is planned, 0 = none
	asked    []int32       // expedited probes for the next answer
	bucket   float64       // of expedited probes
	filled   time.Duration

	down       bool // its canaries say so
	downSince  time.Duration
	failures   []failure // of the spike's window
	spiking    bool
	spikeSince time.Duration
	health     monitor.Health // as it will be told
}

type failure struct {
	at    time.Duration
	place int
}

// parcel is one observation, or a recovery, on its way to the core.
type parcel struct {
	r        *simRelay
	record   monitor.VantageRelay // after it
	first    bool                 // failure of a streak
	returned bool
	recovery *monitor.Recovery
}

const (
	batchEvery  = 5 * time.Second
	sweepEvery  = 10 * time.Second
	calmAfter   = 15 * time.Minute
	calmEvery   = time.Minute // sweeps of relays about which nothing changes
	failTakes   = 4 * time.Second
	canaryEvery = 15 * time.Second
	canaryWait  = 5 * time.Second
	clientRetry = 15 * time.Second // until a vantage finds its core again
	spikeWindow = 200
	spikeLeast  = 20
	spikePlaces = 20
	spikeShare  = 0.8
)

func at(d time.Duration) time.Time { return epoch.Add(d) }

// simulate runs Pharos through a world and returns what became of each relay.
func simulate(w *truth, r rules) *pharos {
	p := &pharos{rules: r, truth: w, round: -1}
	for i, v := range w.vantages {
		pt := &point{trueVantage: v, i: int32(i), observer: monitor.NewObserver(epoch), tick: time.Duration(v.key % uint64(batchEvery))}
		p.points = append(p.points, pt)
		p.vantages = append(p.vantages, monitor.Vantage{Name: v.name, Group: v.name, Networks: []monitor.Network{monitor.Clearnet}, Enrolled: epoch, LastSeen: epoch})
		for _, s := range v.lost {
			p.plan(pt, s.from, s.from+canaryEvery+canaryWait, s.to, s.to+clientRetry, s.from+r.corroboration.Grace()+time.Second)
		}
		for _, s := range v.deaf {
			p.plan(pt, s.from+canaryEvery+canaryWait, s.to+canaryEvery)
		}
	}
	for i, t := range w.relays {
		n := len(w.vantages)
		s := &simRelay{
			trueRelay: t, i: int32(i), phase: make([]time.Duration, n), own: make([]monitor.VantageRelay, n), seen: make([]monitor.VantageRelay, n),
			due: make([]time.Duration, n), token: make([]uint32, n), fails: make([]time.Duration, n), begun: make([]time.Duration, n),
		}
		p.relays = append(p.relays, s)
		p.rouse(s)
		for v := range n {
			s.phase[v] = r.cadence.Phase(t.url, w.vantages[v].name)
			s.begun[v] = -1
			p.probeAt(s, v, r.cadence.First(t.url, w.vantages[v].name, monitor.Task{}, epoch).Sub(epoch))
		}
	}
	for len(p.queue) > 0 {
		e := p.queue.pop()
		if e.at >= w.length {
			break
		}
		p.now = e.at
		p.happen(&e)
	}
	return p
}

func (p *pharos) plan(pt *point, times ...time.Duration) {
	for _, t := range times {
		p.queue.push(event{at: t, kind: evVantage, v: pt.i})
	}
}

func (p *pharos) happen(e *event) {
	switch e.kind {
	case evWake:
		if s := p.relays[e.r]; !s.awake && e.token == s.token[0] {
			p.wake(s)
		}
	case evProbe:
		if s := p.relays[e.r]; s.awake && s.token[e.v] == e.token {
			p.probe(s, p.points[e.v])
		}
	case evResult:
		s, pt := p.relays[e.r], p.points[e.v]
		start := s.begun[e.v]
		s.begun[e.v] = -1
		p.finish(s, pt, start, monitor.OutcomeFailed)
	case evVantage:
		p.look(p.points[e.v])
		p.decideSoon()
	case evBatch:
		p.deliver(p.points[e.v])
	case evRound:
		if e.at == p.round {
			p.round = -1
			p.decide()
		}
	}
}

// probeAt plans a relay's next probe at a vantage.
func (p *pharos) probeAt(s *simRelay, v int, t time.Duration) {
	s.token[v]++
	s.due[v] = t
	p.queue.push(event{at: t, kind: evProbe, r: s.i, v: int32(v), token: s.token[v]})
}

// rouse puts a relay among those that are simulated probe by probe.
func (p *pharos) rouse(s *simRelay) {
	s.awake, s.dirty, s.place = true, true, len(p.active)
	s.calm = p.now + calmAfter
	p.active = append(p.active, s)
	p.decideSoon()
}

// wake makes the records of a relay that was left alone what its probes made of
// them, and plans the next ones.
func (p *pharos) wake(s *simRelay) {
	p.asleep--
	p.rouse(s)
	for v, pt := range p.points {
		next := slotAtOrAfter(p.now, s.phase[v], p.cadence.Interval)
		last := next - p.cadence.Interval
		for pt.lost.has(last) || pt.deaf.has(last) {
			last -= p.cadence.Interval
		}
		o := &s.own[v]
		if t := at(last); t.After(o.Record.LastSuccess) {
			o.Record, _ = p.liveness.Step(o.Record, pt.observer, s.url, monitor.OutcomeOK, t, t)
			o.At, o.Newest, o.Outcome, o.Cause = t, t, monitor.OutcomeOK, monitor.CauseNone
			o.NextDue = p.cadence.Next(o.Record, o.Record, s.url, pt.name, monitor.Task{}, monitor.OutcomeOK, 0, t)
			s.verdict.LastSuccess = later(s.verdict.LastSuccess, t)
		}
		s.seen[v] = *o
		p.probeAt(s, v, next)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// rest leaves a relay alone where nothing is to be expected of it: everybody
// sees it up. It sleeps until the first probe that will not.
func (p *pharos) rest(s *simRelay) {
	v := &s.verdict
	if v.State != monitor.StateOnline || !v.HeldSince.IsZero() || v.Marks&^(monitor.MarkFlapping|monitor.MarkUncorroborated|monitor.MarkDegraded) != 0 || s.queued > 0 {
		return
	}
	until := p.length
	for i, pt := range p.points {
		o := &s.own[i]
		if o.Record.State != monitor.StateOnline || s.begun[i] >= 0 || !s.seen[i].Expedited.IsZero() || slices.Contains(pt.asked, s.i) {
			return
		}
		if s.fails[i] <= p.now { // it is looked for once: what lies between is up
			s.fails[i] = pt.nextFailure(s.trueRelay, s.phase[i], p.cadence.Interval, p.now+1, p.length)
		}
		if until = min(until, s.fails[i]); until <= p.now+p.cadence.Interval {
			return
		}
	}
	last := p.active[len(p.active)-1]
	p.active[s.place], last.place = last, s.place
	p.active = p.active[:len(p.active)-1]
	s.awake, s.dirty, s.pending = false, false, false
	p.asleep++
	for i := range s.token {
		s.token[i]++
	}
	p.queue.push(event{at: until, kind: evWake, r: s.i, token: s.token[0]})
}

// probe makes one probe.
func (p *pharos) probe(s *simRelay, pt *point) {
	p.probes++
	if pt.sees(s.trueRelay, p.now) {
		p.finish(s, pt, p.now, monitor.OutcomeOK)
		return
	}
	s.begun[pt.i] = p.now
	p.queue.push(event{at: p.now + failTakes, kind: evResult, r: s.i, v: pt.i})
}

// finish steps the vantage's record and plans the next probe.
func (p *pharos) finish(s *simRelay, pt *point, start time.Duration, outcome monitor.Outcome) {
	v := int(pt.i)
	o := &s.own[v]
	prev := o.Record
	now := at(p.now)
	if !p.noSelfCheck && pt.lost.has(start) { // whatever it made of it, its recovery undoes
		p.probeAt(s, v, p.cadence.Next(prev, prev, s.url, pt.name, monitor.Task{}, outcome, 0, now).Sub(epoch))
		return
	}
	pt.observer.CanarySucceeded(pt.canary(p.now))
	next, effect := p.liveness.Step(prev, pt.observer, s.url, outcome, at(start), now)
	o.Record, o.Newest, o.Outcome, o.At = next, now, outcome, now
	o.Stage, o.Cause = monitor.StageRead, monitor.CauseNone
	if outcome == monitor.OutcomeFailed {
		o.Stage, o.Cause = monitor.StageTCP, monitor.CauseTimeout
	}
	o.NextDue = p.cadence.Next(prev, next, s.url, pt.name, monitor.Task{}, outcome, 0, now)
	p.probeAt(s, v, o.NextDue.Sub(epoch))
	p.watchSpike(s, pt, prev, outcome)
	s.queued++
	pt.outbox = append(pt.outbox, parcel{
		r: s, record: *o, first: effect == monitor.EffectCounted && next.FailureCount == 1,
		returned: effect == monitor.EffectSucceeded && (prev.State == monitor.StateOffline || prev.State == monitor.StateDead),
	})
	p.batchSoon(pt)
}

// canary is when a canary answered last.
func (v *trueVantage) canary(now time.Duration) time.Time {
	t := now.Truncate(canaryEvery)
	for v.lost.has(t) || v.deaf.has(t) {
		t -= canaryEvery
	}
	return at(t)
}

// look lets a vantage notice what happens to itself: a network that comes and
// goes, a spike that is over.
func (p *pharos) look(pt *point) {
	if p.noSelfCheck {
		return
	}
	away, isLost := pt.lost.at(p.now)
	if !isLost {
		away, isLost = pt.deaf.at(p.now - canaryWait)
	}
	noticed := isLost && p.now >= away.from+canaryEvery+canaryWait
	switch {
	case noticed && !pt.down:
		pt.down, pt.downSince = true, away.from.Truncate(canaryEvery)
		pt.observer.SetNetworkAvailable(false, at(p.now))
		p.tell(pt)
	case pt.down && !pt.lost.has(p.now) && !pt.deaf.has(p.now):
		pt.down = false
		if pt.observer.SetNetworkAvailable(true, at(p.now)) {
			p.recover(pt, monitor.ImpairedNetwork, pt.downSince)
		}
		p.tell(pt)
	}
	p.judgeSpike(pt)
}

// tell has the core told of the vantage's health with the next batch.
func (p *pharos) tell(pt *point) {
	h := &pt.health
	*h = monitor.Health{}
	if pt.down {
		h.Impairments, h.ImpairedSince = append(h.Impairments, monitor.ImpairedNetwork), at(pt.downSince)
	}
	if pt.spiking {
		h.Impairments = append(h.Impairments, monitor.ImpairedSpike)
		if h.ImpairedSince.IsZero() {
			h.ImpairedSince = at(pt.spikeSince)
		}
	}
	p.batchSoon(pt)
}

// recover applies S26 to the vantage's records, and has the core do so.
func (p *pharos) recover(pt *point, i monitor.Impairment, since time.Duration) {
	now := at(p.now)
	for _, s := range p.active {
		o := &s.own[pt.i]
		r := p.liveness.Recover(o.Record, at(since), now)
		if r == o.Record {
			continue
		}
		o.Record = r
		if t := p.cadence.Next(r, r, s.url, pt.name, monitor.Task{}, monitor.OutcomeSkipped, 0, now).Sub(epoch); t < s.due[pt.i] && s.begun[pt.i] < 0 {
			p.probeAt(s, int(pt.i), t)
		}
	}
	pt.outbox = append(pt.outbox, parcel{recovery: &monitor.Recovery{Impairment: i, Since: at(since), At: now}})
	if i == monitor.ImpairedNetwork {
		pt.failures = pt.failures[:0]
	}
}

// watchSpike counts failures of relays that were online here.
func (p *pharos) watchSpike(s *simRelay, pt *point, prev monitor.Record, o monitor.Outcome) {
	if p.noSelfCheck || pt.lies || prev.State != monitor.StateOnline || o != monitor.OutcomeFailed || pt.down {
		return
	}
	place := s.provider
	if place < 0 {
		place = len(providers) + int(s.i)
	}
	pt.failures = append(pt.failures, failure{p.now, place})
	p.judgeSpike(pt)
}

// judgeSpike looks at the last 200 probes of relays that were online here: with
// n of them that is what is probed in 200/n of an interval.
func (p *pharos) judgeSpike(pt *point) {
	window := p.cadence.Interval * spikeWindow / time.Duration(max(spikeWindow/10, p.asleep+len(p.active)))
	i := sort.Search(len(pt.failures), func(i int) bool { return pt.failures[i].at > p.now-min(window, time.Hour) })
	pt.failures = slices.Delete(pt.failures, 0, i)
	on := len(pt.failures) >= spikeLeast
	if on && !pt.spiking {
		places := map[int]int{}
		most := 0
		for _, f := range pt.failures {
			places[f.place]++
			most = max(most, places[f.place])
		}
		on = len(places) >= spikePlaces && float64(most) < spikeShare*float64(len(pt.failures))
	}
	if on {
		p.queue.push(event{at: pt.failures[len(pt.failures)-spikeLeast].at + window + time.Nanosecond, kind: evVantage, v: pt.i})
	}
	if on == pt.spiking {
		return
	}
	pt.spiking = on
	if on {
		pt.spikeSince = pt.failures[0].at
	} else {
		pt.observer.Recovered(at(p.now))
		p.recover(pt, monitor.ImpairedSpike, pt.spikeSince)
	}
	p.tell(pt)
}

// batchSoon plans the vantage's next batch, where none is planned.
func (p *pharos) batchSoon(pt *point) {
	if pt.batch > 0 && pt.batch >= p.now {
		return
	}
	t := slotAtOrAfter(p.now+1, pt.tick, batchEvery)
	if s, lost := pt.lost.at(t); lost {
		t = slotAtOrAfter(s.to+clientRetry, pt.tick, batchEvery)
	}
	pt.batch = t
	p.queue.push(event{at: t, kind: evBatch, v: pt.i})
}

// deliver hands over a batch, and takes the answer.
func (p *pharos) deliver(pt *point) {
	if pt.batch != p.now {
		return
	}
	pt.batch = 0
	if pt.lost.has(p.now) {
		p.batchSoon(pt)
		return
	}
	v := int(pt.i)
	p.vantages[v].Health = pt.health
	for i := range pt.outbox {
		a := &pt.outbox[i]
		if rec := a.recovery; rec != nil {
			for _, s := range p.active {
				s.seen[v].Record = p.liveness.Recover(s.seen[v].Record, rec.Since, rec.At)
				s.dirty = true
			}
			continue
		}
		s := a.r
		s.queued--
		if p.now-a.record.Newest.Sub(epoch) > p.corroboration.Grace() {
			continue // history only
		}
		asked := s.seen[v].Expedited
		s.seen[v] = a.record
		if a.record.Newest.Before(asked) { // made before it was asked
			s.seen[v].Expedited = asked
		}
		s.dirty = true
		s.verdict.LastSuccess = later(s.verdict.LastSuccess, a.record.Record.LastSuccess)
		switch {
		case a.first:
			p.ask(s, v, 3)
		case a.returned:
			p.ask(s, v, len(p.points))
		}
	}
	pt.outbox = pt.outbox[:0]
	p.hurry(pt)
	p.decideSoon()
}

// ask requests expedited probes, as the engine does.
func (p *pharos) ask(s *simRelay, from, most int) {
	now := at(p.now)
	for _, dead := range []bool{false, true} {
		for i, pt := range p.points {
			if most == 0 || p.noExpedites {
				return
			}
			if dead != (s.seen[i].Record.State == monitor.StateDead) || i == from || !p.eligible(i) {
				continue
			}
			most--
			if x := s.seen[i].Expedited; !x.IsZero() && now.Sub(x) < monitor.ExpeditedTimeout {
				continue
			}
			s.seen[i].Expedited = now
			pt.asked = append(pt.asked, s.i)
			p.batchSoon(pt)
		}
	}
}

// hurry plans the probes that the answer asks for, within 5 % of the budget; what
// finds no place within a minute is dropped.
func (p *pharos) hurry(pt *point) {
	need := float64(len(p.relays)) / p.cadence.Interval.Seconds()
	rate := max(10, 1.25*need) * 0.05
	depth := max(1, rate*10)
	pt.bucket = min(depth, pt.bucket+(p.now-pt.filled).Seconds()*rate)
	pt.filled = p.now
	for _, i := range pt.asked {
		s := p.relays[i]
		t := p.now
		if pt.bucket < 1 {
			t += time.Duration((1 - pt.bucket) / rate * float64(time.Second))
		}
		if !s.awake || s.begun[pt.i] >= 0 || s.due[pt.i] <= t || t-p.now > time.Minute {
			continue
		}
		pt.bucket--
		p.probeAt(s, int(pt.i), t)
	}
	pt.asked = pt.asked[:0]
}

// eligible reports whether a vantage's votes count now.
func (p *pharos) eligible(i int) bool {
	v := &p.vantages[i]
	v.LastSeen = at(p.now)
	if s, lost := p.points[i].lost.at(p.now); lost {
		v.LastSeen = at(s.from)
	}
	return p.corroboration.VantageEligible(v, at(p.now))
}

// decideSoon plans a round for the next second.
func (p *pharos) decideSoon() { p.decideBy(p.now.Truncate(time.Second) + time.Second) }

func (p *pharos) decideBy(t time.Duration) {
	if p.round < 0 || t < p.round {
		p.round = t
		p.queue.push(event{at: t, kind: evRound})
	}
}

// decide is one round, as the engine's.
func (p *pharos) decide() {
	now := at(p.now)
	groups := 0
	for i := range p.points {
		if p.eligible(i) {
			groups++
		}
	}
	switch {
	case len(p.points) < 2 || groups >= 2:
		p.alone = time.Time{}
	case p.alone.IsZero():
		p.alone = now
	}
	switch {
	case groups == 0:
		p.watching = time.Time{}
	case p.watching.IsZero():
		p.watching = now
	}
	sweep := p.now-p.swept >= sweepEvery
	all := p.now-p.sweptAll >= calmEvery
	if sweep {
		p.swept = p.now
	}
	if all {
		p.sweptAll = p.now
	}

	judged := p.judged[:0]
	judge := func(s *simRelay) {
		s.proposal, s.judged, s.dirty = p.propose(s, now), p.now, false
		judged = append(judged, s)
	}
	for _, s := range p.active {
		if s.dirty || all || sweep && p.now < s.calm {
			judge(s)
		}
	}
	el := p.electorate(now, groups)
	brake := p.corroboration.Brake()
	was := p.engaged
	p.engaged = brake.Engaged(el, now)
	if p.engaged || was {
		for _, s := range p.active {
			if s.judged != p.now && (s.pending || !s.verdict.HeldSince.IsZero()) {
				judge(s)
			}
		}
	}
	slices.SortFunc(judged, func(a, b *simRelay) int { return cmp.Compare(a.i, b.i) })
	for _, s := range judged {
		released := false
		if s.pending && p.engaged && !s.verdict.HeldSince.IsZero() {
			released = brake.Releases(s.verdict.HeldSince, p.poll(s, now), el, now)
		}
		p.become(s, brake.Apply(s.verdict, s.proposal, s.pending, p.engaged, released, now), released)
	}
	for _, s := range judged {
		p.rest(s)
	}
	p.judged = judged
	if len(p.active) > 0 {
		p.decideBy(p.now.Truncate(sweepEvery) + sweepEvery)
	}
}

// poll returns the relay's ballots, valid until the next call.
func (p *pharos) poll(s *simRelay, now time.Time) []monitor.Ballot {
	p.ballots = p.corroboration.AppendBallots(p.ballots[:0], s.url, p.vantages, s.seen, now)
	if p.noSuspicion {
		for i := range p.ballots {
			p.ballots[i].Unconfirmed = false
		}
	}
	return p.ballots
}

func (p *pharos) propose(s *simRelay, now time.Time) monitor.Verdict {
	p.decisions++
	ballots := p.poll(s, now)
	votes := uint64(0)
	for i := range ballots {
		votes = votes*16 + uint64(ballots[i].Vote)*2
		if ballots[i].Unconfirmed || !ballots[i].Eligible {
			votes++
		}
	}
	if votes != s.votes {
		s.votes, s.calm = votes, p.now+calmAfter
	}
	v := p.corroboration.Decide(s.verdict, ballots, monitor.Situation{AloneSince: p.alone, WatchingSince: p.watching}, now)
	s.pending = monitor.Pending(s.verdict, ballots) || monitor.Departs(s.verdict, v)
	return v
}

// electorate is what the brake is told. Relays that are left alone are up.
func (p *pharos) electorate(now time.Time, groups int) monitor.Electorate {
	old := func(t time.Time) bool { return now.Sub(t) >= p.corroboration.Interval }
	p.departures, p.arrivals = slices.DeleteFunc(p.departures, old), slices.DeleteFunc(p.arrivals, old)
	online, pending, fresh := p.asleep, 0, p.asleep
	var successes []time.Time
	for _, s := range p.active {
		if s.verdict.State != monitor.StateOnline {
			continue
		}
		online++
		if now.Sub(s.verdict.LastSuccess) <= p.corroboration.LiveMaxAge {
			fresh++
		}
		if s.pending {
			pending++
		} else {
			successes = append(successes, s.verdict.LastSuccess)
		}
	}
	return monitor.Electorate{
		Online: online, Pending: pending, Departures: p.departures, Arrivals: p.arrivals, EligibleGroups: groups,
		FreshShare: float64(fresh) / float64(max(1, online)),
		SucceededShare: func(since time.Time) float64 {
			n := p.asleep
			for _, t := range successes {
				if t.After(since) {
					n++
				}
			}
			return float64(n) / float64(max(1, p.asleep+len(successes)))
		},
	}
}

// become keeps a new verdict.
func (p *pharos) become(s *simRelay, v monitor.Verdict, released bool) {
	from, was := s.verdict.State, s.verdict.Marks&telling
	s.verdict = v
	if marks := v.Marks & telling; marks != was || v.State != from {
		s.moves = append(s.moves, move{p.now, v.State, marks})
	}
	if v.State == from {
		return
	}
	now := at(p.now)
	switch {
	case from == monitor.StateOnline && !released:
		p.departures = append(p.departures, now)
	case v.State == monitor.StateOnline:
		p.arrivals = append(p.arrivals, now)
	}
	s.calm = p.now + calmAfter
}
