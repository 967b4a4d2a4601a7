package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Administer does what an operator or a stranger asks for, in one transaction
// with its entry in the audit, and hands out a new generation, at most a second
// later, where readers should see it. The results stand in the order of c.Relays; a release
// of all has one for each relay that it released.
//
// An error says that nothing has changed: ErrInvalid for a command that is not
// well formed, ErrUnavailable while the store is away, ErrConflict when another
// core has taken the database over. Where the store's answer was lost it may
// hold the command all the same: the rows of its relays are then written again
// as they were, so that a restart finds what this core has held on to.
//
// A release lasts until its relay is no longer held, or until a restart.
func (e *Engine) Administer(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
	if err := c.Validate(time.Now()); err != nil {
		return nil, err
	}
	e.turn.Lock()
	defer e.turn.Unlock()
	e.ingest.Lock()
	defer e.ingest.Unlock()
	if err := e.begin(ctx); err != nil {
		return nil, fmt.Errorf("command %s: %w", c.Kind, err)
	}
	now := time.Now()
	e.mu.RLock()
	o, away := e.order(c, now), e.storeErr
	e.mu.RUnlock()
	if c.Kind == monitor.CommandCheck && away != nil { // no result could be stored
		return nil, fmt.Errorf("command %s: %w", c.Kind, away)
	}
	if err := e.carryOut(ctx, o.out, now); err != nil {
		return nil, fmt.Errorf("command %s: %w", c.Kind, err)
	}
	e.mu.Lock()
	for _, r := range o.checks {
		e.check(r, now)
	}
	e.mu.Unlock()
	return o.results, nil
}

// begin brings an earlier round to its end, so that a command starts from what
// is stored. Its caller holds turn and ingest.
func (e *Engine) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: it was given up while it waited: %w", monitor.ErrUnavailable, err)
	}
	e.mu.RLock()
	ousted := e.ousted
	e.mu.RUnlock()
	if ousted != nil {
		return ousted
	}
	now := time.Now()
	changed, err := e.conclude(context.WithoutCancel(ctx), now)
	if err != nil {
		return err
	}
	if changed {
		e.show(now)
	}
	return nil
}

// carryOut commits the round of a command and keeps it. Its caller holds turn
// and ingest.
func (e *Engine) carryOut(ctx context.Context, out *round, now time.Time) error {
	if err := e.commit(context.WithoutCancel(ctx), out); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if errors.Is(err, monitor.ErrConflict) {
			e.ousted = err
			return err
		}
		e.storeAnswered(err)
		for i := range out.decision.Relays {
			e.doubtful[out.decision.Relays[i].URL] = true
		}
		return err
	}
	if w := out.decision.Withdrawn; len(w) > 0 {
		e.pub.Withdraw(w)
	}
	if e.settle(out, now) {
		e.show(now)
	}
	return nil
}

// check asks every vantage that reaches a relay to probe it now, whether or not
// its votes count. Its caller holds mu.
func (e *Engine) check(r *relay, now time.Time) {
	for i, v := range e.vantages {
		if !v.Reaches(r.URL.Network()) || v.Lost(r.URL.Network()) {
			continue
		}
		if asked := r.seen[i].Expedited; !asked.IsZero() && now.Sub(asked) < monitor.ExpeditedTimeout {
			continue
		}
		r.seen[i].Expedited = now
		v.expedite = append(v.expedite, r.URL)
	}
}
