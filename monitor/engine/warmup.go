package engine

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// warmShare of the first pass must have been measured (corroboration.md, Start).
const warmShare = 0.95

// warmUp is the time before the first list of a process may be served.
type warmUp struct {
	persisted     bool // the stored list was young enough to be served at once
	done          bool
	stored        bool // the store knows that a first pass was once completed
	attempted     bool // every relay of the pass, once
	first         []*relay
	measured, due int
}

// startWarmUp decides whether the stored list may be served, and else over
// which relays the first pass goes: the last online set, at the first run the
// configured relays.
func (e *Engine) startWarmUp(served bool, now time.Time) {
	newest := time.Time{}
	var online, configured []*relay
	for _, r := range e.relays {
		if r.twin != "" {
			continue // not probed
		}
		if r.Verdict.State == monitor.StateOnline {
			online = append(online, r)
			if r.Verdict.LastSuccess.After(newest) {
				newest = r.Verdict.LastSuccess
			}
		}
		if !r.Candidate {
			configured = append(configured, r)
		}
	}
	w := &e.warmUp
	w.stored = served
	if !served || len(online) == 0 {
		w.first = configured // what is online may be a part of a first pass
		return
	}
	w.first = online
	w.persisted = e.cfg.Freshness.Fresh(newest, now)
	w.done = w.persisted
}

// enough reports whether so much of the pass was measured that its list counts.
func (w *warmUp) enough() bool { return float64(w.measured) >= warmShare*float64(w.due) }

// advance looks whether the first pass is complete: every relay tried, ≥ 95 %
// measured (those that can't be are left out), every online one of it reported.
// What discovery brings online meanwhile does not count.
func (w *warmUp) advance(e *Engine, now time.Time) {
	if w.done && w.attempted {
		return
	}
	tried := 0
	w.measured, w.due = 0, 0
	for _, r := range w.first {
		if r.PausedUntil.After(now) {
			tried++
			continue
		}
		if r.attempted {
			tried++
		}
		switch r.skipped {
		case monitor.CauseNoProxy, monitor.CauseExcluded, monitor.CausePaused, monitor.CauseRateLimited:
			continue
		}
		w.due++
		for i := range r.seen {
			if r.seen[i].Outcome != monitor.OutcomeNone {
				w.measured++
				break
			}
		}
	}
	w.attempted = tried == len(w.first)
	if w.done || !w.attempted || !w.enough() {
		return
	}
	online := 0
	for _, r := range w.first {
		if r.Verdict.State == monitor.StateOnline {
			online++
			if r.report == nil {
				return
			}
		}
	}
	w.done = true
	w.first = nil
	e.log.Info("first pass complete: the list is served", "online", online, "measured", w.measured, "after", now.Sub(e.started).Round(time.Second).String())
}
