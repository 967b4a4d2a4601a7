package monitor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	unknown = monitor.StateUnknown
	online  = monitor.StateOnline
	offline = monitor.StateOffline
	dead    = monitor.StateDead
)

// Rules 1 to 7, groups, marks and reasons: one decision each.
func TestDecide(t *testing.T) {
	lost := func(d time.Duration) monitor.Situation {
		return monitor.Situation{AloneSince: day0.Add(-d), WatchingSince: day0.Add(-24 * time.Hour)}
	}
	starting := monitor.Situation{WatchingSince: day0.Add(-time.Minute), NoLeave: true}

	for _, tc := range []struct {
		name   string
		prev   monitor.State
		votes  string
		s      monitor.Situation
		want   monitor.State
		marks  string
		quorum string
		reason string
	}{
		{
			"1: nobody votes", online, "none none", watching, online, "stale", "0/0",
			"online: no vantage can vote on it now, so the last verdict stands",
		},
		{"1: a dead one stays", dead, "none cut", watching, dead, "stale", "0/0", "dead: no vantage can vote on it now, so the last verdict stands"},
		{"1: no vantage at all", offline, "", watching, offline, "stale", "0/0", "offline: no vantage can vote on it now, so the last verdict stands"},
		{"1: never measured", unknown, "none", watching, unknown, "stale", "0/0", "unknown: no vantage has measured it yet"},

		{"2: first success", unknown, "up none", watching, online, "degraded", "1/1", "online: 1 of 1 group sees it up"},
		{"2: all up", online, "up up up", watching, online, "", "3/3", "online: 3 of 3 groups see it up"},
		{"2: one against two", online, "up down dead", watching, online, "partial,singled_out", "1/3", "online: 1 of 3 groups sees it up (a1), 2 of 3 groups see it down; a1 alone sees it otherwise (ok)"},
		{"2: two ups, not yet long", online, "up up down down dead", watching, online, "", "2/5", "online: 2 of 5 groups see it up, 3 of 5 groups see it down"},
		{
			"2: return, one group once", offline, "up suspect suspect", watching, offline, "", "0/3",
			"offline: 1 of 3 groups sees it up again (a1); a second group or a second look is needed",
		},
		{"2: return, one group twice", offline, "twice suspect suspect", watching, online, "partial", "1/3", "online: 1 of 3 groups sees it up (a1)"},
		{"2: return, two groups once", dead, "up up dead", watching, online, "singled_out", "2/3", "online: 2 of 3 groups see it up, 1 of 3 groups sees it down; c1 alone sees it otherwise (timeout at tcp)"},
		{
			"2: return against a majority", offline, "twice down dead", watching, offline, "singled_out", "2/3",
			"offline: 1 of 3 groups sees it up again (a1); two are needed while most see it down; a1 alone sees it otherwise (ok)",
		},
		{"2: two groups against a majority", offline, "up up down dead dead", watching, online, "", "2/5", "online: 2 of 5 groups see it up, 3 of 5 groups see it down"},
		{"2: one of two groups twice", offline, "twice down", watching, online, "partial", "1/2", "online: 1 of 2 groups sees it up (a1), 1 of 2 groups sees it down"},
		{"2: an unconfirmed up brings nothing back", dead, "old old", watching, dead, "", "0/2", "dead: 2 of 2 groups have yet to confirm it; that is no majority, so the last verdict stands"},

		{"3: majority down", online, "down down suspect", watching, offline, "", "2/3", "offline: 2 of 3 groups see it down (timeout at tcp)"},
		{"3: down and dead together", online, "down dead restricted", watching, offline, "singled_out", "2/3", "offline: 2 of 3 groups see it down (timeout at tcp); c1 alone sees it otherwise (http_403 at upgrade)"},
		{"3: majority dead", online, "dead dead down", watching, dead, "", "2/3", "dead: 2 of 3 groups see it dead (timeout at tcp)"},
		{"3: offline to dead", offline, "dead dead up", watching, offline, "singled_out", "2/3", "offline: 1 of 3 groups sees it up again (c1); two are needed while most see it down; c1 alone sees it otherwise (ok)"},
		{"3: offline to dead, none up", offline, "dead dead old", watching, dead, "", "2/3", "dead: 2 of 3 groups see it dead (timeout at tcp)"},
		{"3: a brand-new relay", unknown, "down down", watching, offline, "", "2/2", "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"3: a brand-new dead relay", unknown, "dead dead", watching, dead, "", "2/2", "dead: 2 of 2 groups see it dead (timeout at tcp)"},
		{
			"3: one of two", online, "down suspect", watching, online, "", "0/2",
			"online: 1 of 2 groups sees it down (timeout at tcp); that is no majority, so the last verdict stands",
		},
		{"3: suspicion is no vote", online, "suspect suspect suspect", watching, online, "", "0/3", "online: 3 of 3 groups suspect it (timeout at tcp); that is no majority, so the last verdict stands"},
		{"3: an unconfirmed up still counts among the eligible", online, "down down old old", watching, online, "", "0/4", "online: 2 of 4 groups see it down (timeout at tcp); that is no majority, so the last verdict stands"},

		{"4: a tie holds offline", offline, "down down restricted suspect", watching, offline, "", "2/4", "offline: 2 of 4 groups see it down (timeout at tcp); that is no majority, so the last verdict stands"},
		{"4: dead is not left for offline", dead, "down down", watching, dead, "", "2/2", "dead: 2 of 2 groups see it down (timeout at tcp)"},
		{"4: nor for silence", dead, "suspect restricted", watching, dead, "", "0/2", "dead: 1 of 2 groups is not let in (http_403 at upgrade); that is no majority, so the last verdict stands"},

		{
			"5: the others were lost", online, "down none", lost(time.Hour), online, "degraded", "0/1",
			"online: 1 of 1 group sees it down (timeout at tcp); no other group can vote on it, so it does not leave yet",
		},
		{"5: six hours ago", online, "down none", lost(6 * time.Hour), offline, "degraded", "1/1", "offline: 1 of 1 group sees it down (timeout at tcp)"},
		{"5: six hours ago, dead", offline, "dead none", lost(6 * time.Hour), dead, "degraded", "1/1", "dead: 1 of 1 group sees it dead (timeout at tcp)"},
		{"5: not lost, only without a vote here", online, "down none", watching, online, "degraded", "0/1", "online: 1 of 1 group sees it down (timeout at tcp); no other group can vote on it, so it does not leave yet"},
		{"5: up counts meanwhile", offline, "twice none", lost(time.Hour), online, "degraded", "1/1", "online: 1 of 1 group sees it up"},

		{"6: one group alone", online, "down", watching, offline, "uncorroborated", "1/1", "offline: 1 of 1 group sees it down (timeout at tcp)"},
		{"6: the others cannot reach it", online, "dead cut cut", watching, dead, "uncorroborated", "1/1", "dead: 1 of 1 group sees it dead (timeout at tcp)"},
		{"6: two vantages of one group", online, "down,up", watching, online, "uncorroborated", "1/1", "online: 1 of 1 group sees it up"},

		{"groups: one up speaks for all", online, "down,down,up down down", watching, online, "partial", "1/3", "online: 1 of 3 groups sees it up (a3), 2 of 3 groups see it down"},
		{"groups: half dead is no majority of it", online, "dead,suspect dead,dead,suspect", watching, online, "", "0/2", "online: 1 of 2 groups sees it down (timeout at tcp); that is no majority, so the last verdict stands"},
		{"groups: dead and down together", online, "dead,down,suspect down", watching, offline, "", "2/2", "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"groups: many vantages are one vote", online, "down,down,down,down suspect restricted", watching, online, "", "0/3", "online: 1 of 3 groups sees it down (timeout at tcp); that is no majority, so the last verdict stands"},
		{"groups: an unconfirmed up takes no side", online, "down,down,old down", watching, online, "", "0/2", "online: 1 of 2 groups sees it down (timeout at tcp); that is no majority, so the last verdict stands"},
		{"groups: members without a vote do not count", online, "down,none,none down", watching, offline, "", "2/2", "offline: 2 of 2 groups see it down (timeout at tcp)"},
		{"groups: two successes in one group", offline, "up,twice suspect", watching, online, "partial", "1/2", "online: 1 of 2 groups sees it up (a1, a2)"},

		{"restricted by all", online, "restricted,restricted restricted", watching, online, "restricted", "0/2", "online: 2 of 2 groups are not let in (http_403 at upgrade); that is no majority, so the last verdict stands"},
		{"restricted by most", online, "restricted restricted suspect", watching, online, "", "0/3", "online: 2 of 3 groups are not let in (http_403 at upgrade); that is no majority, so the last verdict stands"},

		{"start hold", online, "dead dead dead", starting, online, "", "0/3", "online: 3 of 3 groups see it down (timeout at tcp); nothing leaves so soon after a start"},
		{"start hold lets others change", unknown, "dead dead dead", starting, dead, "", "3/3", "dead: 3 of 3 groups see it dead (timeout at tcp)"},
		{"start hold lets others return", offline, "up up down", starting, online, "singled_out", "2/3", "online: 2 of 3 groups see it up, 1 of 3 groups sees it down; c1 alone sees it otherwise (timeout at tcp)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prev := was(tc.prev)
			got := monitor.DefaultCorroboration().Decide(prev, ballots(tc.votes), tc.s, day0)
			type brief struct {
				State                 monitor.State
				Marks, Quorum, Reason string
			}
			if d := cmp.Diff(
				brief{tc.want, tc.marks, tc.quorum, tc.reason},
				brief{got.State, got.Marks.String(), got.Quorum.String(), got.Reason},
			); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			since, changes := prev.Since, len(prev.Changes)
			if tc.want != tc.prev {
				since, changes = day0, changes+1
			}
			if !got.Since.Equal(since) || len(got.Changes) != changes {
				t.Errorf("since %s with %d changes, want %s with %d", got.Since, len(got.Changes), since, changes)
			}
		})
	}
}

// Rule 7 and its edges.
func TestUnseen(t *testing.T) {
	const maxAge = 4 * time.Hour
	for _, tc := range []struct {
		name        string
		prev        monitor.State
		lastSuccess time.Duration // ago
		watching    time.Duration // ago, < 0 = not
		alone       bool
		votes       string
		want        monitor.State
	}{
		{"four hours", online, maxAge, 24 * time.Hour, false, "suspect suspect", unknown},
		{"not quite", online, maxAge - 1, 24 * time.Hour, false, "suspect suspect", online},
		{"watching since less", online, 24 * time.Hour, maxAge - 1, false, "suspect suspect", online},
		{"watching since the start", online, 24 * time.Hour, maxAge, false, "suspect suspect", unknown},
		{"not watching", online, 24 * time.Hour, -1, false, "suspect suspect", online},
		{"403 everywhere", online, maxAge, 24 * time.Hour, false, "restricted restricted", unknown},
		{"nobody may vote", online, maxAge, 24 * time.Hour, false, "none none", online},
		{"a majority says more", online, maxAge, 24 * time.Hour, false, "down down", offline},
		{"one left of two", online, maxAge, 24 * time.Hour, true, "down none", unknown},
		{"offline stays", offline, maxAge, 24 * time.Hour, false, "suspect suspect", offline},
		{"dead stays", dead, maxAge, 24 * time.Hour, false, "suspect suspect", dead},
		{"a success elsewhere", online, maxAge, 24 * time.Hour, false, "suspect old", online},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prev := was(tc.prev)
			prev.LastSuccess = day0.Add(-tc.lastSuccess)
			bs := ballots(tc.votes)
			for i := range bs {
				if bs[i].Vote != monitor.VoteUp {
					bs[i].LastSuccess = time.Time{}
				}
			}
			s := monitor.Situation{WatchingSince: day0.Add(-tc.watching)}
			if tc.watching < 0 {
				s.WatchingSince = time.Time{}
			}
			if tc.alone {
				s.AloneSince = day0.Add(-time.Hour)
			}
			got := monitor.DefaultCorroboration().Decide(prev, bs, s, day0)
			if got.State != tc.want {
				t.Errorf("got %s (%s), want %s", got.State, got.Reason, tc.want)
			}
			if want := "unknown: no vantage had a success for 4 h of watching"; tc.want == unknown && got.Reason[:len(want)] != want {
				t.Errorf("reason %q", got.Reason)
			}
		})
	}
}

