package probe_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// loopback is what the tests' checkers may reach.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// short are limits for tests: long enough for a busy machine to answer on
// loopback, short enough to wait for.
var short = probe.Timeouts{
	DNS: 4 * time.Second, TCP: 2 * time.Second, TLS: 2500 * time.Millisecond, Upgrade: 1500 * time.Millisecond,
	Read: 1500 * time.Millisecond, Info: 4 * time.Second, Overall: 20 * time.Second,
}

// newChecker returns a checker that trusts the tests' CA and reaches loopback,
// where cfg says nothing else.
func newChecker(t testing.TB, cfg probe.Config) *probe.Checker {
	t.Helper()
	if cfg.AllowNetworks == nil {
		cfg.AllowNetworks = loopback
	}
	if cfg.Roots == nil {
		cfg.Roots = relaytest.Roots()
	}
	if cfg.Timeouts == (probe.Timeouts{}) {
		cfg.Timeouts = short
	}
	c, err := probe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// class is outcome, stage and cause in one text: "failed/tls/timeout".
func class(o monitor.Observation) string {
	cause := o.Cause.String()
	if cause == "" {
		cause = "-"
	}
	return o.Outcome.String() + "/" + o.Stage.String() + "/" + cause
}

// TestBehaviours takes every line of farm-behaviours.tsv, with NIP-11 both
// before and after the upgrade.
func TestBehaviours(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/farm-behaviours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := newChecker(t, probe.Config{})
	target := relaytest.Start(t, relaytest.Options{})
	type row struct {
		name, what, want, note string
		o                      monitor.Observation
	}
	var rows []*row
	var wg sync.WaitGroup // all at once: most of them only wait
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		n++
		fields := append(strings.Split(lines.Text(), "\t"), "")
		for _, scheme := range strings.Split(fields[2], ",") {
			for _, last := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeOK} {
				r := &row{name: fmt.Sprintf("%s %s after %q", fields[0], scheme, last), what: fields[1], want: strings.Join(fields[3:6], "/"), note: fields[6]}
				rows = append(rows, r)
				u := behaving(t, fields[0], scheme, target)
				wg.Go(func() { r.o = c.Check(t.Context(), probe.Request{Relay: u, Info: true, LastOutcome: last}) })
			}
		}
	}
	wg.Wait()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			got := class(r.o)
			if r.want == "ok or failed/-/- or http_5xx" {
				if got != "ok/read/-" && got != "failed/upgrade/http_5xx" {
					t.Errorf("%s: got %s (%s)", r.what, got, r.o.Evidence)
				}
				return
			}
			if got != r.want {
				t.Errorf("%s: got %s, want %s (%s)", r.what, got, r.want, r.o.Evidence)
			}
			checkObservation(t, r.o)
			checkNote(t, r.o, r.note)
		})
	}
	if n != 43 {
		t.Errorf("the table has %d lines, want 43", n)
	}
}

// behaving starts what the first column of the table names.
func behaving(t *testing.T, what, scheme string, target *relaytest.Relay) monitor.RelayURL {
	t.Helper()
	switch what {
	case "port 7998":
		return monitor.RelayURL(scheme + "://" + relaytest.BlackHole(t).String() + "/")
	case "port 7999":
		return monitor.RelayURL(scheme + "://" + relaytest.ClosedPort(t).String() + "/")
	}
	b, err := strconv.Atoi(what)
	if err != nil {
		t.Fatalf("behaviour %q: %v", what, err)
	}
	return relaytest.Start(t, relaytest.Options{
		Behaviour: relaytest.Behaviour(b), TLS: scheme == "wss", Slow: 200 * time.Millisecond,
		RedirectTo: "http://" + target.Addr().String() + "/",
	}).URL()
}

