package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// A found relay that nobody names any longer leaves after so long, unless it
	// is online …
	unnamedFor = 30 * 24 * time.Hour
	// … and after so long where it was never seen alive.
	unnamedCandidateFor = 7 * 24 * time.Hour
	// A candidate that is dead for so long makes room in a set that is full.
	deadCandidateFor = 7 * 24 * time.Hour
	// What a relay's provenance is kept for after it was last named.
	provenanceFor = 90 * 24 * time.Hour

	// Above so many watched relays a sweep changes the set by at most half of it
	// (relay-url.md).
	holdAbove = 500

	// One transaction's part of a sweep: batches and rounds go on in between.
	lookAtOnce = 20_000 // found relays that are looked at
	takeAtOnce = 1000   // relays that come or leave
	nameAtOnce = 1000   // rows of provenance
)

// Discover takes what a sweep found into the relays that are watched, as candidates
// within MaxRelays and MaxPerHost, those first that most authors name. Candidates
// that were taken in before and stayed dead make room for them in a full set; what
// still finds none is kept as waiting, unprobed, and counted. Found relays that
// nobody names any longer leave after a sweep that is whole, those online never.
//
// Above 500 watched relays one sweep adds at most half as many as there are, and
// takes none away where it would take more than half: the status, and once the log,
// say what was held back. The next sweep asks anew.
//
// It works in short transactions, between which batches, rounds and commands go
// on. An error (ErrUnavailable while the store is away, ErrConflict when another
// core has taken the database over) says that a part of the sweep was not taken in;
// the next one makes up for it. Sweeps are taken in one after the other.
func (e *Engine) Discover(ctx context.Context, s *monitor.Sweep) (monitor.DiscoveryStatus, error) {
	e.sweeps.Lock()
	defer e.sweeps.Unlock()
	in := e.newIntake(s)
	if err := e.takeIn(ctx, in); err != nil {
		return monitor.DiscoveryStatus{}, fmt.Errorf("take in a sweep: %w", err)
	}
	told := *s
	told.Found = nil
	st := monitor.DiscoveryStatus{Sweep: &told, Found: len(in.all), Waiting: in.waiting, Held: strings.Join(in.held, "; ")}
	for part := range slices.Chunk(in.all, lookAtOnce) {
		e.mu.RLock()
		for i := range part {
			if e.byURL[part[i].URL] != nil {
				st.Watched++
			}
		}
		e.mu.RUnlock()
	}
	e.mu.Lock()
	e.discovery = st
	watched := len(e.relays)
	e.mu.Unlock()
	for _, sentence := range in.held {
		e.log.Warn("discovery held back", "why", sentence)
	}
	if in.added+in.left > 0 {
		e.log.Info("discovery changed the watched relays", "added", in.added, "left", in.left, "waiting", in.waiting, "watched", watched)
	}
	return st, nil
}

// recount tells of the newest sweep that is stored, as far as it is.
func (e *Engine) recount(stored *monitor.Stored) {
	e.discovery = monitor.DiscoveryStatus{Found: stored.Found, Waiting: stored.Waiting}
	newest := time.Time{}
	for _, p := range stored.Provenance {
		if p.LastSeen.After(newest) {
			newest = p.LastSeen
		}
	}
	for _, r := range e.relays {
		if r.provenance != nil && r.provenance.LastSeen.Equal(newest) {
			e.discovery.Watched++
		}
	}
}

// intake is one sweep that is being taken in.
type intake struct {
	sweep *monitor.Sweep
	at    time.Time            // when it ended
	all   []monitor.NamedRelay // what it found, by URL
	queue []*arrival           // of them, those that are still to be looked at
	leave []*relay             // still to leave

	present, limit int            // watched before it, and so many more may come
	full           map[string]int // relays by host for which there is room and which are held back
	heldBack       int            // all of them

	added, left, waiting int
	held                 []string // why not all of it, in sentences
}

// arrival is a found relay that is not watched yet.
type arrival struct {
	*monitor.NamedRelay
	host string
	// tried: it was taken in before, was never seen alive and made room.
	tried bool
}

// newIntake puts what a sweep found in order: by URL, each once.
func (e *Engine) newIntake(s *monitor.Sweep) *intake {
	in := &intake{sweep: s, at: s.At, full: map[string]int{}}
	if in.at.IsZero() {
		in.at = time.Now()
	}
	in.all = make([]monitor.NamedRelay, 0, len(s.Found))
	for i := range s.Found {
		in.all = append(in.all, monitor.NamedRelay{FoundRelay: s.Found[i]})
	}
	slices.SortStableFunc(in.all, func(a, b monitor.NamedRelay) int { return cmp.Compare(a.URL, b.URL) })
	in.all = slices.CompactFunc(in.all, func(a, b monitor.NamedRelay) bool { return a.URL == b.URL })
	return in
}

