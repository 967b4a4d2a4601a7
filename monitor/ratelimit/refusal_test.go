package ratelimit_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

func TestS59Hint(t *testing.T) {
	for reason, want := range map[string]time.Duration{
		"rate-limited: slow down, retry in 30s":                       30 * second,
		"rate-limited: RETRY IN 7S please":                            7 * second,
		"rate-limited: 50 requests per 5s exceeded":                   0,
		"rate-limited: retry in 30 s":                                 0,
		"rate-limited: retry in 5m":                                   0,
		"rate-limited: retry after 30s":                               0,
		"rate-limited: retry in 0s":                                   0,
		"error: retry in 5s":                                          0,
		"retry in 5s":                                                 0,
		"":                                                            0,
		"Rate-Limited : retry in 5s":                                  5 * second, // S60 trims and lowers
		"rate-limited":                                                0,
		"rate-limited retry in 5s":                                    0, // no prefix
		"retry in 5s rate-limited: no":                                0, // of another prefix
		"rate-limited:retry in 5s":                                    5 * second,
		"rate-limited: retry in 5s or retry in 9s":                    5 * second, // the first
		"rate-limited: retry in 5 or retry in 9s":                     9 * second,
		"rate-limited: retry in 99999999999999999999s":                0, // an overflow is none
		"rate-limited: retry in 9999s":                                9999 * second,
		"rate-limited: retry in 9223372036854775807s":                 math.MaxInt64,
		"rate-limited: retry in -5s":                                  0,
		"rate-limited: retry in 1.5s":                                 0,
		"rate-limited: retry in ٣٠s":                                  0, // digits of another script
		"rate-limited: retry  in 5s":                                  0,
		"rate-limited: please retry in 007s":                          7 * second,
		"rate-limited: retry in 99999999999999999999s or retry in 9s": 0,
	} {
		if got := ratelimit.Hint(reason); got != want {
			t.Errorf("Hint(%q) = %s, want %s", reason, got, want)
		}
	}
}

type meaning struct {
	Prefix string
	Action string
	Taken  bool
	Label  string
}

func meant(r ratelimit.Refusal) meaning {
	return meaning{r.Prefix, r.Action.String(), r.Taken, r.Label()}
}

func TestS60To62Classify(t *testing.T) {
	for reason, want := range map[string]meaning{
		// S61
		"rate-limited: slow down":                  {"rate-limited", "retry", false, "rate-limited"},
		"error: could not connect to the database": {"error", "retry", false, "error"},
		"":                              {"", "retry", false, "none"},
		"shutting down":                 {"", "retry", false, "none"},
		"whatever: this is":             {"whatever", "retry", false, "other"},
		"payment-required: pay":         {"payment-required", "retry", false, "other"},
		": nothing before":              {"", "retry", false, "none"},
		"error: too many subscriptions": {"error", "terminal", false, "error"},
		"error: Too many subscriptions, close some":  {"error", "terminal", false, "error"},
		"ERROR:too many subscriptions":               {"error", "terminal", false, "error"},
		"error: mixed search and non-search filters": {"error", "terminal", false, "error"},
		"error: query timed out":                     {"error", "terminal", false, "error"},
		"error: sorry, query timed out":              {"error", "retry", false, "error"},
		"too many subscriptions":                     {"", "retry", false, "none"}, // only after error:
		"auth-required: who are you":                 {"auth-required", "authenticate", false, "auth-required"},
		"restricted: paid relay":                     {"restricted", "terminal", false, "restricted"},
		"blocked: you are banned":                    {"blocked", "terminal", false, "blocked"},
		"invalid: filter":                            {"invalid", "terminal", false, "invalid"},
		"pow: 28 bits needed":                        {"pow", "terminal", false, "pow"},
		"unsupported: search":                        {"unsupported", "terminal", false, "unsupported"},
		"mute: nobody heard it":                      {"mute", "terminal", false, "mute"},
		"deleted: event was deleted":                 {"deleted", "terminal", false, "deleted"},
		"duplicate: already have this event":         {"duplicate", "terminal", true, "duplicate"},
		"replaced: have newer event":                 {"replaced", "terminal", true, "replaced"},
		" \tBLOCKED \u00a0: x":                       {"blocked", "terminal", false, "blocked"},
		"blocked : see https://relay.example.com":    {"blocked", "terminal", false, "blocked"},
		// S62, seen in the field
		"auth-required: you must auth":                                                         {"auth-required", "authenticate", false, "auth-required"},
		"restricted: this relay does not accept REQs":                                          {"restricted", "terminal", false, "restricted"},
		"blocked: we only keep kind 24133 or 24135":                                            {"blocked", "terminal", false, "blocked"},
		"error: queries not allowed":                                                           {"error", "retry", false, "error"},
		"max number of subscriptions per client (100) reached":                                 {"", "retry", false, "none"},
		"rate-limited: there is a bug in the client, no one should be making so many requests": {"rate-limited", "retry", false, "rate-limited"},
	} {
		r := ratelimit.Classify(reason)
		if diff := cmp.Diff(want, meant(r)); diff != "" {
			t.Errorf("Classify(%q) (-want +got):\n%s", reason, diff)
		}
		if r.Text != reason {
			t.Errorf("the text of %q became %q", reason, r.Text)
		}
		if r.RateLimited() != (want.Prefix == "rate-limited") {
			t.Errorf("%q: opens the gate: %v", reason, r.RateLimited())
		}
	}
}

