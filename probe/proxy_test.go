package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

const onionHost = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion"

// TestParseProxy holds how a proxy is written, and that an error repeats no
// secret.
func TestParseProxy(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]probe.Proxy{
		"socks5h://127.0.0.1:9050":           {Address: "127.0.0.1:9050", RemoteDNS: true},
		"socks5://127.0.0.1:9050/":           {Address: "127.0.0.1:9050"},
		"SOCKS5H://tor":                      {Address: "tor:1080", RemoteDNS: true},
		"socks5://[::1]":                     {Address: "[::1]:1080"},
		"socks5://[2001:db8::1]:9050":        {Address: "[2001:db8::1]:9050"},
		"socks5h://user:p%40ss@proxy:1":      {Address: "proxy:1", User: "user", Password: "p@ss", RemoteDNS: true},
		"socks5h://user@proxy.example:65535": {Address: "proxy.example:65535", User: "user", RemoteDNS: true},
	} {
		got, err := probe.ParseProxy(in)
		if err != nil || got != want {
			t.Errorf("%s: got %#v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "127.0.0.1:9050", "hunter2", "user:hunter2@127.0.0.1:9050", "http://user:hunter2@proxy:1080", "socks4://user:hunter2@proxy:1080",
		"hunter2://user:hunter2@proxy", "socks5://", "socks5://user:hunter2@", "socks5://user:hunter2@:1080", "socks5://user:hunter2@proxy:0",
		"socks5://user:hunter2@proxy:65536", "socks5://user:hunter2@proxy:port", "socks5://user:hunter2@proxy/path", "socks5://user:hunter2@proxy?x=hunter2",
		"socks5://user:hunter2@proxy#hunter2", "socks5://:hunter2@proxy", "socks5://user:hunter2%zz@proxy", "socks5://user:hunter2/@proxy:1",
		"socks5://user:hunter2@pro xy:1", "socks5://user:" + strings.Repeat("hunter2", 40) + "@proxy", "socks5://user:hunter2\n@proxy",
	} {
		p, err := probe.ParseProxy(in)
		switch {
		case !errors.Is(err, monitor.ErrInvalid):
			t.Errorf("%q: got %s, %v", in, p, err)
		case strings.Contains(err.Error(), "hunter2"), strings.Contains(err.Error(), "user:"):
			t.Errorf("%q: the error repeats a secret: %v", in, err)
		case !strings.Contains(err.Error(), "socks5h://HOST:PORT"):
			t.Errorf("%q: the error does not say how to write it: %v", in, err)
		}
	}
	p, err := probe.ParseProxy("socks5h://someone:hunter2@proxy:1080")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, what := range []any{p, &p, []probe.Proxy{p}} {
			if got := fmt.Sprintf(format, what); strings.Contains(got, "hunter2") || strings.Contains(got, "someone") {
				t.Errorf("%s of %T prints %s", format, what, got)
			}
		}
	}
}

