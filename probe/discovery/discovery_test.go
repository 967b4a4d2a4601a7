package discovery_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe/discovery"
)

// urlCases reads testdata/relay-urls.tsv: what is accepted, as its canonical
// form, and what is rejected, with its reason.
func urlCases(t testing.TB) (good, bad map[string]string) {
	t.Helper()
	f, err := os.Open("testdata/relay-urls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good, bad = map[string]string{}, map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		column := strings.Split(lines.Text(), "\t")
		input, err := strconv.Unquote(`"` + column[0] + `"`)
		if err != nil {
			t.Fatal(err)
		}
		if column[1] == "ok" {
			good[input] = column[2]
		} else {
			bad[input] = column[2]
		}
	}
	if len(good) < 20 || len(bad) < 40 {
		t.Fatalf("only %d and %d cases", len(good), len(bad))
	}
	return good, bad
}

// The lists of 3 000 authors with all that relay-urls.tsv has in them: exactly
// the good ones are found, each rejection is told by its reason, once for each
// author, and how many name each relay is exact.
func TestThreeThousandAuthors(t *testing.T) {
	good, bad := urlCases(t)
	goods, bads := []string{}, []string{}
	for input := range good {
		goods = append(goods, input)
	}
	for input := range bad {
		bads = append(bads, input)
	}
	slices.Sort(goods)
	slices.Sort(bads)
	const authors = 3000
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		source := w.relay("source.example")
		named := map[string]map[int]bool{} // canonical → authors
		rejected := map[string]map[string]bool{}
		kinds := map[string]map[int]bool{}
		note := func(n, kind int, texts ...string) {
			for _, text := range texts {
				if reason, ok := bad[text]; ok {
					if rejected[reason] == nil {
						rejected[reason] = map[string]bool{}
					}
					rejected[reason][fmt.Sprint(n, " ", text)] = true
					continue
				}
				url := good[text]
				if named[url] == nil {
					named[url], kinds[url] = map[int]bool{}, map[int]bool{}
				}
				named[url][n], kinds[url][kind] = true, true
			}
		}
		for n := range authors {
			texts := []string{goods[n%len(goods)], goods[(n+1)%len(goods)], bads[n%len(bads)], bads[(n*7+3)%len(bads)]}
			kind := []int{3, 10002, 10050, 30002}[n%4]
			source.add(naming(t, n, kind, now.Add(-time.Duration(n)*time.Minute), texts...))
			note(n, kind, texts...)
			if n%10 == 0 { // the same junk in a second list counts once
				source.add(naming(t, n, 10002+48*(n%20/10), now.Add(-time.Duration(n)*time.Hour), texts...))
				note(n, 10002+48*(n%20/10), texts...)
			}
		}
		// The newer of two lists of one kind holds: what the loop made for those
		// authors with both is corrected by what was noted of the newest only,
		// which names the same.
		d := newDiscovery(t, w.config(source))
		s := sweep(t, d)

		want := []monitor.FoundRelay{}
		for url, by := range named {
			f := monitor.FoundRelay{URL: monitor.RelayURL(url), Authors: len(by)}
			for k := range kinds[url] {
				f.Kinds = append(f.Kinds, k)
			}
			slices.Sort(f.Kinds)
			want = append(want, f)
		}
		slices.SortFunc(want, func(a, b monitor.FoundRelay) int { return strings.Compare(string(a.URL), string(b.URL)) })
		if diff := cmp.Diff(want, s.Found); diff != "" {
			t.Errorf("found (-want +got):\n%s", diff)
		}
		wantRejected := map[string]int{}
		for reason, by := range rejected {
			wantRejected[reason] = len(by)
		}
		if diff := cmp.Diff(wantRejected, s.Rejected); diff != "" {
			t.Errorf("rejected (-want +got):\n%s", diff)
		}
		if s.Authors != authors || !s.Whole || !s.Sources[0].Whole || s.Sources[0].Problem != "" {
			t.Errorf("authors %d, whole %v, source %+v", s.Authors, s.Whole, s.Sources[0])
		}
	})
}

