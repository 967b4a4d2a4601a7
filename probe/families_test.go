package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// fixed answers the same for every name.
type fixed answer

func (f fixed) resolve(context.Context, string) answer { return answer(f) }

// routes are what dialling addresses comes to; a missing address refuses.
type routes map[string]route

// route is what dialling one address comes to: an error, silence, or a server
// that answers 403.
type route struct {
	err    error
	silent bool
}

// dialer returns a Dial for a Config, and the addresses that were dialled, which
// are complete when the probe is over.
func (w routes) dialer() (dial func(context.Context, string, string) (net.Conn, error), dialled func() []string) {
	calls := make(chan string, 20)
	open := make(chan struct{}, 1) // one connection at a time
	return func(ctx context.Context, _, address string) (net.Conn, error) {
			calls <- address
			host, _, _ := net.SplitHostPort(address)
			r, ok := w[host]
			switch {
			case !ok:
				return nil, syscall.ECONNREFUSED
			case r.silent:
				<-ctx.Done()
				return nil, ctx.Err()
			case r.err != nil:
				return nil, r.err
			}
			select {
			case open <- struct{}{}:
			default:
				panic("a second connection beside the first")
			}
			client, server := net.Pipe()
			go func() {
				br := bufio.NewReader(server)
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = br.ReadString('\n'); err != nil {
						break
					}
				}
				io.WriteString(server, "HTTP/1.1 403 Forbidden\r\n\r\n")
				io.Copy(io.Discard, br)
			}()
			return &counted{Conn: client, closed: func() { <-open; server.Close() }}, nil
		}, func() []string {
			var out []string
			for len(calls) > 0 {
				out = append(out, <-calls)
			}
			return out
		}
}

