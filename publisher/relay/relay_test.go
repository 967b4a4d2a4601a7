package relay_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gonostr "github.com/nbd-wtf/go-nostr"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

func urls(evs []*nostr.Event) []string {
	out := []string{}
	for _, e := range evs {
		out = append(out, e.Tags.GetD())
	}
	slices.Sort(out)
	return out
}

func listed(g *monitor.Generation) []string {
	out := []string{}
	for i := range g.Online {
		out = append(out, string(g.Online[i].URL))
	}
	slices.Sort(out)
	return out
}

func wantURLs(t *testing.T, what string, got []*nostr.Event, want []string) {
	t.Helper()
	if d := gocmp.Diff(want, urls(got)); d != "" {
		t.Errorf("%s: %d events, want %d (-want +got):\n%.600s", what, len(got), len(want), d)
	}
}

// TestContract reads the relay over a socket and checks the numbered lines of
// reports.md on small, usual and large sets.
func TestContract(t *testing.T) {
	for _, n := range []int{30, 1500, 5000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			now := time.Now()
			sign := signed
			if n > 2000 {
				sign = unsigned
			}
			g := generation(t, n, now, sign)
			g.Service = []*monitor.SignedEvent{
				signed(t, nostr.Event{Kind: nostr.KindAnnouncement, CreatedAt: nostr.Timestamp(now.Unix()), Tags: nostr.Tags{{"frequency", "3600"}, {"c", "open"}, {"k", "30166"}}}),
				signed(t, nostr.Event{Kind: nostr.KindProfile, CreatedAt: nostr.Timestamp(now.Unix()), Content: `{"name":"Pharos"}`}),
				signed(t, nostr.Event{Kind: nostr.KindRelayList, CreatedAt: nostr.Timestamp(now.Unix()), Tags: nostr.Tags{{"r", "wss://pharos.example.com/"}}}),
			}
			g.Snapshot = signed(t, nostr.Event{Kind: nostr.KindRelaySet, CreatedAt: nostr.Timestamp(now.Unix()), Tags: nostr.Tags{{"d", "nip66-online"}}})
			s := serve(t, relay.Options{})
			s.Update(g)
			c := s.dial(t)
			want := listed(g)

			all := c.query(`{"kinds":[30166]}`)
			t.Run("13 the whole set, once, newest first", func(t *testing.T) {
				wantURLs(t, "{kinds:[30166]}", all, want)
				if !slices.IsSortedFunc(all, func(a, b *nostr.Event) int {
					return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
				}) {
					t.Error("not newest first, lowest id first within a second")
				}
				for i := 0; n <= 2000 && i < len(all); i += 1 + n/200 {
					if err := nostr.Verify(all[i]); err != nil {
						t.Error(err)
					}
				}
			})
			t.Run("13 with limit and since", func(t *testing.T) {
				wantURLs(t, "limit n", c.query(fmt.Sprintf(`{"kinds":[30166],"limit":%d}`, n)), want)
				wantURLs(t, "limit 10n", c.query(fmt.Sprintf(`{"kinds":[30166],"limit":%d}`, 10*n)), want)
				for _, back := range []time.Duration{2 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
					wantURLs(t, "since", c.query(fmt.Sprintf(`{"kinds":[30166],"since":%d}`, now.Add(-back).Unix())), want)
				}
				got := c.query(`{"kinds":[30166],"limit":500}`)
				if d := gocmp.Diff(all[:min(n, 500)], got); d != "" {
					t.Errorf("limit 500 is not exactly the newest 500: %.300s", d)
				}
				if got := c.query(`{"kinds":[30166],"limit":0}`); len(got) != 0 {
					t.Errorf("limit 0 gave %d events", len(got))
				}
				mid := all[n/2].CreatedAt
				since := c.query(fmt.Sprintf(`{"kinds":[30166],"since":%d,"until":%d}`, mid, mid))
				for _, e := range since {
					if e.CreatedAt != mid {
						t.Errorf("since = until = %d gave one of %d", mid, e.CreatedAt)
					}
				}
				if len(since) == 0 || len(since) > 19 {
					t.Errorf("since = until: %d events, want 1 to 19", len(since))
				}
			})
			t.Run("15 look-ups and tags", func(t *testing.T) {
				wantURLs(t, "#d", c.query(fmt.Sprintf(`{"kinds":[30166],"#d":[%q]}`, want[3])), want[3:4])
				many := want[:min(500, n)]
				list, _ := json.Marshal(many)
				wantURLs(t, "#d of many", c.query(fmt.Sprintf(`{"kinds":[30166],"#d":%s}`, list)), many)
				wantURLs(t, "#d twice", c.query(fmt.Sprintf(`{"#d":[%q,%q]}`, want[3], want[3])), want[3:4])
				wantURLs(t, "#d of another kind", c.query(fmt.Sprintf(`{"kinds":[1],"#d":[%q]}`, want[3])), []string{})
				wantURLs(t, "#d in upper case", c.query(fmt.Sprintf(`{"#d":[%q]}`, strings.ToUpper(want[3]))), []string{})
				var with42, art []string
				for i := range n {
					if i%3 == 0 {
						with42 = append(with42, string(urlOf(i)))
						if i%5 == 0 {
							art = append(art, string(urlOf(i)))
						}
					}
				}
				wantURLs(t, "#N", c.query(`{"kinds":[30166],"#N":["42","999"]}`), with42)
				wantURLs(t, "#N and #t and #R and #n and #l", c.query(`{"kinds":[30166],"#N":["42"],"#t":["Art"],"#R":["!auth"],"#n":["clearnet"],"#l":["online"]}`), art)
				wantURLs(t, "#t in lower case", c.query(`{"kinds":[30166],"#t":["art"]}`), []string{})
				wantURLs(t, "#n tor", c.query(`{"kinds":[30166],"#n":["tor"]}`), []string{})
				wantURLs(t, "a name of two letters", c.query(`{"kinds":[30166],"#rtt-open":["20"]}`), []string{})
				wantURLs(t, "no value", c.query(`{"kinds":[30166],"#N":[]}`), []string{})
				wantURLs(t, "authors", c.query(fmt.Sprintf(`{"kinds":[30166],"authors":[%q]}`, key.Pubkey())), want)
				wantURLs(t, "another author", c.query(fmt.Sprintf(`{"kinds":[30166],"authors":[%q]}`, strings.Repeat("a", 64))), []string{})
				wantURLs(t, "ids", c.query(fmt.Sprintf(`{"ids":[%q,%q]}`, all[1].ID, strings.Repeat("0", 64))), []string{all[1].Tags.GetD()})
				if got := c.query(`{"kinds":[10166],"#k":["30166"],"#c":["open"]}`); len(got) != 1 {
					t.Errorf("#k and #c of 10166: %d events", len(got))
				}
				if got := c.query(`{"kinds":[0,10002,10166,30002]}`); len(got) != 4 {
					t.Errorf("our own events: %d, want 4", len(got))
				}
				if got := c.query(`{}`); len(got) != n+4 {
					t.Errorf("the empty filter gave %d, want everything, %d", len(got), n+4)
				}
			})
			t.Run("15 several filters: each event once, one EOSE", func(t *testing.T) {
				wantURLs(t, "overlapping", c.query(`{"kinds":[30166]}`, `{"kinds":[30166],"#N":["42"]}`, fmt.Sprintf(`{"ids":[%q]}`, all[0].ID)), want)
				got := c.query(`{"kinds":[30166],"limit":2}`, fmt.Sprintf(`{"ids":[%q]}`, all[n-1].ID))
				if len(got) != 3 || got[0].ID != all[0].ID || got[2].ID != all[n-1].ID {
					t.Errorf("limit is each filter's own: %d events", len(got))
				}
			})
			t.Run("16 paging", func(t *testing.T) {
				const page = 500
				for _, step := range []gonostr.Timestamp{0, 1} { // inclusive until, and until = oldest − 1
					seen := map[string]bool{}
					until := gonostr.Timestamp(now.Add(time.Hour).Unix())
					for range 2 + 2*n/page {
						evs := c.query(fmt.Sprintf(`{"kinds":[30166],"limit":%d,"until":%d}`, page, until))
						fresh := false
						for _, e := range evs {
							fresh = fresh || !seen[e.ID]
							seen[e.ID] = true
						}
						if !fresh {
							break
						}
						until = evs[len(evs)-1].CreatedAt - step
					}
					if step == 0 && len(seen) != n {
						t.Errorf("inclusive paging found %d of %d", len(seen), n)
					}
					if missing := n - len(seen); step == 1 && missing > 20*(n/page) {
						t.Errorf("exclusive paging missed %d of %d", missing, n)
					}
				}
			})
			t.Run("14 withdrawn means gone", func(t *testing.T) {
				gone := g.Online[7]
				g2 := with(g, func(g *monitor.Generation) { g.Online = slices.Delete(g.Online, 7, 8) })
				s.Update(g2)
				wantURLs(t, "kinds", c.query(`{"kinds":[30166]}`), listed(g2))
				wantURLs(t, "#d", c.query(fmt.Sprintf(`{"#d":[%q]}`, gone.URL)), []string{})
				wantURLs(t, "ids", c.query(fmt.Sprintf(`{"ids":[%q]}`, gone.Report.ID)), []string{})
				s.Update(g)
				wantURLs(t, "back", c.query(`{"kinds":[30166]}`), want)
			})
			t.Run("13 nothing while warming up or stale", func(t *testing.T) {
				for _, f := range []monitor.Fallback{monitor.FallbackWarmingUp, monitor.FallbackStale} {
					s.Update(with(g, func(g *monitor.Generation) { g.Fallback = f; g.Snapshot = nil }))
					if got := c.query(`{"kinds":[30166,30002]}`, fmt.Sprintf(`{"#d":[%q]}`, want[0]), fmt.Sprintf(`{"ids":[%q]}`, all[0].ID)); len(got) != 0 {
						t.Errorf("%s: %d events", f, len(got))
					}
					if got := c.query(`{"kinds":[0,10002,10166]}`); len(got) != 3 {
						t.Errorf("%s: %d of our own events, want 3", f, len(got))
					}
				}
				s.Update(with(g, func(g *monitor.Generation) { g.Fallback = monitor.FallbackTooFew; g.Snapshot = nil }))
				wantURLs(t, "too few", c.query(`{"kinds":[30166]}`), want)
				if got := c.query(`{"kinds":[30002]}`); len(got) != 0 {
					t.Error("a snapshot that the generation has not")
				}
				s.Update(g)
			})
			t.Run("COUNT", func(t *testing.T) {
				c.send(`["COUNT","n",{"kinds":[30166]},{"#N":["1"]}]`)
				if m := c.next(); m.text != fmt.Sprintf(`["COUNT","n",{"count":%d}]`, n) {
					t.Error(m.text)
				}
			})
		})
	}
}

