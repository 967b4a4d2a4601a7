package monitor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestPending(t *testing.T) {
	for _, tc := range []struct {
		prev  monitor.State
		votes string
		want  bool
	}{
		{online, "down", true},
		{online, "dead restricted", true},
		{online, "suspect restricted none", true},
		{online, "suspect up", false},
		{online, "down down old", false}, // an unconfirmed up counts as up here
		{online, "restricted", false},
		{online, "restricted,restricted,suspect restricted", false}, // no group votes against it
		{online, "restricted,suspect restricted", true},
		{online, "none none", false},
		{online, "", false},
		{offline, "down", false},
		{dead, "down", false},
		{unknown, "down", false},
	} {
		if got := monitor.Pending(was(tc.prev), ballots(tc.votes)); got != tc.want {
			t.Errorf("%s, %q: got %v", tc.prev, tc.votes, got)
		}
	}
	bs := ballots("down up")
	bs[1].Eligible = false
	if !monitor.Pending(was(online), bs) {
		t.Error("the up of a vantage that may not vote keeps a relay from pending")
	}
}

func TestDeparts(t *testing.T) {
	for _, from := range []monitor.State{unknown, online, offline, dead} {
		for _, to := range []monitor.State{unknown, online, offline, dead} {
			want := from == online && to != online
			if got := monitor.Departs(was(from), was(to)); got != want {
				t.Errorf("%s → %s: got %v", from, to, got)
			}
		}
	}
}

