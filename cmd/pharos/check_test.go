package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func checkEnviron(t *testing.T) []string {
	return []string{"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_PROBE_TLS_CA_FILE=" + relaytest.CAFile(t), "PHAROS_CONFIG=testdata/config/good/empty.yaml"}
}

func TestCheckTable(t *testing.T) {
	ok := relaytest.Start(t, relaytest.Options{TLS: true})
	refused := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.AuthRequired})
	down := relaytest.Start(t, relaytest.Options{})
	down.Stop()

	got := pharos(t, string(refused.URL())+"\n", checkEnviron(t), "check", string(ok.URL()), "-")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("ok and refused: %+v", got)
	}
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "RELAY") {
		t.Fatalf("the table is\n%s", got.stdout)
	}
	column := strings.Index(lines[0], "OUTCOME")
	for _, l := range lines[1:] {
		if word := strings.Fields(l[column:])[0]; word != "ok" && word != "refused" {
			t.Errorf("not aligned: %q", l)
		}
	}
	if !strings.Contains(got.stdout, "auth_required") {
		t.Errorf("the table lacks the cause:\n%s", got.stdout)
	}

	got = pharos(t, "", checkEnviron(t), "check", string(ok.URL()), string(down.URL()))
	if got.status != 1 || !strings.Contains(got.stderr, "1 of 2 relays are not ok") || !strings.Contains(got.stdout, "failed") {
		t.Errorf("one down: %+v", got)
	}
}

