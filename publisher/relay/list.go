package relay

import (
	"slices"
	"sort"
)

// blockSize is how many events a block of a list holds at most; a change copies
// one block and the list of blocks.
const blockSize = 512

// list holds events in the order of oldestFirst, in blocks none of which is
// empty. Neither a list nor a block is ever changed: a change makes a new list
// that shares the blocks it did not touch, so that a reader needs no lock and
// replacing one of 30 000 events costs microseconds.
type list [][]*event

// listOf sorts evs, which it keeps.
func listOf(evs []*event) list {
	slices.SortFunc(evs, oldestFirst)
	var l list
	// Not full, so that events can come in between.
	for c := range slices.Chunk(evs, blockSize*3/4) {
		l = append(l, slices.Clip(c))
	}
	return l
}

func (l list) len() int {
	n := 0
	for _, b := range l {
		n += len(b)
	}
	return n
}

// find is the block in which e is or belongs; the list is not empty.
func (l list) find(e *event) int {
	after := sort.Search(len(l), func(i int) bool { return oldestFirst(l[i][0], e) > 0 })
	return max(0, after-1)
}

func (l list) insert(e *event) list {
	if len(l) == 0 {
		return list{{e}}
	}
	i := l.find(e)
	b := l[i]
	at, _ := slices.BinarySearchFunc(b, e, oldestFirst)
	next := make([]*event, 0, len(b)+1)
	next = append(append(append(next, b[:at]...), e), b[at:]...)
	out := slices.Clone(l)
	if len(next) <= blockSize {
		out[i] = next
		return out
	}
	half := len(next) / 2
	if at == len(b) {
		half = len(b) // appending, as new reports mostly are: leave full blocks behind
	}
	return slices.Replace(out, i, i+1, next[:half:half], slices.Clone(next[half:]))
}

func (l list) remove(e *event) list {
	if len(l) == 0 {
		return l
	}
	i := l.find(e)
	b := l[i]
	at, ok := slices.BinarySearchFunc(b, e, oldestFirst)
	if !ok {
		return l
	}
	out := slices.Clone(l)
	if len(b) == 1 {
		return slices.Delete(out, i, i+1)
	}
	next := make([]*event, 0, len(b)-1)
	out[i] = append(append(next, b[:at]...), b[at+1:]...)
	return out
}

// newestFirst walks the list back until yield returns false.
func (l list) newestFirst(yield func(*event) bool) {
	for i := len(l) - 1; i >= 0; i-- {
		for j := len(l[i]) - 1; j >= 0; j-- {
			if !yield(l[i][j]) {
				return
			}
		}
	}
}
