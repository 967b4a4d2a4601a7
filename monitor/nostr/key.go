package nostr

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/nbd-wtf/go-nostr/nip19"
)

// masked is all that a Key ever prints of itself.
const masked = "[secret key]"

// ErrBadKey: the text or the file is no usable secret key. The message says
// what to do and never contains any of the key.
var ErrBadKey = errors.New("bad key")

// Key is a secret key ready to sign. The zero value is no key. Copies share the
// parsed secret; a Key is safe for concurrent use.
type Key struct{ p *parsedKey }

type parsedKey struct {
	secret *btcec.PrivateKey
	pubkey string // hex
}

// NewKey makes a key from the system's randomness.
func NewKey() (Key, error) {
	for range 8 { // a draw outside the group's order has probability 2⁻¹²⁸
		var b [32]byte
		if _, err := rand.Read(b[:]); err != nil {
			return Key{}, fmt.Errorf("make a key: %w", err)
		}
		if k, err := fromBytes(b[:]); err == nil {
			return k, nil
		}
	}
	return Key{}, errors.New("make a key: the system's randomness is broken")
}

// ParseKey reads a secret key as nsec (NIP-19) or as 64 hex digits; white space
// around it is ignored. The error is an ErrBadKey.
func ParseKey(text string) (Key, error) { return parseKey(text, nil) }

// parseKey also reads an ncryptsec (NIP-49), for which it asks password.
func parseKey(text string, password Password) (Key, error) {
	text = strings.TrimSpace(text)
	lower := strings.ToLower(text)
	switch {
	case text == "":
		return Key{}, fmt.Errorf("%w: it is empty; expected an nsec, an ncryptsec or 64 hex digits", ErrBadKey)
	case strings.HasPrefix(lower, encryptedPrefix):
		return decryptKey(text, password)
	case strings.HasPrefix(lower, "npub1"):
		return Key{}, fmt.Errorf("%w: it is a public key (npub); the secret one (nsec) is needed", ErrBadKey)
	case strings.HasPrefix(lower, "nsec1"):
		prefix, value, err := nip19.Decode(text)
		secret, ok := value.(string)
		if err != nil || prefix != "nsec" || !ok {
			return Key{}, fmt.Errorf("%w: the nsec is damaged (wrong length or checksum)", ErrBadKey)
		}
		text = secret
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 32 {
		return Key{}, fmt.Errorf("%w: neither an nsec nor 64 hex digits", ErrBadKey)
	}
	return fromBytes(b)
}

func fromBytes(b []byte) (Key, error) {
	var s btcec.ModNScalar
	if overflow := s.SetByteSlice(b); overflow || s.IsZero() {
		return Key{}, fmt.Errorf("%w: the number is zero or not below the order of secp256k1", ErrBadKey)
	}
	secret, public := btcec.PrivKeyFromBytes(b)
	return Key{&parsedKey{secret: secret, pubkey: hex.EncodeToString(schnorr.SerializePubKey(public))}}, nil
}

func (k Key) nsec() (string, error) {
	s, err := nip19.EncodePrivateKey(hex.EncodeToString(k.p.secret.Serialize()))
	if err != nil {
		return "", errors.New("encode the key as nsec failed") // the library's text could show it
	}
	return s, nil
}

// Pubkey is the public key in hex, "" of no key.
func (k Key) Pubkey() string {
	if k.p == nil {
		return ""
	}
	return k.p.pubkey
}

// Npub is the public key as NIP-19 writes it, "" of no key.
func (k Key) Npub() string {
	if k.p == nil {
		return ""
	}
	return Npub(k.p.pubkey)
}

// Sign sets the event's pubkey, id and signature.
func (k Key) Sign(ev *Event) error {
	if k.p == nil {
		return fmt.Errorf("sign kind %d: %w: there is none", ev.Kind, ErrBadKey)
	}
	if ev.Tags == nil {
		ev.Tags = Tags{}
	}
	ev.PubKey = k.p.pubkey
	h := sha256.Sum256(ev.Serialize())
	// FastSign skips verifying what was just signed; publisher.New verifies one
	// event before anything else.
	sig, err := schnorr.Sign(k.p.secret, h[:], schnorr.FastSign())
	if err != nil {
		return fmt.Errorf("sign kind %d: %w", ev.Kind, err)
	}
	ev.ID = hex.EncodeToString(h[:])
	ev.Sig = hex.EncodeToString(sig.Serialize())
	return nil
}

// String, GoString, Format, LogValue, MarshalText and MarshalJSON (by
// MarshalText) all print the same mask.
func (k Key) String() string { return masked }

// GoString masks the key for %#v.
func (k Key) GoString() string { return masked }

// Format masks the key for every verb.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, masked) }

// LogValue masks the key in logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText masks the key in JSON and YAML.
func (k Key) MarshalText() ([]byte, error) { return []byte(masked), nil }