func TestKindsAndProvenance(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		source := w.relay("source.example",
			naming(t, 0, 3, now, "wss://a.example.com", "wss://A.example.com/", "wss://b.example.com"),
			naming(t, 0, 10002, now, "wss://a.example.com"),
			naming(t, 1, 10050, now, "wss://a.example.com"),
			naming(t, 1, 30002, now, "wss://c.example.com"),
			naming(t, 2, 30166, now, "wss://d.example.com"),
			naming(t, 2, 30166, now, "wss://a.example.com"),
			naming(t, 2, 30166, now, "ws://10.0.0.1"),
			// What names none.
			sign(t, 3, 3, now, nostr.Tags{{"p", key(t, 1).Pubkey()}}, ""),
			sign(t, 4, 3, now, nostr.Tags{}, `not json`),
			sign(t, 5, 3, now, nostr.Tags{}, `["wss://e.example.com"]`),
			sign(t, 6, 10002, now, nostr.Tags{{"r"}, {}, {"relay", "wss://e.example.com"}, {"p", "wss://e.example.com"}}, ""),
			sign(t, 7, 10050, now, nostr.Tags{{"r", "wss://e.example.com"}}, "wss://e.example.com"),
			sign(t, 8, 30166, now, nostr.Tags{{"d", ""}, {"r", "wss://e.example.com"}}, ""),
		)
		s := sweep(t, newDiscovery(t, w.config(source)))
		want := []monitor.FoundRelay{
			{URL: "wss://a.example.com/", Kinds: []int{3, 10002, 10050, 30166}, Authors: 3},
			{URL: "wss://b.example.com/", Kinds: []int{3}, Authors: 1},
			{URL: "wss://c.example.com/", Kinds: []int{30002}, Authors: 1},
			{URL: "wss://d.example.com/", Kinds: []int{30166}, Authors: 1},
		}
		if diff := cmp.Diff(want, s.Found); diff != "" {
			t.Errorf("found (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"private": 1}, s.Rejected); diff != "" {
			t.Errorf("rejected (-want +got):\n%s", diff)
		}
		if s.Authors != 3 {
			t.Errorf("%d authors, want 3", s.Authors)
		}
		if ua := source.headers[0].Get("User-Agent"); ua != "pharos-test (https://pharos.example)" {
			t.Errorf("user agent %q", ua)
		}
	})
}