// TestNewProxy holds which proxies and limits are refused.
func TestNewProxy(t *testing.T) {
	t.Parallel()
	good := probe.Proxy{Address: "127.0.0.1:9050"}
	for name, cfg := range map[string]probe.Config{
		"proxy without port":    {Proxy: &probe.Proxy{Address: "127.0.0.1"}},
		"password without user": {Proxies: map[monitor.Network]probe.Proxy{monitor.Tor: {Address: "127.0.0.1:1", Password: "hunter2"}}},
		"long user":             {Proxies: map[monitor.Network]probe.Proxy{monitor.I2P: {Address: "127.0.0.1:1", User: strings.Repeat("u", 256)}}},
		"of clearnet":           {Proxies: map[monitor.Network]probe.Proxy{monitor.Clearnet: good}},
		"of an unknown network": {Proxies: map[monitor.Network]probe.Proxy{"freenet": good}},
		"negative limit":        {Overall: map[monitor.Network]time.Duration{monitor.Tor: -1}},
		"limit of clearnet":     {Overall: map[monitor.Network]time.Duration{monitor.Clearnet: time.Second}},
	} {
		if _, err := probe.New(cfg); !errors.Is(err, monitor.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	c, err := probe.New(probe.Config{Proxies: map[monitor.Network]probe.Proxy{monitor.Loki: good, monitor.Tor: good}})
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Check(t.Context(), probe.Request{Relay: "ws://relay.i2p/"}); class(o) != "skipped//no_proxy" {
		t.Errorf("the network without a proxy: got %s", class(o))
	}
}

// proxied returns a config in which all three networks go through s.
func proxied(s *relaytest.SOCKS) probe.Config {
	p := probe.Proxy{Address: s.Addr().String()}
	return probe.Config{
		Proxies: map[monitor.Network]probe.Proxy{monitor.Tor: p, monitor.I2P: p, monitor.Loki: p},
		Overall: map[monitor.Network]time.Duration{monitor.Tor: short.Overall, monitor.I2P: short.Overall, monitor.Loki: short.Overall},
	}
}

// TestProxied holds that relays of the three networks are probed through their
// proxies, by name, and that nobody else hears the name.
func TestProxied(t *testing.T) {
	t.Parallel()
	plain := relaytest.Start(t, relaytest.Options{})
	secure := relaytest.Start(t, relaytest.Options{TLS: true})
	wrong := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSWrongName})
	mute := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.Mute})
	resolver := relaytest.StartDNS(t, nil)
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{
		User: "someone", Password: "hunter2",
		Names: map[string]netip.AddrPort{
			onionHost: plain.Addr(), "secure.i2p": secure.Addr(), "relay.loki": plain.Addr(), "wrong.i2p": wrong.Addr(), "mute.loki": mute.Addr(),
			"closed.loki": relaytest.ClosedPort(t),
		},
	})
	cfg := proxied(s)
	for n, p := range cfg.Proxies {
		p.User, p.Password = "someone", "hunter2"
		cfg.Proxies[n] = p
	}
	cfg.Resolvers = []string{resolver.Addr().String()}
	cfg.AllowNetworks = []netip.Prefix{} // the guard has no say in what a proxy reaches
	c := newChecker(t, cfg)
	for relay, want := range map[monitor.RelayURL]string{
		"ws://" + onionHost + "/": "ok/read/-",
		"wss://secure.i2p/":       "ok/read/-",
		"ws://relay.loki:4869/x":  "ok/read/-",
		"wss://wrong.i2p/":        "failed/tls/tls_name",
		"ws://mute.loki/":         "failed/read/silent",
		"ws://closed.loki/":       "failed/tcp/refused",
		"ws://missing.loki/":      "failed/tcp/unreachable",
	} {
		t.Run(string(relay), func(t *testing.T) {
			t.Parallel()
			l := &transcript{t: t}
			admitted := 0
			o := c.Check(t.Context(), probe.Request{
				Relay: relay, Info: true, LastOutcome: monitor.OutcomeOK, Facts: true, Trace: l.trace,
				Admit: func(_ context.Context, a netip.Addr) (func(), bool) {
					if admitted++; a.IsValid() {
						t.Errorf("asked for a permit for %s", a)
					}
					return nil, true
				},
			})
			if got := class(o); got != want {
				t.Errorf("got %s, want %s (%s)", got, want, o.Evidence)
			}
			if o.Address.IsValid() || o.DNS != nil || o.Times[monitor.StageDNS] != 0 {
				t.Errorf("address %s, DNS %+v, dns took %s", o.Address, o.DNS, o.Times[monitor.StageDNS])
			}
			if admitted != 1 || o.Times[monitor.StageTCP] == 0 || !strings.Contains(o.Evidence, relay.Host()) {
				t.Errorf("%d permits, tcp took %s: %s", admitted, o.Times[monitor.StageTCP], o.Evidence)
			}
			if o.Outcome == monitor.OutcomeOK && (o.Info == nil || o.Info.Name != "test relay") {
				t.Errorf("info is %+v", o.Info)
			}
			port := relay.Port()
			if !l.has(`^tcp - ask the proxy ` + s.Addr().String() + ` for ` + relay.Host() + `, port ` + port + `$`) {
				t.Errorf("the proxy is not in the transcript:\n%s", strings.Join(l.lines, "\n"))
			}
			if text := strings.Join(l.lines, "\n") + o.Evidence; strings.Contains(text, "hunter2") || strings.Contains(text, "someone") {
				t.Errorf("credentials are told:\n%s", text)
			}
			if strings.Contains(o.Evidence, s.Addr().String()) {
				t.Errorf("the evidence tells the proxy's address: %s", o.Evidence)
			}
		})
	}
	t.Cleanup(func() {
		if n := resolver.Queries(); n != 0 {
			t.Errorf("a resolver was asked %d times", n)
		}
		for _, a := range s.Asked() {
			if !strings.HasPrefix(a, "name ") {
				t.Errorf("the proxy was asked for %s", a)
			}
		}
	})
}

