package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Configure puts another configuration in force while the engine runs: rules,
// cadence, freshness, start hold, the configured and the excluded relays, the
// bounds of submissions and of discovery. Vantages, Registry, Pubkey, OnGeneration,
// Locate and Log stay as New was given them.
//
// Records, verdicts and the list that is served stay; the new rules hold from
// the next round on. Relays that the configuration names no longer are no
// longer watched: their verdicts end as unknown and their reports are
// withdrawn, also of one that an operator had added before the configuration
// named it, but not of one that other people's lists still name. All of it is one
// transaction; an error (ErrUnavailable while the
// store is away, ErrConflict when another core has taken the database over)
// says that nothing has changed.
func (e *Engine) Configure(ctx context.Context, cfg Config) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	e.ingest.Lock()
	defer e.ingest.Unlock()
	if err := e.begin(ctx); err != nil {
		return fmt.Errorf("change the configuration: %w", err)
	}
	now := time.Now()
	cfg = cfg.ready()
	e.mu.RLock()
	out := e.reconfigure(&cfg, now)
	e.mu.RUnlock()
	if err := e.carryOut(ctx, out, now); err != nil {
		return fmt.Errorf("change the configuration: %w", err)
	}
	if len(out.joins)+len(out.parts) > 0 {
		e.log.Info("watching other relays", "added", len(out.joins), "left", len(out.parts))
	}
	return nil
}

// reconfigure works out which relays come and go with a configuration. Its
// caller holds mu for reading.
func (e *Engine) reconfigure(cfg *Config, now time.Time) *round {
	out := e.newRound(now)
	out.cfg = cfg
	b := boundsOf(cfg)
	sources := make(map[monitor.RelayURL]*monitor.WatchedRelay, len(cfg.Relays))
	for i := range cfg.Relays {
		sources[cfg.Relays[i].URL] = &cfg.Relays[i]
	}
	// named is a relay's row as the new configuration has it.
	named := func(r *relay) monitor.WatchedRelay {
		next := r.WatchedRelay
		if c := sources[r.URL]; c != nil {
			next.Source, next.Candidate = c.Source, next.Candidate && c.Candidate
		} else if b.keeps(r, now) {
			next.Source = monitor.SourceDiscovery
		}
		return next
	}
	for _, r := range e.relays {
		next := named(r)
		switch {
		case !b.watched(&next):
			out.part(r, next, b.endsFor(r.URL))
		case next.Source != r.Source || next.Candidate != r.Candidate:
			out.set(r, next)
		}
	}
	for _, r := range e.aside {
		next := named(r)
		switch {
		case b.watched(&next):
			e.join(out, r, next)
		case next.Source != r.Source: // an operator excludes it
			out.set(r, next)
		}
	}
	for u, c := range sources {
		if e.find(u) != nil {
			continue
		}
		r := newRelay(u, now)
		next := r.WatchedRelay
		next.Source, next.Candidate = c.Source, c.Candidate
		if !c.FirstSeen.IsZero() {
			next.FirstSeen, r.FirstSeen = c.FirstSeen, c.FirstSeen
		}
		e.join(out, r, next)
	}
	return out
}

// adopt puts a configuration in force. Its caller holds mu.
func (e *Engine) adopt(cfg *Config) {
	old := e.cfg
	e.cfg = *cfg
	e.cfg.Vantages, e.cfg.Registry, e.cfg.Pubkey, e.cfg.OnGeneration, e.cfg.Log = old.Vantages, old.Registry, old.Pubkey, old.OnGeneration, old.Log
	e.cfg.Locate = old.Locate
	e.bounds = boundsOf(&e.cfg)
	e.sweep = true
}