func TestIgnored(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		names := func(n int) (out []string) {
			for i := range n {
				out = append(out, fmt.Sprintf("wss://r%d.example.com", i))
			}
			return out
		}
		forged := naming(t, 1, 10002, now, "wss://forged.example.com")
		forged.Sig = strings.Repeat("0", 128)
		altered := naming(t, 2, 10002, now, "wss://altered.example.com")
		altered.Tags = nostr.Tags{{"r", "wss://other.example.com"}}
		expired := sign(t, 3, 10002, now, nostr.Tags{{"r", "wss://expired.example.com"}, {"expiration", fmt.Sprint(now.Unix() - 1)}}, "")
		big := sign(t, 4, 3, now, nostr.Tags{}, `{"wss://big.example.com":{}}`+strings.Repeat(" ", 70_000))
		huge := sign(t, 4, 10050, now, nostr.Tags{{"relay", "wss://big.example.com"}}, strings.Repeat(" ", 1_000_000))
		source := w.relay("source.example",
			naming(t, 0, 10002, now, names(100)...), forged, altered, expired, big, huge,
			naming(t, 5, 10002, now, names(101)...),
			naming(t, 6, 3, now, names(101)...),
			naming(t, 7, 30002, now, names(500)...),
			naming(t, 8, 10002, now.Add(14*time.Minute), "wss://soon.example.com"),
			naming(t, 9, 10002, now, "wss://own.example.com"),
		)
		source.greet = func(c *conn) { c.raw(`["EVENT","nobody asked",{}]`) }
		source.req = func(c *conn, n int, q query) bool {
			if n == 1 {
				c.raw(`{"no": "message"}`)
				c.send("EVENT", q.ID, "no event")
				c.send("EVENT", q.ID, map[string]any{"id": "short", "kind": 10002})
				c.send("EVENT", q.ID, sign(t, 10, 1, now, nostr.Tags{{"r", "wss://kind1.example.com"}}, "")) // another kind
				c.send("EVENT", q.ID, naming(t, 11, 10002, now.Add(16*time.Minute), "wss://future.example.com"))
				c.send("EVENT", "other", naming(t, 12, 10002, now, "wss://other.example.com"))
			}
			return false
		}
		cfg := w.config(source)
		cfg.Self = key(t, 9).Npub()
		s := sweep(t, newDiscovery(t, cfg))
		want := map[string]int{
			"signature": 2, "too_long": 3, "too_large": 2, "expired": 1, "own": 1, "future": 1,
			"not_asked": 3, "malformed": 3,
		}
		// The page that brought nothing new had all of the boundary second again.
		if got := s.Ignored["signature"]; got < 2 {
			t.Errorf("%d wrong signatures, want 2 at least", got)
		}
		for reason, n := range want {
			if s.Ignored[reason] < n {
				t.Errorf("ignored %q: %d, want %d", reason, s.Ignored[reason], n)
			}
		}
		for reason := range s.Ignored {
			if want[reason] == 0 {
				t.Errorf("ignored %q: %d, want none", reason, s.Ignored[reason])
			}
		}
		if len(s.Found) != 101 { // 100 and soon
			t.Errorf("found %d relays, want 101", len(s.Found))
		}
		for _, f := range s.Found {
			if host := f.URL.Host(); !strings.HasPrefix(host, "r") && host != "soon.example.com" {
				t.Errorf("found %s", f.URL)
			}
		}
	})
}

// The newest list of an author counts, whichever comes first, from whichever
// source.
func TestNewestList(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		old := naming(t, 0, 10002, now.Add(-time.Hour), "wss://old.example.com")
		fresh := naming(t, 0, 10002, now, "wss://new.example.com")
		// Of one second the lower id holds.
		x := naming(t, 1, 10002, now, "wss://x.example.com")
		y := naming(t, 1, 10002, now, "wss://y.example.com")
		lower := "wss://x.example.com/"
		if y.ID < x.ID {
			lower = "wss://y.example.com/"
		}
		a := w.relay("a.example", fresh, x)
		b := w.relay("b.example", old, y)
		// This one sends the older after the newer, on one page.
		c := w.relay("c.example")
		c.req = func(c *conn, n int, q query) bool {
			for _, ev := range []*nostr.Event{fresh, old, x, y} {
				c.send("EVENT", q.ID, ev)
			}
			c.send("EOSE", q.ID)
			return true
		}
		for name, sources := range map[string][]*relay{"two": {a, b}, "other order": {b, a}, "one": {c}} {
			s := sweep(t, newDiscovery(t, w.config(sources...)))
			if diff := cmp.Diff([]string{"wss://new.example.com/", lower}, urls(s)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if name == "one" && s.Ignored["older"] < 1 {
				t.Errorf("%s: ignored %v", name, s.Ignored)
			}
		}
	})
}

