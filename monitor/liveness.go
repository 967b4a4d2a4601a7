package monitor

import "time"

// Record is one observer's view of one relay (liveness.md, Data). The zero
// value is an unknown relay.
type Record struct {
	State        State
	FailureCount int
	FirstFailure time.Time // start of the streak; zero = no streak
	LastFailure  time.Time // last counted failure, kept after a success
	LastSuccess  time.Time
	BackoffUntil time.Time // zero = none
	// Corroborated: the newest counted failure was corroborated, as in S10 or
	// by a canary's success after the preceding one.
	Corroborated bool
	// The following belong to this process and are never stored.
	SessionSuccess time.Time
	OnlineSince    time.Time // first success of the present run of successes
}

// Liveness holds the options of the step that turns evidence into a record
// (liveness.md). A record and its observer are stepped with one Liveness.
type Liveness struct {
	MaxFailuresBeforeDead int           // fewest counted failures before dead
	MinFailureDuration    time.Duration // shortest streak before dead
	ConnectivityWindow    time.Duration // oldest success of another relay that corroborates
	FailureWindow         time.Duration // longest gap between failures of one streak
	BackoffBaseDelay      time.Duration // first cooldown
	BackoffMaxDelay       time.Duration // longest ordinary cooldown
	DeadRetryDelay        time.Duration // cooldown of a dead relay
	RecoveryGracePeriod   time.Duration // failures are ignored so long after a recovery
}

// DefaultLiveness returns the defaults of liveness.md.
func DefaultLiveness() Liveness {
	return Liveness{
		MaxFailuresBeforeDead: 5,
		MinFailureDuration:    10 * time.Minute,
		ConnectivityWindow:    time.Minute,
		FailureWindow:         30 * time.Minute,
		BackoffBaseDelay:      30 * time.Second,
		BackoffMaxDelay:       5 * time.Minute,
		DeadRetryDelay:        time.Hour,
		RecoveryGracePeriod:   15 * time.Second,
	}
}

// Effect is what became of one piece of evidence.
type Effect uint8

// The effects. Only EffectCounted and EffectSucceeded come with a changed
// record.
const (
	EffectNoEvidence Effect = iota // the outcome says nothing about the relay
	EffectIgnored                  // a failure that does not count (S4, S22)
	EffectCounted                  // a counted failure
	EffectSucceeded                // a success
)

var effectNames = names[Effect]{"no_evidence", "ignored", "counted", "succeeded"}

func (e Effect) String() string { return effectNames.text(e) }

// Step applies the outcome of one request to relay, begun at started and ended
// at, to the observer's record of it, and returns the new record. A success is
// registered with v, where it may corroborate other relays' failures; nothing
// else of v changes. Evidence of one observer is stepped in the order of at.
func (l Liveness) Step(r Record, v *Observer, relay RelayURL, o Outcome, started, at time.Time) (Record, Effect) {
	switch {
	case o.Success():
		if !relay.valid() {
			return r, EffectIgnored
		}
		v.succeeded(relay, at)
		return r.succeed(at), EffectSucceeded
	case o == OutcomeFailed:
		if !relay.valid() || l.ignores(r, v, started, at) {
			return r, EffectIgnored
		}
		return l.fail(r, v, relay, at), EffectCounted
	}
	return r, EffectNoEvidence
}

// succeed is S3.
func (r Record) succeed(at time.Time) Record {
	if r.State != StateOnline || r.OnlineSince.IsZero() {
		r.OnlineSince = at
	}
	r = r.withoutStreak()
	r.State = StateOnline
	r.LastSuccess = later(r.LastSuccess, at)
	r.SessionSuccess = later(r.SessionSuccess, at)
	return r
}

// withoutStreak clears streak and cooldown.
func (r Record) withoutStreak() Record {
	r.FailureCount = 0
	r.FirstFailure = time.Time{}
	r.BackoffUntil = time.Time{}
	r.Corroborated = false
	return r
}

