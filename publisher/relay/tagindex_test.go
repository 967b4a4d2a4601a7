package relay

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nbd-wtf/go-nostr"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

// TestPosting compares a posting with a map, to and fro over the size at which
// its form changes.
func TestPosting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, want := new(posting), map[uint32]bool{}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for _, up := range rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(t, "up") {
			for range 400 {
				slot := rng.Uint32N(600)
				if up || rng.IntN(8) == 0 {
					p.add(slot)
					want[slot] = true
				} else {
					p.remove(slot)
					delete(want, slot)
				}
			}
			var got []uint32
			p.each(func(s uint32) { got = append(got, s) })
			slices.Sort(got)
			if d := cmp.Diff(slices.Sorted(maps.Keys(want)), got); d != "" || p.n != len(want) {
				t.Fatalf("it says %d: %s", p.n, d)
			}
			if p.bits != nil && p.n <= maxFew/2 || p.bits == nil && p.n > maxFew {
				t.Fatalf("%d slots in the wrong form", p.n)
			}
		}
	})
}

// tagged is a report of relay i with these tags beside its d.
func tagged(t rapid.TB, i int, at int64, tags nostr.Tags) *monitor.SignedEvent {
	ev := nostr.Event{
		Kind: 30166, CreatedAt: nostr.Timestamp(at), ID: fmt.Sprintf("%04d-%d", i, at),
		Tags: append(nostr.Tags{{"d", fmt.Sprintf("wss://r%04d/", i)}}, tags...),
	}
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return &monitor.SignedEvent{ID: ev.ID, Kind: 30166, D: ev.Tags.GetD(), CreatedAt: ev.CreatedAt.Time(), JSON: body}
}

func parsed(t rapid.TB, raw string) filter {
	f, err := parseFilter([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return f
}

func ids(evs []*event) []string {
	out := []string{}
	for _, e := range evs {
		out = append(out, e.id)
	}
	return out
}

// TestTagIndex compares answers with those of a search through everything,
// while reports come, go, and change their tags or only their date.
func TestTagIndex(t *testing.T) {
	draw := func(rng *rand.Rand, i int) nostr.Tags {
		tags := nostr.Tags{{"n", "clearnet"}, {"R", "!auth"}, {"N", "1"}, {"N", "1"}, {"rtt-open", "7"}, {"t"}}
		for v := 1; v <= 512; v *= 4 {
			if rng.IntN(v) == 0 {
				tags = append(tags, nostr.Tag{"N", fmt.Sprint(v)})
			}
			if rng.IntN(v) == 0 {
				tags = append(tags, nostr.Tag{"t", fmt.Sprint("x", v)}, nostr.Tag{"g", fmt.Sprint(i)})
			}
		}
		return tags
	}
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := newIndex()
		have := map[int]*monitor.SignedEvent{}
		tags := map[int]nostr.Tags{}
		at := int64(1_790_000_000)
		first := rapid.SampledFrom([]int{0, 30, 900}).Draw(t, "relays")
		for round := range rapid.IntRange(1, 5).Draw(t, "rounds") {
			at += 5
			for i := range first + 40 {
				p := rng.IntN(20)
				switch {
				case have[i] == nil && (round == 0 || p < 8):
					tags[i] = draw(rng, i)
					have[i] = tagged(t, i, at-int64(i/19), tags[i])
				case have[i] == nil:
				case p == 0:
					delete(have, i)
				case p == 1:
					tags[i] = draw(rng, i)
					have[i] = tagged(t, i, at-int64(i%3), tags[i])
				case p < 8:
					have[i] = tagged(t, i, at-int64(i%3), tags[i])
				}
			}
			g := &monitor.Generation{}
			for _, i := range slices.Sorted(maps.Keys(have)) {
				g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(have[i].D), Report: have[i]})
			}
			if _, errs := x.update(g); len(errs) > 0 {
				t.Fatal(errs)
			}
			for range 60 {
				q := map[string]any{}
				for _, name := range []string{"N", "t", "g", "n", "R"} {
					if rng.IntN(3) > 0 {
						continue
					}
					values := []string{}
					for range 1 + rng.IntN(3) {
						values = append(values, []string{
							fmt.Sprint(1 << rng.IntN(10)), fmt.Sprint("x", 1<<rng.IntN(10)), fmt.Sprint(rng.IntN(first + 40)), "clearnet", "!auth",
						}[rng.IntN(5)])
					}
					q["#"+name] = values
				}
				if rng.IntN(2) == 0 {
					q["kinds"] = []int{30166}
				}
				if rng.IntN(2) == 0 {
					q["limit"] = 1 + rng.IntN(30)
				}
				if rng.IntN(4) == 0 {
					q["since"] = at - rng.Int64N(60)
				}
				if rng.IntN(4) == 0 {
					q["until"] = at - rng.Int64N(60)
				}
				raw, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				f := parsed(t, string(raw))
				want := []*event{}
				for _, e := range x.byID {
					if f.matches(e) {
						want = append(want, e)
					}
				}
				slices.SortFunc(want, newestFirst)
				if f.limit > 0 {
					want = want[:min(len(want), f.limit)]
				}
				if d := cmp.Diff(ids(want), ids(x.query([]filter{f}, at, nil))); d != "" {
					t.Fatalf("%s of %d: %.500s", raw, len(have), d)
				}
			}
		}
		// Nothing is left of what went.
		x.update(&monitor.Generation{})
		if len(x.tags.by) > 0 || len(x.tags.free) != len(x.tags.slots) || len(x.byD) > 0 {
			t.Errorf("%d values, %d of %d slots are left", len(x.tags.by), len(x.tags.slots)-len(x.tags.free), len(x.tags.slots))
		}
	})
}

