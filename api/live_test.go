package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
)

// varied is a generation of eight relays that differ in all that can be asked.
func varied(now time.Time) *monitor.Generation {
	g := generation(now)
	g.Online = nil
	relay := func(url string, change func(*monitor.OnlineRelay)) {
		o := monitor.OnlineRelay{
			URL: monitor.RelayURL(url), Since: now.Add(-time.Hour), LastSuccess: now.Add(-time.Duration(len(g.Online)) * time.Minute),
			RTTOpenMS: 100, Network: monitor.Clearnet, VantagesUp: 3, VantagesTotal: 3, NIPs: []int{1, 11},
		}
		change(&o)
		g.Online = append(g.Online, o)
	}
	relay("ws://onion.onion/", func(o *monitor.OnlineRelay) { o.Network, o.RTTOpenMS, o.VantagesUp = monitor.Tor, 900, 1 })
	relay("wss://auth.example/", func(o *monitor.OnlineRelay) { o.Auth, o.RTTOpenMS = true, 40 })
	relay("wss://de.example/", func(o *monitor.OnlineRelay) { o.Country, o.RTTOpenMS = "DE", 30 })
	relay("wss://nips.example/", func(o *monitor.OnlineRelay) { o.NIPs, o.RTTOpenMS = []int{1, 11, 42, 50}, 40 })
	relay("wss://paid.example/", func(o *monitor.OnlineRelay) { o.Payment, o.Writes, o.RTTOpenMS = true, true, 20 })
	relay("wss://partial.example/", func(o *monitor.OnlineRelay) { o.VantagesUp = 2 })
	relay("wss://unmeasured.example/", func(o *monitor.OnlineRelay) { o.RTTOpenMS, o.NIPs = 0, nil })
	relay("wss://us.example/?", func(o *monitor.OnlineRelay) { o.Country = "US" })
	return g
}

// short names the relays of a list by their first label.
func short(urls []string) string {
	for i, u := range urls {
		_, host, _ := strings.Cut(u, "://")
		urls[i], _, _ = strings.Cut(host, ".")
	}
	return strings.Join(urls, " ")
}

func (b *bench) urls(target string) string {
	b.Helper()
	w := b.get(target)
	var urls []string
	if err := json.Unmarshal(w.Body.Bytes(), &urls); err != nil || w.Code != http.StatusOK {
		b.Fatalf("%s: %d %v %.300s", target, w.Code, err, w.Body)
	}
	return short(urls)
}

func TestLiveFilters(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		for query, want := range map[string]string{
			"":                        "onion auth de nips paid partial unmeasured us",
			"network=tor":             "onion",
			"network=i2p":             "",
			"nip=42":                  "nips",
			"nip=1&nip=11":            "onion auth de nips paid partial us",
			"nip=50&nip=42&nip=50":    "nips",
			"nip=42&nip=2":            "",
			"country=DE":              "de",
			"country=us":              "us",
			"auth=true":               "auth",
			"auth=false&payment=true": "paid",
			"payment=false":           "onion auth de nips partial unmeasured us",
			"writes=true":             "paid",
			"max_rtt_open_ms=40":      "auth de nips paid",
			"max_rtt_open_ms=39":      "de paid",
			"min_vantages=3":          "auth de nips paid unmeasured us",
			"min_vantages=4":          "",
			"sort=url":                "onion auth de nips paid partial unmeasured us",
			"sort=rtt_open":           "paid de auth nips partial us onion unmeasured",
			"sort=rtt_open&limit=3":   "paid de auth",
			"limit=2":                 "onion auth",
			"limit=10000":             "onion auth de nips paid partial unmeasured us",
			"network=clearnet&nip=11&auth=false&payment=false&writes=false&min_vantages=3&max_rtt_open_ms=50&sort=rtt_open": "de nips",
		} {
			if got := b.urls("/v1/live?format=urls&" + query); got != want {
				b.Errorf("%s: %q, want %q", query, got, want)
			}
		}
	})
}

