package monitor

import "time"

// ExpeditedTimeout is how long an expedited probe that was asked for keeps an
// older up in force.
const ExpeditedTimeout = time.Minute

// Vote is what one vantage says about one relay now: the first matching row of
// the table (corroboration.md, Votes). It looks at nothing but vr and now.
func (c Corroboration) Vote(vr VantageRelay, now time.Time) Vote { return c.vote(&vr, now) }

func (c Corroboration) vote(vr *VantageRelay, now time.Time) Vote {
	grace := c.Grace()
	r := &vr.Record
	if !vr.Outcome.Measured() || now.Sub(vr.NextDue) >= grace {
		return VoteNone
	}
	fresh := !r.LastSuccess.IsZero() && now.Sub(r.LastSuccess) <= grace
	switch {
	case r.State == StateOnline && fresh:
		return VoteUp
	case vr.Outcome == OutcomeRestricted && !fresh:
		return VoteRestricted
	case r.State == StateDead:
		return VoteDead
	case r.State == StateOffline && r.FailureCount >= max(c.ConfirmFailures, 1) && r.Corroborated:
		return VoteDown
	case r.State == StateOffline && r.FailureCount >= 1:
		return VoteSuspect
	}
	return VoteNone
}

// VantageEligible reports whether a vantage may vote at all now: enrolled and
// not revoked, not impaired, its clock near ours, its last batch no more than
// 2.5 intervals ago. It votes on no relay of a network that it has Lost.
func (c Corroboration) VantageEligible(v *Vantage, now time.Time) bool {
	return !v.Revoked && len(v.Health.Impairments) == 0 && v.Skew.Abs() <= c.MaxClockSkew &&
		!v.LastSeen.IsZero() && now.Sub(v.LastSeen) <= c.Grace()
}

// Ballots returns one ballot per vantage, in their order. seen runs parallel to
// vantages; its zero value is a relay never seen from there.
func (c Corroboration) Ballots(relay RelayURL, vantages []Vantage, seen []VantageRelay, now time.Time) []Ballot {
	return c.AppendBallots(make([]Ballot, 0, len(vantages)), relay, vantages, seen, now)
}

// AppendBallots is Ballots into the caller's buffer.
//
// Suspicion: an up counts only if its success is later than the start of every
// other eligible vantage's streak of failures, or while its expedited probe is
// under way. A vantage that may not vote raises no suspicion.
func (c Corroboration) AppendBallots(dst []Ballot, relay RelayURL, vantages []Vantage, seen []VantageRelay, now time.Time) []Ballot {
	network := relay.Network()
	start := len(dst)
	var suspicion time.Time // start of the youngest streak
	for i := range vantages {
		v, vr := &vantages[i], &seen[i]
		able := !v.Revoked && v.Reaches(network) && !vr.unroutable()
		vote := c.vote(vr, now)
		eligible := able && vote != VoteNone && !v.Lost(network) && c.VantageEligible(v, now)
		if eligible && vote.Against() && vr.Record.FirstFailure.After(suspicion) {
			suspicion = vr.Record.FirstFailure
		}
		group := v.Group
		if group == "" {
			group = v.Name
		}
		dst = append(dst, Ballot{
			Vantage:      v.Name,
			Group:        group,
			Vote:         vote,
			Eligible:     eligible,
			Able:         able,
			Outcome:      vr.Outcome,
			Stage:        vr.Stage,
			Cause:        vr.Cause,
			Evidence:     vr.Evidence,
			At:           vr.At,
			FailureCount: vr.Record.FailureCount,
			LastFailure:  vr.Record.LastFailure,
			LastSuccess:  vr.Record.LastSuccess,
			OnlineSince:  vr.Record.OnlineSince,
			BackoffUntil: vr.Record.BackoffUntil,
			RTTOpen:      vr.RTTOpen,
			RTTRead:      vr.RTTRead,
		})
	}
	if suspicion.IsZero() {
		return dst
	}
	for i := range vantages {
		b := &dst[start+i]
		b.Unconfirmed = b.Vote == VoteUp && !b.LastSuccess.After(suspicion) && !underWay(seen[i].Expedited, now)
	}
	return dst
}

func underWay(expedited, now time.Time) bool {
	if expedited.IsZero() {
		return false
	}
	d := now.Sub(expedited)
	return d >= 0 && d <= ExpeditedTimeout
}

// NoRoute reports whether the observation came to nothing because the vantage
// has no route to any of the relay's addresses: what VantageRelay.NoRoute is
// set to after every observation.
func (o *Observation) NoRoute() bool {
	return o.Outcome == OutcomeUnclear && o.Stage == StageTCP && o.Cause == CauseLocalNetwork
}

// unroutable reports that the vantage has no route to the relay's address
// family. A vantage that ever measured the relay can reach it.
func (vr *VantageRelay) unroutable() bool {
	return vr.NoRoute && !vr.Outcome.Measured() && vr.Record.LastSuccess.IsZero() && vr.Record.LastFailure.IsZero()
}

