package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// round is what one pass over the relays came to. It is applied only once its
// decision was committed; until then the same round is tried again and no
// other one is decided.
type round struct {
	decision monitor.Decision
	changes  []change
	reserves bool // the decision reserves further generation numbers
	gone     bool // it ends the verdicts of Engine.gone
	rewrites bool // it writes the doubtful rows again

	// What a command or a new configuration adds.
	joins    []*relay // watched from now on
	parts    []*relay // no longer watched
	releases []*relay // their held departures may go
	cfg      *Config  // in force from now on; nil = as it is

	twins []*relay // wss relays stand for them from now on
}

// change is a relay's new verdict and what else is new of it.
type change struct {
	relay   *relay
	verdict monitor.Verdict
	// settings are the new source, candidacy, exclusion and pause; nil = as
	// they are.
	settings *monitor.WatchedRelay
	forget   bool // what every vantage knows of it
}

// empty reports whether there is nothing to store.
func (r *round) empty() bool {
	d := &r.decision
	return !r.reserves && !d.Served && len(d.Relays) == 0 && len(d.Transitions) == 0 && len(d.Events) == 0 && len(d.Withdrawn) == 0 &&
		len(d.Forgotten) == 0 && len(d.Maintenance) == 0 && d.Audit == nil && d.Named == nil
}

// round decides, commits and publishes once. It returns ErrConflict when
// another core leads, and no other error.
func (e *Engine) round(ctx context.Context) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	now := time.Now()
	e.mu.RLock()
	ousted := e.ousted
	e.mu.RUnlock()
	if ousted != nil {
		return ousted
	}
	if e.pending == nil {
		e.pending = e.decide(now)
	}
	changed, err := e.conclude(ctx, now)
	if errors.Is(err, monitor.ErrConflict) {
		return fmt.Errorf("commit a decision: %w", err)
	}
	if changed || e.owed || e.due(now) {
		e.show(now)
	}
	return nil
}

// conclude commits the pending round, if there is one, and keeps it; it reports
// whether readers should see a new generation.
func (e *Engine) conclude(ctx context.Context, now time.Time) (changed bool, err error) {
	if e.pending == nil {
		return false, nil
	}
	if err := e.commit(ctx, e.pending); err != nil {
		if !errors.Is(err, monitor.ErrConflict) {
			e.mu.Lock()
			e.storeAnswered(err)
			e.mu.Unlock()
		}
		return false, err
	}
	changed = e.settle(e.pending, now)
	e.pending = nil
	return changed, nil
}

// commit stores a decision.
func (e *Engine) commit(ctx context.Context, r *round) error {
	if r.empty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return e.store.Commit(ctx, &r.decision)
}

// decide judges every relay that may have changed.
func (e *Engine) decide(now time.Time) *round {
	e.mu.Lock()
	defer e.mu.Unlock()

	out := e.newRound(now)
	e.rewrite(out)
	if e.clockWrong(now) {
		return out // nothing is decided or published (corroboration.md, Wrong clock)
	}
	e.endPauses(out, now)
	el := e.elect(now)
	all := e.sweep || now.Sub(e.lastSweep) >= sweepEvery
	if all {
		e.sweep, e.lastSweep = false, now
		e.seekAliases(now)
		for _, v := range e.vantages {
			v.disagreement.advance(now)
		}
	}

	var proposed []change
	judged := map[*relay]bool{}
	if all {
		judged = e.pair(out)
	}
	judge := func(r *relay) {
		proposed = append(proposed, change{relay: r, verdict: e.propose(r, el, now)})
		judged[r] = true
		r.dirty = false
	}
	for _, r := range e.relays {
		if (all || r.dirty) && !r.paired(judged) {
			judge(r)
		}
	}
	wasEngaged := e.brake.engaged
	e.brake.judge(e, el, now)
	if e.brake.engaged || wasEngaged {
		for _, r := range e.relays {
			if (r.pending || !r.Verdict.HeldSince.IsZero()) && !judged[r] {
				judge(r)
			}
		}
	}
	brake := e.cfg.Corroboration.Brake()
	for _, p := range proposed {
		r := p.relay
		released := r.released
		if !released && r.pending && e.brake.engaged && !r.Verdict.HeldSince.IsZero() {
			released = brake.Releases(r.Verdict.HeldSince, el.ballots(r, now), e.brake.electorate, now)
		}
		v := brake.Apply(r.Verdict, p.verdict, r.pending, e.brake.engaged, released, now)
		if all {
			e.compare(el.ballots(r, now), v.State)
		}
		e.change(out, r, v, released, el, now)
	}
	for _, r := range e.gone {
		out.end(r, r.WatchedRelay, e.bounds.endsFor(r.URL))
	}
	out.gone = true
	e.report(out, now)
	if e.warmUp.done && !e.warmUp.stored {
		out.decision.Served = true
	}
	return out
}

