package monitor_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// day0 is now in most tables: a whole minute, so that clock times read well.
var day0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const interval = 5 * time.Minute // of the default options

// ballots reads one word per vantage: groups a, b, c … are separated by spaces,
// vantages of one group by commas.
//
//	up          one success, 10 s ago
//	twice       successes 40 s and 10 s ago
//	old         an up that is not confirmed under suspicion
//	down, dead  4 and 9 failures, a timeout at tcp
//	suspect     one failure
//	restricted  HTTP 403
//	auth, busy  refused: auth_required, rate_limited
//	shut        HTTP 403 after a success that still counts
//	none        able, without a vote
//	cut         not able
func ballots(spec string) []monitor.Ballot {
	var out []monitor.Ballot
	for g, members := range strings.Fields(spec) {
		for m, word := range strings.Split(members, ",") {
			group := string(rune('a' + g))
			out = append(out, ballot(group, fmt.Sprintf("%s%d", group, m+1), word))
		}
	}
	return out
}

func ballot(group, vantage, word string) monitor.Ballot {
	b := monitor.Ballot{Vantage: vantage, Group: group, Able: true, Eligible: true, At: day0.Add(-10 * time.Second)}
	failed := func(vote monitor.Vote, n int) {
		b.Vote, b.Outcome, b.Stage, b.Cause = vote, monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout
		b.Evidence = "no answer within 4 s"
		b.FailureCount, b.LastFailure = n, b.At
		b.LastSuccess = day0.Add(-30 * time.Minute)
	}
	switch word {
	case "up", "twice", "old":
		b.Vote, b.Outcome = monitor.VoteUp, monitor.OutcomeOK
		b.LastSuccess, b.OnlineSince = b.At, b.At
		if word == "twice" {
			b.OnlineSince = b.At.Add(-monitor.ReturnSpan)
		}
		b.Unconfirmed = word == "old"
	case "down":
		failed(monitor.VoteDown, 4)
	case "dead":
		failed(monitor.VoteDead, 9)
	case "suspect":
		failed(monitor.VoteSuspect, 1)
	case "restricted":
		b.Vote, b.Outcome, b.Stage, b.Cause = monitor.VoteRestricted, monitor.OutcomeRestricted, monitor.StageUpgrade, monitor.CauseHTTP403
	case "auth", "busy":
		b.Vote, b.Outcome, b.Stage, b.Cause = monitor.VoteUp, monitor.OutcomeRefused, monitor.StageRead, monitor.CauseAuthRequired
		if word == "busy" {
			b.Cause = monitor.CauseRateLimited
		}
		b.LastSuccess, b.OnlineSince = b.At, b.At
	case "shut":
		b.Vote, b.Outcome, b.Stage, b.Cause = monitor.VoteUp, monitor.OutcomeRestricted, monitor.StageUpgrade, monitor.CauseHTTP403
		b.LastSuccess, b.OnlineSince = b.At, b.At
	case "none":
		b.Eligible = false
	case "cut":
		b.Eligible, b.Able = false, false
	default:
		panic("no such ballot: " + word)
	}
	return b
}

// was is a previous verdict, an hour old.
func was(s monitor.State) monitor.Verdict {
	v := monitor.Verdict{State: s, LastSuccess: day0.Add(-20 * time.Minute)}
	if s != monitor.StateUnknown {
		v.Since = day0.Add(-time.Hour)
		v.Changes = []time.Time{v.Since}
	}
	return v
}

// watching is an ordinary situation: nothing is lost, no start hold.
var watching = monitor.Situation{WatchingSince: day0.Add(-24 * time.Hour)}

func hours(n ...float64) []time.Time {
	var out []time.Time
	for _, h := range n {
		out = append(out, day0.Add(time.Duration(h*float64(time.Hour))))
	}
	return out
}
