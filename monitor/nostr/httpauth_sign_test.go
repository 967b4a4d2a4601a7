package nostr_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// What is signed is accepted for that request, and for no other.
func TestHTTPAuthSigns(t *testing.T) {
	const url = "https://pharos.example/v1/vantages/berlin/tasks?since=7"
	key := authKey(t)
	for name, c := range map[string]struct {
		signed, sent string // bodies
		url, method  string
		late         time.Duration
		want         bool
	}{
		"with a body":    {"{}", "{}", url, "POST", 0, true},
		"without":        {"", "", url, "POST", 0, true},
		"another body":   {"{}", "{ }", url, "POST", 0, false},
		"a body added":   {"", "{}", url, "POST", 0, false},
		"another query":  {"{}", "{}", url + "8", "POST", 0, false},
		"another method": {"{}", "{}", url, "PUT", 0, false},
		"too late":       {"{}", "{}", url, "POST", 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := key.HTTPAuth("POST", url, []byte(c.signed), authNow)
			if err != nil {
				t.Fatal(err)
			}
			auth, err := nostr.VerifyHTTPAuth(h, nostr.HTTPRequest{Method: c.method, URLs: []string{c.url}, Now: authNow.Add(c.late)})
			if err == nil {
				err = auth.MatchBody([]byte(c.sent))
			}
			if (err == nil) != c.want || err != nil && !errors.Is(err, nostr.ErrBadAuth) {
				t.Fatalf("error %v, want it to be accepted: %v", err, c.want)
			}
			if c.want && auth.Pubkey != key.Pubkey() {
				t.Errorf("signed by %s, want %s", auth.Pubkey, key.Pubkey())
			}
		})
	}
}

// Two equal requests in one second are two events: an id is accepted only once.
func TestHTTPAuthIsUnique(t *testing.T) {
	ids := map[string]bool{}
	for range 3 {
		h, err := authKey(t).HTTPAuth("GET", checkURL, nil, authNow)
		if err != nil {
			t.Fatal(err)
		}
		auth, err := nostr.VerifyHTTPAuth(h, nostr.HTTPRequest{Method: "GET", URLs: []string{checkURL}, Now: authNow})
		if err != nil {
			t.Fatal(err)
		}
		ids[auth.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d ids of 3 requests", len(ids))
	}
}

func TestHTTPAuthWithoutKey(t *testing.T) {
	if _, err := (nostr.Key{}).HTTPAuth("GET", checkURL, nil, authNow); !errors.Is(err, nostr.ErrBadKey) {
		t.Errorf("error %v, want ErrBadKey", err)
	}
}