// TestSOCKSReplies holds what a proxy's refusals mean.
func TestSOCKSReplies(t *testing.T) {
	t.Parallel()
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{})
	c := newChecker(t, proxied(s))
	for _, tt := range []struct {
		code     byte
		want     string
		evidence string
	}{
		{1, "unclear/tcp/local_network", "general failure"},
		{2, "unclear/tcp/local_network", "does not allow"},
		{3, "unclear/tcp/local_network", "has no network"},
		{4, "failed/tcp/unreachable", "host is unreachable"},
		{5, "failed/tcp/refused", "refused the connection"},
		{6, "failed/tcp/timeout", "TTL expired"},
		{7, "unclear/tcp/local_network", "CONNECT"},
		{8, "unclear/tcp/local_network", "kind of address"},
		{9, "unclear/tcp/local_network", "code 9"},
		{0xef, "unclear/tcp/local_network", "code 239"},
		{0xf0, "failed/tcp/unreachable", "did not find the onion service's descriptor"},
		{0xf1, "failed/tcp/unreachable", "invalid descriptor"},
		{0xf2, "failed/tcp/unreachable", "introduced"},
		{0xf3, "failed/tcp/unreachable", "meet"},
		{0xf4, "failed/tcp/refused", "wants a client authorization"},
		{0xf5, "failed/tcp/refused", "declined our client authorization"},
		{0xf6, "failed/tcp/unreachable", "address is invalid"},
		{0xf7, "failed/tcp/timeout", "waited in vain"},
		{0xff, "unclear/tcp/local_network", "code 255"},
	} {
		s.Answer(tt.code)
		o := c.Check(t.Context(), probe.Request{Relay: "ws://" + onionHost + "/"})
		if got := class(o); got != tt.want || !strings.Contains(o.Evidence, tt.evidence) {
			t.Errorf("%#x: got %s (%s), want %s with %q", tt.code, got, o.Evidence, tt.want, tt.evidence)
		}
		if !strings.Contains(o.Evidence, onionHost) {
			t.Errorf("%#x: whose fault is it: %s", tt.code, o.Evidence)
		}
	}
}

