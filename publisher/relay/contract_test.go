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

	gocmp "github.com/google/go-cmp/cmp"
	gonostr "github.com/nbd-wtf/go-nostr"

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
			want := listed(g)
			// In the generation and expired: never to be seen.
			old := report(n, now.Add(-6*time.Hour))
			g.Online = append(g.Online, monitor.OnlineRelay{URL: urlOf(n), Report: sign(t, old)})
			options := relay.Options{Name: "Pharos", Contact: "mailto:a@example.com", Pubkey: key.Pubkey(), Version: "1.2.3"}
			s := serve(t, options)
			c := s.dial(t)
			t.Run("12 the current generation", func(t *testing.T) {
				if got := c.query(`{}`); len(got) != 0 {
					t.Errorf("%d events before the first", len(got))
				}
				half := with(g, func(g *monitor.Generation) { g.Online = g.Online[:n/2] })
				s.Update(half)
				wantURLs(t, "another", c.query(`{"kinds":[30166]}`), listed(half))
				s.Update(g)
			})

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
				every := func(m int) []string { return where(n, func(i int) bool { return i%m == 0 }) }
				for _, tc := range []struct {
					filter string
					want   []string
				}{
					{`"#n":["clearnet"]`, want},
					{`"#R":["!auth"]`, want},
					{`"#N":["1"]`, want},
					{`"#l":["online"]`, want},
					{`"#N":["42","999"]`, every(3)},
					{`"#t":["Art"]`, every(5)},
					{`"#l":["DE"]`, every(11)},
					{`"#g":["u33d"]`, every(11)},
					{`"#T":["PrivateInbox"]`, every(7)},
					{`"#W":["16"]`, every(7)},
					{`"#k":["!4"]`, every(7)},
					{`"#p":["` + strings.Repeat("5", 64) + `"]`, where(n, func(i int) bool { return i%1000 == 29 })},
					{`"#N":["42"],"#t":["Art"],"#R":["!auth"],"#n":["clearnet"],"#l":["online"]`, every(15)},
					{`"#N":["42"],"#W":["16"],"#l":["DE","online"]`, every(21)},
					{`"#t":["Art"],"#d":["` + string(urlOf(10)) + `","` + string(urlOf(11)) + `"]`, []string{string(urlOf(10))}},
				} {
					wantURLs(t, tc.filter, c.query(`{"kinds":[30166],`+tc.filter+`}`), tc.want)
					// The newest of them are those of the whole set.
					some := slices.DeleteFunc(slices.Clone(all), func(e *nostr.Event) bool {
						_, found := slices.BinarySearch(tc.want, e.Tags.GetD())
						return !found
					})
					if d := gocmp.Diff(some[:min(3, len(some))], c.query(`{"limit":3,`+tc.filter+`}`)); d != "" {
						t.Errorf("%s: not the newest 3: %.300s", tc.filter, d)
					}
				}
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
				wantURLs(t, "kinds", c.query(`{"kinds":[30166]}`), slices.Delete(slices.Clone(want), 7, 8))
				wantURLs(t, "#N", c.query(fmt.Sprintf(`{"#N":["1"],"authors":[%q]}`, key.Pubkey())), slices.Delete(slices.Clone(want), 7, 8))
				wantURLs(t, "#T", c.query(`{"#T":["PrivateInbox"],"#W":["16"],"until":`+fmt.Sprint(gone.Report.CreatedAt.Unix())+`,"since":`+fmt.Sprint(gone.Report.CreatedAt.Unix())+`}`), without(where(n, func(i int) bool {
					return i%7 == 0 && g.Online[i].Report.CreatedAt.Equal(gone.Report.CreatedAt)
				}), string(gone.URL)))
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
			t.Run("15 COUNT", func(t *testing.T) {
				either := len(where(n, func(i int) bool { return i%3 == 0 || i%5 == 0 }))
				for filters, count := range map[string]int{
					`{"kinds":[30166]},{"#N":["1"]}`:                        n,
					`{"#N":["42"]},{"#t":["Art"]},{"#t":["Art"],"limit":1}`: either, // K16: of any, not of all
					`{"kinds":[30166],"limit":3}`:                           n,
					`{"#t":["art"]}`:                                        0,
				} {
					c.send(`["COUNT","n",%s]`, filters)
					if m := c.next(); m.text != fmt.Sprintf(`["COUNT","n",{"count":%d}]`, count) {
						t.Errorf("%s: %s, want %d", filters, m.text, count)
					}
				}
			})
			t.Run("15 new reports are pushed, withdrawals are not", func(t *testing.T) {
				live := s.dial(t)
				live.send(`["REQ","live",{"kinds":[30166],"#N":["42"],"limit":0}]`)
				live.untilEOSE("live")
				s.Update(with(g, func(g *monitor.Generation) {
					for _, i := range []int{2, 3} {
						g.Online[i].Report = signed(t, report(i, now.Add(time.Second)))
					}
					g.Online = slices.Delete(g.Online, 6, 7)
				}))
				if ev := live.event("live"); ev.Tags.GetD() != string(urlOf(3)) {
					t.Errorf("pushed %s", ev.Tags.GetD())
				}
				live.send(`["COUNT","sync",{"#d":[%q]}]`, urlOf(6))
				if m := live.next(); m.text != `["COUNT","sync",{"count":0}]` {
					t.Error(m.text)
				}
				s.Update(g)
			})
			t.Run("17 limits are told", func(t *testing.T) {
				o := options
				o.RequestsPerMinute, o.Exempt = 1, nobody
				if err := s.Configure(o); err != nil {
					t.Fatal(err)
				}
				limited := s.dial(t)
				wantURLs(t, "the first", limited.query(`{"kinds":[30166]}`), want)
				for _, label := range []string{"REQ", "COUNT"} {
					limited.refused(fmt.Sprintf(`[%q,"a",{"kinds":[30166]}]`, label), "a", "rate-limited: at most 1 requests a minute from one address; try again in ")
				}
				if err := s.Configure(options); err != nil {
					t.Fatal(err)
				}
				wantURLs(t, "again", limited.query(`{"kinds":[30166]}`), want)
			})
			t.Run("18 read-only", func(t *testing.T) {
				ev := nostr.Event{Kind: 5, CreatedAt: nostr.Timestamp(now.Unix()), Tags: nostr.Tags{{"a", fmt.Sprintf("30166:%s:%s", key.Pubkey(), want[0])}}}
				if err := key.Sign(&ev); err != nil {
					t.Fatal(err)
				}
				for _, send := range []string{ev.String(), string(g.Online[0].Report.JSON), `{"kind":30166,"tags":[["d"],[]]}`} {
					c.send(`["EVENT",%s]`, send)
					if m := c.next(); m.label != "OK" || string(m.parts[2]) != "false" || !strings.HasPrefix(m.str(3), "restricted: ") {
						t.Errorf("%.100s: %s", send, m.text)
					}
				}
				c.send(`["NEG-OPEN","neg",{"kinds":[30166]},"6100000200"]`)
				if m := c.next(); m.label != "NEG-ERR" {
					t.Error(m.text)
				}
				wantURLs(t, "afterwards", c.query(`{"kinds":[30166]}`), want)
			})
			t.Run("19 one that does not read delays nobody", func(t *testing.T) {
				stalled := s.dialRaw(t, slices.Concat(slices.Repeat([][]byte{frame(0x81, -1, `["REQ","a",{"kinds":[30166]}]`)}, 20)...))
				stalled.next(t) // it is being answered
				live := s.dial(t)
				live.send(`["REQ","live",{"kinds":[30166],"limit":0}]`)
				live.untilEOSE("live")
				s.Update(with(g, func(g *monitor.Generation) { g.Online[1].Report = signed(t, report(1, now.Add(time.Second))) }))
				live.event("live")
				wantURLs(t, "meanwhile", c.query(`{"kinds":[30166]}`), want)
				s.Update(g)
			})
			t.Run("20 NIP-11", func(t *testing.T) {
				info := s.info(t)
				limitation, _ := info["limitation"].(map[string]any)
				most, _ := limitation["max_limit"].(float64)
				if int(most) < n || limitation["auth_required"] != false || limitation["payment_required"] != false || limitation["restricted_writes"] != true {
					t.Errorf("%v", limitation)
				}
				if info["name"] != options.Name || info["pubkey"] != options.Pubkey || info["contact"] != options.Contact || info["version"] != options.Version {
					t.Errorf("%v", info)
				}
				for _, nip := range []any{1.0, 11.0, 40.0, 45.0, 66.0} {
					if !slices.Contains(info["supported_nips"].([]any), nip) {
						t.Errorf("NIP %v is not named", nip)
					}
				}
			})
			t.Run("21 the expired one is never sent", func(t *testing.T) {
				for _, f := range []string{
					fmt.Sprintf(`{"ids":[%q]}`, g.Online[n].Report.ID), fmt.Sprintf(`{"#d":[%q]}`, urlOf(n)),
					fmt.Sprintf(`{"#N":["1"],"until":%d}`, now.Add(-5*time.Hour).Unix()), fmt.Sprintf(`{"until":%d}`, now.Add(-5*time.Hour).Unix()),
				} {
					if got := c.query(f); len(got) != 0 {
						t.Errorf("%s: %d events", f, len(got))
					}
				}
			})
			t.Run("go-nostr reads the same", func(t *testing.T) {
				how := ""
				if n > 2000 {
					how = assumeValid
				}
				out := askGoNostr(t, s.url, how)
				want := append(slices.Clone(want), "look-up", string(urlOf(7)), "count", fmt.Sprint(len(where(n, func(i int) bool { return i%3 == 0 }))))
				if d := gocmp.Diff(want, out); d != "" {
					t.Errorf("%d lines, want %d (-want +got):\n%.600s", len(out), len(want), d)
				}
			})
		})
	}
}

