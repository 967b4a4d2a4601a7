package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// get asks for a URL and reads the answer.
func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return err
}

// TestHTTPClient holds what a client of the checker reaches, and what not.
func TestHTTPClient(t *testing.T) {
	t.Parallel()
	plain := relaytest.Start(t, relaytest.Options{})
	secure := relaytest.Start(t, relaytest.Options{TLS: true})
	expired := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSExpired})
	silent := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.Silent})
	stalls := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSStall})
	flood := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.HeadFlood})
	inside := relaytest.Start(t, relaytest.Options{Addr: "127.2.0.1:0"})
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"plain.example":  {Addrs: []netip.Addr{plain.Addr().Addr()}},
		"secure.example": {Addrs: []netip.Addr{secure.Addr().Addr()}},
		"inside.example": {Addrs: []netip.Addr{inside.Addr().Addr()}},
		"empty.example":  {},
		"broken.example": {Code: 2},
	})
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Names: map[string]netip.AddrPort{onionHost: plain.Addr(), "secure.i2p": secure.Addr()}})
	cfg := proxied(s)
	delete(cfg.Proxies, monitor.Loki)
	cfg.Resolvers = []string{names.Addr().String()}
	cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	cfg.Timeouts = short
	cfg.Timeouts.TLS, cfg.Timeouts.Upgrade = time.Second, time.Second
	c := newChecker(t, cfg)
	client := c.HTTPClient()
	port := func(r *relaytest.Relay) int { return int(r.Addr().Port()) }
	for url, want := range map[string]string{
		"http://" + plain.Addr().String() + "/":                 "",
		fmt.Sprintf("http://plain.example:%d/", port(plain)):    "",
		fmt.Sprintf("http://PLAIN.example.:%d/", port(plain)):   "",
		fmt.Sprintf("https://secure.example:%d/", port(secure)): "",
		"http://" + onionHost + "/":                             "",
		"https://secure.i2p/":                                   "",
		"http://relay.loki/":                                    "there is no proxy for loki",
		"http://missing.i2p/":                                   "host is unreachable",
		"https://" + expired.Addr().String() + "/":              "certificate has expired",
		"http://" + silent.Addr().String() + "/":                "timeout",
		"https://" + stalls.Addr().String() + "/":               "timeout",
		"http://" + flood.Addr().String() + "/":                 "headers exceeded 65536 bytes",
		"http://" + inside.Addr().String() + "/":                "not public",
		fmt.Sprintf("http://inside.example:%d/", port(inside)):  "not public",
		"http://169.254.169.254/latest/meta-data/":              "not public",
		"http://[fe80::1]/":                                     "not public",
		"http://empty.example/":                                 "no address",
		"http://missing.example/":                               "no address",
		"http://broken.example/":                                "RCodeServerFailure",
		"http://" + relaytest.ClosedPort(t).String() + "/":      "refused",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			err := get(t, client, url)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	t.Cleanup(func() {
		if n := inside.Counters().Connections; n != 0 {
			t.Errorf("the forbidden address saw %d connections", n)
		}
		for _, a := range s.Asked() {
			if !strings.HasPrefix(a, "name ") {
				t.Errorf("the proxy was asked for %s", a)
			}
		}
	})
}

// TestHTTPClientRedirect holds that the client returns a redirect, follows none,
// and keeps no connection.
func TestHTTPClientRedirect(t *testing.T) {
	t.Parallel()
	target := relaytest.Start(t, relaytest.Options{})
	moved := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.InfoMoved, RedirectTo: "http://" + target.Addr().String() + "/"})
	client := newChecker(t, probe.Config{}).HTTPClient()
	for i := range int64(2) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+moved.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/nostr+json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.Header.Get("Location") == "" {
			t.Errorf("got %s, Location %q", resp.Status, resp.Header.Get("Location"))
		}
		if n := moved.Counters().Connections; n != i+1 {
			t.Errorf("%d connections for %d requests", n, i+1)
		}
	}
	if n := target.Counters().Connections; n != 0 {
		t.Errorf("the target saw %d connections", n)
	}
}

// TestHTTPClientEnvironment holds that no proxy of the environment is used. It
// changes the environment: it is not parallel.
func TestHTTPClientEnvironment(t *testing.T) {
	trap := relaytest.Start(t, relaytest.Options{})
	relay := relaytest.Start(t, relaytest.Options{Addr: "127.5.0.1:0"})
	names := relaytest.StartDNS(t, map[string]relaytest.Name{"relay.example": {Addrs: []netip.Addr{relay.Addr().Addr()}}})
	for _, key := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(key, "http://"+trap.Addr().String())
	}
	client := newChecker(t, probe.Config{Resolvers: []string{names.Addr().String()}}).HTTPClient()
	if err := get(t, client, fmt.Sprintf("http://relay.example:%d/", relay.Addr().Port())); err != nil {
		t.Error(err)
	}
	if n := trap.Counters().Connections; n != 0 || relay.Counters().Connections != 1 {
		t.Errorf("the environment's proxy saw %d connections", n)
	}
}

