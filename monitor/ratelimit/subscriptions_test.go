package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

// sent is a REQ that went out.
type sent struct {
	At    time.Duration
	ID    string
	Since int64
}

// session is what Subscriptions are driven by in these tests: nothing is on a
// wire, and time is virtual.
type session struct {
	*ratelimit.Subscriptions
	start time.Time
	mu    sync.Mutex
	reqs  []sent
	// surfaced are "id: text" of what was given up.
	surfaced []string
	auths    int
	authErr  error
	authTime time.Duration
	sendErr  error
	sendTime time.Duration
	linger   time.Duration // of a Send whose connection is over
	// reply is called after each REQ, in a goroutine, as the relay's answer.
	reply func(id string, n int)
	u     float64 // what Rand draws
	wg    sync.WaitGroup
}

func newSession(t *testing.T, auth bool) *session {
	s := &session{start: time.Now(), u: 1}
	cfg := ratelimit.Config{
		Send: s.send,
		Surface: func(id string, r ratelimit.Refusal) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.surfaced = append(s.surfaced, id+": "+r.Text)
		},
		Rand: func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.u
		},
	}
	if auth {
		cfg.Authenticate = func(ctx context.Context) error {
			s.mu.Lock()
			s.auths++
			took, err := s.authTime, s.authErr
			s.mu.Unlock()
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return ctx.Err()
			}
			return err
		}
	}
	s.Subscriptions = ratelimit.NewSubscriptions(cfg)
	t.Cleanup(func() {
		s.Close()
		s.wg.Wait()
	})
	return s
}

func (s *session) send(ctx context.Context, id string, since int64) error {
	s.mu.Lock()
	s.reqs = append(s.reqs, sent{time.Since(s.start), id, since})
	n, reply, err, took, linger := len(s.reqs), s.reply, s.sendErr, s.sendTime, s.linger
	s.mu.Unlock()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			elapse(linger)
			return ctx.Err()
		}
	}
	if reply != nil {
		s.wg.Go(func() { reply(id, n) })
	}
	return err
}

// times are when REQs went out.
func (s *session) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []time.Duration{}
	for _, r := range s.reqs {
		out = append(out, r.At)
	}
	return out
}

func (s *session) wantTimes(t *testing.T, want ...time.Duration) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, s.times(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("REQs (-want +got):\n%s", diff)
	}
}

func (s *session) wantSurfaced(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.surfaced, want) {
		t.Errorf("surfaced %q, want %q", s.surfaced, want)
	}
}

// set changes how the session behaves from now on.
func (s *session) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// at sleeps until d after the start.
func (s *session) at(d time.Duration) {
	elapse(d - time.Since(s.start))
	synctest.Wait()
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// run runs f in a bubble with a session that is connected.
func run(t *testing.T, f func(t *testing.T, s *session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, true)
		s.Ready()
		synctest.Wait()
		f(t, s)
	})
}

// repeats reports what goes wrong when a relay refuses a subscription for ever.
func repeats(t *testing.T, prepare func(*session)) (problem string) {
	run(t, func(t *testing.T, s *session) {
		if prepare != nil {
			prepare(s)
		}
		s.reply = func(id string, n int) { s.Closed(id, fmt.Sprintf("error: no %d", n)) }
		if err := s.Register("a", false); err != nil {
			t.Fatal(err)
		}
		s.at(10 * time.Minute)
		want := []time.Duration{0, 1 * second, 3 * second, 7 * second, 15 * second, 31 * second}
		switch got := s.times(); {
		case len(got) < len(want):
			problem = fmt.Sprintf("the REQ of repeat %d is missing", len(got))
		case !slices.Equal(got, want):
			problem = fmt.Sprintf("REQs at %v, want %v", got, want)
		case !slices.Equal(s.surfaced, []string{"a: error: no 6"}):
			problem = fmt.Sprintf("surfaced %q", s.surfaced)
		case s.Registered("a"):
			problem = "it is still registered"
		}
	})
	return problem
}

