package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

const relayA = monitor.RelayURL("wss://relay.example/")

// Phases must never move: an upgrade would make every vantage probe every relay
// at another moment.
func TestPhaseIsPinned(t *testing.T) {
	c := monitor.DefaultCadence()
	for _, tc := range []struct {
		relay   monitor.RelayURL
		vantage string
		want    time.Duration
	}{
		{"wss://relay.example/", "local", 268535210384},
		{"wss://relay.example/", "fra", 13706007680},
		{"ws://127.0.0.1:7777/", "local", 145859045680},
		{"", "", 93930102267},
	} {
		if got := c.Phase(tc.relay, tc.vantage); got != tc.want {
			t.Errorf("%s from %s: %d, want %d", tc.relay, tc.vantage, got, tc.want)
		}
	}
	if c.Phase("wss://a", "b/") == c.Phase("wss://ab", "/") {
		t.Error("the names run into each other")
	}
}

// Relays, and one relay's vantages, spread evenly over the interval.
func TestPhaseSpreads(t *testing.T) {
	c := monitor.DefaultCadence()
	const n, cells = 6000, 30
	for _, tc := range []struct {
		name string
		of   func(i int) time.Duration
	}{
		{"relays", func(i int) time.Duration {
			return c.Phase(monitor.RelayURL(fmt.Sprintf("wss://relay-%d.example/", i)), "local")
		}},
		{"vantages", func(i int) time.Duration { return c.Phase(relayA, fmt.Sprintf("v%d", i)) }},
	} {
		var count [cells]int
		for i := range n {
			count[int(tc.of(i)*cells/c.Interval)]++
		}
		for cell, k := range count {
			if k < n/cells/2 || k > n/cells*2 {
				t.Errorf("%s: %d of %d in cell %d of %d", tc.name, k, n, cell, cells)
			}
		}
	}
}

