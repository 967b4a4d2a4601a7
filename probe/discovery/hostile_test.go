package discovery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe/discovery"
)

// told is what a sweep says of its first source.
type told struct {
	found    int
	problem  string // "" = it told all
	refusals map[string]int
	took     time.Duration // at most
	rest     time.Duration // until when it rests, since the sweep's begin
	slack    time.Duration // of rest, where chance is in it; 0 = 1 s
}

// judge sweeps over a source and one in order beside it, which must never be
// held up or lost.
func judge(t *testing.T, w *world, bad *relay, change func(*discovery.Config), want told) monitor.Sweep {
	t.Helper()
	good := w.relay("good.example", naming(t, 90, 10002, time.Now(), "wss://good.example.com"))
	cfg := w.config(bad, good)
	if change != nil {
		change(&cfg)
	}
	start := time.Now()
	s := sweep(t, newDiscovery(t, cfg))
	got := s.Sources[0]
	if len(s.Found)-1 != want.found {
		t.Errorf("found %d of the source, want %d", len(s.Found)-1, want.found)
	}
	if (got.Problem == "") != (want.problem == "") || !strings.Contains(got.Problem, want.problem) {
		t.Errorf("problem %q, want %q", got.Problem, want.problem)
	}
	if got.Whole != (want.problem == "") || s.Whole != got.Whole || !s.Sources[1].Whole {
		t.Errorf("whole: source %v, sweep %v, the other source %v", got.Whole, s.Whole, s.Sources[1].Whole)
	}
	if want.refusals == nil {
		want.refusals = map[string]int{}
	}
	if diff := cmp.Diff(want.refusals, s.Refusals); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if took := time.Since(start); took > want.took {
		t.Errorf("it took %s, want %s at most", took, want.took)
	}
	rest := time.Duration(0)
	if !got.RestUntil.IsZero() {
		rest = got.RestUntil.Sub(start)
	}
	if diff, slack := rest-want.rest, max(want.slack, time.Second); diff < -slack || diff > slack {
		t.Errorf("it rests for %s, want %s", rest, want.rest)
	}
	return s
}

// hostile runs a source that does as do says, with ten lists.
func hostile(t *testing.T, do func(r *relay), change func(*discovery.Config), want told) {
	t.Helper()
	in(t, func(t *testing.T, w *world) {
		r := w.relay("bad.example")
		for n := range 10 {
			r.add(naming(t, n, 10002, time.Now().Add(-time.Duration(n)*time.Hour), fmt.Sprintf("wss://r%d.example.com", n)))
		}
		do(r)
		judge(t, w, r, change, want)
	})
}

// closing refuses the first so many REQs with these texts, the last for ever
// when forever is set.
func closing(forever bool, texts ...string) func(*relay) {
	return func(r *relay) {
		r.req = func(c *conn, n int, q query) bool {
			if n > len(texts) && !forever {
				return false
			}
			return c.send("CLOSED", q.ID, texts[min(n, len(texts))-1])
		}
	}
}