// S64 to S67: 6 REQs in all, each later by the whole of its backoff; only the
// last refusal is told, with its own text.
func TestS64To67Repeats(t *testing.T) {
	if problem := repeats(t, nil); problem != "" {
		t.Error(problem)
	}
}

// S79, the negative control: with the retry branch off the same test fails on
// the missing REQ.
func TestS79NegativeControl(t *testing.T) {
	problem := repeats(t, func(s *session) { s.WithoutRepeats() })
	if problem != "the REQ of repeat 1 is missing" {
		t.Errorf("without the retry branch: %q", problem)
	}
}

func TestS64TellsNothing(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		if r := s.Closed("a", "error: busy"); r.Action != ratelimit.Retry {
			t.Errorf("%+v", r)
		}
		s.wantSurfaced(t)
		if !s.Registered("a") {
			t.Error("it is not registered any more")
		}
		s.at(second)
		s.EOSE("a")
		s.at(time.Hour)
		s.wantTimes(t, 0, second)
		s.wantSurfaced(t)
	})
}

func TestS65OneArmedRepeat(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		for range 20 {
			s.Closed("a", "error: busy")
		}
		s.wantSurfaced(t)
		s.at(999 * time.Millisecond)
		s.Closed("a", "blocked: while a repeat is due") // ignored too
		s.at(time.Minute)
		s.wantTimes(t, 0, second)
		// The ignored ones did not count: four more repeats are left.
		for range 4 {
			s.Closed("a", "error: busy")
			s.at(time.Since(s.start) + time.Minute)
		}
		if n := len(s.times()); n != 6 {
			t.Errorf("%d REQs, want 6", n)
		}
		s.wantSurfaced(t)
		s.Closed("a", "error: the last")
		s.Closed("a", "error: after the last")
		s.wantSurfaced(t, "a: error: the last")
	})
}

// The gate is fed first, also by a CLOSED that is ignored otherwise.
func TestS65FeedsTheGateFirst(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		s.Closed("a", "error: busy")
		s.Closed("a", "rate-limited: retry in 60s")
		s.at(time.Minute)
		s.wantTimes(t, 0)
		s.at(time.Minute + ms(500))
		s.wantTimes(t, 0, time.Minute+ms(500))
		s.Closed("unknown", "rate-limited: retry in 9s")
		if got := s.Gate().Remaining(); got != 9*second {
			t.Errorf("%s remain after the CLOSED of a stranger, want 9s", got)
		}
	})
}

// S67: the longer of both, with extensions; S69: those whom the gate lets go
// spread over half a second.
func TestS67And69LongerOfBoth(t *testing.T) {
	for name, c := range map[string]struct {
		reasons []string // each after the REQ before
		u       float64
		want    []time.Duration
	}{
		"the gate, by default":     {[]string{"rate-limited: slow"}, 0, []time.Duration{0, 10 * second}},
		"the gate, by a hint":      {[]string{"rate-limited: retry in 2s"}, 0, []time.Duration{0, 2 * second}},
		"the gate, with a spread":  {[]string{"rate-limited: retry in 2s"}, 0.5, []time.Duration{0, 2*second + ms(250)}},
		"the backoff":              {[]string{"error: no"}, 1, []time.Duration{0, second}},
		"the backoff, no wait":     {[]string{"error: no"}, 0, []time.Duration{0, 0}},
		"the backoff is longer":    {[]string{"error: a", "error: b", "rate-limited: retry in 1s"}, 1, []time.Duration{0, second, 3 * second, 7 * second}},
		"the gate of another text": {[]string{"error: no", "rate-limited: retry in 300s"}, 0, []time.Duration{0, 0, 300 * second}},
		"the most that can be":     {[]string{"rate-limited: retry in 99999s"}, 0, []time.Duration{0, 300 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *session) {
				s.set(func() { s.u = c.u })
				s.reply = func(id string, n int) {
					if n <= len(c.reasons) {
						s.Closed(id, c.reasons[n-1])
					} else {
						s.EOSE(id)
					}
				}
				s.Register("a", false)
				s.at(20 * time.Minute)
				s.wantTimes(t, c.want...)
				s.wantSurfaced(t)
			})
		})
	}
}