// checkObservation holds what is true of every observation.
func checkObservation(t *testing.T, o monitor.Observation) {
	t.Helper()
	if o.Evidence == "" || !utf8.ValidString(o.Evidence) || strings.ContainsAny(o.Evidence, "\r\n\x00") || len(o.Evidence) > 600 {
		t.Errorf("evidence %q is no sentence", o.Evidence)
	}
	if o.Outcome.Measured() && !o.Address.IsValid() {
		t.Errorf("there is no address")
	}
	if o.At.Before(o.Start) || o.Start.IsZero() {
		t.Errorf("it started at %s and ended at %s", o.Start, o.At)
	}
	for s, rtt := range map[string]time.Duration{"open": o.RTTOpen, "read": o.RTTRead} {
		if rtt != rtt.Truncate(time.Millisecond) || rtt < 0 {
			t.Errorf("rtt %s is %s, no whole milliseconds", s, rtt)
		}
	}
	tt := o.Times
	if opened := o.Stage == monitor.StageRead; opened {
		sum := tt[monitor.StageTCP] + tt[monitor.StageTLS] + tt[monitor.StageUpgrade]
		if want := max(time.Millisecond, sum.Round(time.Millisecond)); o.RTTOpen != want {
			t.Errorf("rtt open is %s, want %s: tcp %s + tls %s + upgrade %s", o.RTTOpen, want, tt[monitor.StageTCP], tt[monitor.StageTLS], tt[monitor.StageUpgrade])
		}
		if o.HTTPStatus != 101 {
			t.Errorf("HTTP status is %d", o.HTTPStatus)
		}
	} else if o.RTTOpen != 0 || o.RTTRead != 0 {
		t.Errorf("rtts are %s and %s, but nothing opened", o.RTTOpen, o.RTTRead)
	}
	if o.Outcome == monitor.OutcomeOK && o.RTTRead < time.Millisecond {
		t.Errorf("rtt read is %s", o.RTTRead)
	}
	if o.Relay.TLS() && o.Stage > monitor.StageTLS && (o.TLS == nil || o.TLS.Version != "1.3" || len(o.TLS.Names) == 0 || o.TLS.NotAfter.IsZero()) {
		t.Errorf("TLS facts are %+v", o.TLS)
	}
}

// checkNote holds the last column of the table.
func checkNote(t *testing.T, o monitor.Observation, note string) {
	t.Helper()
	if want := note == "note: no_eose"; o.NoEOSE != want {
		t.Errorf("NoEOSE is %t, want %t", o.NoEOSE, want)
	}
	what, value, _ := strings.Cut(note, ": ")
	switch {
	case what == "info":
		if o.Info == nil || o.Info.Problem != value {
			t.Errorf("info is %+v, want the problem %s", o.Info, value)
		}
	case note == "tls expiry shown":
		if left := time.Until(o.TLS.NotAfter); left < 71*time.Hour || left > 73*time.Hour {
			t.Errorf("the certificate expires in %s", left)
		}
	}
}

// TestInfo holds what becomes of the documents of the table's relays.
func TestInfo(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{})
	for _, tt := range []struct {
		name string
		b    relaytest.Behaviour
		want string // problem
	}{
		{"healthy", relaytest.Healthy, ""},
		{"none", relaytest.NoInfo, "http_404"},
		{"broken", relaytest.BrokenInfo, "not_json"},
		{"HTML", relaytest.HTMLInfo, "not_json"},
		{"mixed lists", relaytest.MixedInfo, ""},
		{"payment", relaytest.PaymentInfo, ""},
		{"50 MB", relaytest.HugeInfo, "oversized"},
		{"endless chunks", relaytest.EndlessInfo, "oversized"},
	} {
		for _, last := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeRefused} {
			t.Run(fmt.Sprintf("%s after %q", tt.name, last), func(t *testing.T) {
				t.Parallel()
				r := relaytest.Start(t, relaytest.Options{Behaviour: tt.b})
				o := c.Check(t.Context(), probe.Request{Relay: r.URL(), Info: true, LastOutcome: last})
				if o.Outcome != monitor.OutcomeOK {
					t.Fatalf("NIP-11 decided liveness: %s (%s)", class(o), o.Evidence)
				}
				if o.Info == nil || o.Info.Problem != tt.want {
					t.Fatalf("info is %+v, want problem %q", o.Info, tt.want)
				}
				if o.Times[monitor.StageInfo] == 0 {
					t.Error("info took no time")
				}
				if tt.want != "" {
					if o.Info.Raw != nil {
						t.Errorf("there is a document of %d bytes beside the problem", len(o.Info.Raw))
					}
					return
				}
				if o.Info.Name != "test relay" || len(o.Info.NIPs) != 19 || o.Info.NIPs[18] != 77 {
					t.Errorf("info is %+v", o.Info)
				}
				if want := tt.b == relaytest.PaymentInfo; o.Info.PaymentRequired == nil || *o.Info.PaymentRequired != want {
					t.Errorf("payment required is %v, want %t", o.Info.PaymentRequired, want)
				}
			})
		}
	}
}

