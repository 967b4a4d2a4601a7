package monitor

// treatment is how a relay treats one vantage: 0 = nothing can be said of it
// now.
type treatment uint16

const (
	treatedUp         treatment = 1 << 8 // + the cause of a refusal that lasts
	treatedRestricted treatment = 2 << 8
	treatedDown       treatment = 3 << 8
)

// treatment is what an eligible ballot tells of how the relay treats its
// vantage. A refusal for the moment (rate_limited, error) is an answer like any
// other. Who only suspects, waits for a confirmation, or was let in before and
// is not now, tells nothing yet.
func (b *Ballot) treatment() treatment {
	switch b.Vote {
	case VoteUp:
		switch {
		case b.Unconfirmed || !b.Outcome.Success():
			return 0
		case b.Outcome == OutcomeRefused && b.Cause != CauseRateLimited && b.Cause != CauseError:
			return treatedUp + treatment(b.Cause)
		}
		return treatedUp
	case VoteRestricted:
		return treatedRestricted
	case VoteDown, VoteDead:
		return treatedDown
	case VoteNone, VoteSuspect:
	}
	return 0
}

// singledOut finds the one group that a relay treats otherwise than all the
// others, which it treats alike: of at least three eligible groups, while each
// eligible ballot tells something. No two groups can be it.
func singledOut(ballots []Ballot) (group string, ok bool) {
	first, last := -1, -1
	alike, groups := true, 0
	for i := range ballots {
		b := &ballots[i]
		if !b.Eligible {
			continue
		}
		k := b.treatment()
		if k == 0 {
			return "", false
		}
		if first < 0 {
			first = i
		}
		alike = alike && k == ballots[first].treatment()
		last = i
	}
	if alike { // nearly always
		return "", false
	}
	for i := first; i <= last; i++ {
		b := &ballots[i]
		if !b.Eligible || groupSeen(ballots[first:i], b.Group) {
			continue
		}
		groups++
		if !ok && apart(ballots, b.Group) {
			group, ok = b.Group, true
		}
	}
	return group, ok && groups >= 3
}

// groupSeen reports whether an eligible ballot is of group.
func groupSeen(ballots []Ballot, group string) bool {
	for i := range ballots {
		if b := &ballots[i]; b.Eligible && b.Group == group {
			return true
		}
	}
	return false
}

// apart reports whether all ballots that are not of group agree, and none of
// group agrees with them.
func apart(ballots []Ballot, group string) bool {
	var others treatment
	for i := range ballots {
		b := &ballots[i]
		if !b.Eligible || b.Group == group {
			continue
		}
		if k := b.treatment(); others == 0 {
			others = k
		} else if k != others {
			return false
		}
	}
	for i := range ballots {
		if b := &ballots[i]; b.Eligible && b.Group == group && b.treatment() == others {
			return false
		}
	}
	return others != 0
}