func TestS69Spread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, true)
		draws := 0.0
		s.set(func() { s.u = 0 })
		s.Ready()
		for i := range 20 {
			s.Register(fmt.Sprint(i), false)
		}
		for i := range 20 {
			draws += 1.0 / 20
			s.set(func() { s.u = draws })
			s.Closed(fmt.Sprint(i), "rate-limited: retry in 30s")
		}
		s.at(29 * second)
		if n := len(s.times()); n != 20 {
			t.Fatalf("%d REQs while the gate is active", n)
		}
		s.at(31 * second)
		times := s.times()[20:]
		if len(times) != 20 {
			t.Fatalf("%d repeats", len(times))
		}
		if first, last := slices.Min(times), slices.Max(times); first < 30*second || last > 30*second+ms(500) {
			t.Errorf("repeats from %s to %s, want within 500 ms after 30 s", first, last)
		}
	})
}

// S68 and S70: what makes a repeat needless, and the count begin anew.
func TestS68And70Dropped(t *testing.T) {
	for name, c := range map[string]struct {
		do func(s *session)
		// reqs there are after the first one: those of a new connection.
		more int
	}{
		"EOSE":            {func(s *session) { s.EOSE("a") }, 0},
		"unsubscribe":     {func(s *session) { s.Unregister("a") }, 0},
		"disconnect":      {func(s *session) { s.Disconnected() }, 0},
		"new socket":      {func(s *session) { s.Ready() }, 1},
		"shutdown":        {func(s *session) { s.Close() }, 0},
		"registered anew": {func(s *session) { s.Register("a", false) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reason := range []string{"error: busy", "rate-limited: retry in 60s", "auth-required: who"} {
				run(t, func(t *testing.T, s *session) {
					s.set(func() { s.authTime = 5 * second })
					s.Register("a", false)
					s.Closed("a", reason)
					s.at(ms(500))
					c.do(s)
					s.at(time.Hour)
					if n := len(s.times()) - 1; n != c.more {
						t.Errorf("after %s: %d REQs more, want %d", reason, n, c.more)
					}
					s.wantSurfaced(t)
				})
			}
		})
	}
}

func TestS70CountBeginsAnew(t *testing.T) {
	for name, do := range map[string]func(s *session){
		"EOSE":       func(s *session) { s.EOSE("a") },
		"new socket": func(s *session) { s.Disconnected(); s.Ready() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *session) {
				s.Register("a", false)
				for range 3 {
					for range 5 {
						s.Closed("a", "error: busy")
						s.at(time.Since(s.start) + time.Minute)
					}
					s.wantSurfaced(t)
					do(s)
					synctest.Wait()
				}
			})
		})
	}
}

func TestS71Authenticate(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.set(func() { s.authTime = 2 * second })
		s.Gate().Activate(5 * time.Minute) // which does not delay it
		s.Register("a", false)
		s.Closed("a", "auth-required: who")
		s.at(time.Minute)
		s.wantTimes(t, 0, 2*second)
		s.Gate().Reset()
		// It was none of the five.
		for range 5 {
			s.Closed("a", "error: busy")
			s.at(time.Since(s.start) + time.Minute)
		}
		if n := len(s.times()); n != 7 {
			t.Errorf("%d REQs, want 7", n)
		}
		s.wantSurfaced(t)
		s.Closed("a", "auth-required: still")
		s.wantSurfaced(t, "a: auth-required: still")
		if s.auths != 1 || s.Registered("a") {
			t.Errorf("authenticated %d times, registered %v", s.auths, s.Registered("a"))
		}
	})
}

