package monitor

import "fmt"

// Outcome is what one probe of one relay came to (probe.md, Outcome). The zero
// value means that there is no outcome yet.
type Outcome uint8

// The outcomes.
const (
	OutcomeNone       Outcome = iota
	OutcomeOK                 // it spoke Nostr
	OutcomeRefused            // it spoke Nostr and declined
	OutcomeRestricted         // something answers over HTTP, but not for us
	OutcomeFailed             // proven failure, with stage and cause
	OutcomeSkipped            // not measured
	OutcomeUnclear            // no evidence about the relay
)

var outcomeNames = names[Outcome]{"", "ok", "refused", "restricted", "failed", "skipped", "unclear"}

// Success reports whether o counts as a sign of life for the liveness step.
func (o Outcome) Success() bool { return o == OutcomeOK || o == OutcomeRefused }

// Measured reports whether o says anything about the relay at all.
func (o Outcome) Measured() bool { return o >= OutcomeOK && o <= OutcomeFailed }

func (o Outcome) String() string               { return outcomeNames.text(o) }
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads one of the names; anything else is ErrInvalid.
func (o *Outcome) UnmarshalText(b []byte) error { return outcomeNames.parse(o, "outcome", b) }

// Stage is the step of a probe at which it ended (probe.md, Stages).
type Stage uint8

// The stages in the order in which a probe passes them; info stands aside.
const (
	StageNone Stage = iota
	StageDNS
	StageTCP
	StageTLS
	StageUpgrade
	StageRead
	StageWrite
	StageInfo

	NumStages = int(StageInfo) + 1 // length of an array indexed by Stage
)

var stageNames = names[Stage]{"", "dns", "tcp", "tls", "upgrade", "read", "write", "info"}

func (s Stage) String() string               { return stageNames.text(s) }
func (s Stage) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads one of the names; anything else is ErrInvalid.
func (s *Stage) UnmarshalText(b []byte) error { return stageNames.parse(s, "stage", b) }

// Cause is why a probe came to its outcome: a closed list (probe.md, Outcome),
// the same words in Go, SQL, API, metrics and page. A word may occur under
// more than one outcome; outcome and cause together are the class.
type Cause uint8

// The causes, in the order of probe.md.
const (
	CauseNone Cause = iota
	// failed
	CauseNXDomain
	CauseNoAddress
	CauseConnRefused // "refused"
	CauseReset
	CauseTimeout
	CauseUnreachable
	CauseTLSExpired
	CauseTLSName
	CauseTLSUntrusted
	CauseTLSHandshake
	CauseHTTP404
	CauseHTTP5xx
	CauseHTTPOther
	CauseUpgradeInvalid
	CauseSilent
	CauseClosedEarly
	CauseNotNostr
	CauseOversized
	CauseBlockedAddress
	// refused (payment and rate_limited also under restricted and skipped)
	CauseAuthRequired
	CauseRestricted
	CauseBlocked
	CauseRateLimited
	CausePayment
	CausePow
	CauseInvalid
	CauseUnsupported
	CauseError
	CauseDeclined
	// restricted
	CauseHTTP401
	CauseHTTP403
	CauseHTTP407
	CauseHTTP429
	CauseHTTP451
	CauseChallenge
	// skipped
	CauseOverload
	CausePaused
	CauseNoProxy
	CauseImpaired
	CauseExcluded
	// unclear
	CauseResolver
	CauseLocalNetwork
	CauseLag
)

var causeNames = names[Cause]{
	"",
	"nxdomain", "no_address", "refused", "reset", "timeout", "unreachable", "tls_expired", "tls_name", "tls_untrusted", "tls_handshake",
	"http_404", "http_5xx", "http_other", "upgrade_invalid", "silent", "closed_early", "not_nostr", "oversized", "blocked_address",
	"auth_required", "restricted", "blocked", "rate_limited", "payment", "pow", "invalid", "unsupported", "error", "declined",
	"http_401", "http_403", "http_407", "http_429", "http_451", "challenge",
	"overload", "paused", "no_proxy", "impaired", "excluded",
	"resolver", "local_network", "lag",
}

func (c Cause) String() string               { return causeNames.text(c) }
func (c Cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads one of the names; anything else is ErrInvalid.
func (c *Cause) UnmarshalText(b []byte) error { return causeNames.parse(c, "cause", b) }

// names maps the values of a small enumeration to their words and back.
type names[T ~uint8] []string

func (n names[T]) text(v T) string {
	if int(v) >= len(n) {
		return fmt.Sprintf("invalid(%d)", v)
	}
	return n[v]
}

func (n names[T]) parse(v *T, what string, b []byte) error {
	for i, name := range n {
		if name == string(b) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%w %s %q", ErrInvalid, what, b)
}