func TestFirst(t *testing.T) {
	c := monitor.DefaultCadence()
	for _, tc := range []struct {
		task   monitor.Task
		within time.Duration
	}{{monitor.Task{}, time.Minute}, {monitor.Task{Candidate: true}, 10 * time.Minute}} {
		var earliest, latest time.Duration = 1 << 62, 0
		for i := range 1000 {
			d := c.First(monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", i)), "local", tc.task, day0).Sub(day0)
			if d < 0 || d >= tc.within {
				t.Fatalf("candidate %v: due in %s", tc.task.Candidate, d)
			}
			earliest, latest = min(earliest, d), max(latest, d)
		}
		if latest-earliest < tc.within*9/10 {
			t.Errorf("candidate %v: due between %s and %s", tc.task.Candidate, earliest, latest)
		}
	}
}

// The cadence table, row by row.
func TestNext(t *testing.T) {
	c := monitor.DefaultCadence()
	in := func(d time.Duration) time.Time { return day0.Add(d) }
	slot := func(after time.Time, every time.Duration) time.Time { // by hand, from the pinned phase
		phase := c.Phase(relayA, "local")
		if every != c.Interval {
			phase = monitor.Cadence{Interval: every}.Phase(relayA, "local")
		}
		at := time.Unix(0, 0).Add(phase)
		return at.Add(after.Sub(at)/every*every + every)
	}
	up := monitor.Record{State: online, LastSuccess: day0}
	failing := func(n int, cooldown time.Duration) monitor.Record {
		return monitor.Record{State: offline, FailureCount: n, FirstFailure: in(-12 * time.Minute), LastFailure: day0, BackoffUntil: in(cooldown)}
	}
	died := func(since, cooldown time.Duration) monitor.Record {
		return monitor.Record{State: dead, FailureCount: 20, FirstFailure: in(-since), LastFailure: day0, BackoffUntil: in(cooldown)}
	}
	before := failing(1, 0)
	before.LastFailure = in(-10 * time.Minute)
	yesterday := failing(1, 0)
	yesterday.LastFailure = in(-24 * time.Hour)
	recovered := monitor.Record{State: offline, LastSuccess: in(-time.Hour)}
	candidate := monitor.Task{Candidate: true}

	for _, tc := range []struct {
		name       string
		prev, rec  monitor.Record
		task       monitor.Task
		o          monitor.Outcome
		retryAfter time.Duration
		want       time.Time
	}{
		{"online", up, up, monitor.Task{}, monitor.OutcomeOK, 0, slot(day0, c.Interval)},
		{"refused is online", up, up, monitor.Task{}, monitor.OutcomeRefused, 0, slot(day0, c.Interval)},
		{"first success", monitor.Record{}, up, monitor.Task{}, monitor.OutcomeOK, 0, slot(day0, c.Interval)},
		{"first failure", up, failing(1, 30*time.Second), monitor.Task{}, monitor.OutcomeFailed, 0, in(30 * time.Second)},
		{"fifth failure", before, failing(5, 5*time.Minute), monitor.Task{}, monitor.OutcomeFailed, 0, in(5 * time.Minute)},
		{"the ladder goes on", before, failing(60, 5*time.Minute), monitor.Task{}, monitor.OutcomeFailed, 0, in(5 * time.Minute)},
		{"a failure that did not count", recovered, recovered, monitor.Task{}, monitor.OutcomeFailed, 0, slot(day0, c.Interval)},
		{"one that did not count in a cooldown", failing(2, time.Minute), failing(2, time.Minute), monitor.Task{}, monitor.OutcomeFailed, 0, in(time.Minute)},
		{"return from offline", before, up, monitor.Task{}, monitor.OutcomeOK, 0, in(30 * time.Second)},
		{"return from dead", died(time.Hour, time.Hour), up, monitor.Task{}, monitor.OutcomeOK, 0, in(30 * time.Second)},
		{"after a restart nothing returned", recovered, up, monitor.Task{}, monitor.OutcomeOK, 0, slot(day0, c.Interval)},
		{"dead", before, died(time.Hour, time.Hour), monitor.Task{}, monitor.OutcomeFailed, 0, in(time.Hour)},
		{"dead, a failure that did not count", died(time.Hour, 0), died(time.Hour, 0), monitor.Task{}, monitor.OutcomeFailed, 0, slot(day0, time.Hour)},
		{"dead for nearly a week", before, died(7*24*time.Hour-1, time.Hour), monitor.Task{}, monitor.OutcomeFailed, 0, in(time.Hour)},
		{"dead for a week", before, died(7*24*time.Hour, time.Hour), monitor.Task{}, monitor.OutcomeFailed, 0, slot(in(time.Hour), 24*time.Hour)},
		{"skipped", up, up, monitor.Task{}, monitor.OutcomeSkipped, 0, slot(day0, c.Interval)},
		{"unclear", up, up, monitor.Task{}, monitor.OutcomeUnclear, 0, slot(day0, c.Interval)},
		{"a dead one skipped", died(time.Hour, 0), died(time.Hour, 0), monitor.Task{}, monitor.OutcomeSkipped, 0, slot(day0, c.Interval)},
		{"restricted", up, up, monitor.Task{}, monitor.OutcomeRestricted, 0, slot(day0, c.Interval)},
		{"Retry-After", up, up, monitor.Task{}, monitor.OutcomeRestricted, 17 * time.Minute, slot(in(17*time.Minute), c.Interval)},
		{"too long a Retry-After", up, up, monitor.Task{}, monitor.OutcomeRestricted, 24 * time.Hour, slot(in(time.Hour), c.Interval)},
		{"candidate up", monitor.Record{}, up, candidate, monitor.OutcomeOK, 0, slot(day0, c.Interval)},
		{"candidate failing", monitor.Record{}, failing(1, 30*time.Second), candidate, monitor.OutcomeFailed, 0, in(30 * time.Second)},
		{"candidate at the ladder's last rung but one", before, failing(5, 5*time.Minute), candidate, monitor.OutcomeFailed, 0, in(5 * time.Minute)},
		{"candidate at the ladder's end", before, failing(6, 5*time.Minute), candidate, monitor.OutcomeFailed, 0, slot(in(5*time.Minute), 24*time.Hour)},
		{"candidate dead", before, died(13*time.Minute, time.Hour), candidate, monitor.OutcomeFailed, 0, slot(in(time.Hour), 24*time.Hour)},
		{"candidate the day after", yesterday, failing(1, 30*time.Second), candidate, monitor.OutcomeFailed, 0, slot(in(30*time.Second), 24*time.Hour)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := c.Next(tc.prev, tc.rec, relayA, "local", tc.task, tc.o, tc.retryAfter, day0); !got.Equal(tc.want) {
				t.Errorf("in %s, want in %s", got.Sub(day0), tc.want.Sub(day0))
			}
		})
	}
}

// Slots lie one interval apart whatever is asked when: after now, at the phase,
// the first such one, and missed ones are not made up for.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := monitor.DefaultCadence()
		c.Interval = time.Duration(rapid.Int64Range(1, int64(2*time.Hour)).Draw(t, "interval"))
		relay := monitor.RelayURL(rapid.String().Draw(t, "relay"))
		vantage := rapid.String().Draw(t, "vantage")
		now := time.Unix(0, rapid.Int64Range(-1e18, 4e18).Draw(t, "now"))
		rec := monitor.Record{State: online}
		next := func(now time.Time) time.Time {
			return c.Next(rec, rec, relay, vantage, monitor.Task{}, monitor.OutcomeOK, 0, now)
		}
		phase := c.Phase(relay, vantage)
		if phase < 0 || phase >= c.Interval {
			t.Fatalf("phase %s of %s", phase, c.Interval)
		}
		at := next(now)
		if d := at.Sub(now); d <= 0 || d > c.Interval {
			t.Fatalf("next slot in %s", d)
		}
		if (at.UnixNano()-int64(phase))%int64(c.Interval) != 0 {
			t.Fatalf("%s is not at the phase %s of %s", at, phase, c.Interval)
		}
		if got := next(at); got.Sub(at) != c.Interval {
			t.Fatalf("the slot after comes in %s", got.Sub(at))
		}
		if got := next(at.Add(-1)); !got.Equal(at) {
			t.Fatalf("just before it, it is %s away", got.Sub(at))
		}
	})
}

