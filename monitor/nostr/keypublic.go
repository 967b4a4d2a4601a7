package nostr

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/nbd-wtf/go-nostr/nip19"
)

// ErrBadPubkey: the text is no public key. The message says what to do and
// never contains any of the text, which may be a secret key.
var ErrBadPubkey = errors.New("bad public key")

// ParsePublicKey reads a public key as npub (NIP-19) or as 64 hex digits and
// returns it in hex; white space around it is ignored. The error is an
// ErrBadPubkey.
func ParsePublicKey(text string) (string, error) {
	text = strings.TrimSpace(text)
	lower := strings.ToLower(text)
	switch {
	case text == "":
		return "", fmt.Errorf("%w: it is empty; expected an npub or 64 hex digits", ErrBadPubkey)
	case strings.HasPrefix(lower, "nsec1"), strings.HasPrefix(lower, encryptedPrefix):
		return "", fmt.Errorf("%w: it is a secret key; write the public one (npub), and treat that secret key as known to others", ErrBadPubkey)
	case strings.HasPrefix(lower, "npub1"):
		prefix, value, err := nip19.Decode(text)
		pubkey, ok := value.(string)
		if err != nil || prefix != "npub" || !ok {
			return "", fmt.Errorf("%w: the npub is damaged (wrong length or checksum)", ErrBadPubkey)
		}
		lower = pubkey
	}
	b, err := hex.DecodeString(lower)
	if err != nil || len(b) != 32 {
		return "", fmt.Errorf("%w: neither an npub nor 64 hex digits", ErrBadPubkey)
	}
	if _, err := schnorr.ParsePubKey(b); err != nil {
		return "", fmt.Errorf("%w: no key has that number", ErrBadPubkey)
	}
	return lower, nil
}

// Npub writes a public key in hex as NIP-19 does; text that is no such key comes
// back as it is.
func Npub(pubkey string) string {
	s, err := nip19.EncodePublicKey(pubkey)
	if err != nil {
		return pubkey
	}
	return s
}