// TestInfoConnections holds which connections are made for NIP-11.
func TestInfoConnections(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{})
	for _, tt := range []struct {
		name        string
		b           relaytest.Behaviour
		tls         bool
		info        bool
		last        monitor.Outcome
		connections int64
		infos       int64
	}{
		{"not asked for", relaytest.Healthy, false, false, monitor.OutcomeOK, 1, 0},
		{"kept", relaytest.Healthy, false, true, monitor.OutcomeOK, 1, 1},
		{"kept, TLS", relaytest.Healthy, true, true, monitor.OutcomeRefused, 1, 1},
		{"404 kept", relaytest.NoInfo, false, true, monitor.OutcomeOK, 1, 1},
		{"closed by the server", relaytest.InfoCloses, false, true, monitor.OutcomeOK, 2, 1},
		{"upgrade first when unknown", relaytest.Healthy, false, true, monitor.OutcomeNone, 2, 1},
		{"upgrade first after a failure", relaytest.Healthy, true, true, monitor.OutcomeFailed, 2, 1},
		{"upgrade first after a restriction", relaytest.Healthy, false, true, monitor.OutcomeRestricted, 2, 1},
		{"no 101, no info", relaytest.HTTP502, false, true, monitor.OutcomeNone, 1, 0},
		{"nothing more of a flood", relaytest.Flood, false, true, monitor.OutcomeNone, 1, 0},
		{"info after a refusal, apart", relaytest.AuthRequired, false, true, monitor.OutcomeNone, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := relaytest.Start(t, relaytest.Options{Behaviour: tt.b, TLS: tt.tls})
			o := c.Check(t.Context(), probe.Request{Relay: r.URL(), Info: tt.info, LastOutcome: tt.last})
			got := r.Counters()
			if got.Connections != tt.connections || got.Infos != tt.infos {
				t.Errorf("%d connections and %d NIP-11 requests, want %d and %d (%s)", got.Connections, got.Infos, tt.connections, tt.infos, class(o))
			}
			if (o.Info != nil) != (tt.infos > 0) {
				t.Errorf("info is %+v", o.Info)
			}
		})
	}
}

// TestInfoRedirect holds that one redirect is followed, never to where the
// guard forbids.
func TestInfoRedirect(t *testing.T) {
	t.Parallel()
	allowed := relaytest.Start(t, relaytest.Options{Addr: "127.1.0.1:0", Info: `{"name":"elsewhere"}`})
	allowedTLS := relaytest.Start(t, relaytest.Options{Addr: "127.1.0.1:0", TLS: true, Info: `{"name":"elsewhere, secure"}`})
	again := relaytest.Start(t, relaytest.Options{Addr: "127.1.0.1:0", Behaviour: relaytest.InfoMoved, RedirectTo: "http://" + allowed.Addr().String() + "/"})
	forbidden := relaytest.Start(t, relaytest.Options{Addr: "127.2.0.1:0"})
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"inside.example": {Addrs: []netip.Addr{netip.MustParseAddr("127.2.0.1")}},
	})
	c := newChecker(t, probe.Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16")},
		Resolvers:     []string{names.Addr().String()},
	})
	for _, tt := range []struct {
		name, to      string
		want, problem string
	}{
		{"elsewhere", "http://" + allowed.Addr().String() + "/info", "elsewhere", ""},
		{"elsewhere by TLS", "https://" + allowedTLS.Addr().String() + "/", "elsewhere, secure", ""},
		{"twice", "http://" + again.Addr().String() + "/", "", "http_other"},
		{"to itself", "/info", "", "http_other"},
		{"to a forbidden address", "http://" + forbidden.Addr().String() + "/", "", "blocked_address"},
		{"to the name of a forbidden address", fmt.Sprintf("http://inside.example:%d/", forbidden.Addr().Port()), "", "blocked_address"},
		{"to a name that is reserved", "http://localhost/", "", "blocked_address"},
		{"to a name that does not exist", "http://nowhere.example/", "", "nxdomain"},
		{"to another scheme", "file:///etc/passwd", "", "http_other"},
		{"to nonsense", "http://[::1/", "", "http_other"},
		{"to another service", "http://127.1.0.1:25/", "", "http_other"},
	} {
		for _, last := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeOK} {
			t.Run(fmt.Sprintf("%s after %q", tt.name, last), func(t *testing.T) {
				r := relaytest.Start(t, relaytest.Options{Addr: "127.1.0.1:0", Behaviour: relaytest.InfoMoved, RedirectTo: tt.to})
				o := c.Check(t.Context(), probe.Request{Relay: r.URL(), Info: true, LastOutcome: last})
				if o.Outcome != monitor.OutcomeOK {
					t.Errorf("NIP-11 decided liveness: %s (%s)", class(o), o.Evidence)
				}
				if o.Info == nil || o.Info.Name != tt.want || o.Info.Problem != tt.problem {
					t.Errorf("info is %+v, want name %q, problem %q", o.Info, tt.want, tt.problem)
				}
				if o.Address != r.Addr() {
					t.Errorf("the address is %s, want the relay's", o.Address)
				}
			})
		}
	}
	if n := forbidden.Counters().Connections; n != 0 {
		t.Errorf("the forbidden address saw %d connections", n)
	}
}