// Whatever the record and the outcome, the next probe is after now and within
// 26 h: no relay is asked in a loop, none is forgotten.
func TestNextIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := monitor.DefaultCadence()
		prev, rec := drawRecord(t, "prev"), drawRecord(t, "rec")
		rec.BackoffUntil = minTime(rec.BackoffUntil, day0.Add(time.Hour))
		o := monitor.Outcome(rapid.IntRange(0, 6).Draw(t, "outcome"))
		task := monitor.Task{Candidate: rapid.Bool().Draw(t, "candidate")}
		retry := time.Duration(rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "retry after"))
		d := c.Next(prev, rec, relayA, "local", task, o, retry, day0).Sub(day0)
		if d <= 0 || d > 26*time.Hour {
			t.Fatalf("next in %s", d)
		}
	})
}

// n vantages see a relay n times per interval.
func TestVantagesShareTheInterval(t *testing.T) {
	c := monitor.DefaultCadence()
	rec := monitor.Record{State: online}
	seen := map[time.Time]bool{}
	for _, v := range []string{"fra", "nyc", "sgp"} {
		for at := day0; ; {
			at = c.Next(rec, rec, relayA, v, monitor.Task{}, monitor.OutcomeOK, 0, at)
			if at.After(day0.Add(c.Interval)) {
				break
			}
			seen[at] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("looked at %v", seen)
	}
}

// A relay that is down is found dead at any interval: the trap of a plain
// schedule (liveness.md).
func TestDownIsDeadAtAnyInterval(t *testing.T) {
	for _, every := range []time.Duration{30 * time.Second, 5 * time.Minute, 17 * time.Minute, time.Hour} {
		for _, task := range []monitor.Task{{}, {Candidate: true}} {
			t.Run(fmt.Sprintf("%s candidate %v", every, task.Candidate), func(t *testing.T) {
				c, l := monitor.DefaultCadence(), monitor.DefaultLiveness()
				c.Interval = every
				v := monitor.NewObserver(day0)
				var r monitor.Record
				probes := 0
				for at := c.First(relayA, "local", task, day0); at.Before(day0.Add(48 * time.Hour)); {
					l.Step(monitor.Record{}, v, "wss://other.example/", monitor.OutcomeOK, at.Add(-time.Second), at.Add(-time.Second))
					prev := r
					r, _ = l.Step(r, v, relayA, monitor.OutcomeFailed, at, at)
					at = c.Next(prev, r, relayA, "local", task, monitor.OutcomeFailed, 0, at)
					probes++
				}
				if r.State != dead {
					t.Errorf("%s after 48 h, %d failures", r.State, r.FailureCount)
				}
				// The ladder has six rungs, then hourly or daily looks.
				if limit := map[bool]int{false: 6 + 48, true: 6 + 3}[task.Candidate]; probes > limit {
					t.Errorf("%d probes, want at most %d", probes, limit)
				}
			})
		}
	}
}

// A candidate whose failures nothing corroborates is not asked for ever: one
// ladder, then once a day.
func TestCandidateLadderOnce(t *testing.T) {
	c, l := monitor.DefaultCadence(), monitor.DefaultLiveness()
	v := monitor.NewObserver(day0)
	var r monitor.Record
	task := monitor.Task{Candidate: true}
	probes := 0
	for at := c.First(relayA, "local", task, day0); at.Before(day0.Add(10 * 24 * time.Hour)); probes++ {
		prev := r
		r, _ = l.Step(r, v, relayA, monitor.OutcomeFailed, at, at)
		at = c.Next(prev, r, relayA, "local", task, monitor.OutcomeFailed, 0, at)
	}
	if r.State != offline || probes < monitor.CandidateLadder+8 || probes > monitor.CandidateLadder+11 {
		t.Errorf("%s after %d probes in ten days", r.State, probes)
	}
}

func TestInfoDue(t *testing.T) {
	c := monitor.DefaultCadence()
	if !c.InfoDue(relayA, "local", time.Time{}, day0) {
		t.Error("never read, and not due")
	}
	due, last := 0, day0
	for at := day0; at.Before(day0.Add(24 * time.Hour)); at = at.Add(c.Interval) {
		if c.InfoDue(relayA, "local", last, at) {
			due, last = due+1, at
		}
	}
	if due != 24 {
		t.Errorf("due %d times in a day", due)
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
