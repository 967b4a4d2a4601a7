package probe_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// TestStatus holds what the answers to the upgrade come to.
func TestStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		head string
		want string
	}{
		{"HTTP/1.1 401 Unauthorized", "restricted/upgrade/http_401"},
		{"HTTP/1.1 402 Payment Required", "restricted/upgrade/payment"},
		{"HTTP/1.1 403 Forbidden", "restricted/upgrade/http_403"},
		{"HTTP/1.1 407 Proxy", "restricted/upgrade/http_407"},
		{"HTTP/1.1 429 Too Many Requests", "restricted/upgrade/http_429"},
		{"HTTP/1.1 451", "restricted/upgrade/http_451"},
		{"HTTP/1.1 403 Forbidden\r\ncf-mitigated: challenge", "restricted/upgrade/challenge"},
		{"HTTP/1.1 503 Busy\r\nCF-Mitigated: Challenge", "restricted/upgrade/challenge"},
		{"HTTP/1.1 202 Accepted\r\nx-amzn-waf-action: captcha", "restricted/upgrade/challenge"},
		{"HTTP/1.1 404 Not Found", "failed/upgrade/http_404"},
		{"HTTP/1.1 500 Oops", "failed/upgrade/http_5xx"},
		{"HTTP/1.0 599 Oops", "failed/upgrade/http_5xx"},
		{"HTTP/1.1 200 OK", "failed/upgrade/http_other"},
		{"HTTP/1.1 301 Moved\r\nLocation: /", "failed/upgrade/http_other"},
		{"HTTP/1.1 426 Upgrade Required", "failed/upgrade/http_other"},
		{"HTTP/1.1 999 Denied", "failed/upgrade/http_other"},
		{"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found", "failed/upgrade/http_404"},
		{"HTTP/2 200 OK", "failed/upgrade/upgrade_invalid"},
		{"HTTP/1.1 2000 OK", "failed/upgrade/upgrade_invalid"},
		{"HTTP/1.1 099 OK", "failed/upgrade/upgrade_invalid"},
		{"SSH-2.0-OpenSSH_9.2p1 Debian-2", "failed/upgrade/upgrade_invalid"},
		{"", "failed/upgrade/upgrade_invalid"},
		{"HTTP/1.1 101 Switching Protocols", "failed/upgrade/upgrade_invalid"},
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade", "failed/upgrade/upgrade_invalid"},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100_000), "failed/upgrade/oversized"},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 10_000), "failed/upgrade/http_other"},
		{strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20_000) + "HTTP/1.1 200 OK", "failed/upgrade/oversized"},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, _ := check(t, pipedConfig(func(p *peer) {
				p.request()
				p.send(tt.head + "\r\n\r\n")
				p.wait()
			}), probe.Request{})
			if got := class(o); got != tt.want {
				t.Errorf("%.80q: got %s, want %s (%s)", tt.head, got, tt.want, o.Evidence)
			}
			checkObservation(t, o)
		})
	}
}

// TestUpgradeHead holds what is told of a good answer, and which extras make it
// a bad one.
func TestUpgradeHead(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		"": "ok/read/-",
		"Date: Mon, 02 Nov 2026 10:00:00 GMT\r\n":                "ok/read/-",
		"Sec-WebSocket-Extensions: permessage-deflate\r\n":       "failed/upgrade/upgrade_invalid",
		"Sec-WebSocket-Protocol: nostr\r\n":                      "failed/upgrade/upgrade_invalid",
		"sec-websocket-extensions:\r\nno colon in this line\r\n": "ok/read/-",
	} {
		synctest.Test(t, func(t *testing.T) {
			o, _ := check(t, pipedConfig(func(p *peer) {
				p.request()
				p.switching(extra)
				_, req := p.message()
				p.send(text(`["EOSE","` + strings.Split(req+`""""`, `"`)[3] + `"]`))
				p.wait()
			}), probe.Request{})
			if got := class(o); got != want {
				t.Errorf("%q: got %s, want %s (%s)", extra, got, want, o.Evidence)
			}
			if date := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC); strings.HasPrefix(extra, "Date") != o.ServerDate.Equal(date) {
				t.Errorf("%q: the server's date is %s", extra, o.ServerDate)
			}
		})
	}
}

