package monitor

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// InvitationLife is how long an invitation can be taken up (corroboration.md,
// Several machines).
const InvitationLife = 24 * time.Hour

// Invitation lets one machine become the vantage of that name, once. Of its
// token only the hash is kept.
type Invitation struct {
	Name, Group      string
	Token            TokenHash
	Created, Expires time.Time
	Actor            string // who invites, as in Command
}

// TokenHash is the SHA-256 of an invitation's token.
type TokenHash [sha256.Size]byte

// HashToken hashes a token as it is written in the command.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// Enrolment is a machine that takes up an invitation.
type Enrolment struct {
	Token    TokenHash
	Pubkey   string    // hex, of the key that it signs with from now on
	Networks []Network // that it can reach
	At       time.Time
	// Reserved are names that are not given to another machine, whatever was
	// invited before: the core's own vantages.
	Reserved []string
}

// Enrolled is what became of an enrolment: the vantage, and what is stored of
// the relays as it saw them before, when it was invited anew.
type Enrolled struct {
	Vantage Vantage
	Seen    map[RelayURL]VantageRelay
}

// What the audit tells of vantages; the note names them.
const (
	AuditInvite CommandKind = "invite"
	AuditEnrol  CommandKind = "enrol"
	AuditRevoke CommandKind = "revoke"
)

// SequenceError refuses a batch whose sequence is not above those that are
// stored. It is an ErrConflict.
type SequenceError struct {
	Vantage   string
	Seq, Last uint64 // of the batch; of the newest one stored
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("%v: batch %d of vantage %s: the newest stored is %d", ErrConflict, e.Seq, e.Vantage, e.Last)
}

// Unwrap makes it an ErrConflict.
func (e *SequenceError) Unwrap() error { return ErrConflict }

var vantageName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckVantageName reports what is wrong with the name of a vantage or a group.
func CheckVantageName(name string) error {
	if !vantageName.MatchString(name) {
		return errors.New("a name has 1 to 63 small letters, digits, dots, hyphens and underscores, and begins with a letter or digit")
	}
	return nil
}
