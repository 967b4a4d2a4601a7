package monitor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// world runs vantages and a core through virtual time: schedule, liveness step,
// votes, verdicts and brake as they are, the network as the scenario says. A
// batch arrives at every tick, and decisions follow.
type world struct {
	c       monitor.Corroboration
	l       monitor.Liveness
	cadence monitor.Cadence

	vantages  []monitor.Vantage
	observers []*monitor.Observer
	heaps     []monitor.DueHeap
	relays    []monitor.RelayURL
	index     map[monitor.RelayURL]int
	// By relay.
	seen     [][]monitor.VantageRelay
	verdicts []monitor.Verdict
	proposed []monitor.Verdict
	ballots  [][]monitor.Ballot
	pending  []bool
	moves    [][]move
	marks    []monitor.Marks // ever seen

	departures, arrivals []time.Time
	alone, watching      time.Time
	held                 int // now
}

type move struct {
	from, to monitor.State
	at       time.Duration // since day0
	quorum   monitor.Quorum
}

// scene says what happens: what a vantage sees of a relay, and which vantages
// report at all, both at a time since day0. Relay 0 is the one looked at.
type scene struct {
	groups string // one letter per vantage
	relays int
	look   func(at time.Duration, vantage, relay int) monitor.Outcome
	lost   func(at time.Duration, vantage int) bool // neither probes nor reports
	frozen func(at time.Duration, vantage int) bool // reports, and does not probe
}

const tick = 10 * time.Second

func (s scene) start() *world {
	n := s.relays
	w := &world{
		c: monitor.DefaultCorroboration(), l: monitor.DefaultLiveness(), cadence: monitor.DefaultCadence(),
		index: map[monitor.RelayURL]int{},
		seen:  make([][]monitor.VantageRelay, n), verdicts: make([]monitor.Verdict, n), proposed: make([]monitor.Verdict, n),
		ballots: make([][]monitor.Ballot, n), pending: make([]bool, n), moves: make([][]move, n), marks: make([]monitor.Marks, n),
	}
	for i, g := range s.groups {
		w.vantages = append(w.vantages, monitor.Vantage{
			Name: fmt.Sprintf("v%d", i), Group: string(g), Networks: []monitor.Network{monitor.Clearnet},
		})
		w.observers = append(w.observers, monitor.NewObserver(day0))
	}
	w.heaps = make([]monitor.DueHeap, len(w.vantages))
	for i := range n {
		r := monitor.RelayURL(fmt.Sprintf("wss://relay-%d.example/", i))
		w.relays = append(w.relays, r)
		w.index[r] = i
		w.seen[i] = make([]monitor.VantageRelay, len(w.vantages))
		for v := range w.vantages {
			w.heaps[v].Set(r, w.cadence.First(r, w.vantages[v].Name, monitor.Task{}, day0))
		}
	}
	return w
}

// run goes on until a time since day0.
func (w *world) run(s scene, from, until time.Duration) {
	for d := from; d < until; d += tick {
		now := day0.Add(d)
		for v := range w.vantages {
			if s.lost != nil && s.lost(d, v) {
				continue
			}
			w.vantages[v].LastSeen = now
			if s.frozen == nil || !s.frozen(d, v) {
				w.probe(s, v, now)
			}
		}
		w.decide(now)
	}
}

func (w *world) probe(s scene, v int, now time.Time) {
	name := w.vantages[v].Name
	for {
		relay, due, ok := w.heaps[v].Pop(now)
		if !ok {
			return
		}
		at := laterTime(due, now.Add(-tick))
		i := w.index[relay]
		o := s.look(at.Sub(day0), v, i)
		vr := &w.seen[i][v]
		prev := vr.Record
		var effect monitor.Effect
		vr.Record, effect = w.l.Step(prev, w.observers[v], relay, o, at, at)
		vr.Expedited = time.Time{}
		next := w.cadence.Next(prev, vr.Record, relay, name, monitor.Task{}, o, 0, at)
		if o.Measured() {
			vr.Outcome, vr.At, vr.NextDue, vr.NoRoute = o, at, next, false
			vr.Stage, vr.Cause = monitor.StageTCP, monitor.CauseTimeout
		} else {
			vr.NoRoute = o == monitor.OutcomeUnclear // the only one in these scenes
		}
		w.heaps[v].Set(relay, next)
		down := bad(w.verdicts[i].State)
		if effect == monitor.EffectCounted && vr.Record.FailureCount == 1 || o.Success() && down && prev.State != online {
			w.expedite(i, v, now)
		}
	}
}

