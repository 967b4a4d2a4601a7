package nostr

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr/nip49"
)

// Password yields the password of an encrypted key. It is asked only when there
// is one to open or to write; its error says in words how to give one.
type Password func() (string, error)

// The shape of an encrypted key (NIP-49): the prefix, then 91 bytes and the
// checksum in bech32.
const (
	encryptedPrefix = "ncryptsec1"
	encryptedLength = len(encryptedPrefix) + 146 + 6
	bech32Symbols   = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
)

// scrypt's work, as a power of two: 64 MB for what we write. Of what we read
// maxLogN takes 1 GB, and more than that nobody means.
const (
	writtenLogN = 16
	maxLogN     = 20
)

// freshKey is NIP-49's byte for a key that was not handled insecurely.
const freshKey = nip49.NotKnownToHaveBeenHandledInsecurely

// decryptKey opens an ncryptsec. Everything is checked that the library takes
// on trust, before the memory is taken that the text asks for.
func decryptKey(text string, password Password) (Key, error) {
	version, logN, ok := encryptedHead(text)
	switch {
	case !ok:
		return Key{}, errDamagedEncrypted
	case version != 2:
		return Key{}, fmt.Errorf("%w: it is encrypted in version %d of NIP-49, and only version 2 can be read", ErrBadKey, version)
	case logN < 1 || logN > maxLogN:
		return Key{}, fmt.Errorf("%w: to decrypt it would take scrypt with a work factor of 2^%d, and more than 2^%d is refused; encrypt the key anew", ErrBadKey, logN, maxLogN)
	case password == nil:
		return Key{}, fmt.Errorf("%w: it is encrypted (ncryptsec), and there is no password", ErrBadKey)
	}
	secret, err := password()
	if err != nil {
		return Key{}, fmt.Errorf("%w: it is encrypted (ncryptsec): %w", ErrBadKey, err)
	}
	b, err := nip49.DecryptToBytes(text, secret)
	if err != nil {
		// The library's text is not passed on: it could quote the key. What it
		// says about bech32 comes before any decryption.
		if strings.Contains(err.Error(), "message authentication failed") {
			return Key{}, fmt.Errorf("%w: the password is not that of this key", ErrBadKey)
		}
		return Key{}, errDamagedEncrypted
	}
	if len(b) != 32 {
		return Key{}, errDamagedEncrypted
	}
	return fromBytes(b)
}

var errDamagedEncrypted = fmt.Errorf("%w: the ncryptsec is damaged (wrong length or checksum)", ErrBadKey)

// encryptedHead reads the first two bytes of an ncryptsec, of which the second
// is scrypt's work; false when the text has not the length of one.
func encryptedHead(text string) (version, logN byte, ok bool) {
	if len(text) != encryptedLength {
		return 0, 0, false
	}
	var bits uint32
	for _, c := range []byte(strings.ToLower(text[len(encryptedPrefix):][:4])) { // 20 bits
		i := strings.IndexByte(bech32Symbols, c)
		if i < 0 {
			return 0, 0, false
		}
		bits = bits<<5 | uint32(i)
	}
	return byte(bits >> 12), byte(bits >> 4), true
}

// encrypted is the key as an ncryptsec.
func (k Key) encrypted(password string) (string, error) {
	if password == "" {
		return "", fmt.Errorf("%w: an empty password protects nothing", ErrBadKey)
	}
	s, err := nip49.Encrypt(hex.EncodeToString(k.p.secret.Serialize()), password, writtenLogN, freshKey)
	if err != nil {
		return "", errors.New("encrypt the key failed") // the library's text could show it
	}
	return s, nil
}
