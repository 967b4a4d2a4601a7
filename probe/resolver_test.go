package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// TestSystemResolver holds that the system's resolver is asked, and that a name
// which does not exist is told from one without addresses.
func TestSystemResolver(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("192.0.2.1")
	names := map[string]relaytest.Name{
		"good.example":    {Addrs: []netip.Addr{addr, netip.MustParseAddr("2001:db8::1")}},
		"empty.example":   {},
		"failing.example": {Code: 2},
	}
	server := relaytest.StartDNS(t, names)
	var dialer net.Dialer
	r := &systemResolver{
		system: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, server.Addr().String())
		}},
		servers: func() []netip.AddrPort { return []netip.AddrPort{server.Addr()} },
	}
	for name, want := range map[string]string{
		"good.example":    "2 addresses, exists true, error false",
		"localhost":       "hosts file",
		"empty.example":   "0 addresses, exists true, error false",
		"missing.example": "0 addresses, exists false, error false",
		"failing.example": "0 addresses, exists false, error true",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		before := server.Queries()
		a := r.resolve(ctx, name)
		cancel()
		if want == "hosts file" {
			if len(a.addrs) == 0 || server.Queries() != before {
				t.Errorf("%s: got %v after %d queries", name, a, server.Queries()-before)
			}
			continue
		}
		if got := fmt.Sprintf("%d addresses, exists %t, error %t", len(a.addrs), a.exists, a.err != nil); got != want {
			t.Errorf("%s: got %s, want %s (%v)", name, got, want, a.err)
		}
	}
	// Nobody to ask directly: that there is no address is settled all the same.
	r.servers = func() []netip.AddrPort { return nil }
	if a := r.resolve(t.Context(), "missing.example"); len(a.addrs) > 0 || !a.exists || a.err != nil {
		t.Errorf("without servers: got %+v", a)
	}
}

// TestSystemResolverMisled holds that a first server of resolv.conf which denies
// a name is no proof where another one has its addresses.
func TestSystemResolverMisled(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr("192.0.2.1")
	liar := relaytest.StartDNS(t, nil)
	good := relaytest.StartDNS(t, map[string]relaytest.Name{"good.example": {Addrs: []netip.Addr{addr}}})
	var dialer net.Dialer
	r := &systemResolver{
		system: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, liar.Addr().String())
		}},
		servers: func() []netip.AddrPort { return []netip.AddrPort{liar.Addr(), good.Addr()} },
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if a := r.resolve(ctx, "good.example"); a.err != nil || len(a.addrs) != 1 || a.addrs[0] != addr {
		t.Errorf("got %+v", a)
	}
	if a := r.resolve(ctx, "missing.example"); a.err != nil || len(a.addrs) != 0 || a.exists {
		t.Errorf("a name that both deny: got %+v", a)
	}
}

// TestMerge holds what the answers for the two families come to.
func TestMerge(t *testing.T) {
	t.Parallel()
	addr := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	ok, full := &reply{}, &reply{addrs: addr}
	denied, failed := &reply{code: dnsmessage.RCodeNameError}, &reply{code: dnsmessage.RCodeServerFailure}
	for _, tt := range []struct {
		name    string
		replies []*reply
		want    string
	}{
		{"both", []*reply{full, full}, "2 true false"},
		{"one", []*reply{ok, full}, "1 true false"},
		{"empty", []*reply{ok, ok}, "0 true false"},
		{"denied", []*reply{denied, denied}, "0 false false"},
		{"denied and not", []*reply{denied, ok}, "0 true false"},
		{"denied and full", []*reply{denied, full}, "1 true false"},
		{"failed and full", []*reply{failed, full}, "1 true false"},
		{"failed and denied", []*reply{failed, denied}, "0 false true"},
		{"failed and empty", []*reply{ok, failed}, "0 true true"},
		{"one denied", []*reply{nil, denied}, "0 false false"},
		{"none", []*reply{nil, nil}, "0 true false"},
	} {
		a := merge(tt.replies, netip.AddrPort{})
		if got := fmt.Sprintf("%d %t %t", len(a.addrs), a.exists, a.err != nil); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# comment\nsearch example.com\nnameserver 192.0.2.53\nnameserver\nnameserver nonsense\n\tnameserver fe80::1%eth0 \nnameserver 2001:db8::53\nnameserver 192.0.2.54\noptions edns0\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "[192.0.2.53:53 [fe80::1%eth0]:53 [2001:db8::53]:53]"
	if got := fmt.Sprint(resolvConf(path)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := resolvConf(path + ".none"); got != nil {
		t.Errorf("without a file: got %v", got)
	}
}
