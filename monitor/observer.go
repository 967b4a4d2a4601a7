package monitor

import "time"

// Observer is what one observer (a vantage) shares between its records: whether
// its network is there, and which other relays answered lately. It is O(1) in
// the number of relays (S24) and not safe for concurrent use.
type Observer struct {
	unavailable bool
	hidden      bool
	// recoveredAt is when the last recovery began its grace; zero = none yet.
	recoveredAt time.Time
	// epoch is the last recovery, at first the construction: nothing at or
	// before it corroborates.
	epoch time.Time
	// newest holds, per network, the newest successes of two distinct relays,
	// so that one is always there that is not the failing relay itself.
	newest [numNetworks][2]relaySuccess
	// canary holds the two newest successes of canaries, newest first.
	canary [2]time.Time
}

type relaySuccess struct {
	relay RelayURL
	at    time.Time
}

// NewObserver returns an observer with its network available and visible. What
// succeeded at or before now corroborates nothing.
func NewObserver(now time.Time) *Observer { return &Observer{epoch: now} }

// Clone returns an independent copy, so that a caller can step on it and
// discard the result.
func (v *Observer) Clone() *Observer {
	c := *v
	return &c
}

// SetNetworkAvailable says whether the observer's own network works (S25). It
// reports whether that was a recovery (S26): then the grace has begun, and the
// caller applies Liveness.Recover to its records.
func (v *Observer) SetNetworkAvailable(ok bool, now time.Time) (recovered bool) {
	return v.set(&v.unavailable, !ok, now)
}

// SetHidden says whether the observer is hidden, with the same effect as an
// unavailable network; the two are independent (S31).
func (v *Observer) SetHidden(hidden bool, now time.Time) (recovered bool) {
	return v.set(&v.hidden, hidden, now)
}

func (v *Observer) set(flag *bool, to bool, now time.Time) bool {
	was := v.deaf()
	*flag = to
	if !was || v.deaf() {
		return false
	}
	v.recover(now)
	return true
}

// Recovered begins the grace and a new epoch for a recovery that is no change
// of availability: a machine that slept, a clock that jumped, a failure spike
// that passed. The grace's length is that of the Liveness that steps.
func (v *Observer) Recovered(now time.Time) { v.recover(now) }

func (v *Observer) recover(now time.Time) {
	v.recoveredAt, v.epoch = now, now
	// Nothing older may corroborate (S29). Forgetting it, rather than trusting
	// epoch alone, also holds when the clock went back.
	clear(v.newest[:])
	clear(v.canary[:])
}

// CanarySucceeded registers a canary's success, which corroborates like another
// clearnet relay's. Older ones than the newest change nothing; the zero time is
// ignored.
func (v *Observer) CanarySucceeded(at time.Time) {
	if at.After(v.canary[0]) {
		v.canary[0], v.canary[1] = at, v.canary[0]
	}
}

// deaf reports whether failures say nothing now (S25).
func (v *Observer) deaf() bool { return v.unavailable || v.hidden }

// succeeded registers a relay's success. The newest never moves backwards.
func (v *Observer) succeeded(relay RelayURL, at time.Time) {
	n := &v.newest[relay.Network().index()]
	switch {
	case n[0].relay == relay:
		n[0].at = later(n[0].at, at)
	case !at.Before(n[0].at):
		n[0], n[1] = relaySuccess{relay, at}, n[0]
	case n[1].relay == relay:
		n[1].at = later(n[1].at, at)
	case at.After(n[1].at):
		n[1] = relaySuccess{relay, at}
	}
}

// corroborates reports whether something else of the same network succeeded
// since the relay's preceding counted failure and within the window (S10, S13).
// The window also bounds successes after the failure, which an observer sees
// when evidence reaches it out of order.
func (v *Observer) corroborates(relay RelayURL, preceding, at time.Time, window time.Duration) bool {
	fits := func(s time.Time) bool {
		return s.After(v.epoch) && s.After(preceding) && at.Sub(s).Abs() <= window
	}
	n := relay.Network()
	for _, s := range v.newest[n.index()] {
		if s.relay != relay && fits(s.at) {
			return true
		}
	}
	return n == Clearnet && (fits(v.canary[0]) || fits(v.canary[1]))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