// The one repeat is there again after an EOSE and on a new connection.
func TestS71FlagClears(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		s.Closed("a", "auth-required: 1")
		s.at(second)
		s.EOSE("a")
		s.Closed("a", "auth-required: 2")
		s.at(2 * second)
		s.Disconnected()
		s.Ready()
		s.at(3 * second)
		s.Closed("a", "auth-required: 3")
		s.at(4 * second)
		s.wantSurfaced(t)
		if s.auths != 3 || len(s.times()) != 5 {
			t.Errorf("authenticated %d times, %d REQs", s.auths, len(s.times()))
		}
	})
}

func TestS71CannotAuthenticate(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		run(t, func(t *testing.T, s *session) {
			s.set(func() { s.authErr = errors.New("not you") })
			s.Register("a", false)
			s.Closed("a", "auth-required: who")
			s.wantSurfaced(t, "a: auth-required: who")
			s.wantTimes(t, 0)
		})
	})
	t.Run("no key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSession(t, false)
			s.Ready()
			s.Register("a", false)
			s.Closed("a", "auth-required: who")
			s.wantSurfaced(t, "a: auth-required: who")
			s.wantTimes(t, 0)
		})
	})
}

func TestS72Terminal(t *testing.T) {
	for _, reason := range []string{"blocked: no", "restricted: no", "error: too many subscriptions", "error: query timed out", "duplicate: odd"} {
		run(t, func(t *testing.T, s *session) {
			s.Register("a", false)
			s.Closed("a", reason)
			s.Closed("a", reason)
			s.wantSurfaced(t, "a: "+reason)
			if s.Registered("a") {
				t.Error("still registered")
			}
			s.Disconnected()
			s.Ready()
			s.at(time.Hour)
			s.wantTimes(t, 0)
		})
	}
}

func TestS73RegisterIsNotGated(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Gate().Activate(5 * time.Minute)
		s.Register("a", false)
		s.wantTimes(t, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, true)
		if err := s.Register("a", false); err != nil {
			t.Fatal(err)
		}
		s.wantTimes(t)
		s.at(second)
		s.Ready()
		s.wantTimes(t, second)
		s.set(func() { s.sendErr = errors.New("gone") })
		if err := s.Register("b", false); !errors.Is(err, s.sendErr) || !s.Registered("b") {
			t.Errorf("error %v, registered %v", err, s.Registered("b"))
		}
		s.Close()
		if err := s.Register("c", false); !errors.Is(err, ratelimit.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// reconnected has n subscriptions, and a new connection.
func reconnected(t *testing.T, n int, f func(t *testing.T, s *session)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, true)
		for i := range n {
			s.Register(fmt.Sprint(i), i >= n-2)
		}
		s.Ready()
		f(t, s)
	})
}

func TestS74OncePerEpoch(t *testing.T) {
	reconnected(t, 12, func(t *testing.T, s *session) {
		s.Register("new", false) // goes out at once
		s.at(ms(10))
		s.Register("9", false) // whose turn is in the second batch
		s.at(time.Minute)
		count := map[string]int{}
		for _, r := range s.reqs {
			count[r.ID]++
		}
		for id, n := range count {
			if n != 1 {
				t.Errorf("%s had %d REQs, want 1", id, n)
			}
		}
		if len(count) != 13 {
			t.Errorf("%d subscriptions were sent, want 13", len(count))
		}
	})
}