// TestRetryAfter holds that a 429's wish is heard, up to an hour.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"120": 2 * time.Minute, "0": 0, "-5": 0, "soon": 0, "": 0, "86400": time.Hour,
			"99999999999999999999999999": time.Hour, "9223372036854775807": time.Hour,
			time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat): 10 * time.Minute,
			time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat):     0,
			time.Now().Add(99 * time.Hour).UTC().Format(http.TimeFormat):   time.Hour,
		} {
			o, _ := check(t, pipedConfig(func(p *peer) {
				p.request()
				p.send("HTTP/1.1 429 Too Many Requests\r\nRetry-After: " + value + "\r\n\r\n")
				p.wait()
			}), probe.Request{})
			if o.RetryAfter != want {
				t.Errorf("%q: got %s, want %s", value, o.RetryAfter, want)
			}
		}
	})
}

// TestRequest holds what a relay is sent.
func TestRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		var ops []string
		cfg := pipedConfig(func(p *peer) {
			for line := ""; line != "\r\n"; lines = append(lines, line) {
				line, _ = p.br.ReadString('\n')
				if name, value, _ := strings.Cut(line, ":"); name == "Sec-WebSocket-Key" {
					p.key = strings.TrimSpace(value)
					line = name + ": …"
				}
			}
			p.switching("")
			for op := byte(1); op != 8; {
				var msg string
				op, msg = p.message()
				parts := strings.Split(msg, `"`)
				if len(parts) > 3 {
					if len(parts[3]) != 16 {
						t.Errorf("the subscription id is %q", parts[3])
					}
					p.send(text(`["EOSE","` + parts[3] + `"]`))
					parts[3] = "…"
				}
				ops = append(ops, fmt.Sprint(op, strings.Join(parts, `"`)))
			}
		})
		cfg.UserAgent, cfg.Origin = "pharos/1 (+https://example.com)", "https://example.com"
		check(t, cfg, probe.Request{Relay: "ws://192.0.2.1:8080/some/path"})
		wantHead := "GET /some/path HTTP/1.1\r\nHost: 192.0.2.1:8080\r\nUser-Agent: pharos/1 (+https://example.com)\r\n" +
			"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: …Origin: https://example.com\r\n\r\n"
		if got := strings.Join(lines, ""); got != wantHead {
			t.Errorf("the head is %q, want %q", got, wantHead)
		}
		want := []string{`1["REQ","…",{"kinds":[1],"limit":1}]`, `1["CLOSE","…"]`, "8\x03\xe8"}
		if got := strings.Join(ops, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("the messages are %q, want %q", ops, want)
		}
	})
}

