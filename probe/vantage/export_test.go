package vantage

import (
	"time"
)

// Steady makes v measure nothing of this machine, so that a test's virtual time
// alone decides. fds and clocks may be nil.
func (v *Vantage) Steady(clockMoved func() time.Duration, fds func() (int, int, bool)) {
	v.latency = func() time.Duration { return 0 }
	v.cpu = func() (time.Duration, bool) { return 0, false }
	v.descriptors = func() (int, int, bool) { return 0, 0, false }
	if fds != nil {
		v.descriptors = fds
	}
	v.clocks = func(origin time.Time) reading {
		now := time.Now()
		r := reading{wall: now.Round(0), mono: now.Sub(origin)}
		if clockMoved != nil {
			r.wall = r.wall.Add(clockMoved())
		}
		return r
	}
}

// RunLate makes v believe that it just ran d late.
func (v *Vantage) RunLate(d time.Duration) {
	now := time.Now()
	v.lag.mu.Lock()
	v.lag.expected = now.Add(-d)
	v.lag.mu.Unlock()
	v.lag.tick(now)
}

// Felt replaces the lag that the runtime tells; it comes after Steady.
func (v *Vantage) Felt(lag func() time.Duration) { v.latency = lag }