func TestS74PriorityFirst(t *testing.T) {
	reconnected(t, 5, func(t *testing.T, s *session) {
		s.at(second)
		var ids []string
		for _, r := range s.reqs {
			ids = append(ids, r.ID)
		}
		if diff := cmp.Diff([]string{"3", "4", "0", "1", "2"}, ids); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestS75Batches(t *testing.T) {
	for n, want := range map[int]map[time.Duration]int{
		0:  {},
		1:  {0: 1},
		8:  {0: 8},
		9:  {0: 8, ms(50): 1},
		17: {0: 8, ms(50): 8, ms(100): 1},
	} {
		reconnected(t, n, func(t *testing.T, s *session) {
			s.at(time.Minute)
			got := map[time.Duration]int{}
			for _, at := range s.times() {
				got[at]++
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d subscriptions (-want +got):\n%s", n, diff)
			}
		})
	}
}

// The gate is asked before every batch.
func TestS75GateBeforeEveryBatch(t *testing.T) {
	reconnected(t, 20, func(t *testing.T, s *session) {
		s.at(ms(10))
		s.Notice("rate-limited: retry in 20s")
		s.at(20 * second)
		if n := len(s.times()); n != 8 {
			t.Fatalf("%d REQs while the gate is active, want 8", n)
		}
		s.at(20*second + ms(20)) // the window ends 20 s after the notice
		if n := len(s.times()); n != 16 {
			t.Fatalf("%d REQs at its end, want 16", n)
		}
		s.Closed("0", "rate-limited: retry in 30s")
		s.at(40 * second)
		if n := len(s.times()); n != 16 {
			t.Errorf("%d REQs while the gate is active again, want 16", n)
		}
		s.at(2 * time.Minute)
		if n := len(s.times()); n != 21 { // four and the repeat
			t.Errorf("%d REQs in the end, want 21", n)
		}
	})
}

func TestS76DisconnectStopsTheLoop(t *testing.T) {
	reconnected(t, 20, func(t *testing.T, s *session) {
		s.at(ms(60)) // two batches are out
		s.Disconnected()
		s.at(second)
		if n := len(s.times()); n != 16 {
			t.Fatalf("%d REQs, want 16", n)
		}
		s.Ready()
		s.at(2 * second)
		again := s.reqs[16:]
		if len(again) != 20 || again[0].ID != "18" {
			t.Errorf("the next connection had %d REQs, the first of %q, want 20 from the top", len(again), again[0].ID)
		}
	})
	// A Ready without a Disconnected before it ends the old loop too.
	reconnected(t, 20, func(t *testing.T, s *session) {
		s.at(ms(60))
		s.Ready()
		s.at(2 * second)
		if n := len(s.times()); n != 36 {
			t.Errorf("%d REQs, want 16 and 20", n)
		}
	})
	// A disconnect while the gate is active lets nobody send.
	reconnected(t, 20, func(t *testing.T, s *session) {
		s.at(ms(10))
		s.Gate().Activate(time.Minute)
		s.at(second)
		s.Disconnected()
		s.at(time.Hour)
		if n := len(s.times()); n != 8 {
			t.Errorf("%d REQs, want 8", n)
		}
	})
}

// A REQ that is being written when the connection ends is not taken for one of
// the next: Ready waits for it.
func TestReadyWaitsForTheOldSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, true)
		s.Register("a", false)
		s.set(func() { s.sendTime, s.linger = time.Minute, 3*second })
		s.Ready()
		s.at(second)
		s.set(func() { s.sendTime = 0 })
		s.Ready()
		if got := time.Since(s.start); got != 4*second {
			t.Errorf("Ready returned after %s, want 4s", got)
		}
		s.at(5 * second)
		s.wantTimes(t, 0, 4*second)
	})
}

// S68: what has changed while a repeat waited for another REQ to be written is
// seen.
func TestS68ChecksLast(t *testing.T) {
	for name, do := range map[string]func(s *session){
		"disconnect":  func(s *session) { s.Disconnected() },
		"unsubscribe": func(s *session) { s.Unregister("a") },
		"EOSE":        func(s *session) { s.EOSE("a") },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *session) {
				s.set(func() { s.linger = 2 * second })
				s.Register("a", false)
				s.Closed("a", "error: busy") // repeat at 1 s
				s.set(func() { s.sendTime = 3 * second })
				go s.Register("b", false) // is written until 3 s
				s.at(2 * second)
				do(s)
				s.at(time.Minute)
				s.wantTimes(t, 0, 0) // of a and of b
			})
		})
	}
}