// TestMessages holds what a relay's words after the upgrade come to. ID in them
// is the subscription's id.
func TestMessages(t *testing.T) {
	t.Parallel()
	const (
		event = `["EVENT","ID",{"kind":1}]`
		eose  = `["EOSE","ID"]`
	)
	big := strings.Repeat("x", 300<<10)
	for _, tt := range []struct {
		name   string
		words  []string // frames; the connection is closed after the last
		want   string
		noEOSE bool
		auth   bool
	}{
		{name: "EOSE", words: []string{text(eose)}, want: "ok/read/-"},
		{name: "with white space", words: []string{text(" [ \"EOSE\"\n,\t\"ID\" ] ")}, want: "ok/read/-"},
		{name: "event, EOSE", words: []string{text(event), text(eose)}, want: "ok/read/-"},
		{name: "notice, EOSE", words: []string{text(`["NOTICE","welcome"]`), text(eose)}, want: "ok/read/-"},
		{name: "unknown message, EOSE", words: []string{text(`["WELCOME",{"a":1}]`), text(eose)}, want: "ok/read/-"},
		{name: "AUTH, EOSE", words: []string{text(`["AUTH","c"]`), text(eose)}, want: "ok/read/-", auth: true},
		{name: "event, then the end", words: []string{text(event)}, want: "ok/read/-", noEOSE: true},
		{name: "event, then close", words: []string{text(event), frame(0x88, "")}, want: "ok/read/-", noEOSE: true},
		{name: "event, CLOSED", words: []string{text(event), text(`["CLOSED","ID","error: enough"]`)}, want: "ok/read/-", noEOSE: true},
		{name: "event, then a giant", words: []string{text(event), "\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00"}, want: "ok/read/-", noEOSE: true},
		{name: "event of 200 KB", words: []string{text(`["EVENT","ID",{"content":"` + big[:200<<10] + `"}]`), text(eose)}, want: "ok/read/-"},
		{name: "event of 300 KB", words: []string{text(`["EVENT","ID",{"content":"` + big + `"}]`), text(eose)}, want: "failed/read/oversized"},
		{name: "fragments", words: []string{frame(0x01, `["EO`), frame(0x89, "x"), frame(0x00, `SE",`), frame(0x80, `"ID"]`)}, want: "ok/read/-"},
		{name: "empty fragments", words: []string{frame(0x01, ""), frame(0x00, ""), frame(0x80, eose)}, want: "ok/read/-"},
		{name: "300 KB in fragments", words: append([]string{frame(0x01, "[")}, repeat(frame(0x00, big[:10<<10]), 30)...), want: "failed/read/oversized"},
		{name: "300 KB of pings", words: repeat(frame(0x89, big[:125]), 3000), want: "failed/read/oversized"},
		{name: "300 KB of notices", words: repeat(text(`["NOTICE","`+big[:1000]+`"]`), 300), want: "failed/read/oversized"},

		{name: "auth-required", words: []string{text(`["CLOSED","ID","auth-required: x"]`)}, want: "refused/read/auth_required"},
		{name: "restricted", words: []string{text(`["CLOSED","ID","restricted: x"]`)}, want: "refused/read/restricted"},
		{name: "blocked", words: []string{text(`["CLOSED","ID","Blocked : x"]`)}, want: "refused/read/blocked"},
		{name: "rate-limited", words: []string{text(`["CLOSED","ID","rate-limited: x"]`)}, want: "refused/read/rate_limited"},
		{name: "payment", words: []string{text(`["CLOSED","ID","payment-required: x"]`)}, want: "refused/read/payment"},
		{name: "pow", words: []string{text(`["CLOSED","ID","pow: x"]`)}, want: "refused/read/pow"},
		{name: "invalid", words: []string{text(`["CLOSED","ID","invalid: x"]`)}, want: "refused/read/invalid"},
		{name: "unsupported", words: []string{text(`["CLOSED","ID","unsupported: x"]`)}, want: "refused/read/unsupported"},
		{name: "error", words: []string{text(`["CLOSED","ID","error: x"]`)}, want: "refused/read/error"},
		{name: "other prefix", words: []string{text(`["CLOSED","ID","mute: x"]`)}, want: "refused/read/declined"},
		{name: "no prefix", words: []string{text(`["CLOSED","ID","go away"]`)}, want: "refused/read/declined"},
		{name: "no reason", words: []string{text(`["CLOSED","ID"]`)}, want: "refused/read/declined"},
		{name: "odd reason", words: []string{text(`["CLOSED","ID",{"a":[]}]`)}, want: "refused/read/declined"},
		{name: "notice, then the end", words: []string{text(`["NOTICE","rate-limited: x"]`), frame(0x88, "")}, want: "refused/read/rate_limited"},
		{name: "AUTH, then the end", words: []string{text(`["AUTH","c"]`)}, want: "refused/read/auth_required", auth: true},

		{name: "nothing", want: "failed/read/closed_early"},
		{name: "close", words: []string{frame(0x88, "")}, want: "failed/read/closed_early"},
		{name: "close with a reason", words: []string{frame(0x88, "\x03\xf0no \xff\x00 more")}, want: "failed/read/closed_early"},
		{name: "half a frame", words: []string{"\x81\x7e"}, want: "failed/read/closed_early"},
		{name: "half a payload", words: []string{"\x81\x20[\"EOSE"}, want: "failed/read/closed_early"},

		{name: "no JSON", words: []string{text("hello")}, want: "failed/read/not_nostr"},
		{name: "broken JSON", words: []string{text(`["EOSE","ID"`)}, want: "failed/read/not_nostr"},
		{name: "broken event", words: []string{text(`["EVENT","ID",{]`)}, want: "failed/read/not_nostr"},
		{name: "an object", words: []string{text(`{"EOSE":"ID"}`)}, want: "failed/read/not_nostr"},
		{name: "numbers", words: []string{text(`[1,2]`)}, want: "failed/read/not_nostr"},
		{name: "an empty list", words: []string{text(`[]`)}, want: "failed/read/not_nostr"},
		{name: "empty", words: []string{text(``)}, want: "failed/read/not_nostr"},
		{name: "binary", words: []string{frame(0x82, eose)}, want: "failed/read/not_nostr"},
		{name: "masked", words: []string{"\x81\x8d\x00\x00\x00\x00" + eose}, want: "failed/read/not_nostr"},
		{name: "reserved bit", words: []string{frame(0xc1, eose)}, want: "failed/read/not_nostr"},
		{name: "reserved opcode", words: []string{frame(0x83, eose)}, want: "failed/read/not_nostr"},
		{name: "reserved control opcode", words: []string{frame(0x8b, "")}, want: "failed/read/not_nostr"},
		{name: "continuation of nothing", words: []string{frame(0x80, eose)}, want: "failed/read/not_nostr"},
		{name: "text within fragments", words: []string{frame(0x01, "["), frame(0x81, eose)}, want: "failed/read/not_nostr"},
		{name: "fragmented ping", words: []string{frame(0x09, "")}, want: "failed/read/not_nostr"},
		{name: "long ping", words: []string{frame(0x89, big[:126])}, want: "failed/read/not_nostr"},
		{name: "negative length", words: []string{"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"}, want: "failed/read/not_nostr"},
		{name: "1 GiB", words: []string{"\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00"}, want: "failed/read/oversized"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, _ := check(t, pipedConfig(func(p *peer) {
					id := p.upgraded()
					go p.wait()
					for _, w := range tt.words {
						if !p.send(withID(w, id)) {
							return
						}
					}
				}), probe.Request{})
				if got := class(o); got != tt.want || o.NoEOSE != tt.noEOSE || o.AuthSeen != tt.auth {
					t.Errorf("got %s, no EOSE %t, auth %t; want %s, %t, %t (%s)", got, o.NoEOSE, o.AuthSeen, tt.want, tt.noEOSE, tt.auth, o.Evidence)
				}
				checkObservation(t, o)
			})
		})
	}
}