// where are the URLs of those of n reports that is accepts, sorted.
func where(n int, is func(int) bool) []string {
	out := []string{}
	for i := range n {
		if is(i) {
			out = append(out, string(urlOf(i)))
		}
	}
	return out
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(list, func(v string) bool { return v == s })
}

const (
	goNostrClient = "PHAROS_TEST_GONOSTR" // "URL how"
	assumeValid   = "assume-valid"        // the events are not really signed
)

// askGoNostr reads the relay with go-nostr's own client, in a process of its
// own: that client has a data race with itself when a connection ends, so the
// process leaves without ending it.
func askGoNostr(t *testing.T, url, how string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), goNostrClient+"="+url+" "+how)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// runGoNostr prints the d tags of all reports, sorted, that of a look-up, and a
// count.
func runGoNostr(url string, valid bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := gonostr.RelayConnect(ctx, url)
	if err != nil {
		return err
	}
	r.AssumeValid = valid
	all, err := r.QuerySync(ctx, gonostr.Filter{Kinds: []int{30166}})
	if err != nil {
		return err
	}
	one, err := r.QuerySync(ctx, gonostr.Filter{Kinds: []int{30166}, Tags: gonostr.TagMap{"d": {string(urlOf(7))}}})
	if err != nil {
		return err
	}
	count, _, err := r.Count(ctx, gonostr.Filters{{Kinds: []int{30166}, Tags: gonostr.TagMap{"N": {"42"}}}})
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(urls(all), "\n"))
	fmt.Println("look-up", strings.Join(urls(one), " "))
	fmt.Println("count", count)
	return nil
}
