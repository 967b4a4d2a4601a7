package monitor

import "time"

// RelayView is all that the core can tell of one relay now.
type RelayView struct {
	WatchedRelay
	Monitored bool // false: the rest is empty but URL, and of an excluded relay Source, FirstSeen and Verdict
	// Eligible: a client may try it now (unknown, online, or a dead or offline
	// one whose cooldown is over at some vantage).
	Eligible  bool
	RTTOpenMS int // median of the vantages that are up, 0 = not measured
	RTTReadMS int
	Ballots   []Ballot
	TLS       *TLSFacts
	Report    *SignedEvent
	// Maintenance holds the windows that are not over yet, by From.
	Maintenance []Maintenance
}

// Status is this monitor's own state, for /v1/status and metrics.
type Status struct {
	Started    time.Time
	Leader     bool
	Generation uint64
	Fallback   Fallback
	// States counts the watched relays by verdict, candidates apart.
	States     map[State]int
	Candidates int
	Held       int // online relays whose departure is held back
	Engaged    bool
	Vantages   []Vantage
	StoreError string // "" = the store answers
	// Warnings are sentences for the operator about this machine: a full disk,
	// too few file descriptors, no CA roots.
	Warnings []string
	// WarmUp counts the first full pass: Measured of Due; Done when it counts.
	WarmUp struct {
		Measured, Due int
		Done          bool
	}
	ClockSkew     time.Duration // of our clock against the relays' Date, 0 = fine or unknown
	Observations  map[Outcome]uint64
	Transitions   map[State]uint64 // by new state
	Ingested      uint64           // batches
	Refused       uint64           // batches
	Unwatched     uint64           // observations dropped because their relay is not watched
	ReportsSigned uint64
}
