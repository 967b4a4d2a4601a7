package monitor

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// CommandKind is what an operator asks of the core (api.md, Operators).
type CommandKind string

// The commands. All but release want relays.
const (
	CommandAdd         CommandKind = "add"         // watch them from now on
	CommandRemove      CommandKind = "remove"      // no longer watch them, until somebody names them again
	CommandExclude     CommandKind = "exclude"     // never probe them, whoever names them
	CommandInclude     CommandKind = "include"     // end an exclusion
	CommandPause       CommandKind = "pause"       // do not probe them before Until
	CommandResume      CommandKind = "resume"      // end a pause
	CommandCheck       CommandKind = "check"       // probe them now, from every vantage
	CommandReset       CommandKind = "reset"       // forget their records: unknown, and eligible
	CommandMaintenance CommandKind = "maintenance" // declare From to Until as maintenance
	CommandRelease     CommandKind = "release"     // let held departures go; without relays all of them
	CommandSubmit      CommandKind = "submit"      // a stranger's: candidates
	CommandOptOut      CommandKind = "opt_out"     // its owner's, by the pubkey of its NIP-11: never probe it
)

// Command is one request of an operator or a relay's owner, or a stranger's
// submission.
type Command struct {
	Kind CommandKind
	// Actor is who asks: an operator's or a relay owner's pubkey in hex, "token"
	// for the holder of the admin token, "" for a stranger.
	Actor  string
	Relays []RelayURL
	// From and Until bound a maintenance window; Until ends a pause.
	From, Until time.Time
	Note        string // why, for the audit; valid UTF-8, one line
}

// The bounds of what an operator may ask for.
const (
	MaxPause         = 30 * 24 * time.Hour  // of one pause, from now
	MaxMaintenance   = 90 * 24 * time.Hour  // length of one window
	MaintenanceAhead = 365 * 24 * time.Hour // latest end of a window, from now
	MaxWindows       = 100                  // windows of one relay that are not over
	MaxNote          = 500                  // bytes
)

// Validate reports what is wrong with a command at now, as ErrInvalid with a
// sentence that says how to mend it. What it comes to for each relay is the
// core's to say.
func (c Command) Validate(now time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w command %s: %s", ErrInvalid, c.Kind, fmt.Sprintf(format, args...))
	}
	switch c.Kind {
	case CommandAdd, CommandRemove, CommandExclude, CommandInclude, CommandResume, CommandCheck, CommandReset, CommandSubmit, CommandRelease:
	case CommandOptOut:
		if b, err := hex.DecodeString(c.Actor); err != nil || len(b) != 32 {
			return bad("the pubkey that signed it must be known")
		}
	case CommandPause:
		switch {
		case !c.Until.After(now):
			return bad("until must lie in the future")
		case c.Until.Sub(now) > MaxPause:
			return bad("until must be at most %d days from now: exclude a relay that is not to be probed at all", days(MaxPause))
		}
	case CommandMaintenance:
		w := c.Window(now)
		switch {
		case !w.From.Before(w.Until):
			return bad("until must be after from")
		case !w.Until.After(now):
			return bad("the window is over already: until must lie in the future")
		case w.Until.Sub(w.From) > MaxMaintenance:
			return bad("a window is at most %d days long", days(MaxMaintenance))
		case w.Until.Sub(now) > MaintenanceAhead:
			return bad("a window ends at most %d days from now", days(MaintenanceAhead))
		}
	default:
		return fmt.Errorf("%w: there is no command %q", ErrInvalid, string(c.Kind))
	}
	switch {
	case len(c.Relays) == 0 && c.Kind != CommandRelease:
		return bad("name at least one relay")
	case len(c.Note) > MaxNote:
		return bad("the note is longer than %d bytes", MaxNote)
	case !utf8.ValidString(c.Note) || strings.ContainsFunc(c.Note, unicode.IsControl):
		return bad("the note must be one line of UTF-8 text")
	}
	return nil
}

func days(d time.Duration) int { return int(d / (24 * time.Hour)) }

// Window is the maintenance that c declares; it begins now where c names no
// begin.
func (c Command) Window(now time.Time) Maintenance {
	m := Maintenance{From: c.From, Until: c.Until, Note: c.Note, Actor: c.Actor}
	if m.From.IsZero() {
		m.From = now
	}
	return m
}

// CommandResult is what a command came to for one relay.
type CommandResult struct {
	Relay RelayURL
	Done  bool   // false: there was nothing to do, or it was refused
	Why   string // in words, when not done
}

// AuditEntry is one command that changed something, kept for ever.
type AuditEntry struct {
	At     time.Time
	Actor  string
	Kind   CommandKind
	Relays []RelayURL
	Note   string
}

// Maintenance is a declared window: what a relay does in it is not held
// against it in its uptime (history.md). The verdict is not changed by it.
type Maintenance struct {
	From, Until time.Time // From ≤ t < Until
	Note        string
	Actor       string
}

// RelayQuery selects watched relays, by URL. Every condition must hold; zero
// values ask for nothing.
type RelayQuery struct {
	State     *State
	Marks     Marks // all of them
	Network   Network
	Source    Source
	Candidate *bool
	Paused    *bool
	// Excluded relays are not watched; only true lists them, and them alone.
	Excluded bool
	Contains string   // part of the URL, in lower case
	After    RelayURL // keyset: only URLs above it
	Limit    int      // ≤ 0 = none
}

// RelayEntry is one relay of the list of all that are watched.
type RelayEntry struct {
	WatchedRelay
	Eligible                  bool // a client may try it now
	RTTOpenMS                 int  // 0 = not measured
	VantagesUp, VantagesTotal int
}