func TestRefusals(t *testing.T) {
	const forever = true
	for name, c := range map[string]struct {
		do   func(*relay)
		want told
		reqs int // at the source
	}{
		// S62, each for ever.
		"auth":        {closing(forever, "auth-required: you must auth"), told{problem: "auth-required: you must auth", refusals: map[string]int{"auth-required": 1}}, 1},
		"restricted":  {closing(forever, "restricted: this relay does not accept REQs"), told{problem: "restricted: this", refusals: map[string]int{"restricted": 1}}, 1},
		"blocked":     {closing(forever, "blocked: we only keep kind 24133 or 24135"), told{problem: "blocked: we only", refusals: map[string]int{"blocked": 1}}, 1},
		"not allowed": {closing(forever, "error: queries not allowed"), told{problem: "error: queries not allowed", refusals: map[string]int{"error": 1}, took: 40 * time.Second}, 6},
		"no prefix":   {closing(forever, "max number of subscriptions per client (100) reached"), told{problem: "max number of", refusals: map[string]int{"none": 1}, took: 40 * time.Second}, 6},
		"too many":    {closing(forever, "error: too many subscriptions"), told{problem: "error: too many", refusals: map[string]int{"error": 1}}, 1},
		"a bug":       {closing(forever, "rate-limited: there is a bug in the client, no one should be making so many requests"), told{problem: "rate-limited: there is a bug", refusals: map[string]int{"rate-limited": 1}, took: 100 * time.Second, rest: 65 * time.Second, slack: 6 * time.Second}, 6},
		"made up":     {closing(forever, "x9283: y"), told{problem: "it refused: x9283: y", refusals: map[string]int{"other": 1}, took: 40 * time.Second}, 6},
		"no words":    {closing(forever, ""), told{problem: "it refused", refusals: map[string]int{"none": 1}, took: 40 * time.Second}, 6},
		"strfry's notice, for ever": {func(r *relay) {
			r.req = func(c *conn, _ int, _ query) bool { return c.send("NOTICE", "ERROR: too many concurrent REQs") }
		}, told{problem: "too many concurrent REQs", refusals: map[string]int{"error": 1}, took: 40 * time.Second}, 6},

		// Each for a while.
		"strfry's notice, once": {func(r *relay) {
			r.req = func(c *conn, n int, _ query) bool {
				return n == 1 && c.send("NOTICE", "ERROR: too many concurrent REQs")
			}
		}, told{found: 10, took: 2 * time.Second}, 3},
		"busy twice":                              {closing(false, "error: busy", "error: busy"), told{found: 10, took: 4 * time.Second}, 4},
		"rate limited, no hint":                   {closing(false, "rate-limited: slow down"), told{found: 10, took: 11 * time.Second}, 3},
		"rate limited, a hint":                    {closing(false, "rate-limited: slow down, retry in 90s"), told{found: 10, took: 91 * time.Second}, 3},
		"rate limited, longer than there is time": {closing(false, "rate-limited: retry in 9999s"), told{problem: "rate-limited: retry in 9999s", refusals: map[string]int{"rate-limited": 1}, rest: 300 * time.Second}, 1},
		"rate limited by a notice": {func(r *relay) {
			r.req = func(c *conn, n int, _ query) bool { return n == 1 && c.send("NOTICE", "rate-limited: retry in 20s") }
		}, told{found: 10, took: 21 * time.Second}, 3},
		"a notice about nothing": {func(r *relay) {
			r.greet = func(c *conn) { c.send("NOTICE", "welcome: to this relay") }
		}, told{found: 10}, 2},
		"a CLOSED of nobody": {func(r *relay) {
			r.greet = func(c *conn) { c.send("CLOSED", "other", "blocked: you") }
		}, told{found: 10}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var r *relay
			hostile(t, func(bad *relay) { r = bad; c.do(bad) }, nil, c.want)
			if n := len(r.asked()); n != c.reqs {
				t.Errorf("%d REQs, want %d", n, c.reqs)
			}
			if r.dialled() != 1 {
				t.Errorf("%d dials, want 1", r.dialled())
			}
		})
	}
}

// A limit that the source sets on the requests is kept: no REQ goes out before.
func TestRateLimitIsKept(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r := w.relay("bad.example", naming(t, 0, 10002, time.Now(), "wss://a.example.com"))
		closing(false, "rate-limited: retry in 90s", "rate-limited: no")(r)
		start := time.Now()
		sweep(t, newDiscovery(t, w.config(r)))
		var at []time.Duration
		for _, q := range r.times {
			at = append(at, q.Sub(start))
		}
		if len(at) != 4 || at[1] < 90*time.Second || at[1] > 91*time.Second || at[2]-at[1] < 10*time.Second || at[2]-at[1] > 11*time.Second {
			t.Errorf("REQs at %v, want one at 90 s and one 10 s later", at)
		}
	})
}