// TestSOCKSFaults holds that a proxy which misbehaves is never held against a
// relay, and that one which is at work is.
func TestSOCKSFaults(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{})
	limits := short
	limits.TCP = time.Second // 2 s for the proxy, 1 s of them for its greeting
	for name, tt := range map[string]struct {
		b    relaytest.SOCKSBehaviour
		user string
		want string
	}{
		"closes":               {relaytest.SOCKSCloses, "", "unclear/tcp/local_network"},
		"resets":               {relaytest.SOCKSResets, "", "unclear/tcp/local_network"},
		"stalls":               {relaytest.SOCKSStalls, "", "unclear/tcp/local_network"},
		"speaks HTTP":          {relaytest.SOCKSGarbage, "", "unclear/tcp/local_network"},
		"half a greeting":      {relaytest.SOCKSHalfGreeting, "", "unclear/tcp/local_network"},
		"no method":            {relaytest.SOCKSNoMethod, "", "unclear/tcp/local_network"},
		"no method, user":      {relaytest.SOCKSNoMethod, "u", "unclear/tcp/local_network"},
		"method not offered":   {relaytest.SOCKSOddMethod, "", "unclear/tcp/local_network"},
		"stalls at the login":  {relaytest.SOCKSStallsAuth, "u", "unclear/tcp/local_network"},
		"closes at the login":  {relaytest.SOCKSClosesAuth, "u", "unclear/tcp/local_network"},
		"rejects the user":     {relaytest.SOCKSRejects, "u", "unclear/tcp/local_network"},
		"stalls at the reply":  {relaytest.SOCKSStallsReply, "", "failed/tcp/timeout"},
		"closes at the reply":  {relaytest.SOCKSClosesReply, "", "unclear/tcp/local_network"},
		"resets at the reply":  {relaytest.SOCKSResetsReply, "", "unclear/tcp/local_network"},
		"HTTP as the reply":    {relaytest.SOCKSGarbageReply, "", "unclear/tcp/local_network"},
		"half a reply":         {relaytest.SOCKSHalfReply, "", "unclear/tcp/local_network"},
		"half a reply, closes": {relaytest.SOCKSHalfReplyCloses, "", "unclear/tcp/local_network"},
		"odd bound address":    {relaytest.SOCKSOddReply, "", "unclear/tcp/local_network"},
		"bound name":           {relaytest.SOCKSBoundName, "", "ok/read/-"},
		"bound IPv6":           {relaytest.SOCKSBoundIPv6, "u", "ok/read/-"},
		"byte by byte":         {relaytest.SOCKSDrips, "u", "ok/read/-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, own := range []bool{false, true} { // the vantage's own proxy, too
				s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{
					Behaviour: tt.b, User: tt.user, Password: tt.user, Names: map[string]netip.AddrPort{onionHost: relay.Addr()},
				})
				cfg := proxied(s)
				p := probe.Proxy{Address: s.Addr().String(), User: tt.user, Password: tt.user}
				cfg.Proxies[monitor.Tor] = p
				cfg.Timeouts = limits
				u := monitor.RelayURL("ws://" + onionHost + "/")
				if own {
					cfg.Proxy, u = &p, relay.URL()
				}
				o := newChecker(t, cfg).Check(t.Context(), probe.Request{Relay: u})
				if got := class(o); got != tt.want {
					t.Errorf("own %t: got %s, want %s (%s)", own, got, tt.want, o.Evidence)
				}
				if !o.Outcome.Success() && (!strings.Contains(o.Evidence, "our proxy") || strings.Contains(o.Evidence, s.Addr().String())) {
					t.Errorf("own %t: the evidence is %q", own, o.Evidence)
				}
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		for _, addr := range []netip.AddrPort{relaytest.ClosedPort(t), relaytest.BlackHole(t)} {
			p := probe.Proxy{Address: addr.String()}
			c := newChecker(t, probe.Config{Proxies: map[monitor.Network]probe.Proxy{monitor.Tor: p}, Timeouts: limits, Overall: map[monitor.Network]time.Duration{monitor.Tor: limits.Overall}})
			if o := c.Check(t.Context(), probe.Request{Relay: "ws://" + onionHost + "/"}); class(o) != "unclear/tcp/local_network" || strings.Contains(o.Evidence, addr.String()) {
				t.Errorf("%s: got %s (%s)", addr, class(o), o.Evidence)
			}
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{User: "u", Password: "right"})
		for _, p := range []probe.Proxy{{User: "u", Password: "wrong"}, {User: "u"}, {}} {
			p.Address = s.Addr().String()
			c := newChecker(t, probe.Config{Proxies: map[monitor.Network]probe.Proxy{monitor.Tor: p}})
			if o := c.Check(t.Context(), probe.Request{Relay: "ws://" + onionHost + "/"}); class(o) != "unclear/tcp/local_network" {
				t.Errorf("got %s (%s)", class(o), o.Evidence)
			}
			if err := c.ReachProxy(t.Context(), monitor.Tor); err == nil {
				t.Error("the proxy is reached")
			}
		}
		if n := s.Counters(); n.Logins != 0 || n.Requests != 0 {
			t.Errorf("it counted %+v", n)
		}
	})
}

