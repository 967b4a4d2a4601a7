package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// entries are a relay of which everything is known, and two others.
func entries(now time.Time) []monitor.RelayEntry {
	return []monitor.RelayEntry{
		{
			WatchedRelay: relayView("wss://a.example/", now).WatchedRelay, Eligible: true,
			RTTOpenMS: 83, VantagesUp: 1, VantagesTotal: 2,
		},
		{
			WatchedRelay: monitor.WatchedRelay{
				URL: "ws://abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrstuvwx.onion/", Source: monitor.SourceSubmitted,
				FirstSeen: now, Candidate: true, PausedUntil: now.Add(time.Hour),
			},
			Eligible: true, VantagesTotal: 1,
		},
		{WatchedRelay: monitor.WatchedRelay{URL: "wss://x.example/", Source: monitor.SourceNone, Excluded: true, FirstSeen: now}},
	}
}

func TestRelaysBody(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		w := b.get("/v1/relays")
		if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
			b.Errorf("%d %v", w.Code, w.Header())
		}
		golden(b.T, "relays.json", w.Body.Bytes())
	})
}

// What was asked for is what the core is asked for.
func TestRelaysQueries(t *testing.T) {
	yes, no, dead := true, false, monitor.StateDead
	for query, want := range map[string]monitor.RelayQuery{
		"":                                {Limit: 101},
		"?state=dead&limit=1000":          {State: &dead, Limit: 1001},
		"?mark=held&mark=partial":         {Marks: monitor.MarkHeld | monitor.MarkPartial, Limit: 101},
		"?mark=singled_out":               {Marks: monitor.MarkSingledOut, Limit: 101},
		"?source=discovery":               {Source: monitor.SourceDiscovery, Limit: 101},
		"?network=tor&source=submitted":   {Network: monitor.Tor, Source: monitor.SourceSubmitted, Limit: 101},
		"?candidate=true&paused=false":    {Candidate: &yes, Paused: &no, Limit: 101},
		"?excluded=true&q=Example.COM%2F": {Excluded: true, Contains: "example.com/", Limit: 101},
		"?excluded=false":                 {Limit: 101},
	} {
		run(t, func(b *bench) {
			var got monitor.RelayQuery
			b.core.relays = func(q monitor.RelayQuery) []monitor.RelayEntry { got = q; return nil }
			w := b.get("/v1/relays" + query)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"next_cursor":null,"relays":[]`) {
				b.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
			if d := cmp.Diff(want, got); d != "" {
				b.Errorf("%s: %s", query, d)
			}
		})
	}
}

// Following next_cursor gives every relay once; a cursor of other filters is
// refused.
func TestRelaysPages(t *testing.T) {
	run(t, func(b *bench) {
		var all []monitor.RelayEntry
		for i := range 25 {
			all = append(all, monitor.RelayEntry{WatchedRelay: monitor.WatchedRelay{URL: monitor.RelayURL(fmt.Sprintf("wss://r%02d.example/", i))}})
		}
		b.core.relays = func(q monitor.RelayQuery) (out []monitor.RelayEntry) {
			from, _ := slices.BinarySearchFunc(all, string(q.After)+"\x00", func(e monitor.RelayEntry, u string) int { return strings.Compare(string(e.URL), u) })
			return all[from:min(len(all), from+q.Limit)]
		}
		var seen []string
		cursors := []string{}
		for cursor := ""; len(cursors) < 10; {
			var page struct {
				NextCursor *string `json:"next_cursor"`
				Relays     []struct{ URL string }
			}
			w := b.get("/v1/relays?q=r&limit=10" + cursor)
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
				b.Fatalf("%v %s", err, w.Body)
			}
			for _, r := range page.Relays {
				seen = append(seen, r.URL)
			}
			if page.NextCursor == nil {
				break
			}
			cursors = append(cursors, *page.NextCursor)
			cursor = "&cursor=" + *page.NextCursor
		}
		if len(seen) != 25 || !slices.IsSorted(seen) || len(cursors) != 2 {
			b.Errorf("%d cursors, %v", len(cursors), seen)
		}
		for _, target := range []string{"/v1/relays?cursor=", "/v1/relays?q=r&state=dead&cursor=", "/v1/live?limit=1&cursor="} {
			p := b.problem(b.get(target+cursors[0]), http.StatusUnprocessableEntity)
			if p.Errors[0].Location != "query.cursor" || !strings.Contains(p.Errors[0].Message, "leave it out") {
				b.Errorf("%s: %+v", target, p)
			}
		}
		if w := b.get("/v1/relays?q=R&limit=3&cursor=" + cursors[0]); w.Code != http.StatusOK {
			b.Errorf("another limit, the same filter in capitals: %d %s", w.Code, w.Body)
		}
	})
}
