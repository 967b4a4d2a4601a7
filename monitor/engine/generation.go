package engine

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// show lets readers see what was decided: at once, or, when the newest generation
// is younger than a second, with the next round (api.md: at most one a second).
func (e *Engine) show(now time.Time) {
	const tolerance = roundEvery / 10 // a ticker is not exact
	age := now.Sub(e.generation.Load().GeneratedAt)
	if e.owed = age >= 0 && age < roundEvery-tolerance; !e.owed {
		e.publish(now)
	}
}

// publish makes a new generation from what is committed and hands it out.
func (e *Engine) publish(now time.Time) {
	e.number++
	e.mu.RLock()
	g := e.build(now)
	e.mu.RUnlock()
	for _, f := range e.cfg.OnGeneration {
		f(g)
	}
	e.generation.Store(g)
}

// tally counts the list that would be served now.
type tally struct {
	relays, fresh  int
	newest, oldest time.Time
}

// served reports whether a relay is on the list: it enters a generation only
// with its report, and none is served before the first pass.
func (e *Engine) served(r *relay, now time.Time) bool {
	return e.warmUp.done && r.Verdict.State == monitor.StateOnline &&
		r.report != nil && (r.report.Expires.IsZero() || r.report.Expires.After(now))
}

// tally counts the served relays.
func (e *Engine) tally(now time.Time) tally {
	var t tally
	for _, r := range e.relays {
		if !e.served(r, now) {
			continue
		}
		t.relays++
		last := r.Verdict.LastSuccess
		if last.After(t.newest) {
			t.newest = last
		}
		if t.oldest.IsZero() || last.Before(t.oldest) {
			t.oldest = last
		}
		if e.cfg.Freshness.Fresh(last, now) {
			t.fresh++
		}
	}
	return t
}

// fallback says why the list may not be used now.
func (e *Engine) fallback(t tally, now time.Time) monitor.Fallback {
	return e.cfg.Freshness.Judge(monitor.ListState{
		WarmingUp: !e.warmUp.done, ClockWrong: e.clockWrong(now), Online: t.relays, Fresh: t.fresh, Newest: t.newest,
	}, now)
}

// due reports whether readers should be given a new generation although
// nothing was decided: for the times, or because of a guard.
func (e *Engine) due(now time.Time) bool {
	g := e.generation.Load()
	if age := now.Sub(g.GeneratedAt); age >= refreshEvery || age < 0 {
		return true
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	t := e.tally(now)
	return e.fallback(t, now) != g.Fallback || t.relays != len(g.Online)
}

// build makes the generation of now.
func (e *Engine) build(now time.Time) *monitor.Generation {
	t := e.tally(now)
	g := &monitor.Generation{
		Number: e.number, GeneratedAt: now, NewestCheck: t.newest, OldestCheck: t.oldest,
		Fallback: e.fallback(t, now), Vantages: len(e.vantages),
	}
	for _, r := range e.relays {
		v := &r.Verdict
		if !r.Candidate && r.twin == "" {
			g.Monitored++
		}
		if v.Marks.Has(monitor.MarkHeld) {
			g.Held++
		}
		switch {
		case e.served(r, now):
			g.Online = append(g.Online, e.online(r, now))
		case !r.Candidate && (v.State == monitor.StateOffline || v.State == monitor.StateDead):
			g.Down = append(g.Down, monitor.DownRelay{URL: r.URL, State: v.State, Since: v.Since, Cause: v.Cause})
		}
	}
	for _, ev := range e.service {
		if ev.Expires.IsZero() || ev.Expires.After(now) {
			g.Service = append(g.Service, ev)
		}
	}
	if s := e.snapshot; s != nil && g.Usable() && s.Expires.After(now) {
		g.Snapshot = s
	}
	return g
}

// online describes one relay of the online set.
func (e *Engine) online(r *relay, now time.Time) monitor.OnlineRelay {
	v := &r.Verdict
	o := monitor.OnlineRelay{
		URL: r.URL, Since: v.Since, LastSuccess: v.LastSuccess, Network: r.URL.Network(), Marks: v.Marks,
		RTTOpenMS: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTOpen }),
		RTTReadMS: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTRead }),
		Auth:      r.auth, Payment: r.payment, Report: r.report,
	}
	o.VantagesUp, o.VantagesTotal = e.up(r, now)
	if in := r.Info; in != nil {
		o.Auth = o.Auth || (in.AuthRequired != nil && *in.AuthRequired)
		o.Payment = o.Payment || (in.PaymentRequired != nil && *in.PaymentRequired)
		o.Writes = in.RestrictedWrites != nil && *in.RestrictedWrites
		o.NIPs = in.NIPs
	}
	if f := r.facts; f != nil {
		payment, leave := f.WriteNeeds(now)
		o.Payment, o.Writes = o.Payment || payment, o.Writes || leave
		o.NIPs = without(o.NIPs, f.Disproved(now))
	}
	if p := r.place; p != nil {
		o.Country, o.Latitude, o.Longitude, o.Located = p.Country, p.Latitude, p.Longitude, p.Located
	}
	return o
}

// without is nips, which is not changed, without some of them.
func without(nips, some []int) []int {
	if !slices.ContainsFunc(some, func(n int) bool { return slices.Contains(nips, n) }) {
		return nips
	}
	return slices.DeleteFunc(slices.Clone(nips), func(n int) bool { return slices.Contains(some, n) })
}

// clockWrong reports whether our clock is off by more than is tolerable.
func (e *Engine) clockWrong(now time.Time) bool {
	return e.clockSkew(now).Abs() > e.cfg.Corroboration.MaxClockSkew
}
