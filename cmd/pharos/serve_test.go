package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(postgres.WithTestCluster(m),
		// khatru's NewRelay leaves this one behind.
		goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// patience bounds every wait of these tests; on a machine with nothing else to
// do each takes a few seconds.
const patience = 2 * time.Minute

// dataDir is a directory that the private cluster's user can enter, which those
// of testing.T are not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pharos-serve-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fastConfig watches relays on loopback with the shipped rules at a pace that
// only a test may have.
func fastConfig(t *testing.T, relays ...*relaytest.Relay) Config {
	t.Helper()
	c := Default()
	c.Listen = "127.0.0.1:0"
	for _, r := range relays {
		c.Relays = append(c.Relays, string(r.URL()))
	}
	c.Discovery.Enabled = false
	c.SelfCheck.Canaries = Builtin{}
	c.Probe.Interval = Duration(time.Second)
	c.Probe.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	c.Probe.PerIP, c.Probe.PerSubnet = 64, 64
	c.Probe.TLSCAFile = relaytest.CAFile(t)
	c.Liveness.BackoffBaseDelay = Duration(500 * time.Millisecond)
	c.Liveness.BackoffMaxDelay = Duration(time.Second)
	c.Liveness.RecoveryGracePeriod = 0
	c.Live.MinCount = 1
	return c
}

// started is an app that runs, and its log.
type started struct {
	*App
	log *lockedBuffer
}

func start(t *testing.T, c Config, dir string) *started {
	t.Helper()
	s := &started{log: &lockedBuffer{}}
	app, err := New(&c, dir, false, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.App = app
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := app.Start(ctx); err != nil {
		t.Fatalf("start: %v\n%s", err, s.log)
	}
	t.Cleanup(func() { s.stop(t) })
	return s
}

// stop takes the app down as serve does; a second call does nothing.
func (s *started) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v\n%s", err, s.log)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fetch reads one path.
func fetch(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// get reads one path into v and returns the status.
func get(t *testing.T, url string, v any) int {
	t.Helper()
	status, body := fetch(t, url)
	if v != nil {
		if err := json.Unmarshal(body, v); err != nil {
			t.Fatalf("%s: %v in %.300s", url, err, body)
		}
	}
	return status
}

// live is what these tests read of /v1/live.
type live struct {
	Usable   bool    `json:"usable"`
	Fallback *string `json:"fallback"`
	Count    int     `json:"count"`
	Monitor  struct {
		Pubkey string `json:"pubkey"`
	} `json:"monitor"`
	Relays []struct {
		URL   string `json:"url"`
		State string `json:"state"`
	} `json:"relays"`
}

func (l *live) urls() []string {
	urls := []string{}
	for _, r := range l.Relays {
		urls = append(urls, r.URL)
	}
	slices.Sort(urls)
	return urls
}

func (s *started) live(t *testing.T) *live {
	t.Helper()
	l := &live{}
	if status := get(t, s.URL()+"/v1/live", l); status != http.StatusOK {
		t.Fatalf("/v1/live answers %d", status)
	}
	return l
}

// waitFor waits until the list is usable and exactly these.
func (s *started) waitFor(t *testing.T, want []string) *live {
	t.Helper()
	slices.Sort(want)
	var l *live
	s.waitUntil(t, "the list to be "+strings.Join(want, " "), func() bool {
		l = s.live(t)
		return l.Usable && slices.Equal(l.urls(), want)
	})
	return l
}

// waitUntil waits for a condition, as long as patience lasts.
func (s *started) waitUntil(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for %s\n%s", what, s.log)
		}
	}
}

// dial opens a connection to the app's own relay.
func (s *started) dial(t *testing.T) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, s.relayURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	ws.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// reports asks the app's relay for all reports, and checks every signature.
func (s *started) reports(t *testing.T) map[string]*nostr.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws := s.dial(t)
	if err := ws.Write(ctx, websocket.MessageText, []byte(`["REQ","all",{"kinds":[30166]}]`)); err != nil {
		t.Fatal(err)
	}
	events := map[string]*nostr.Event{}
	for {
		_, message, err := ws.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var parts []json.RawMessage
		if err := json.Unmarshal(message, &parts); err != nil {
			t.Fatalf("%v in %s", err, message)
		}
		switch string(parts[0]) {
		case `"EOSE"`:
			_ = ws.Close(websocket.StatusNormalClosure, "")
			return events
		case `"EVENT"`:
			ev, err := nostr.Decode(parts[2])
			if err != nil {
				t.Fatal(err)
			}
			if err := nostr.Verify(ev); err != nil {
				t.Errorf("a report does not verify: %v", err)
			}
			d := ev.Tags.GetD()
			if events[d] != nil {
				t.Errorf("two reports on %s", d)
			}
			events[d] = ev
		default:
			t.Fatalf("unexpected message %s", message)
		}
	}
}

