package ratelimit

import (
	"context"
	"sync"
	"time"
)

// The default of a Bucket for publishing to one upstream (S78).
const (
	PublishRate  = 5 // a second
	PublishBurst = 50
)

// Bucket is a token bucket. It is full in the beginning, and is safe for
// concurrent use.
type Bucket struct {
	mu    sync.Mutex
	rate  float64 // tokens a second
	burst float64
	// tokens there were at the time; below zero = so many are promised to those
	// who wait.
	tokens float64
	at     time.Time
}

// NewBucket makes a bucket of burst tokens that gets rate new ones a second.
// Where rate or burst is not above zero, the default of S78 holds.
func NewBucket(rate float64, burst int) *Bucket {
	if !(rate > 0) {
		rate = PublishRate
	}
	if burst <= 0 {
		burst = PublishBurst
	}
	return &Bucket{rate: rate, burst: float64(burst), tokens: float64(burst), at: time.Now()}
}

// Allow takes a token if there is one.
func (b *Bucket) Allow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// Wait takes a token, the next one that nobody was promised before, and returns
// when it is there. A ctx that has ended returns its error, and the token goes
// back.
func (b *Bucket) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	b.fill()
	b.tokens--
	missing := -b.tokens
	b.mu.Unlock()
	if missing <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(missing / b.rate * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		b.fill()
		b.tokens = min(b.burst, b.tokens+1)
		b.mu.Unlock()
		return ctx.Err()
	}
}

// fill adds what has come since; b.mu is held.
func (b *Bucket) fill() {
	now := time.Now()
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
}