// ignores tells which failures change nothing: S4 (b) to (d), and S22.
func (l Liveness) ignores(r Record, v *Observer, started, at time.Time) bool {
	switch {
	case v.deaf():
		return true
	case !v.recoveredAt.IsZero() && at.Before(v.recoveredAt.Add(l.RecoveryGracePeriod)):
		return true
	case at.Before(r.BackoffUntil):
		return true
	}
	return !r.SessionSuccess.IsZero() && !r.SessionSuccess.Before(started)
}

// fail counts a failure: S4 (e) to (h).
func (l Liveness) fail(r Record, v *Observer, relay RelayURL, at time.Time) Record {
	preceding := r.LastFailure
	// A dead relay's streak outlives any gap: its retries are further apart
	// than the window (S8).
	if r.State != StateDead && r.FailureCount > 0 && at.Sub(preceding) > l.FailureWindow {
		r = r.withoutStreak()
	}
	if r.FailureCount == 0 {
		r.FirstFailure = at
	}
	r.FailureCount++
	r.LastFailure = at
	r.OnlineSince = time.Time{}
	r.Corroborated = v.corroborates(relay, preceding, at, l.ConnectivityWindow)

	delay := l.Backoff(r.FailureCount)
	r.State = StateOffline
	if r.Corroborated && r.FailureCount >= l.MaxFailuresBeforeDead && at.Sub(r.FirstFailure) >= l.MinFailureDuration {
		r.State = StateDead
		delay = l.DeadRetryDelay
	}
	r.BackoffUntil = at.Add(delay)
	return r
}

// Backoff returns the cooldown after the n-th counted failure of a streak that
// is not dead: the base delay, doubled with each failure, at most
// BackoffMaxDelay (S7). It is 0 for n < 1.
func (l Liveness) Backoff(n int) time.Duration {
	if n < 1 || l.BackoffBaseDelay <= 0 {
		return 0
	}
	d := l.BackoffBaseDelay
	for ; n > 1 && d < l.BackoffMaxDelay; n-- {
		if d > l.BackoffMaxDelay/2 { // doubling could overflow
			return l.BackoffMaxDelay
		}
		d *= 2
	}
	return min(d, l.BackoffMaxDelay)
}

// Eligible reports whether the relay may be tried now: it is unknown or online,
// or its cooldown is over (S2).
func (r Record) Eligible(now time.Time) bool {
	return r.State == StateUnknown || r.State == StateOnline || !now.Before(r.BackoffUntil)
}

// Recover applies a recovery of the observer to one record (S26): an excluded
// relay is offline and eligible at once, without a streak. Where since, the
// begin of what is over, is not zero, streaks that began at it or later end
// likewise, excluded or not. Any other record is returned as it is.
func (l Liveness) Recover(r Record, since, now time.Time) Record {
	during := !since.IsZero() && r.FailureCount > 0 && !r.FirstFailure.Before(since)
	if r.Eligible(now) && !during {
		return r
	}
	r = r.withoutStreak()
	r.State = StateOffline
	return r
}

// Restore makes a record that was stored fit to go on with (S43–S47): offline
// whatever it was, its streak kept, its cooldown at most BackoffMaxDelay from
// now, its times not in the future, and nothing left that corroborates. A
// record that makes no sense becomes an unknown relay.
func (l Liveness) Restore(r Record, now time.Time) Record {
	if r.State == StateUnknown || r.State > StateDead || r.FailureCount < 0 {
		return Record{}
	}
	if backoff := r.BackoffUntil; !backoff.IsZero() && backoff.Unix() < 0 {
		return Record{}
	}
	for _, t := range [...]*time.Time{&r.FirstFailure, &r.LastFailure, &r.LastSuccess} {
		if !t.IsZero() && t.Unix() < 0 {
			return Record{}
		}
		if t.After(now) {
			*t = now
		}
	}
	backoff := r.BackoffUntil
	if r.FailureCount == 0 || r.FirstFailure.IsZero() || r.LastFailure.Before(r.FirstFailure) {
		r = r.withoutStreak() // a streak without its times is none
	}
	if latest := now.Add(l.BackoffMaxDelay); backoff.After(latest) {
		backoff = latest
	}
	if !backoff.After(now) {
		backoff = time.Time{}
	}
	r.State = StateOffline
	r.BackoffUntil = backoff
	r.SessionSuccess, r.OnlineSince = time.Time{}, time.Time{}
	return r
}