// scrape reads /metrics: values by name and labels.
func (s *started) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	status, body := fetch(t, s.URL()+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %.300s", status, body)
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			values[name] = v
		}
	}
	return values
}

func keys(m map[string]*nostr.Event) []string {
	out := []string{}
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func urlsOf(relays ...*relaytest.Relay) []string {
	out := []string{}
	for _, r := range relays {
		out = append(out, string(r.URL()))
	}
	slices.Sort(out)
	return out
}

// The whole way of an observation, through a private database: relays in, a
// list and signed reports out, over a departure and a restart.
func TestServe(t *testing.T) {
	plain := relaytest.StartMany(t, 12, relaytest.Options{})
	tls := relaytest.StartMany(t, 2, relaytest.Options{TLS: true})
	mute := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.Mute})
	closed := relaytest.Start(t, relaytest.Options{})
	closed.Stop()
	healthy := append(slices.Clone(plain), tls...)

	c := fastConfig(t, append(slices.Clone(healthy), mute, closed)...)
	c.Probe.Timeouts.Read = Duration(time.Second)
	// The vantage asks for its canary where it would ask for relays' names.
	names := relaytest.StartDNS(t, map[string]relaytest.Name{"canary.example": {Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}})
	c.Probe.Resolvers = []string{names.Addr().String()}
	c.SelfCheck.Canaries = Builtin{List: []string{"dns://canary.example"}}
	dir := dataDir(t)
	s := start(t, c, dir)
	l := s.waitFor(t, urlsOf(healthy...))
	pubkey := l.Monitor.Pubkey
	if len(pubkey) != 64 || pubkey != s.pubkey {
		t.Errorf("pubkey %q, ours is %q", pubkey, s.pubkey)
	}
	if !strings.Contains(s.log.String(), "npub1") || strings.Contains(s.log.String(), "nsec1") {
		t.Errorf("the log names no npub, or a key:\n%s", s.log)
	}

	var online []string
	if status := get(t, s.URL()+"/v1/online", &online); status != http.StatusOK {
		t.Errorf("/v1/online answers %d", status)
	}
	if diff := cmp.Diff(urlsOf(healthy...), online); diff != "" {
		t.Errorf("/v1/online (-want +got):\n%s", diff)
	}
	before := s.reports(t)
	if diff := cmp.Diff(urlsOf(healthy...), keys(before)); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if status := get(t, s.URL()+"/readyz", nil); status != http.StatusOK {
		t.Errorf("/readyz answers %d", status)
	}
	if names.Queries() == 0 {
		t.Error("the canary was not asked for at the resolver of the configuration")
	}
	metrics := s.scrape(t)
	for name, least := range map[string]float64{
		`pharos_vantage_probes_waiting{vantage="local"}`:             0,
		`pharos_vantage_probes_parked{vantage="local"}`:              0,
		`pharos_vantage_probe_rate{vantage="local"}`:                 1,
		`pharos_vantage_probes_panicked_total{vantage="local"}`:      0,
		`pharos_vantage_probes_expedited_total{vantage="local"}`:     0,
		`pharos_vantage_expedites_dropped_total{vantage="local"}`:    0,
		`pharos_vantage_batches_delivered_total{vantage="local"}`:    1,
		`pharos_vantage_delivery_failures_total{vantage="local"}`:    0,
		`pharos_vantage_observations_queued{vantage="local"}`:        0,
		`pharos_vantage_observations_dropped_total{vantage="local"}`: 0,
		`pharos_vantage_documents_dropped_total{vantage="local"}`:    0,
		`pharos_relay_connections`:                                   0,
		`pharos_relay_subscriptions`:                                 0,
		`pharos_relay_events_stored`:                                 float64(len(healthy)),
		`pharos_relay_events_sent_total`:                             float64(len(healthy)),
		`pharos_relay_slow_clients_total`:                            0,
		`pharos_relay_rate_limited_total`:                            0,
		`pharos_relay_refused_connections_total`:                     0,
		`pharos_backup_last_success_timestamp_seconds`:               0,
		`pharos_host_warnings`:                                       0,
		// The API's own are there too.
		`pharos_relays_listed`: float64(len(healthy)),
	} {
		if got, ok := metrics[name]; !ok || got < least {
			t.Errorf("/metrics: %s is %v, there %t, want at least %v", name, got, ok, least)
		}
	}

	// A second process on the same data is refused.
	second, err := New(&c, dir, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var refusal *exitError
	if err := second.Start(t.Context()); !errors.As(err, &refusal) || refusal.status != exitStart || !strings.Contains(refusal.text, "uses the data directory") {
		t.Errorf("a second process: %v", err)
	}

	// One relay goes away; nothing else does.
	gone := healthy[0]
	gone.Stop()
	healthy = healthy[1:]
	s.waitFor(t, urlsOf(healthy...))
	if diff := cmp.Diff(urlsOf(healthy...), keys(s.reports(t))); diff != "" {
		t.Errorf("reports after a departure (-want +got):\n%s", diff)
	}
	var down struct {
		Relays []struct {
			URL   string        `json:"url"`
			State monitor.State `json:"state"`
			Cause monitor.Cause `json:"cause"`
		} `json:"relays"`
	}
	if status := get(t, s.URL()+"/v1/offline-set", &down); status != http.StatusOK {
		t.Errorf("/v1/offline-set answers %d", status)
	}
	found := false
	for _, r := range down.Relays {
		if r.URL == string(gone.URL()) {
			found = r.Cause == monitor.CauseConnRefused
		}
	}
	if !found {
		t.Errorf("the offline set is %+v", down.Relays)
	}

	// On the way down subscribers are told so.
	ws := s.dial(t)
	farewell := make(chan error, 1)
	go func() {
		_, _, err := ws.Read(context.Background())
		farewell <- err
	}()
	before = s.reports(t)
	s.stop(t)
	select {
	case err := <-farewell:
		if websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the subscriber saw %v, not 1001", err)
		}
	case <-time.After(patience):
		t.Error("the subscriber was not told")
	}

	// Back again: the same list at once, by the same key, nothing older.
	s = start(t, c, dir)
	l = s.live(t)
	if diff := cmp.Diff(urlsOf(healthy...), l.urls()); diff != "" || !l.Usable {
		t.Errorf("at once after a restart, usable %v (-want +got):\n%s", l.Usable, diff)
	}
	if l.Monitor.Pubkey != pubkey {
		t.Errorf("the pubkey is %s, was %s", l.Monitor.Pubkey, pubkey)
	}
	after := s.reports(t)
	if diff := cmp.Diff(keys(before), keys(after)); diff != "" {
		t.Errorf("reports after a restart (-before +after):\n%s", diff)
	}
	for d, ev := range after {
		if old := before[d]; old != nil && ev.CreatedAt < old.CreatedAt {
			t.Errorf("the report on %s went back from %d to %d", d, old.CreatedAt, ev.CreatedAt)
		}
	}
	s.waitFor(t, urlsOf(healthy...))
}

