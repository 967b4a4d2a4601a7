package monitor

import "time"

// Corroboration holds the options by which the views of several vantages become
// one verdict (corroboration.md). It keeps no state: vote, ballot and verdict
// are functions of the records, the previous verdict and now.
type Corroboration struct {
	Interval        time.Duration // probe.interval
	ConfirmFailures int           // counted failures of one streak before a vote is down
	HoldFraction    float64       // share of the online set that may leave within one interval
	HoldMin         int           // number that may leave within one interval whatever the share
	MaxClockSkew    time.Duration // a vantage whose clock is further off does not vote
	// LiveMaxAge is the age beyond which a success keeps nothing alive: an
	// online relay unseen for so long becomes unknown (rule 7), and a held one
	// may leave after it. It is live.max_age, so that rule and list agree.
	LiveMaxAge time.Duration
	MinFresh   float64 // live.min_fresh
}

// DefaultCorroboration returns the defaults of config.md.
func DefaultCorroboration() Corroboration {
	return Corroboration{
		Interval:        5 * time.Minute,
		ConfirmFailures: 3,
		HoldFraction:    0.1,
		HoldMin:         10,
		MaxClockSkew:    time.Minute,
		LiveMaxAge:      4 * time.Hour,
		MinFresh:        0.8,
	}
}

// The fixed numbers of the rules (corroboration.md).
const (
	// FlappingTransitions within FlappingWindow make a relay flapping; its
	// verdict then changes at most once per FlappingPause.
	FlappingTransitions = 6
	FlappingWindow      = 24 * time.Hour
	FlappingPause       = time.Hour
	// DegradedHold is how long nothing goes offline or dead after all groups
	// but one were lost (rule 5).
	DegradedHold = 6 * time.Hour
	// ReturnSpan is the least time between the two successes by which one group
	// alone brings a relay back (rule 2).
	ReturnSpan = 30 * time.Second
	// partialIntervals is for how many intervals a strict majority says down
	// before an online relay is partial.
	partialIntervals = 3
)

// Grace is 2.5 intervals: how long a success, a report or a missed probe is
// good for.
func (c Corroboration) Grace() time.Duration { return c.Interval * 5 / 2 }

// Situation is what a decision needs to know besides one relay's ballots.
type Situation struct {
	// AloneSince is since when fewer than two groups are eligible though two or
	// more are enrolled and able, among the vantages that reach the relay's
	// network; zero = it is not so. It is about the vantages, not about one
	// relay (rule 5).
	AloneSince time.Time
	// WatchingSince is since when, without a gap, the core has been running and
	// some vantage has been eligible; zero = not watching now (rule 7).
	WatchingSince time.Time
	// NoLeave is the start hold: no verdict leaves online.
	NoLeave bool
	// Paused: an operator keeps this relay from being probed. That nobody votes
	// on it is then no outage of ours, and rule 7 goes before rule 1: a relay
	// that is not looked at for LiveMaxAge is not called online any longer.
	Paused bool
}

// Decide applies rules 1 to 7 and sets every mark but held, which is the
// brake's: the result says what the votes ask for, and Brake.Apply must see it
// before it counts. The order of the ballots does not matter, except for the
// order in which the reason names vantages.
//
// Where the rules are silent:
//   - The start hold, and the hourly pace of a flapping relay, keep the previous
//     state whatever the votes ask for; the hourly pace holds for returns too.
//   - Two or more groups are able but only one has a vote on this relay, while
//     the others are not lost: the six hours of rule 5 have not begun, so
//     nothing goes offline or dead.
//   - Rule 7 needs an eligible group now: where none may vote, rule 1 holds,
//     except while the relay is paused.
//   - partial counts a group that is not up as "several" whatever else it says,
//     an unconfirmed up too.
func (c Corroboration) Decide(prev Verdict, ballots []Ballot, s Situation, now time.Time) Verdict {
	t := count(ballots)
	next := prev
	next.Marks = 0
	if t.lastSuccess.After(next.LastSuccess) {
		next.LastSuccess = t.lastSuccess
	}

	state, why := c.judge(prev.State, next.LastSuccess, t, s, now)
	if state != prev.State {
		switch {
		case s.NoLeave && prev.State == StateOnline:
			state, why = prev.State, whyStart
		case flapping(prev.Changes, now) && now.Sub(prev.Changes[len(prev.Changes)-1]) < FlappingPause:
			state, why = prev.State, whyFlapping
		}
	}
	if state != prev.State {
		next.State, next.Since = state, now
		next.Changes = changed(prev.Changes, now)
	}

	// Kept up for a proposed departure as well: the brake may hold it.
	if t.majority(t.against()) && (prev.State == StateOnline || state == StateOnline) {
		if next.MajorityDownSince.IsZero() {
			next.MajorityDownSince = now
		}
	} else {
		next.MajorityDownSince = time.Time{}
	}

	odd, singledOut := singledOut(ballots)
	next.Marks = c.marks(&next, t, now)
	if singledOut {
		next.Marks |= MarkSingledOut
	}
	next.Quorum = t.quorum(state)
	if b := loudest(ballots, side(state)); b != nil {
		next.Cause, next.Evidence = b.Cause, b.Evidence
	}
	next.Reason = c.reason(prev.Reason, why, &next, t, ballots, odd)
	return next
}