// Nobody votes on a relay that is paused, and that is no outage of ours: rule 7
// holds all the same.
func TestPaused(t *testing.T) {
	const maxAge = 4 * time.Hour
	for _, tc := range []struct {
		name        string
		prev        monitor.State
		lastSuccess time.Duration
		votes       string
		want        monitor.State
	}{
		{"seen lately", online, maxAge - time.Second, "none none", online},
		{"seen long ago", online, maxAge, "none none", unknown},
		{"still up", online, maxAge, "up none", online},
		{"offline stays", offline, maxAge, "none none", offline},
		{"dead stays", dead, maxAge, "none none", dead},
	} {
		prev, s := was(tc.prev), watching
		prev.LastSuccess, s.Paused = day0.Add(-tc.lastSuccess), true
		bs := ballots(tc.votes)
		for i := range bs {
			bs[i].LastSuccess = time.Time{}
		}
		if got := monitor.DefaultCorroboration().Decide(prev, bs, s, day0); got.State != tc.want {
			t.Errorf("%s: got %s (%s), want %s", tc.name, got.State, got.Reason, tc.want)
		}
	}
}

// The newest success from any vantage counts, also from one that may not vote,
// and from one that is gone.
func TestLastSuccess(t *testing.T) {
	c := monitor.DefaultCorroboration()
	bs := ballots("up none")
	bs[1].LastSuccess = day0.Add(-time.Second)
	if got := c.Decide(was(online), bs, watching, day0).LastSuccess; !got.Equal(day0.Add(-time.Second)) {
		t.Errorf("got %s", got)
	}
	prev := was(online)
	prev.LastSuccess = day0
	if got := c.Decide(prev, bs, watching, day0).LastSuccess; !got.Equal(day0) {
		t.Errorf("a newer one of before was lost: %s", got)
	}
}

