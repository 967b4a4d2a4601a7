package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Why a verdict was ended, as its reason and in the history.
const (
	endRemoved       = "an operator removed it"
	endExcluded      = "an operator excluded it"
	endReset         = "an operator reset it"
	endNotConfigured = "the configuration does not name it any longer"
	endBarred        = "the configuration excludes it"
	endOwn           = "it is this monitor itself"
	endMadeRoom      = "it was never seen alive and made room for a newer submission"
	endAnew          = "it is watched anew"
	endOptedOut      = "its owner opted out"
	endWithTwin      = " is the same relay, and excluded" // follows the twin's URL
	endUnnamed       = "nobody names it any longer"
	endNeverAlive    = "it was never seen alive and made room for another that was found"
)

// end puts into the round that a relay's verdict is unknown from now on, that
// its report is withdrawn and that its records are forgotten. It is no
// departure to the brake: nobody claims that the relay is down.
func (out *round) end(r *relay, next monitor.WatchedRelay, why string) {
	old := &r.Verdict
	next.Verdict = monitor.Verdict{Since: old.Since, Reason: ended(why)}
	d := &out.decision
	if old.State != monitor.StateUnknown {
		next.Verdict.Since = d.At
		d.Transitions = append(d.Transitions, monitor.Transition{
			Relay: r.URL, From: old.State, To: monitor.StateUnknown, At: d.At, Evidence: why, Rules: monitor.RulesVersion,
		})
	}
	d.Relays = append(d.Relays, next)
	d.Withdrawn = append(d.Withdrawn, r.URL)
	d.Forgotten = append(d.Forgotten, r.URL)
	out.changes = append(out.changes, change{relay: r, verdict: next.Verdict, settings: &next, forget: true})
}

// ended is the reason of a verdict that was ended.
func ended(why string) string { return monitor.StateUnknown.String() + ": " + why }

// part puts into the round that a relay is no longer watched, with its new
// settings.
func (out *round) part(r *relay, next monitor.WatchedRelay, why string) {
	next.PausedUntil = time.Time{}
	out.end(r, next, why)
	out.parts = append(out.parts, r)
}

// join puts into the round that a relay is watched from now on. What was known
// of one that returns does not count any longer.
func (e *Engine) join(out *round, r *relay, next monitor.WatchedRelay) {
	if e.aside[r.URL] == r {
		out.end(r, next, endAnew)
	} else {
		out.set(r, next)
	}
	out.joins = append(out.joins, r)
}

// set puts new settings of a relay into the round.
func (out *round) set(r *relay, next monitor.WatchedRelay) {
	out.decision.Relays = append(out.decision.Relays, next)
	out.changes = append(out.changes, change{relay: r, verdict: r.Verdict, settings: &next})
}

// forget clears what every vantage knows of a relay. A result of a probe that
// ended before now must not count: the vantage's clock says when that is.
func (e *Engine) forget(r *relay, now time.Time) {
	for i := range r.seen {
		r.seen[i] = monitor.VantageRelay{Newest: now.Add(e.vantages[i].Skew)}
		e.vantages[i].follow.Set(r.URL, now)
	}
	r.auth, r.payment, r.pending, r.released = false, false, false, false
	r.skipped, r.report, r.dirty = monitor.CauseNone, nil, true
}

// regroup moves relays into and out of those that are watched. What was known of
// them is for forget to clear.
func (e *Engine) regroup(joins, parts []*relay) {
	if len(joins) == 0 && len(parts) == 0 {
		return
	}
	for _, r := range parts {
		delete(e.byURL, r.URL)
		e.aside[r.URL] = r
		r.seen, r.facts, r.place, r.twin = nil, nil, nil, ""
	}
	left := func(r *relay) bool { return e.byURL[r.URL] != r }
	if len(parts) > 0 {
		e.relays = slices.DeleteFunc(e.relays, left)
		e.warmUp.first = slices.DeleteFunc(e.warmUp.first, left)
		for _, v := range e.vantages {
			v.expedite = slices.DeleteFunc(v.expedite, func(u monitor.RelayURL) bool { return e.byURL[u] == nil })
		}
	}
	for _, r := range joins {
		delete(e.aside, r.URL)
		e.byURL[r.URL] = r
		r.seen = make([]monitor.VantageRelay, len(e.vantages))
		r.dirty = true
	}
	e.aliases.stale = true
	e.gone = slices.DeleteFunc(e.gone, func(r *relay) bool { return e.byURL[r.URL] == r })
	e.relays = merged(e.relays, joins)
}

// merged puts more relays into a list that is in order.
func merged(list, more []*relay) []*relay {
	byURL := func(a, b *relay) int { return cmp.Compare(a.URL, b.URL) }
	more = slices.SortedFunc(slices.Values(more), byURL)
	out := make([]*relay, 0, len(list)+len(more))
	for len(list) > 0 && len(more) > 0 {
		if byURL(list[0], more[0]) < 0 {
			out, list = append(out, list[0]), list[1:]
		} else {
			out, more = append(out, more[0]), more[1:]
		}
	}
	return append(append(out, list...), more...)
}
