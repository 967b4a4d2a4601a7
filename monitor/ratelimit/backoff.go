package ratelimit

import "time"

// MaxBackoff is the ceiling of the wait before a repeat (S67).
const MaxBackoff = 30 * time.Second

// Ceiling is the most that is waited before the kth repeat, k from 1: 1 s, then
// twice as much each time, at most MaxBackoff (S67).
func Ceiling(k int) time.Duration {
	if k > 5 { // 2⁵ s are more than the most, and shifts overflow
		return MaxBackoff
	}
	return min(MaxBackoff, time.Second<<max(0, k-1))
}

// Backoff is the wait before the kth repeat with full jitter: u, in [0,1], of
// its Ceiling (S67).
func Backoff(k int, u float64) time.Duration {
	return time.Duration(u * float64(Ceiling(k)))
}