// TestLive: rule 15's pushes.
func TestLive(t *testing.T) {
	now := time.Now()
	g := generation(t, 40, now.Add(-time.Minute), signed)
	s := serve(t, relay.Options{})
	s.Update(g)
	all, tagged, later, none := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	all.send(`["REQ","a",{"kinds":[30166]}]`)
	wantURLs(t, "stored", all.untilEOSE("a"), listed(g))
	tagged.send(`["REQ","b",{"#N":["42"]},{"kinds":[0]}]`)
	tagged.untilEOSE("b")
	later.send(`["REQ","c",{"kinds":[30166],"limit":0}]`)
	if n := len(later.untilEOSE("c")); n != 0 {
		t.Fatalf("limit 0 gave %d stored events", n)
	}
	none.send(`["REQ","d",{"kinds":[30166],"limit":0}]`)
	none.untilEOSE("d")
	none.send(`["CLOSE","d"]`)
	none.send(`["COUNT","sync",{}]`)
	none.next()

	g2 := with(g, func(g *monitor.Generation) {
		g.Online[3].Report = signed(t, report(3, now))
		g.Online[4].Report = signed(t, report(4, now))
		g.Online = slices.Delete(g.Online, 10, 11)
		g.Online = append(g.Online, monitor.OnlineRelay{URL: urlOf(45), Report: signed(t, report(45, now))})
	})
	s.Update(g2)
	fresh := []string{string(urlOf(3)), string(urlOf(4)), string(urlOf(45))}
	wantURLs(t, "all", []*nostr.Event{all.event("a"), all.event("a"), all.event("a")}, fresh)
	wantURLs(t, "limit 0", []*nostr.Event{later.event("c"), later.event("c"), later.event("c")}, fresh)
	wantURLs(t, "#N", []*nostr.Event{tagged.event("b"), tagged.event("b")}, []string{fresh[0], fresh[2]})

	// The same generation again, a withdrawal and a renumbered one push
	// nothing: the next message is the answer to the next request.
	s.Update(g2)
	s.Update(with(g2, func(g *monitor.Generation) { g.Online = g.Online[1:] }))
	for _, c := range []*client{all, later, tagged, none} {
		c.send(`["COUNT","sync",{"kinds":[30166]}]`)
		if m := c.next(); m.text != `["COUNT","sync",{"count":39}]` {
			t.Errorf("got %s", m.text)
		}
	}
	// A request that is refused ends what ran under its id.
	later.send(`["REQ","c",{"kinds":"x"}]`)
	if m := later.next(); !strings.HasPrefix(m.text, `["CLOSED","c","invalid: `) {
		t.Errorf("got %s", m.text)
	}
	// A subscription of the same id replaces the open one.
	all.send(`["REQ","a",{"kinds":[0],"limit":0}]`)
	all.untilEOSE("a")
	s.Update(with(g2, func(g *monitor.Generation) {
		g.Online[3].Report = signed(t, report(3, now.Add(time.Second)))
		g.Service = append(g.Service, signed(t, nostr.Event{Kind: 0, CreatedAt: nostr.Timestamp(now.Unix()), Content: "{}"}))
	}))
	if e := all.event("a"); e.Kind != 0 {
		t.Errorf("the replaced subscription still speaks: kind %d", e.Kind)
	}
	later.send(`["COUNT","sync",{"kinds":[0]}]`)
	if m := later.next(); m.text != `["COUNT","sync",{"count":1}]` {
		t.Errorf("the closed subscription still speaks: %s", m.text)
	}
}

