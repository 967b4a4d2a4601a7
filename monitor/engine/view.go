package engine

import (
	"maps"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// RelayView returns all that is known of one relay now.
func (e *Engine) RelayView(u monitor.RelayURL) monitor.RelayView {
	now := time.Now()
	e.mu.RLock()
	defer e.mu.RUnlock()
	r := e.byURL[u]
	if r == nil {
		return e.unwatched(u)
	}
	v := monitor.RelayView{
		WatchedRelay: r.WatchedRelay, Monitored: true, Eligible: r.eligible(now), Report: r.report,
		Maintenance: e.windows(u, now), Place: r.whereabouts(), Twin: r.twin, Provenance: r.provenance,
		RTTOpenMS: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTOpen }),
		RTTReadMS: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTRead }),
	}
	if r.facts != nil {
		v.Facts = r.facts.Facts
	}
	v.Aliases, v.AliasOf = e.aliases.of(u)
	vantages := make([]monitor.Vantage, len(e.vantages))
	for i, vt := range e.vantages {
		vantages[i] = e.judged(vt, now)
	}
	if !v.PausedUntil.After(now) {
		v.PausedUntil = time.Time{}
	}
	v.Ballots = e.cfg.Corroboration.AppendBallots(nil, u, vantages, r.seen, now)
	return v
}

// unwatched is all that is told of a relay that is not watched: whether it is
// excluded.
func (e *Engine) unwatched(u monitor.RelayURL) monitor.RelayView {
	v := monitor.RelayView{WatchedRelay: monitor.WatchedRelay{URL: u}, Eligible: true}
	if r := e.aside[u]; r != nil && (r.Excluded || e.bounds.barred[u]) {
		v.WatchedRelay = r.WatchedRelay
		v.Info = nil
	}
	v.Excluded = v.Excluded || e.bounds.barred[u]
	return v
}

// Status returns the monitor's own state.
func (e *Engine) Status() monitor.Status {
	now := time.Now()
	g := e.generation.Load()
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := monitor.Status{
		Started: e.started, Leader: true, Generation: g.Number, Fallback: g.Fallback,
		States: map[monitor.State]int{}, Engaged: e.brake.engaged, ClockSkew: e.clockSkew(now),
		Observations: maps.Clone(e.counts.observations), Transitions: maps.Clone(e.counts.transitions),
		Ingested: e.counts.ingested, Refused: e.counts.refused, Unwatched: e.counts.unwatched, ReportsSigned: e.counts.signed,
	}
	s.WarmUp.Measured, s.WarmUp.Due, s.WarmUp.Done = e.warmUp.measured, e.warmUp.due, e.warmUp.done
	if e.storeErr != nil {
		s.StoreError = e.storeErr.Error()
	}
	if d := e.discovery; e.cfg.Discovery || d.Sweep != nil {
		s.Discovery = &d
	}
	for _, r := range e.relays {
		if r.twin != "" {
			s.Twins++
			continue
		}
		if r.Candidate {
			s.Candidates++
			continue
		}
		s.States[r.Verdict.State]++
		if r.Verdict.Marks.Has(monitor.MarkHeld) {
			s.Held++
		}
		if r.Verdict.State == monitor.StateOnline && r.facts.known().Expires(now) {
			s.Expiring++
		}
	}
	s.Aliases = e.aliases.count
	for _, v := range e.vantages {
		s.Vantages = append(s.Vantages, e.told(v, now))
	}
	s.Vantages = append(s.Vantages, e.revoked...)
	return s
}

// told is all that is told of a vantage.
func (e *Engine) told(v *vantage, now time.Time) monitor.Vantage {
	out := e.judged(v, now)
	out.Eligible = e.cfg.Corroboration.VantageEligible(&out, now)
	if d := &v.disagreement; d.votes > 0 {
		out.Judged, out.Disagreement = d.votes, float64(d.against)/float64(d.votes)
	}
	return out
}

// Ready reports whether readers should be sent here, and if not, why
// (api.md, Service).
func (e *Engine) Ready() (bool, string) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	warming := e.generation.Load().Fallback == monitor.FallbackWarmingUp
	switch {
	case e.storeErr != nil:
		return false, "the database cannot be reached"
	case warming && !e.warmUp.attempted:
		return false, "the first pass over the relays is under way"
	case warming && e.warmUp.enough():
		return false, "the first reports are being signed"
	}
	return true, "" // also where too little could be measured: the network outside is not ours
}
