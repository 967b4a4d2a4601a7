package monitor

import (
	"math"
	"time"
)

// Brake keeps the online set from shrinking faster than real outages explain
// (corroboration.md, Brakes, Departures). It keeps no state.
//
// One round of decisions: Decide for every relay; count those for which Pending
// or Departs holds; Engaged once for the round; Releases for each held relay
// while engaged; Apply for every relay.
type Brake struct {
	Interval     time.Duration
	HoldFraction float64
	HoldMin      int
	MaxAge       time.Duration // after which a fresh list lets a held relay go: Corroboration.LiveMaxAge
	MinFresh     float64
}

// Brake returns the brake with c's options.
func (c Corroboration) Brake() Brake {
	return Brake{Interval: c.Interval, HoldFraction: c.HoldFraction, HoldMin: c.HoldMin, MaxAge: c.LiveMaxAge, MinFresh: c.MinFresh}
}

const (
	// releaseShare of the online relays that are not pending must have
	// succeeded since a relay was held, before further failures release it.
	releaseShare = 0.9
	// massShare of the online set pending: no failures release any of it.
	massShare = 0.5
)

// Electorate is what the brake needs to know of the whole online set.
type Electorate struct {
	Online  int // now, pending ones included
	Pending int // of them: Pending or Departs
	// Departures and Arrivals are when relays left and joined the online set
	// within the last interval, in any order; older ones are overlooked. Those
	// that the brake released are in neither.
	Departures, Arrivals []time.Time
	EligibleGroups       int     // groups with a vantage that may vote
	FreshShare           float64 // of Online with a success within live.max_age
	// SucceededShare is the share of the online relays that are not pending
	// with a success after since; nil = 0.
	SucceededShare func(since time.Time) float64
}

// Engaged reports whether pending and departures of the last interval together
// exceed max(HoldMin, HoldFraction of the online set at that interval's start).
// Exactly the limit is not above it.
func (b Brake) Engaged(e Electorate, now time.Time) bool {
	leaving, start := b.leaving(e, now)
	// The addend keeps 0.1 × 120 from being 11.99….
	limit := max(b.HoldMin, int(math.Floor(b.HoldFraction*float64(start)+1e-9)))
	return leaving > limit
}

// leaving counts those that are leaving or left within the last interval, and
// the online set at its start.
func (b Brake) leaving(e Electorate, now time.Time) (leaving, start int) {
	left := b.recent(e.Departures, now)
	return e.Pending + left, max(0, e.Online+left-b.recent(e.Arrivals, now))
}

func (b Brake) recent(times []time.Time, now time.Time) int {
	n := 0
	for _, t := range times {
		if now.Sub(t) < b.Interval {
			n++
		}
	}
	return n
}

// Releases reports whether one relay, held since heldSince, may leave although
// the brake is engaged: at each group that votes down or dead it failed once
// more, an interval or more after it was held, while at least 90 % of the other
// online relays succeeded. Where half of the online set is leaving, or only one
// group is eligible, failures release nothing; time does, once MaxAge has
// passed and the list is fresh all the same. What an operator releases is the
// caller's to say, and a recovery ends the departure by itself.
func (b Brake) Releases(heldSince time.Time, ballots []Ballot, e Electorate, now time.Time) bool {
	if heldSince.IsZero() {
		return false
	}
	leaving, start := b.leaving(e, now)
	if e.EligibleGroups <= 1 || float64(leaving) >= massShare*float64(max(start, e.Online)) {
		return now.Sub(heldSince) >= b.MaxAge && e.FreshShare >= b.MinFresh
	}
	return failedAgain(ballots, heldSince.Add(b.Interval)) &&
		e.SucceededShare != nil && e.SucceededShare(heldSince) >= releaseShare
}

// failedAgain reports whether each group that votes down or dead, and at least
// one does, has a member with a counted failure at or after since.
func failedAgain(ballots []Ballot, since time.Time) bool {
	some := false
	for i := range ballots {
		b := &ballots[i]
		if !b.speaksAgainst() {
			continue
		}
		some = true
		if b.LastFailure.Before(since) && !groupFailedSince(ballots, b.Group, since) {
			return false
		}
	}
	return some
}

func groupFailedSince(ballots []Ballot, group string, since time.Time) bool {
	for i := range ballots {
		b := &ballots[i]
		if b.Group == group && b.speaksAgainst() && !b.LastFailure.Before(since) {
			return true
		}
	}
	return false
}

func (b *Ballot) speaksAgainst() bool {
	return b.Eligible && (b.Vote == VoteDown || b.Vote == VoteDead)
}

// Apply turns what Decide proposes into the verdict. While the brake is engaged
// a pending relay, and any whose proposal departs, stays online and is marked
// held, unless released lets its departure go. The result's HeldSince is that
// of prev while the hold lasts.
func (b Brake) Apply(prev, proposed Verdict, pending, engaged, released bool, now time.Time) Verdict {
	next := proposed
	departs := Departs(prev, proposed)
	held := engaged && (departs && !released || pending && !departs && prev.State == StateOnline)
	if !held {
		next.Marks &^= MarkHeld
		next.HeldSince = time.Time{}
		if next.State != StateOnline {
			next.MajorityDownSince = time.Time{}
		}
		return next
	}
	if departs {
		next.State, next.Since, next.Changes = prev.State, prev.Since, prev.Changes
		next.Quorum.For = 0 // a departure means that nobody sees it up
		next.Marks &^= MarkFlapping
		if flapping(prev.Changes, now) {
			next.Marks |= MarkFlapping
		}
		if !next.MajorityDownSince.IsZero() && now.Sub(next.MajorityDownSince) > partialIntervals*b.Interval {
			next.Marks |= MarkPartial
		}
	}
	next.Marks |= MarkHeld
	if next.HeldSince.IsZero() {
		next.HeldSince = now
	}
	next.Reason = heldReason(prev.Reason, proposed.Reason)
	return next
}

const heldPrefix = "held back: "

// heldReason is heldPrefix+reason, prev itself where it says the same.
func heldReason(prev, reason string) string {
	if len(prev) == len(heldPrefix)+len(reason) && prev[:len(heldPrefix)] == heldPrefix && prev[len(heldPrefix):] == reason {
		return prev
	}
	return heldPrefix + reason
}
