package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

const second = time.Second

// step is one call of Activate.
type step struct{ at, hint time.Duration }

// windowOf runs the steps and returns when the gate opens, since the beginning.
func windowOf(t *testing.T, steps []step) (open time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var g ratelimit.Gate
		start := time.Now()
		for _, s := range steps {
			elapse(s.at - time.Since(start))
			g.Activate(s.hint)
		}
		if err := g.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		open = time.Since(start)
		if g.Active() || g.Remaining() != 0 {
			t.Errorf("the gate is active at its end: %s remain", g.Remaining())
		}
	})
	return open
}

func TestS51And53Windows(t *testing.T) {
	for name, c := range map[string]struct {
		steps []step
		want  time.Duration
	}{
		"a hint":                   {[]step{{0, 7 * second}}, 7 * second},
		"the shortest":             {[]step{{0, 1 * second}}, 1 * second},
		"the longest":              {[]step{{0, 300 * second}}, 300 * second},
		"too long":                 {[]step{{0, 9999 * second}}, 300 * second},
		"beyond every clock":       {[]step{{0, 1<<63 - 1}}, 300 * second},
		"none":                     {[]step{{0, 0}}, 10 * second},
		"below zero":               {[]step{{0, -5 * second}}, 10 * second},
		"never shrinks":            {[]step{{0, 60 * second}, {0, 5 * second}, {0, 0}}, 60 * second},
		"extends":                  {[]step{{0, 5 * second}, {3 * second, 5 * second}}, 8 * second},
		"ends, not lengths (S53)":  {[]step{{0, 60 * second}, {40 * second, 30 * second}}, 70 * second},
		"the same end":             {[]step{{0, 60 * second}, {30 * second, 30 * second}}, 60 * second},
		"at the end of another":    {[]step{{0, 10 * second}, {10 * second, 10 * second}}, 20 * second},
		"long after another":       {[]step{{0, 10 * second}, {100 * second, 0}}, 110 * second},
		"many, each a bit further": {[]step{{0, 0}, {1 * second, 0}, {2 * second, 0}, {9 * second, 0}}, 19 * second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := windowOf(t, c.steps); got != c.want {
				t.Errorf("the gate opens after %s, want %s", got, c.want)
			}
		})
	}
}

// The vectors of S51, asked for as they are written.
func TestS50Active(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g ratelimit.Gate
		if g.Active() || g.Remaining() != 0 {
			t.Fatal("a new gate is active")
		}
		g.Activate(60 * second)
		g.Activate(5 * second)
		g.Activate(0)
		elapse(59 * second)
		if !g.Active() || g.Remaining() != second {
			t.Errorf("at 59 s: active %v, %s remain", g.Active(), g.Remaining())
		}
		elapse(second)
		if g.Active() {
			t.Error("active at its end")
		}
		elapse(second)
		if g.Active() {
			t.Error("active at 61 s")
		}
		g.Activate(9999 * second)
		elapse(299 * second)
		if !g.Active() {
			t.Error("not active at 299 s")
		}
		elapse(2 * second)
		if g.Active() {
			t.Error("active at 301 s")
		}
	})
}

func TestS54Wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g ratelimit.Gate
		start := time.Now()
		if err := g.Wait(t.Context()); err != nil || time.Since(start) != 0 {
			t.Fatalf("an inactive gate took %s: %v", time.Since(start), err)
		}
		g.Activate(10 * second)
		const waiters = 20
		left := make([]time.Duration, waiters)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				elapse(time.Duration(i) * second / 4) // some wait from before the extension, some from after
				if err := g.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				left[i] = time.Since(start)
			})
		}
		elapse(3 * second)
		g.Activate(30 * second)
		wg.Wait()
		for i, at := range left {
			if at != 33*second {
				t.Errorf("waiter %d left at %s, want 33s with all others", i, at)
			}
		}
	})
}

func TestS54Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g ratelimit.Gate
		g.Activate(60 * second)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*second)
		defer cancel()
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 4*second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended: %v", err)
		}
		g.Reset()
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that has ended, an open gate: %v", err)
		}
	})
}

func TestS56Reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g ratelimit.Gate
		g.Reset()
		g.Activate(60 * second)
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := g.Wait(t.Context()); err != nil || time.Since(start) != 2*second {
					t.Errorf("left after %s: %v", time.Since(start), err)
				}
			})
		}
		elapse(2 * second)
		g.Reset()
		wg.Wait()
		if g.Active() {
			t.Error("active after Reset")
		}
		// The next connection's window is its own: the old timer, due at 60 s,
		// releases nobody (S55).
		elapse(50*second - time.Since(start))
		g.Activate(30 * second)
		if err := g.Wait(t.Context()); err != nil || time.Since(start) != 80*second {
			t.Errorf("left after %s: %v", time.Since(start), err)
		}
	})
}

// Whatever a relay says and whenever: the gate does as a list of ends does.
func TestGateProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type act struct {
			after time.Duration
			what  int // 0 to 5 Activate, 6 Reset, 7 and more Wait
			hint  time.Duration
		}
		acts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) act {
			return act{
				after: time.Duration(rapid.IntRange(0, 40).Draw(rt, "after")) * second,
				what:  rapid.IntRange(0, 10).Draw(rt, "what"),
				hint:  time.Duration(rapid.IntRange(-10, 400).Draw(rt, "hint")) * second,
			}
		}), 1, 40).Draw(rt, "acts")
		var problems []string
		synctest.Test(t, func(t *testing.T) {
			var g ratelimit.Gate
			var end time.Time // the model
			type waiter struct {
				from, left, due time.Time
			}
			var waiters []*waiter
			var wg sync.WaitGroup
			waiting := func(now time.Time) (out []*waiter) {
				for _, w := range waiters {
					if w.due.IsZero() || w.due.After(now) {
						out = append(out, w)
					}
				}
				return out
			}
			for _, a := range acts {
				elapse(a.after)
				synctest.Wait()
				now := time.Now()
				switch {
				case a.what < 6:
					hint := a.hint
					if hint <= 0 {
						hint = ratelimit.DefaultWindow
					}
					to := now.Add(min(hint, ratelimit.MaxWindow))
					before := waiting(now)
					if to.After(end) {
						end = to
						for _, w := range before {
							w.due = end
						}
					}
					g.Activate(a.hint)
				case a.what == 6:
					for _, w := range waiting(now) {
						w.due = now
					}
					end = time.Time{}
					g.Reset()
				default:
					w := &waiter{from: now, due: end}
					if !now.Before(end) {
						w.due = now
					}
					waiters = append(waiters, w)
					wg.Go(func() {
						if err := g.Wait(t.Context()); err != nil {
							panic(err)
						}
						w.left = time.Now()
					})
				}
				synctest.Wait()
				if want := max(0, end.Sub(now)); g.Remaining() != want || g.Active() != (want > 0) {
					problems = append(problems, fmt.Sprintf("%s remain, want %s", g.Remaining(), want))
				}
			}
			wg.Wait()
			for i, w := range waiters {
				if !w.left.Equal(w.due) {
					problems = append(problems, fmt.Sprintf("waiter %d left after %s, want %s", i, w.left.Sub(w.from), w.due.Sub(w.from)))
				}
			}
			g.Reset()
		})
		if len(problems) > 0 {
			rt.Fatalf("%q", problems)
		}
	})
}
