package ratelimit

import (
	"context"
	"sync"
	"time"
)

// The bounds of a window (S51).
const (
	// DefaultWindow is that of a refusal without a usable hint.
	DefaultWindow = 10 * time.Second
	// MaxWindow is the longest that a relay can ask for at once.
	MaxWindow = 300 * time.Second
)

// Gate is what one connection may not send before. A relay that limits the rate
// of requests opens a window, and nothing that asks the gate is sent until it
// ends. The zero value is a gate without a window. It is safe for concurrent
// use and must not be copied.
type Gate struct {
	mu sync.Mutex
	// end of the window, with the monotonic clock's reading; zero = there is none.
	end time.Time
	// released is closed when the window ends; nil where there is none.
	released chan struct{}
	timer    *time.Timer
	// window counts the ends that were set, so that the timer of a replaced one
	// is known (S55).
	window uint64
}

// Activate opens a window of hint, at most MaxWindow; without a hint, 0 or less,
// one of DefaultWindow. The window in force gives way only to one that ends
// later: windows extend and never shrink (S51, S53).
func (g *Gate) Activate(hint time.Duration) {
	if hint <= 0 {
		hint = DefaultWindow
	}
	hint = min(hint, MaxWindow)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	end := now.Add(hint)
	switch {
	case g.active(now) && !end.After(g.end):
		return
	case !g.active(now):
		g.release() // those of an ended window whose timer has yet to run
		g.released = make(chan struct{})
	}
	g.end = end
	g.window++
	window := g.window
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(hint, func() { g.expire(window) })
}

// Active reports whether a window is in force (S50).
func (g *Gate) Active() bool { return g.Remaining() > 0 }

// Remaining is how long the window in force still lasts; 0 = there is none
// (S50).
func (g *Gate) Remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(0, time.Until(g.end))
}

// Wait returns when no window is in force: at once, or when the one that it
// found ends, however often that is extended meanwhile. Everyone who waits for
// one window leaves together. Whoever comes back checks again whether what it
// meant to send is still wanted (S56). A ctx that has ended returns its error,
// whether or not the gate was open.
func (g *Gate) Wait(ctx context.Context) error {
	g.mu.Lock()
	released := g.released
	if !g.active(time.Now()) {
		released = nil
	}
	g.mu.Unlock()
	if released != nil {
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Reset ends the window and lets everyone go. It is called when the connection
// is over, since the budget belonged to that one (S56).
func (g *Gate) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release()
}

func (g *Gate) active(now time.Time) bool { return now.Before(g.end) }

// expire is what the timer of a window calls.
func (g *Gate) expire(window uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if window == g.window {
		g.release()
	}
}

// release ends the window; g.mu is held.
func (g *Gate) release() {
	g.end = time.Time{}
	g.window++
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if g.released != nil {
		close(g.released)
		g.released = nil
	}
}