// expedite asks the other groups' vantages for a probe at once.
func (w *world) expedite(relay, by int, now time.Time) {
	for v := range w.vantages {
		if w.vantages[v].Group != w.vantages[by].Group && w.c.VantageEligible(&w.vantages[v], now) {
			w.seen[relay][v].Expedited = now
			w.heaps[v].Set(w.relays[relay], now.Add(time.Second))
		}
	}
}

func (w *world) decide(now time.Time) {
	able, eligible := map[string]bool{}, map[string]bool{}
	for v := range w.vantages {
		able[w.vantages[v].Group] = true
		if w.c.VantageEligible(&w.vantages[v], now) {
			eligible[w.vantages[v].Group] = true
		}
	}
	if len(able) < 2 || len(eligible) >= 2 {
		w.alone = time.Time{}
	} else if w.alone.IsZero() {
		w.alone = now
	}
	if len(eligible) == 0 {
		w.watching = time.Time{}
	} else if w.watching.IsZero() {
		w.watching = now
	}
	situation := monitor.Situation{AloneSince: w.alone, WatchingSince: w.watching}
	brake := w.c.Brake()

	e := monitor.Electorate{Departures: w.departures, Arrivals: w.arrivals, EligibleGroups: len(eligible)}
	fresh := 0
	for i, r := range w.relays {
		prev := w.verdicts[i]
		votes := w.c.AppendBallots(w.ballots[i][:0], r, w.vantages, w.seen[i], now)
		w.ballots[i] = votes
		w.proposed[i] = w.c.Decide(prev, votes, situation, now)
		w.pending[i] = monitor.Pending(prev, votes) || monitor.Departs(prev, w.proposed[i])
		if prev.State == online {
			e.Online++
			if now.Sub(prev.LastSuccess) <= w.c.LiveMaxAge {
				fresh++
			}
		}
		if w.pending[i] {
			e.Pending++
		}
	}
	e.FreshShare = float64(fresh) / float64(max(e.Online, 1))
	before := slices.Clone(w.verdicts)
	e.SucceededShare = func(since time.Time) float64 {
		n, ok := 0, 0
		for i, v := range before {
			if v.State == online && !w.pending[i] {
				n++
				if v.LastSuccess.After(since) {
					ok++
				}
			}
		}
		return float64(ok) / float64(max(n, 1))
	}
	engaged := brake.Engaged(e, now)
	w.held = 0
	for i, prev := range before {
		released := engaged && w.pending[i] && brake.Releases(prev.HeldSince, w.ballots[i], e, now)
		v := brake.Apply(prev, w.proposed[i], w.pending[i], engaged, released, now)
		w.verdicts[i] = v
		w.marks[i] |= v.Marks
		if v.Marks.Has(monitor.MarkHeld) {
			w.held++
		}
		if v.State == prev.State {
			continue
		}
		w.moves[i] = append(w.moves[i], move{prev.State, v.State, now.Sub(day0), v.Quorum})
		switch {
		case prev.State == online && !released:
			w.departures = append(w.departures, now)
		case v.State == online:
			w.arrivals = append(w.arrivals, now)
		}
	}
}

func (w *world) path(relay int) string {
	var out []string
	for _, m := range w.moves[relay] {
		out = append(out, m.to.String())
	}
	return strings.Join(out, " ")
}

func up(time.Duration, int, int) monitor.Outcome { return monitor.OutcomeOK }

// during makes relay 0 do something in a span of time, at all vantages or one.
func during(from, to time.Duration, vantage int, o monitor.Outcome) func(time.Duration, int, int) monitor.Outcome {
	return func(at time.Duration, v, relay int) monitor.Outcome {
		if relay == 0 && at >= from && at < to && (vantage < 0 || v == vantage) {
			return o
		}
		return monitor.OutcomeOK
	}
}

const (
	everywhere = -1
	forever    = 1000 * time.Hour
	ok         = monitor.OutcomeOK
	failed     = monitor.OutcomeFailed
)