// judge applies rules 1 to 7; lastSuccess is the newest from any vantage.
func (c Corroboration) judge(prev State, lastSuccess time.Time, t tally, s Situation, now time.Time) (State, why) {
	switch {
	case t.eligible == 0 && s.Paused && c.unseen(prev, lastSuccess, s, now): // 7
		return StateUnknown, whyUnseen
	case t.eligible == 0: // 1
		return prev, whyNobody
	case t.up > 0: // 2
		if prev != StateOffline && prev != StateDead {
			return StateOnline, whyVotes
		}
		if t.up >= 2 || t.twice && !t.contested() {
			return StateOnline, whyVotes
		}
		return prev, whyReturn
	case t.majority(t.against()) && !t.mustWait(s, now): // 3, 5
		if prev == StateDead || t.majority(t.dead) { // 4
			return StateDead, whyVotes
		}
		return StateOffline, whyVotes
	case c.unseen(prev, lastSuccess, s, now): // 7
		return StateUnknown, whyUnseen
	case t.majority(t.against()):
		return prev, whyAlone
	}
	return prev, whyNoMajority // 4
}

// mustWait is rule 5: one group is left of several, and not yet for long.
func (t *tally) mustWait(s Situation, now time.Time) bool {
	return t.degraded() && (s.AloneSince.IsZero() || now.Sub(s.AloneSince) < DegradedHold)
}

func (t *tally) degraded() bool { return t.eligible == 1 && t.able >= 2 }

// unseen is rule 7. A relay that no vantage ever reached counts from the start
// of watching.
func (c Corroboration) unseen(prev State, lastSuccess time.Time, s Situation, now time.Time) bool {
	if prev != StateOnline || s.WatchingSince.IsZero() {
		return false
	}
	since := s.WatchingSince
	if lastSuccess.After(since) {
		since = lastSuccess
	}
	return now.Sub(since) >= c.LiveMaxAge
}

func (c Corroboration) marks(v *Verdict, t tally, now time.Time) Marks {
	var m Marks
	if v.State == StateOnline && (t.up == 1 && t.eligible >= 2 || c.longDown(v.MajorityDownSince, now)) {
		m |= MarkPartial
	}
	if t.votes > 0 && t.restrictedVotes == t.votes {
		m |= MarkRestricted
	}
	if flapping(v.Changes, now) {
		m |= MarkFlapping
	}
	switch {
	case t.eligible == 0:
		m |= MarkStale
	case t.degraded():
		m |= MarkDegraded
	case t.eligible == 1:
		m |= MarkUncorroborated
	}
	return m
}

// longDown reports whether a majority has said down for more than three
// intervals.
func (c Corroboration) longDown(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) > partialIntervals*c.Interval
}

// flapping reports whether the newest FlappingTransitions of changes fall
// within the window.
func flapping(changes []time.Time, now time.Time) bool {
	n := len(changes)
	return n >= FlappingTransitions && now.Sub(changes[n-FlappingTransitions]) <= FlappingWindow
}

// changed returns a new slice, since verdicts share the old one.
func changed(changes []time.Time, now time.Time) []time.Time {
	if n := len(changes); n >= FlappingTransitions {
		changes = changes[n-FlappingTransitions+1:]
	}
	return append(append(make([]time.Time, 0, len(changes)+1), changes...), now)
}

// Departs reports whether the step from prev to next takes a relay out of the
// online set: what the brake counts as a departure.
func Departs(prev, next Verdict) bool {
	return prev.State == StateOnline && next.State != StateOnline
}

// Pending reports whether a relay may be about to leave (corroboration.md,
// Brakes): it is online, no vantage votes up — one not confirmed under
// suspicion counts as up here — and some group votes suspect, down or dead.
// Whoever counts pending relays adds those for which Departs is true without
// it (rule 7).
func Pending(prev Verdict, ballots []Ballot) bool {
	if prev.State != StateOnline {
		return false
	}
	against := false
	for i := range ballots { // for most relays this is all
		b := &ballots[i]
		if b.Eligible && b.Vote == VoteUp {
			return false
		}
		against = against || b.Eligible && b.Vote.Against()
	}
	if !against {
		return false
	}
	t := count(ballots)
	return t.suspect+t.against() > 0
}
