package remote

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	retryFirst = time.Second
	retryMost  = time.Minute
	// retryAfterMost is how much of a Retry-After is obeyed.
	retryAfterMost = 15 * time.Minute
)

// gate says when the core may be asked again after it failed: after 1 s, twice
// as long each time, at most 60 s, each between half and all of it by chance, so
// that the vantages of a core that was away do not come back at once. Safe for
// concurrent use.
type gate struct {
	mu    sync.Mutex
	delay time.Duration // of the last failure, 0 = all is well
	until time.Time     // with its monotonic part
}

// wait is how long there is to wait; 0 = the core may be asked.
func (g *gate) wait(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, g.until.Sub(now))
}

// failed closes the gate, for at least what the core asked for.
func (g *gate) failed(now time.Time, retryAfter time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = min(max(retryFirst, 2*g.delay), retryMost)
	wait := g.delay/2 + rand.N(g.delay/2+1)
	wait = max(wait, min(retryAfter, retryAfterMost))
	g.until = now.Add(wait)
}

// succeeded opens it.
func (g *gate) succeeded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay, g.until = 0, time.Time{}
}