// Timelines of one relay among twenty, of which nothing else may change.
func TestScenarios(t *testing.T) {
	both := func(a, b func(time.Duration, int, int) monitor.Outcome) func(time.Duration, int, int) monitor.Outcome {
		return func(at time.Duration, v, r int) monitor.Outcome {
			if o := a(at, v, r); o != ok {
				return o
			}
			return b(at, v, r)
		}
	}
	type span struct{ from, to time.Duration }
	for _, tc := range []struct {
		name  string
		scene scene
		hours float64
		path  string // of relay 0's verdicts
		when  []span // of the transitions, as far as they are told
		marks monitor.Marks
		never monitor.Marks
	}{
		{
			name: "all well", scene: scene{groups: "abc", look: up}, hours: 6, path: "online",
			when: []span{{0, time.Minute + 2*tick}}, never: 0xff &^ monitor.MarkDegraded &^ monitor.MarkStale,
		},
		{
			name: "an outage, one vantage", scene: scene{groups: "a", look: during(time.Hour, forever, everywhere, failed)}, hours: 3,
			path: "online offline dead", when: []span{{}, {time.Hour, time.Hour + interval + 2*time.Minute}, {time.Hour + 12*time.Minute, time.Hour + 25*time.Minute}},
			marks: monitor.MarkUncorroborated,
		},
		{
			name: "an outage, two vantages", scene: scene{groups: "ab", look: during(time.Hour, forever, everywhere, failed)}, hours: 3,
			path: "online offline dead", when: []span{{}, {time.Hour, time.Hour + interval + 2*time.Minute}},
			never: monitor.MarkHeld,
		},
		{
			// Three are faster: the first of three phases finds it.
			name: "an outage, three vantages", scene: scene{groups: "abc", look: during(time.Hour, forever, everywhere, failed)}, hours: 3,
			path: "online offline dead", when: []span{{}, {time.Hour + 90*time.Second, time.Hour + interval + 2*time.Minute}},
			never: monitor.MarkHeld,
		},
		{
			name: "two vantages of one group", scene: scene{groups: "aa", look: during(time.Hour, forever, everywhere, failed)}, hours: 2,
			path: "online offline dead", marks: monitor.MarkUncorroborated,
		},
		{
			name: "return after offline", scene: scene{groups: "abc", look: during(time.Hour, time.Hour+12*time.Minute, everywhere, failed)}, hours: 3,
			path: "online offline online", when: []span{{}, {}, {time.Hour + 12*time.Minute, time.Hour + 18*time.Minute}},
		},
		{
			name: "return after dead", scene: scene{groups: "abc", look: during(time.Hour, 3*time.Hour, everywhere, failed)}, hours: 6,
			path: "online offline dead online", when: []span{{}, {}, {}, {3 * time.Hour, 4*time.Hour + 2*time.Minute}},
		},
		{
			name: "return, one vantage: the second look", scene: scene{groups: "a", look: during(time.Hour, 3*time.Hour, everywhere, failed)}, hours: 6,
			path: "online offline dead online", when: []span{{}, {}, {}, {3*time.Hour + 30*time.Second, 4*time.Hour + 2*time.Minute}},
		},
		{
			name: "a short blip", scene: scene{groups: "abc", look: during(time.Hour, time.Hour+80*time.Second, everywhere, failed)}, hours: 2,
			path: "online",
		},
		{
			name: "one vantage blocked", scene: scene{groups: "abc", look: during(time.Hour, forever, 1, failed)}, hours: 12, path: "online",
			never: monitor.MarkHeld,
		},
		{
			name: "one of two blocked", scene: scene{groups: "ab", look: during(time.Hour, forever, 1, failed)}, hours: 12, path: "online",
			marks: monitor.MarkPartial,
		},
		{
			name: "one of three let in", scene: scene{
				groups: "abc", look: both(during(time.Hour, forever, 0, failed), during(time.Hour, forever, 1, failed)),
			}, hours: 6, path: "online", marks: monitor.MarkPartial,
		},
		{
			name: "a CDN turns one vantage away", scene: scene{groups: "abc", look: during(time.Hour, forever, 1, monitor.OutcomeRestricted)}, hours: 12, path: "online",
			never: monitor.MarkRestricted | monitor.MarkPartial,
		},
		{
			name: "403 everywhere", scene: scene{groups: "abc", look: during(time.Hour, forever, everywhere, monitor.OutcomeRestricted)}, hours: 12,
			path: "online unknown", when: []span{{}, {5*time.Hour - interval, 5*time.Hour + 2*tick}}, marks: monitor.MarkRestricted,
		},
		{
			name: "nothing but skips", scene: scene{groups: "abc", look: during(time.Hour, forever, everywhere, monitor.OutcomeSkipped)}, hours: 12,
			path: "online", marks: monitor.MarkStale, never: monitor.MarkHeld,
		},
		{
			name: "a liar's oks", scene: scene{groups: "abc", look: func(at time.Duration, v, r int) monitor.Outcome {
				if r == 0 && at > time.Hour && v != 2 {
					return failed
				}
				return ok
			}}, hours: 6, path: "online", marks: monitor.MarkPartial,
		},
		{
			name: "a frozen vantage", scene: scene{
				groups: "abc", look: during(time.Hour, forever, everywhere, failed),
				frozen: func(at time.Duration, v int) bool { return v == 2 && at > 50*time.Minute },
			}, hours: 2, path: "online offline dead", when: []span{{}, {time.Hour, time.Hour + 8*time.Minute}},
		},
		{
			name: "a lost vantage of three", scene: scene{
				groups: "abc", look: during(2*time.Hour, forever, everywhere, failed),
				lost: func(at time.Duration, v int) bool { return v == 2 && at > time.Hour },
			}, hours: 4, path: "online offline dead", when: []span{{}, {2 * time.Hour, 2*time.Hour + 7*time.Minute}},
		},
		{
			// The six hours count from the loss; rule 7 comes before them.
			name: "a lost vantage of two", scene: scene{
				groups: "ab", look: during(2*time.Hour, forever, everywhere, failed),
				lost: func(at time.Duration, v int) bool { return v == 1 && at > time.Hour },
			}, hours: 9, path: "online unknown dead",
			when:  []span{{}, {6*time.Hour - interval, 6*time.Hour + interval}, {7 * time.Hour, 7*time.Hour + 15*time.Minute}},
			marks: monitor.MarkDegraded,
		},
		{
			name: "all vantages lost", scene: scene{
				groups: "ab", look: during(2*time.Hour, forever, everywhere, failed),
				lost: func(at time.Duration, _ int) bool { return at > time.Hour },
			}, hours: 12, path: "online", marks: monitor.MarkStale,
		},
		{
			name: "a brand-new dead relay", scene: scene{groups: "abc", look: during(0, forever, everywhere, failed)}, hours: 2,
			path: "offline dead", when: []span{{90 * time.Second, 4 * time.Minute}},
		},
		{
			name: "a v4 vantage and an IPv6-only relay", scene: scene{
				groups: "ab", look: both(during(0, forever, 1, monitor.OutcomeUnclear), during(time.Hour, forever, 0, failed)),
			}, hours: 2, path: "online offline dead", marks: monitor.MarkUncorroborated,
		},
		{
			name: "flapping", scene: scene{groups: "abc", look: func(at time.Duration, _, r int) monitor.Outcome {
				if r == 0 && at%(20*time.Minute) >= 12*time.Minute {
					return failed
				}
				return ok
			}}, hours: 12, path: "", marks: monitor.MarkFlapping,
		},
		{
			// Up one minute in ten: never up for long, never quite gone.
			name: "slow death", scene: scene{groups: "abc", look: func(at time.Duration, _, r int) monitor.Outcome {
				if r == 0 && at > time.Hour && (at > 4*time.Hour || at%(10*time.Minute) > time.Minute) {
					return failed
				}
				return ok
			}}, hours: 8, path: "", marks: 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.scene.relays = 20
			w := tc.scene.start()
			w.run(tc.scene, 0, time.Duration(tc.hours*float64(time.Hour)))

			moves := w.moves[0]
			switch tc.name {
			case "flapping":
				if len(moves) < monitor.FlappingTransitions {
					t.Fatalf("%d transitions", len(moves))
				}
				for i := monitor.FlappingTransitions; i < len(moves); i++ {
					if d := moves[i].at - moves[i-1].at; d < monitor.FlappingPause {
						t.Errorf("transition %d after %s", i, d)
					}
				}
			case "slow death":
				if last := w.verdicts[0]; last.State != dead {
					t.Errorf("it is %s after %s", last.State, w.path(0))
				}
			default:
				if got := w.path(0); got != tc.path {
					t.Errorf("verdicts: %s, want %s", got, tc.path)
				}
			}
			for i, s := range tc.when {
				if s.to > 0 && i < len(moves) && (moves[i].at < s.from || moves[i].at > s.to) {
					t.Errorf("%s at %s, want between %s and %s", moves[i].to, moves[i].at, s.from, s.to)
				}
			}
			if got := w.marks[0]; !got.Has(tc.marks) || got&tc.never != 0 {
				t.Errorf("marks %q, want %q, never %q", got, tc.marks, tc.never)
			}
			for i := 1; i < len(w.relays); i++ {
				if w.path(i) != "online" {
					t.Errorf("relay %d: %s", i, w.path(i))
				}
			}
		})
	}
}