// Six transitions in a day make a relay flapping, and then it changes hourly.
func TestFlapping(t *testing.T) {
	c := monitor.DefaultCorroboration()
	for _, tc := range []struct {
		name    string
		changes []time.Time
		want    monitor.State
		marked  bool
	}{
		{"five before", hours(-5, -4, -3, -2, -0.5), offline, true}, // this is the sixth
		{"four before", hours(-4, -3, -2, -0.5), offline, false},
		{"six, half an hour ago", hours(-6, -5, -4, -3, -2, -0.5), online, true},
		{"six, an hour ago", hours(-6, -5, -4, -3, -2, -1), offline, true},
		{"six in a day and a bit", hours(-24.01, -5, -4, -3, -2, -0.5), offline, true}, // the sixth of a day again
		{"six in two days", hours(-40, -30, -20, -10, -5, -0.5), offline, false},
		{"the six may be seven", hours(-30, -6, -5, -4, -3, -2, -0.5), online, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prev := was(online)
			prev.Changes = tc.changes
			kept := append([]time.Time(nil), tc.changes...)
			got := c.Decide(prev, ballots("down down"), watching, day0)
			if got.State != tc.want || got.Marks.Has(monitor.MarkFlapping) != tc.marked {
				t.Errorf("got %s %v (%s), want %s, flapping %v", got.State, got.Marks, got.Reason, tc.want, tc.marked)
			}
			if len(got.Changes) > monitor.FlappingTransitions && got.State != online {
				t.Errorf("%d changes kept", len(got.Changes))
			}
			if d := cmp.Diff(kept, prev.Changes); d != "" {
				t.Errorf("the previous verdict was changed:\n%s", d)
			}
		})
	}
	// Two decisions from one verdict must not share its spare room.
	prev := was(online)
	prev.Changes = append(make([]time.Time, 0, 8), hours(-2, -1)...)
	one := c.Decide(prev, ballots("down down"), watching, day0)
	c.Decide(prev, ballots("down down"), watching, day0.Add(time.Minute))
	if d := cmp.Diff(hours(-2, -1, 0), one.Changes); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	prev = was(offline)
	prev.Changes = hours(-6, -5, -4, -3, -2, -0.5)
	if got := c.Decide(prev, ballots("up up"), watching, day0); got.State != offline {
		t.Errorf("a flapping relay returned within the hour")
	}
}

