package wire

import (
	"fmt"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Version is the version of the format that is spoken here: what is encoded is of
// it. What is decoded may be of one down to oldest: the core is brought to a new
// version first, and its vantages follow one by one.
//
//	1  as it was released first
//	2  tests of capabilities, writing and address families, networks in the health
const (
	Version = 2
	oldest  = 1
)

// Limits of one batch.
const (
	MaxBody         = 8 << 20  // bytes of a body as sent (gzip)
	MaxPlain        = 64 << 20 // bytes after decompression
	MaxObservations = 5000     // a vantage sends 1 000

	maxLine       = 1 << 20 // bytes of a line
	maxRecoveries = 1000
	maxEvidence   = 1 << 10 // bytes
	maxInfoRaw    = 64 << 10
	maxText       = 256 // bytes of a short text: a name, an issuer
	maxNames      = 200 // of a certificate
	maxAddresses  = 16  // of a name
	maxReason     = 200 // bytes
	maxSample     = 64  // hex digits
	// maxDuration bounds what was measured; none of it lasts longer.
	maxDuration = time.Hour
)

// Years that our own clocks may show: another is an unset clock, or nonsense.
const (
	firstYear = 2020
	lastYear  = 2200
)

// checkVersion says which versions are understood.
func checkVersion(v int) error {
	if v < oldest || v > Version {
		return invalid("field version: this is version %d, and %d is spoken here; bring vantage and core to the same version", v, Version)
	}
	return nil
}

// invalid is an error of what was sent: monitor.ErrInvalid and one sentence.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{monitor.ErrInvalid}, args...)...)
}

// saneTime reports whether a clock that is set may have shown t.
func saneTime(t time.Time) bool {
	y := t.UTC().Year()
	return y >= firstYear && y <= lastYear
}

// writableTime reports whether RFC 3339 can say t. It is asked of times that
// relays claim, which may be any.
func writableTime(t time.Time) bool {
	y := t.UTC().Year()
	return y >= 0 && y <= 9999
}