// The formats all hold the same relays.
func TestLiveFormats(t *testing.T) {
	run(t, func(b *bench) {
		for file, target := range map[string]string{
			"live.txt":         "/v1/live?format=text",
			"live.csv":         "/v1/live?format=csv",
			"live.ndjson":      "/v1/live?format=ndjson",
			"online.json":      "/v1/live?format=urls",
			"live_urls.csv":    "/v1/live?format=csv&fields=url",
			"live_urls.ndjson": "/v1/live?format=ndjson&fields=url",
			"live_page.json":   "/v1/live?sort=rtt_open&limit=1&max_age=600&min_count=2",
		} {
			w := b.get(target)
			if w.Code != http.StatusOK || w.Header().Get("X-Pharos-Generation") != "812" {
				b.Fatalf("%s: %d %v", target, w.Code, w.Header())
			}
			golden(b.T, file, w.Body.Bytes())
		}
	})
}

func TestLiveAccept(t *testing.T) {
	run(t, func(b *bench) {
		for accept, want := range map[string]string{
			"":                                      "application/json",
			"text/csv":                              "text/csv; charset=utf-8; header=present",
			"text/plain":                            "text/plain; charset=utf-8",
			"application/x-ndjson;q=0.9, */*;q=0.1": "application/x-ndjson",
			"text/html, */*;q=0.8":                  "application/json",
		} {
			w := b.get("/v1/live", "Accept", accept)
			if ct := w.Header().Get("Content-Type"); w.Code != http.StatusOK || ct != want {
				b.Errorf("%s: %d %s", accept, w.Code, ct)
			}
			if w := b.get("/v1/live?format=text", "Accept", accept); w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
				b.Errorf("%s: format does not win: %v", accept, w.Header())
			}
		}
		p := b.problem(b.get("/v1/live", "Accept", "text/html"), http.StatusNotAcceptable)
		if !strings.Contains(p.Detail, "text/csv") {
			b.Errorf("it does not say what there is: %s", p.Detail)
		}
		if w := b.get("/v1/live?format=csv", "Accept", "text/html"); w.Code != http.StatusOK {
			b.Errorf("format and Accept that suits nothing: %d", w.Code)
		}
	})
}