// takeIn has those leave that nobody names, takes in those that are new, and keeps
// where all were named.
func (e *Engine) takeIn(ctx context.Context, in *intake) error {
	e.arrivals(in)
	e.departures(in, time.Now())
	// The most named ones first, whatever the order in which they were found.
	slices.SortFunc(in.queue, func(a, b *arrival) int {
		if a.tried != b.tried {
			if b.tried {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Authors, a.Authors), cmp.Compare(a.URL, b.URL))
	})
	for len(in.leave) > 0 {
		if err := e.takeTurn(ctx, func(out *round) { e.leave(in, out) }); err != nil {
			return err
		}
	}
	for len(in.queue) > 0 {
		if err := e.takeTurn(ctx, func(out *round) { e.bring(in, out) }); err != nil {
			return err
		}
	}
	if in.heldBack > 0 {
		in.held = append(in.held, fmt.Sprintf("%d relays more were found than one sweep may add to %d: at most %d, the others wait for the next sweep",
			in.heldBack, in.present, in.limit))
	}
	return e.name(ctx, in)
}

// takeTurn works out a round as a command does, and carries it out.
func (e *Engine) takeTurn(ctx context.Context, work func(*round)) error {
	e.turn.Lock()
	defer e.turn.Unlock()
	e.ingest.Lock()
	defer e.ingest.Unlock()
	if err := e.begin(ctx); err != nil {
		return err
	}
	now := time.Now()
	e.mu.RLock()
	out := e.newRound(now)
	work(out)
	e.mu.RUnlock()
	if out.empty() {
		return nil
	}
	return e.carryOut(ctx, out, now)
}

// arrivals queues what is found and not watched.
func (e *Engine) arrivals(in *intake) {
	queue := make([]arrival, len(in.all))
	for i := range in.all {
		queue[i] = arrival{NamedRelay: &in.all[i], host: in.all[i].URL.Host()}
	}
	in.queue = make([]*arrival, 0, len(queue))
	for part := range slices.Chunk(queue, lookAtOnce) {
		e.mu.RLock()
		for i := range part {
			a := &part[i]
			if e.byURL[a.URL] != nil {
				continue
			}
			if r := e.aside[a.URL]; r != nil {
				a.tried = r.Verdict.Reason == ended(endNeverAlive)
			}
			in.queue = append(in.queue, a)
		}
		e.mu.RUnlock()
	}
}

// departures lists those that leave, and says how many may come.
func (e *Engine) departures(in *intake, now time.Time) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	in.present = len(e.relays)
	in.limit = len(in.all)
	if in.present > holdAbove {
		in.limit = in.present / 2
	}
	for _, r := range e.relays {
		if e.leaves(in, r, now) != "" {
			in.leave = append(in.leave, r)
		}
	}
	if n := len(in.leave); in.present > holdAbove && n > in.present/2 {
		in.held = append(in.held, fmt.Sprintf("%d of %d relays would leave, which is more than half: none leaves", n, in.present))
		in.leave = nil
	}
}

// leaves says why a watched relay leaves after this sweep; "" = it stays. Of a
// slash twin somebody must still be served: the one without slash is then online,
// or neither is.
func (e *Engine) leaves(in *intake, r *relay, now time.Time) string {
	if r.asked() {
		return ""
	}
	online := r.Verdict.State == monitor.StateOnline
	if base, ok := withoutSlash(r.URL); ok {
		if b := e.byURL[base]; b != nil && (!online || b.Verdict.State == monitor.StateOnline) {
			return string(base) + " is the same relay"
		}
	}
	if r.Source != monitor.SourceDiscovery || !in.sweep.Whole || in.named(r.URL) != nil || online {
		return ""
	}
	named := r.FirstSeen
	if r.provenance != nil {
		named = r.provenance.LastSeen
	}
	if gone := now.Sub(named); gone > unnamedFor || r.Candidate && gone > unnamedCandidateFor {
		return endUnnamed
	}
	return ""
}

// leave puts the next ones that leave into the round. Its caller holds mu for
// reading.
func (e *Engine) leave(in *intake, out *round) {
	for len(in.leave) > 0 && len(out.parts) < takeAtOnce {
		r := in.leave[0]
		in.leave = in.leave[1:]
		if e.byURL[r.URL] != r {
			continue
		}
		why := e.leaves(in, r, out.decision.At) // it may have come back since
		if why == "" {
			continue
		}
		e.partFound(out, r, why)
		in.left++
	}
}

// partFound puts into the round that a relay of discovery leaves. A candidate stays
// one: it is in no list, and its leaving changes none.
func (e *Engine) partFound(out *round, r *relay, why string) {
	next := r.WatchedRelay
	next.Source = monitor.SourceNone
	out.part(r, next, why)
}

