package monitor

import "time"

// Cadence says when a vantage probes a relay next (corroboration.md, Cadence).
// It keeps no state and draws no lots: slots follow from the relay's and the
// vantage's names, so that a restart moves none of them, and a slot that was
// missed is never made up for.
type Cadence struct {
	Interval        time.Duration // between looks at an online relay
	SecondLook      time.Duration // after a return
	FirstWithin     time.Duration // for a relay never measured here
	CandidateWithin time.Duration // the same for a candidate
	DeadRetry       time.Duration // between looks at a dead relay
	DeadLong        time.Duration // the same once its streak is older than DeadLongAfter
	DeadLongAfter   time.Duration
	RetryAfterMax   time.Duration // more of a Retry-After is not obeyed
	FailureWindow   time.Duration // liveness.failure_window
	InfoEvery       time.Duration // between NIP-11 documents
	FactsEvery      time.Duration // between looks at both address families
	DepthEvery      time.Duration // between tests of capabilities, and of writing
}

// DefaultCadence returns the cadence table with its numbers.
func DefaultCadence() Cadence {
	return Cadence{
		Interval:        5 * time.Minute,
		SecondLook:      30 * time.Second,
		FirstWithin:     time.Minute,
		CandidateWithin: 10 * time.Minute,
		DeadRetry:       time.Hour,
		DeadLong:        24 * time.Hour,
		DeadLongAfter:   7 * 24 * time.Hour,
		RetryAfterMax:   time.Hour,
		FailureWindow:   30 * time.Minute,
		InfoEvery:       time.Hour,
		FactsEvery:      6 * time.Hour,
		DepthEvery:      24 * time.Hour,
	}
}

// CandidateLadder is how many counted failures a candidate's one failing
// ladder has: S11's 0, 30, 90, 210, 450 and 750 s, the earliest death.
const CandidateLadder = 6

// Phase is where in the interval this vantage looks at this relay.
func (c Cadence) Phase(relay RelayURL, vantage string) time.Duration {
	return phase(spread(relay, vantage), c.Interval)
}

// Slot returns the first moment after t at which this vantage looks at this
// relay when nothing is known of it but that it is watched.
func (c Cadence) Slot(relay RelayURL, vantage string, t time.Time) time.Time {
	return slot(t, c.Interval, spread(relay, vantage))
}

// First returns when a relay that was never measured here is first due: spread
// over a minute, a candidate over ten.
func (c Cadence) First(relay RelayURL, vantage string, t Task, now time.Time) time.Time {
	within := c.FirstWithin
	if t.Candidate {
		within = c.CandidateWithin
	}
	return now.Add(phase(spread(relay, vantage), within))
}

// Next returns when the relay is due after a probe that ended with o, always
// after now. prev and rec are the record before and after the step, retryAfter
// is what a 429 asked for (0 = nothing).
//
// A probe that measured nothing, or was let in nowhere, waits for the interval's
// next slot, a dead relay's too: its vote would lapse before DeadRetry. A
// restored or recovered record (offline, no streak) counts as no return.
func (c Cadence) Next(prev, rec Record, relay RelayURL, vantage string, t Task, o Outcome, retryAfter time.Duration, now time.Time) time.Time {
	h := spread(relay, vantage)
	if retryAfter > 0 {
		return slot(now.Add(min(retryAfter, c.RetryAfterMax)), c.Interval, h)
	}
	switch {
	case o.Success():
		if prev.State == StateDead || prev.State == StateOffline && prev.FailureCount > 0 {
			return now.Add(c.SecondLook)
		}
	case o != OutcomeFailed:
	case rec.State == StateDead:
		return c.dead(rec, h, t, now)
	case rec.State == StateOffline && t.Candidate && c.climbed(prev, rec):
		return slot(later(now, rec.BackoffUntil), c.DeadLong, h)
	case rec.State == StateOffline && rec.BackoffUntil.After(now):
		return rec.BackoffUntil
	}
	return slot(now, c.Interval, h)
}

// dead: after an hour, or once a day where the streak or the relay's standing
// says that it hardly comes back; never before the cooldown's end, when a
// failure would not count.
func (c Cadence) dead(rec Record, h uint64, t Task, now time.Time) time.Time {
	if t.Candidate || !rec.FirstFailure.IsZero() && now.Sub(rec.FirstFailure) >= c.DeadLongAfter {
		return slot(later(now, rec.BackoffUntil), c.DeadLong, h)
	}
	if rec.BackoffUntil.After(now) {
		return rec.BackoffUntil
	}
	return slot(now, c.DeadRetry, h)
}

// climbed reports whether a candidate's one ladder is over: it has failed as
// often as the ladder is long, or comes from a daily look, which restarted the
// streak (S8).
func (c Cadence) climbed(prev, rec Record) bool {
	return rec.FailureCount >= CandidateLadder ||
		prev.FailureCount > 0 && rec.LastFailure.Sub(prev.LastFailure) > c.FailureWindow
}

// InfoDue reports whether the NIP-11 document last read at last should be read
// again in a probe at now: once per InfoEvery, at an hour's minute of the
// relay's own.
func (c Cadence) InfoDue(relay RelayURL, vantage string, last, now time.Time) bool {
	return due(c.InfoEvery, relay, vantage, last, now)
}

// FactsDue is InfoDue for trying both address families apart.
func (c Cadence) FactsDue(relay RelayURL, vantage string, last, now time.Time) bool {
	return due(c.FactsEvery, relay, vantage, last, now)
}

// DepthDue is InfoDue for the tests of capabilities and of writing.
func (c Cadence) DepthDue(relay RelayURL, vantage string, last, now time.Time) bool {
	return due(c.DepthEvery, relay, vantage, last, now)
}

// newDepthWithin is how soon the capabilities of a relay that is new are tested.
const newDepthWithin = time.Hour

// FirstDepth returns from when on DepthDue counts for a relay that this process
// has not tested yet. It is the relay's own slot, which a restart does not move:
// however often a vantage restarts, it tests no relay twice a day for that, nor
// all of them at once. One that is new gets it within an hour, at the minute of
// its own.
func (c Cadence) FirstDepth(relay RelayURL, vantage string, isNew bool, now time.Time) time.Time {
	every := c.DepthEvery
	if isNew {
		every = min(every, newDepthWithin)
	}
	return slot(now, every, spread(relay, vantage))
}

func due(every time.Duration, relay RelayURL, vantage string, last, now time.Time) bool {
	return last.IsZero() || !slot(last, every, spread(relay, vantage)).After(now)
}

// slot returns the first moment after t that lies at h's phase of every.
func slot(t time.Time, every time.Duration, h uint64) time.Time {
	if every <= 0 {
		return t.Add(1)
	}
	p := int64(phase(h, every))
	e := int64(every)
	since := (t.UnixNano() - p) % e
	if since < 0 {
		since += e
	}
	return time.Unix(0, t.UnixNano()-since+e).UTC()
}

func phase(h uint64, every time.Duration) time.Duration {
	if every <= 0 {
		return 0
	}
	return time.Duration(h % uint64(every))
}

// spread is FNV-1a over both names, finished by murmur3's mixer since FNV alone
// leaves names that differ in their last letter close together. It must never
// change: every phase hangs on it.
func spread(relay RelayURL, vantage string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(relay); i++ {
		h = (h ^ uint64(relay[i])) * prime
	}
	h *= prime // a zero byte between the names
	for i := 0; i < len(vantage); i++ {
		h = (h ^ uint64(vantage[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