// newRound is one that has decided nothing yet.
func (e *Engine) newRound(now time.Time) *round {
	out := &round{decision: monitor.Decision{At: now, Generation: e.reserved}}
	if e.number+reserveLow > e.reserved {
		out.decision.Generation, out.reserves = e.number+reserveAhead, true
	}
	return out
}

// propose makes a relay's verdict before the brake and notes whether the brake
// counts it.
func (e *Engine) propose(r *relay, el *election, now time.Time) monitor.Verdict {
	ballots := el.ballots(r, now)
	v := e.cfg.Corroboration.Decide(r.Verdict, ballots, el.situation(r), now)
	r.pending = monitor.Pending(r.Verdict, ballots) || monitor.Departs(r.Verdict, v)
	return v
}

// change notes a relay's new verdict in the round, with its transition.
func (e *Engine) change(out *round, r *relay, v monitor.Verdict, released bool, el *election, now time.Time) {
	old := r.Verdict
	moved := v.State != old.State
	if !moved && v.Marks == old.Marks && v.Quorum == old.Quorum && v.Since.Equal(old.Since) && v.HeldSince.Equal(old.HeldSince) &&
		v.MajorityDownSince.Equal(old.MajorityDownSince) && v.Reason == old.Reason && v.Cause == old.Cause && v.Evidence == old.Evidence {
		return
	}
	out.changes = append(out.changes, change{relay: r, verdict: v})
	if !moved && v.Marks == old.Marks && v.HeldSince.Equal(old.HeldSince) && v.MajorityDownSince.Equal(old.MajorityDownSince) {
		return // what a reader sees of it changed, not what a restart needs
	}
	row := r.WatchedRelay
	row.Verdict = v
	row.Candidate = r.Candidate && v.State != monitor.StateOnline
	out.decision.Relays = append(out.decision.Relays, row)
	if !moved {
		return
	}
	out.decision.Transitions = append(out.decision.Transitions, monitor.Transition{
		Relay: r.URL, From: old.State, To: v.State, At: now, Quorum: v.Quorum, Cause: v.Cause, Evidence: v.Evidence,
		Ballots: slices.Clone(el.ballots(r, now)), Rules: monitor.RulesVersion,
	})
	e.brake.moved(old.State, v.State, released, now)
	if old.State == monitor.StateOnline {
		out.decision.Withdrawn = append(out.decision.Withdrawn, r.URL)
	}
}

