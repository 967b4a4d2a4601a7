package monitor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// The table of votes, row by row and at its edges.
func TestVote(t *testing.T) {
	const grace = interval * 5 / 2
	ago := func(d time.Duration) time.Time { return day0.Add(-d) }
	failing := func(n int, corroborated bool) monitor.Record {
		return monitor.Record{
			State: monitor.StateOffline, FailureCount: n, Corroborated: corroborated,
			FirstFailure: ago(time.Hour), LastFailure: ago(time.Minute), LastSuccess: ago(2 * time.Hour),
		}
	}
	online := func(d time.Duration) monitor.Record {
		return monitor.Record{State: monitor.StateOnline, LastSuccess: ago(d), OnlineSince: ago(24 * time.Hour)}
	}
	dead := failing(9, true)
	dead.State = monitor.StateDead
	lately := failing(1, false)
	lately.LastSuccess = ago(grace)
	due := day0.Add(time.Minute)

	for _, tc := range []struct {
		name    string
		record  monitor.Record
		outcome monitor.Outcome
		due     time.Time
		want    monitor.Vote
	}{
		{"never measured", online(0), monitor.OutcomeNone, due, monitor.VoteNone},
		{"skipped is no measurement", online(0), monitor.OutcomeSkipped, due, monitor.VoteNone},
		{"unclear is no measurement", dead, monitor.OutcomeUnclear, due, monitor.VoteNone},
		{"the next probe is 2.5 intervals late", online(0), monitor.OutcomeOK, ago(grace), monitor.VoteNone},
		{"not quite so late", online(0), monitor.OutcomeOK, ago(grace - 1), monitor.VoteUp},
		{"a dead one is due tomorrow", dead, monitor.OutcomeFailed, day0.Add(24 * time.Hour), monitor.VoteDead},
		{"up", online(time.Minute), monitor.OutcomeOK, due, monitor.VoteUp},
		{"up by a refusal", online(time.Minute), monitor.OutcomeRefused, due, monitor.VoteUp},
		{"up until 2.5 intervals", online(grace), monitor.OutcomeOK, due, monitor.VoteUp},
		{"nothing but skips since", online(grace + 1), monitor.OutcomeOK, due, monitor.VoteNone},
		{"an ignored failure is none", online(grace + 1), monitor.OutcomeFailed, due, monitor.VoteNone},
		{"restricted after a recent success", online(time.Minute), monitor.OutcomeRestricted, due, monitor.VoteUp},
		{"restricted", online(grace + 1), monitor.OutcomeRestricted, due, monitor.VoteRestricted},
		{"restricted from the first look on", monitor.Record{}, monitor.OutcomeRestricted, due, monitor.VoteRestricted},
		{"restricted goes before dead", dead, monitor.OutcomeRestricted, due, monitor.VoteRestricted},
		{"restricted amid young failures", lately, monitor.OutcomeRestricted, due, monitor.VoteSuspect},
		{"dead", dead, monitor.OutcomeFailed, due, monitor.VoteDead},
		{"down", failing(3, true), monitor.OutcomeFailed, due, monitor.VoteDown},
		{"two failures", failing(2, true), monitor.OutcomeFailed, due, monitor.VoteSuspect},
		{"uncorroborated", failing(30, false), monitor.OutcomeFailed, due, monitor.VoteSuspect},
		{"one failure", failing(1, true), monitor.OutcomeFailed, due, monitor.VoteSuspect},
		{"recovered", monitor.Record{State: monitor.StateOffline, LastSuccess: ago(time.Minute)}, monitor.OutcomeFailed, due, monitor.VoteNone},
		{"unknown", monitor.Record{}, monitor.OutcomeFailed, due, monitor.VoteNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vr := monitor.VantageRelay{Record: tc.record, Outcome: tc.outcome, NextDue: tc.due}
			if got := monitor.DefaultCorroboration().Vote(vr, day0); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestVantageEligible(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*monitor.Vantage)
		want   bool
	}{
		{"fit", func(*monitor.Vantage) {}, true},
		{"revoked", func(v *monitor.Vantage) { v.Revoked = true }, false},
		{"impaired", func(v *monitor.Vantage) { v.Health.Impairments = []monitor.Impairment{monitor.ImpairedLag} }, false},
		{"clock a minute fast", func(v *monitor.Vantage) { v.Skew = time.Minute }, true},
		{"clock too fast", func(v *monitor.Vantage) { v.Skew = time.Minute + 1 }, false},
		{"clock too slow", func(v *monitor.Vantage) { v.Skew = -time.Minute - 1 }, false},
		{"last batch 2.5 intervals ago", func(v *monitor.Vantage) { v.LastSeen = day0.Add(-interval * 5 / 2) }, true},
		{"last batch longer ago", func(v *monitor.Vantage) { v.LastSeen = day0.Add(-interval*5/2 - 1) }, false},
		{"no batch yet", func(v *monitor.Vantage) { v.LastSeen = time.Time{} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := monitor.Vantage{Name: "a", LastSeen: day0}
			tc.change(&v)
			if got := monitor.DefaultCorroboration().VantageEligible(&v, day0); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// An up counts under suspicion only when it is younger than the streak, or when
// its expedited probe is under way.
func TestSuspicion(t *testing.T) {
	c := monitor.DefaultCorroboration()
	streak := day0.Add(-2 * time.Minute)
	for _, tc := range []struct {
		name        string
		change      func(vantages []monitor.Vantage, seen []monitor.VantageRelay)
		unconfirmed bool
	}{
		{"older", func([]monitor.Vantage, []monitor.VantageRelay) {}, true},
		{"younger", func(_ []monitor.Vantage, seen []monitor.VantageRelay) { seen[0].Record.LastSuccess = streak.Add(1) }, false},
		{"of the same moment", func(_ []monitor.Vantage, seen []monitor.VantageRelay) { seen[0].Record.LastSuccess = streak }, true},
		{"expedited probe under way", func(_ []monitor.Vantage, seen []monitor.VantageRelay) { seen[0].Expedited = day0.Add(-time.Minute) }, false},
		{"expedited probe overdue", func(_ []monitor.Vantage, seen []monitor.VantageRelay) { seen[0].Expedited = day0.Add(-time.Minute - 1) }, true},
		{"expedited in the future", func(_ []monitor.Vantage, seen []monitor.VantageRelay) { seen[0].Expedited = day0.Add(1) }, true},
		{"the suspect may not vote", func(v []monitor.Vantage, _ []monitor.VantageRelay) { v[1].Revoked = true }, false},
		{"the suspect's streak is cleared", func(_ []monitor.Vantage, seen []monitor.VantageRelay) {
			seen[1].Record = monitor.Record{State: monitor.StateOffline}
		}, false},
		{"a second, younger streak", func(_ []monitor.Vantage, seen []monitor.VantageRelay) {
			seen[0].Record.LastSuccess = day0.Add(-time.Minute)
			seen[2] = seen[1]
			seen[2].Record.FirstFailure = day0.Add(-30 * time.Second)
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			vantages, seen := fleet(3, day0)
			seen[0].Record.LastSuccess = streak.Add(-time.Minute)
			seen[1].Outcome = monitor.OutcomeFailed
			seen[1].Record = monitor.Record{State: monitor.StateOffline, FailureCount: 1, FirstFailure: streak, LastFailure: streak}
			seen[2].Record.LastSuccess = day0
			tc.change(vantages, seen)
			got := c.Ballots("wss://relay.example/", vantages, seen, day0)
			if got[0].Vote != monitor.VoteUp || got[0].Unconfirmed != tc.unconfirmed {
				t.Errorf("got %s, unconfirmed %v, want up, %v", got[0].Vote, got[0].Unconfirmed, tc.unconfirmed)
			}
		})
	}
}

func TestBallots(t *testing.T) {
	c := monitor.DefaultCorroboration()
	vantages, seen := fleet(7, day0)
	vantages[0].Group = ""
	vantages[1].Networks = []monitor.Network{monitor.Tor}
	vantages[2].Revoked = true
	vantages[3].Skew = time.Hour
	seen[4] = monitor.VantageRelay{NoRoute: true} // never measured: no route
	seen[5].NoRoute = true                        // measured once: a passing trouble
	seen[6].Outcome = monitor.OutcomeNone         // not measured since the start

	type brief struct {
		Group          string
		Vote           monitor.Vote
		Able, Eligible bool
	}
	var got []brief
	for _, b := range c.AppendBallots(nil, "wss://relay.example/", vantages, seen, day0) {
		got = append(got, brief{b.Group, b.Vote, b.Able, b.Eligible})
	}
	want := []brief{
		{"vantage-00", monitor.VoteUp, true, true},
		{"provider-01", monitor.VoteUp, false, false},
		{"provider-02", monitor.VoteUp, false, false},
		{"provider-03", monitor.VoteUp, true, false},
		{"provider-04", monitor.VoteNone, false, false},
		{"provider-05", monitor.VoteUp, true, true},
		{"provider-06", monitor.VoteNone, true, false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}

	onion := c.Ballots("ws://vww6ybal4bd7szmgncyruucpgfkqahzddi37ktceo3ah7ngmcopnpyyd.onion/", vantages[:2], seen[:2], day0)
	if onion[0].Able || !onion[1].Able {
		t.Errorf("an onion: able %v and %v, want false and true", onion[0].Able, onion[1].Able)
	}
}

func TestNoRoute(t *testing.T) {
	for _, tc := range []struct {
		o    monitor.Observation
		want bool
	}{
		{monitor.Observation{Outcome: monitor.OutcomeUnclear, Stage: monitor.StageTCP, Cause: monitor.CauseLocalNetwork}, true},
		{monitor.Observation{Outcome: monitor.OutcomeUnclear, Stage: monitor.StageTLS, Cause: monitor.CauseLocalNetwork}, false},
		{monitor.Observation{Outcome: monitor.OutcomeUnclear, Stage: monitor.StageTCP, Cause: monitor.CauseLag}, false},
		{monitor.Observation{Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseUnreachable}, false},
		{monitor.Observation{Outcome: monitor.OutcomeOK, Stage: monitor.StageRead}, false},
	} {
		if got := tc.o.NoRoute(); got != tc.want {
			t.Errorf("%s/%s/%s: got %v", tc.o.Outcome, tc.o.Stage, tc.o.Cause, got)
		}
	}
}