// TestProxyDiesMeanwhile holds that a proxy which ends in the middle of a probe
// takes no relay with it, while a relay that ends by itself has failed.
func TestProxyDiesMeanwhile(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		reached := make(chan struct{}, 2)
		relay := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			reached <- struct{}{}
			if dies {
				_, _ = io.Copy(io.Discard, c)
			}
		}})
		s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Names: map[string]netip.AddrPort{onionHost: relay.Addr()}})
		cfg := proxied(s)
		cfg.Proxy = &probe.Proxy{Address: s.Addr().String()}
		c := newChecker(t, cfg)
		for _, u := range []monitor.RelayURL{"ws://" + onionHost + "/", relay.URL()} {
			done := make(chan monitor.Observation, 1)
			go func() { done <- c.Check(t.Context(), probe.Request{Relay: u}) }()
			<-reached
			if dies {
				s.Stop()
			}
			o := <-done
			want := "failed"
			if dies {
				want = "unclear"
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			if o.Outcome.String() != want || o.Stage != monitor.StageUpgrade {
				t.Errorf("the proxy dies %t, %s: got %s (%s)", dies, u, class(o), o.Evidence)
			}
		}
	}
}

// TestOwnProxy holds that clearnet goes through the vantage's own proxy, to
// addresses that were resolved here and passed the guard.
func TestOwnProxy(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{TLS: true})
	other := relaytest.Start(t, relaytest.Options{Addr: "127.2.0.1:0"})
	closed := relaytest.ClosedPort(t)
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"good.example":   {Addrs: []netip.Addr{relay.Addr().Addr()}},
		"inside.example": {Addrs: []netip.Addr{other.Addr().Addr()}},
	})
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{})
	tor := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Names: map[string]netip.AddrPort{onionHost: relay.Addr()}})
	cfg := proxied(tor)
	cfg.Proxy = &probe.Proxy{Address: s.Addr().String(), RemoteDNS: true}
	cfg.Resolvers = []string{names.Addr().String()}
	cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	// Of the other family, but nothing binds to it.
	cfg.SourceAddress = netip.IPv6Loopback()
	c := newChecker(t, cfg)
	port := relay.Addr().Port()
	for relay, want := range map[monitor.RelayURL]string{
		monitor.RelayURL(fmt.Sprintf("wss://good.example:%d/", port)):                 "ok/read/-",
		monitor.RelayURL("ws://" + closed.String() + "/"):                             "failed/tcp/refused",
		monitor.RelayURL(fmt.Sprintf("ws://inside.example:%d/", other.Addr().Port())): "failed/tcp/blocked_address",
		monitor.RelayURL("ws://" + other.Addr().String() + "/"):                       "failed/tcp/blocked_address",
		monitor.RelayURL("ws://nowhere.example/"):                                     "failed/dns/nxdomain",
		monitor.RelayURL("wss://" + onionHost + "/"):                                  "ok/read/-",
	} {
		l := &transcript{t: t}
		o := c.Check(t.Context(), probe.Request{Relay: relay, Info: true, Trace: l.trace})
		if got := class(o); got != want {
			t.Errorf("%s: got %s, want %s (%s)", relay, got, want, o.Evidence)
		}
		if o.Stage > monitor.StageDNS && relay.Network() == monitor.Clearnet {
			checkObservation(t, o)
		}
		if want == "failed/tcp/refused" && !l.has(`^tcp - dial `+closed.String()+` through the proxy `+s.Addr().String()+`$`) {
			t.Errorf("the proxy is not in the transcript:\n%s", strings.Join(l.lines, "\n"))
		}
	}
	for _, a := range s.Asked() {
		if a != "ip "+relay.Addr().String() && a != "ip "+closed.String() {
			t.Errorf("the proxy was asked for %s", a)
		}
	}
	if n := other.Counters().Connections; n != 0 {
		t.Errorf("the forbidden address saw %d connections", n)
	}
	if asked := tor.Asked(); len(asked) == 0 || !strings.HasPrefix(asked[0], "name "+onionHost) {
		t.Errorf("the proxy into Tor was asked for %v", asked)
	}
}