// settle keeps a committed round; it reports whether readers should see a new
// generation.
func (e *Engine) settle(out *round, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !out.empty() {
		e.storeAnswered(nil)
	}
	e.reserved = out.decision.Generation
	e.warmUp.stored = e.warmUp.stored || out.decision.Served
	if out.cfg != nil {
		e.adopt(out.cfg)
	}
	e.regroup(out.joins, out.parts)
	retask, held := false, false
	for _, c := range out.changes {
		r, v := c.relay, c.verdict
		switch {
		case c.forget:
			e.forget(r, now)
		case r.Verdict.LastSuccess.After(v.LastSuccess):
			v.LastSuccess = r.Verdict.LastSuccess // a batch came meanwhile
		}
		if s := c.settings; s != nil {
			r.Source, r.Candidate, r.Excluded, r.PausedUntil = s.Source, s.Candidate, s.Excluded, s.PausedUntil
			retask = true
			if r.twin != "" && r.asked() {
				r.twin, r.dirty = "", true
			}
		}
		held = held || v.Marks.Has(monitor.MarkHeld) != r.Verdict.Marks.Has(monitor.MarkHeld)
		if v.State == monitor.StateOnline && r.Candidate {
			r.Candidate, retask = false, true
		}
		r.Verdict = v
		r.released = r.released && !v.HeldSince.IsZero()
	}
	for _, t := range out.decision.Transitions {
		e.counts.transitions[t.To]++
		level := slog.LevelInfo
		if t.From == monitor.StateUnknown {
			level = slog.LevelDebug // a first verdict is no news: a first run has thousands
		}
		e.log.Log(context.Background(), level, "verdict changed", "relay", t.Relay, "from", t.From.String(), "to", t.To.String(), "quorum", t.Quorum.String(), "cause", t.Cause.String())
	}
	for _, url := range out.decision.Withdrawn {
		if r := e.byURL[url]; r != nil {
			r.report = nil
		}
	}
	for i := range out.decision.Events {
		e.keep(&out.decision.Events[i])
	}
	if out.gone {
		e.gone = nil
	}
	if out.rewrites {
		clear(e.doubtful)
	}
	for _, r := range out.releases {
		r.released, r.dirty = true, true
	}
	for u, w := range out.decision.Maintenance {
		e.declare(u, w, now)
	}
	e.stand(out.twins)
	if retask {
		e.retask()
	}
	e.warmUp.advance(e, now)
	// A candidate is in no list: strangers' submissions and what discovery finds
	// make no generations.
	listed := func(r *relay) bool { return !r.Candidate }
	named := func(u monitor.RelayURL) bool { r := e.find(u); return r == nil || listed(r) }
	moved := func(t monitor.Transition) bool { return named(t.Relay) }
	return held || slices.ContainsFunc(out.joins, listed) || slices.ContainsFunc(out.parts, listed) ||
		slices.ContainsFunc(out.decision.Transitions, moved) || len(out.decision.Events) > 0 || slices.ContainsFunc(out.decision.Withdrawn, named)
}

// endPauses clears the pauses that are over.
func (e *Engine) endPauses(out *round, now time.Time) {
	if e.pauseEnds.IsZero() || now.Before(e.pauseEnds) {
		return
	}
	for _, r := range e.relays {
		if !r.PausedUntil.IsZero() && !r.PausedUntil.After(now) {
			r.PausedUntil, r.dirty = time.Time{}, true // a fact of the time, whether or not the store has it
			out.decision.Relays = append(out.decision.Relays, r.WatchedRelay)
		}
	}
	e.retask()
}

// rewrite stores again what memory holds of the doubtful relays: their rows and
// their reports. One that memory does not know is not watched.
func (e *Engine) rewrite(out *round) {
	for url := range e.doubtful {
		out.rewrites = true
		r := e.find(url)
		if r == nil {
			r = newRelay(url, out.decision.At)
		}
		out.decision.Relays = append(out.decision.Relays, r.WatchedRelay)
		if r.report != nil {
			out.decision.Events = append(out.decision.Events, *r.report)
		}
	}
}

// find returns a relay that is stored, watched or not; nil = there is none.
func (e *Engine) find(url monitor.RelayURL) *relay {
	if r := e.byURL[url]; r != nil {
		return r
	}
	return e.aside[url]
}

// newRelay is one that was never heard of and is not watched yet.
func newRelay(url monitor.RelayURL, now time.Time) *relay {
	return &relay{WatchedRelay: monitor.WatchedRelay{URL: url, Source: monitor.SourceNone, FirstSeen: now}}
}
