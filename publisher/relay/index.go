package relay

import (
	"maps"
	"slices"
	"sync"

	"github.com/pharos-nostr/pharos/monitor"
)

// index holds the served events. One goroutine at a time changes it; any
// number ask.
type index struct {
	mu   sync.RWMutex
	byID map[string]*event
	byD  map[string][]*event // events with that d tag, of whatever kind
	tags tagIndex
	view view

	// Only the one who updates reads and writes these.
	online  []*event               // of the list's reports, in the generation's order
	sources []*monitor.SignedEvent // of online, to compare without touching each event
	singles map[address]*event     // snapshot and service events
}

// view is what a query scans without the lock: its lists are replaced, never
// changed.
type view struct {
	version uint64
	hidden  bool // the list must not be trusted: its events are kept, not served
	byKind  map[int]list
}

type address struct {
	kind int
	d    string
}

func newIndex() *index {
	return &index{
		byID:    map[string]*event{},
		byD:     map[string][]*event{},
		tags:    newTagIndex(),
		view:    view{hidden: true, byKind: map[int]list{}},
		singles: map[address]*event{},
	}
}

// change is what an update came to.
type change struct {
	version uint64
	added   []*event
	// appeared: the list was hidden and is served again; those who asked
	// meanwhile have seen none of it.
	appeared bool
}

// update makes the index serve g. While g is warming up or stale the list is
// hidden and left as it was (reports.md 13). The errors are of events that
// cannot be read, which are left out.
func (x *index) update(g *monitor.Generation) (change, []error) {
	hidden := g.Fallback == monitor.FallbackWarmingUp || g.Fallback == monitor.FallbackStale
	var d diff
	if !hidden {
		x.diffOnline(g.Online, &d)
	}
	x.diffSingles(g, hidden, &d)
	return x.apply(&d, hidden), d.errs
}

// diff gathers what goes and what comes.
type diff struct {
	steps []step
	errs  []error
}

// step puts next in the place of old; either may be nil.
type step struct{ old, next *event }

// put lets the event of s take the place of old, either of which may be nil,
// and returns it; nil if it cannot be read.
func (d *diff) put(old *event, s *monitor.SignedEvent, listed bool) *event {
	var e *event
	if s != nil {
		var err error
		if e, err = newEvent(s, listed); err != nil {
			d.errs = append(d.errs, err)
			e = nil
		}
	}
	if old != nil || e != nil {
		d.steps = append(d.steps, step{old, e})
	}
	return e
}

func (d *diff) added() []*event {
	var out []*event
	for _, s := range d.steps {
		if s.next != nil {
			out = append(out, s.next)
		}
	}
	return out
}

// diffOnline walks the old and the new list together: both are in the order of
// the URLs. Where nothing changed it costs one comparison of pointers a relay.
func (x *index) diffOnline(now []monitor.OnlineRelay, d *diff) {
	old := x.online
	var changed []int
	same := len(old) == len(now)
	for i := 0; same && i < len(old); i++ {
		if r := now[i].Report; r != x.sources[i] {
			changed = append(changed, i)
			same = r != nil && (old[i] == nil || old[i].d == r.D)
		}
	}
	if same {
		for _, i := range changed {
			old[i] = x.replace(old[i], now[i].Report, d)
			x.sources[i] = now[i].Report
		}
		return
	}
	was := make(map[string]*event, len(old))
	for _, e := range old {
		if e != nil {
			was[e.d] = e
		}
	}
	online := make([]*event, len(now))
	sources := make([]*monitor.SignedEvent, len(now))
	for i := range now {
		r := now[i].Report
		if r == nil {
			continue
		}
		sources[i] = r
		e := was[r.D]
		delete(was, r.D)
		if e == nil || e.source != r {
			e = x.replace(e, r, d)
		}
		online[i] = e
	}
	for _, e := range was {
		d.put(e, nil, true)
	}
	x.online, x.sources = online, sources
}

// replace puts r in the place of old, which may be nil; the same event under
// another pointer changes nothing.
func (x *index) replace(old *event, r *monitor.SignedEvent, d *diff) *event {
	if old != nil && old.id == r.ID {
		return old
	}
	return d.put(old, r, true)
}

func (x *index) diffSingles(g *monitor.Generation, hidden bool, d *diff) {
	next := make(map[address]*monitor.SignedEvent, len(g.Service)+1)
	for _, s := range g.Service {
		if s != nil {
			next[address{s.Kind, s.D}] = s
		}
	}
	if g.Snapshot != nil && !hidden {
		next[address{g.Snapshot.Kind, g.Snapshot.D}] = g.Snapshot
	}
	for a, e := range x.singles {
		if next[a] == nil {
			d.put(e, nil, e.listed)
			delete(x.singles, a)
		}
	}
	for a, s := range next {
		old := x.singles[a]
		if old != nil && old.id == s.ID {
			continue
		}
		if e := d.put(old, s, s == g.Snapshot); e != nil {
			x.singles[a] = e
		} else {
			delete(x.singles, a)
		}
	}
}

// apply makes the new view beside the old one and swaps it in.
func (x *index) apply(d *diff, hidden bool) change {
	old := &x.view // only this goroutine writes it
	next := view{version: old.version, hidden: hidden, byKind: old.byKind}
	if len(d.steps) > 0 {
		next.byKind = rebuild(old.byKind, d.steps)
	}
	added := d.added()
	if len(added) > 0 || hidden != old.hidden {
		next.version++
	}
	c := change{version: next.version, added: added, appeared: old.hidden && !hidden}

	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range d.steps {
		if s.old != nil {
			x.drop(s.old)
		}
		if s.next != nil {
			x.byID[s.next.id] = s.next
			if s.next.d != "" {
				x.byD[s.next.d] = append(x.byD[s.next.d], s.next)
			}
		}
		x.tags.change(s.old, s.next)
	}
	x.view = next
	return c
}