// A list that its author replaced no longer counts in the next sweep, which asks
// only for what is new; the old lists of others still do.
func TestLaterSweeps(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		start := time.Now()
		first := naming(t, 0, 10002, start.Add(-48*time.Hour), "wss://a.example.com", "wss://b.example.com")
		source := w.relay("source.example", first,
			naming(t, 1, 10002, start.Add(-72*time.Hour), "wss://b.example.com"),
			sign(t, 2, 10002, start.Add(-time.Hour), nostr.Tags{{"r", "wss://e.example.com"}, {"expiration", fmt.Sprint(start.Add(30 * time.Minute).Unix())}}, ""))
		d := newDiscovery(t, w.config(source))
		s := sweep(t, d)
		if diff := cmp.Diff([]string{"wss://a.example.com/", "wss://b.example.com/", "wss://e.example.com/"}, urls(s)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if q := source.asked()[0]; q.Since != nil || q.Until == nil || *q.Until != start.Unix()+900 || q.Limit != 500 || !slices.Equal(q.Kinds, []int{3, 10002, 10050, 30002, 30166}) {
			t.Errorf("the first REQ is %+v", q)
		}

		elapse(time.Hour)
		source.add(naming(t, 0, 10002, time.Now(), "wss://c.example.com"))
		n := len(source.asked())
		s = sweep(t, d)
		if diff := cmp.Diff([]string{"wss://b.example.com/", "wss://c.example.com/"}, urls(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !s.Whole || s.Authors != 2 {
			t.Errorf("whole %v, %d authors", s.Whole, s.Authors)
		}
		for _, q := range source.asked()[n:] {
			if q.Since == nil || *q.Since != start.Unix()-3600 {
				t.Errorf("a REQ of the second sweep is %+v, want since %d", q, start.Unix()-3600)
			}
		}

		// A day later everything is asked for, and what is gone is dropped.
		source.mu.Lock()
		source.events = source.events[2:]
		source.mu.Unlock()
		elapse(time.Hour)
		if s = sweep(t, d); !slices.Contains(urls(s), "wss://b.example.com/") {
			t.Errorf("found %q before everything was asked for again", urls(s))
		}
		elapse(23 * time.Hour)
		n = len(source.asked())
		s = sweep(t, d)
		if diff := cmp.Diff([]string{"wss://c.example.com/"}, urls(s)); diff != "" {
			t.Errorf("a day later (-want +got):\n%s", diff)
		}
		if q := source.asked()[n]; q.Since != nil {
			t.Errorf("a day later since is %d", *q.Since)
		}
	})
}

// Every 24th sweep asks for everything, however fast they follow.
func TestEvery24thSweepIsWhole(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		source := w.relay("source.example", naming(t, 0, 10002, time.Now(), "wss://a.example.com"))
		d := newDiscovery(t, w.config(source))
		var whole []int
		for i := range 50 {
			n := len(source.asked())
			sweep(t, d)
			if source.asked()[n].Since == nil {
				whole = append(whole, i)
			}
			elapse(time.Minute)
		}
		if !slices.Equal(whole, []int{0, 24, 48}) {
			t.Errorf("whole sweeps are %v", whole)
		}
	})
}

func TestPaging(t *testing.T) {
	for name, c := range map[string]struct {
		cap, size int
		seconds   int // over which the events are spread
		want      int
		whole     bool
	}{
		"pages":                        {0, 100, 700, 700, true},
		"a cap of the relay":           {100, 500, 700, 700, true},
		"boundary seconds":             {0, 100, 20, 700, true}, // 35 in each
		"many seconds on one page":     {0, 1000, 2, 700, true},
		"more in a second than a page": {0, 100, 5, 500, false}, // 140 in each
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				now := time.Now()
				source := w.relay("source.example")
				source.cap = c.cap
				for n := range 700 {
					source.add(naming(t, n, 10002, now.Add(-time.Duration(n%c.seconds)*time.Second), fmt.Sprintf("wss://r%d.example.com", n)))
				}
				cfg := w.config(source)
				cfg.PageSize = c.size
				s := sweep(t, newDiscovery(t, cfg))
				if len(s.Found) != c.want || s.Whole != c.whole || (s.Sources[0].Problem == "") != c.whole {
					t.Errorf("found %d, want %d; whole %v, %+v", len(s.Found), c.want, s.Whole, s.Sources[0])
				}
				if s.Sources[0].Events != c.want { // what stands on two pages counts once
					t.Errorf("%d events, want %d", s.Sources[0].Events, c.want)
				}
				if source.dialled() != 1 || len(source.asked()) > 30 {
					t.Errorf("%d dials, %d REQs", source.dialled(), len(source.asked()))
				}
				if s.Sources[0].Pages != len(source.asked()) || s.Ignored["older"] > 0 {
					t.Errorf("%d pages, %d REQs, ignored %v", s.Sources[0].Pages, len(source.asked()), s.Ignored)
				}
			})
		})
	}
}

