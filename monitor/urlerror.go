package monitor

import (
	"fmt"
	"strings"
	"unicode"
)

// The reasons why text is no relay URL, in the words of relay-url.md.
const (
	reasonEmpty      = "empty"
	reasonLength     = "length"
	reasonScheme     = "scheme"
	reasonWhitespace = "whitespace"
	reasonList       = "list"
	reasonUserinfo   = "userinfo"
	reasonHost       = "host"
	reasonPort       = "port"
	reasonReserved   = "reserved"
	reasonPrivate    = "private"
	reasonOnion      = "onion"
	reasonI2P        = "i2p"
	reasonQuery      = "query"
	reasonNested     = "nested"
	reasonPath       = "path"
)

// Reasons that callers tell apart: the host is not one of the public network.
const (
	ReasonReserved = reasonReserved
	ReasonPrivate  = reasonPrivate
)

// reasonTexts says what each reason means.
var reasonTexts = map[string]string{
	reasonEmpty:      "there is no URL",
	reasonLength:     "it is longer than 512 bytes",
	reasonScheme:     "it must begin with wss:// or ws://",
	reasonWhitespace: "it contains white space, a backslash or an invisible character",
	reasonList:       "it is a list of URLs; give one at a time",
	reasonUserinfo:   "it contains a user name or password; leave out everything up to the @",
	reasonHost:       "its host is neither a full domain name nor an IP address",
	reasonPort:       "its port is not a number from 1 to 65535, or belongs to another service",
	reasonReserved:   "its host name is reserved for private use",
	reasonPrivate:    "its address is not public",
	reasonOnion:      "its .onion name is not a valid version 3 address",
	reasonI2P:        "its .b32.i2p name is too short",
	reasonQuery:      "it contains a query; relays are watched without one",
	reasonNested:     "its path contains another URL",
	reasonPath:       "its path is a template with brackets",
}

// URLError says why text is no relay URL. It wraps ErrInvalid.
type URLError struct {
	// Input is the text as it may be shown and logged: without user name,
	// password, query and fragment, without control characters, and cut at 80
	// bytes.
	Input string
	// Reason is one word of relay-url.md.
	Reason string
}

func newURLError(input, reason string) *URLError {
	return &URLError{Input: showURL(input), Reason: reason}
}

func (e *URLError) Error() string {
	return fmt.Sprintf("%v relay URL %q: %s (%s)", ErrInvalid, e.Input, e.Reason, e.Words())
}

// Words says what Reason means, as a clause about the URL that repeats none of
// it.
func (e *URLError) Words() string { return reasonTexts[e.Reason] }

func (e *URLError) Unwrap() error { return ErrInvalid }

// maxShownBytes is enough to recognise a URL by.
const maxShownBytes = 80

// showURL makes any text fit for a message. It knows no more of the text than
// that it is no relay URL, so it leaves out too much rather than too little:
// all before the last @, and everything but the scheme when it cannot be told
// whether a question mark belongs to a password.
func showURL(s string) string {
	const gap = "…"
	s = strings.TrimSpace(s)
	scheme := ""
	if i := strings.Index(s, "://"); i >= 0 && isScheme(s[:i]) {
		scheme, s = s[:i+3], s[i+3:]
	}
	at, mark := lastAt(s), strings.IndexAny(s, "?#")
	switch {
	case at >= 0 && mark >= 0:
		s = gap
	case at >= 0:
		s = gap + s[at:]
	case mark >= 0:
		s = s[:mark] + gap
	}
	s = scheme + s
	long := len(s) > maxShownBytes
	if long {
		s = s[:maxShownBytes]
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if long || len(s) > maxShownBytes {
		s = strings.ToValidUTF8(s[:min(len(s), maxShownBytes-len(gap))], "") + gap
	}
	return s
}

// lastAt returns where the last @ of s is, plain or percent-encoded, or -1.
func lastAt(s string) int {
	return max(strings.LastIndexByte(s, '@'), strings.LastIndex(s, "%40"))
}
