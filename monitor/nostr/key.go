package nostr

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/nbd-wtf/go-nostr/nip19"
)

// masked is all that a Key ever prints of itself.
const masked = "[secret key]"

// maxKeyFile bounds how much of a key file is read, bytes; an nsec has 63.
const maxKeyFile = 4096

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
func ParseKey(text string) (Key, error) {
	text = strings.TrimSpace(text)
	lower := strings.ToLower(text)
	switch {
	case text == "":
		return Key{}, fmt.Errorf("%w: it is empty; expected an nsec or 64 hex digits", ErrBadKey)
	case strings.HasPrefix(lower, "ncryptsec1"):
		return Key{}, fmt.Errorf("%w: it is encrypted (ncryptsec, NIP-49), which is not supported yet; store it as an nsec or 64 hex digits", ErrBadKey)
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

// LoadKey reads a key file: one nsec or 64 hex digits, a trailing newline is
// fine, readable and writable by its owner only. A missing file is
// fs.ErrNotExist; anything wrong with an existing one is an ErrBadKey that
// names the file.
func LoadKey(file string) (Key, error) {
	// A pipe would keep us until somebody writes, so it is not even opened; and
	// should it be another file by then, opening does not wait.
	st, err := os.Stat(file)
	if err != nil {
		return Key{}, fmt.Errorf("read key file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return Key{}, notRegular(file)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, fmt.Errorf("read key file: %w", err)
	}
	defer func() { _ = f.Close() }()
	if st, err = f.Stat(); err != nil {
		return Key{}, fmt.Errorf("read key file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return Key{}, notRegular(file)
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return Key{}, fmt.Errorf("key file %s: %w: its permissions are %04o, so others can reach it; run: chmod 600 %s", file, ErrBadKey, perm, file)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return Key{}, fmt.Errorf("read key file %s: %w", file, err)
	}
	if len(b) > maxKeyFile {
		return Key{}, fmt.Errorf("key file %s: %w: it is larger than %d bytes; %s", file, ErrBadKey, maxKeyFile, restore)
	}
	k, err := ParseKey(string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))))
	if err != nil {
		return Key{}, fmt.Errorf("key file %s: %w; %s", file, err, restore)
	}
	return k, nil
}

// restore is what to do about a file that holds no key.
const restore = "restore your copy of it, or move it away and let Pharos make a new key, which is a new identity"

func notRegular(file string) error {
	return fmt.Errorf("key file %s: %w: it is not a regular file; move it away, or name another file", file, ErrBadKey)
}

// CreateKey makes a key and writes it as an nsec to a new file of mode 0600,
// flushed to the disk with its directory before it returns. It never replaces
// a file: an existing one is fs.ErrExist.
func CreateKey(file string) (_ Key, err error) {
	k, err := NewKey()
	if err != nil {
		return Key{}, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Key{}, fmt.Errorf("create key file: %w", err)
	}
	defer func() {
		if err != nil { // half a key is worse than none: the next start would refuse it
			_ = f.Close()
			_ = os.Remove(file)
		}
	}()
	nsec, err := k.nsec()
	if err != nil {
		return Key{}, err
	}
	if err := f.Chmod(0o600); err != nil { // an odd umask may have taken the owner's bits
		return Key{}, fmt.Errorf("create key file: %w", err)
	}
	if _, err := f.WriteString(nsec + "\n"); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := f.Close(); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := syncDir(filepath.Dir(file)); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	return k, nil
}

// LoadOrCreateKey loads the key of file, or makes it when there is no such
// file; created tells which.
func LoadOrCreateKey(file string) (k Key, created bool, err error) {
	k, err = LoadKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		k, err = CreateKey(file)
		return k, err == nil, err
	}
	return k, false, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
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
	s, err := nip19.EncodePublicKey(k.p.pubkey)
	if err != nil {
		return ""
	}
	return s
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