// counted tells when it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestFamilies holds what is told of a relay's families, what is dialled for
// it, and that the outcome is what it would be without.
func TestFamilies(t *testing.T) {
	t.Parallel()
	const four, four2, six, six2 = "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"
	answers, silent := route{}, route{silent: true}
	failing := func(e syscall.Errno) route { return route{err: &net.OpError{Op: "dial", Err: e}} }
	const at403 = "restricted/upgrade/http_403"
	for _, tt := range []struct {
		name   string
		relay  monitor.RelayURL // "" = relay.example
		found  []string
		routes routes
		works  []string // on whose families somebody has answered before
		source string
		class  string
		want   string // ipv4 ipv6
		dials  int
		took   time.Duration
	}{
		{name: "both answer", found: []string{four, six}, routes: routes{four: answers, six: answers}, class: at403, want: "answers answers", dials: 2},
		{name: "IPv4 refuses", found: []string{four, six}, routes: routes{six: answers}, class: at403, want: "fails answers", dials: 2},
		{name: "IPv6 refuses", found: []string{four, six}, routes: routes{four: answers}, class: at403, want: "answers fails", dials: 3},
		{name: "IPv4 is silent", found: []string{four, six}, routes: routes{four: silent, six: answers}, works: []string{four}, class: at403, want: "fails answers", dials: 2, took: 4 * time.Second},
		{name: "IPv6 is silent", found: []string{four, six}, routes: routes{four: answers, six: silent}, works: []string{six}, class: at403, want: "answers fails", dials: 3, took: 4250 * time.Millisecond},
		{name: "IPv6 is silent, as always from here", found: []string{four, six}, routes: routes{four: answers, six: silent}, class: at403, want: "answers unknown", dials: 3, took: 4250 * time.Millisecond},
		{name: "no route to that host, as always from here", found: []string{four, six}, routes: routes{four: answers, six: failing(syscall.EHOSTUNREACH)}, class: at403, want: "answers unknown", dials: 3},
		{name: "no route to that host", found: []string{four, six}, routes: routes{four: answers, six: failing(syscall.EHOSTUNREACH)}, works: []string{six}, class: at403, want: "answers fails", dials: 3},
		{name: "we have no IPv6", found: []string{four, six}, routes: routes{four: answers, six: failing(syscall.ENETUNREACH)}, works: []string{six}, class: at403, want: "answers unknown", dials: 3},
		{name: "we have no IPv6 address", found: []string{four, six}, routes: routes{four: answers, six: failing(syscall.EADDRNOTAVAIL)}, works: []string{six}, class: at403, want: "answers unknown", dials: 3},
		{name: "we have no IPv4", found: []string{four, six}, routes: routes{six: answers, four: failing(syscall.ENETUNREACH)}, works: []string{four}, class: at403, want: "unknown answers", dials: 2},
		{name: "we have no descriptors", found: []string{four, six}, routes: routes{six: answers, four: failing(syscall.EMFILE)}, works: []string{four}, class: at403, want: "unknown answers", dials: 2},
		{name: "IPv4 resets as it stands", found: []string{four, six}, routes: routes{six: answers, four: failing(syscall.ECONNRESET)}, class: at403, want: "answers answers", dials: 2},
		{name: "IPv4 alone", found: []string{four, four2}, routes: routes{four: answers}, class: at403, want: "answers none", dials: 1},
		{name: "IPv6 alone", found: []string{six, six2}, routes: routes{six: answers}, class: at403, want: "none answers", dials: 1},
		{name: "one of two answers", found: []string{four, six, six2}, routes: routes{six2: answers}, class: at403, want: "fails answers", dials: 4},
		{name: "an address of IPv4", relay: "ws://192.0.2.1/", routes: routes{four: answers}, class: at403, want: "answers none", dials: 1},
		{name: "an address of IPv6", relay: "ws://[2001:db8::1]/", routes: routes{six: answers}, class: at403, want: "none answers", dials: 1},
		{name: "IPv4 within IPv6", found: []string{"::ffff:192.0.2.1"}, routes: routes{four: answers}, class: at403, want: "answers none", dials: 1},
		{name: "the guard forbids IPv6", found: []string{four, "fd00::1"}, routes: routes{four: answers}, class: at403, want: "answers unknown", dials: 1},
		{name: "the guard forbids all", found: []string{"10.0.0.1", "::1"}, class: "failed/tcp/blocked_address", want: "unknown unknown"},
		{name: "the source is of IPv4", found: []string{four, six}, routes: routes{four: answers, six: answers}, source: "192.0.2.9", class: at403, want: "answers unknown", dials: 1},
		{name: "both refuse", found: []string{four, six}, class: "failed/tcp/refused", want: "fails fails", dials: 2},
		{name: "both are silent", found: []string{four, six}, routes: routes{four: silent, six: silent}, works: []string{four, six}, class: "failed/tcp/timeout", want: "fails fails", dials: 2, took: 4 * time.Second},
		{name: "refused, and we have no IPv6", found: []string{four, six}, routes: routes{six: failing(syscall.ENETUNREACH)}, class: "failed/tcp/refused", want: "fails unknown", dials: 2},
		{name: "both reset", found: []string{four, six}, routes: routes{four: failing(syscall.ECONNRESET), six: failing(syscall.ECONNRESET)}, class: "failed/upgrade/reset", want: "answers answers", dials: 2},
		{name: "nothing of ours works", found: []string{four, six}, routes: routes{four: failing(syscall.ENETUNREACH), six: failing(syscall.ENETUNREACH)}, class: "unclear/tcp/local_network", dials: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, dialled := tt.routes.dialer()
				cfg := Config{AllowNetworks: documentation, Dial: dial}
				if tt.source != "" {
					cfg.SourceAddress = netip.MustParseAddr(tt.source)
				}
				c, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				a := answer{exists: true}
				for _, s := range tt.found {
					a.addrs = append(a.addrs, netip.MustParseAddr(s))
				}
				c.resolver = fixed(a)
				if tt.relay == "" {
					tt.relay = "ws://relay.example/"
				}
				for _, s := range tt.works {
					c.worked.note(netip.MustParseAddr(s), time.Now())
				}
				start := time.Now()
				o := c.Check(t.Context(), Request{Relay: tt.relay, Facts: true})
				took := time.Since(start)
				got := ""
				if o.DNS != nil {
					got = o.DNS.IPv4.String() + " " + o.DNS.IPv6.String()
					if !slices.IsSortedFunc(o.DNS.Addresses, netip.Addr.Compare) || len(o.DNS.Addresses) != max(len(tt.found), 1) {
						t.Errorf("the addresses are %v", o.DNS.Addresses)
					}
				}
				if class := fmt.Sprintf("%s/%s/%s", o.Outcome, o.Stage, o.Cause); got != tt.want || class != tt.class {
					t.Errorf("got %q with %s, want %q with %s (%s)", got, class, tt.want, tt.class, o.Evidence)
				}
				if calls := dialled(); len(calls) != tt.dials || took != tt.took {
					t.Errorf("after %s and %d dials, want %s and %d: %v", took, len(calls), tt.took, tt.dials, calls)
				}

				// The same without, by a checker that remembers nothing.
				plain, err := New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				plain.resolver = c.resolver
				p := plain.Check(t.Context(), Request{Relay: tt.relay})
				if p.DNS != nil {
					t.Errorf("not asked for, but DNS is %+v", p.DNS)
				}
				p.Start, p.At, p.DNS, p.Times[monitor.StageTCP] = o.Start, o.At, o.DNS, o.Times[monitor.StageTCP]
				if tt.name == "both are silent" { // at the same moment: either is blamed
					p.Address, p.Evidence = o.Address, o.Evidence
				}
				if diff := cmp.Diff(p, o, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
					t.Errorf("the facts change the rest (-without +with):\n%s", diff)
				}
				if calls := dialled(); len(calls) > tt.dials {
					t.Errorf("without it dials more: %v", calls)
				}
			})
		})
	}
}