func TestMisbehaviour(t *testing.T) {
	drip := func(c *conn, id string, gap time.Duration) {
		for n := 0; ; n++ {
			ev := naming(t, n%5, 10002, time.Now().Add(-time.Hour), fmt.Sprintf("wss://r%d.example.com", n%5))
			if !c.send("EVENT", id, ev) {
				return
			}
			select {
			case <-time.After(gap):
			case <-c.ctx.Done():
				return
			}
		}
	}
	small := func(cfg *discovery.Config) { cfg.MaxEvents = 2000 }
	for name, c := range map[string]struct {
		do     func(*relay)
		change func(*discovery.Config)
		want   told
		dials  int
	}{
		"mute": {func(r *relay) { r.req = func(*conn, int, query) bool { return true } }, nil, told{problem: "it said nothing for 20s", took: 20 * time.Second}, 1},
		"never EOSE": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				for _, ev := range c.r.events {
					c.send("EVENT", q.ID, ev)
				}
				return true
			}
		}, nil, told{found: 10, problem: "not that there is no more", took: 20 * time.Second}, 1},
		"drips for ever": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool { drip(c, q.ID, 15*time.Second); return true }
		}, nil, told{found: 5, problem: "it was not done after 5m0s", took: 5 * time.Minute}, 1},
		"drips too slowly": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool { drip(c, q.ID, 25*time.Second); return true }
		}, nil, told{found: 1, problem: "it said nothing for 20s", took: 20 * time.Second}, 1},
		"drips bytes": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				w, err := c.Writer(c.ctx, websocket.MessageText)
				for err == nil {
					_, err = w.Write([]byte("["))
					select {
					case <-time.After(time.Second):
					case <-c.ctx.Done():
						return true
					}
				}
				return true
			}
		}, nil, told{problem: "it said nothing for 20s", took: 20 * time.Second}, 1},
		"floods": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				for c.send("EVENT", q.ID, c.r.events[0]) {
				}
				return true
			}
		}, small, told{found: 1, problem: "more than the 2000 messages", took: time.Minute}, 1},
		"floods of strangers": {func(r *relay) {
			r.greet = func(c *conn) {
				for c.send("EVENT", "other", map[string]int{}) {
				}
			}
		}, small, told{problem: "more than the 2000 messages", took: time.Minute}, 1},
		"floods of notices": {func(r *relay) {
			r.greet = func(c *conn) {
				for c.send("NOTICE", "hello") {
				}
			}
		}, small, told{problem: "more than the 2000 messages", took: time.Minute}, 1},
		"floods of CLOSED": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				for c.send("CLOSED", q.ID, "error: no") {
				}
				return true
			}
		}, small, told{problem: "more than the 2000 messages", took: time.Minute}, 1},
		"floods of bytes": {func(r *relay) {
			r.greet = func(c *conn) {
				for c.send("NOTICE", strings.Repeat("x", 100_000)) {
				}
			}
		}, func(cfg *discovery.Config) { cfg.MaxBytes = 5 << 20 }, told{problem: "more than the 5242880 bytes", took: time.Minute}, 1},
		"a giant message": {func(r *relay) {
			r.greet = func(c *conn) { c.send("NOTICE", strings.Repeat("x", 5<<20)) }
		}, nil, told{problem: "over 4 MB", took: 30 * time.Second}, 3},
		"wrong signatures": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				for n := 0; ; n++ {
					ev := *c.r.events[0]
					ev.ID = fmt.Sprintf("%064x", n)
					ev.CreatedAt += nostr.Timestamp(n % 500)
					if !c.send("EVENT", q.ID, ev) {
						return true
					}
				}
			}
		}, nil, told{problem: "wrong signatures", took: time.Minute}, 1},
		"gives 100 at most": {func(r *relay) { r.cap = 3 }, nil, told{found: 10}, 1},
		"ignores until": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool { q.Until = nil; q.Limit = 4; c.answer(q); return true }
		}, nil, told{found: 4, problem: "of other times"}, 1},
		"the same page for ever": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				for _, ev := range c.r.events[3:7] {
					c.send("EVENT", q.ID, ev)
				}
				return c.send("EOSE", q.ID)
			}
		}, nil, told{found: 4, problem: "of other times"}, 1},
		"EOSE for ever": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool {
				c.answer(q)
				for range 50 {
					c.send("EOSE", q.ID)
				}
				return true
			}
		}, nil, told{found: 10}, 1},
		"junk": {func(r *relay) {
			r.greet = func(c *conn) {
				for _, m := range []string{"", "[]", "null", "{", "[[[[", `["EVENT"]`, `["OK","x",true,""]`, "\xff\xfe", `["AUTH"]`, `["AUTH",{}]`, strings.Repeat("[", 60_000)} {
					c.raw(m)
				}
				c.Write(c.ctx, websocket.MessageBinary, []byte{0, 1, 2})
			}
		}, nil, told{found: 10}, 1},
		"closes at once": {func(r *relay) {
			r.greet = func(c *conn) { c.Close(websocket.StatusPolicyViolation, "go \x07away") }
		}, nil, told{problem: "it closed the connection with code 1008: go away", took: 30 * time.Second}, 3},
		"breaks off": {func(r *relay) {
			r.req = func(c *conn, _ int, q query) bool { c.CloseNow(); return true }
		}, nil, told{problem: "the connection broke off", took: 10 * time.Second}, 3},
		"closes once in the middle": {func(r *relay) {
			r.cap = 4
			r.req = func(c *conn, n int, q query) bool {
				if n == 2 {
					c.send("EVENT", q.ID, c.r.events[4])
					c.Close(websocket.StatusGoingAway, "")
				}
				return n == 2
			}
		}, nil, told{found: 10, took: 12 * time.Second}, 2},
		"HTTP 403":           {refusing(403, ""), nil, told{problem: "HTTP 403"}, 1},
		"HTTP 429":           {refusing(429, ""), nil, told{problem: "HTTP 429"}, 1},
		"HTTP 429, seconds":  {refusing(429, "120"), nil, told{problem: "HTTP 429", rest: 120 * time.Second}, 1},
		"HTTP 429, a date":   {refusing(429, "date"), nil, told{problem: "HTTP 429", rest: 600 * time.Second}, 1},
		"HTTP 503, a year":   {refusing(503, "31536000"), nil, told{problem: "HTTP 503", rest: time.Hour}, 1},
		"HTTP 429, nonsense": {refusing(429, "-5 soon"), nil, told{problem: "HTTP 429"}, 1},
		"HTTP for ever": {func(r *relay) {
			r.upgrade = func(w http.ResponseWriter, req *http.Request, _ int) bool {
				<-req.Context().Done()
				return true
			}
		}, nil, told{problem: "connected to within 30s", took: 31 * time.Second}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r *relay
			hostile(t, func(bad *relay) { r = bad; c.do(bad) }, c.change, c.want)
			if r.dialled() != c.dials {
				t.Errorf("%d dials, want %d", r.dialled(), c.dials)
			}
		})
	}
}

