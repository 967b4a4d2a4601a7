package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// order is a command worked out: what it comes to for each relay, and the round
// that does it. Nothing has changed yet.
type order struct {
	monitor.Command
	e       *Engine
	now     time.Time
	out     *round
	results []monitor.CommandResult
	done    []monitor.RelayURL
	checks  []*relay // probe them at once

	room *room // of a submission
}

// Why a command does nothing for a relay.
const (
	whyTwice          = "is named twice"
	whyWatched        = "is watched already"
	whyNotWatched     = "is not watched"
	whyExcluded       = "is excluded by an operator: include it first"
	whyBarred         = "is excluded by the configuration: take it out of exclude there and reload"
	whyConfigured     = "is in the configuration: take it out there and reload, or exclude it"
	whyExcludedTwice  = "is excluded already"
	whyNotExcluded    = "is not excluded"
	whyPausedTwice    = "is paused until then already"
	whyNotPaused      = "is not paused"
	whyPaused         = "is paused: resume it first"
	whyNotHeld        = "is not held"
	whyReleasedTwice  = "is released already"
	whyDeclared       = "has this window already"
	whyNoVantage      = "is on a network that no vantage reaches"
	whyOptedOut       = "is excluded because its owner opted out: include it first to undo that"
	whyNothingToLeave = "is not watched here: there is nothing to opt out of"
	whyOtherKey       = "its NIP-11 document names another key, or none: set pubkey there and wait for it to be read (within an hour)"
	whyRefusedToWatch = "is not to be watched here" // all that a stranger is told of an exclusion
)

// order works a command out. Its caller holds mu for reading.
func (e *Engine) order(c monitor.Command, now time.Time) *order {
	o := &order{Command: c, e: e, now: now, out: e.newRound(now)}
	relays := c.Relays
	if c.Kind == monitor.CommandRelease && len(relays) == 0 {
		for _, r := range e.relays {
			if !r.Verdict.HeldSince.IsZero() && !r.released {
				relays = append(relays, r.URL)
			}
		}
	}
	seen := make(map[monitor.RelayURL]bool, len(relays))
	o.results = make([]monitor.CommandResult, 0, len(relays))
	for _, u := range relays {
		why := whyTwice
		if !seen[u] {
			seen[u] = true
			why = o.one(u)
		}
		if why == "" {
			o.done = append(o.done, u)
		}
		o.results = append(o.results, monitor.CommandResult{Relay: u, Done: why == "", Why: why})
	}
	if len(o.done) > 0 && c.Kind != monitor.CommandCheck { // a check changes nothing
		o.out.decision.Audit = &monitor.AuditEntry{At: now, Actor: c.Actor, Kind: c.Kind, Relays: o.done, Note: c.Note}
	}
	return o
}

// one works out what the command comes to for one relay; why not, or "".
func (o *order) one(u monitor.RelayURL) string {
	switch o.Kind {
	case monitor.CommandAdd:
		return o.add(u)
	case monitor.CommandExclude:
		return o.exclude(u)
	case monitor.CommandInclude:
		return o.include(u)
	case monitor.CommandSubmit:
		return o.submit(u)
	case monitor.CommandOptOut:
		return o.optOut(u)
	}
	r := o.e.byURL[u]
	if r == nil {
		if why := o.excluded(u); why != "" {
			return why
		}
		return whyNotWatched
	}
	switch o.Kind {
	case monitor.CommandRemove:
		return o.remove(r)
	case monitor.CommandPause:
		return o.pause(r)
	case monitor.CommandResume:
		return o.resume(r)
	case monitor.CommandCheck:
		return o.check(r)
	case monitor.CommandReset:
		return o.reset(r)
	case monitor.CommandMaintenance:
		return o.maintain(r)
	default:
		return o.release(r)
	}
}

// excluded says by whom a relay is excluded; "" = by nobody.
func (o *order) excluded(u monitor.RelayURL) string {
	switch r := o.e.find(u); {
	case o.e.bounds.barred[u]:
		return whyBarred
	case r != nil && r.Excluded && r.Verdict.Reason == ended(endOptedOut):
		return whyOptedOut
	case r != nil && r.Excluded:
		return whyExcluded
	}
	return ""
}

func (o *order) add(u monitor.RelayURL) string {
	if why := o.excluded(u); why != "" {
		return why
	}
	if r := o.e.byURL[u]; r != nil {
		if r.Source.Configured() || r.Source == monitor.SourceOperator {
			return whyWatched
		}
		next := r.WatchedRelay
		next.Source, next.Candidate = monitor.SourceOperator, false
		o.out.set(r, next)
		return ""
	}
	o.watch(u, monitor.SourceOperator, false)
	return ""
}

// watch begins to watch a relay that is not excluded.
func (o *order) watch(u monitor.RelayURL, source monitor.Source, candidate bool) {
	r := o.e.aside[u]
	if r == nil {
		r = newRelay(u, o.now)
	}
	next := r.WatchedRelay
	next.Source, next.Candidate = source, candidate
	o.e.join(o.out, r, next)
}

func (o *order) remove(r *relay) string {
	if r.Source.Configured() {
		return whyConfigured
	}
	next := r.WatchedRelay
	next.Source, next.Candidate = monitor.SourceNone, false
	o.out.part(r, next, endRemoved)
	return ""
}

