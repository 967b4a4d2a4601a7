package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// maxSkip is how far above the newest stored sequence one may be. A vantage that
// lost batches leaves some out; two months of them have so many. A number from
// nowhere would leave none for what comes after it.
const maxSkip = 1 << 20

// Deliver takes one batch of a vantage: it steps copies of the records that
// the batch touches, stores batch and records in one transaction, and only
// then keeps them. It returns ErrNotFound for a vantage that is not enrolled,
// ErrConflict for a sequence that was seen before, ErrInvalid for one that is far
// ahead, ErrUnavailable while the store is away; after each of them nothing has changed.
func (e *Engine) Deliver(ctx context.Context, b monitor.Batch) (monitor.Answer, error) {
	e.ingest.Lock()
	defer e.ingest.Unlock()

	now := time.Now()
	s, err := e.stage(b, now)
	if err != nil {
		e.mu.Lock()
		e.counts.refused++
		e.mu.Unlock()
		return monitor.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err = e.store.Ingest(ctx, &s.in)
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.vantages[s.index]
	if errors.Is(err, monitor.ErrConflict) && v.doubtful == b.Seq {
		err = nil // the first attempt was stored, only its answer was lost
	}
	if err != nil {
		e.counts.refused++
		switch {
		case errors.Is(err, monitor.ErrConflict):
			e.ousted = err // newer than all that this core has stored: somebody else wrote
		case errors.Is(err, monitor.ErrInvalid):
			e.storeAnswered(nil) // it did answer
		default:
			e.storeAnswered(err)
			v.doubtful = b.Seq
		}
		return monitor.Answer{}, err
	}
	return e.apply(s, now), nil
}

// staged is a batch that was stepped on copies.
type staged struct {
	index    int // of the vantage
	in       monitor.Ingest
	observer *monitor.Observer
	facts    map[monitor.RelayURL]*facts // of the relays of which something was told
	fresh    []*monitor.Observation      // those that were stepped, history-only ones left out
	failed   []monitor.RelayURL          // first failure of a streak
	returned []monitor.RelayURL          // first success of an offline or dead relay
	passed   []monitor.RelayURL          // failures that are history only
	// unwatched counts the observations that were dropped.
	unwatched int
}

// stage steps a batch without changing anything.
func (e *Engine) stage(b monitor.Batch, now time.Time) (*staged, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()

	i := e.vantage(b.Vantage)
	if i < 0 {
		return nil, notEnrolled(b.Vantage)
	}
	v := e.vantages[i]
	if b.Seq <= v.LastSeq {
		return nil, &monitor.SequenceError{Vantage: b.Vantage, Seq: b.Seq, Last: v.LastSeq}
	}
	if b.Seq-v.LastSeq > maxSkip {
		return nil, fmt.Errorf("%w batch: its sequence %d is too far above the newest stored, %d", monitor.ErrInvalid, b.Seq, v.LastSeq)
	}
	s := &staged{index: i, observer: v.observer.Clone(), facts: map[monitor.RelayURL]*facts{}}
	s.in = monitor.Ingest{
		Batch: b, Skew: b.SentAt.Sub(now), Records: map[monitor.RelayURL]monitor.VantageRelay{},
		Infos: map[monitor.RelayURL]*monitor.Info{}, Facts: map[monitor.RelayURL]monitor.Facts{},
	}
	s.in.Batch.Observations = make([]monitor.Observation, 0, len(b.Observations))

	recoveries := b.Recoveries
	for j := range b.Observations {
		o := &b.Observations[j]
		for len(recoveries) > 0 && !recoveries[0].At.After(o.At) {
			e.recover(s, recoveries[0])
			recoveries = recoveries[1:]
		}
		r := e.byURL[o.Relay]
		if r == nil || r.twin != "" {
			s.unwatched++ // no longer watched, or made up, or its twin is
			continue
		}
		s.in.Batch.Observations = append(s.in.Batch.Observations, *o)
		if o.Info != nil && o.Info.Problem == "" && (r.Info == nil || !bytes.Equal(r.Info.Raw, o.Info.Raw)) {
			s.in.Infos[o.Relay] = o.Info
		}
		seen := s.record(r)
		paused := o.Outcome.Measured() && r.PausedUntil.After(now) // nobody was to look
		if !paused && !networkDown(&b, o.At) {
			e.learn(s, r, o, now)
		}
		if paused || e.historyOnly(o, &seen, now) {
			if o.Outcome == monitor.OutcomeFailed && !paused {
				s.passed = append(s.passed, o.Relay)
			}
			continue
		}
		if cs := b.Health.CanarySuccess; !cs.IsZero() && !cs.After(o.At) {
			s.observer.CanarySucceeded(cs)
		}
		s.observer.SetNetworkAvailable(!networkDown(&b, o.At), o.At)
		e.step(s, r, o, &seen)
		s.in.Records[o.Relay] = seen
		s.fresh = append(s.fresh, &s.in.Batch.Observations[len(s.in.Batch.Observations)-1])
	}
	for _, r := range recoveries {
		e.recover(s, r)
	}
	if cs := b.Health.CanarySuccess; !cs.IsZero() {
		s.observer.CanarySucceeded(cs)
	}
	return s, nil
}

// record returns the batch's own copy of what its vantage knows of r.
func (s *staged) record(r *relay) monitor.VantageRelay {
	if seen, ok := s.in.Records[r.URL]; ok {
		return seen
	}
	return r.seen[s.index]
}

// historyOnly reports whether o must change no record (corroboration.md, Wrong
// clock and Votes): from the future, older than the vantage's newest of this
// relay, or spooled for longer than 2.5 intervals.
func (e *Engine) historyOnly(o *monitor.Observation, seen *monitor.VantageRelay, now time.Time) bool {
	return o.At.After(now.Add(e.cfg.Corroboration.MaxClockSkew)) ||
		o.At.Before(seen.Newest) ||
		now.Sub(o.At) > e.cfg.Corroboration.Grace()
}

// networkDown reports whether the vantage had lost its network at the given
// time, by its health now and by the recoveries since its last batch (S25).
func networkDown(b *monitor.Batch, at time.Time) bool {
	for _, r := range b.Recoveries {
		if r.Impairment == monitor.ImpairedNetwork && !at.Before(r.Since) && at.Before(r.At) {
			return true
		}
	}
	for _, i := range b.Health.Impairments {
		if i == monitor.ImpairedNetwork && !at.Before(b.Health.ImpairedSince) {
			return true
		}
	}
	return false
}

// step applies one observation to the copy of the record.
func (e *Engine) step(s *staged, r *relay, o *monitor.Observation, seen *monitor.VantageRelay) {
	prev := seen.Record
	next, effect := e.cfg.Liveness.Step(prev, s.observer, o.Relay, o.Outcome, o.Start, o.At)
	seen.Record, seen.Newest = next, o.At
	if !o.At.Add(-s.in.Skew).Before(seen.Expedited) { // else it was made before it was asked for
		seen.Expedited = time.Time{}
	}
	seen.NoRoute = o.NoRoute()

	switch {
	case effect == monitor.EffectCounted && next.FailureCount == 1:
		s.failed = append(s.failed, o.Relay)
	case effect == monitor.EffectSucceeded && (prev.State == monitor.StateOffline || prev.State == monitor.StateDead):
		s.returned = append(s.returned, o.Relay)
	}
	if !o.Outcome.Measured() {
		return
	}
	seen.Outcome, seen.Stage, seen.Cause, seen.Evidence, seen.At = o.Outcome, o.Stage, o.Cause, o.Evidence, o.At
	task := monitor.Task{Relay: r.URL, Candidate: r.Candidate}
	seen.NextDue = e.cfg.Cadence.Next(prev, next, r.URL, o.Vantage, task, o.Outcome, o.RetryAfter, o.At)
	if o.Outcome.Success() {
		seen.RTTOpen, seen.RTTRead = o.RTTOpen, o.RTTRead
		if o.Write != nil || o.RTTWrite > 0 { // measured once a day
			seen.RTTWrite = o.RTTWrite
		}
	}
	if o.Outcome != monitor.OutcomeFailed && o.Address.IsValid() {
		seen.Address = located(o)
	}
}

// recover applies S26 to the records of the vantage, for an impairment that
// is over.
func (e *Engine) recover(s *staged, rec monitor.Recovery) {
	s.observer.Recovered(rec.At)
	for _, r := range e.relays {
		seen := s.record(r)
		next := seen
		if rec.Impairment == monitor.ImpairedClock {
			setBack(&next, rec.At)
		}
		next.Record = e.cfg.Liveness.Recover(next.Record, rec.Since, rec.At)
		if next != seen {
			s.in.Records[r.URL] = next
		}
	}
}

// setBack brings times that lie ahead of a clock that was set back to it: they
// would make everything until then history only, or ignored (S22).
func setBack(v *monitor.VantageRelay, now time.Time) {
	for _, t := range []*time.Time{
		&v.At, &v.Newest, &v.Record.FirstFailure, &v.Record.LastFailure, &v.Record.LastSuccess, &v.Record.SessionSuccess, &v.Record.OnlineSince,
	} {
		if t.After(now) {
			*t = now
		}
	}
}

// apply keeps what was stored and says what to probe at once. Its caller holds
// mu.
func (e *Engine) apply(s *staged, now time.Time) monitor.Answer {
	b := &s.in.Batch
	v := e.vantages[s.index]
	v.observer, v.LastSeq, v.LastSeen, v.Skew = s.observer, b.Seq, now, s.in.Skew
	e.heard(v, b.Health)
	e.counts.ingested++
	e.counts.unwatched += uint64(s.unwatched)
	e.storeAnswered(nil)
	for url, seen := range s.in.Records {
		r := e.byURL[url]
		moved := r.seen[s.index].Address != seen.Address
		r.seen[s.index] = seen
		r.dirty = true
		if moved && e.cfg.Locate != nil {
			e.place(r, e.cfg.Locate)
		}
		if seen.Record.LastSuccess.After(r.Verdict.LastSuccess) {
			r.Verdict.LastSuccess = seen.Record.LastSuccess
		}
	}
	for url, info := range s.in.Infos {
		r := e.byURL[url]
		r.Info, r.unsaid = info, true
		e.aliases.stale = true
	}
	e.learned(s, now)
	for i := range b.Observations {
		o := &b.Observations[i]
		e.counts.observations[o.Outcome]++
	}
	for _, o := range s.fresh {
		r := e.byURL[o.Relay]
		r.attempted, r.skipped = true, monitor.CauseNone
		if o.Outcome == monitor.OutcomeSkipped {
			r.skipped = o.Cause
		}
		if o.Outcome.Success() {
			auth, payment := o.Cause == monitor.CauseAuthRequired, o.Cause == monitor.CausePayment
			r.unsaid = r.unsaid || auth != r.auth || payment != r.payment
			r.auth, r.payment = auth, payment
		}
	}
	for i := range b.Observations { // also of those that are history only
		if o := &b.Observations[i]; !o.ServerDate.IsZero() {
			v.clock.add(o.Relay.Host(), o.ServerDate.Sub(o.At)+s.in.Skew, now)
		}
	}
	// Of the names that discovery finds many lead nowhere, by no fault of ours.
	v.pass.add(s.fresh, func(u monitor.RelayURL) bool { return !e.byURL[u].Candidate }, now, e.cfg.Corroboration.Interval)
	if n := len(b.Health.Impairments); n > 0 || len(b.Recoveries) > 0 {
		e.sweep = true // eligibility changed for every relay
	}
	for _, url := range s.failed {
		if e.byURL[url].Candidate {
			continue // nothing is suspected that was never up
		}
		e.ask(url, s.index, maxExpedited, now)
	}
	for _, url := range s.returned {
		e.ask(url, s.index, len(e.vantages), now)
	}
	for _, url := range s.passed {
		v.passedOver(url, now)
	}
	for _, o := range s.fresh {
		v.seenAgain(o, now)
	}
	a := monitor.Answer{Expedite: v.expedite, Due: e.lookAgain(s.index, now)}
	v.expedite = nil
	return a
}

// heard keeps what a vantage says of itself: which networks it has a way into is
// its own to say.
func (e *Engine) heard(v *vantage, h monitor.Health) {
	if !slices.Equal(h.Down, v.Health.Down) || h.Networks != nil && !slices.Equal(h.Networks, v.Networks) {
		e.sweep = true // who may vote changed for every relay there
	}
	if h.Networks != nil {
		v.Networks = h.Networks
	}
	v.Health = h
}

// ask requests an expedited probe of a relay from up to most eligible vantages
// of other groups than that of the vantage at index from. Those that have it dead
// come last: their vote is known, while an up of another waits for its look.
func (e *Engine) ask(url monitor.RelayURL, from, most int, now time.Time) {
	r := e.byURL[url]
	if r.PausedUntil.After(now) {
		return
	}
	for _, dead := range []bool{false, true} {
		for i, v := range e.vantages {
			if most == 0 {
				return
			}
			if dead != (r.seen[i].Record.State == monitor.StateDead) || i == from || v.Group == e.vantages[from].Group || !v.Reaches(url.Network()) || v.Lost(url.Network()) || !e.eligible(v, now) {
				continue
			}
			most--
			if !r.seen[i].Expedited.IsZero() && now.Sub(r.seen[i].Expedited) < monitor.ExpeditedTimeout {
				continue // asked already
			}
			r.seen[i].Expedited = now
			v.expedite = append(v.expedite, url)
		}
	}
}

// eligible reports whether a vantage's votes count now.
func (e *Engine) eligible(v *vantage, now time.Time) bool {
	judged := e.judged(v, now)
	return e.cfg.Corroboration.VantageEligible(&judged, now)
}

// judged is the vantage with the core's own judgement of its last pass.
func (e *Engine) judged(v *vantage, now time.Time) monitor.Vantage {
	out := v.Vantage
	if v.pass.unclear(now, e.cfg.Corroboration.Interval) {
		out.Health.Impairments = append(slices.Clip(out.Health.Impairments), monitor.ImpairedUnclear)
	}
	return out
}