// Two vantages of different groups in one process, on a database of the
// operator's.
func TestServeTwoVantagesOnADatabase(t *testing.T) {
	relays := relaytest.StartMany(t, 3, relaytest.Options{})
	c := fastConfig(t, relays...)
	c.Database.URL = DSN(postgres.TestDatabase(t))
	c.Vantages = []Vantage{
		{Name: "one", Group: "a", SourceAddress: netip.MustParseAddr("127.77.0.1")},
		{Name: "two", Group: "b", SourceAddress: netip.MustParseAddr("127.77.0.2")},
	}
	s := start(t, c, dataDir(t))
	s.waitFor(t, urlsOf(relays...))
	var status struct {
		Vantages []struct {
			Name, Group string
			Healthy     bool
		} `json:"vantages"`
	}
	if code := get(t, s.URL()+"/v1/status", &status); code != http.StatusOK {
		t.Errorf("/v1/status answers %d", code)
	}
	if len(status.Vantages) != 2 || status.Vantages[0].Name != "one" || status.Vantages[1].Group != "b" {
		t.Errorf("vantages are %+v", status.Vantages)
	}
	// One of them is cut off from every relay: nothing changes, whatever it
	// sends, and the other one's reports go on.
	for _, r := range relays {
		r.CutOff(netip.MustParseAddr("127.77.0.2"))
	}
	s.waitUntil(t, "the second vantage to see every relay down", func() bool {
		for _, r := range relays {
			var view struct {
				Vantages []struct{ Vote string }
			}
			get(t, s.URL()+"/v1/relay?url="+string(r.URL()), &view)
			if len(view.Vantages) != 2 || view.Vantages[0].Vote != "up" || !slices.Contains([]string{"suspect", "down", "dead"}, view.Vantages[1].Vote) {
				return false
			}
		}
		return true
	})
	s.waitFor(t, urlsOf(relays...))
	var history struct {
		Transitions []struct {
			From string `json:"from_state"`
		} `json:"transitions"`
	}
	get(t, s.URL()+"/v1/transitions", &history)
	if len(history.Transitions) != len(relays) {
		t.Errorf("%d transitions, want the first verdicts alone: %+v", len(history.Transitions), history.Transitions)
	}
	s.stop(t)

	// Another key on the same database is refused, but for --new-key.
	c.Key.File = dataDir(t) + "/other.key"
	other, err := New(&c, dataDir(t), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var refusal *exitError
	if err := other.Start(t.Context()); !errors.As(err, &refusal) || refusal.status != exitStart || !strings.Contains(refusal.text, "--new-key") {
		t.Errorf("another key: %v", err)
	}
	wanted, err := New(&c, dataDir(t), true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := wanted.Start(t.Context()); err != nil {
		t.Fatalf("another key that is wanted: %v", err)
	}
	(&started{App: wanted, log: &lockedBuffer{}}).stop(t)
	// It is the database's key from then on.
	start(t, c, dataDir(t))
}

// The command, from its arguments to its exit status, and the health check
// beside it.
func TestServeCommand(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{})
	signals := make(chan os.Signal, 1)
	log := &lockedBuffer{}
	status := make(chan int, 1)
	go func() {
		status <- run(context.Background(), []string{
			"--config", "testdata/config/good/minimal.yaml", "--listen", "127.0.0.1:0", "--data-dir", dataDir(t), "serve",
		}, process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: log, signals: signals, environ: []string{
			"PHAROS_RELAYS=" + string(relay.URL()), "PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_PROBE_INTERVAL=12s",
			"PHAROS_DISCOVERY_ENABLED=false", "PHAROS_SELF_CHECK_CANARIES=[]", "PHAROS_DATABASE_URL=" + postgres.TestDatabase(t),
		}})
	}()
	url := waitForLog(t, log, "msg=ready", "live=")
	if got := pharos(t, "", nil, "health", strings.TrimSuffix(url, "/v1/live")); got.status != 0 {
		t.Errorf("health: %+v", got)
	}
	if got := get(t, url, nil); got != http.StatusOK {
		t.Errorf("the URL that is told answers %d", got)
	}
	signals <- syscall.SIGTERM
	select {
	case got := <-status:
		if got != 0 {
			t.Errorf("exit status %d\n%s", got, log)
		}
	case <-time.After(patience):
		t.Fatalf("it does not end\n%s", log)
	}
}

