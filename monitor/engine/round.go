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
}

// change is a relay's new verdict.
type change struct {
	relay   *relay
	verdict monitor.Verdict
}

// empty reports whether there is nothing to store.
func (r *round) empty() bool {
	d := &r.decision
	return !r.reserves && !d.Served && len(d.Relays) == 0 && len(d.Transitions) == 0 && len(d.Events) == 0 && len(d.Withdrawn) == 0
}

// round decides, commits and publishes once. It returns ErrConflict when
// another core leads, and no other error.
func (e *Engine) round(ctx context.Context, now time.Time) error {
	e.mu.RLock()
	ousted := e.ousted
	e.mu.RUnlock()
	if ousted != nil {
		return ousted
	}
	if e.pending == nil {
		e.pending = e.decide(now)
	}
	changed := false
	err := e.commit(ctx, e.pending)
	switch {
	case errors.Is(err, monitor.ErrConflict):
		return fmt.Errorf("commit a decision: %w", err)
	case err != nil:
		e.mu.Lock()
		e.storeAnswered(err)
		e.mu.Unlock()
	default:
		changed = e.settle(e.pending, now)
		e.pending = nil
	}
	if changed || e.due(now) {
		e.publish(now)
	}
	return nil
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

	out := &round{decision: monitor.Decision{At: now, Generation: e.reserved}}
	if e.number+reserveLow > e.reserved {
		out.decision.Generation, out.reserves = e.number+reserveAhead, true
	}
	if e.clockWrong(now) {
		return out // nothing is decided or published (corroboration.md, Wrong clock)
	}
	el := e.elect(now)
	all := e.sweep || now.Sub(e.lastSweep) >= sweepEvery
	if all {
		e.sweep, e.lastSweep = false, now
	}

	var proposed []change
	judged := map[*relay]bool{}
	judge := func(r *relay) {
		proposed = append(proposed, change{r, e.propose(r, el, now)})
		judged[r] = true
		r.dirty = false
	}
	for _, r := range e.relays {
		if all || r.dirty {
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
		released := false
		if r.pending && e.brake.engaged && !r.Verdict.HeldSince.IsZero() {
			released = brake.Releases(r.Verdict.HeldSince, el.ballots(r, now), e.brake.electorate, now)
		}
		v := brake.Apply(r.Verdict, p.verdict, r.pending, e.brake.engaged, released, now)
		e.change(out, r, v, released, el, now)
	}
	out.decision.Withdrawn = append(out.decision.Withdrawn, e.gone...)
	e.report(out, now)
	if e.warmUp.done && !e.warmUp.stored {
		out.decision.Served = true
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
	out.changes = append(out.changes, change{r, v})
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
	retask, held := false, false
	for _, c := range out.changes {
		r, v := c.relay, c.verdict
		if r.Verdict.LastSuccess.After(v.LastSuccess) {
			v.LastSuccess = r.Verdict.LastSuccess // a batch came meanwhile
		}
		held = held || v.Marks.Has(monitor.MarkHeld) != r.Verdict.Marks.Has(monitor.MarkHeld)
		if v.State == monitor.StateOnline && r.Candidate {
			r.Candidate, retask = false, true
		}
		r.Verdict = v
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
	e.gone = nil
	if retask {
		e.retask()
	}
	e.warmUp.advance(e, now)
	return held || len(out.decision.Transitions) > 0 || len(out.decision.Events) > 0 || len(out.decision.Withdrawn) > 0
}

// retask makes the list of tasks anew; readers hold the old one.
func (e *Engine) retask() {
	tasks := make([]monitor.Task, len(e.relays))
	for i, r := range e.relays {
		tasks[i] = monitor.Task{Relay: r.URL, Candidate: r.Candidate}
	}
	e.tasks = tasks
	e.version++
}
