package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// maxDue bounds the due times of one answer; the rest comes with the next ones.
const maxDue = 500

// resume makes a stored record fit to go on with, and follows the relay where
// the vantage's own record may have run ahead of ours. The outcome is not
// stored: it counts from now on.
func (e *Engine) resume(v *vantage, r *relay, old monitor.VantageRelay, now time.Time) monitor.VantageRelay {
	ahead := old.Record.State != monitor.StateOnline
	old.Record = e.cfg.Liveness.Restore(old.Record, now)
	if s := old.Record.LastSuccess; s.After(r.Verdict.LastSuccess) {
		r.Verdict.LastSuccess = s
	}
	if v.Remote() && ahead { // one of this process starts anew as well, and looks within a minute
		v.follow.Set(r.URL, e.wanted(v, r, &old, now))
	}
	return old
}

// wanted is when our record of a relay wants the vantage's next look.
func (e *Engine) wanted(v *vantage, r *relay, seen *monitor.VantageRelay, now time.Time) time.Time {
	switch {
	case seen.Outcome.Measured():
		return seen.NextDue
	case seen.Record == (monitor.Record{}):
		return now // forgotten
	case r.Candidate:
		return e.cfg.Cadence.First(r.URL, v.Name, monitor.Task{Relay: r.URL, Candidate: true}, now)
	}
	// Spread over an interval, and not while a failure would not count.
	from := now
	if b := seen.Record.BackoffUntil; b.After(from) {
		from = b
	}
	return e.cfg.Cadence.Slot(r.URL, v.Name, from)
}

// lookAgain tells a vantage when our records want relays looked at that it may plan
// later by its own: where our record was forgotten, restored or passed over, the
// vantage's may say dead, and it would come back in an hour. It is over with the next
// success. Its caller holds mu.
func (e *Engine) lookAgain(i int, now time.Time) map[monitor.RelayURL]time.Time {
	v := e.vantages[i]
	if v.Skew.Abs() > e.cfg.Corroboration.MaxClockSkew {
		return nil // what it sees would be history only
	}
	var out map[monitor.RelayURL]time.Time
	for len(out) < maxDue {
		u, _, ok := v.follow.Pop(now)
		if !ok {
			break
		}
		r := e.byURL[u]
		if r == nil || r.twin != "" || !v.Reaches(u.Network()) || e.settled(&r.seen[i], now) {
			v.follow.Remove(u)
			continue
		}
		switch {
		case r.PausedUntil.After(now):
			v.follow.Set(u, r.PausedUntil)
			continue
		case v.Lost(u.Network()):
			v.follow.Set(u, now.Add(monitor.ExpeditedTimeout))
			continue
		}
		at := e.wanted(v, r, &r.seen[i], now)
		if at.Before(now) {
			at = now
		}
		if out == nil {
			out = make(map[monitor.RelayURL]time.Time)
		}
		out[u] = at
		v.follow.Set(u, at.Add(monitor.ExpeditedTimeout)) // unless it was looked at until then
	}
	return out
}

// settled reports whether the relay is looked at once a day, by our record as by
// any other.
func (e *Engine) settled(seen *monitor.VantageRelay, now time.Time) bool {
	r := &seen.Record
	return r.State == monitor.StateDead && !r.FirstFailure.IsZero() && now.Sub(r.FirstFailure) >= e.cfg.Cadence.DeadLongAfter
}

// seenAgain notes an observation that stepped our record: a success brings both
// records together, after another one the vantage hears what ours wants now.
func (v *vantage) seenAgain(o *monitor.Observation, now time.Time) {
	if _, followed := v.follow.At(o.Relay); !followed {
		return
	}
	if o.Outcome.Success() {
		v.follow.Remove(o.Relay)
	} else {
		v.follow.Set(o.Relay, now)
	}
}

// passedOver notes that an observation stepped no record here, while the
// vantage's own went on.
func (v *vantage) passedOver(u monitor.RelayURL, now time.Time) {
	if _, there := v.follow.At(u); !there {
		v.follow.Set(u, now)
	}
}