// A single vantage that loses its network without noticing takes nothing with
// it: nothing corroborates its failures, the brake holds, and all is as before
// when the network is back.
func TestScenarioSelfOutage(t *testing.T) {
	t.Parallel()
	s := scene{groups: "a", relays: 200, look: func(at time.Duration, _, _ int) monitor.Outcome {
		if at >= time.Hour && at < 4*time.Hour {
			return failed
		}
		return ok
	}}
	w := s.start()
	w.run(s, 0, 4*time.Hour)
	if w.held != 200 {
		t.Errorf("%d held at the outage's end", w.held)
	}
	w.run(s, 4*time.Hour, 5*time.Hour)
	if w.held != 0 {
		t.Errorf("%d still held", w.held)
	}
	for i := range w.relays {
		if w.path(i) != "online" {
			t.Fatalf("relay %d: %s", i, w.path(i))
		}
	}
}

// One of three vantages fails everywhere, or lies about everything: nothing
// happens.
func TestScenarioOneVantageFailsEverywhere(t *testing.T) {
	t.Parallel()
	s := scene{groups: "abc", relays: 100, look: func(at time.Duration, v, _ int) monitor.Outcome {
		if v == 1 && at >= time.Hour {
			return failed
		}
		return ok
	}}
	w := s.start()
	w.run(s, 0, 3*time.Hour)
	for i := range w.relays {
		if w.path(i) != "online" || w.marks[i].Has(monitor.MarkHeld) {
			t.Fatalf("relay %d: %s, marks %q", i, w.path(i), w.marks[i])
		}
	}
}