// TestHTTPClientWebSocket holds that a WebSocket can be opened with the client,
// on clearnet, by TLS and through a proxy.
func TestHTTPClientWebSocket(t *testing.T) {
	t.Parallel()
	plain := relaytest.Start(t, relaytest.Options{})
	secure := relaytest.Start(t, relaytest.Options{TLS: true})
	s := relaytest.StartSOCKS(t, relaytest.SOCKSOptions{Names: map[string]netip.AddrPort{onionHost: plain.Addr()}})
	client := newChecker(t, proxied(s)).HTTPClient()
	for _, u := range []monitor.RelayURL{plain.URL(), secure.URL(), "ws://" + onionHost + "/"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		conn, resp, err := websocket.Dial(ctx, string(u), &websocket.DialOptions{HTTPClient: client})
		if err != nil {
			cancel()
			t.Errorf("%s: %v", u, err)
			continue
		}
		if resp.ProtoMajor != 1 || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %s %s", u, resp.Proto, resp.Status)
		}
		err = conn.Write(ctx, websocket.MessageText, []byte(`["REQ","x",{"kinds":[1],"limit":1}]`))
		for msg := []byte(nil); err == nil && !strings.HasPrefix(string(msg), `["EOSE"`); {
			_, msg, err = conn.Read(ctx)
		}
		if err != nil {
			t.Errorf("%s: %v", u, err)
		}
		conn.CloseNow()
		cancel()
	}
}

// TestDialContext holds what is dialled for others.
func TestDialContext(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{})
	port := relay.Addr().Port()
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		// IPv6 is closed, or not there: the other family is taken.
		"two.example": {Addrs: []netip.Addr{netip.IPv6Loopback(), relay.Addr().Addr()}},
	})
	c := newChecker(t, probe.Config{
		Resolvers:     []string{names.Addr().String()},
		AllowNetworks: append([]netip.Prefix{netip.MustParsePrefix("::1/128")}, loopback...),
	})
	for _, tt := range []struct {
		network, address string
		want             string
	}{
		{"tcp", fmt.Sprintf("two.example:%d", port), ""},
		{"tcp4", fmt.Sprintf("two.example:%d", port), ""},
		{"tcp6", relay.Addr().String(), "that family"},
		{"tcp", relay.Addr().String(), ""},
		{"udp", relay.Addr().String(), "tcp4"},
		{"tcp", "two.example", "HOST:PORT"},
		{"tcp", "two.example:0", "HOST:PORT"},
		{"tcp", "two.example:http", "HOST:PORT"},
		{"tcp", "two.example:65536", "HOST:PORT"},
		{"tcp", ":80", "HOST:PORT"},
		{"tcp", "a.onion:80", "there is no proxy for tor"},
		{"tcp", "nowhere.example:80", "no address"},
	} {
		conn, err := c.DialContext(t.Context(), tt.network, tt.address)
		if conn != nil {
			if conn.RemoteAddr().String() != relay.Addr().String() {
				t.Errorf("%s %s: connected to %s", tt.network, tt.address, conn.RemoteAddr())
			}
			conn.Close()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: got %v, want %q", tt.network, tt.address, err, tt.want)
		}
	}
}

// TestDialContextLimits holds that a dial ends with the tcp stage's limit, or
// with its context, whichever is first; a proxy's has the wider one.
func TestDialContextLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		address string
		own     time.Duration // of the context; 0 = none
		took    time.Duration
	}{
		{"192.0.2.1:80", 0, 4 * time.Second},
		{"192.0.2.1:80", time.Second, time.Second},
		{"a.loki:80", 0, 30 * time.Second},
		{"a.loki:80", time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newChecker(t, probe.Config{
				Timeouts: probe.DefaultTimeouts(), AllowNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
				Proxies: map[monitor.Network]probe.Proxy{monitor.Loki: {Address: "192.0.2.9:1080"}},
				Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
					if address == "192.0.2.9:1080" {
						return pipedConfig(func(p *peer) { socks(p, time.Hour, "") }).Dial(ctx, "tcp", address)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			if tt.own > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), tt.own)
			}
			defer cancel()
			start := time.Now()
			conn, err := c.DialContext(ctx, "tcp", tt.address)
			if took := time.Since(start); conn != nil || err == nil || took != tt.took {
				t.Errorf("%s: got %v after %s, want an error after %s", tt.address, err, took, tt.took)
			}
			if errors.Is(err, monitor.ErrInvalid) {
				t.Errorf("%s: %v", tt.address, err)
			}
			elapse(2 * time.Hour)
		})
	}
}
