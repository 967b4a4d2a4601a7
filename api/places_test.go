package api_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

const placesPath = "/v1/georelays.csv"

// The relays whose place is known, and no others, in the columns that readers
// of this file know.
func TestPlaces(t *testing.T) {
	run(t, func(b *bench) {
		g := generation(b.now)
		at := func(u monitor.RelayURL, latitude, longitude float64) monitor.OnlineRelay {
			return monitor.OnlineRelay{URL: u, LastSuccess: b.now, Latitude: latitude, Longitude: longitude, Located: true}
		}
		g.Online = []monitor.OnlineRelay{
			at("wss://a.example/", 52.520006599, 13.404954),
			{URL: "wss://b.example/", LastSuccess: b.now, Country: "DE", Latitude: 1, Longitude: 1},
			at("wss://c.example/a,b\"c", -33.8688, 151),
			at("wss://d.example/=cmd|' /C calc'!A0", 0, -0.00001),
		}
		b.core.generation = func() *monitor.Generation { return g }
		w := b.get(placesPath)
		if ct := w.Header().Get("Content-Type"); w.Code != http.StatusOK || ct != "text/csv; charset=utf-8; header=present" || w.Header().Get("X-Pharos-Generation") != "812" {
			b.Fatalf("%d %v", w.Code, w.Header())
		}
		if !strings.HasPrefix(w.Body.String(), "Relay URL,Latitude,Longitude\r\n") {
			b.Errorf("%.80s", w.Body)
		}
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil {
			b.Fatal(err)
		}
		want := [][]string{
			{"Relay URL", "Latitude", "Longitude"},
			{"wss://a.example/", "52.52", "13.405"},
			{"wss://c.example/a,b\"c", "-33.8688", "151"},
			{"wss://d.example/=cmd|' /C calc'!A0", "0", "0"},
		}
		if d := cmp.Diff(want, rows); d != "" {
			b.Errorf("(-want +got):\n%s", d)
		}

		tag := b.get(placesPath).Header().Get("ETag")
		if w := b.get(placesPath, "If-None-Match", tag); w.Code != http.StatusNotModified {
			b.Errorf("%d", w.Code)
		}
		next := *g
		next.Number, next.GeneratedAt = 813, b.now
		b.core.generation = func() *monitor.Generation { return &next }
		if w := b.get(placesPath, "If-None-Match", tag); w.Code != http.StatusNotModified { // nothing in it changed
			b.Errorf("the next generation: %d", w.Code)
		}
		next2 := next
		next2.Online = next.Online[1:]
		b.core.generation = func() *monitor.Generation { return &next2 }
		if w := b.get(placesPath, "If-None-Match", tag); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "a.example") {
			b.Errorf("after a relay left: %d %s", w.Code, w.Body)
		}
	})
}

// A list that must not be used is not given, and neither is an empty one that
// looks like the list.
func TestPlacesNotUsable(t *testing.T) {
	run(t, func(b *bench) {
		for _, f := range []monitor.Fallback{monitor.FallbackWarmingUp, monitor.FallbackClock, monitor.FallbackStale, monitor.FallbackTooFew} {
			g := unusable(generation(b.now), f)
			b.core.generation = func() *monitor.Generation { return g }
			if p := b.problem(b.get(placesPath), http.StatusServiceUnavailable); !strings.Contains(p.Detail, string(f)+":") {
				b.Errorf("%s: %s", f, p.Detail)
			}
		}
		g := generation(b.now)
		for i := range g.Online {
			g.Online[i].Located = false
		}
		b.core.generation = func() *monitor.Generation { return g }
		w := b.get(placesPath)
		if p := b.problem(w, http.StatusServiceUnavailable); !strings.Contains(p.Detail, "geo.city_db") || w.Header().Get("X-Pharos-Generation") != "812" {
			b.Errorf("%s %v", p.Detail, w.Header())
		}
		g = generation(b.now)
		elapse(5 * time.Hour) // no generation came since
		b.problem(b.get(placesPath), http.StatusServiceUnavailable)
	})
}
