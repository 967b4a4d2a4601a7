package monitor

import (
	"net/netip"
	"time"
)

// Observation is what one vantage saw in one probe of one relay. It is never
// changed after it was made.
type Observation struct {
	Relay   RelayURL
	Vantage string
	// Start is when the first stage started (vantage's clock); At when the
	// probe ended. A skipped probe has Start = At. Records and order use At.
	Start, At time.Time

	Outcome Outcome
	Stage   Stage // where it ended; StageNone when skipped
	Cause   Cause
	// Evidence is one sentence for a person, valid UTF-8, without secrets.
	Evidence string
	// NoEOSE notes an ok read that ended without EOSE.
	NoEOSE bool

	// Times holds how long each stage took; 0 = not reached.
	Times [NumStages]time.Duration
	// RTTOpen = tcp + tls + upgrade, RTTRead = REQ to first reply, RTTWrite =
	// EVENT to OK: whole milliseconds ≥ 1 ms, 0 = not measured.
	RTTOpen, RTTRead, RTTWrite time.Duration
	HTTPStatus                 int            // of the upgrade, 0 = none seen
	Address                    netip.AddrPort // the address used
	Lag                        time.Duration  // how late the probe started after it was due
	RetryAfter                 time.Duration  // from a 429, ≤ 1 h
	ServerDate                 time.Time      // Date header of the upgrade response, zero = none
	AuthSeen                   bool           // an AUTH challenge arrived

	TLS  *TLSFacts // nil when there was no handshake
	Info *Info     // nil when NIP-11 was not asked for in this probe

	DNS          *DNSFacts     // nil when the families were not tried apart
	Capabilities *Capabilities // nil when they were not tested
	Write        *WriteFacts   // nil when no event was sent
}

// TLSFacts is what the handshake told, of a failed chain too.
type TLSFacts struct {
	Version  string    `json:"version"` // "1.3"
	Issuer   string    `json:"issuer"`
	Names    []string  `json:"names"`
	NotAfter time.Time `json:"not_after"`
}

// Info is a relay's NIP-11 document, read field by field: a field of the wrong
// shape is lost alone. Strings are valid UTF-8.
type Info struct {
	// Problem says why there is no document: "" = there is one; "oversized",
	// "http_404" and other causes, "not_json", "timeout".
	Problem string `json:"problem,omitempty"`
	// Raw is the document as the relay sent it, a valid UTF-8 JSON object of
	// at most 64 KB, compacted; nil when Problem is set.
	Raw []byte `json:"-"`

	Name             string   `json:"name,omitempty"`
	Description      string   `json:"description,omitempty"`
	Pubkey           string   `json:"pubkey,omitempty"` // 64 hex digits or ""
	Contact          string   `json:"contact,omitempty"`
	Software         string   `json:"software,omitempty"`
	Version          string   `json:"version,omitempty"`
	NIPs             []int    `json:"supported_nips,omitempty"` // ascending, distinct
	AuthRequired     *bool    `json:"auth_required,omitempty"`  // nil = not said
	PaymentRequired  *bool    `json:"payment_required,omitempty"`
	RestrictedWrites *bool    `json:"restricted_writes,omitempty"`
	MinPow           *int     `json:"min_pow_difficulty,omitempty"`
	Countries        []string `json:"relay_countries,omitempty"`
	Languages        []string `json:"language_tags,omitempty"`
	Tags             []string `json:"tags,omitempty"`
}

// Task is one relay that a vantage should watch.
type Task struct {
	Relay RelayURL
	// Candidate: found, not yet seen alive anywhere; follows the candidates'
	// row of the cadence table.
	Candidate bool
	// PausedUntil: what is due before is skipped (paused); zero = not paused.
	PausedUntil time.Time
}

// Tasks is what a vantage should watch now.
type Tasks struct {
	Version uint64 // changes with Relays
	// Relays is the whole list, nil when the caller already knows Version.
	Relays []Task
	// LastSeq is the sequence of the newest batch that the core has stored
	// from this vantage; the next one is LastSeq+1.
	LastSeq uint64
}

// TaskChanges is what a vantage on another machine is told: its tasks, or what
// changed of them, and the rules that it schedules by.
type TaskChanges struct {
	Version uint64
	// Base is the version that Set and Removed change; 0 = Set is the whole list.
	Base    uint64
	Set     []Task
	Removed []RelayURL
	LastSeq uint64 // as in Tasks

	Cadence  Cadence
	Liveness Liveness
}

// Batch is what a vantage hands to the core, every 5 s or 1 000 observations,
// an empty one too: it carries the vantage's health.
type Batch struct {
	Vantage      string
	Seq          uint64 // ascending per vantage; stored once
	SentAt       time.Time
	Health       Health
	Recoveries   []Recovery // since the previous batch, in order
	Observations []Observation
}

// Answer is the core's reply to a batch.
type Answer struct {
	Expedite []RelayURL // probe these now, within 60 s
	// Due names when the core's record wants relays looked at, where that may be
	// earlier than the vantage plans by its own.
	Due map[RelayURL]time.Time
}

// Health is what a vantage says about itself.
type Health struct {
	// Impairments is empty when all is well.
	Impairments []Impairment
	// ImpairedSince is when the oldest present impairment began.
	ImpairedSince time.Time
	Lag           time.Duration // dispatch lag, p95 of the last minute
	CanarySuccess time.Time     // newest success of a canary, zero = none
	InFlight      int
	Watched       int // relays on its schedule
	// Networks are those that the vantage has a way into; nil = those of its
	// enrolment. Down are those of them whose proxy does not answer now: it has
	// no vote on their relays meanwhile.
	Networks, Down []Network
}

// Impairment is a reason why a vantage cannot be believed now.
type Impairment string

// The impairments (corroboration.md, Is it me?). The first four end in a
// Recovery (S26); the others only make the vantage ineligible meanwhile.
const (
	ImpairedNetwork     Impairment = "network"     // every canary fails
	ImpairedSuspended   Impairment = "suspended"   // the machine slept
	ImpairedClock       Impairment = "clock"       // the wall clock jumped
	ImpairedSpike       Impairment = "spike"       // too many failures at once over too many networks
	ImpairedLag         Impairment = "lag"         // dispatch lag > 1 s
	ImpairedDescriptors Impairment = "descriptors" // file descriptors exhausted
	ImpairedRoots       Impairment = "ca_roots"    // no CA roots
	// ImpairedUnclear is the core's own judgement: > 25 % of the vantage's
	// last pass told nothing (corroboration.md, Brakes).
	ImpairedUnclear Impairment = "unclear"
)

// Recovery says that an impairment of the first four kinds is over: the core
// applies S26 to the vantage's records, clearing streaks begun after Since.
type Recovery struct {
	Impairment Impairment
	Since, At  time.Time
}
