package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// A vantage's disagreement is counted over the last hour, in slots of a minute.
const (
	disagreementSlots = 60
	disagreementSlot  = time.Minute
)

// disagreement counts how often a vantage's votes stood against the verdict.
// The zero value is ready.
type disagreement struct {
	slots          [disagreementSlots]struct{ votes, against uint32 }
	at             int64 // number of the newest slot
	votes, against int   // of all slots
}

// advance forgets what is older than the window.
func (d *disagreement) advance(now time.Time) {
	n := now.UnixNano() / int64(disagreementSlot)
	switch gap := n - d.at; {
	case gap == 0:
		return
	case gap < 0 || gap >= disagreementSlots:
		*d = disagreement{}
	default:
		for i := d.at + 1; i <= n; i++ {
			s := &d.slots[i%disagreementSlots]
			d.votes -= int(s.votes)
			d.against -= int(s.against)
			s.votes, s.against = 0, 0
		}
	}
	d.at = n
}

// add counts one vote in the newest slot.
func (d *disagreement) add(against bool) {
	s := &d.slots[d.at%disagreementSlots]
	s.votes++
	d.votes++
	if against {
		s.against++
		d.against++
	}
}

// compare counts the eligible votes on a relay with the verdict that they came
// to. Who only suspects, was let in nowhere or is not confirmed takes no side.
func (e *Engine) compare(ballots []monitor.Ballot, state monitor.State) {
	if state == monitor.StateUnknown {
		return
	}
	for i := range ballots {
		b := &ballots[i]
		if !b.Eligible || b.Unconfirmed {
			continue
		}
		switch b.Vote {
		case monitor.VoteUp:
			e.vantages[i].disagreement.add(state != monitor.StateOnline)
		case monitor.VoteDown, monitor.VoteDead:
			e.vantages[i].disagreement.add(state == monitor.StateOnline)
		}
	}
}
