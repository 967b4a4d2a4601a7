package nostr

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"
)

// HTTPAuth returns the value of an Authorization header that signs one request
// (NIP-98) for VerifyHTTPAuth: its method, its absolute URL with the query, and
// its body as it is sent; an empty one is not named. A tag of chance makes the
// event another one each time, since an id is accepted only once. The error is
// an ErrBadKey when k is no key.
func (k Key) HTTPAuth(method, url string, body []byte, now time.Time) (string, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", fmt.Errorf("sign a request: %w", err)
	}
	ev := &Event{
		Kind: KindHTTPAuth, CreatedAt: Timestamp(now.Unix()),
		Tags: Tags{{"u", url}, {"method", method}, {"nonce", hex.EncodeToString(nonce[:])}},
	}
	if len(body) > 0 {
		h := sha256.Sum256(body)
		ev.Tags = append(ev.Tags, Tag{"payload", hex.EncodeToString(h[:])})
	}
	if err := k.Sign(ev); err != nil {
		return "", fmt.Errorf("sign a request: %w", err)
	}
	b, err := ev.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("sign a request: %w", err)
	}
	return "Nostr " + base64.StdEncoding.EncodeToString(b), nil
}
