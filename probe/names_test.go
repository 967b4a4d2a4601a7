package probe_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// TestResolversAgree holds what three name servers come to that each say
// something else, in every combination: one that lies proves nothing. Silence,
// which takes its time, is tried in a few of them.
func TestResolversAgree(t *testing.T) {
	t.Parallel()
	closed := relaytest.ClosedPort(t)
	kinds := []struct {
		letter string
		name   relaytest.Name
	}{
		{"g", relaytest.Name{Addrs: []netip.Addr{closed.Addr()}}},           // good
		{"n", relaytest.Name{Code: dnsmessage.RCodeNameError}},              // no such name
		{"e", relaytest.Name{}},                                             // empty
		{"p", relaytest.Name{Addrs: []netip.Addr{netip.IPv4Unspecified()}}}, // private, as filters say it
		{"f", relaytest.Name{Code: dnsmessage.RCodeServerFailure}},          // failure
		{"s", relaytest.Name{Silent: true}},                                 // silence
	}
	var tables [3]map[string]relaytest.Name
	want := map[string]string{}
	for i := range tables {
		tables[i] = map[string]relaytest.Name{}
	}
	for _, a := range kinds {
		for _, b := range kinds {
			for _, c := range kinds {
				said := a.letter + b.letter + c.letter
				if strings.Contains(said, "s") && !slices.Contains([]string{"sng", "nsg", "ssg", "sns", "snf", "ess", "sne"}, said) {
					continue
				}
				name := said + ".example"
				tables[0][name], tables[1][name], tables[2][name] = a.name, b.name, c.name
				want[name] = agreed(said)
			}
		}
	}
	var cfg probe.Config
	for _, table := range tables {
		cfg.Resolvers = append(cfg.Resolvers, relaytest.StartDNS(t, table).Addr().String())
	}
	c := newChecker(t, cfg)
	var wg sync.WaitGroup
	few := make(chan struct{}, 8)
	for name, want := range want {
		wg.Go(func() {
			few <- struct{}{}
			defer func() { <-few }()
			var o monitor.Observation
			for range 3 { // a busy machine may be silent where it should not be
				o = c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("ws://%s:%d/", name, closed.Port()))})
				if class(o) == want {
					return
				}
			}
			t.Errorf("%s: got %s, want %s (%s)", name, class(o), want, o.Evidence)
		})
	}
	wg.Wait()
}

// agreed is what servers come to that are asked in turn: the first address
// counts, and what two of them agree on.
func agreed(letters string) string {
	none, empty, private := 0, 0, 0
	for _, l := range letters {
		switch l {
		case 'g':
			return "failed/tcp/refused"
		case 'n':
			none++
		case 'e':
			empty++
		case 'p':
			private++
		}
		switch {
		case none == 2:
			return "failed/dns/nxdomain"
		case none+empty == 2:
			return "failed/dns/no_address"
		case private == 2:
			return "failed/tcp/blocked_address"
		}
	}
	return "unclear/dns/resolver"
}

// TestManyResolvers holds that the last server is asked within the limit, though
// the others are silent.
func TestManyResolvers(t *testing.T) {
	t.Parallel()
	here := netip.MustParseAddr("127.0.0.1")
	silent := relaytest.StartDNS(t, map[string]relaytest.Name{"relay.example": {Silent: true}})
	good := relaytest.StartDNS(t, map[string]relaytest.Name{"relay.example": {Addrs: []netip.Addr{here}}})
	cfg := probe.Config{Timeouts: short}
	cfg.Timeouts.DNS = 3 * time.Second
	for range 5 {
		cfg.Resolvers = append(cfg.Resolvers, silent.Addr().String())
	}
	cfg.Resolvers = append(cfg.Resolvers, good.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeouts.DNS)
	defer cancel()
	if got, err := newChecker(t, cfg).Resolve(ctx, "relay.example"); err != nil || len(got) != 1 || got[0] != here {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestHalfDenial holds that NXDOMAIN said of AAAA alone is no proof: there are
// servers that say it of every name without IPv6.
func TestHalfDenial(t *testing.T) {
	t.Parallel()
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"no-a.example":    {Code: dnsmessage.RCodeNameError, Unanswered: dnsmessage.TypeA},
		"no-aaaa.example": {Code: dnsmessage.RCodeNameError, Unanswered: dnsmessage.TypeAAAA},
	})
	limits := short
	limits.DNS = 1500 * time.Millisecond
	c := newChecker(t, probe.Config{Resolvers: []string{names.Addr().String()}, Timeouts: limits})
	for name, want := range map[string]string{"no-a.example": "unclear/dns/resolver", "no-aaaa.example": "failed/dns/nxdomain"} {
		if o := c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL("ws://" + name + "/")}); class(o) != want {
			t.Errorf("%s: got %s, want %s (%s)", name, class(o), want, o.Evidence)
		}
	}
}