// withID puts the id into a frame or part of one, and mends its length.
func withID(w, id string) string {
	const mark = `"ID"`
	if !strings.Contains(w, mark) || w[1]&0x80 != 0 {
		return w
	}
	head := 2
	switch w[1] & 0x7f {
	case 126:
		head = 4
	case 127:
		head = 10
	}
	return frame(w[0], strings.ReplaceAll(w[head:], mark, `"`+id+`"`))
}

func repeat(s string, n int) []string {
	return strings.Split(strings.Repeat(s+"\x00\x01\x02", n-1)+s, "\x00\x01\x02")
}

// TestDialErrors holds which errors of connect are the relay's and which are
// ours.
func TestDialErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ECONNREFUSED:  "failed/tcp/refused",
		syscall.EHOSTUNREACH:  "failed/tcp/unreachable",
		syscall.ETIMEDOUT:     "failed/tcp/timeout",
		syscall.ECONNRESET:    "failed/upgrade/reset",
		syscall.EPIPE:         "failed/upgrade/reset",
		syscall.ENETUNREACH:   "unclear/tcp/local_network",
		syscall.EADDRNOTAVAIL: "unclear/tcp/local_network",
		syscall.EMFILE:        "unclear/tcp/local_network",
		syscall.ENFILE:        "unclear/tcp/local_network",
		syscall.EACCES:        "unclear/tcp/local_network",
		syscall.ENOBUFS:       "unclear/tcp/local_network",
		syscall.EAFNOSUPPORT:  "unclear/tcp/local_network",
		errors.New("odd"):     "unclear/tcp/local_network",
	} {
		cfg := pipedConfig(nil)
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
		}
		o, _ := check(t, cfg, probe.Request{Relay: piped})
		if got := class(o); got != want {
			t.Errorf("%v: got %s, want %s (%s)", err, got, want, o.Evidence)
		}
		checkObservation(t, o)
		if err == syscall.ECONNRESET {
			if o, _ := check(t, cfg, probe.Request{Relay: "wss://192.0.2.1/"}); class(o) != "failed/tls/reset" {
				t.Errorf("%v, wss: got %s", err, class(o))
			}
		}
	}
}