// TestAppearing: who subscribed while the list was hidden is sent it when it
// is served; who had it already is sent only what is new.
func TestAppearing(t *testing.T) {
	now := time.Now()
	g := generation(t, 40, now.Add(-time.Minute), signed)
	hide := func(g *monitor.Generation) { g.Fallback = monitor.FallbackStale }
	s := serve(t, relay.Options{})
	early := s.dial(t)
	early.send(`["REQ","e",{"kinds":[30166]}]`)
	if n := len(early.untilEOSE("e")); n != 0 {
		t.Fatalf("%d events before the first generation", n)
	}
	s.Update(with(g, func(g *monitor.Generation) { g.Fallback = monitor.FallbackWarmingUp }))
	s.Update(g)
	var got []*nostr.Event
	for range g.Online {
		got = append(got, early.event("e"))
	}
	wantURLs(t, "after warming up", got, listed(g))

	s.Update(with(g, hide))
	blank := s.dial(t)
	blank.send(`["REQ","b",{"kinds":[30166]}]`)
	if n := len(blank.untilEOSE("b")); n != 0 {
		t.Fatalf("%d events while stale", n)
	}
	g2 := with(g, func(g *monitor.Generation) { g.Online[5].Report = signed(t, report(5, now)) })
	s.Update(with(g2, hide))
	s.Update(g2)
	got = nil
	for range g2.Online {
		got = append(got, blank.event("b"))
	}
	wantURLs(t, "who saw none of it", got, listed(g2))
	wantURLs(t, "who had it", []*nostr.Event{early.event("e")}, []string{string(urlOf(5))})
	for _, c := range []*client{early, blank} {
		c.send(`["COUNT","sync",{"kinds":[30166]}]`)
		if m := c.next(); m.label != "COUNT" {
			t.Errorf("one event too many: %s", m.text)
		}
	}
}