func refusing(status int, retryAfter string) func(*relay) {
	return func(r *relay) {
		r.upgrade = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			switch retryAfter {
			case "":
			case "date":
				w.Header().Set("Retry-After", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
			default:
				w.Header().Set("Retry-After", retryAfter)
			}
			w.WriteHeader(status)
			return true
		}
	}
}

// A source that asked to be left alone is not dialled before.
func TestRestIsKept(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r := w.relay("bad.example", naming(t, 0, 10002, time.Now(), "wss://a.example.com"))
		r.upgrade = func(w http.ResponseWriter, req *http.Request, dial int) bool {
			return dial == 1 && func() bool { refusing(429, "1800")(r); return r.upgrade(w, req, dial) }()
		}
		first := r.upgrade
		good := w.relay("good.example")
		d := newDiscovery(t, w.config(r, good))
		s := sweep(t, d)
		until := s.Sources[0].RestUntil
		elapse(29 * time.Minute)
		s = sweep(t, d)
		if r.dialled() != 1 || !s.Sources[0].RestUntil.Equal(until) || !strings.Contains(s.Sources[0].Problem, "asked not to be asked") || s.Whole {
			t.Errorf("%d dials, %+v", r.dialled(), s.Sources[0])
		}
		r.upgrade = first
		elapse(2 * time.Minute)
		if s = sweep(t, d); r.dialled() != 2 || len(s.Found) != 1 || !s.Sources[0].RestUntil.IsZero() {
			t.Errorf("%d dials, %+v", r.dialled(), s.Sources[0])
		}
	})
}