func TestS61OK(t *testing.T) {
	for name, c := range map[string]struct {
		accepted bool
		reason   string
		want     string
	}{
		"accepted":            {true, "", "success"},
		"accepted, odd words": {true, "blocked: no", "success"},
		"duplicate":           {false, "duplicate: already have it", "success"},
		"replaced":            {false, "replaced: have newer event", "success"},
		"blocked":             {false, "blocked: no", "terminal"},
		"rate-limited":        {false, "rate-limited: 5 per minute", "retry"},
		"auth":                {false, "auth-required: publish", "authenticate"},
		"no words":            {false, "", "retry"},
	} {
		if got := ratelimit.ClassifyOK(c.accepted, c.reason); got.Action.String() != c.want || got.Taken != (c.want == "success") {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestS62And63Notice(t *testing.T) {
	for text, want := range map[string]struct {
		refused bool
		action  string
		gate    bool
	}{
		"ERROR: too many concurrent REQs":       {true, "retry", false},
		"rate-limited: slow down, retry in 3s":  {true, "retry", true},
		"Rate-Limited: slow":                    {true, "retry", true},
		"welcome, you are not rate-limited: hi": {false, "retry", false},
		"rate-limited":                          {false, "retry", false},
		"ERROR: bad msg":                        {false, "retry", false},
		"":                                      {false, "retry", false},
		"restricted: members only":              {false, "terminal", false},
	} {
		r, refused := ratelimit.ClassifyNotice(text)
		if refused != want.refused || r.Action.String() != want.action || r.RateLimited() != want.gate {
			t.Errorf("%q: refused %v %+v, want %+v", text, refused, r, want)
		}
	}
}

func TestS67Backoff(t *testing.T) {
	for k, want := range map[int]time.Duration{
		1: second, 2: 2 * second, 3: 4 * second, 4: 8 * second, 5: 16 * second, 6: 30 * second, 7: 30 * second,
		1000: 30 * second, math.MaxInt: 30 * second, 0: second, -3: second,
	} {
		if got := ratelimit.Ceiling(k); got != want {
			t.Errorf("Ceiling(%d) = %s, want %s", k, got, want)
		}
		for u, want := range map[float64]time.Duration{0: 0, 0.5: want / 2, 1: want} {
			if got := ratelimit.Backoff(k, u); got != want {
				t.Errorf("Backoff(%d, %v) = %s, want %s", k, u, got, want)
			}
		}
	}
}

func FuzzClassify(f *testing.F) {
	for _, s := range []string{"rate-limited: retry in 5s", "error: query timed out", "", ":", "ERROR: too many concurrent REQs", "\xff: \x00", strings.Repeat("retry in 1", 99)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := ratelimit.Classify(s)
		if h := ratelimit.Hint(s); h < 0 || h > 0 && !r.RateLimited() {
			t.Errorf("hint %s of prefix %q", h, r.Prefix)
		}
		if r.Text != s || r.Action > ratelimit.Success || len(r.Label()) == 0 || len(r.Label()) > 13 {
			t.Errorf("%+v, label %q", r, r.Label())
		}
		n, refused := ratelimit.ClassifyNotice(s)
		if n.RateLimited() && !refused {
			t.Errorf("a rate-limited notice is no refusal: %q", s)
		}
	})
}