// TestExpiry: rule 21, with no new generation in between. An answer that holds
// the event was asked for before its second; one that lacks it came after.
func TestExpiry(t *testing.T) {
	end := time.Now().Add(2 * time.Second).Unix()
	ev := report(1, time.Now())
	ev.Tags[len(ev.Tags)-1] = nostr.Tag{"t", "x"}
	ev.Tags = append(ev.Tags, nostr.Tag{"expiration", fmt.Sprint(end)})
	g := &monitor.Generation{Online: []monitor.OnlineRelay{{URL: urlOf(1), Report: signed(t, ev)}}}
	s := serve(t, relay.Options{})
	s.Update(g)
	c := s.dial(t)
	seen := false
	eventually(t, "the event expires", func() bool {
		before := time.Now().Unix()
		n := len(c.query(`{"kinds":[30166]}`))
		after := time.Now().Unix()
		if n == 1 && before >= end {
			t.Errorf("served at %d, expired at %d", before, end)
		}
		if n == 0 && after < end {
			t.Errorf("gone at %d, expires at %d", after, end)
		}
		seen = seen || n == 1
		return n == 0
	})
	if !seen {
		t.Log("the machine was too slow to see it before its end")
	}
	c.send(`["COUNT","n",{"kinds":[30166]}]`)
	if m := c.next(); m.text != `["COUNT","n",{"count":0}]` {
		t.Error(m.text)
	}
}

// TestGoNostr reads the relay with go-nostr's own client, in a process of its
// own: that client has a data race with itself when a connection ends, so the
// process leaves without ending it.
func TestGoNostr(t *testing.T) {
	const n = 1500
	g := generation(t, n, time.Now(), signed)
	s := serve(t, relay.Options{})
	s.Update(g)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), goNostrClient+"="+s.url)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(out))
	want := append(listed(g), "single", string(urlOf(7)))
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%d lines, want %d (-want +got):\n%.600s", len(got), len(want), d)
	}
}

const goNostrClient = "PHAROS_TEST_GONOSTR" // the relay's URL

// runGoNostr prints the d tags of all reports, sorted, and of a look-up.
func runGoNostr(url string) {
	ctx := context.Background() // whoever started the process bounds it
	pool := gonostr.NewSimplePool(ctx)
	var got []*nostr.Event
	for ev := range pool.FetchMany(ctx, []string{url}, gonostr.Filter{Kinds: []int{30166}}) {
		got = append(got, ev.Event)
	}
	one := pool.QuerySingle(ctx, []string{url}, gonostr.Filter{Kinds: []int{30166}, Tags: gonostr.TagMap{"d": {string(urlOf(7))}}})
	fmt.Println(strings.Join(urls(got), "\n"))
	fmt.Println("single")
	if one != nil {
		fmt.Println(one.Tags.GetD())
	}
	os.Exit(0)
}