// S56: the budget belonged to the connection that is over.
func TestDisconnectResetsTheGate(t *testing.T) {
	for name, do := range map[string]func(s *session){
		"disconnect": func(s *session) { s.Disconnected() },
		"new socket": func(s *session) { s.Ready() },
		"shutdown":   func(s *session) { s.Close() },
	} {
		run(t, func(t *testing.T, s *session) {
			s.Notice("rate-limited: retry in 100s")
			if !s.Gate().Active() {
				t.Fatal("the notice did not open a window (S63)")
			}
			do(s)
			if s.Gate().Active() {
				t.Errorf("%s: the window is still there", name)
			}
		})
	}
}

// After Unregister no REQ follows, not even one that was about to be written.
func TestUnregisterWaitsForTheSend(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		s.Closed("a", "error: busy")
		s.set(func() { s.sendTime = 3 * second })
		s.at(2 * second) // the repeat is being written since one second
		s.Unregister("a")
		if got := time.Since(s.start); got != 4*second {
			t.Errorf("Unregister returned after %s, want 4s", got)
		}
	})
}

func TestS77Since(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		now := time.Now().Unix()
		s.Register("a", false)
		if !s.Event("a", now-100) || s.Event("unknown", now) {
			t.Error("events that were asked for are not told from others")
		}
		s.Ready()
		s.at(second) // no EOSE yet: the filter as it is
		s.EOSE("a")
		s.Event("a", now-50)
		s.Event("a", now-70)
		s.Ready()
		s.at(2 * second)
		s.Event("a", now+9999) // from the future
		s.Ready()
		s.at(3 * second)
		got := []int64{}
		for _, r := range s.reqs {
			got = append(got, r.Since)
		}
		if diff := cmp.Diff([]int64{0, 0, now - 55, now + 2 - 5}, got); diff != "" {
			t.Errorf("since (-want +got):\n%s", diff)
		}
	})
	// An EOSE without any event leaves the filter as it is.
	run(t, func(t *testing.T, s *session) {
		s.Register("a", false)
		s.EOSE("a")
		s.Ready()
		synctest.Wait()
		if s.reqs[1].Since != 0 {
			t.Errorf("since %d", s.reqs[1].Since)
		}
	})
}

// A CLOSED of a REQ that this connection has not sent yet is none of it.
func TestClosedOfAnotherConnection(t *testing.T) {
	reconnected(t, 9, func(t *testing.T, s *session) {
		synctest.Wait() // the ninth waits for its batch
		id := "6"
		if r := s.Closed(id, "blocked: late"); r.Action != ratelimit.Terminal {
			t.Errorf("%+v", r)
		}
		s.at(second)
		s.wantSurfaced(t)
		if n := len(s.times()); n != 9 {
			t.Errorf("%d REQs, want 9", n)
		}
		s.Disconnected()
		s.Closed(id, "blocked: too late")
		s.wantSurfaced(t)
	})
}

func TestSurfacedByPrefix(t *testing.T) {
	run(t, func(t *testing.T, s *session) {
		s.WithoutRepeats()
		for i, reason := range []string{"blocked: 1", "BLOCKED: 2", "no colon", "made-up-17: x", "made-up-18: x", "auth-required: x", "error: query timed out"} {
			s.set(func() { s.authErr = errors.New("no") })
			id := fmt.Sprint(i)
			s.Register(id, false)
			s.Closed(id, reason)
			synctest.Wait()
		}
		want := map[string]int{"blocked": 2, "none": 1, "other": 2, "auth-required": 1, "error": 1}
		if diff := cmp.Diff(want, s.Surfaced()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
