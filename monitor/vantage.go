package monitor

import "time"

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
}

// Reaches reports whether the vantage can reach network n.
func (v *Vantage) Reaches(n Network) bool {
	for _, m := range v.Networks {
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
}