// victim listens at 127.0.0.1 on the port of r, which is elsewhere.
func victim(t *testing.T, options relaytest.Options) (r, v *relaytest.Relay) {
	t.Helper()
	for range 50 { // the port may be taken at the other address
		r = relaytest.Start(t, options)
		var err error
		if v, err = relaytest.New(relaytest.Options{Addr: fmt.Sprintf("127.0.0.1:%d", r.Addr().Port())}); err == nil {
			t.Cleanup(v.Stop)
			return r, v
		}
	}
	t.Fatal("no port is free at both addresses")
	return nil, nil
}

// TestRebinding holds that a name which leads to a public address at the first
// look and to a private one at the second never gets a packet to the private
// one: not of the WebSocket, nor of NIP-11, nor of its redirect, nor of others
// that dial with the checker.
func TestRebinding(t *testing.T) {
	t.Parallel()
	for _, private := range []string{"127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"} {
		names := relaytest.StartDNS(t, map[string]relaytest.Name{})
		public := func() {
			names.Set("rebind.example", relaytest.Name{Addrs: []netip.Addr{netip.MustParseAddr("127.1.0.1")}})
		}
		rebind := func() {
			names.Set("rebind.example", relaytest.Name{Addrs: []netip.Addr{netip.MustParseAddr(private)}})
		}
		opt := relaytest.Options{Addr: "127.1.0.1:0", Behaviour: relaytest.InfoMoved}
		relay, v := victim(t, opt)
		relay.Stop()
		opt.Addr = relay.Addr().String()
		opt.RedirectTo = fmt.Sprintf("http://rebind.example:%d/there", relay.Addr().Port())
		relay = relaytest.Start(t, opt)
		c := newChecker(t, probe.Config{
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")}, Resolvers: []string{names.Addr().String()},
		})
		u := monitor.RelayURL(fmt.Sprintf("ws://rebind.example:%d/", relay.Addr().Port()))
		for _, last := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeOK} {
			public()
			o := c.Check(t.Context(), probe.Request{Relay: u, Info: true, Facts: true, LastOutcome: last, Admit: func(context.Context, netip.Addr) (func(), bool) {
				rebind() // it was looked up, and not yet dialled
				return nil, true
			}})
			if class(o) != "ok/read/-" || o.Address != relay.Addr() || o.Info == nil || o.Info.Problem != "blocked_address" {
				t.Errorf("%s after %q: got %s at %s, info %+v (%s)", private, last, class(o), o.Address, o.Info, o.Evidence)
			}
		}
		o := c.Check(t.Context(), probe.Request{Relay: u, Info: true, Facts: true})
		if class(o) != "failed/tcp/blocked_address" {
			t.Errorf("%s at first: got %s (%s)", private, class(o), o.Evidence)
		}
		public()
		client := c.HTTPClient()
		if err := get(t, client, fmt.Sprintf("http://rebind.example:%d/", relay.Addr().Port())); err != nil {
			t.Errorf("while it is public: %v", err)
		}
		rebind()
		if err := get(t, client, fmt.Sprintf("http://rebind.example:%d/", relay.Addr().Port())); err == nil {
			t.Errorf("%s: the client reached it", private)
		}
		if conn, err := c.DialContext(t.Context(), "tcp", net.JoinHostPort(private, fmt.Sprint(relay.Addr().Port()))); err == nil {
			conn.Close()
			t.Errorf("%s: dialled", private)
		}
		if n := v.Counters().Connections; n != 0 {
			t.Errorf("%s: the private address saw %d connections", private, n)
		}
	}
}
