package relay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestList compares a list with a sorted slice, and holds that old lists stay
// as they were.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*event
		draw := func(i int) *event {
			return &event{id: fmt.Sprintf("%04d", i), created: rapid.Int64Range(0, 50).Draw(t, "created")}
		}
		for i := range rapid.SampledFrom([]int{0, 1, 400, 3000}).Draw(t, "first") {
			all = append(all, &event{id: fmt.Sprintf("a%04d", i), created: int64(i*7919%3000) / 60})
		}
		l := listOf(slices.Clone(all))
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			before, was := l, walk(l)
			if len(all) > 0 && rapid.Bool().Draw(t, "remove") {
				at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
				l = l.remove(all[at])
				all = slices.Delete(all, at, at+1)
			} else {
				e := draw(i)
				l = l.insert(e)
				all = append(all, e)
			}
			l = l.remove(&event{id: "none", created: 7})
			if d := cmp.Diff(was, walk(before)); d != "" {
				t.Fatalf("an old list changed: %s", d)
			}
		}
		want := slices.SortedFunc(slices.Values(all), func(a, b *event) int { return oldestFirst(b, a) })
		ids := []string{}
		for _, e := range want {
			ids = append(ids, e.id)
		}
		if d := cmp.Diff(ids, walk(l)); d != "" {
			t.Fatal(d)
		}
		if l.len() != len(all) {
			t.Fatalf("%d events, want %d", l.len(), len(all))
		}
		for _, b := range l {
			if len(b) == 0 || len(b) > blockSize {
				t.Fatalf("a block of %d", len(b))
			}
		}
	})
}

func walk(l list) []string {
	out := []string{}
	l.newestFirst(func(e *event) bool {
		out = append(out, e.id)
		return true
	})
	return out
}

// TestListGrows: blocks split, at the end and in the middle.
func TestListGrows(t *testing.T) {
	var l list
	for i := range 3 * blockSize {
		l = l.insert(&event{id: fmt.Sprint(i), created: int64(i)})
	}
	if len(l) != 3 {
		t.Errorf("%d blocks after appending 3 blocks' worth", len(l))
	}
	for i := range 2 * blockSize {
		l = l.insert(&event{id: fmt.Sprintf("m%d", i), created: blockSize / 2})
	}
	if l.len() != 5*blockSize || !slices.IsSorted(slices.Collect(func(yield func(int) bool) {
		l.newestFirst(func(e *event) bool { return yield(-int(e.created)) })
	})) {
		t.Error("out of order after inserting in the middle")
	}
}