func TestAuthorsAreBounded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		source := w.relay("source.example")
		for n := range 30 {
			source.add(naming(t, n, 10002, now.Add(-time.Duration(n)*time.Second), fmt.Sprintf("wss://r%d.example.com", n)))
		}
		cfg := w.config(source)
		cfg.MaxAuthors = 20
		d := newDiscovery(t, cfg)
		s := sweep(t, d)
		if s.Authors > 20 || len(s.Found) > 20 || s.Ignored["authors"] < 10 || s.Whole {
			t.Errorf("%d authors, %d found, ignored %v, whole %v", s.Authors, len(s.Found), s.Ignored, s.Whole)
		}
		elapse(2 * time.Hour)
		if s = sweep(t, d); s.Whole {
			t.Error("whole, although those who had no room are not asked for again")
		}
		cfg.MaxAuthors = 100
		if err := d.Configure(cfg); err != nil {
			t.Fatal(err)
		}
		elapse(24 * time.Hour)
		if s = sweep(t, d); !s.Whole || s.Authors != 30 {
			t.Errorf("with room: whole %v, %d authors", s.Whole, s.Authors)
		}
		// One author cannot take all the room either.
		greedy := w.relay("greedy.example")
		for n := range 500 {
			greedy.add(naming(t, 0, 30166, now, fmt.Sprintf("wss://g%d.example.com", n)))
		}
		cfg = w.config(greedy)
		cfg.MaxAuthors = 20
		s = sweep(t, newDiscovery(t, cfg))
		if len(s.Found) > 100 || s.Ignored["room"] < 400 || s.Whole {
			t.Errorf("%d found, ignored %v, whole %v", len(s.Found), s.Ignored, s.Whole)
		}
	})
}

// One monitor names thousands of relays, each in an event of its own.
func TestMonitorsReports(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		source := w.relay("source.example")
		for n := range 1500 {
			source.add(naming(t, n%2, 30166, now.Add(-time.Duration(n)*time.Second), fmt.Sprintf("wss://r%d.example.com", n/2)))
		}
		s := sweep(t, newDiscovery(t, w.config(source)))
		if len(s.Found) != 750 || s.Authors != 2 || s.Found[0].Authors != 2 {
			t.Errorf("%d found, %d authors, %+v", len(s.Found), s.Authors, s.Found[0])
		}
	})
}

func TestConfigure(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		now := time.Now()
		a := w.relay("a.example", naming(t, 0, 10002, now, "wss://a.example.com"), naming(t, 0, 10050, now, "wss://127.0.0.1"))
		b := w.relay("b.example", naming(t, 1, 10002, now, "wss://b.example.com"))
		d := newDiscovery(t, w.config(a))
		sweep(t, d)
		if err := d.Configure(discovery.Config{}); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("an empty configuration: %v", err)
		}
		// Another source is read from its beginning, and what was read is kept.
		if err := d.Configure(w.config(a, b)); err != nil {
			t.Fatal(err)
		}
		n := len(a.asked())
		s := sweep(t, d)
		if diff := cmp.Diff([]string{"wss://a.example.com/", "wss://b.example.com/"}, urls(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if a.asked()[n].Since == nil || b.asked()[0].Since != nil {
			t.Error("not just the new source is asked for everything")
		}
		// What a source alone told leaves with it.
		if err := d.Configure(w.config(a)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"wss://a.example.com/"}, urls(sweep(t, d))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// Other networks judge what was read differently.
		cfg := w.config(a, b)
		cfg.AllowNetworks = loopback
		cfg.Kinds = []int{10050}
		if err := d.Configure(cfg); err != nil {
			t.Fatal(err)
		}
		s = sweep(t, d)
		if diff := cmp.Diff([]string{"wss://127.0.0.1/"}, urls(s)); diff != "" || len(s.Rejected) > 0 {
			t.Errorf("rejected %v (-want +got):\n%s", s.Rejected, diff)
		}
	})
}

