package monitor

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Reach is what trying one address family of a relay came to.
type Reach uint8

// The words; the zero value is not tried.
const (
	ReachUnknown Reach = iota
	ReachNone          // the name has no address of that family
	ReachAnswers       // a TCP connection stood
	ReachFails         // none did, and it was no fault of ours
)

var reachNames = names[Reach]{"unknown", "none", "answers", "fails"}

func (r Reach) String() string               { return reachNames.text(r) }
func (r Reach) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads one of the words; anything else is ErrInvalid.
func (r *Reach) UnmarshalText(b []byte) error { return reachNames.parse(r, "reach", b) }

// DNSFacts is where a relay's name leads, and on which family it answers.
type DNSFacts struct {
	Addresses []netip.Addr `json:"addresses"` // ascending, distinct, at most 16
	IPv4      Reach        `json:"ipv4"`
	IPv6      Reach        `json:"ipv6"`
}

// Finding is what testing one capability came to.
type Finding uint8

// The words; the zero value is unknown: not tested, or the relay told nothing
// either way.
const (
	FindingUnknown Finding = iota
	FindingConfirmed
	FindingDisproved
)

var findingNames = names[Finding]{"unknown", "confirmed", "disproved"}

func (f Finding) String() string               { return findingNames.text(f) }
func (f Finding) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads one of the words; anything else is ErrInvalid.
func (f *Finding) UnmarshalText(b []byte) error { return findingNames.parse(f, "finding", b) }

// Capabilities is what a relay was seen to do, whatever its NIP-11 document
// says (probe.md).
type Capabilities struct {
	Auth       Finding `json:"auth"`       // NIP-42: it sends a challenge
	Count      Finding `json:"count"`      // NIP-45: it answers COUNT
	Search     Finding `json:"search"`     // NIP-50: it honours or refuses a search
	Negentropy Finding `json:"negentropy"` // NIP-77: it answers NEG-OPEN
	EOSE       Finding `json:"eose"`       // it ends what is stored with EOSE
	Filters    Finding `json:"filters"`    // it sends nothing that was not asked for: what does is no relay at all, or a fake
	Limit      Finding `json:"limit"`      // it sends no more than limit
	Until      Finding `json:"until"`      // it sends nothing newer than until
	// Sample is a fingerprint of what the relay served to a question whose
	// answer is the same all day; "" = it served nothing, or was not asked.
	Sample string `json:"sample,omitempty"`
}

// byNIP are the findings that stand for a NIP, ascending.
func (c *Capabilities) byNIP() [4]struct {
	nip     int
	finding Finding
} {
	return [...]struct {
		nip     int
		finding Finding
	}{{42, c.Auth}, {45, c.Count}, {50, c.Search}, {77, c.Negentropy}}
}

// NIPs returns the NIPs of which f was found, ascending.
func (c *Capabilities) NIPs(f Finding) []int {
	var out []int
	if c == nil {
		return nil
	}
	for _, n := range c.byNIP() {
		if n.finding == f {
			out = append(out, n.nip)
		}
	}
	return out
}

// WriteResult is what the write test came to (probe.md, write).
type WriteResult uint8

// The results; the zero value is not tested.
const (
	WriteNone     WriteResult = iota
	WriteAccepted             // OK true
	WriteRefused              // OK false
	WriteUnknown              // silence
)

var writeNames = names[WriteResult]{"", "accepted", "refused", "unknown"}

func (w WriteResult) String() string               { return writeNames.text(w) }
func (w WriteResult) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads one of the words; anything else is ErrInvalid.
func (w *WriteResult) UnmarshalText(b []byte) error { return writeNames.parse(w, "write result", b) }

// WriteFacts is the write test of one probe.
type WriteFacts struct {
	Result WriteResult `json:"result"`
	// Reason is the relay's own, one line of at most 200 bytes; "" = none given.
	Reason string `json:"reason,omitempty"`
}

// Facts are what is known of a relay beside whether it answers, each from the
// vantage that looked last, with when that was.
type Facts struct {
	TLS            *TLSFacts
	TLSAt          time.Time
	DNS            *DNSFacts
	DNSAt          time.Time
	Capabilities   *Capabilities
	CapabilitiesAt time.Time
	Write          *WriteFacts
	WriteAt        time.Time
}

// TLSExpiryWarning is how long before its expiry a certificate is warned of.
const TLSExpiryWarning = 14 * 24 * time.Hour

// Expires reports whether the certificate is about to expire, or has expired.
func (f *Facts) Expires(now time.Time) bool {
	return f != nil && f.TLS != nil && !f.TLS.NotAfter.IsZero() && f.TLS.NotAfter.Sub(now) < TLSExpiryWarning
}

// Warnings are sentences for whoever runs the relay: a certificate that is about
// to expire, an address family that does not answer, answers to anything alike,
// capabilities claimed and disproved.
func (f *Facts) Warnings(info *Info, now time.Time) []string {
	out := []string{}
	if f.Expires(now) {
		day := f.TLS.NotAfter.UTC().Format(time.DateOnly)
		switch left := f.TLS.NotAfter.Sub(now); {
		case left <= 0:
			out = append(out, "its TLS certificate expired on "+day)
		case left < 24*time.Hour:
			out = append(out, "its TLS certificate expires on "+day+", within a day")
		case left < 48*time.Hour:
			out = append(out, "its TLS certificate expires on "+day+", in 1 day")
		default:
			out = append(out, fmt.Sprintf("its TLS certificate expires on %s, in %d days", day, int(left/(24*time.Hour))))
		}
	}
	if d := f.DNS; d != nil {
		switch {
		case d.IPv4 == ReachFails && d.IPv6 == ReachAnswers:
			out = append(out, "it answers on IPv6 only: its IPv4 addresses do not")
		case d.IPv6 == ReachFails && d.IPv4 == ReachAnswers:
			out = append(out, "it answers on IPv4 only: its IPv6 addresses do not")
		}
	}
	if c := f.Capabilities; c != nil && c.Filters == FindingDisproved && f.believed(f.CapabilitiesAt, now) {
		out = append(out, "it answers every subscription with events, those that ask for what does not exist too: it may be no relay at all")
	}
	if info != nil {
		for _, n := range f.Disproved(now) {
			if slices.Contains(info.NIPs, n) {
				out = append(out, fmt.Sprintf("it claims NIP-%d, which a test disproved", n))
			}
		}
	}
	return out
}

// Place is where an address stands, as the operator's databases have it.
type Place struct {
	Country             string // ISO 3166-1 alpha-2, "" = unknown
	Geohash             string // "" = unknown
	Latitude, Longitude float64
	Located             bool   // Latitude and Longitude are known
	ASN                 uint32 // 0 = unknown
	Organization        string
	// Shared says whose network it is where an address stands for many places at
	// once, a CDN's or an anycast one's; there is no country then.
	Shared string
}

// Provenance is where a discovered relay was named.
type Provenance struct {
	Kinds               []int // of the events, ascending
	Authors             int   // distinct
	FirstSeen, LastSeen time.Time
}
