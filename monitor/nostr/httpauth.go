package nostr

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// KindHTTPAuth is an event that signs one HTTP request (NIP-98).
const KindHTTPAuth = 27235

// HTTPAuthWindow is how far created_at may be from our clock, either way
// (NIP-98's suggestion). Within it an event could be used again: whoever
// accepts one remembers its id for twice as long.
const HTTPAuthWindow = 60 * time.Second

// maxHTTPAuth bounds the header, bytes; an event for one request has ~700.
const maxHTTPAuth = 16 << 10

// maxShownURL bounds what an error repeats of our own URL, bytes.
const maxShownURL = 256

// ErrBadAuth: the header does not sign this request. The message is one
// sentence that says which rule was broken, and repeats nothing of the header.
var ErrBadAuth = errors.New("bad authorization")

// HTTPRequest is what a NIP-98 event must have been signed for.
type HTTPRequest struct {
	Method string
	// URLs are the absolute http(s) URLs that the request may be known by, with
	// its query. The first is named to whoever signed another.
	URLs []string
	Now  time.Time
}

// HTTPAuth is a NIP-98 event that signs the method and the URL of a request.
type HTTPAuth struct {
	Pubkey    string // hex, whose signature was verified
	ID        string // hex, of the event; one event has one
	CreatedAt time.Time

	payload string // hex SHA-256, "" = the event names no body
}

// VerifyHTTPAuth reads the value of an Authorization header, "Nostr " and an
// event in base64 (standard or URL-safe, padded or not), and checks all of it
// but the body, so that a caller need not read a stranger's: MatchBody must be
// asked before the body is acted on, and the ID must not have been used before.
// Extra tags and the content are ignored. The error is an ErrBadAuth.
func VerifyHTTPAuth(header string, r HTTPRequest) (HTTPAuth, error) {
	ev, err := decodeHTTPAuth(header)
	if err != nil {
		return HTTPAuth{}, err
	}
	if ev.Kind != KindHTTPAuth {
		return HTTPAuth{}, badAuth("the event is not of kind %d", KindHTTPAuth)
	}
	if !lowerHex(ev.PubKey, 32) || !lowerHex(ev.ID, 32) || !lowerHex(ev.Sig, 64) {
		return HTTPAuth{}, badAuth("the event's pubkey, id and sig must be 64, 64 and 128 digits of lower-case hex")
	}
	created := ev.CreatedAt.Time()
	switch age := r.Now.Sub(created); {
	case age > HTTPAuthWindow:
		return HTTPAuth{}, badAuth("created_at is more than %d seconds ago; sign anew, and check the clock", int(HTTPAuthWindow.Seconds()))
	case age < -HTTPAuthWindow:
		return HTTPAuth{}, badAuth("created_at is more than %d seconds ahead of our clock; check yours", int(HTTPAuthWindow.Seconds()))
	}
	u, err := theTag(ev, "u")
	if err != nil {
		return HTTPAuth{}, err
	}
	method, err := theTag(ev, "method")
	if err != nil {
		return HTTPAuth{}, err
	}
	if u == "" || !matchesURL(u, r.URLs) {
		first := ""
		if len(r.URLs) > 0 && len(r.URLs[0]) <= maxShownURL {
			first = "; expected " + r.URLs[0]
		}
		return HTTPAuth{}, badAuth("the tag u is not the URL of this request%s", first)
	}
	if method != r.Method {
		return HTTPAuth{}, badAuth("the tag method is not %s", r.Method)
	}
	auth := HTTPAuth{Pubkey: ev.PubKey, ID: ev.ID, CreatedAt: created.UTC()}
	if slices.ContainsFunc(ev.Tags, func(t Tag) bool { return len(t) > 0 && t[0] == "payload" }) {
		if auth.payload, err = theTag(ev, "payload"); err != nil {
			return HTTPAuth{}, err
		}
		if auth.payload = strings.ToLower(auth.payload); !lowerHex(auth.payload, 32) {
			return HTTPAuth{}, badAuth("the tag payload is not the SHA-256 of a body in hex")
		}
	}
	if Verify(ev) != nil { // its text may quote the event
		return HTTPAuth{}, badAuth("the event's id or signature is wrong")
	}
	return auth, nil
}

// MatchBody checks that the event signs body: a body that is not empty must be
// named by the tag payload, an empty one may be. (NIP-98 leaves it to the
// server; a signature without it would let whoever sees the header send another
// body.) The error is an ErrBadAuth.
func (a HTTPAuth) MatchBody(body []byte) error {
	if a.payload == "" {
		if len(body) == 0 {
			return nil
		}
		return badAuth("the tag payload is missing; it must be the SHA-256 of the body in hex")
	}
	h := sha256.Sum256(body)
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(h[:])), []byte(a.payload)) != 1 {
		return badAuth("the tag payload is not the SHA-256 of this body")
	}
	return nil
}

func badAuth(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadAuth}, args...)...)
}

// decodeHTTPAuth reads the event of the header without judging it.
func decodeHTTPAuth(header string) (*Event, error) {
	if len(header) > maxHTTPAuth {
		return nil, badAuth("the header is longer than %d bytes", maxHTTPAuth)
	}
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Nostr") {
		return nil, badAuth("the scheme is not Nostr")
	}
	text = strings.TrimRight(strings.Trim(text, " "), "=")
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	if text == "" {
		return nil, badAuth("there is no event behind Nostr")
	}
	body, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which the decoder would skip
		return nil, badAuth("the event is not in base64")
	}
	ev, err := Decode(body)
	if err != nil {
		return nil, badAuth("the base64 holds no Nostr event")
	}
	return ev, nil
}

// theTag is the value of the one tag of that name.
func theTag(ev *Event, name string) (string, error) {
	value, found := "", false
	for _, t := range ev.Tags {
		if len(t) == 0 || t[0] != name {
			continue
		}
		if len(t) != 2 || t[1] == "" {
			return "", badAuth("the tag %s does not hold one value", name)
		}
		if found {
			return "", badAuth("there is more than one tag %s", name)
		}
		value, found = t[1], true
	}
	if !found {
		return "", badAuth("there is no tag %s", name)
	}
	return value, nil
}

// matchesURL compares absolute URLs as a server tells them apart: scheme and
// host in any case, the default port or none, an empty path or /. Everything
// else must be the same, byte for byte.
func matchesURL(text string, accepted []string) bool {
	signed, ok := canonicalHTTP(text)
	return ok && slices.ContainsFunc(accepted, func(s string) bool {
		u, ok := canonicalHTTP(s)
		return ok && u == signed
	})
}

func canonicalHTTP(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.User != nil || strings.Contains(text, "#") || u.Hostname() == "" {
		return "", false
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	switch {
	case scheme != "http" && scheme != "https":
		return "", false
	case scheme == "http" && port == "80", scheme == "https" && port == "443":
		port = ""
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	query := ""
	if u.RawQuery != "" || u.ForceQuery {
		query = "?" + u.RawQuery
	}
	return scheme + "://" + host + path + query, true
}

// lowerHex reports whether s is n bytes in lower-case hex.
func lowerHex(s string, n int) bool {
	return len(s) == 2*n && !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}