// TestGuard holds that no packet goes to an address that is not public.
func TestGuard(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{})
	port := r.Addr().Port()
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"inside.example": {Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		"mapped.example": {Addrs: []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}},
		"six.example":    {Addrs: []netip.Addr{netip.IPv6Loopback()}},
		"zero.example":   {Addrs: []netip.Addr{netip.IPv4Unspecified()}},
	})
	resolvers := []string{names.Addr().String()}
	closed := newChecker(t, probe.Config{AllowNetworks: []netip.Prefix{}, Resolvers: resolvers})
	for _, host := range []string{"inside.example", "mapped.example", "six.example", "zero.example", "127.0.0.1"} {
		o := closed.Check(t.Context(), probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("ws://%s:%d/", host, port)), Info: true})
		if got := class(o); got != "failed/tcp/blocked_address" {
			t.Errorf("%s: got %s (%s)", host, got, o.Evidence)
		}
	}
	if n := r.Counters().Connections; n != 0 {
		t.Errorf("the relay saw %d connections", n)
	}
	open := newChecker(t, probe.Config{Resolvers: resolvers})
	o := open.Check(t.Context(), probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("ws://inside.example:%d/", port))})
	if got := class(o); got != "ok/read/-" {
		t.Errorf("where it is allowed: got %s (%s)", got, o.Evidence)
	}
}

// TestNames holds what the name servers' answers come to.
func TestNames(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{TLS: true})
	here := []netip.Addr{r.Addr().Addr()}
	one := relaytest.StartDNS(t, map[string]relaytest.Name{
		"good.example":      {Addrs: here},
		"truncated.example": {Addrs: here, Truncated: true},
		"forged.example":    {Addrs: here, Forged: true},
		"empty.example":     {},
		"failing.example":   {Code: 2},
		"refusing.example":  {Code: 5},
		"silent.example":    {Silent: true},
		"only-one.example":  {Addrs: here},
		"fallback.example":  {Code: 2},
	})
	other := relaytest.StartDNS(t, map[string]relaytest.Name{
		"fallback.example": {Addrs: here},
		"silent.example":   {Silent: true},
		"failing.example":  {Code: 2},
	})
	limits := short
	limits.DNS = 1500 * time.Millisecond
	single := newChecker(t, probe.Config{Resolvers: []string{one.Addr().String()}, Timeouts: limits})
	both := newChecker(t, probe.Config{Resolvers: []string{other.Addr().String(), one.Addr().String()}, Timeouts: limits})
	for _, tt := range []struct {
		name         string
		single, both string
	}{
		{"good.example", "ok/read/-", "ok/read/-"},
		{"truncated.example", "ok/read/-", "ok/read/-"},
		{"forged.example", "ok/read/-", "ok/read/-"},
		{"empty.example", "failed/dns/no_address", "failed/dns/no_address"},
		{"failing.example", "unclear/dns/resolver", "unclear/dns/resolver"},
		{"silent.example", "unclear/dns/resolver", "unclear/dns/resolver"},
		{"refusing.example", "unclear/dns/resolver", "unclear/dns/resolver"}, // the other denies it, alone
		{"missing.example", "failed/dns/nxdomain", "failed/dns/nxdomain"},    // both deny it
		{"only-one.example", "ok/read/-", "ok/read/-"},
		{"fallback.example", "unclear/dns/resolver", "ok/read/-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("wss://%s:%d/", tt.name, r.Addr().Port()))}
			for i, c := range []*probe.Checker{single, both} {
				o := c.Check(t.Context(), req)
				if got, want := class(o), []string{tt.single, tt.both}[i]; got != want {
					t.Errorf("with %d resolvers: got %s, want %s (%s)", i+1, got, want, o.Evidence)
				}
				if o.Times[monitor.StageDNS] == 0 {
					t.Error("the dns stage took no time")
				}
			}
		})
	}
}

