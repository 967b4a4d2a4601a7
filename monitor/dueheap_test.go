package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

// The heap against a plain map, over any run of operations.
func TestDueHeapIsAMapInOrder(t *testing.T) {
	const relays = 41
	named := func(n int) monitor.RelayURL { return monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", n)) }
	relay := rapid.Custom(func(t *rapid.T) monitor.RelayURL { return named(rapid.IntRange(0, relays-1).Draw(t, "n")) })
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return day0.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "s")) * time.Second)
	})
	thoroughly(t, func(t *rapid.T) {
		var h monitor.DueHeap
		want := map[monitor.RelayURL]time.Time{}
		t.Repeat(map[string]func(*rapid.T){
			"set some": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "how many") {
					r, at := relay.Draw(t, "relay"), moment.Draw(t, "at")
					h.Set(r, at)
					want[r] = at
				}
			},
			"remove": func(t *rapid.T) {
				r := relay.Draw(t, "relay")
				h.Remove(r)
				delete(want, r)
			},
			"pop": func(t *rapid.T) {
				now := moment.Draw(t, "now")
				r, due, ok := h.Pop(now)
				if !ok {
					for r, at := range want {
						if !at.After(now) {
							t.Fatalf("nothing popped, %s is due", r)
						}
					}
					return
				}
				if at, there := want[r]; !there || !at.Equal(due) || due.After(now) {
					t.Fatalf("popped %s due %s at %s, set for %s (%v)", r, due, now, at, there)
				}
				for other, at := range want {
					if at.Before(due) {
						t.Fatalf("popped %s due %s before %s due %s", r, due, other, at)
					}
				}
				delete(want, r)
			},
			"": func(t *rapid.T) {
				r, at, ok := h.Peek()
				if ok != (len(want) > 0) || ok && !want[r].Equal(at) {
					t.Fatalf("peek %s %s %v, want one of %v", r, at, ok, want)
				}
				for other, due := range want {
					if due.Before(at) {
						t.Fatalf("peek %s at %s before %s at %s", r, at, other, due)
					}
				}
				for n := range relays {
					due, there := want[named(n)]
					if got, ok := h.At(named(n)); ok != there || !got.Equal(due) {
						t.Fatalf("%s is at %s (%v), want %s (%v)", named(n), got, ok, due, there)
					}
				}
			},
		})
	})
}

// Fifty thousand relays come out in order, and those that are known cost
// nothing to set anew.
func TestDueHeapLarge(t *testing.T) {
	const n = 50_000
	var h monitor.DueHeap
	relays := make([]monitor.RelayURL, n)
	for i := range relays {
		relays[i] = monitor.RelayURL(fmt.Sprintf("wss://relay-%d.example/", i))
		h.Set(relays[i], day0.Add(time.Duration(i*7919%n)*time.Second))
	}
	i := 0
	if allocs := testing.AllocsPerRun(1000, func() {
		i = (i + 104_729) % n
		h.Set(relays[i], day0.Add(time.Duration(i)*time.Second))
		r, due, _ := h.Pop(day0.Add(n * time.Second))
		h.Set(r, due.Add(time.Hour))
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	var last time.Time
	for range n {
		_, due, ok := h.Pop(day0.Add(1e6 * time.Hour))
		if !ok || due.Before(last) {
			t.Fatalf("%s after %s (%v)", due, last, ok)
		}
		last = due
	}
	if r, _, ok := h.Peek(); ok {
		t.Errorf("%s is left", r)
	}
	for _, r := range relays {
		h.Remove(r)
	}
	h.Set(relays[0], day0)
	if r, _, ok := h.Pop(day0); !ok || r != relays[0] {
		t.Errorf("after all were removed: %s %v", r, ok)
	}
}

// A place in the schedule compares on the wall clock.
func TestDueHeapDropsMonotonicReadings(t *testing.T) {
	var h monitor.DueHeap
	now := time.Now()
	h.Set("wss://a.example/", now)
	if _, at, _ := h.Peek(); at != now.Round(0) {
		t.Errorf("got %v", at)
	}
}
