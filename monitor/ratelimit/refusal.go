package ratelimit

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Action is what is to be done about a reply.
type Action uint8

// The actions (S61).
const (
	// Retry: the same may be asked again, a bounded number of times.
	Retry Action = iota
	// Authenticate: the same is asked once more after NIP-42.
	Authenticate
	// Terminal: asking again would bring the same.
	Terminal
	// Success: nothing was refused.
	Success
)

var actionNames = [...]string{"retry", "authenticate", "terminal", "success"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "unknown"
}

// The prefixes that mean something to us.
const (
	prefixRateLimited  = "rate-limited"
	prefixError        = "error"
	prefixAuthRequired = "auth-required"
	prefixDuplicate    = "duplicate"
	prefixReplaced     = "replaced"
)

// known are the prefixes of S61, with what they mean.
var known = map[string]Action{
	prefixRateLimited:  Retry,
	prefixError:        Retry,
	prefixAuthRequired: Authenticate,
	"restricted":       Terminal,
	"blocked":          Terminal,
	"invalid":          Terminal,
	"pow":              Terminal,
	"unsupported":      Terminal,
	"mute":             Terminal,
	"deleted":          Terminal,
	prefixDuplicate:    Terminal,
	prefixReplaced:     Terminal,
}

// lasting are the errors that a timer would meet for ever, while it keeps the
// budget full (S61).
var lasting = []string{"too many subscriptions", "mixed search", "query timed out"}

// Refusal is what a relay's text means.
type Refusal struct {
	// Prefix is the text before the first colon, trimmed and in lower case; "" =
	// the text has none (S60). It is the relay's, whatever that wrote.
	Prefix string
	// Text is as the relay sent it, for logs; of any length and encoding.
	Text   string
	Action Action
	// Taken: the relay has the event that the text is about, or a newer one, so
	// that as the reply to an EVENT it is no refusal.
	Taken bool
}

// Classify tells what the text of a CLOSED means, or of an OK with false where
// ClassifyOK is not asked (S60, S61).
func Classify(reason string) Refusal {
	r := Refusal{Text: reason}
	before, after, found := strings.Cut(reason, ":")
	if !found {
		return r
	}
	r.Prefix = strings.ToLower(strings.TrimSpace(before))
	r.Action = known[r.Prefix] // Retry, where it is none of them
	switch r.Prefix {
	case prefixError:
		after = strings.ToLower(strings.TrimSpace(after))
		for _, l := range lasting {
			if strings.HasPrefix(after, l) {
				r.Action = Terminal
			}
		}
	case prefixDuplicate, prefixReplaced:
		r.Taken = true
	}
	return r
}

// ClassifyOK tells what an OK means: Success when the relay has the event.
func ClassifyOK(accepted bool, reason string) Refusal {
	r := Classify(reason)
	if accepted || r.Taken {
		r.Action, r.Taken = Success, true
	}
	return r
}

// ClassifyNotice tells whether a NOTICE refuses something, and what it means
// then. Of the many things that relays say in notices only those two are
// refusals by which a REQ may stay without any other reply: rate-limited (S63),
// and strfry's too many concurrent REQs (S62).
func ClassifyNotice(text string) (r Refusal, refused bool) {
	r = Classify(text)
	switch r.Prefix {
	case prefixRateLimited:
		return r, true
	case prefixError:
		_, after, _ := strings.Cut(strings.ToLower(text), ":")
		return r, strings.HasPrefix(strings.TrimSpace(after), "too many concurrent reqs")
	}
	return r, false
}

// RateLimited reports whether the refusal opens the gate.
func (r Refusal) RateLimited() bool { return r.Prefix == prefixRateLimited }

// Label is what to count the refusal by: its prefix where it is one of S61,
// "none" without one, "other" for any else. A relay cannot make more of them.
func (r Refusal) Label() string {
	if r.Prefix == "" {
		return "none"
	}
	if _, ok := known[r.Prefix]; ok {
		return r.Prefix
	}
	return "other"
}

// retryIn is the one form of a hint that is believed (S59).
var retryIn = regexp.MustCompile(`(?i)retry in ([0-9]+)s`)

// Hint is how long a rate-limited reason asks to be left alone; 0 = it does not
// say, or says it in a form or a number that is not believed (S59). Other
// reasons have none, whatever digits they hold.
func Hint(reason string) time.Duration {
	before, after, _ := strings.Cut(reason, ":")
	if strings.ToLower(strings.TrimSpace(before)) != prefixRateLimited {
		return 0
	}
	m := retryIn.FindStringSubmatch(after)
	if m == nil {
		return 0
	}
	seconds, err := strconv.ParseInt(m[1], 10, 64)
	switch {
	case err != nil:
		return 0
	case seconds > int64(math.MaxInt64/time.Second):
		return math.MaxInt64
	}
	return time.Duration(seconds) * time.Second
}
