package probe_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// transcript collects what a probe tells, as "stage > text"; it checks what holds
// of every event.
type transcript struct {
	t     testing.TB
	lines []string
	last  time.Duration
}

func (l *transcript) trace(e probe.TraceEvent) {
	if e.Since < l.last {
		l.t.Errorf("%q is told at %s, after something at %s", e.Text, e.Since, l.last)
	}
	l.last = e.Since
	if !utf8.ValidString(e.Text) || strings.ContainsFunc(e.Text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) {
		l.t.Errorf("not fit for one line of a terminal: %q", e.Text)
	}
	l.lines = append(l.lines, e.Stage.String()+" "+string("- > <"[2*e.Kind])+" "+e.Text)
}

var (
	loopbackPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	validUntil   = regexp.MustCompile(`valid until .*`)
)

// steady leaves out what differs from run to run.
func (l *transcript) steady() []string {
	out := make([]string, len(l.lines))
	for i, s := range l.lines {
		out[i] = validUntil.ReplaceAllString(loopbackPort.ReplaceAllString(s, "ADDR"), "valid until X")
	}
	return out
}

// has reports whether a line matches the pattern.
func (l *transcript) has(pattern string) bool {
	p := regexp.MustCompile(pattern)
	for _, s := range l.lines {
		if p.MatchString(s) {
			return true
		}
	}
	return false
}

func TestTraceOfAHealthyRelay(t *testing.T) {
	t.Parallel()
	relay := relaytest.Start(t, relaytest.Options{TLS: true})
	l := &transcript{t: t}
	o := newChecker(t, probe.Config{UserAgent: "pharos/test (+mailto:me@example.com)"}).
		Check(t.Context(), probe.Request{Relay: relay.URL(), Info: true, LastOutcome: monitor.OutcomeOK, Trace: l.trace})
	if o.Outcome != monitor.OutcomeOK {
		t.Fatal(class(o))
	}
	want := []string{
		"dns - 127.0.0.1 is an address: there is nothing to ask",
		"tcp - dial ADDR",
		"tcp - ADDR connected",
		"tls - handshake as a client of 127.0.0.1, classical key exchange",
		"tls - TLS 1.3, TLS_AES_128_GCM_SHA256, X25519",
		"tls - certificate for 127.0.0.1, issued by " + o.TLS.Issuer + ", valid until X",
		"info > GET / HTTP/1.1",
		"info > headers Host, User-Agent, Accept",
	}
	got := l.steady()
	if d := cmp.Diff(want, got[:min(len(want), len(got))]); d != "" {
		t.Errorf("the beginning (-want +got):\n%s", d)
	}
	for _, pattern := range []string{
		`^info < HTTP/1\.1 200 OK$`, `^info < Content-Type: application/nostr\+json$`, `^info < body, \d+ bytes: \{`, `^info - NIP-11: name "`,
		`^upgrade > headers Host, User-Agent, Upgrade, Connection, Sec-WebSocket-Version, Sec-WebSocket-Key$`,
		`^upgrade < HTTP/1\.1 101 Switching Protocols$`,
		`^read > text, \d+ bytes: \["REQ","[0-9a-f]{16}",\{"kinds":\[1\],"limit":1\}\]$`,
		`^read < text, \d+ bytes: \["EVENT",`, `^read < text, \d+ bytes: \["EOSE","[0-9a-f]{16}"\]$`,
		`^read > text, \d+ bytes: \["CLOSE","[0-9a-f]{16}"\]$`, `^read > close 1000$`,
	} {
		if !l.has(pattern) {
			t.Errorf("nothing matches %s in\n%s", pattern, strings.Join(l.lines, "\n"))
		}
	}
	if l.has(`me@example\.com`) {
		t.Error("the value of a header that was sent is told")
	}
}

// What a relay says is cut, escaped, and without what may let somebody in.
func TestTraceHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := `["NOTICE","` + strings.Repeat("é", 300) + `"]`
		l := &transcript{t: t}
		check(t, pipedConfig(func(p *peer) {
			if p.request() == "" {
				return
			}
			if p.key == "" { // NIP-11
				p.send("HTTP/1.1 302 Found\r\nLocation: https://user:hunter2@192.0.2.1/?token=hunter2#hunter2\r\nContent-Length: 0\r\n\r\n")
				p.wait()
				return
			}
			p.switching("Set-Cookie: session=hunter2\r\nX-Auth-Token: hunter2\r\nauthorization: Bearer hunter2\r\n" +
				"WWW-Authenticate: hunter2\r\nX-Odd: a\x1b[31mb\xff\r\nDate: Sat, 01 Jan 2000 00:01:40 GMT\r\nX-Long: " + strings.Repeat("x", 5000) + "\r\n")
			p.message()
			p.send(text(long) + frame(0x89, "are\x00you"))
			p.message()
			p.send(frame(0x82, "\x01\x02"))
			p.wait()
		}), probe.Request{Info: true, LastOutcome: monitor.OutcomeOK, Trace: l.trace})
		for _, want := range []string{
			`info < Location: https://192.0.2.1/ (some of it left out)`,
			`upgrade < Set-Cookie: ********`, `upgrade < X-Auth-Token: ********`, `upgrade < authorization: ********`, `upgrade < WWW-Authenticate: ********`,
			`upgrade < X-Odd: a\x1b[31mb\xff`, `upgrade < a header line of 5010 bytes, too long to be read`,
			`upgrade - Date is 1m40s ahead of our clock`,
			`read < ping, 7 bytes: are\x00you`, `read > pong, 7 bytes: are\x00you`,
			`read < binary, 2 bytes: \x01\x02`,
			`read < text, 613 bytes: ["NOTICE","` + strings.Repeat("é", 94) + "…",
		} {
			if !l.has("^" + regexp.QuoteMeta(want) + "$") {
				t.Errorf("there is no line %s", want)
			}
		}
		if l.has("hunter2") || t.Failed() {
			t.Errorf("the transcript:\n%s", strings.Join(l.lines, "\n"))
		}
	})
}

