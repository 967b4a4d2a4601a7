package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Relays returns the watched relays that q selects, by URL, or, where q asks
// for them, those that operators or the configuration exclude.
func (e *Engine) Relays(q monitor.RelayQuery) []monitor.RelayEntry {
	now := time.Now()
	e.mu.RLock()
	defer e.mu.RUnlock()
	list := e.relays
	if q.Excluded {
		list = e.excluded()
	}
	if q.After != "" {
		i, found := slices.BinarySearchFunc(list, q.After, func(r *relay, u monitor.RelayURL) int { return cmp.Compare(r.URL, u) })
		if found {
			i++
		}
		list = list[i:]
	}
	out := []monitor.RelayEntry{}
	for _, r := range list {
		if q.Limit > 0 && len(out) == q.Limit {
			break
		}
		if selects(&q, r, now) {
			out = append(out, e.entry(r, now, q.Excluded))
		}
	}
	return out
}

// excluded returns the excluded relays by URL.
func (e *Engine) excluded() []*relay {
	var out []*relay
	for _, r := range e.aside {
		if r.Excluded || e.bounds.barred[r.URL] {
			out = append(out, r)
		}
	}
	for u := range e.bounds.barred {
		if e.aside[u] == nil { // never heard of but there
			out = append(out, newRelay(u, time.Time{}))
		}
	}
	slices.SortFunc(out, func(a, b *relay) int { return cmp.Compare(a.URL, b.URL) })
	return out
}

// selects reports whether every condition of q but After and Excluded holds.
func selects(q *monitor.RelayQuery, r *relay, now time.Time) bool {
	switch {
	case q.State != nil && r.Verdict.State != *q.State,
		!r.Verdict.Marks.Has(q.Marks),
		q.Network != "" && r.URL.Network() != q.Network,
		q.Source != "" && r.Source != q.Source,
		q.Candidate != nil && r.Candidate != *q.Candidate,
		q.Paused != nil && r.PausedUntil.After(now) != *q.Paused,
		q.Contains != "" && !strings.Contains(strings.ToLower(string(r.URL)), q.Contains):
		return false
	}
	return true
}

// entry is a relay's line in the list of all.
func (e *Engine) entry(r *relay, now time.Time, excluded bool) monitor.RelayEntry {
	out := monitor.RelayEntry{
		WatchedRelay: r.WatchedRelay, Eligible: r.eligible(now),
		RTTOpenMS: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTOpen }),
	}
	out.Excluded = excluded
	if !out.PausedUntil.After(now) {
		out.PausedUntil = time.Time{}
	}
	if !excluded {
		out.VantagesUp, out.VantagesTotal = e.up(r, now)
	}
	return out
}

// up counts the vantages that see a watched relay up, and those that can reach
// it.
func (e *Engine) up(r *relay, now time.Time) (up, total int) {
	network := r.URL.Network()
	for i, v := range e.vantages {
		if v.Reaches(network) {
			total++
			if e.cfg.Corroboration.Vote(r.seen[i], now) == monitor.VoteUp {
				up++
			}
		}
	}
	return up, total
}

// eligible reports whether a client may try the relay now: nothing is known
// against it, or its cooldown is over at some vantage.
func (r *relay) eligible(now time.Time) bool {
	if s := r.Verdict.State; s == monitor.StateUnknown || s == monitor.StateOnline {
		return true
	}
	return slices.ContainsFunc(r.seen, func(v monitor.VantageRelay) bool { return v.Record.Eligible(now) })
}