// After a refusal the source is asked again only by the next sweep, from where
// it was.
func TestRefusedSourceComesBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r := w.relay("bad.example", naming(t, 0, 10002, time.Now(), "wss://a.example.com"))
		good := w.relay("good.example")
		refuse := true
		r.req = func(c *conn, _ int, q query) bool { return refuse && c.send("CLOSED", q.ID, "blocked: no") }
		d := newDiscovery(t, w.config(r, good))
		sweep(t, d)
		elapse(time.Hour)
		refuse = false
		s := sweep(t, d)
		if len(s.Found) != 1 || r.dialled() != 2 || r.asked()[1].Since != nil {
			t.Errorf("found %d, %d dials, second REQ %+v", len(s.Found), r.dialled(), r.asked()[1])
		}
	})
}

// S71: with a key of ours the source's challenge is answered, once.
func TestAuthenticate(t *testing.T) {
	for name, c := range map[string]struct {
		accept, again bool // the AUTH; refuse the REQ all the same
		challenge     string
		want          told
		reqs, auths   int
	}{
		"accepted":     {true, false, "abc", told{found: 10, took: time.Second}, 3, 1},
		"in vain":      {true, true, "abc", told{problem: "auth-required: who", refusals: map[string]int{"auth-required": 1}}, 2, 1},
		"not accepted": {false, false, "abc", told{problem: "auth-required: who", refusals: map[string]int{"auth-required": 1}}, 1, 1},
		"no challenge": {true, false, "", told{problem: "auth-required: who", refusals: map[string]int{"auth-required": 1}}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := key(t, 99)
			var r *relay
			auths, authed := 0, false
			hostile(t, func(bad *relay) {
				r = bad
				r.greet = func(cn *conn) {
					if c.challenge != "" {
						cn.send("AUTH", c.challenge)
					}
				}
				r.auth = func(cn *conn, ev *nostr.Event) {
					auths++
					if err := nostr.Verify(ev); err != nil || ev.Kind != 22242 || ev.PubKey != k.Pubkey() {
						t.Errorf("%v: %+v", err, ev)
					}
					want := nostr.Tags{{"relay", "ws://bad.example/"}, {"challenge", c.challenge}}
					if diff := cmp.Diff(want, ev.Tags); diff != "" {
						t.Errorf("tags (-want +got):\n%s", diff)
					}
					authed = c.accept
					cn.send("OK", ev.ID, c.accept, "")
				}
				r.req = func(cn *conn, _ int, q query) bool {
					return (!authed || c.again) && cn.send("CLOSED", q.ID, "auth-required: who")
				}
			}, func(cfg *discovery.Config) { cfg.Key = k }, c.want)
			if len(r.asked()) != c.reqs || auths != c.auths {
				t.Errorf("%d REQs, %d AUTHs, want %d and %d", len(r.asked()), auths, c.reqs, c.auths)
			}
		})
	}
}

