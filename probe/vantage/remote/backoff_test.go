package remote_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

// bubble runs f in virtual time from a year on that a set clock may show: bubbles
// begin in 2000.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		remote.Elapse(time.Until(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))
		f(t)
	})
}

// transport is a network made of a function.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return f(r)
}

func response(status int, header http.Header, body string) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

// While the core is away it is tried more and more rarely, but once a minute at
// least, and batches are taken meanwhile without a wait; when it is back they all
// go at once.
func TestBackOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begun := time.Now()
		var mu sync.Mutex
		var attempts []time.Duration
		var away atomic.Bool
		away.Store(true)
		var sent atomic.Int32
		c, _ := open(t, remote.Config{URL: "https://pharos.example.com", Key: newKey(t), HTTP: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			attempts = append(attempts, time.Since(begun))
			mu.Unlock()
			if away.Load() {
				return nil, errors.New("no route to host")
			}
			sent.Add(1)
			return response(200, nil, `{"stored":1}`), nil
		})}})
		stop := background(t, c)
		for seq := uint64(1); seq <= 120; seq++ { // ten minutes
			before := time.Now()
			deliver(t, c, observed(seq, 1))
			if took := time.Since(before); took > 0 {
				t.Errorf("batch %d took %s", seq, took)
			}
			remote.Elapse(5 * time.Second)
		}
		synctest.Wait()
		mu.Lock()
		at := slices.Clone(attempts)
		mu.Unlock()
		if n := len(at); n < 13 || n > 30 {
			t.Errorf("%d attempts in ten minutes: %v", n, at)
		}
		for i := 1; i < len(at); i++ {
			gap := at[i] - at[i-1]
			if gap > time.Minute || i > 8 && gap < 30*time.Second || gap < time.Second/2 {
				t.Errorf("attempt %d comes %s after the one before", i+1, gap)
			}
		}
		synctest.Wait()
		away.Store(false)
		remote.Elapse(time.Minute)
		synctest.Wait()
		if s := c.Stats(); sent.Load() != 120 || s.Batches != 0 || s.Sent != 120 || s.Problem != "" {
			t.Errorf("%d sent, stats %+v", sent.Load(), s)
		}
		_ = stop()
	})
}

// The core says when it may be asked again, for batches and for tasks.
func TestRetryAfterIsRespected(t *testing.T) {
	for name, status := range map[string]int{"store away": http.StatusServiceUnavailable, "too many requests": http.StatusTooManyRequests} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var posts, gets atomic.Int32
				c, l := open(t, remote.Config{URL: "https://pharos.example.com", Key: newKey(t), HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPost {
						posts.Add(1)
					} else {
						gets.Add(1)
					}
					return response(status, http.Header{"Retry-After": {"300"}, "Content-Type": {"application/problem+json"}}, `{"detail":"later"}`), nil
				})}})
				stop := background(t, c)
				for seq := uint64(1); seq <= 59; seq++ { // 295 s
					deliver(t, c, observed(seq, 1))
					if _, err := c.Tasks(t.Context(), "berlin", 0); !errors.Is(err, monitor.ErrUnavailable) {
						t.Errorf("tasks: %v", err)
					}
					remote.Elapse(5 * time.Second)
				}
				synctest.Wait()
				if posts.Load() != 1 || gets.Load() != 1 {
					t.Errorf("%d batches and %d requests for tasks within five minutes", posts.Load(), gets.Load())
				}
				remote.Elapse(10 * time.Second)
				synctest.Wait()
				if posts.Load() != 2 {
					t.Errorf("%d batches after five minutes", posts.Load())
				}
				if n := l.count("does not answer as it should"); n != 2 { // one for each kind
					t.Errorf("told %d times", n)
				}
				_ = stop()
			})
		})
	}
}

// A core that accepts a batch and never answers does not hold the vantage up.
func TestHangingCore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := open(t, remote.Config{URL: "https://pharos.example.com", Key: newKey(t), HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}})
		stop := background(t, c)
		before := time.Now()
		deliver(t, c, observed(1, 1)) // waits for this one, and no longer than a request may last
		if took := time.Since(before); took != time.Minute {
			t.Errorf("it took %s", took)
		}
		before = time.Now()
		deliver(t, c, observed(2, 1))
		if took := time.Since(before); took > 0 {
			t.Errorf("the second took %s", took)
		}
		if s := c.Stats(); s.Batches != 2 || !strings.Contains(s.Problem, "did not answer in time") {
			t.Errorf("stats %+v", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