// TestResolve holds that names are resolved as for a probe.
func TestResolve(t *testing.T) {
	t.Parallel()
	here := netip.MustParseAddr("127.0.0.1")
	server := relaytest.StartDNS(t, map[string]relaytest.Name{"good.example": {Addrs: []netip.Addr{here}}, "failing.example": {Code: 2}})
	c := newChecker(t, probe.Config{Resolvers: []string{server.Addr().String()}})
	for _, name := range []string{"good.example", "good.example."} {
		if got, err := c.Resolve(t.Context(), name); err != nil || len(got) != 1 || got[0] != here {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if got, err := c.Resolve(t.Context(), "missing.example"); err != nil || len(got) != 0 {
		t.Errorf("a name that does not exist: got %v, %v", got, err)
	}
	if _, err := c.Resolve(t.Context(), "failing.example"); err == nil || !strings.Contains(err.Error(), "failing.example") {
		t.Errorf("a server that fails: error %v", err)
	}
}

// TestSkipped holds what is not measured.
func TestSkipped(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{})
	onion := monitor.RelayURL("ws://2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion/")
	o := c.Check(t.Context(), probe.Request{Relay: onion})
	if got := class(o); got != "skipped//no_proxy" {
		t.Errorf("an onion: got %s", got)
	}
	r := relaytest.Start(t, relaytest.Options{})
	refuse := func(context.Context, netip.Addr) (func(), bool) { return nil, false }
	o = c.Check(t.Context(), probe.Request{Relay: r.URL(), Admit: refuse})
	if got := class(o); got != "skipped//overload" {
		t.Errorf("not admitted: got %s", got)
	}
	if n := r.Counters().Connections; n != 0 {
		t.Errorf("the relay saw %d connections", n)
	}
}

// TestAdmit holds that a permit is asked for once, for the address that is
// dialled, and given back when the connections are closed.
func TestAdmit(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{})
	r := relaytest.Start(t, relaytest.Options{})
	var asked []netip.Addr
	released := 0
	o := c.Check(t.Context(), probe.Request{Relay: r.URL(), Info: true, Admit: func(_ context.Context, a netip.Addr) (func(), bool) {
		asked = append(asked, a)
		return func() { released++ }, true
	}})
	if o.Outcome != monitor.OutcomeOK {
		t.Fatalf("got %s (%s)", class(o), o.Evidence)
	}
	if diff := cmp.Diff([]string{r.Addr().Addr().String()}, texts(asked)); diff != "" || released != 1 {
		t.Errorf("asked for %v, released %d times", asked, released)
	}
}

func texts[T fmt.Stringer](vs []T) []string {
	var out []string
	for _, v := range vs {
		out = append(out, v.String())
	}
	return out
}

// TestSource holds that connections come from the source address, and that
// addresses of the other family say nothing about the relay then.
func TestSource(t *testing.T) {
	t.Parallel()
	from := make(chan string, 1)
	r := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) { from <- c.RemoteAddr().String() }})
	c := newChecker(t, probe.Config{SourceAddress: netip.MustParseAddr("127.9.9.9"), AllowNetworks: append(loopback, netip.MustParsePrefix("::1/128"))})
	c.Check(t.Context(), probe.Request{Relay: r.URL()})
	if got := <-from; !strings.HasPrefix(got, "127.9.9.9:") {
		t.Errorf("the connection came from %s", got)
	}
	o := c.Check(t.Context(), probe.Request{Relay: "ws://[::1]:7777/"})
	if got := class(o); got != "unclear/tcp/local_network" {
		t.Errorf("the other family: got %s (%s)", got, o.Evidence)
	}
}

// TestNew holds what is refused.
func TestNew(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  probe.Config
		want string
	}{
		"timeout":    {probe.Config{Timeouts: probe.Timeouts{Read: -1}}, "read timeout"},
		"user agent": {probe.Config{UserAgent: "a\r\nb"}, "user agent"},
		"origin":     {probe.Config{Origin: "https://x\n"}, "origin"},
		"CA file":    {probe.Config{CAFile: "testdata/farm-behaviours.tsv"}, "PEM"},
		"no CA file": {probe.Config{CAFile: "testdata/none.pem"}, "none.pem"},
		"resolver":   {probe.Config{Resolvers: []string{"9.9.9.9"}}, "9.9.9.9"},
	} {
		if _, err := probe.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want something about %q", name, err, tt.want)
		}
	}
	c, err := probe.New(probe.Config{CAFile: relaytest.CAFile(t)})
	if err != nil || !c.HasRoots() {
		t.Errorf("with a CA file: %v", err)
	}
}