// TestOwnProxyFails holds that an outage of the vantage's own proxy is kept from
// relays, and from what is remembered of their addresses.
func TestOwnProxyFails(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{})
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{})
	c := newChecker(t, probe.Config{Proxy: &probe.Proxy{Address: s.Addr().String()}})
	for _, code := range []byte{1, 3} {
		s.Answer(code)
		if o := c.Check(t.Context(), probe.Request{Relay: relay.URL() + "a"}); class(o) != "unclear/tcp/local_network" {
			t.Errorf("code %d: got %s (%s)", code, class(o), o.Evidence)
		}
	}
	s.Answer(0)
	s.Stop()
	if o := c.Check(t.Context(), probe.Request{Relay: relay.URL() + "a"}); class(o) != "unclear/tcp/local_network" {
		t.Errorf("stopped: got %s (%s)", class(o), o.Evidence)
	}
	if err := c.ReachProxy(t.Context(), monitor.Clearnet); err == nil {
		t.Error("a stopped proxy is reached")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if o := c.Check(t.Context(), probe.Request{Relay: relay.URL() + "b"}); class(o) != "ok/read/-" {
		t.Errorf("back: got %s (%s)", class(o), o.Evidence)
	}
	s.Answer(5)
	for _, path := range []monitor.RelayURL{"a", "b", "b2"} { // measured once, known to the others
		if o := c.Check(t.Context(), probe.Request{Relay: relay.URL() + path}); class(o) != "failed/tcp/refused" {
			t.Errorf("%s: got %s (%s)", path, class(o), o.Evidence)
		}
	}
	if n := s.Counters().Requests; n != 2+1+1 {
		t.Errorf("the proxy got %d requests", n)
	}
}

// TestFrozenProxy holds that a relay which seems dead because the proxy froze is
// not blamed, nor remembered as dead for others; and that a relay is, where the
// proxy is well.
func TestFrozenProxy(t *testing.T) {
	t.Parallel()
	for _, frozen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := pipedConfig(nil)
			dials := 0
			cfg.Proxy = &probe.Proxy{Address: "192.0.2.9:1080"}
			cfg.Dial = pipedConfig(func(p *peer) {
				if dials++; dials == 2 && frozen {
					p.wait()
					return
				}
				head := make([]byte, 3)
				_, _ = io.ReadFull(p.br, head)
				p.send("\x05\x00")
				p.wait() // nothing comes of what is asked for
			}).Dial
			c := newChecker(t, cfg)
			want, shared := "failed/tcp/timeout", "another relay"
			if frozen {
				want, shared = "unclear/tcp/local_network", "our proxy did not get through"
			}
			if o := c.Check(t.Context(), probe.Request{Relay: piped + "a"}); class(o) != want {
				t.Errorf("frozen %t: got %s (%s)", frozen, class(o), o.Evidence)
			}
			if o := c.Check(t.Context(), probe.Request{Relay: piped + "b"}); class(o) != "failed/tcp/timeout" || !strings.Contains(o.Evidence, shared) {
				t.Errorf("frozen %t, the next: got %s (%s)", frozen, class(o), o.Evidence)
			}
			elapse(time.Minute)
		})
	}
}

// TestProxiedRedirect holds that NIP-11 is followed within the relay's own
// network alone.
func TestProxiedRedirect(t *testing.T) {
	t.Parallel()
	there := relaytest.Start(t, relaytest.Options{Info: `{"name":"there"}`})
	for _, tt := range []struct{ from, to, name, problem string }{
		{onionHost, "http://there.onion/", "there", ""},
		{onionHost, "http://missing.onion/", "", "unreachable"},
		{onionHost, "http://" + there.Addr().String() + "/", "", "http_other"},
		{onionHost, "http://relay.i2p/", "", "http_other"},
		{"127.0.0.1", "http://there.onion/", "", "http_other"},
	} {
		if strings.Contains(tt.to, "there.onion") { // a real one is needed: the URL is parsed
			tt.to = "http://sub." + onionHost + "/"
		}
		if strings.Contains(tt.to, "missing.onion") {
			tt.to = "http://missing." + onionHost + "/"
		}
		relay := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.InfoMoved, RedirectTo: tt.to})
		s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Names: map[string]netip.AddrPort{onionHost: relay.Addr(), "sub." + onionHost: there.Addr()}})
		u := monitor.RelayURL("ws://" + tt.from + "/")
		if tt.from == "127.0.0.1" {
			u = relay.URL()
		}
		before := there.Counters().Connections
		o := newChecker(t, proxied(s)).Check(t.Context(), probe.Request{Relay: u, Info: true, LastOutcome: monitor.OutcomeOK})
		if class(o) != "ok/read/-" || o.Info == nil || o.Info.Name != tt.name || o.Info.Problem != tt.problem {
			t.Errorf("%s to %s: got %s, info %+v", tt.from, tt.to, class(o), o.Info)
		}
		if n := there.Counters().Connections - before; (n > 0) != (tt.name != "") {
			t.Errorf("%s to %s: %d connections went there", tt.from, tt.to, n)
		}
	}
}