// TestFamiliesUnresolved holds what is told where no address came.
func TestFamiliesUnresolved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer answer
		admit  bool
		want   string
	}{
		"no name":      {answer{}, true, "none none"},
		"no address":   {answer{exists: true}, true, "none none"},
		"no answer":    {answer{err: io.EOF}, true, ""},
		"not admitted": {answer{exists: true, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, false, ""},
	} {
		c, err := New(Config{AllowNetworks: documentation, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }})
		if err != nil {
			t.Fatal(err)
		}
		c.resolver = fixed(tt.answer)
		o := c.Check(t.Context(), Request{Relay: "ws://relay.example/", Facts: true, Admit: func(context.Context, netip.Addr) (func(), bool) { return nil, tt.admit }})
		got := ""
		if o.DNS != nil {
			got = o.DNS.IPv4.String() + " " + o.DNS.IPv6.String()
			if o.DNS.Addresses == nil || len(o.DNS.Addresses) > 0 {
				t.Errorf("%s: addresses %#v", name, o.DNS.Addresses)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestFamiliesLimit holds that the other family gets what is left of the overall
// limit and no more, that a wait cut short is no verdict, and that a cancelled
// probe tells nothing.
func TestFamiliesLimit(t *testing.T) {
	t.Parallel()
	const four, six = "192.0.2.1", "2001:db8::1"
	found := fixed{exists: true, addrs: []netip.Addr{netip.MustParseAddr(four), netip.MustParseAddr(six)}}
	for name, tt := range map[string]struct {
		overall, cancel time.Duration
		want            string
		took            time.Duration
	}{
		"in full":   {12 * time.Second, time.Minute, "fails answers", 4 * time.Second},
		"cut short": {2 * time.Second, time.Minute, "unknown answers", 2 * time.Second},
		"cancelled": {12 * time.Second, time.Second, "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, _ := routes{six: {}, four: {silent: true}}.dialer()
				c, err := New(Config{AllowNetworks: documentation, Dial: dial, Timeouts: Timeouts{Overall: tt.overall}})
				if err != nil {
					t.Fatal(err)
				}
				c.resolver = found
				c.worked.note(netip.MustParseAddr(four), time.Now())
				ctx, cancel := context.WithTimeout(t.Context(), tt.cancel)
				defer cancel()
				start := time.Now()
				o := c.Check(ctx, Request{Relay: "ws://relay.example/", Facts: true})
				got := ""
				if o.DNS != nil {
					got = o.DNS.IPv4.String() + " " + o.DNS.IPv6.String()
				}
				if took := time.Since(start); got != tt.want || took != tt.took || o.Outcome != monitor.OutcomeRestricted {
					t.Errorf("got %q with %s after %s, want %q after %s", got, o.Outcome, took, tt.want, tt.took)
				}
			})
		})
	}
}