// A provider's outage of 15 % is more than the brake lets go at once, but real:
// further failures an interval later, with the others fine, release it.
func TestScenarioProviderOutage(t *testing.T) {
	t.Parallel()
	const n, gone = 200, 30
	s := scene{groups: "abc", relays: n, look: func(at time.Duration, _, relay int) monitor.Outcome {
		if relay < gone && at >= time.Hour {
			return failed
		}
		return ok
	}}
	w := s.start()
	w.run(s, 0, time.Hour+interval+2*time.Minute)
	if w.held == 0 {
		t.Error("nothing was ever held")
	}
	w.run(s, time.Hour+interval+2*time.Minute, 2*time.Hour)
	for i := range w.relays {
		got := w.path(i)
		if i >= gone && got != "online" || i < gone && got != "online offline dead" && got != "online dead" {
			t.Errorf("relay %d: %s", i, got)
		}
	}
	// Those that left before the brake engaged are within its limit.
	if len(w.departures) > n/10 {
		t.Errorf("%d departures were not released", len(w.departures))
	}
}

// The same with a single vantage waits for an operator, or four hours.
func TestScenarioProviderOutageOneVantage(t *testing.T) {
	t.Parallel()
	const n, gone = 200, 30
	s := scene{groups: "a", relays: n, look: func(at time.Duration, _, relay int) monitor.Outcome {
		if relay < gone && at >= time.Hour {
			return failed
		}
		return ok
	}}
	w := s.start()
	w.run(s, 0, 4*time.Hour)
	left := 0
	for i := range gone {
		if w.verdicts[i].State != online {
			left++
		}
	}
	if left > n/10 || w.held < gone-n/10 {
		t.Errorf("%d left and %d held after three hours", left, w.held)
	}
	w.run(s, 4*time.Hour, 6*time.Hour)
	for i := range w.relays {
		if want := i >= gone; (w.verdicts[i].State == online) != want {
			t.Errorf("relay %d: %s after five hours", i, w.path(i))
		}
	}
}

// The same scene twice is the same to the second.
func TestScenarioRepeats(t *testing.T) {
	t.Parallel()
	run := func() [][]move {
		s := scene{groups: "abc", relays: 10, look: during(time.Hour, 2*time.Hour, everywhere, failed)}
		w := s.start()
		w.run(s, 0, 4*time.Hour)
		return w.moves
	}
	if d := cmp.Diff(run(), run(), cmp.AllowUnexported(move{})); d != "" {
		t.Error(d)
	}
}