// What is signed cannot be cut.
func TestLiveEventTakesNoFilter(t *testing.T) {
	run(t, func(b *bench) {
		for _, query := range []string{"nip=1", "auth=false", "sort=rtt_open", "limit=1", "fields=url", "network=tor"} {
			p := b.problem(b.get("/v1/live?format=event&"+query), http.StatusUnprocessableEntity)
			if len(p.Errors) != 1 || p.Errors[0].Location != "query.format" {
				b.Errorf("%s: %+v", query, p)
			}
		}
		if w := b.get("/v1/live?format=event&sort=url&max_age=600&min_count=2"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"kind":30002`) {
			b.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// pagesOf follows the pages of a list from target on, by next_cursor in JSON
// and by Link in what has no envelope, and calls each after each page.
func (b *bench) pagesOf(target string, each func(page int)) (urls []string, cursors []string) {
	b.Helper()
	for page := 1; page < 20; page++ {
		w := b.get(target)
		if w.Code != http.StatusOK {
			b.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
		next := ""
		if link := w.Header().Get("Link"); link != "" {
			ref, rel, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
			if rel != `; rel="next"` {
				b.Fatalf("Link %q", link)
			}
			base, err := url.Parse(target)
			if err != nil {
				b.Fatal(err)
			}
			u, err := base.Parse(ref)
			if err != nil {
				b.Fatal(err)
			}
			next = u.String()
			cursors = append(cursors, u.Query().Get("cursor"))
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			urls = append(urls, strings.Fields(w.Body.String())...)
		} else {
			var got struct {
				Count      int
				NextCursor *string `json:"next_cursor"`
				Relays     []struct{ URL string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			for _, r := range got.Relays {
				urls = append(urls, r.URL)
			}
			if (got.NextCursor == nil) != (next == "") || next != "" && *got.NextCursor != cursors[len(cursors)-1] {
				b.Errorf("Link and next_cursor differ: %q", w.Header().Get("Link"))
			}
		}
		if next == "" {
			return urls, cursors
		}
		each(page)
		target = next
	}
	b.Fatal("pages do not end")
	return nil, nil
}

// Following the pages gives every relay that matches once, in order, in every
// format and both sorts.
func TestLivePages(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		for _, query := range []string{"", "&sort=rtt_open", "&network=clearnet&nip=1&sort=rtt_open", "&auth=false"} {
			whole := b.urls("/v1/live?format=urls" + query)
			for _, format := range []string{"json", "text"} {
				for _, limit := range []int{1, 2, 3, 7, 8, 9} {
					urls, cursors := b.pagesOf(fmt.Sprintf("/v1/live?format=%s&limit=%d%s", format, limit, query), func(int) {})
					if got := short(urls); got != whole {
						b.Errorf("%s %s by %d: %q, want %q", format, query, limit, got, whole)
					}
					if want := (len(urls) - 1) / limit; len(cursors) != want {
						b.Errorf("%s %s by %d: %d cursors, want %d", format, query, limit, len(cursors), want)
					}
				}
			}
		}
	})
}

// count is of the whole, and the guards too, whatever page and filter.
func TestLiveEnvelopeIsOfTheWholeSet(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		for query, count := range map[string]int{"limit=2": 8, "network=tor": 1, "network=i2p": 0, "nip=11&limit=1&sort=rtt_open": 7, "network=i2p&min_count=8&max_age=60": 0} {
			var got struct {
				Usable           bool
				Count, Monitored int
				NewestCheck      string `json:"newest_check"`
			}
			if err := json.Unmarshal(b.get("/v1/live?"+query).Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			stale := strings.Contains(query, "max_age=60") // 80 % answered within 7 minutes only
			if got.Usable == stale || got.Count != count || got.Monitored != 2750 || got.NewestCheck != "1999-12-31T23:59:55Z" {
				b.Errorf("%s: %+v", query, got)
			}
		}
	})
}

// Relays that come and go between two pages move no other one.
func TestLivePagesAcrossGenerations(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		for _, sort := range []string{"url", "rtt_open"} {
			g = varied(b.now)
			urls, _ := b.pagesOf("/v1/live?format=text&limit=2&sort="+sort, func(page int) {
				next := *g
				next.Number++
				next.Online = slices.Clone(g.Online)
				switch page {
				case 1: // what was on the page goes, and others come before and behind
					next.Online = slices.DeleteFunc(next.Online, func(o monitor.OnlineRelay) bool {
						return o.URL == "wss://auth.example/" || o.URL == "wss://de.example/"
					})
					next.Online = slices.Insert(next.Online, 0, monitor.OnlineRelay{URL: "ws://aaa.onion/", RTTOpenMS: 1, Network: monitor.Tor})
					next.Online = append(next.Online, monitor.OnlineRelay{URL: "wss://zzz.example/", RTTOpenMS: 5000, Network: monitor.Clearnet})
				}
				g = &next
			})
			want := map[string]string{
				"url":      "onion auth nips paid partial unmeasured us zzz",
				"rtt_open": "paid de nips partial us onion zzz unmeasured",
			}[sort]
			if got := short(urls); got != want {
				b.Errorf("%s: %q, want %q", sort, got, want)
			}
		}
	})
}

func TestLiveCursors(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		_, cursors := b.pagesOf("/v1/live?nip=1&nip=11&country=DE&limit=1", func(int) {})
		if len(cursors) != 0 {
			b.Fatalf("%v", cursors)
		}
		_, cursors = b.pagesOf("/v1/live?nip=11&nip=1&limit=3", func(int) {})
		c := cursors[0]
		for _, same := range []string{"nip=1&nip=11", "nip=11&nip=1&nip=1&sort=url", "nip=1&nip=11&format=csv", "nip=1&nip=11&fields=url&min_count=1&limit=50"} {
			if w := b.get("/v1/live?" + same + "&cursor=" + c); w.Code != http.StatusOK {
				b.Errorf("%s: %d %s", same, w.Code, w.Body)
			}
		}
		for _, foreign := range []string{"", "nip=1", "nip=1&nip=11&auth=true", "nip=1&nip=11&sort=rtt_open"} {
			p := b.problem(b.get("/v1/live?"+foreign+"&cursor="+c), http.StatusUnprocessableEntity)
			if p.Errors[0].Location != "query.cursor" || !strings.Contains(p.Errors[0].Message, "filters") {
				b.Errorf("%s: %+v", foreign, p)
			}
		}
		for i := range c { // no single letter may be changed
			bad := c[:i] + string("AB"[b2i(c[i] == 'A')]) + c[i+1:]
			w := b.get("/v1/live?nip=1&nip=11&cursor=" + bad)
			if w.Code == http.StatusInternalServerError || i < 12 && w.Code != http.StatusUnprocessableEntity {
				b.Errorf("%s: %d", bad, w.Code)
			}
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A reader's own guard moves usable and fallback, and nothing else.
func TestLiveGuards(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now) // the relays answered 0, 1, … 7 minutes ago
		b.core.generation = func() *monitor.Generation { return g }
		small := unusable(varied(b.now), monitor.FallbackTooFew)
		warming := unusable(varied(b.now), monitor.FallbackWarmingUp)
		clock := unusable(varied(b.now), monitor.FallbackClock)
		for _, c := range []struct {
			gen    *monitor.Generation
			query  string
			want   string
			maxAge int
		}{
			{g, "", "", 14400},
			{g, "max_age=360&min_count=8", "", 360}, // 7 of 8
			{g, "max_age=359&min_count=8", "stale", 359},
			{g, "max_age=420&min_count=1", "", 420},
			{g, "max_age=4&min_count=1", "stale", 4}, // newest_check is 5 s old
			{g, "min_count=8", "", 14400},
			{g, "min_count=9", "too_few", 14400},
			{g, "max_age=14400", "too_few", 14400}, // this monitor's 100, which the fixture does not hold to
			{small, "", "too_few", 14400},
			{small, "min_count=8", "", 14400},
			{small, "min_count=9", "too_few", 14400},
			{small, "min_count=8&max_age=60", "stale", 60},
			{warming, "min_count=1&max_age=14400", "warming_up", 14400},
			{clock, "min_count=1&max_age=14400", "clock", 14400},
		} {
			g = c.gen
			var got struct {
				Usable        bool
				Fallback      *string
				MaxAgeSeconds int `json:"max_age_seconds"`
			}
			w := b.get("/v1/live?" + c.query)
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			fallback := ""
			if got.Fallback != nil {
				fallback = *got.Fallback
			}
			if got.Usable != (c.want == "") || fallback != c.want || got.MaxAgeSeconds != c.maxAge {
				b.Errorf("%s: %+v %s, want %q", c.query, got, fallback, c.want)
			}
			if usable := w.Header().Get("Cache-Control") == "public, max-age=10"; usable != got.Usable {
				b.Errorf("%s: Cache-Control %q", c.query, w.Header().Get("Cache-Control"))
			}
			bare := b.get("/v1/live?format=text&" + c.query)
			if c.want == "" {
				if bare.Code != http.StatusOK || strings.Count(bare.Body.String(), "\n") != 8 {
					b.Errorf("%s: text %d", c.query, bare.Code)
				}
			} else if p := b.problem(bare, http.StatusServiceUnavailable); !strings.Contains(p.Detail, c.want) || bare.Header().Get("X-Pharos-Generation") == "" {
				b.Errorf("%s: %s %v", c.query, p.Detail, bare.Header())
			}
		}
	})
}

// Time moves a reader's guard although no generation comes.
func TestLiveGuardGoesStaleByItself(t *testing.T) {
	run(t, func(b *bench) {
		g := varied(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		target := "/v1/live?max_age=600&min_count=1"
		first := b.get(target)
		if !strings.Contains(first.Body.String(), `"usable":true`) {
			b.Fatalf("%s", first.Body)
		}
		elapse(10 * time.Minute)
		w := b.get(target, "If-None-Match", first.Header().Get("ETag"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"fallback":"stale"`) {
			b.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// The settings are told as they are now, by lists and pages alike.
func TestConfigure(t *testing.T) {
	run(t, func(b *bench) {
		targets := []string{"/v1/live", "/v1/live?nip=1", "/", "/docs"}
		tags := map[string]string{}
		for _, target := range targets {
			w := b.get(target)
			tags[target] = w.Header().Get("ETag")
			if strings.Contains(w.Body.String(), "Lighthouse") {
				b.Fatalf("%s", target)
			}
		}
		s := settings()
		s.Name, s.RelayURL, s.MaxAge = "Lighthouse", "wss://lighthouse.example/x/", time.Hour
		b.api.Configure(s)
		for _, target := range targets {
			w := b.get(target, "If-None-Match", tags[target])
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Lighthouse") || strings.Contains(w.Body.String(), "pharos.example") {
				b.Errorf("%s: %d %.300s", target, w.Code, w.Body)
			}
		}
		if w := b.get("/v1/live"); !strings.Contains(w.Body.String(), `"max_age_seconds":3600`) {
			b.Errorf("%s", w.Body)
		}
		if w := b.get("/docs"); !strings.Contains(w.Body.String(), "https://lighthouse.example/x/v1/live") {
			b.Error("the examples ask elsewhere")
		}
	})
}

// A list that tells of a setting has another ETag after each change of one.
func TestETagFollowsTheSettings(t *testing.T) {
	run(t, func(b *bench) {
		tag := b.get("/v1/live").Header().Get("ETag")
		for name, change := range map[string]func(*api.Settings){
			"name":      func(s *api.Settings) { s.Name = "Lighthouse" },
			"relay":     func(s *api.Settings) { s.RelayURL = "wss://other.example/" },
			"frequency": func(s *api.Settings) { s.Frequency = time.Minute },
			"max_age":   func(s *api.Settings) { s.MaxAge = time.Hour },
		} {
			s := settings()
			change(&s)
			b.api.Configure(s)
			if w := b.get("/v1/live", "If-None-Match", tag); w.Code != http.StatusOK {
				b.Errorf("%s: %d", name, w.Code)
			}
		}
		b.api.Configure(settings())
		if w := b.get("/v1/live", "If-None-Match", tag); w.Code != http.StatusNotModified {
			b.Errorf("as it was: %d", w.Code)
		}
	})
}

// Equal questions are one view, encoded once.
func TestLiveViewsAreShared(t *testing.T) {
	run(t, func(b *bench) {
		a := b.get("/v1/live?nip=11&nip=1&country=de&sort=url")
		c := b.get("/v1/live?country=DE&nip=1&nip=11&nip=11&format=json")
		if d := cmp.Diff(a.Body.String(), c.Body.String()); d != "" || &a.Body.Bytes()[0] == &c.Body.Bytes()[0] {
			b.Error(d)
		}
		if n := b.api.Views(); n != 1 {
			b.Errorf("%d views", n)
		}
		for _, target := range []string{"/v1/live", "/v1/live?fields=url", "/v1/live?format=csv", "/v1/online", "/v1/live?format=text&fields=url", "/v1/live?format=urls&min_count=2"} {
			b.get(target)
		}
		if n := b.api.Views(); n != 1 {
			b.Errorf("%d views: the whole list needs none", n)
		}
		for i := range 300 {
			if w := b.get(fmt.Sprintf("/v1/live?max_rtt_open_ms=%d", i+1)); w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
		if n := b.api.Views(); n != 64 {
			b.Errorf("%d views", n)
		}
	})
}