// TestSharedFailure holds that a dead ip:port is dialled once for all the
// relays on it, but again for the one that found out, and after 30 s.
func TestSharedFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		cfg := pipedConfig(nil)
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done()
			return nil, context.DeadlineExceeded
		}
		c, err := probe.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		probeIt := func(u monitor.RelayURL, want int) {
			t.Helper()
			o := c.Check(t.Context(), probe.Request{Relay: u})
			if class(o) != "failed/tcp/timeout" || dials != want {
				t.Errorf("%s: got %s after %d dials, want %d dials (%s)", u, class(o), dials, want, o.Evidence)
			}
			checkObservation(t, o)
		}
		probeIt("ws://192.0.2.1/", 1)
		for i := range 199 {
			probeIt(monitor.RelayURL(fmt.Sprintf("ws://192.0.2.1/%d", i)), 1)
		}
		probeIt("ws://192.0.2.1:81/", 2) // another port
		probeIt("ws://192.0.2.2/", 3)    // another address
		probeIt("ws://192.0.2.1/", 4)    // the one that found out
		elapse(29 * time.Second)
		probeIt("ws://192.0.2.1/a", 4)
		elapse(time.Second)
		probeIt("ws://192.0.2.1/a", 5)
	})
}

// TestSharedFailureEnds holds that a cut-off wait is no news to others, and
// that a success takes the news back.
func TestSharedFailureEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		up := false
		cfg := pipedConfig(nil)
		cfg.Timeouts.Overall = time.Second // cuts the tcp stage
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials++; up {
				return nil, syscall.ECONNRESET
			}
			<-ctx.Done()
			return nil, context.DeadlineExceeded
		}
		c, err := probe.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.Check(t.Context(), probe.Request{Relay: "ws://192.0.2.1/a"})
		c.Check(t.Context(), probe.Request{Relay: "ws://192.0.2.1/b"})
		if dials != 2 {
			t.Errorf("a wait of 1 s counted for another relay")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		cfg := pipedConfig(func(p *peer) { p.wait() })
		good := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if fail.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return good(ctx, network, address)
		}
		c, err := probe.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if o := c.Check(t.Context(), probe.Request{Relay: "ws://192.0.2.1/a"}); class(o) != "failed/tcp/refused" {
			t.Errorf("got %s", class(o))
		}
		fail.Store(false)
		for _, u := range []monitor.RelayURL{"ws://192.0.2.1/a", "ws://192.0.2.1/b"} {
			if o := c.Check(t.Context(), probe.Request{Relay: u}); class(o) != "failed/upgrade/timeout" {
				t.Errorf("%s after it came back: got %s (%s)", u, class(o), o.Evidence)
			}
		}
	})
}

// TestReusedConnection holds that a failed upgrade over the connection of
// NIP-11 is tried once more over a fresh one.
func TestReusedConnection(t *testing.T) {
	t.Parallel()
	const doc = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	upgrade := func(p *peer) {
		id := p.upgraded()
		p.send(text(`["EOSE","` + id + `"]`))
		p.wait()
	}
	for name, tt := range map[string]struct {
		first func(*peer) // after NIP-11, on the first connection
		want  string
		dials int
	}{
		"kept":                   {upgrade, "ok/read/-", 1},
		"closed before":          {func(p *peer) {}, "ok/read/-", 2},
		"closed at the request":  {func(p *peer) { p.request() }, "ok/read/-", 2},
		"another answer there":   {func(p *peer) { p.request(); p.send("HTTP/1.1 400 Bad\r\n\r\n"); p.wait() }, "ok/read/-", 2},
		"nonsense there":         {func(p *peer) { p.request(); p.send("nonsense\r\n\r\n"); p.wait() }, "ok/read/-", 2},
		"a restriction is final": {func(p *peer) { p.request(); p.send("HTTP/1.1 403 No\r\n\r\n"); p.wait() }, "restricted/upgrade/http_403", 1},
		"silence is final":       {func(p *peer) { p.request(); p.wait() }, "failed/upgrade/timeout", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				o, _ := check(t, pipedConfig(func(p *peer) {
					if dials++; p.dial > 1 {
						upgrade(p)
						return
					}
					p.request()
					p.send(doc)
					tt.first(p)
				}), probe.Request{Info: true, LastOutcome: monitor.OutcomeOK})
				if class(o) != tt.want || dials != tt.dials {
					t.Errorf("got %s after %d dials, want %s after %d (%s)", class(o), dials, tt.want, tt.dials, o.Evidence)
				}
				if o.Info == nil || o.Info.Problem != "" {
					t.Errorf("info is %+v", o.Info)
				}
			})
		})
	}
}