func TestCheckJSON(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.NoEOSE})
	got := pharos(t, "", append(checkEnviron(t), "PHAROS_PROBE_TIMEOUTS_READ=500ms"), "check", "--json", string(relay.URL()))
	if got.status != 0 || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%+v", got)
	}
	var r struct {
		URL, Outcome, Stage, Cause, Evidence, Note string
		RTTOpen                                    int64            `json:"rtt_open_ms"`
		RTTRead                                    int64            `json:"rtt_read_ms"`
		Stages                                     map[string]int64 `json:"stages"`
		Info                                       map[string]any   `json:"info"`
		TLS                                        map[string]any   `json:"tls"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.URL != string(relay.URL()) || r.Outcome != "ok" || r.Stage != "read" || r.Cause != "" || r.Evidence == "" || r.Note != "no_eose" {
		t.Errorf("got %+v", r)
	}
	if r.RTTOpen < 1 || r.RTTRead < 1 || r.Stages["tcp"] < 1 || r.Stages["upgrade"] < 1 || r.TLS["not_after"] == nil || r.Info["name"] == nil {
		t.Errorf("got %+v", r)
	}
}

// What a relay says reaches no terminal as control characters.
func TestPrintable(t *testing.T) {
	if got := printable("bad\x1b[31m\u202ename\n"); got != "bad[31mname" {
		t.Errorf("got %q", got)
	}
}

// Permits bound the connections to one address and one subnet.
func TestGuest(t *testing.T) {
	a, b, other := mustAddr("192.0.2.1"), mustAddr("192.0.2.2"), mustAddr("198.51.100.1")
	g := newGuest(1, 2)
	ctx := t.Context()
	releaseA, ok := g.admit(ctx, a)
	if !ok {
		t.Fatal("the first is not admitted")
	}
	if _, ok := g.admit(ctx, b); !ok {
		t.Fatal("a second address of the subnet is not admitted")
	}
	if _, ok := g.admit(ctx, other); !ok {
		t.Fatal("another subnet is not admitted")
	}
	// Whoever is not admitted waits, here no longer than an ended context.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, ok := g.admit(ended, a); ok {
		t.Error("a second connection to one address is admitted")
	}
	if _, ok := g.admit(ended, mustAddr("192.0.2.3")); ok {
		t.Error("a third connection into one subnet is admitted")
	}
	admitted := make(chan bool, 1)
	go func() {
		_, ok := g.admit(ctx, a)
		admitted <- ok
	}()
	releaseA()
	if !<-admitted {
		t.Error("not admitted after a release")
	}
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestCheckDebug(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{TLS: true})
	got := pharos(t, "", checkEnviron(t), "check", "--debug", string(relay.URL()))
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	if lines[0] != string(relay.URL()) {
		t.Errorf("it begins with %q", lines[0])
	}
	step := regexp.MustCompile(`^ *\d+\.\d ms  (dns|tcp|tls|upgrade|read|info|verdict) +([<>=] )? *(.*)$`)
	var steps []string
	for _, l := range lines[1:] {
		m := step.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("this is no step: %q", l)
		}
		steps = append(steps, m[1]+" "+m[2]+m[3])
	}
	for _, want := range []string{
		`^dns 127\.0\.0\.1 is an address`, `^tcp dial 127\.`, `^tcp 127\.0\.0\.1:\d+ connected`, `^tls TLS 1\.3, TLS_`, `^tls certificate for .*, issued by .*, valid until `,
		`^upgrade > GET / HTTP/1\.1$`, `^upgrade < HTTP/1\.1 101 `, `^read > text, .*\["REQ",`, `^read < text, .*\["EOSE",`, `^info > GET / HTTP/1\.1$`, `^info NIP-11: name `,
		`^verdict = ok at read: 127\.0\.0\.1 answered the subscription; open \d+ ms, read \d+ ms$`,
	} {
		p := regexp.MustCompile(want)
		i := slices.IndexFunc(steps, p.MatchString)
		if i < 0 {
			t.Fatalf("no %s, in this order, in\n%s", want, got.stdout)
		}
		steps = steps[i+1:]
	}
	if len(steps) > 0 {
		t.Errorf("after the verdict: %q", steps)
	}
}

// With --json the transcript is beside the results; with several relays each
// line says whose it is.
func TestCheckDebugOfSeveral(t *testing.T) {
	a, b := relaytest.Start(t, relaytest.Options{}), relaytest.Start(t, relaytest.Options{Behaviour: relaytest.AuthRequired})
	got := pharos(t, "", checkEnviron(t), "check", "--debug", "--json", string(a.URL()), string(b.URL()))
	if got.status != 0 || strings.Count(got.stdout, "\n") != 2 || !json.Valid([]byte(strings.SplitN(got.stdout, "\n", 2)[0])) {
		t.Fatalf("%+v", got)
	}
	for _, u := range []string{string(a.URL()), string(b.URL())} {
		if n := strings.Count(got.stderr, u+"  "); n < 10 {
			t.Errorf("%d lines of the transcript are of %s", n, u)
		}
	}
	for l := range strings.Lines(got.stderr) {
		if !strings.HasPrefix(l, string(a.URL())) && !strings.HasPrefix(l, string(b.URL())) {
			t.Errorf("whose is %q?", l)
		}
	}
	if !strings.Contains(got.stderr, "= refused (auth_required) at read: ") {
		t.Errorf("no verdict in\n%s", got.stderr)
	}
}

func TestCheckDebugShowsNoSecret(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nSet-Cookie: id=hunter2\r\nWWW-Authenticate: Bearer hunter2\r\n"+
			"X-Api-Key: hunter2\r\nLocation: wss://me:hunter2@relay.example.com/?token=hunter2\r\nX-Title: \x1b]0;mine\x07\r\nContent-Length: 0\r\n\r\n")
	}})
	environ := append(checkEnviron(t), "PHAROS_DATABASE_URL=postgres://pharos:hunter2@db/pharos")
	for _, more := range []string{"", "--json"} {
		args := slices.DeleteFunc([]string{"check", "--debug", more, string(relay.URL())}, func(s string) bool { return s == "" })
		got := pharos(t, "", environ, args...)
		all := got.stdout + got.stderr
		if strings.Contains(all, "hunter2") || strings.ContainsAny(all, "\x1b\x07") {
			t.Errorf("%v shows what it must not:\n%s", args, all)
		}
		if got.status != 1 || !strings.Contains(all, "Set-Cookie: ********") || !strings.Contains(all, `X-Title: \x1b]0;mine\a`) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// watching is a check --watch under way.
type watching struct {
	lines   *bufio.Scanner
	signals chan os.Signal
	status  chan int
	errs    *bytes.Buffer
}

func startWatching(t *testing.T, args ...string) *watching {
	t.Helper()
	r, out := io.Pipe()
	w := &watching{lines: bufio.NewScanner(r), signals: make(chan os.Signal, 1), status: make(chan int, 1), errs: &bytes.Buffer{}}
	environ := checkEnviron(t)
	go func() {
		status := run(t.Context(), append([]string{"check", "--watch", "1s"}, args...), process{
			stdin: strings.NewReader(""), stdout: out, stderr: w.errs, environ: environ, signals: w.signals,
		})
		_ = out.Close()
		w.status <- status
	}()
	return w
}

// until reads lines up to one that has the text, and returns them.
func (w *watching) until(t *testing.T, text string) (lines []string) {
	t.Helper()
	for w.lines.Scan() {
		lines = append(lines, w.lines.Text())
		if strings.Contains(w.lines.Text(), text) {
			return lines
		}
	}
	t.Fatalf("the output ended before %q: %q", text, lines)
	return nil
}

// interrupt ends it and returns the status and what it still wrote.
func (w *watching) interrupt() (status int, rest []string) {
	w.signals <- syscall.SIGINT
	for w.lines.Scan() {
		rest = append(rest, w.lines.Text())
	}
	return <-w.status, rest
}

func TestCheckWatch(t *testing.T) {
	steady, changing := relaytest.Start(t, relaytest.Options{}), relaytest.Start(t, relaytest.Options{})
	w := startWatching(t, string(steady.URL()), string(changing.URL()))
	if lines := w.until(t, "round 1: 2 of 2 ok, "); len(lines) != 4 {
		t.Errorf("the first round has a heading, two rows and a summary: %q", lines)
	}
	changing.Behave(relaytest.HTTP502)
	var rows []string
	for len(rows) == 0 { // the change may fall into the middle of a round
		lines := w.until(t, " changed, ")
		rows = lines[:len(lines)-1]
		if summary := lines[len(lines)-1]; len(rows) > 0 && !strings.Contains(summary, "1 of 2 ok, 1 changed") {
			t.Errorf("the summary is %q", summary)
		}
	}
	if len(rows) != 1 || !strings.HasPrefix(rows[0], string(changing.URL())) || !strings.Contains(rows[0], "http_5xx") {
		t.Errorf("what changed: %q", rows)
	}
	if lines := w.until(t, " changed, "); len(lines) != 1 || !strings.Contains(lines[0], "1 of 2 ok, 0 changed") {
		t.Errorf("a round in which nothing changed: %q", lines)
	}
	changing.Behave(relaytest.Healthy)
	w.until(t, "2 of 2 ok, 1 changed")
	if status, _ := w.interrupt(); status != 0 || w.errs.Len() > 0 {
		t.Errorf("all were ok in the end: status %d, %s", status, w.errs)
	}
	// NIP-11 is not asked for in every round.
	if c := steady.Counters(); c.Infos != 1 || c.Upgrades < 3 {
		t.Errorf("%d NIP-11 documents with %d probes", c.Infos, c.Upgrades)
	}
}

// A relay that wants to be left alone is; JSON has a line for it in every round.
func TestCheckWatchObeysRetryAfter(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.HTTP429})
	w := startWatching(t, "--json", string(relay.URL()))
	lines := append(append(w.until(t, "{"), w.until(t, "{")...), w.until(t, "{")...)
	if !strings.Contains(lines[0], `"http_429"`) || !strings.Contains(lines[1], `"skipped"`) || !strings.Contains(lines[2], `"rate_limited"`) || !strings.Contains(lines[2], "asked not to be asked before 2") {
		t.Errorf("%q", lines)
	}
	status, _ := w.interrupt()
	if status != 1 || !strings.Contains(w.errs.String(), "1 of 1 relay is not ok") {
		t.Errorf("status %d, %s", status, w.errs)
	}
	if n := relay.Counters().Connections; n != 1 {
		t.Errorf("it was asked %d times within its two minutes", n)
	}
}

// Further rounds do not begin all at once.
func TestCheckRoundIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		checker, err := probe.New(probe.Config{
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(began))
				return nil, syscall.ECONNREFUSED
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		r := newCheckRun(checker, newGuest(2, 4), []monitor.RelayURL{"ws://192.0.2.1/", "ws://192.0.2.2/", "ws://192.0.2.3/", "ws://192.0.2.4/"})
		results := 0
		r.round(t.Context(), 4*time.Second, func(_ *monitor.Observation, changed bool) {
			results++
			if !changed {
				t.Error("a first result is news")
			}
		})
		if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(at, want) || results != 4 {
			t.Errorf("probes began at %v, %d results, want %v", at, results, want)
		}
		r.round(t.Context(), 0, func(o *monitor.Observation, changed bool) {
			if changed {
				t.Errorf("%s is as before, %s", o.Relay, o.Cause)
			}
		})
		if since := time.Since(began); since != 3*time.Second {
			t.Errorf("a round all at once took %s", since-3*time.Second)
		}
		if r.bad() != 4 || r.done() != 4 {
			t.Errorf("%d bad of %d", r.bad(), r.done())
		}
	})
}

func TestCheckProgress(t *testing.T) {
	var relays []monitor.RelayURL
	for range 30 {
		relays = append(relays, "wss://relay.example.com/")
	}
	var out, progress bytes.Buffer
	p := newCheckPrinter(&out, &progress, &checkCmd{}, relays)
	if p.progress != nil {
		t.Fatal("there is a progress line where nobody looks")
	}
	p.progress = &progress
	p.beginRound()
	p.print(&monitor.Observation{Relay: relays[0], Outcome: monitor.OutcomeOK}, true)
	p.print(&monitor.Observation{Relay: relays[0], Outcome: monitor.OutcomeFailed}, true)
	if got := progress.String(); !strings.HasSuffix(got, "\r\x1b[Kprobed 2 of 30, 1 not ok, 0 s") {
		t.Errorf("the progress is %q", got)
	}
	p.clearProgress()
	if !strings.HasSuffix(progress.String(), "\r\x1b[K") || strings.Contains(out.String(), "probed") {
		t.Errorf("%q stays, the output is %q", progress.String(), out.String())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) {
		t.Error(os.DevNull + " is no terminal")
	}
}

// Whoever reads the results may go away.
func TestCheckWatchWithoutReader(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{})
	errs := &bytes.Buffer{}
	status := run(t.Context(), []string{"check", "--watch", "1s", string(relay.URL())}, process{
		stdin: strings.NewReader(""), stdout: gone{}, stderr: errs, environ: checkEnviron(t),
	})
	if status != 3 || !strings.Contains(errs.String(), "the results could not be written: nobody reads") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// gone is an output that nobody reads any more.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestCheckWatchUsage(t *testing.T) {
	closed := "ws://" + relaytest.ClosedPort(t).String()
	for _, interval := range []string{"100ms", "0s", "10", "soon"} {
		errs := &bytes.Buffer{}
		signals := make(chan os.Signal, 1) // in case that it begins to watch
		signals <- syscall.SIGINT
		status := run(t.Context(), []string{"check", "--watch", interval, closed}, process{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: errs, environ: checkEnviron(t), signals: signals,
		})
		if status != 2 || !strings.Contains(errs.String(), "--watch") {
			t.Errorf("--watch %s: status %d, %s", interval, status, errs)
		}
	}
}

// What a relay claims and a test disproved is told, and what the write test came
// to.
func TestCheckDeep(t *testing.T) {
	right := relaytest.StartDeep(t, relaytest.DeepOptions{Notes: relaytest.Notes(20, time.Now().AddDate(0, 0, -7), time.Hour)})
	alike := relaytest.Start(t, relaytest.Options{}) // whose document claims NIP-45, 50 and 77
	paid := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.PaymentInfo})
	got := pharos(t, "", checkEnviron(t), "check", "--deep", "--write", string(right.URL()), string(alike.URL()), string(paid.URL()))
	if got.status != 0 {
		t.Fatalf("%+v", got)
	}
	for _, says := range []string{
		"; write: accepted", "confirmed: NIP-45, NIP-50, NIP-77, EOSE, filters, limit, until",
		"it answers every subscription with events", "disproved: filters", "write: not attempted",
	} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("the table does not say %q:\n%s", says, got.stdout)
		}
	}
	got = pharos(t, "", checkEnviron(t), "check", "--deep", "--write", "--json", string(right.URL()))
	for _, says := range []string{`"write":{"result":"accepted"`, `"ipv4":"answers"`, `"count":"confirmed"`, `"rtt_write_ms":`} {
		if got.status != 0 || !strings.Contains(got.stdout, says) {
			t.Errorf("JSON lacks %s: %+v", says, got)
		}
	}
}
