package monitor

import (
	"fmt"
	"strings"
	"time"
)

// State is a relay's liveness, in one observer's record or in the verdict.
type State uint8

// The states; the zero value is unknown.
const (
	StateUnknown State = iota
	StateOnline
	StateOffline
	StateDead
)

var stateNames = names[State]{"unknown", "online", "offline", "dead"}

func (s State) String() string               { return stateNames.text(s) }
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads one of the names; anything else is ErrInvalid.
func (s *State) UnmarshalText(b []byte) error { return stateNames.parse(s, "state", b) }

// Vote is what one vantage, or one group of them, says about one relay now
// (corroboration.md, Votes).
type Vote uint8

// The votes; the zero value is none.
const (
	VoteNone Vote = iota
	VoteUp
	VoteRestricted
	VoteDead
	VoteDown
	VoteSuspect
)

var voteNames = names[Vote]{"none", "up", "restricted", "dead", "down", "suspect"}

func (v Vote) String() string               { return voteNames.text(v) }
func (v Vote) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads one of the names; anything else is ErrInvalid.
func (v *Vote) UnmarshalText(b []byte) error { return voteNames.parse(v, "vote", b) }

// Against reports whether v speaks against the relay.
func (v Vote) Against() bool { return v == VoteDead || v == VoteDown || v == VoteSuspect }

// Marks is the set of remarks that a verdict carries.
type Marks uint8

// The marks (corroboration.md, Verdict).
const (
	MarkPartial Marks = 1 << iota
	MarkRestricted
	MarkFlapping
	MarkStale
	MarkDegraded
	MarkUncorroborated
	MarkHeld
	// MarkSingledOut: the relay treats one vantage otherwise than all the others.
	MarkSingledOut
)

var markNames = [...]string{"partial", "restricted", "flapping", "stale", "degraded", "uncorroborated", "held", "singled_out"}

// Has reports whether all of x are set in m.
func (m Marks) Has(x Marks) bool { return m&x == x }

// Strings returns the words of the marks that are set; never nil.
func (m Marks) Strings() []string {
	out := []string{}
	for i, n := range markNames {
		if m&(1<<i) != 0 {
			out = append(out, n)
		}
	}
	return out
}

func (m Marks) String() string { return strings.Join(m.Strings(), ",") }

// ParseMarks reads the words that Strings wrote; an unknown one is ErrInvalid.
func ParseMarks(words []string) (Marks, error) {
	var m Marks
next:
	for _, w := range words {
		for i, n := range markNames {
			if n == w {
				m |= 1 << i
				continue next
			}
		}
		return m, fmt.Errorf("%w mark %q", ErrInvalid, w)
	}
	return m, nil
}

// Quorum counts groups: For of Of eligible ones carry the verdict.
type Quorum struct{ For, Of int }

func (q Quorum) String() string { return fmt.Sprintf("%d/%d", q.For, q.Of) }

// RulesVersion is stored with every transition: raise it when a change of the
// rules may decide the same votes differently.
const RulesVersion = 1

// Ballot is one vantage's vote on one relay, with what stands behind it.
type Ballot struct {
	Vantage, Group string
	Vote           Vote
	// Eligible: the vantage may vote on this relay now (corroboration.md, Who
	// may vote). Able: it is enrolled and can reach the relay's network.
	Eligible, Able bool
	// Unconfirmed: an up that is older than the suspicion; it counts among
	// the eligible, for neither side.
	Unconfirmed  bool
	Outcome      Outcome // last measured one
	Stage        Stage
	Cause        Cause
	Evidence     string
	At           time.Time // of the last measured one
	FailureCount int
	LastFailure  time.Time // last counted one
	LastSuccess  time.Time
	OnlineSince  time.Time // first success of the present run of successes
	BackoffUntil time.Time
	RTTOpen      time.Duration
	RTTRead      time.Duration
}

// Verdict is what Pharos says about a relay.
type Verdict struct {
	State  State
	Since  time.Time // when State was reached; zero = never decided
	Marks  Marks
	Quorum Quorum
	// Reason says in words why the verdict is as it is.
	Reason string
	// Cause and Evidence are of the vantage that speaks loudest for the state.
	Cause    Cause
	Evidence string
	// LastSuccess is the newest success from any vantage.
	LastSuccess time.Time

	// MajorityDownSince is since when a strict majority says down while the
	// verdict is online; zero = it does not (mark partial).
	MajorityDownSince time.Time
	// Changes holds when the latest transitions were, oldest first, at most
	// FlappingTransitions of them (mark flapping).
	Changes []time.Time
	// HeldSince is when the brake first held this departure; zero = not held.
	HeldSince time.Time
}

// Transition is one change of a verdict, kept for ever.
type Transition struct {
	ID       int64
	Relay    RelayURL
	From, To State
	At       time.Time
	Quorum   Quorum
	Cause    Cause
	Evidence string
	Ballots  []Ballot
	Rules    int
}
