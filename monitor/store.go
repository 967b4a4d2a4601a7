package monitor

import "time"

// Source is where a watched relay comes from.
type Source string

// The sources. Configured ones (relays, relay_files) are always monitored.
const (
	SourceConfig    Source = "config"    // the relays key
	SourceFile      Source = "file"      // relay_files
	SourceBuiltin   Source = "builtin"   // the built-in list
	SourceDiscovery Source = "discovery" // found on other relays
	SourceOperator  Source = "operator"  // added through the API or the command line
	SourceSubmitted Source = "submitted" // a stranger's, through the API
	SourceNone      Source = "none"      // no longer watched: only its history is kept
)

// Configured reports whether the configuration names the relay: it is watched
// for as long as it stands there.
func (s Source) Configured() bool {
	return s == SourceConfig || s == SourceFile || s == SourceBuiltin
}

// WatchedRelay is a relay that the core watches, with its verdict: one row of
// the relay table.
type WatchedRelay struct {
	URL       RelayURL
	Source    Source
	FirstSeen time.Time
	Candidate bool // found, never yet seen alive
	// Excluded: an operator or its owner wants it never probed. Kept apart from the
	// configuration's exclude, which is read anew at every start.
	Excluded    bool
	PausedUntil time.Time // not probed before; zero = not paused
	Verdict     Verdict
	Info        *Info // latest NIP-11 document, nil = never read
}

// Stored is all that the core needs to go on where it left off.
type Stored struct {
	Relays   []WatchedRelay
	Vantages []Vantage
	// Seen holds the records by vantage name and relay.
	Seen map[string]map[RelayURL]VantageRelay
	// Events are our own latest signed events, one per (kind, pubkey, d),
	// expired ones left out.
	Events []SignedEvent
	// Generation is the highest generation number that was reserved; the next
	// one is above it.
	Generation uint64
	// Served: a first pass was completed, so that the online set is whole.
	Served bool
	// Maintenance holds the windows that are not over yet, by From.
	Maintenance map[RelayURL][]Maintenance
	// Facts holds what is known besides, of the relays of which there is
	// something; what belongs to the process that stored it is left out.
	Facts map[RelayURL]Facts
	// Provenance holds where those of Relays were named that discovery found.
	Provenance map[RelayURL]Provenance
	// Found counts the relays that the newest stored sweep named, Waiting those of
	// them that had no room.
	Found, Waiting int
}

// Ingest is one batch and what stepping it came to, stored in one transaction.
type Ingest struct {
	Batch Batch
	Skew  time.Duration // the vantage's clock − ours
	// Records holds the new state of every relay that the batch touched.
	Records map[RelayURL]VantageRelay
	// Infos are NIP-11 documents that differ from the last one stored.
	Infos map[RelayURL]*Info
	// Facts are what is known besides, each where it differs from the last one
	// stored or was not confirmed in the store for a day; nil ones are left as
	// they are.
	Facts map[RelayURL]Facts
}

// Decision is what one round of decisions came to, stored in one transaction
// on the leader's connection.
type Decision struct {
	At          time.Time
	Generation  uint64         // numbers up to it are reserved
	Relays      []WatchedRelay // those whose verdict, candidacy or marks changed
	Transitions []Transition
	Events      []SignedEvent // newly signed
	Withdrawn   []RelayURL    // relays whose report is taken back
	Served      bool          // the first pass is complete; stored for ever

	// What an operator's command adds. Relays hold the new settings (source,
	// exclusion, pause) of those that it touched.
	Forgotten   []RelayURL // their records at every vantage are deleted
	Maintenance map[RelayURL]Maintenance
	Audit       *AuditEntry // nil = nothing to keep

	// Named is what a sweep adds: one part of what it found; nil = nothing.
	Named *Named
}

// TransitionQuery selects transitions, newest first.
type TransitionQuery struct {
	Relay    RelayURL  // "" = all
	From, To time.Time // From ≤ at < To
	State    *State    // only transitions to it; nil = all
	Before   int64     // only ids below it (keyset); 0 = from the newest
	Limit    int
}

// ObservationQuery selects raw observations of one relay, oldest first.
type ObservationQuery struct {
	Relay    RelayURL
	From, To time.Time // From ≤ at < To
	Vantage  string    // "" = all
	Limit    int
}
