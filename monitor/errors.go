package monitor

import "errors"

// Kinds of error that cross a package border. Wrap them with what was being
// done; the API maps each to one HTTP status in one place.
var (
	// ErrInvalid: the caller's input is wrong; the text says how to mend it.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such thing.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the state does not allow it (another leader, a replayed
	// sequence, a database newer than the program).
	ErrConflict = errors.New("conflict")
	// ErrUnavailable: the store or a peer cannot be reached now; try again.
	ErrUnavailable = errors.New("unavailable")
)