// tally is what the ballots on one relay come to, in groups.
type tally struct {
	// able counts the groups that are enrolled and can reach the relay,
	// eligible those of them that vote now. Each eligible group is in exactly
	// one of the following.
	able, eligible                                   int
	up, unconfirmed, dead, down, restricted, suspect int
	votes, restrictedVotes                           int  // of vantages
	twice                                            bool // one group up succeeded twice, ReturnSpan apart
	lastSuccess                                      time.Time
}

// groupTally counts the eligible members of one group.
type groupTally struct {
	name                                       string
	n, up, unconfirmed, dead, down, restricted int32
	// first and last are the oldest and newest success of the runs of its ups,
	// in Unix nanoseconds; they mean something where up > 0.
	first, last int64
}

// count puts the ballots into groups, each of them one vote. A group's
// unconfirmed up keeps the whole group from taking a side.
func count(ballots []Ballot) tally {
	var t tally
	var room [16]groupTally // more groups than that cost an allocation
	groups := room[:0]
	for i := range ballots {
		b := &ballots[i]
		if b.LastSuccess.After(t.lastSuccess) {
			t.lastSuccess = b.LastSuccess
		}
		if !b.Able {
			continue
		}
		g := -1
		for j := range groups {
			if groups[j].name == b.Group {
				g = j
				break
			}
		}
		if g < 0 {
			g = len(groups)
			groups = append(groups, groupTally{name: b.Group})
		}
		if b.Eligible {
			t.votes++
			if b.Vote == VoteRestricted {
				t.restrictedVotes++
			}
			groups[g].add(b)
		}
	}
	t.able = len(groups)
	for i := range groups {
		g := &groups[i]
		if g.n == 0 {
			continue
		}
		t.eligible++
		switch {
		case g.up > 0:
			t.up++
			t.twice = t.twice || g.last-g.first >= int64(ReturnSpan)
		case g.unconfirmed > 0:
			t.unconfirmed++
		case 2*g.dead > g.n:
			t.dead++
		case 2*(g.dead+g.down) > g.n:
			t.down++
		case 2*g.restricted > g.n:
			t.restricted++
		default:
			t.suspect++
		}
	}
	return t
}

func (g *groupTally) add(b *Ballot) {
	g.n++
	switch b.Vote {
	case VoteUp:
		if b.Unconfirmed {
			g.unconfirmed++
			return
		}
		last := b.LastSuccess.UnixNano()
		first := last
		if !b.OnlineSince.IsZero() && b.OnlineSince.Before(b.LastSuccess) {
			first = b.OnlineSince.UnixNano()
		}
		if g.up == 0 {
			g.first, g.last = first, last
		}
		g.first, g.last = min(g.first, first), max(g.last, last)
		g.up++
	case VoteDead:
		g.dead++
	case VoteDown:
		g.down++
	case VoteRestricted:
		g.restricted++
	case VoteSuspect, VoteNone: // counted in n alone
	}
}

// against counts the groups that say down or dead.
func (t *tally) against() int { return t.down + t.dead }

// majority reports whether n is a strict majority of the eligible groups.
func (t *tally) majority(n int) bool { return 2*n > t.eligible }

// contested reports whether the others are so many that one group alone brings
// no relay back (rule 2).
func (t *tally) contested() bool { return t.eligible >= 3 && t.majority(t.against()) }

// quorum counts the groups that carry state now; nobody carries unknown. Where
// dead holds without a majority of its own (rule 4), down carries it as well.
func (t *tally) quorum(state State) Quorum {
	q := Quorum{Of: t.eligible}
	switch state {
	case StateOnline:
		q.For = t.up
	case StateOffline:
		q.For = t.against()
	case StateDead:
		q.For = t.dead
		if !t.majority(t.dead) {
			q.For = t.against()
		}
	case StateUnknown:
	}
	return q
}

// side is the vote that speaks for state. What keeps a relay unknown is told by
// those that see it down.
func side(state State) Vote {
	switch state {
	case StateOnline:
		return VoteUp
	case StateDead:
		return VoteDead
	default:
		return VoteDown
	}
}

// loudest returns the eligible ballot that speaks loudest for vote, or where
// none does, the one that best tells why not; nil when none is eligible.
func loudest(ballots []Ballot, vote Vote) *Ballot {
	var best *Ballot
	var bestWeight int
	for i := range ballots {
		b := &ballots[i]
		if !b.Eligible {
			continue
		}
		w := b.weight(vote)
		if best == nil || w > bestWeight || w == bestWeight && louder(b, best) {
			best, bestWeight = b, w
		}
	}
	return best
}

func (b *Ballot) weight(vote Vote) int {
	switch {
	case b.Unconfirmed:
		return 0
	case b.Vote == vote, b.Vote == VoteDead && vote == VoteDown:
		return 4
	case b.Vote == VoteDead, b.Vote == VoteDown:
		return 3
	case b.Vote == VoteSuspect, b.Vote == VoteRestricted:
		return 2
	}
	return 1
}

// louder orders ballots of one weight: more failures, then the newer probe,
// then the name.
func louder(a, b *Ballot) bool {
	switch {
	case a.FailureCount != b.FailureCount:
		return a.FailureCount > b.FailureCount
	case !a.At.Equal(b.At):
		return a.At.After(b.At)
	}
	return a.Vantage < b.Vantage
}