func TestEngaged(t *testing.T) {
	ago := func(ds ...time.Duration) (out []time.Time) {
		for _, d := range ds {
			out = append(out, day0.Add(-d))
		}
		return out
	}
	for _, tc := range []struct {
		name string
		e    monitor.Electorate
		want bool
	}{
		{"quiet", monitor.Electorate{Online: 1000}, false},
		{"ten of a few", monitor.Electorate{Online: 30, Pending: 10}, false},
		{"eleven of a few", monitor.Electorate{Online: 30, Pending: 11}, true},
		{"a tenth", monitor.Electorate{Online: 1200, Pending: 120}, false},
		{"more than a tenth", monitor.Electorate{Online: 1200, Pending: 121}, true},
		{"an odd tenth is rounded down", monitor.Electorate{Online: 1209, Pending: 121}, true},
		{"with those that left", monitor.Electorate{Online: 119, Pending: 11, Departures: ago(0)}, false},
		{"with more that left", monitor.Electorate{Online: 118, Pending: 11, Departures: ago(0, interval-1)}, true},
		{"they left an interval ago", monitor.Electorate{Online: 118, Pending: 11, Departures: ago(interval, interval+1)}, false},
		{"those that came were not there", monitor.Electorate{Online: 120, Pending: 12, Arrivals: ago(1)}, true},
		{"they came an interval ago", monitor.Electorate{Online: 120, Pending: 12, Arrivals: ago(interval)}, false},
		{"all came just now", monitor.Electorate{Online: 3, Pending: 3, Arrivals: ago(1, 1, 1, 1)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := monitor.DefaultCorroboration().Brake().Engaged(tc.e, day0); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A share that floating point makes a little too small is still the share.
func TestEngagedAtAnOddFraction(t *testing.T) {
	c := monitor.DefaultCorroboration()
	c.HoldFraction = 0.29 // × 100 = 28.999999999999996
	for pending, want := range map[int]bool{29: false, 30: true} {
		if got := c.Brake().Engaged(monitor.Electorate{Online: 100, Pending: pending}, day0); got != want {
			t.Errorf("%d of 100: got %v", pending, got)
		}
	}
}

func TestReleases(t *testing.T) {
	held := day0.Add(-time.Hour)
	again := held.Add(interval) // the earliest failure that counts
	share := func(x float64) func(time.Time) float64 {
		return func(since time.Time) float64 {
			if !since.Equal(held) {
				return 0
			}
			return x
		}
	}
	with := func(spec string, failures ...time.Time) []monitor.Ballot {
		bs := ballots(spec)
		for i, f := range failures {
			bs[i].LastFailure = f
		}
		return bs
	}
	mass := monitor.Electorate{Online: 100, Pending: 20, EligibleGroups: 3, SucceededShare: share(0.9)}
	set := func(change func(*monitor.Electorate)) monitor.Electorate {
		e := mass
		change(&e)
		return e
	}
	late := func(d time.Duration) time.Time { return held.Add(d) }

	for _, tc := range []struct {
		name  string
		votes []monitor.Ballot
		e     monitor.Electorate
		now   time.Time
		want  bool
	}{
		{"a further failure at each", with("down dead suspect", again, again, held), mass, day0, true},
		{"not at one of them", with("down dead", again, again.Add(-1)), mass, day0, false},
		{"by another vantage of the group", with("down,down dead", held, again, again), mass, day0, true},
		{"one of the group that votes otherwise", with("down,suspect,down down", held, again, held, again), mass, day0, false},
		{"a vantage that may not vote", func() []monitor.Ballot {
			bs := with("down down,down", again, held, again)
			bs[2].Eligible = false
			return bs
		}(), mass, day0, false},
		{"nobody votes down", with("suspect suspect", again, again), mass, day0, false},
		{"the others fare no better", with("down dead", again, again), set(func(e *monitor.Electorate) { e.SucceededShare = share(0.89) }), day0, false},
		{"nothing known of the others", with("down dead", again, again), set(func(e *monitor.Electorate) { e.SucceededShare = nil }), day0, false},
		{"half of the set", with("down dead", again, again), set(func(e *monitor.Electorate) { e.Pending = 50 }), day0, false},
		{"nearly half of the set", with("down dead", again, again), set(func(e *monitor.Electorate) { e.Pending = 49 }), day0, true},
		{"half with those that left", with("down dead", again, again), set(func(e *monitor.Electorate) {
			e.Online, e.Pending, e.Departures = 90, 40, make([]time.Time, 10)
			for i := range e.Departures {
				e.Departures[i] = day0
			}
		}), day0, false},
		{"one group", with("down", again), set(func(e *monitor.Electorate) { e.EligibleGroups = 1 }), day0, false},
		{"one group, after four hours, fresh", with("down", again), set(func(e *monitor.Electorate) { e.EligibleGroups, e.FreshShare = 1, 0.8 }), late(4 * time.Hour), true},
		{"one group, just before", with("down", again), set(func(e *monitor.Electorate) { e.EligibleGroups, e.FreshShare = 1, 0.8 }), late(4*time.Hour - 1), false},
		{"one group, after four hours, not fresh", with("down", again), set(func(e *monitor.Electorate) { e.EligibleGroups, e.FreshShare = 1, 0.79 }), late(4 * time.Hour), false},
		{"half of what was there, less of what is", with("down dead", again, again), set(func(e *monitor.Electorate) {
			e.Pending, e.Arrivals = 25, make([]time.Time, 60)
			for i := range e.Arrivals {
				e.Arrivals[i] = day0
			}
		}), day0, true},
		{"half of the set, after four hours, fresh", with("down", again), set(func(e *monitor.Electorate) { e.Pending, e.FreshShare = 50, 0.8 }), late(4 * time.Hour), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := monitor.DefaultCorroboration().Brake()
			if got := b.Releases(held, tc.votes, tc.e, tc.now); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if b.Releases(time.Time{}, tc.votes, tc.e, tc.now) {
				t.Error("releases what is not held")
			}
		})
	}
}

func TestApply(t *testing.T) {
	c := monitor.DefaultCorroboration()
	b := c.Brake()
	prev := was(online)
	prev.MajorityDownSince = day0.Add(-time.Minute)
	held := prev
	held.Marks, held.HeldSince = monitor.MarkHeld, day0.Add(-time.Minute)
	held.Reason = "held back: offline: 2 of 2 groups see it down (timeout at tcp)"
	leaving := ballots("down down")

	for _, tc := range []struct {
		name             string
		prev             monitor.Verdict
		votes            []monitor.Ballot
		engaged, release bool
		state            monitor.State
		marks            monitor.Marks
		heldSince        time.Time
		reason           string
	}{
		{"free", prev, leaving, false, false, offline, 0, time.Time{}, "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"held", prev, leaving, true, false, online, monitor.MarkHeld, day0, "held back: offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"held on", held, leaving, true, false, online, monitor.MarkHeld, held.HeldSince, held.Reason},
		{"released", held, leaving, true, true, offline, 0, time.Time{}, "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"the brake lets go", held, leaving, false, false, offline, 0, time.Time{}, "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{
			"pending, not yet leaving", prev, ballots("suspect none"), true, false, online, monitor.MarkHeld | monitor.MarkDegraded, day0,
			"held back: online: 1 of 1 group suspects it (timeout at tcp); that is no majority, so the last verdict stands",
		},
		{
			"released, not leaving", held, ballots("suspect suspect"), true, true, online, monitor.MarkHeld, held.HeldSince,
			"held back: online: 2 of 2 groups suspect it (timeout at tcp); that is no majority, so the last verdict stands",
		},
		{"recovered", held, ballots("up up"), true, false, online, 0, time.Time{}, "online: 2 of 2 groups see it up"},
		{"offline is not the brake's", was(offline), leaving, true, false, offline, 0, time.Time{}, "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"returns are not the brake's", was(dead), ballots("up up"), true, false, online, 0, time.Time{}, "online: 2 of 2 groups see it up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proposed := c.Decide(tc.prev, tc.votes, watching, day0)
			got := b.Apply(tc.prev, proposed, monitor.Pending(tc.prev, tc.votes), tc.engaged, tc.release, day0)
			if got.State != tc.state || got.Marks != tc.marks || !got.HeldSince.Equal(tc.heldSince) || got.Reason != tc.reason {
				t.Errorf("got %s %q since %s\n%s\nwant %s %q since %s\n%s",
					got.State, got.Marks, got.HeldSince, got.Reason, tc.state, tc.marks, tc.heldSince, tc.reason)
			}
			if got.State == tc.prev.State {
				if !got.Since.Equal(tc.prev.Since) || cmp.Diff(got.Changes, tc.prev.Changes) != "" {
					t.Error("since or changes moved without a transition")
				}
			} else if !got.Since.Equal(day0) {
				t.Errorf("since %s", got.Since)
			}
			if got.State != online && !got.MajorityDownSince.IsZero() {
				t.Error("a majority says down against a relay that is not online")
			}
		})
	}
}

// A departure that is not pending by its votes (rule 7) is held all the same.
func TestApplyHoldsUnseen(t *testing.T) {
	c := monitor.DefaultCorroboration()
	prev := was(online)
	prev.LastSuccess = day0.Add(-5 * time.Hour)
	bs := ballots("restricted restricted")
	proposed := c.Decide(prev, bs, watching, day0)
	if proposed.State != unknown || monitor.Pending(prev, bs) {
		t.Fatalf("%s, pending %v", proposed.State, monitor.Pending(prev, bs))
	}
	got := c.Brake().Apply(prev, proposed, false, true, false, day0)
	if got.State != online || !got.Marks.Has(monitor.MarkHeld|monitor.MarkRestricted) {
		t.Errorf("got %s %v", got.State, got.Marks)
	}
}

// A held relay that a majority has called down for more than three intervals is
// partial too, and a held sixth transition makes nothing flap.
func TestHeldMarks(t *testing.T) {
	c := monitor.DefaultCorroboration()
	prev := was(online)
	prev.Changes = hours(-5, -4, -3, -2, -1)
	v := prev
	for d := time.Duration(0); d <= 4*interval; d += interval {
		now := day0.Add(d)
		v = c.Brake().Apply(v, c.Decide(v, ballots("down down"), watching, now), true, true, false, now)
		want := monitor.MarkHeld
		if d > 3*interval {
			want |= monitor.MarkPartial
		}
		if v.State != online || v.Marks != want || v.Quorum != (monitor.Quorum{Of: 2}) {
			t.Errorf("after %s: %s %v %v, want online %v 0/2", d, v.State, v.Marks, v.Quorum, want)
		}
	}
}
