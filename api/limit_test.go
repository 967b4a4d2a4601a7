package api_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
)

var everybody = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// from sends a GET of the list from an address.
func (o *operated) from(addr string) *httptest.ResponseRecorder {
	o.Helper()
	r := request(http.MethodGet, "/v1/status")
	r.RemoteAddr = addr
	return o.send(r)
}

func (o *operated) limited(perMinute int, exempt ...netip.Prefix) {
	o.settings.PerMinute, o.settings.Exempt = perMinute, exempt
	o.api.Configure(o.settings)
}

func TestRequestsAreLimited(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.limited(5)
		for range 5 {
			if w := o.from("198.51.100.1:1"); w.Code != http.StatusOK {
				o.Fatal(w.Code)
			}
		}
		w := o.from("198.51.100.1:2")
		if p := o.problem(w, http.StatusTooManyRequests); !strings.Contains(p.Detail, "more than 5 requests") {
			o.Errorf("%s", p.Detail)
		}
		// Browsers may read it.
		r := request(http.MethodGet, "/v1/status", "Origin", "https://client.example")
		r.RemoteAddr = "198.51.100.1:3"
		if w := o.send(r); w.Code != http.StatusTooManyRequests || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			o.Errorf("%d %v", w.Code, w.Header())
		}
		for _, other := range []string{"198.51.100.2:1", "[2001:db8::1]:1"} {
			if w := o.from(other); w.Code != http.StatusOK {
				o.Errorf("%s: %d", other, w.Code)
			}
		}
		// Whoever watches this process is not in the way of others.
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			r := request(http.MethodGet, path)
			r.RemoteAddr = "198.51.100.1:1"
			if w := o.send(r); w.Code != http.StatusOK {
				o.Errorf("%s: %d", path, w.Code)
			}
		}
		if m := o.get("/metrics").Body.String(); !strings.Contains(m, `pharos_http_limited_total{limit="requests"} 2`+"\n") {
			o.Error("not counted")
		}
		o.limited(0)
		if w := o.from("198.51.100.1:1"); w.Code != http.StatusOK {
			o.Errorf("without a limit: %d", w.Code)
		}
		o.limited(5, netip.MustParsePrefix("198.51.100.0/24"))
		if w := o.from("198.51.100.1:1"); w.Code != http.StatusOK {
			o.Errorf("exempt: %d", w.Code)
		}
		o.limited(1, netip.MustParsePrefix("fe80::/10"))
		for range 2 {
			if w := o.from("[fe80::1%eth0]:1"); w.Code != http.StatusOK {
				o.Errorf("exempt, with a zone: %d", w.Code)
			}
		}
	})
}

// An IPv6 customer has a /64 and counts as one; an IPv4 address is the same
// however it is written; who cannot be told counts with all such.
func TestWhoIsCountedAsOne(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"ports":          {"198.51.100.1:1", "198.51.100.1:2", true},
		"one /64":        {"[2001:db8:1:2::1]:1", "[2001:db8:1:2:ffff::9]:1", true},
		"two /64":        {"[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1", false},
		"mapped":         {"[::ffff:198.51.100.1]:1", "198.51.100.1:1", true},
		"mapped, two":    {"[::ffff:198.51.100.1]:1", "[::ffff:198.51.100.2]:1", false},
		"zones":          {"[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		"v4 and its v6":  {"198.51.100.1:1", "[c633:6401::]:1", false},
		"unknown":        {"@", "", true},
		"unknown, known": {"@", "198.51.100.1:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			runOperated(t, func(o *operated) {
				o.limited(1)
				o.from(tc.a)
				if limited := o.from(tc.b).Code == http.StatusTooManyRequests; limited != tc.same {
					o.Errorf("limited: %v", limited)
				}
			})
		})
	}
}

// Behind a trusted proxy it is the client that counts, not the proxy; whoever is
// no proxy cannot choose its address.
func TestTheProxysClientIsCounted(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.limited(1)
		handler := middleware.ClientIPFromXFF("127.0.0.1/32")(o.api)
		ask := func(peer, forwarded string) int {
			r := request(http.MethodGet, "/v1/status", "X-Forwarded-For", forwarded)
			r.RemoteAddr = peer
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		for _, tc := range []struct {
			peer, forwarded string
			want            int
		}{
			{"127.0.0.1:1", "198.51.100.1", 200},
			{"127.0.0.1:1", "198.51.100.2", 200},
			{"127.0.0.1:1", "6.6.6.6, 198.51.100.1", 429}, // the client's own word before it
			{"198.51.100.9:1", "198.51.100.3", 200},
			{"198.51.100.9:1", "198.51.100.4", 429},
			{"127.0.0.1:1", "198.51.100.3", 200},
		} {
			if got := ask(tc.peer, tc.forwarded); got != tc.want {
				o.Errorf("%s for %s: %d, want %d", tc.peer, tc.forwarded, got, tc.want)
			}
		}
	})
}