// A majority that says down for more than three intervals makes an online relay
// partial; the count starts anew when it is gone for one decision.
func TestPartialByMajority(t *testing.T) {
	c := monitor.DefaultCorroboration()
	v := was(online)
	split := ballots("up up down down down")
	at := func(d time.Duration, votes []monitor.Ballot) monitor.Marks {
		v = c.Decide(v, votes, watching, day0.Add(d))
		if v.State != online {
			t.Fatalf("%s after %s", v.State, d)
		}
		return v.Marks
	}
	for _, step := range []struct {
		d     time.Duration
		votes []monitor.Ballot
		want  monitor.Marks
	}{
		{0, split, 0},
		{3 * interval, split, 0},
		{3*interval + 1, split, monitor.MarkPartial},
		{4 * interval, ballots("up up down down"), 0}, // a tie is no majority
		{5 * interval, split, 0},
		{8*interval + 1, split, monitor.MarkPartial},
	} {
		if got := at(step.d, step.votes); got != step.want {
			t.Errorf("after %s: marks %q, want %q", step.d, got, step.want)
		}
	}
	if v = c.Decide(v, ballots("none none"), watching, day0.Add(9*interval)); !v.MajorityDownSince.IsZero() {
		t.Error("nobody says down any more")
	}
}

// Cause and evidence are of the ballot that speaks loudest for the state,
// whatever the order of the ballots.
func TestLoudest(t *testing.T) {
	c := monitor.DefaultCorroboration()
	say := func(b monitor.Ballot, n int, cause monitor.Cause, evidence string) monitor.Ballot {
		b.FailureCount, b.Cause, b.Evidence = n, cause, evidence
		return b
	}
	up := ballot("a", "a1", "up")
	up.Cause, up.Evidence = monitor.CauseAuthRequired, "it wants to know who asks"
	three := say(ballot("b", "b1", "down"), 3, monitor.CauseReset, "it hung up")
	five := say(ballot("c", "c1", "down"), 5, monitor.CauseNXDomain, "no such name")
	nine := say(ballot("d", "d1", "suspect"), 9, monitor.CauseTimeout, "too slow")
	for _, tc := range []struct {
		name  string
		prev  monitor.State
		votes []monitor.Ballot
		want  string
	}{
		{"online: an up", online, []monitor.Ballot{five, up, three}, up.Evidence},
		{"offline: the most failures among down", online, []monitor.Ballot{nine, three, five}, five.Evidence},
		{"online without an up: who is against it", online, []monitor.Ballot{nine, three, ballot("e", "e1", "restricted"), ballot("f", "f1", "old")}, three.Evidence},
		{"a tie: the first name", online, []monitor.Ballot{say(ballot("d", "d1", "down"), 5, monitor.CauseReset, "it hung up"), five}, five.Evidence},
		{"nobody: what was said before", online, ballots("none"), "before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prev := was(tc.prev)
			prev.Evidence = "before"
			for range tc.votes {
				tc.votes = append(tc.votes[1:], tc.votes[0])
				if got := c.Decide(prev, tc.votes, watching, day0); got.Evidence != tc.want {
					t.Errorf("got %q, want %q", got.Evidence, tc.want)
				}
			}
		})
	}
}

// A verdict that says the same again costs nothing and keeps its reason.
func TestDecideAllocatesNothingWhenQuiet(t *testing.T) {
	c := monitor.DefaultCorroboration()
	for _, votes := range []string{"up up up", "up down down", "dead dead", "none", "restricted suspect old"} {
		bs := ballots(votes)
		v := c.Decide(was(online), bs, watching, day0)
		if n := testing.AllocsPerRun(10, func() { v = c.Decide(v, bs, watching, day0) }); n != 0 {
			t.Errorf("%s: %v allocations", votes, n)
		}
	}
}
