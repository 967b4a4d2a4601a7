package monitor

import (
	"strconv"
	"time"
)

// why is which rule made the verdict what it is, for the reason in words.
type why uint8

const (
	whyVotes      why = iota // the votes carry the state
	whyNobody                // 1
	whyReturn                // 2: not yet enough for a return
	whyNoMajority            // 4
	whyAlone                 // 5
	whyUnseen                // 7
	whyStart                 // start hold
	whyFlapping              // hourly changes only
)

// reason says in words why v is as it is. An unchanged text is prev itself, so
// that a quiet relay costs no allocation.
func (c Corroboration) reason(prev string, w why, v *Verdict, t tally, ballots []Ballot, odd string) string {
	var room [256]byte
	r := sentence(room[:0])
	r = r.add(v.State.String(), ": ")
	switch w {
	case whyVotes:
		r = r.carried(v, t, ballots)
	case whyNobody:
		if v.Since.IsZero() {
			r = r.add("no vantage has measured it yet")
		} else {
			r = r.add("no vantage can vote on it now, so the last verdict stands")
		}
	case whyReturn:
		r = r.groups(t.up, t.eligible, "see it up again", "sees it up again").vantagesUp(ballots)
		if t.contested() {
			r = r.add("; two are needed while most see it down")
		} else {
			r = r.add("; a second group or a second look is needed")
		}
	case whyNoMajority:
		r = r.standing(t, ballots).add("; that is no majority, so the last verdict stands")
	case whyAlone:
		r = r.standing(t, ballots).add("; no other group can vote on it, so it does not leave yet")
	case whyUnseen:
		r = r.add("no vantage had a success for ").duration(c.LiveMaxAge).add(" of watching").cause(ballots, VoteDown)
	case whyStart:
		r = r.standing(t, ballots).add("; nothing leaves so soon after a start")
	case whyFlapping:
		r = r.standing(t, ballots).add("; it flaps, so the verdict changes at most hourly")
	}
	if v.Marks.Has(MarkSingledOut) {
		r = r.otherwise(ballots, odd)
	}
	if string(r) == prev {
		return prev
	}
	return string(r)
}

// carried tells the votes that carry the state.
func (r sentence) carried(v *Verdict, t tally, ballots []Ballot) sentence {
	switch {
	case v.State == StateOnline:
		r = r.groups(t.up, t.eligible, "see it up", "sees it up")
		if v.Marks.Has(MarkPartial) {
			r = r.vantagesUp(ballots)
		}
		if n := t.against(); n > 0 {
			r = r.add(", ").groups(n, t.eligible, "see it down", "sees it down")
		}
		return r
	case v.State == StateDead && t.majority(t.dead):
		return r.groups(t.dead, t.eligible, "see it dead", "sees it dead").cause(ballots, VoteDead)
	}
	return r.groups(t.against(), t.eligible, "see it down", "sees it down").cause(ballots, VoteDown)
}

// sentence is a text being put together. Its methods work as append does, so
// that the text stays on the caller's stack.
type sentence []byte

func (r sentence) add(words ...string) sentence {
	for _, w := range words {
		r = append(r, w...)
	}
	return r
}

// groups adds "3 of 4 groups see it down".
func (r sentence) groups(n, of int, many, one string) sentence {
	r = strconv.AppendInt(r, int64(n), 10)
	r = r.add(" of ")
	r = strconv.AppendInt(r, int64(of), 10)
	verb := many
	if n == 1 {
		verb = one
	}
	if of == 1 {
		return r.add(" group ", verb)
	}
	return r.add(" groups ", verb)
}

// standing tells the votes where they do not carry the state.
func (r sentence) standing(t tally, ballots []Ballot) sentence {
	switch {
	case t.up > 0:
		return r.groups(t.up, t.eligible, "see it up", "sees it up")
	case t.against() > 0:
		return r.groups(t.against(), t.eligible, "see it down", "sees it down").cause(ballots, VoteDown)
	case t.restricted > 0:
		return r.groups(t.restricted, t.eligible, "are not let in", "is not let in").cause(ballots, VoteRestricted)
	case t.suspect > 0:
		return r.groups(t.suspect, t.eligible, "suspect it", "suspects it").cause(ballots, VoteSuspect)
	}
	return r.groups(t.unconfirmed, t.eligible, "have yet to confirm it", "has yet to confirm it")
}

// cause adds " (timeout at tcp)" of the ballot that speaks loudest for vote.
func (r sentence) cause(ballots []Ballot, vote Vote) sentence {
	b := loudest(ballots, vote)
	if b == nil || b.Cause == CauseNone {
		return r
	}
	r = r.add(" (", b.Cause.String())
	if b.Stage != StageNone {
		r = r.add(" at ", b.Stage.String())
	}
	return r.add(")")
}

// vantagesUp adds " (name, name)" of those that see the relay up.
func (r sentence) vantagesUp(ballots []Ballot) sentence {
	sep := " ("
	for i := range ballots {
		if b := &ballots[i]; b.Eligible && b.Vote == VoteUp && !b.Unconfirmed {
			r = r.add(sep, b.Vantage)
			sep = ", "
		}
	}
	return r.add(")")
}

// otherwise adds "; berlin alone sees it otherwise (http_403 at upgrade)" of the
// vantages of group, with what the first of them got.
func (r sentence) otherwise(ballots []Ballot, group string) sentence {
	r = r.add("; ")
	var first *Ballot
	n := 0
	for i := range ballots {
		b := &ballots[i]
		if !b.Eligible || b.Group != group {
			continue
		}
		if n > 0 {
			r = r.add(", ")
		} else {
			first = b
		}
		r = r.add(b.Vantage)
		n++
	}
	verb := " alone sees it otherwise ("
	if n > 1 {
		verb = " alone see it otherwise ("
	}
	r = r.add(verb)
	if first.Cause == CauseNone {
		return r.add(first.Outcome.String(), ")")
	}
	r = r.add(first.Cause.String())
	if first.Stage != StageNone {
		r = r.add(" at ", first.Stage.String())
	}
	return r.add(")")
}

// duration adds "4 h" or, where it is no whole number of hours, Go's form.
func (r sentence) duration(d time.Duration) sentence {
	if d >= time.Hour && d%time.Hour == 0 {
		return sentence(strconv.AppendInt(r, int64(d/time.Hour), 10)).add(" h")
	}
	return r.add(d.String())
}
