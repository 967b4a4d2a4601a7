package remote

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	var g gate
	now := time.Now()
	if g.wait(now) != 0 {
		t.Error("a new gate is closed")
	}
	want := time.Second
	seen := map[time.Duration]bool{}
	for n := range 20 {
		g.failed(now, 0)
		got := g.wait(now)
		if got < want/2 || got > want {
			t.Errorf("failure %d: wait %s, want between half and all of %s", n+1, got, want)
		}
		seen[got] = true
		want = min(2*want, time.Minute)
	}
	if len(seen) < 10 {
		t.Errorf("only %d different waits: no chance in them", len(seen))
	}
	g.failed(now, 2*time.Minute)
	if got := g.wait(now); got != 2*time.Minute {
		t.Errorf("wait %s after a Retry-After of two minutes", got)
	}
	g.failed(now, 1000*time.Hour)
	if got := g.wait(now); got != retryAfterMost {
		t.Errorf("wait %s after an absurd Retry-After", got)
	}
	g.succeeded()
	if g.wait(now) != 0 {
		t.Error("closed after a success")
	}
	g.failed(now, 0)
	if got := g.wait(now); got > time.Second {
		t.Errorf("wait %s after the first failure", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "99999999999999999999": 0,
		"Mon, 30 Nov 2026 12:01:00 GMT": time.Minute, "Mon, 30 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := parseRetryAfter(in, now); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}

// A clock that jumps does not open or close a gate: it goes by the monotonic one.
func TestGateIsMonotonic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		g.failed(time.Now(), 30*time.Second)
		Elapse(29 * time.Second)
		if got := g.wait(time.Now()); got != time.Second {
			t.Errorf("wait %s, want 1s", got)
		}
		Elapse(time.Second)
		if got := g.wait(time.Now()); got != 0 {
			t.Errorf("wait %s, want none", got)
		}
	})
}