func (o *order) exclude(u monitor.RelayURL) string {
	switch o.excluded(u) {
	case whyBarred:
		return whyBarred
	case whyExcluded, whyOptedOut:
		return whyExcludedTwice
	}
	r := o.e.byURL[u]
	if r != nil {
		next := r.WatchedRelay
		next.Excluded = true
		o.out.part(r, next, endExcluded)
		o.partTwins(u)
		return ""
	}
	if r = o.e.aside[u]; r == nil {
		r = newRelay(u, o.now)
	}
	next := r.WatchedRelay
	next.Excluded = true
	o.out.set(r, next)
	o.out.parts = append(o.out.parts, r)
	return ""
}

// optOut excludes a relay for its owner: whoever holds the key that its NIP-11
// document names, as it was last read. It need not be watched any longer.
func (o *order) optOut(u monitor.RelayURL) string {
	if o.excluded(u) != "" {
		return whyExcludedTwice
	}
	switch r := o.e.find(u); {
	case r == nil, r.Info == nil && o.e.byURL[u] == nil:
		return whyNothingToLeave
	case r.Info == nil || !strings.EqualFold(r.Info.Pubkey, o.Actor):
		return whyOtherKey
	default:
		next := r.WatchedRelay
		next.Excluded = true
		o.out.part(r, next, endOptedOut)
		o.partTwins(u)
		return ""
	}
}

// partTwins has the URLs leave that discovery would not take in beside u once that
// is excluded (barsFound): they are the same relay, and would be probed in its
// place.
func (o *order) partTwins(u monitor.RelayURL) {
	twins := []monitor.RelayURL{}
	if p := u.Path(); len(p) > 1 && !strings.HasSuffix(p, "/") && !strings.Contains(p, "?") {
		twins = append(twins, u+"/")
	}
	if rest, ok := strings.CutPrefix(string(u), "wss:"); ok {
		twins = append(twins, monitor.RelayURL("ws:"+rest))
	}
	for _, t := range twins {
		// What the command names itself is worked out by itself.
		if r := o.e.byURL[t]; r != nil && !r.asked() && !slices.Contains(o.Relays, t) && !slices.Contains(o.out.parts, r) {
			o.e.partFound(o.out, r, string(u)+endWithTwin)
		}
	}
}

func (o *order) include(u monitor.RelayURL) string {
	switch o.excluded(u) {
	case "":
		return whyNotExcluded
	case whyBarred:
		return whyBarred
	}
	r := o.e.aside[u]
	next := r.WatchedRelay
	next.Excluded = false
	if o.e.bounds.watched(&next) {
		o.e.join(o.out, r, next)
	} else {
		o.out.set(r, next)
	}
	return ""
}

func (o *order) pause(r *relay) string {
	if r.PausedUntil.Equal(o.Until) {
		return whyPausedTwice
	}
	next := r.WatchedRelay
	next.PausedUntil = o.Until
	o.out.set(r, next)
	return ""
}

func (o *order) resume(r *relay) string {
	if !r.PausedUntil.After(o.now) {
		return whyNotPaused
	}
	next := r.WatchedRelay
	next.PausedUntil = time.Time{}
	o.out.set(r, next)
	return ""
}

func (o *order) check(r *relay) string {
	switch {
	case r.PausedUntil.After(o.now):
		return whyPaused
	case r.twin != "":
		return whyTwin(r)
	}
	if !slices.ContainsFunc(o.e.vantages, func(v *vantage) bool { return v.Reaches(r.URL.Network()) }) {
		return whyNoVantage
	}
	o.checks = append(o.checks, r)
	return ""
}

// whyTwin says that a relay is not probed.
func whyTwin(r *relay) string {
	return "is not probed while " + string(r.twin) + endTwin
}

// reset forgets a relay (S37): eligible at once, and looked at again.
func (o *order) reset(r *relay) string {
	if r.twin != "" {
		return whyTwin(r)
	}
	o.out.end(r, r.WatchedRelay, endReset)
	if !r.PausedUntil.After(o.now) {
		o.checks = append(o.checks, r)
	}
	return ""
}

func (o *order) maintain(r *relay) string {
	w := o.Window(o.now)
	n := 0
	for _, m := range o.e.maintenance[r.URL] {
		if m.From.Equal(w.From) && m.Until.Equal(w.Until) {
			return whyDeclared
		}
		if m.Until.After(o.now) {
			n++
		}
	}
	if n >= monitor.MaxWindows {
		return fmt.Sprintf("has %d maintenance windows already", n)
	}
	if o.out.decision.Maintenance == nil {
		o.out.decision.Maintenance = map[monitor.RelayURL]monitor.Maintenance{}
	}
	o.out.decision.Maintenance[r.URL] = w
	return ""
}

func (o *order) release(r *relay) string {
	switch {
	case r.Verdict.HeldSince.IsZero():
		return whyNotHeld
	case r.released:
		return whyReleasedTwice
	}
	o.out.releases = append(o.out.releases, r)
	return ""
}

// declare keeps a committed window, and forgets those that are over.
func (e *Engine) declare(u monitor.RelayURL, w monitor.Maintenance, now time.Time) {
	windows := append(e.windows(u, now), w)
	slices.SortStableFunc(windows, func(a, b monitor.Maintenance) int { return cmp.Or(a.From.Compare(b.From), a.Until.Compare(b.Until)) })
	e.maintenance[u] = windows
}

// windows returns a copy of a relay's windows that are not over.
func (e *Engine) windows(u monitor.RelayURL, now time.Time) []monitor.Maintenance {
	var out []monitor.Maintenance
	for _, m := range e.maintenance[u] {
		if m.Until.After(now) {
			out = append(out, m)
		}
	}
	return out
}