// Four sources are read at a time, and mute ones cost the others nothing but
// their turn.
func TestSourcesInParallel(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var sources []*relay
		open := 0
		for i := range 10 {
			r := w.relay(fmt.Sprintf("mute%d.example", i))
			r.req = func(c *conn, _ int, _ query) bool {
				w.mu.Lock()
				open++
				w.mu.Unlock()
				<-c.ctx.Done()
				w.mu.Lock()
				open--
				w.mu.Unlock()
				return true
			}
			sources = append(sources, r)
		}
		start := time.Now()
		ended := make(chan error, 1)
		go func() {
			_, err := newDiscovery(t, w.config(sources...)).Sweep(t.Context())
			ended <- err
		}()
		// Looked at between the moments at which sources take turns.
		<-time.After(500 * time.Millisecond)
		most := 0
		for range 58 {
			w.mu.Lock()
			most = max(most, open)
			w.mu.Unlock()
			<-time.After(time.Second)
		}
		if err := <-ended; !errors.Is(err, discovery.ErrNothingRead) || most != 4 || time.Since(start) > 61*time.Second {
			t.Errorf("%v after %s, %d open at a time", err, time.Since(start), most)
		}
	})
}

// Every page's subscription is closed, and only one is open at a time.
func TestSubscriptionsAreClosed(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r := w.relay("a.example")
		for n := range 30 {
			r.add(naming(t, n, 10002, time.Now().Add(-time.Duration(n)*time.Hour), "wss://a.example.com"))
		}
		r.cap = 10
		sweep(t, newDiscovery(t, w.config(r)))
		synctest.Wait()
		var ids []string
		for _, q := range r.asked() {
			ids = append(ids, q.ID)
		}
		if slices.Equal(ids, slices.Compact(slices.Clone(ids))) == false || !slices.Equal(r.closes, ids) || len(ids) < 4 {
			t.Errorf("asked %q, closed %q", ids, r.closes)
		}
	})
}

// FuzzList: whatever a source sends as a list, exactly the relay URLs that it
// names are found, and only if it is one.
func FuzzList(f *testing.F) {
	for _, s := range []struct {
		kind uint8
		tags string
		body string
	}{
		{0, `[]`, `{"wss://a.example.com":{"read":true}}`},
		{0, `[]`, `{"wss://a.example.com":1,"wss://a.example.com":2,"\u0000":3}`},
		{1, `[["r","wss://a.example.com"],["r","ws://127.0.0.1","read"],["r"],[]]`, ""},
		{2, `[["relay","wss://a.example.com/?secret=1"]]`, ""},
		{3, `[["d","x"],["relay","wss://a.example.com"],["relay","\ufeffWSS://A.example.com:443"]]`, ""},
		{4, `[["d","wss://a.example.com"],["d","wss://b.example.com"]]`, ""},
		{4, `[["d"]]`, ""},
		{1, `[["r","wss://a.example.com"],["expiration","1"]]`, ""},
	} {
		f.Add(s.kind, s.tags, s.body)
	}
	f.Fuzz(func(t *testing.T, kind uint8, tags, body string) {
		var list nostr.Tags
		if json.Unmarshal([]byte(tags), &list) != nil {
			return
		}
		k := []int{3, 10002, 10050, 30002, 30166}[int(kind)%5]
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		ev := sign(t, 0, k, now, list, body)
		raw, err := ev.MarshalJSON()
		if err != nil {
			return
		}
		s := discovery.ReadOne(raw, now)
		if len(s.Found) > 100 {
			t.Errorf("%d relays of one list", len(s.Found))
		}
		for _, r := range s.Found {
			if u, err := monitor.ParseRelayURL(string(r.URL)); err != nil || u != r.URL || r.Authors != 1 || !slices.Equal(r.Kinds, []int{k}) {
				t.Errorf("%+v: %v", r, err)
			}
		}
		for reason, n := range s.Rejected {
			if n <= 0 || reason == "" {
				t.Errorf("rejected %v", s.Rejected)
			}
		}
		if ignored := s.Ignored; len(ignored) == 0 && (s.Authors == 1) != (len(s.Found) > 0) {
			t.Errorf("%d authors, %d found", s.Authors, len(s.Found))
		} else if len(ignored) > 0 && len(s.Found)+len(s.Rejected) > 0 {
			t.Errorf("ignored for %v, but found %d", ignored, len(s.Found))
		}
	})
}
