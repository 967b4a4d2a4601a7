package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

// The default: 50 at once, then 5 a second.
func TestS78Bucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ratelimit.NewBucket(0, 0)
		start := time.Now()
		for i := range 100 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := time.Duration(max(0, i-49)) * 200 * time.Millisecond
			if got := time.Since(start); got < want || got > want+time.Millisecond {
				t.Fatalf("token %d came after %s, want %s", i, got, want)
			}
		}
		if b.Allow() {
			t.Error("an empty bucket gave a token")
		}
		elapse(time.Hour)
		n := 0
		for b.Allow() {
			n++
		}
		if n != 50 {
			t.Errorf("after an hour it holds %d tokens, want 50", n)
		}
	})
}

// A token that was promised to somebody who left goes to the next.
func TestBucketCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ratelimit.NewBucket(1, 1)
		b.Allow()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 500*time.Millisecond {
			t.Fatalf("after %s: %v", time.Since(start), err)
		}
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a context that has ended: %v", err)
		}
		if err := b.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < second || got > second+time.Millisecond {
			t.Errorf("the token came after %s, want 1s", got)
		}
	})
}

// However many ask: never more than the burst and what came since.
func TestBucketProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Float64Range(0.1, 100).Draw(rt, "rate")
		burst := rapid.IntRange(1, 20).Draw(rt, "burst")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 60).Draw(rt, "gaps")
		var over []time.Duration
		synctest.Test(t, func(t *testing.T) {
			b := ratelimit.NewBucket(rate, burst)
			start := time.Now()
			var mu sync.Mutex
			given := 0
			var wg sync.WaitGroup
			for _, gap := range gaps {
				elapse(time.Duration(gap) * time.Millisecond)
				wg.Go(func() {
					if err := b.Wait(t.Context()); err != nil {
						panic(err)
					}
					mu.Lock()
					defer mu.Unlock()
					given++
					if most := float64(burst) + rate*time.Since(start).Seconds(); float64(given) > most+1e-3 {
						over = append(over, time.Since(start))
					}
				})
			}
			wg.Wait()
		})
		if len(over) > 0 {
			rt.Fatalf("too many tokens at %v", over)
		}
	})
}