// TestInfoBodies holds how bodies end, and whether the connection is kept then.
func TestInfoBodies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		answer  string
		problem string
		dials   int
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "", 1},
		{"length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "", 1},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n", "", 1},
		{"chunks and a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n", "", 2},
		{"chunks and a length", "HTTP/1.1 200 OK\r\nContent-Length: 90\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "", 2},
		{"to the end", "HTTP/1.1 200 OK\r\n\r\n{}", "", 2},
		{"old", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "", 2},
		{"closing", "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}", "", 2},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "", 2},
		{"too short", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "closed_early", 2},
		{"too long", "HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n{}", "oversized", 2},
		{"absurdly long", "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\n{}", "oversized", 2},
		{"bad chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", "http_other", 2},
		{"many small chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 70_000), "oversized", 2},
		{"large to the end", "HTTP/1.1 200 OK\r\n\r\n{" + strings.Repeat(" ", 70_000) + "}", "oversized", 2},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", "http_other", 1},
		{"no HTTP", "hello\r\n", "http_other", 2},
		{"unasked upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "http_other", 2},
		{"503", "HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}", "http_5xx", 1},
		{"403", "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}", "http_403", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				o, _ := check(t, pipedConfig(func(p *peer) {
					dials++
					if p.dial == 1 {
						p.request()
						p.send(tt.answer)
						if tt.dials > 1 {
							return // closed, so that what ends there ends
						}
					}
					id := p.upgraded()
					p.send(text(`["EOSE","` + id + `"]`))
					p.wait()
				}), probe.Request{Info: true, LastOutcome: monitor.OutcomeOK})
				if class(o) != "ok/read/-" || dials != tt.dials {
					t.Errorf("got %s after %d dials, want ok after %d (%s)", class(o), dials, tt.dials, o.Evidence)
				}
				if o.Info == nil || o.Info.Problem != tt.problem {
					t.Errorf("info is %+v, want problem %q", o.Info, tt.problem)
				}
			})
		})
	}
}

// counted counts what is read of a connection.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestBytes holds that no relay makes a probe read more than 256 KB.
func TestBytes(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]relaytest.Behaviour{
		"giant frame": relaytest.HugeFrame, "endless events": relaytest.Flood, "50 MB document": relaytest.HugeInfo,
		"endless document": relaytest.EndlessInfo, "head without end": relaytest.HeadFlood,
	} {
		for _, last := range []monitor.Outcome{monitor.OutcomeNone, monitor.OutcomeOK} {
			t.Run(fmt.Sprintf("%s after %q", name, last), func(t *testing.T) {
				t.Parallel()
				r := relaytest.Start(t, relaytest.Options{Behaviour: b})
				var n atomic.Int64
				var d net.Dialer
				c := newChecker(t, probe.Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := d.DialContext(ctx, network, address)
					if err != nil {
						return nil, err
					}
					return counted{conn, &n}, nil
				}})
				o := c.Check(t.Context(), probe.Request{Relay: r.URL(), Info: true, LastOutcome: last})
				if n.Load() > 256<<10 {
					t.Errorf("it read %d bytes (%s)", n.Load(), class(o))
				}
				if b == relaytest.HeadFlood && class(o) != "failed/upgrade/oversized" {
					t.Errorf("got %s (%s)", class(o), o.Evidence)
				}
			})
		}
	}
}