// TestProxiedNoSharedFailure holds that relays behind one proxy share no
// failure: each is an address of its own.
func TestProxiedNoSharedFailure(t *testing.T) {
	t.Parallel()
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Code: 5})
	c := newChecker(t, proxied(s))
	for i := range 5 {
		c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("ws://a.loki/%d", i))})
	}
	if n := s.Counters().Requests; n != 5 {
		t.Errorf("the proxy got %d requests, want 5", n)
	}
}

// TestReachProxy holds what counts as a proxy that works.
func TestReachProxy(t *testing.T) {
	t.Parallel()
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{})
	cfg := proxied(s)
	delete(cfg.Proxies, monitor.Loki)
	cfg.Timeouts = short
	cfg.Timeouts.TCP = 300 * time.Millisecond
	c := newChecker(t, cfg)
	for n, want := range map[monitor.Network]bool{monitor.Clearnet: true, monitor.Tor: true, monitor.I2P: true, monitor.Loki: false, "freenet": false} {
		if err := c.ReachProxy(t.Context(), n); (err == nil) != want {
			t.Errorf("%s: got %v", n, err)
		}
	}
	if n := s.Counters(); n.Greetings != 2 || n.Requests != 0 {
		t.Errorf("it counted %+v", n)
	}
	for _, b := range []relaytest.SOCKSBehaviour{relaytest.SOCKSCloses, relaytest.SOCKSStalls, relaytest.SOCKSGarbage, relaytest.SOCKSHalfGreeting, relaytest.SOCKSNoMethod} {
		s.Behave(b)
		if err := c.ReachProxy(t.Context(), monitor.Tor); err == nil || !strings.Contains(err.Error(), "reach tor through "+s.Addr().String()) {
			t.Errorf("behaviour %d: got %v", b, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Behave(relaytest.SOCKSHealthy)
	if err := c.ReachProxy(ctx, monitor.Tor); err == nil {
		t.Error("reached although cancelled")
	}
	s.Stop()
	if err := c.ReachProxy(t.Context(), monitor.Tor); err == nil {
		t.Error("a stopped proxy is reached")
	}
}

// socks takes a connection of a piped proxy up to its reply, which it sends
// after the delay; it reports whether a request came.
func socks(p *peer, delay time.Duration, reply string) bool {
	if _, err := io.ReadFull(p.br, make([]byte, 3)); err != nil {
		return false
	}
	p.send("\x05\x00")
	head := make([]byte, 5)
	if _, err := io.ReadFull(p.br, head); err != nil {
		return false
	}
	if _, err := io.ReadFull(p.br, make([]byte, int(head[4])+2)); err != nil {
		return false
	}
	elapse(delay)
	return p.send(reply)
}

const socksOK = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"

// TestProxiedLimits holds the wider limits of the other networks to the
// microsecond: time is the bubble's.
func TestProxiedLimits(t *testing.T) {
	t.Parallel()
	mute := func(p *peer) { p.wait() }
	for _, tt := range []struct {
		name    string
		relay   monitor.RelayURL
		overall time.Duration
		serve   func(*peer)
		want    string
		took    time.Duration
	}{
		{"mute at the greeting", "ws://a.loki/", 0, mute, "unclear/tcp/local_network", 15 * time.Second},
		{"mute at the reply", "ws://a.loki/", 0, func(p *peer) { socks(p, time.Hour, "") }, "failed/tcp/timeout", 30 * time.Second},
		{"half a reply", "ws://a.loki/", 0, func(p *peer) { socks(p, 0, "\x05\x00\x00"); p.wait() }, "unclear/tcp/local_network", 30 * time.Second},
		{"late reply", "ws://a.loki/", 0, func(p *peer) {
			if socks(p, 29*time.Second, socksOK) {
				p.send(text(`["EOSE","` + p.upgraded() + `"]`))
				p.message()
				p.message()
			}
		}, "ok/read/-", 29 * time.Second},
		{"mute at TLS", "wss://a.loki/", 0, func(p *peer) {
			if socks(p, 0, socksOK) {
				p.wait()
			}
		}, "failed/tls/timeout", 9500 * time.Millisecond},
		{"mute at the upgrade", "ws://a.loki/", 0, func(p *peer) {
			if socks(p, 0, socksOK) {
				p.wait()
			}
		}, "failed/upgrade/timeout", 9500 * time.Millisecond},
		{"mute at the read", "ws://a.loki/", 0, func(p *peer) {
			if socks(p, 0, socksOK) {
				p.upgraded()
				p.wait()
			}
		}, "failed/read/silent", 11875 * time.Millisecond},
		{"slow everywhere", "ws://a.loki/", 0, func(p *peer) {
			if socks(p, 28*time.Second, socksOK) {
				p.request()
				elapse(9 * time.Second)
				p.switching("")
				p.wait()
			}
		}, "failed/read/silent", 45 * time.Second},
		{"mute about NIP-11, first", "ws://info.loki/", 0, func(p *peer) {
			if !socks(p, 8*time.Second, socksOK) {
				return
			}
			if p.dial == 1 {
				p.wait()
				return
			}
			p.send(text(`["EOSE","` + p.upgraded() + `"]`))
			p.message()
			p.message()
			// What is spare beside a second way, the upgrade and the read:
			// 45 s - 2 × 8 s - 9.5 s - 11.875 s.
		}, "ok/read/-", 8*time.Second + 7625*time.Millisecond + 8*time.Second},
		{"a limit of one's own", "ws://a.loki/", 90 * time.Second, func(p *peer) { socks(p, time.Hour, "") }, "failed/tcp/timeout", 60 * time.Second},
		{"a shorter limit", "ws://a.loki/", 6 * time.Second, func(p *peer) { socks(p, time.Hour, "") }, "failed/tcp/timeout", 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := pipedConfig(tt.serve)
				cfg.Proxies = map[monitor.Network]probe.Proxy{monitor.Loki: {Address: "192.0.2.9:1080"}}
				cfg.Overall = map[monitor.Network]time.Duration{monitor.Loki: tt.overall}
				o, took := check(t, cfg, probe.Request{Relay: tt.relay, Info: strings.Contains(string(tt.relay), "info"), LastOutcome: monitor.OutcomeOK})
				if got := class(o); got != tt.want || took != tt.took {
					t.Errorf("got %s after %s, want %s after %s (%s)", got, took, tt.want, tt.took, o.Evidence)
				}
				if o.Times[monitor.StageTCP] == 0 {
					t.Error("tcp took no time")
				}
				elapse(2 * time.Hour)
			})
		})
	}
	// Cancelled while the proxy is at work; many times, because which of two
	// timers of one moment is the first is a matter of luck.
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			cfg := pipedConfig(func(p *peer) { socks(p, time.Hour, "") })
			cfg.Proxies = map[monitor.Network]probe.Proxy{monitor.Loki: {Address: "192.0.2.9:1080"}}
			c := newChecker(t, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			start := time.Now()
			o := c.Check(ctx, probe.Request{Relay: "ws://a.loki/"})
			if took := time.Since(start); class(o) != "unclear/tcp/local_network" || took != 3*time.Second {
				t.Errorf("cancelled: got %s after %s (%s)", class(o), took, o.Evidence)
			}
			elapse(2 * time.Hour)
		})
	}
}