func TestTraceOfFailures(t *testing.T) {
	t.Parallel()
	dns := relaytest.StartDNS(t, map[string]relaytest.Name{
		"two.example":   {Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}},
		"empty.example": {},
	})
	closed := relaytest.ClosedPort(t)
	_, port, _ := strings.Cut(closed.String(), ":")
	expired := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSExpired})
	alert := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSHybrid})
	silent := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.Silent})
	noInfo := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.NoInfo})
	moved := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.InfoMoved, RedirectTo: "http://" + noInfo.Addr().String() + "/there"})
	c := newChecker(t, probe.Config{Resolvers: []string{dns.Addr().String()}})
	for name, tt := range map[string]struct {
		relay monitor.RelayURL
		want  []string
	}{
		"closed port": {monitor.RelayURL("ws://two.example:" + port + "/"), []string{
			`^dns - ask 127\.0\.0\.1:\d+ for AAAA and A of two\.example$`, `^dns - two\.example is at 127\.0\.0\.1, 10\.0\.0\.1$`,
			`^tcp - 10\.0\.0\.1 is not a public address: not dialled$`, `^tcp - 127\.0\.0\.1:\d+ failed: .*connection refused$`,
		}},
		"no name":    {"ws://nothing.example/", []string{`^dns - the name does not exist \(NXDOMAIN\)$`}},
		"no address": {"ws://empty.example/", []string{`^dns - the name exists, but has no address$`}},
		"expired": {expired.URL(), []string{
			`^tls - the handshake failed: .*expired`, `^tls - certificate for .*, valid until \d{4}-\d\d-\d\d \d\d:\d\d UTC$`,
		}},
		"hybrid": {alert.URL(), []string{
			`^tls - alert: .*handshake failure; once more with the hybrid key exchange$`, `^tls - TLS 1\.3, TLS_\w+, X25519MLKEM768$`,
		}},
		"silent":   {silent.URL(), []string{`^upgrade - no response: .*timeout$`}},
		"no info":  {noInfo.URL(), []string{`^info < HTTP/1\.1 404 Not Found$`, `^info - no NIP-11 document: http_404$`}},
		"redirect": {moved.URL(), []string{`^info - redirected to ws://127\.0\.0\.1:\d+/there$`, `^info > GET /there HTTP/1\.1$`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &transcript{t: t}
			o := c.Check(t.Context(), probe.Request{Relay: tt.relay, Info: true, Trace: l.trace})
			for _, pattern := range tt.want {
				if !l.has(pattern) {
					t.Errorf("%s: nothing matches %s in\n%s", class(o), pattern, strings.Join(l.lines, "\n"))
				}
			}
		})
	}
}

// Two addresses are dialled, one of which never answers.
func TestTraceOfTheQuickerAddress(t *testing.T) {
	t.Parallel()
	var (
		hole  netip.AddrPort
		port  string
		relay *relaytest.Relay
		err   error
	)
	for range 10 { // the port may be taken at the other address
		hole = relaytest.BlackHole(t)
		_, port, _ = strings.Cut(hole.String(), ":")
		if relay, err = relaytest.New(relaytest.Options{Addr: "127.97.0.1:" + port}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Stop()
	dns := relaytest.StartDNS(t, map[string]relaytest.Name{"two.example": {Addrs: []netip.Addr{hole.Addr(), netip.MustParseAddr("127.97.0.1")}}})
	l := &transcript{t: t}
	o := newChecker(t, probe.Config{Resolvers: []string{dns.Addr().String()}}).
		Check(t.Context(), probe.Request{Relay: monitor.RelayURL("ws://two.example:" + port + "/"), Trace: l.trace})
	if o.Outcome != monitor.OutcomeOK || !l.has(`^tcp - 127\.97\.0\.1:\d+ connected$`) || !l.has(`^tcp - `+hole.Addr().String()+`:\d+ given up: another address was quicker$`) {
		t.Errorf("%s:\n%s", class(o), strings.Join(l.lines, "\n"))
	}
}