// bring puts the next ones that come into the round. Its caller holds mu for
// reading.
func (e *Engine) bring(in *intake, out *round) {
	now := out.decision.At
	m := e.space(in, now)
	for n := 0; n < lookAtOnce && len(in.queue) > 0 && len(out.joins) < takeAtOnce; n++ {
		a := in.queue[0]
		in.queue = in.queue[1:]
		if e.byURL[a.URL] != nil || e.barsFound(in, a.URL) {
			continue
		}
		if most := e.cfg.MaxPerHost; most > 0 && m.hosts[a.host] >= most {
			in.wait(a.NamedRelay)
			continue
		}
		over := 0 // so many must make room
		if e.cfg.MaxRelays > 0 {
			over = max(0, m.watched+1-e.cfg.MaxRelays)
		}
		if over > len(m.dead) {
			in.wait(a.NamedRelay)
			continue
		}
		old := m.dead[:over]
		m.dead = m.dead[over:]
		for _, r := range old {
			m.hosts[r.URL.Host()]--
		}
		m.watched += 1 - over
		m.hosts[a.host]++
		if in.added >= in.limit {
			in.heldBack++
			in.full[a.host]++
			in.wait(a.NamedRelay)
			continue
		}
		for _, r := range old {
			e.partFound(out, r, endNeverAlive)
			in.left++
			if n := in.named(r.URL); n != nil {
				in.wait(n)
			}
		}
		r := e.aside[a.URL]
		if r == nil {
			r = newRelay(a.URL, now)
		}
		next := r.WatchedRelay
		next.Source, next.Candidate = monitor.SourceDiscovery, true
		e.join(out, r, next)
		in.added++
	}
}

func (in *intake) wait(r *monitor.NamedRelay) {
	r.Waiting = true
	in.waiting++
}

// named returns what the sweep found of a relay; nil = it did not.
func (in *intake) named(u monitor.RelayURL) *monitor.NamedRelay {
	i, found := slices.BinarySearchFunc(in.all, u, func(r monitor.NamedRelay, u monitor.RelayURL) int { return cmp.Compare(r.URL, u) })
	if !found {
		return nil
	}
	return &in.all[i]
}

// space counts what is watched or held back, with the candidates that make room,
// the oldest first.
func (e *Engine) space(in *intake, now time.Time) *room {
	m := &room{watched: len(e.relays) + in.heldBack, hosts: make(map[string]int, len(e.relays))}
	for host, n := range in.full {
		m.hosts[host] = n
	}
	for _, r := range e.relays {
		if e.cfg.MaxPerHost > 0 {
			m.hosts[r.URL.Host()]++
		}
		v := &r.Verdict
		if r.Source == monitor.SourceDiscovery && r.Candidate && v.State == monitor.StateDead && now.Sub(v.Since) >= deadCandidateFor {
			m.dead = append(m.dead, r)
		}
	}
	slices.SortStableFunc(m.dead, func(a, b *relay) int { return a.FirstSeen.Compare(b.FirstSeen) })
	return m
}

// barsFound reports whether a found relay is never to be taken in, or not for as long
// as another one is there: it is excluded, or a URL that is the same relay is; it is
// our own relay; or the other URL is watched or found.
func (e *Engine) barsFound(in *intake, u monitor.RelayURL) bool {
	if e.excludes(u) || e.bounds.ours(u) {
		return true
	}
	if base, ok := withoutSlash(u); ok && (in.named(base) != nil || e.byURL[base] != nil || e.excludes(base)) {
		return true
	}
	over, ok := overTLS(u)
	return ok && (e.excludes(over) || e.standIn(u) != nil)
}

// excludes reports whether anybody wants a relay never probed.
func (e *Engine) excludes(u monitor.RelayURL) bool {
	r := e.aside[u]
	return e.bounds.barred[u] || r != nil && r.Excluded
}

// name keeps where the found relays were named, and forgets what was not named for
// long.
func (e *Engine) name(ctx context.Context, in *intake) error {
	rest := in.all
	for first := true; first || len(rest) > 0; first = false {
		n := &monitor.Named{At: in.at, Relays: rest[:min(len(rest), nameAtOnce)]}
		rest = rest[len(n.Relays):]
		if len(rest) == 0 {
			n.Before = in.at.Add(-provenanceFor)
		}
		if err := e.takeTurn(ctx, func(out *round) { out.decision.Named = n }); err != nil {
			return err
		}
		e.mu.Lock()
		for i := range n.Relays {
			f := &n.Relays[i]
			if r := e.find(f.URL); r != nil {
				r.provenance = &monitor.Provenance{Kinds: f.Kinds, Authors: f.Authors, FirstSeen: f.FirstSeen, LastSeen: in.at}
			}
		}
		e.mu.Unlock()
	}
	return nil
}
