package monitor

import "time"

// FoundRelay is a relay that other people's lists name.
type FoundRelay struct {
	URL     RelayURL
	Kinds   []int // of the events that name it, ascending
	Authors int   // distinct ones of them
}

// DiscoverySource is what one source gave in a sweep.
type DiscoverySource struct {
	URL    RelayURL
	Events int  // that were believed
	Pages  int  // that were read
	Whole  bool // it told all that it has
	// Problem says in one sentence why it did not; "" = it did.
	Problem string
	// RestUntil: it asked us not to come back before; zero = it did not.
	RestUntil time.Time
}

// Sweep is what one sweep over all sources came to.
type Sweep struct {
	Start, At time.Time // when it began and ended
	// Found holds every relay that the newest list of some author names, by URL.
	Found []FoundRelay
	// Whole: what Found leaves out is named nowhere any longer, because every
	// source was read to its end. Nothing is dropped after any other sweep.
	Whole   bool
	Sources []DiscoverySource
	// Authors is how many distinct authors' lists stand behind Found.
	Authors int
	// Rejected counts the URLs that were no relay's, by the reason of
	// relay-url.md; each text once per author.
	Rejected map[string]int
	// Ignored counts the events that were not believed: "signature", "too_long"
	// (over 100 relays), "too_large" (over 64 KB), "not_asked" (a kind, time or
	// subscription that was not asked for), "older" (an author's list that a
	// newer one replaces), "future" (over 15 min ahead), "expired" (NIP-40),
	// "own" (signed by our key), "malformed", "authors" and "room" (there is none
	// for another author, or for another list or relay: Whole is false then).
	Ignored map[string]int
	// Refusals counts the refusals of sources by their prefix (S60), "none" for
	// texts without one, "other" for prefixes that are not in S61.
	Refusals map[string]int
}

// Named is where relays were named, and which of them have no room, as it is
// stored after a sweep.
type Named struct {
	At     time.Time // when the sweep ended
	Relays []NamedRelay
	// Before: relays that no sweep has named since are forgotten, watched or not;
	// zero = none are.
	Before time.Time
}

// NamedRelay is what is kept of a FoundRelay.
type NamedRelay struct {
	FoundRelay
	Waiting bool // it is to be watched, and has no room
	// FirstSeen is when the first sweep named it; the store fills it in.
	FirstSeen time.Time
}

// DiscoveryStatus is what discovery has come to so far.
type DiscoveryStatus struct {
	Sweep *Sweep // newest one, without Found; nil = none yet
	// Found relays of the newest sweep; Watched of them are monitored or
	// candidates; Waiting have no room under the caps.
	Found, Watched, Waiting int
	// Held says in one sentence why the set did not change as the sweep asked
	// (relay-url.md, Many URLs, one relay); "" = it did.
	Held string
}
