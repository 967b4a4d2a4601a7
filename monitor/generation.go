package monitor

import "time"

// Generation is one immutable snapshot of everything that readers are given:
// the API and the relay serve from the same one, so they always agree
// (reports.md 12, 13). Nothing in it may be changed after it was published.
type Generation struct {
	Number      uint64
	GeneratedAt time.Time
	// NewestCheck and OldestCheck are the newest and oldest last success of
	// the online set; zero when it is empty.
	NewestCheck, OldestCheck time.Time
	// Fallback is why the list must not be used; FallbackNone = usable.
	Fallback  Fallback
	Held      int // departures held back by the brake
	Monitored int // relays with a verdict or watched towards one, candidates apart
	Vantages  int // enrolled

	Online []OnlineRelay // the online set, by URL; empty while warming up
	Down   []DownRelay   // monitored and offline or dead, by URL

	// Snapshot is the signed relay set (kind 30002); nil unless the list is
	// usable.
	Snapshot *SignedEvent
	// Service holds the monitor's own 0, 10002 and 10166.
	Service []*SignedEvent
}

// Usable reports whether a client may filter by this generation.
func (g *Generation) Usable() bool { return g.Fallback == FallbackNone }

// Fallback is why a list is not usable (api.md, Lists).
type Fallback string

// The reasons, gravest first; the first that holds is named.
const (
	FallbackNone      Fallback = ""
	FallbackWarmingUp Fallback = "warming_up" // no full pass yet: nothing is served
	FallbackClock     Fallback = "clock"      // our clock is wrong
	FallbackStale     Fallback = "stale"      // newest check > live.max_age old, or < live.min_fresh of it fresh
	FallbackTooFew    Fallback = "too_few"    // < live.min_count relays
)

// OnlineRelay is one relay of the online set.
type OnlineRelay struct {
	URL                  RelayURL
	Since                time.Time // of the verdict
	LastSuccess          time.Time
	RTTOpenMS, RTTReadMS int // medians of the vantages that are up; 0 = not measured
	Network              Network
	VantagesUp           int
	VantagesTotal        int // enrolled and able to reach it
	Marks                Marks
	// Auth, Payment, Writes are true where NIP-11 or a probe says that reading
	// or writing needs it (Writes: restricted to some).
	Auth, Payment, Writes bool
	NIPs                  []int
	Country               string // ISO 3166-1 alpha-2, "" = unknown
	// Latitude and Longitude are known where Located is set.
	Latitude, Longitude float64
	Located             bool
	Report              *SignedEvent
}

// DownRelay is one monitored relay that is offline or dead.
type DownRelay struct {
	URL   RelayURL
	State State
	Since time.Time
	Cause Cause
}

// SignedEvent is a Nostr event that we signed, encoded once.
type SignedEvent struct {
	ID        string // hex
	Kind      int
	Pubkey    string // hex
	D         string // the d tag's value, "" = none
	CreatedAt time.Time
	Expires   time.Time // NIP-40, zero = never
	JSON      []byte    // the event object, as it goes on the wire
}

// ReportSource is all that a kind 30166 says about one online relay.
type ReportSource struct {
	URL                        RelayURL
	Network                    Network
	RTTOpen, RTTRead, RTTWrite int // ms, 0 = not measured
	// OnlineSince is when the verdict became online: no report is dated before
	// it, and a change means a return, which is reported at once.
	OnlineSince                   time.Time
	AuthSeen                      bool  // a probe was refused with auth-required, or challenged and refused
	PaymentSeen, RestrictedWrites bool  // what a probe saw wins over NIP-11
	Info                          *Info // nil = never read
	DisprovedNIPs                 []int
	Country, Geohash              string
}