// TestFamiliesShared holds that what another relay found out a moment ago is
// believed, and that a family is believed to work for an hour.
func TestFamiliesShared(t *testing.T) {
	t.Parallel()
	const four, six = "192.0.2.1", "2001:db8::1"
	synctest.Test(t, func(t *testing.T) {
		w := routes{six: {}}
		dial, dialled := w.dialer()
		c, err := New(Config{AllowNetworks: documentation, Dial: dial})
		if err != nil {
			t.Fatal(err)
		}
		c.resolver = fixed{exists: true, addrs: []netip.Addr{netip.MustParseAddr(four), netip.MustParseAddr(six)}}
		facts := func(u monitor.RelayURL) string {
			o := c.Check(t.Context(), Request{Relay: u, Facts: true})
			return o.DNS.IPv4.String() + " " + o.DNS.IPv6.String()
		}
		if got, n := facts("ws://a.example/"), len(dialled()); got != "fails answers" || n != 2 {
			t.Errorf("the first: got %s after %d dials", got, n)
		}
		if got, n := facts("ws://b.example/"), len(dialled()); got != "fails answers" || n != 1 {
			t.Errorf("the second: got %s after %d dials", got, n)
		}
		delete(w, six) // all refuse: another relay on both has nothing to dial
		<-time.After(time.Minute)
		if got, n := facts("ws://a.example/"), len(dialled()); got != "fails fails" || n != 2 {
			t.Errorf("the first, of a dead host: got %s after %d dials", got, n)
		}
		if got, n := facts("ws://b.example/"), len(dialled()); got != "fails fails" || n != 0 {
			t.Errorf("the second, of a dead host: got %s after %d dials", got, n)
		}
		w[four], w[six] = route{silent: true}, route{}
		<-time.After(time.Minute)
		if got := facts("ws://a.example/"); got != "fails answers" {
			t.Errorf("IPv4 silent after a minute: got %s", got)
		}
		<-time.After(time.Hour)
		if got := facts("ws://a.example/"); got != "unknown answers" {
			t.Errorf("IPv4 silent after an hour: got %s", got)
		}
	})
}

// TestFamiliesOfSockets holds the families over real sockets: IPv6 closed, or
// not there at all on this machine.
func TestFamiliesOfSockets(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{})
	names := relaytest.StartDNS(t, map[string]relaytest.Name{"relay.example": {Addrs: []netip.Addr{relay.Addr().Addr(), netip.IPv6Loopback()}}})
	c, err := New(Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		Resolvers:     []string{names.Addr().String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := monitor.ReachUnknown
	var lc net.ListenConfig
	if l, err := lc.Listen(t.Context(), "tcp6", "[::1]:0"); err == nil {
		l.Close()
		want = monitor.ReachFails
	}
	var steps []string
	o := c.Check(t.Context(), Request{
		Relay: monitor.RelayURL(fmt.Sprintf("ws://relay.example:%d/", relay.Addr().Port())), Info: true, Facts: true,
		Trace: func(e TraceEvent) { steps = append(steps, e.Text) },
	})
	if o.Outcome != monitor.OutcomeOK || o.DNS == nil || o.DNS.IPv4 != monitor.ReachAnswers || o.DNS.IPv6 != want {
		t.Errorf("got %s, %+v, want IPv6 %s", o.Outcome, o.DNS, want)
	}
	if o.Info == nil || o.Address != relay.Addr() {
		t.Errorf("info %+v, address %s", o.Info, o.Address)
	}
	if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, "dial [::1]:") }) {
		t.Errorf("the transcript does not tell of it:\n%s", strings.Join(steps, "\n"))
	}
}

// TestFactAddresses holds which addresses are told, whatever order they came in.
func TestFactAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n4, n6 := rapid.IntRange(0, 20).Draw(t, "n4"), rapid.IntRange(0, 20).Draw(t, "n6")
		var in []netip.Addr
		for i := range n4 {
			in = append(in, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
		}
		for i := range n6 {
			in = append(in, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)}))
		}
		if n4 > 0 && rapid.Bool().Draw(t, "twice") {
			in = append(in, netip.MustParseAddr("::ffff:192.0.2.0"))
		}
		out := factAddresses(rapid.Permutation(in).Draw(t, "in"))
		if !slices.Equal(out, factAddresses(rapid.Permutation(in).Draw(t, "again"))) {
			t.Error("the order makes a difference")
		}
		if !slices.IsSortedFunc(out, netip.Addr.Compare) || len(slices.Compact(slices.Clone(out))) != len(out) || len(out) != min(16, n4+n6) {
			t.Errorf("%d and %d make %v", n4, n6, out)
		}
		four := slices.IndexFunc(out, netip.Addr.Is6)
		if four < 0 {
			four = len(out)
		}
		if four < min(n4, 8) || len(out)-four < min(n6, 8) {
			t.Errorf("%d and %d: %d and %d are left", n4, n6, four, len(out)-four)
		}
	})
}
