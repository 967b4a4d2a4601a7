package monitor

import (
	"net/netip"
	"time"
)

// Vantage is a vantage point as the core knows it.
type Vantage struct {
	Name     string
	Group    string    // same provider or network; defaults to Name
	Pubkey   string    // hex; "" for one of this process
	Networks []Network // that it can reach
	Enrolled time.Time
	LastSeen time.Time // newest batch
	LastSeq  uint64    // high-water mark of its batches
	Skew     time.Duration
	Health   Health
	Revoked  bool

	// What the core judges, now and since it started; never stored.
	Eligible bool // its votes count now
	// Disagreement is the share of its Judged votes of the last hour that stood
	// against the verdict.
	Disagreement float64
	Judged       int // votes, by relay and sweep
}

// Remote reports whether the vantage is on another machine.
func (v *Vantage) Remote() bool { return v.Pubkey != "" }

// Reaches reports whether the vantage can reach network n.
func (v *Vantage) Reaches(n Network) bool {
	for _, m := range v.Networks {
		if m == n {
			return true
		}
	}
	return false
}

// Lost reports whether the vantage's way into network n is down now: it says
// nothing about the relays there until it is back.
func (v *Vantage) Lost(n Network) bool {
	for _, m := range v.Health.Down {
		if m == n {
			return true
		}
	}
	return false
}

// VantageRelay is all that the core keeps of one relay as seen from one
// vantage: the record and the last measured outcome.
type VantageRelay struct {
	Record Record
	// The last measured outcome since the core started (OutcomeNone = none).
	Outcome  Outcome
	Stage    Stage
	Cause    Cause
	Evidence string
	At       time.Time // when that probe ended
	// NextDue is when the probe that follows the last measured one is due.
	NextDue time.Time
	// Newest is the newest observation of any outcome, for ordering.
	Newest           time.Time
	RTTOpen, RTTRead time.Duration // of the newest success
	RTTWrite         time.Duration
	// Expedited is when an expedited probe was last asked for; zero after its
	// observation came.
	Expedited time.Time
	// NoRoute: the newest observation was unclear for want of a route to the
	// relay's address family (an IPv6-only relay, a vantage without IPv6).
	NoRoute bool
	// Address is where the relay answered last; never stored.
	Address netip.Addr
}