// TestRareValues: looking for what few have, under any letter of reports.md 15,
// looks at those few only.
func TestRareValues(t *testing.T) {
	const n = 5000
	x, g := newIndex(), &monitor.Generation{}
	letters := strings.Split("NRnlWTtgk", "")
	for i := range n {
		tags := nostr.Tags{{"L", "common"}}
		for _, l := range letters {
			tags = append(tags, nostr.Tag{l, "common"})
			if i%1000 == 7 {
				tags = append(tags, nostr.Tag{l, "rare"})
			}
		}
		if i%2000 == 7 {
			tags = append(tags, nostr.Tag{"p", "someone"})
		}
		s := tagged(t, i, int64(i), tags)
		g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(s.D), Report: s})
	}
	x.update(g)
	for _, l := range letters {
		for filters, want := range map[string]int{
			`{"kinds":[30166],"#%s":["rare"]}`:                     5,
			`{"#%s":["rare","unheard"],"limit":3}`:                 5,
			`{"kinds":[30166],"#L":["common"],"#%s":["rare"]}`:     5,
			`{"kinds":[30166],"#%s":["rare"],"#p":["someone"]}`:    3,
			`{"kinds":[30166],"#%s":["unheard"]}`:                  0,
			`{"kinds":[30166],"#%s":["common"],"#rtt-open":["7"]}`: 0,
		} {
			f := parsed(t, fmt.Sprintf(filters, l))
			got := x.lookup(&f)
			if got == nil || len(got) != want {
				t.Errorf(filters+": looks at %d events, want %d", l, len(got), want)
			}
		}
		// What all have is walked, so that a limit ends it.
		for _, filters := range []string{`{"#%s":["common"],"limit":5}`, `{"#%s":["common"]}`} {
			f := parsed(t, fmt.Sprintf(filters, l))
			if got := x.lookup(&f); got != nil {
				t.Errorf(filters+": looks at %d", l, len(got))
			}
		}
	}
}

// TestReadersWhileUpdating: a reader sees one state of the index, whole, while
// it changes (run with -race).
func TestReadersWhileUpdating(t *testing.T) {
	const n = 600
	x := newIndex()
	of := func(round int) *monitor.Generation {
		g := &monitor.Generation{}
		for i := range n {
			// In each state exactly every third has the tag, another third each time.
			tags := nostr.Tags{{"n", "clearnet"}}
			if (i+round)%3 == 0 {
				tags = append(tags, nostr.Tag{"t", "third"})
			}
			s := tagged(t, i, int64(1000+round), tags)
			g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(s.D), Report: s})
		}
		return g
	}
	x.update(of(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, raw := range []string{`{"#t":["third"]}`, `{"#n":["clearnet"],"#t":["third","other"],"limit":400}`} {
		f := parsed(t, raw)
		wg.Go(func() {
			for {
				got := x.query([]filter{f}, 0, nil)
				if len(got) != n/3 || got[0].created != got[len(got)-1].created {
					t.Errorf("%s: %d events, want %d of one state", raw, len(got), n/3)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for round := 1; round < 30; round++ {
		x.update(of(round))
	}
	close(done)
	wg.Wait()
}
