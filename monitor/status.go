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
	Facts     Facts
	Report    *SignedEvent
	// Maintenance holds the windows that are not over yet, by From.
	Maintenance []Maintenance
	Place       Place
	Provenance  *Provenance // nil = discovery never found it
	// Aliases are other URLs that are this very relay, by evidence; AliasOf is
	// the one of all of them that stands for the relay, "" = this one.
	Aliases []RelayURL
	AliasOf RelayURL
	// Twin is the wss relay that stands for this ws one, which is therefore not
	// probed; "" = there is none.
	Twin RelayURL
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
	Discovery     *DiscoveryStatus // nil = discovery is off
	// Aliases counts the watched URLs that are another one's relay, Twins the ws
	// relays that a wss one stands for, Expiring the online relays whose TLS
	// certificate is about to expire.
	Aliases, Twins, Expiring int
	GeoAttribution           string // what the operator's databases ask to be said
}