// A start that hangs in the system keeps nobody longer than a shutdown may take.
func TestBreakOffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
		defer cancel()
		c := &command{log: slog.New(slog.DiscardHandler)}
		var refusal *exitError
		if err := c.breakOff(ctx, nil, make(chan error)); !errors.As(err, &refusal) || refusal.status != exitStart {
			t.Errorf("it ends with %v", err)
		}
		if took := time.Since(begun); took != stopLimit {
			t.Errorf("it took %s", took)
		}
	})
}

// A signal during the start ends the command, with a limit to it.
func TestServeBrokenOff(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	log := &lockedBuffer{}
	status := make(chan int, 1)
	go func() {
		status <- run(context.Background(), []string{
			"--config", "testdata/config/good/minimal.yaml", "--listen", "127.0.0.1:0", "--data-dir", dataDir(t), "serve",
		}, process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: log, signals: signals, environ: []string{
			"PHAROS_DATABASE_URL=postgres://pharos@" + silent.Addr().String() + "/pharos?sslmode=disable",
		}})
	}()
	select {
	case got := <-status:
		if got != 0 || !strings.Contains(log.String(), "stopping before everything was up") {
			t.Errorf("exit status %d\n%s", got, log)
		}
	case <-time.After(patience):
		t.Fatalf("it does not end\n%s", log)
	}
}

// waitForLog waits for a line with mark and returns the value of field in it.
func waitForLog(t *testing.T, log *lockedBuffer, mark, field string) string {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for line := range strings.SplitSeq(log.String(), "\n") {
			if _, rest, ok := strings.Cut(line, field); ok && strings.Contains(line, mark) {
				value, _, _ := strings.Cut(rest, " ")
				return value
			}
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no line %q\n%s", mark, log)
		}
	}
}