// drop: the caller holds mu.
func (x *index) drop(e *event) {
	delete(x.byID, e.id)
	if e.d == "" {
		return
	}
	if l := x.byD[e.d]; len(l) == 1 && l[0] == e {
		delete(x.byD, e.d)
	} else if i := slices.Index(l, e); i >= 0 {
		x.byD[e.d] = slices.Delete(l, i, i+1)
	}
}

// fewChanges is up to how many changes of one kind are made one by one; more
// are cheaper by sorting anew.
const fewChanges = 64

func rebuild(old map[int]list, steps []step) map[int]list {
	next := maps.Clone(old)
	type change struct{ removed, added []*event }
	changes := map[int]*change{}
	of := func(e *event) *change {
		if changes[e.kind] == nil {
			changes[e.kind] = new(change)
		}
		return changes[e.kind]
	}
	for _, s := range steps {
		if s.old != nil {
			c := of(s.old)
			c.removed = append(c.removed, s.old)
		}
		if s.next != nil {
			c := of(s.next)
			c.added = append(c.added, s.next)
		}
	}
	for kind, c := range changes {
		l := old[kind]
		if len(c.removed)+len(c.added) <= fewChanges {
			for _, e := range c.removed {
				l = l.remove(e)
			}
			for _, e := range c.added {
				l = l.insert(e)
			}
		} else {
			gone := make(map[*event]bool, len(c.removed))
			for _, e := range c.removed {
				gone[e] = true
			}
			all := make([]*event, 0, l.len()+len(c.added))
			for _, b := range l {
				for _, e := range b {
					if !gone[e] {
						all = append(all, e)
					}
				}
			}
			l = listOf(append(all, c.added...))
		}
		if len(l) == 0 {
			delete(next, kind)
		} else {
			next[kind] = l
		}
	}
	return next
}

// query returns the events that match any of the filters at now, newest first,
// each once. registered, if not nil, is called with the state that the answer
// is of, such that every later change has a higher version.
func (x *index) query(fs []filter, now int64, registered func(version uint64, hidden bool)) []*event {
	x.mu.RLock()
	v := x.view
	found := make([][]*event, len(fs)) // candidates by look-up
	for i := range fs {
		found[i] = x.lookup(&fs[i])
	}
	if registered != nil {
		registered(v.version, v.hidden)
	}
	x.mu.RUnlock()

	if len(fs) == 1 {
		return v.answer(&fs[0], found[0], now)
	}
	seen := map[*event]bool{}
	var out []*event
	for i := range fs {
		for _, e := range v.answer(&fs[i], found[i], now) {
			if !seen[e] {
				seen[e] = true
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b *event) int { return oldestFirst(b, a) }

// lookup finds candidates by id, d tag or another tag; nil when f is better
// answered from the lists of its kinds. The caller holds mu.
func (x *index) lookup(f *filter) []*event {
	switch {
	case f.ids != nil:
		out := []*event{}
		for _, id := range f.ids0 {
			if e := x.byID[id]; e != nil {
				out = append(out, e)
			}
		}
		return out
	case f.d != nil:
		out := make([]*event, 0, len(f.d))
		for _, d := range f.d {
			out = append(out, x.byD[d]...)
		}
		return out
	case len(f.tags) > 0:
		stored := 0
		for _, l := range x.view.lists(f) {
			stored += l.len()
		}
		return x.tags.candidates(f, stored)
	}
	return nil
}

// answer is one filter's: candidates of a look-up, or the lists of its kinds.
func (v *view) answer(f *filter, candidates []*event, now int64) []*event {
	if f.limit == 0 {
		return nil
	}
	serves := func(e *event) bool {
		return !(v.hidden && e.listed) && !e.expired(now) && f.matches(e)
	}
	if candidates != nil {
		candidates = slices.DeleteFunc(candidates, func(e *event) bool { return !serves(e) })
		slices.SortFunc(candidates, newestFirst)
		return f.cut(slices.Compact(candidates)) // a value may be named twice
	}
	lists := v.lists(f)
	var out []*event
	for _, l := range lists {
		size, n := l.len(), 0
		if f.limit > 0 {
			size = min(size, f.limit)
		}
		l.newestFirst(func(e *event) bool {
			if e.created < f.since || (f.limit > 0 && n == f.limit) {
				return false
			}
			if serves(e) {
				if out == nil {
					out = make([]*event, 0, size)
				}
				out = append(out, e)
				n++
			}
			return true
		})
	}
	if len(lists) > 1 {
		slices.SortFunc(out, newestFirst)
	}
	return f.cut(out)
}

// lists are those of the kinds that f asks for.
func (v *view) lists(f *filter) []list {
	var lists []list
	if f.kinds == nil {
		for _, l := range v.byKind {
			lists = append(lists, l)
		}
	} else {
		kinds := slices.Clone(f.kinds)
		slices.Sort(kinds)
		for _, k := range slices.Compact(kinds) {
			if l := v.byKind[k]; l != nil {
				lists = append(lists, l)
			}
		}
	}
	return lists
}

func (f *filter) cut(l []*event) []*event {
	if f.limit > 0 && len(l) > f.limit {
		return l[:f.limit]
	}
	return l
}

// all are the list's events, for those who saw none of it.
func (x *index) all() []*event {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []*event
	for _, l := range x.view.byKind {
		l.newestFirst(func(e *event) bool {
			if e.listed {
				out = append(out, e)
			}
			return true
		})
	}
	return out
}