// TestTLS holds what farm-behaviours.tsv does not say about handshakes.
func TestTLS(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{})

	hybrid := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSHybrid})
	o := c.Check(t.Context(), probe.Request{Relay: hybrid.URL()})
	if n := hybrid.Counters().Connections; class(o) != "ok/read/-" || n != 2 {
		t.Errorf("hybrid key exchange only: got %s after %d connections (%s)", class(o), n, o.Evidence)
	}

	classic := relaytest.Start(t, relaytest.Options{TLS: true})
	o = c.Check(t.Context(), probe.Request{Relay: classic.URL()})
	if n := classic.Counters().Connections; class(o) != "ok/read/-" || n != 1 {
		t.Errorf("healthy: got %s after %d connections (%s)", class(o), n, o.Evidence)
	}

	// TLS 1.3 lets the client finish before the server looks for a certificate.
	mutual := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSMutual})
	o = c.Check(t.Context(), probe.Request{Relay: mutual.URL()})
	if class(o) != "failed/upgrade/tls_handshake" && class(o) != "failed/upgrade/reset" {
		t.Errorf("wants a client certificate: got %s (%s)", class(o), o.Evidence)
	}

	later := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.ResetLater})
	o = c.Check(t.Context(), probe.Request{Relay: later.URL()})
	if class(o) != "failed/read/closed_early" {
		t.Errorf("reset after the upgrade: got %s (%s)", class(o), o.Evidence)
	}

	plain := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }})
	o = c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL("wss://" + plain.Addr().String() + "/")})
	if class(o) != "failed/tls/tls_handshake" {
		t.Errorf("no TLS there: got %s (%s)", class(o), o.Evidence)
	}

	closing := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) { c.Read(make([]byte, 1<<10)) }})
	o = c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL("wss://" + closing.Addr().String() + "/")})
	if o.Outcome != monitor.OutcomeFailed || o.Stage != monitor.StageTLS || o.Cause != monitor.CauseTLSHandshake && o.Cause != monitor.CauseReset {
		t.Errorf("closed in the handshake: got %s (%s)", class(o), o.Evidence)
	}

	expired := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSExpired})
	o = c.Check(t.Context(), probe.Request{Relay: expired.URL()})
	if o.TLS == nil || o.TLS.Version != "1.3" || o.TLS.Issuer != "CN=relaytest CA" || o.TLS.NotAfter.After(time.Now()) {
		t.Errorf("facts of an expired certificate are %+v", o.TLS)
	}
	if want := "TLS certificate of 127.0.0.1 expired on " + o.TLS.NotAfter.Format(time.DateOnly); o.Evidence != want {
		t.Errorf("evidence is %q, want %q", o.Evidence, want)
	}
}

// TestNoRoots holds that a machine without CA roots blames itself.
func TestNoRoots(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{TLS: true})
	c := newChecker(t, probe.Config{Roots: x509.NewCertPool()})
	if c.HasRoots() {
		t.Error("it says that there are roots")
	}
	if o := c.Check(t.Context(), probe.Request{Relay: r.URL()}); class(o) != "unclear/tls/local_network" {
		t.Errorf("got %s (%s)", class(o), o.Evidence)
	}
}

// TestPanic holds that an error in a probe is a result and no crash.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	released := false
	cfg := pipedConfig(nil)
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { panic("oops") }
	c := newChecker(t, cfg)
	o := c.Check(t.Context(), probe.Request{Relay: piped, Admit: func(context.Context, netip.Addr) (func(), bool) {
		return func() { released = true }, true
	}})
	if n := c.Panics(); n != 1 {
		t.Errorf("%d panics were counted", n)
	}
	if class(o) != "unclear/tcp/local_network" || o.Relay != piped || o.At.IsZero() || !released {
		t.Errorf("got %+v, released %t", o, released)
	}
	if !strings.Contains(log.String(), "oops") || strings.Contains(o.Evidence, "oops") {
		t.Errorf("the log says %q, the evidence %q", log.String(), o.Evidence)
	}
}
