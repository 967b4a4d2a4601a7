package api

import (
	"sync"
	"time"
)

const (
	// window is the time that limits count over.
	window = time.Minute
	// maxAddresses bounds what a tally remembers of one window: 2 × 65 536
	// entries of 12 bytes are some 4 MB when full.
	maxAddresses = 1 << 16
)

// tally counts what each address did within the last minute. The window
// slides: what the minute before holds counts by the part of it that the last
// 60 s reach into, as if it had been spread evenly. So a burst at the end of one
// minute leaves no room for another at the beginning of the next; of evenly
// spread requests a minute has the limit, and none has twice as many.
// The zero value is ready; it is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	began  time.Time         // of now
	now    map[uint64]uint32 // counts since began
	before map[uint64]uint32 // counts of the minute before
}

// take counts one more for key, unless that were more than limit; then it says
// how long to wait until it is not. What is refused is not counted: whoever
// waits as told is let in. limit must be at least 1.
func (t *tally) take(key uint64, limit int, at time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(at)
	count, known := t.now[key]
	if !known && len(t.now) >= maxAddresses {
		// So many addresses are one attacker's, who is not held by a limit for
		// each. The window ends early, which forgets something of everybody, and
		// refuses nobody.
		t.turn(at)
	}
	into := at.Sub(t.began)
	past := float64(t.before[key])
	if past*(1-into.Seconds()/window.Seconds())+float64(count) <= float64(limit-1) {
		t.now[key] = count + 1
		return 0
	}
	free := float64(limit-1) - float64(count)
	if free < 0 { // only once this window is the one before
		wait = window - into
		into, past, free = 0, float64(count), float64(limit-1)
	}
	wait += time.Duration((1-free/past)*float64(window)) - into
	return max(wait, time.Millisecond)
}

// advance moves the window to where at lies.
func (t *tally) advance(at time.Time) {
	switch elapsed := at.Sub(t.began); {
	case t.now == nil || elapsed < 0 || elapsed >= 2*window:
		t.now, t.before = make(map[uint64]uint32), make(map[uint64]uint32)
		t.began = at
	case elapsed >= window:
		t.turn(t.began.Add(window))
	}
}

// turn begins a new window. The maps are kept: a busy minute is like the last.
func (t *tally) turn(began time.Time) {
	t.now, t.before = t.before, t.now
	clear(t.now)
	t.began = began
}