func TestBadConfig(t *testing.T) {
	client := &http.Client{}
	source := []monitor.RelayURL{"wss://source.example.com/"}
	for name, c := range map[string]struct {
		cfg  discovery.Config
		says string
	}{
		"no source":       {discovery.Config{Client: client}, "needs a source"},
		"no client":       {discovery.Config{Sources: source}, "needs a client"},
		"not canonical":   {discovery.Config{Client: client, Sources: []monitor.RelayURL{"wss://source.example.com"}}, "source 1"},
		"private":         {discovery.Config{Client: client, Sources: []monitor.RelayURL{"ws://127.0.0.1/"}}, "source 1"},
		"twice":           {discovery.Config{Client: client, Sources: append(source, source...)}, "twice"},
		"another kind":    {discovery.Config{Client: client, Sources: source, Kinds: []int{3, 1}}, "kind 1"},
		"no key":          {discovery.Config{Client: client, Sources: source, Self: "me"}, "public key"},
		"below zero":      {discovery.Config{Client: client, Sources: source, MaxAuthors: -1}, "max authors"},
		"time below zero": {discovery.Config{Client: client, Sources: source, SourceLimit: -1}, "source limit"},
	} {
		if _, err := discovery.New(c.cfg); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSweepErrors(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		dead := &relay{url: "ws://nobody.example/"}
		d := newDiscovery(t, w.config(dead))
		s, err := d.Sweep(t.Context())
		if !errors.Is(err, discovery.ErrNothingRead) || len(s.Sources) != 1 || s.Sources[0].Problem != "it answered the upgrade with HTTP 404" || s.Whole {
			t.Errorf("%v, %+v", err, s)
		}
		// One of two is enough.
		alive := w.relay("alive.example", naming(t, 0, 10002, time.Now(), "wss://a.example.com"))
		s, err = newDiscovery(t, w.config(dead, alive)).Sweep(t.Context())
		if err != nil || len(s.Found) != 1 || s.Whole || !s.Sources[1].Whole {
			t.Errorf("%v, %+v", err, s)
		}
		// A sweep that is ended tells what it has.
		mute := w.relay("mute.example")
		mute.req = func(*conn, int, query) bool { return true }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		s, err = newDiscovery(t, w.config(mute, alive)).Sweep(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || len(s.Found) != 1 || s.Whole || time.Since(start) != time.Second {
			t.Errorf("after %s: %v, %+v", time.Since(start), err, s)
		}
	})
}

// The same over real sockets.
func TestOverLoopback(t *testing.T) {
	source := &relay{}
	server := httptest.NewServer(source)
	defer server.Close()
	source.url = monitor.RelayURL("ws" + strings.TrimPrefix(server.URL, "http") + "/")
	now := time.Now()
	for n := range 300 {
		source.add(naming(t, n, 10002, now.Add(-time.Duration(n)*time.Second), fmt.Sprintf("wss://r%d.example.com", n%200)))
	}
	client := server.Client()
	defer client.CloseIdleConnections()
	cfg := discovery.Config{Sources: []monitor.RelayURL{source.url}, Client: client, AllowNetworks: loopback, PageSize: 100}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := newDiscovery(t, cfg).Sweep(ctx)
	if err != nil || len(s.Found) != 200 || s.Authors != 300 || !s.Whole {
		t.Errorf("%v: %d found, %d authors, whole %v, %+v", err, len(s.Found), s.Authors, s.Whole, s.Sources)
	}
}