// However requests come, no minute has twice the limit, what is let in is not far
// below the limit, and whoever waits as told is let in.
func TestTheWindowSlides(t *testing.T) {
	runOperated(t, func(o *operated) {
		const limit = 60
		o.limited(limit)
		random := rand.New(rand.NewPCG(1, 2))
		var let []time.Time
		end := time.Now().Add(30 * time.Minute)
		for time.Now().Before(end) {
			w := o.from("198.51.100.1:1")
			if w.Code == http.StatusOK {
				let = append(let, time.Now())
			} else if random.IntN(4) == 0 {
				wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
				if err != nil || wait < time.Second || wait > 2*time.Minute {
					o.Fatalf("Retry-After %q", w.Header().Get("Retry-After"))
				}
				elapse(wait)
				if w := o.from("198.51.100.1:1"); w.Code != http.StatusOK {
					o.Fatalf("after %s as told: %d", wait, w.Code)
				}
				let = append(let, time.Now())
			}
			elapse(time.Duration(random.ExpFloat64() * float64(200*time.Millisecond)))
			if random.IntN(200) == 0 {
				elapse(time.Duration(random.IntN(150)) * time.Second)
			}
		}
		for i, first := range let {
			n := 0
			for n+i < len(let) && let[n+i].Sub(first) < time.Minute {
				n++
			}
			if n >= limit*2 {
				o.Fatalf("%d within a minute", n)
			}
		}
		if len(let) < 15*limit {
			o.Errorf("only %d in half an hour", len(let))
		}
	})
}

// Nobody gets twice the limit around the turn of a minute.
func TestNoDoubleAtTheTurn(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.limited(10)
		o.from("198.51.100.9:1") // the window begins
		elapse(59 * time.Second)
		count := func() (n int) {
			for range 20 {
				if o.from("198.51.100.1:1").Code == http.StatusOK {
					n++
				}
			}
			return n
		}
		if n := count(); n != 10 {
			o.Fatalf("%d let in", n)
		}
		elapse(2 * time.Second)
		if n := count(); n > 1 {
			o.Errorf("%d more let in two seconds later", n)
		}
		elapse(2 * time.Minute)
		if n := count(); n != 10 {
			o.Errorf("%d let in after a rest", n)
		}
	})
}

// However many addresses come, what is remembered is bounded, and a newcomer is
// let in.
func TestManyAddresses(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.limited(1)
		r := request(http.MethodGet, "/nothing")
		for i := range 140_000 {
			r.RemoteAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1).String()
			o.unrecorded(r)
		}
		if n := o.api.Remembered(); n > 2<<16 {
			o.Errorf("%d addresses are remembered", n)
		}
		if w := o.from("198.51.100.1:1"); w.Code != http.StatusOK {
			o.Errorf("a newcomer: %d", w.Code)
		}
		elapse(2 * time.Minute)
		o.from("198.51.100.1:1")
		if n := o.api.Remembered(); n != 1 {
			o.Errorf("%d addresses are remembered after a rest", n)
		}
	})
}

// BenchmarkLimit compares a request with and without a limit.
func BenchmarkLimit(b *testing.B) {
	core := &fakeCore{}
	g := generation(time.Now())
	core.generation = func() *monitor.Generation { return g }
	for _, perMinute := range []int{0, 1 << 30} {
		b.Run(fmt.Sprintf("per_minute=%d", perMinute), func(b *testing.B) {
			a := api.New(api.Options{Core: core, History: &fakeHistory{}, Operator: &fakeOperator{}, Settings: api.Settings{
				PerMinute: perMinute, Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
			}})
			r := request(http.MethodGet, "/v1/live", "If-None-Match", "*")
			r.RemoteAddr = "198.51.100.1:1"
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				middleware.ClientIPFromRemoteAddr(a).ServeHTTP(w, r)
				if w.Code != http.StatusNotModified {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
