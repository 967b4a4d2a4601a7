package relay

import "slices"

// tagIndex finds events by the values of their one-letter tags, other than d,
// which index.byD serves.
//
// Each event has a slot, and so has the one that replaces it: a report is
// renewed with the same tags nearly always, and then only the slot is written.
// The caller locks.
type tagIndex struct {
	slots []*event // nil = free
	free  []uint32
	by    map[tag]*posting
}

func newTagIndex() tagIndex { return tagIndex{by: map[tag]*posting{}} }

// change takes old out and puts next in its place; either may be nil. next must
// not be served yet.
func (x *tagIndex) change(old, next *event) {
	switch {
	case old == nil:
		next.slot = x.take()
		x.add(next)
	case next == nil:
		x.remove(old)
		x.slots[old.slot] = nil
		x.free = append(x.free, old.slot)
		return
	default:
		next.slot = old.slot
		if slices.Equal(old.tags, next.tags) {
			next.tags = old.tags // one copy of them
		} else {
			x.remove(old)
			x.add(next)
		}
	}
	x.slots[next.slot] = next
}

func (x *tagIndex) take() uint32 {
	if last := len(x.free) - 1; last >= 0 {
		slot := x.free[last]
		x.free = x.free[:last]
		return slot
	}
	x.slots = append(x.slots, nil)
	return uint32(len(x.slots) - 1)
}

func (x *tagIndex) add(e *event) {
	for i := range e.tags {
		t := &e.tags[i]
		if t.name == 'd' {
			continue
		}
		p := x.by[*t]
		if p == nil {
			p = &posting{value: t.value}
			x.by[*t] = p
		}
		t.value = p.value // one copy of what many events say
		p.add(e.slot)
	}
}

func (x *tagIndex) remove(e *event) {
	for _, t := range e.tags {
		p := x.by[t]
		if p == nil {
			continue
		}
		if p.remove(e.slot); p.n == 0 {
			delete(x.by, t)
		}
	}
}

// A candidate costs about candidateCost times as much as an event that is
// passed while walking a list: it is fetched out of order, and sorted.
const candidateCost = 4

// candidates are the events that meet the condition of f which the fewest
// events meet. They are in no order, may repeat, and may still fail f's other
// conditions. nil means that walking f's lists, which hold stored events, is
// cheaper.
func (x *tagIndex) candidates(f *filter, stored int) []*event {
	var best *condition
	fewest := stored / candidateCost
	for i := range f.tags {
		c := &f.tags[i]
		if c.never {
			return []*event{}
		}
		if n := x.count(c, fewest); n <= fewest {
			best, fewest = c, n
		}
	}
	if best == nil {
		return nil
	}
	// A walk ends at the limit. How far it goes is only known where nothing
	// else has to be met.
	if f.limit > 0 && fewest > 0 && len(f.tags) == 1 && min(f.limit, stored)*stored/fewest < candidateCost*fewest {
		return nil
	}
	out := make([]*event, 0, fewest)
	for v := range best.values.all {
		if p := x.by[tag{best.name, v}]; p != nil {
			p.each(func(slot uint32) { out = append(out, x.slots[slot]) })
		}
	}
	return out
}

// count is how many events meet c, those with several of its values counted as
// often; it stops above enough.
func (x *tagIndex) count(c *condition, enough int) int {
	n := 0
	for v := range c.values.all {
		if p := x.by[tag{c.name, v}]; p != nil {
			if n += p.n; n > enough {
				break
			}
		}
	}
	return n
}
