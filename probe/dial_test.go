package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

var documentation = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}

// TestHappyEyeballs holds which address is tried when, and which failure is
// told when all fail.
func TestHappyEyeballs(t *testing.T) {
	t.Parallel()
	const six, four, four2 = "[2001:db8::1]:443", "192.0.2.1:443", "192.0.2.2:443"
	type answer struct {
		after time.Duration // -1 = never
		err   error
	}
	for _, tt := range []struct {
		name    string
		answers map[string]answer
		want    string // the address that won, or was blamed
		class   string // where none won
		took    time.Duration
		dialled int
	}{
		{"the first at once", map[string]answer{six: {0, nil}, four: {0, nil}}, six, "", 0, 1},
		{"the first in good time", map[string]answer{six: {200 * time.Millisecond, nil}, four: {0, nil}}, six, "", 200 * time.Millisecond, 1},
		{"the first hangs", map[string]answer{six: {-1, nil}, four: {50 * time.Millisecond, nil}}, four, "", 300 * time.Millisecond, 2},
		{"the first fails at once", map[string]answer{six: {0, syscall.ENETUNREACH}, four: {0, nil}}, four, "", 0, 2},
		{"the first wins late", map[string]answer{six: {400 * time.Millisecond, nil}, four: {-1, nil}}, six, "", 400 * time.Millisecond, 2},
		{"two hang", map[string]answer{six: {-1, nil}, four: {-1, nil}, four2: {0, nil}}, four2, "", 500 * time.Millisecond, 3},
		{"no route, refused", map[string]answer{six: {0, syscall.ENETUNREACH}, four: {0, syscall.ECONNREFUSED}}, four, "failed/tcp/refused", 0, 2},
		{"refused, no route", map[string]answer{six: {0, syscall.ECONNREFUSED}, four: {0, syscall.ENETUNREACH}}, six, "failed/tcp/refused", 0, 2},
		{"hangs, no route", map[string]answer{six: {-1, nil}, four: {0, syscall.ENETUNREACH}}, six, "failed/tcp/timeout", 4 * time.Second, 2},
		{"no route at all", map[string]answer{six: {0, syscall.ENETUNREACH}, four: {0, syscall.EADDRNOTAVAIL}}, six, "unclear/tcp/local_network", 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialled := make(chan string, 10)
				c, err := New(Config{AllowNetworks: documentation, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
					dialled <- address
					a := tt.answers[address]
					wait := time.After(a.after)
					if a.after < 0 {
						wait = nil
					}
					select {
					case <-wait:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if a.err != nil {
						return nil, a.err
					}
					client, server := net.Pipe()
					server.Close()
					return client, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				a := &attempt{c: c, req: Request{Relay: "wss://relay.example/"}}
				a.begin(time.Now())
				defer a.close()
				a.to = endpointOf(a.req.Relay)
				for _, s := range []string{six, four, four2} {
					if _, ok := tt.answers[s]; ok {
						a.to.addrs = append(a.to.addrs, netip.MustParseAddrPort(s).Addr())
					}
				}
				start := time.Now()
				ok := a.tcp(t.Context())
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				if got := a.obs.Address.String(); got != tt.want || ok != (tt.class == "") {
					t.Errorf("connected %t, address %s, want %s (%s)", ok, got, tt.want, a.obs.Evidence)
				}
				if len(dialled) != tt.dialled {
					t.Errorf("%d addresses were dialled, want %d", len(dialled), tt.dialled)
				}
				if got := fmt.Sprintf("%s/%s/%s", a.obs.Outcome, a.obs.Stage, a.obs.Cause); !ok && got != tt.class {
					t.Errorf("got %s, want %s (%s)", got, tt.class, a.obs.Evidence)
				}
			})
		})
	}
}

// TestUsable holds which addresses are tried, in which order.
func TestUsable(t *testing.T) {
	t.Parallel()
	addrs := func(ss ...string) (out []netip.Addr) {
		for _, s := range ss {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		source string
		in     []netip.Addr
		want   []netip.Addr
		why    error
	}{
		{"families in turn", "", addrs("1.1.1.1", "1.0.0.1", "8.8.8.8", "2606:4700::1", "2606:4700::2", "9.9.9.9"), addrs("2606:4700::1", "1.1.1.1", "2606:4700::2", "1.0.0.1"), errBlocked},
		{"one family", "", addrs("1.1.1.1", "1.0.0.1"), addrs("1.1.1.1", "1.0.0.1"), errBlocked},
		{"private ones left out", "", addrs("10.0.0.1", "::1", "1.1.1.1", "fd00::1", "169.254.169.254"), addrs("1.1.1.1"), errBlocked},
		{"mapped", "", addrs("::ffff:1.1.1.1", "::ffff:10.0.0.1"), addrs("1.1.1.1"), errBlocked},
		{"all private", "", addrs("10.0.0.1", "::1"), nil, errBlocked},
		{"source of the other family", "192.0.2.9", addrs("2606:4700::1"), nil, errFamily},
		{"source of one family", "192.0.2.9", addrs("2606:4700::1", "1.1.1.1"), addrs("1.1.1.1"), errFamily},
	} {
		cfg := Config{}
		if tt.source != "" {
			cfg.SourceAddress = netip.MustParseAddr(tt.source)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, why := c.usable(tt.in)
		if diff := cmp.Diff(fmt.Sprint(tt.want), fmt.Sprint(got)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if len(got) == 0 && why != tt.why {
			t.Errorf("%s: why is %v, want %v", tt.name, why, tt.why)
		}
	}
}

// TestControl holds that the dialer itself refuses, whatever was checked
// before.
func TestControl(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{})
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.dialer.DialContext(t.Context(), "tcp", r.Addr().String()); !errors.Is(err, errBlocked) {
		t.Errorf("got %v", err)
	}
	if n := r.Counters().Connections; n != 0 {
		t.Errorf("the relay saw %d connections", n)
	}
}

// TestFailuresBound holds that what is remembered stays small, the newest kept.
func TestFailuresBound(t *testing.T) {
	t.Parallel()
	var f failures
	now := time.Now()
	addr := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}), 443)
	}
	for i := range 5 * maxFailures {
		now = now.Add(time.Microsecond)
		f.put(addr(i), failure{monitor.CauseTimeout, now, "wss://a/"})
		if len(f.m) > maxFailures {
			t.Fatalf("%d are remembered", len(f.m))
		}
		if _, ok := f.get(addr(i), "wss://b/", now); !ok {
			t.Fatal("the newest was forgotten")
		}
	}
	for i := range 2 * maxFailures { // all at the same instant
		f.put(addr(i), failure{monitor.CauseTimeout, now, "wss://a/"})
	}
	if len(f.m) > maxFailures {
		t.Errorf("%d are remembered", len(f.m))
	}
}
