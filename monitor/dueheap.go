package monitor

import "time"

// DueHeap holds when each relay is due: the schedule of one vantage. Every
// operation costs O(log n), and setting a known relay allocates nothing. It is
// not safe for concurrent use.
//
// Times are wall-clock ones: a monotonic reading is dropped, so that slots from
// before and after a suspension compare.
type DueHeap struct {
	ids     map[RelayURL]int32
	entries []dueEntry // by id
	heap    []int32    // ids, earliest first
	free    []int32    // ids of removed relays
}

type dueEntry struct {
	relay RelayURL
	at    time.Time
	pos   int32 // in heap, -1 = handed out or removed
}

// Set makes relay due at at, whether it was there or not.
func (h *DueHeap) Set(relay RelayURL, at time.Time) {
	at = at.Round(0)
	id, ok := h.ids[relay]
	if !ok {
		id = h.add(relay)
	}
	e := &h.entries[id]
	e.at = at
	if e.pos < 0 {
		e.pos = int32(len(h.heap))
		h.heap = append(h.heap, id)
	}
	if !h.up(int(e.pos)) {
		h.down(int(e.pos))
	}
}

func (h *DueHeap) add(relay RelayURL) int32 {
	if h.ids == nil {
		h.ids = make(map[RelayURL]int32)
	}
	e := dueEntry{relay: relay, pos: -1}
	var id int32
	if n := len(h.free); n > 0 {
		id = h.free[n-1]
		h.free = h.free[:n-1]
		h.entries[id] = e
	} else {
		id = int32(len(h.entries))
		h.entries = append(h.entries, e)
	}
	h.ids[relay] = id
	return id
}

// Remove forgets relay; one that is not there does no harm.
func (h *DueHeap) Remove(relay RelayURL) {
	id, ok := h.ids[relay]
	if !ok {
		return
	}
	h.take(int(h.entries[id].pos))
	h.entries[id] = dueEntry{pos: -1}
	h.free = append(h.free, id)
	delete(h.ids, relay)
}

// At returns when relay is due; ok is false when it is not on the heap.
func (h *DueHeap) At(relay RelayURL) (at time.Time, ok bool) {
	id, ok := h.ids[relay]
	if !ok || h.entries[id].pos < 0 {
		return time.Time{}, false
	}
	return h.entries[id].at, true
}

// Peek returns the relay that is due first; ok is false when there is none.
func (h *DueHeap) Peek() (relay RelayURL, at time.Time, ok bool) {
	if len(h.heap) == 0 {
		return "", time.Time{}, false
	}
	e := &h.entries[h.heap[0]]
	return e.relay, e.at, true
}

// Pop hands out the relay that is due first, when it is due at now. It is off
// the heap until the next Set; until Remove its place is kept.
func (h *DueHeap) Pop(now time.Time) (relay RelayURL, due time.Time, ok bool) {
	relay, due, ok = h.Peek()
	if !ok || due.After(now) {
		return "", time.Time{}, false
	}
	h.take(0)
	return relay, due, true
}

// take takes what is at pos off the heap.
func (h *DueHeap) take(pos int) {
	if pos < 0 {
		return
	}
	h.entries[h.heap[pos]].pos = -1
	last := len(h.heap) - 1
	moved := h.heap[last]
	h.heap = h.heap[:last]
	if pos == last {
		return
	}
	h.place(moved, pos)
	if !h.up(pos) {
		h.down(pos)
	}
}

func (h *DueHeap) place(id int32, pos int) {
	h.heap[pos] = id
	h.entries[id].pos = int32(pos)
}

// before orders by time, then by id, so that equal times keep one order.
func (h *DueHeap) before(a, b int32) bool {
	if c := h.entries[a].at.Compare(h.entries[b].at); c != 0 {
		return c < 0
	}
	return a < b
}

// up moves what is at pos towards the root and reports whether it moved.
func (h *DueHeap) up(pos int) bool {
	id, start := h.heap[pos], pos
	for pos > 0 {
		parent := (pos - 1) / 2
		if !h.before(id, h.heap[parent]) {
			break
		}
		h.place(h.heap[parent], pos)
		pos = parent
	}
	h.place(id, pos)
	return pos != start
}

func (h *DueHeap) down(pos int) {
	id, n := h.heap[pos], len(h.heap)
	for {
		child := 2*pos + 1
		if child >= n {
			break
		}
		if child+1 < n && h.before(h.heap[child+1], h.heap[child]) {
			child++
		}
		if !h.before(h.heap[child], id) {
			break
		}
		h.place(h.heap[child], pos)
		pos = child
	}
	h.place(id, pos)
}
