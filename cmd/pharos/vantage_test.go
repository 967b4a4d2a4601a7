package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

const vantageToken = "one-time-token-of-the-invitation"

// vantageCore is what a vantage needs of a core: it verifies signatures, enrols
// one vantage, names tasks and stores batches.
type vantageCore struct {
	*httptest.Server
	tasks []monitor.Task

	mu       sync.Mutex
	pubkey   string // enrolled
	software string
	agent    string // of the newest batch
	revoked  bool
	away     bool // for batches
	interval time.Duration
	lastSeq  uint64
	outcomes map[monitor.RelayURL][]monitor.Outcome
}

func newVantageCore(t *testing.T, relays ...*relaytest.Relay) *vantageCore {
	t.Helper()
	k := &vantageCore{interval: time.Second, outcomes: map[monitor.RelayURL][]monitor.Outcome{}}
	for _, r := range relays {
		k.tasks = append(k.tasks, monitor.Task{Relay: r.URL()})
	}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *vantageCore) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func (k *vantageCore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxBody))
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	auth, err := nostr.VerifyHTTPAuth(r.Header.Get("Authorization"), nostr.HTTPRequest{Method: r.Method, URLs: []string{k.URL + r.URL.RequestURI()}, Now: time.Now()})
	if err == nil {
		err = auth.MatchBody(body)
	}
	problem := func(status int, detail string) {
		problemAnswer(w, status, fmt.Sprintf(`{"status":%d,"detail":%q,"last_seq":%d}`, status, detail, k.lastSeq))
	}
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	var e wire.Enrolment
	switch {
	case err != nil:
		problem(http.StatusUnauthorized, err.Error())
	case r.URL.Path == "/v1/vantages/enrol":
		if err := json.Unmarshal(body, &e); err != nil || e.Token != vantageToken || k.pubkey != "" && k.pubkey != auth.Pubkey {
			problem(http.StatusForbidden, "this token is wrong, used or too old")
			return
		}
		k.pubkey, k.software = auth.Pubkey, e.Software
		reply(wire.Enrolled{Name: "berlin", Group: "hetzner"})
	case k.revoked || auth.Pubkey != k.pubkey:
		problem(http.StatusForbidden, "revoked")
	case r.URL.Path == "/v1/vantages/berlin/tasks":
		rules := wire.Rules{Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness()}
		rules.Cadence.Interval, rules.Cadence.FirstWithin = k.interval, k.interval
		rules.Liveness.BackoffBaseDelay, rules.Liveness.BackoffMaxDelay = 500*time.Millisecond, time.Second
		etag := fmt.Sprintf(`"1-%s"`, k.interval)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", etag)
		reply(wire.Tasks{Version: 1, Set: k.tasks, LastSeq: k.lastSeq, Rules: rules, ServerTime: time.Now()})
	case k.away:
		problem(http.StatusServiceUnavailable, "the store is away")
	case r.URL.Path == "/v1/vantages/berlin/observations":
		b, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
		switch {
		case err != nil:
			problem(http.StatusUnprocessableEntity, err.Error())
			return
		case b.Seq <= k.lastSeq:
			problem(http.StatusConflict, "not the next")
			return
		}
		k.lastSeq, k.agent = b.Seq, r.UserAgent()
		for _, o := range b.Observations {
			k.outcomes[o.Relay] = append(k.outcomes[o.Relay], o.Outcome)
		}
		reply(wire.Answer{Stored: b.Seq})
	default:
		problem(http.StatusNotFound, "no such vantage")
	}
}

// seen reports whether every relay was seen so often with outcome o.
func (k *vantageCore) seen(o monitor.Outcome, times int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tasks {
		n := 0
		for _, got := range k.outcomes[t.Relay] {
			if got == o {
				n++
			}
		}
		if n < times {
			return false
		}
	}
	return true
}

// runningVantage is a pharos vantage that runs.
type runningVantage struct {
	t       *testing.T
	out     *lockedBuffer
	signals chan os.Signal
	hangups chan os.Signal
	done    chan int
}

func startVantage(t *testing.T, environ []string, args ...string) *runningVantage {
	t.Helper()
	v := &runningVantage{t, &lockedBuffer{}, make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan int, 1)}
	environ = append([]string{
		"PHAROS_CONFIG=testdata/config/good/empty.yaml", "PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_SELF_CHECK_CANARIES=[]",
		"PHAROS_PROBE_TLS_CA_FILE=" + relaytest.CAFile(t),
	}, environ...)
	go func() {
		v.done <- run(t.Context(), args, process{
			stdin: strings.NewReader(""), stdout: v.out, stderr: v.out, environ: environ, signals: v.signals, hangups: v.hangups,
		})
	}()
	return v
}

// end sends SIGTERM and returns the exit status.
func (v *runningVantage) end() int {
	v.t.Helper()
	v.signals <- syscall.SIGTERM
	return v.wait()
}

func (v *runningVantage) wait() int {
	v.t.Helper()
	select {
	case status := <-v.done:
		return status
	case <-time.After(patience):
		v.t.Fatalf("it does not end\n%s", v.out)
		return 0
	}
}

func (v *runningVantage) await(what string, done func() bool) {
	v.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case status := <-v.done:
			v.t.Fatalf("it ended with status %d\n%s", status, v.out)
		case <-limit:
			v.t.Fatalf("waited in vain: %s\n%s", what, v.out)
		}
	}
}

// A vantage enrols once, probes what the core names, keeps what the core does not
// take, and is stopped by a signal; later starts need no token.
func TestVantage(t *testing.T) {
	core := newVantageCore(t, relaytest.Start(t, relaytest.Options{TLS: true}), relaytest.Start(t, relaytest.Options{}))
	dir := filepath.Join(t.TempDir(), "vantage")
	args := []string{"--data-dir", dir, "vantage", "--core", core.URL}

	v := startVantage(t, []string{tokenVariable + "=" + vantageToken, "PHAROS_PROBE_USER_AGENT=probe/1"}, args...)
	v.await("two rounds", func() bool { return core.seen(monitor.OutcomeOK, 2) })
	if status := v.end(); status != exitFine {
		t.Errorf("status %d\n%s", status, v.out)
	}
	for _, want := range []string{"enrolled", "name=berlin group=hetzner", "following the core's rules\" interval=1s", "msg=stopped"} {
		if !strings.Contains(v.out.String(), want) {
			t.Errorf("the log does not contain %q\n%s", want, v.out)
		}
	}
	if !strings.HasPrefix(core.software, "pharos/") || core.agent != core.software {
		t.Errorf("software %q, batches by %q", core.software, core.agent)
	}
	for _, name := range []string{"vantage.key", "vantage.json"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, error %v; want mode 0600", name, st, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, "vantage.json"))
	if err != nil || strings.Contains(string(kept), vantageToken) || strings.Contains(v.out.String(), vantageToken) {
		t.Errorf("the token was kept or logged (error %v)\n%s\n%s", err, kept, v.out)
	}

	// Again, without a token, while the core takes nothing: it stays on the disk.
	core.set(func() {
		core.away = true
		maps.DeleteFunc(core.outcomes, func(monitor.RelayURL, []monitor.Outcome) bool { return true })
	})
	v = startVantage(t, nil, args...)
	batches := func() int {
		files, err := filepath.Glob(filepath.Join(dir, "spool", "*.batch"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	v.await("spooled batches", func() bool { return batches() >= 2 })
	if status := v.end(); status != exitFine {
		t.Errorf("status %d\n%s", status, v.out)
	}
	if batches() < 2 || core.seen(monitor.OutcomeOK, 1) {
		t.Errorf("%d batches on the disk", batches())
	}
	core.set(func() { core.away = false })
	v = startVantage(t, nil, append(args, "--token", "not-needed-any-more")...)
	v.await("what was spooled", func() bool { return core.seen(monitor.OutcomeOK, 1) && batches() == 0 })
	if status := v.end(); status != exitFine || !strings.Contains(v.out.String(), "the token is not needed") {
		t.Errorf("status %d\n%s", status, v.out)
	}
}

func TestVantageRevoked(t *testing.T) {
	core := newVantageCore(t, relaytest.Start(t, relaytest.Options{}))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(vantageToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	v := startVantage(t, nil, "--data-dir", dir, "vantage", "--core", core.URL, "--token-file", token)
	v.await("a first batch", func() bool { return core.seen(monitor.OutcomeOK, 1) })
	core.set(func() { core.revoked = true })
	if status := v.wait(); status != exitBad || !strings.Contains(v.out.String(), "pharos: this vantage was revoked on the core; ") {
		t.Errorf("status %d\n%s", status, v.out)
	}
}

// SIGHUP takes over what the configuration says of probes; a wrong one changes
// nothing.
func TestVantageReload(t *testing.T) {
	relay, agents := startSpy(t)
	core := newVantageCore(t, relay)
	file := filepath.Join(t.TempDir(), "pharos.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("probe: {user_agent: before/1}")
	v := startVantage(t, []string{tokenVariable + "=" + vantageToken}, "--config", file, "--data-dir", t.TempDir(), "vantage", "--core", core.URL)
	next := func(want string) {
		t.Helper()
		limit := time.After(patience)
		for got := ""; got != want; {
			select {
			case got = <-agents:
			case <-limit:
				t.Fatalf("no probe by %q\n%s", want, v.out)
			}
		}
	}
	next("before/1")
	configure("probe: {user_agent: [}")
	v.hangups <- syscall.SIGHUP
	v.await("the refusal", func() bool { return strings.Contains(v.out.String(), "configuration not reloaded: nothing changed") })
	configure("probe: {user_agent: after/1}")
	v.hangups <- syscall.SIGHUP
	next("after/1")
	// The rules of the core's are followed when they change, and stay those after a
	// reload.
	core.set(func() { core.interval = 2 * time.Second })
	v.await("the new rules", func() bool { return strings.Contains(v.out.String(), "interval=2s") })
	if status := v.end(); status != exitFine {
		t.Errorf("status %d\n%s", status, v.out)
	}
}

func TestVantageRefuses(t *testing.T) {
	core, other := newVantageCore(t), newVantageCore(t)
	enrolled := func(t *testing.T) string {
		dir := t.TempDir()
		key, err := openVantageKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		e := enrolment{Core: core.URL, Name: "berlin", Group: "berlin", Pubkey: key.Pubkey(), Enrolled: time.Now()}
		if err := e.save(filepath.Join(dir, "vantage.json")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	damaged := func(t *testing.T) string {
		dir := enrolled(t)
		if err := os.WriteFile(filepath.Join(dir, "vantage.json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	keyless := func(t *testing.T) string {
		dir := enrolled(t)
		if err := os.Remove(filepath.Join(dir, "vantage.key")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	busy := func(t *testing.T) string {
		dir := enrolled(t)
		lock, err := lockDataDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.release() })
		return dir
	}
	empty := func(t *testing.T) string { return t.TempDir() }
	closed := "http://" + relaytest.ClosedPort(t).String()
	const secret = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	for name, c := range map[string]struct {
		dir    func(t *testing.T) string
		args   []string
		status int
		want   string
	}{
		"no core":               {empty, nil, 2, "missing flags: --core=URL"},
		"no URL":                {empty, []string{"--core", "pharos"}, 2, "is no URL"},
		"another scheme":        {empty, []string{"--core", "wss://pharos.example.com"}, 2, `the scheme "wss": write https://`},
		"in the clear":          {empty, []string{"--core", "http://pharos.example.com"}, 2, "write https://, or give --insecure"},
		"a public address":      {empty, []string{"--core", "http://8.8.8.8"}, 2, "write https://, or give --insecure"},
		"a password in it":      {empty, []string{"--core", "https://a:" + vantageToken + "@example.com"}, 2, "user name or password"},
		"not enrolled":          {empty, []string{"--core", core.URL}, 2, "is not enrolled as a vantage yet"},
		"two tokens":            {empty, []string{"--core", core.URL, "--token", vantageToken, "--token-file", "/dev/null"}, 2, "given twice"},
		"no token file":         {empty, []string{"--core", core.URL, "--token-file", "no.txt"}, 2, `"no.txt" cannot be read: there is no such file`},
		"a secret key as token": {empty, []string{"--core", core.URL, "--token", secret}, 2, "is a secret key, and was sent to nobody"},
		"a wrong token":         {empty, []string{"--core", core.URL, "--token", vantageToken + "x"}, 3, "could not be enrolled as a vantage of " + core.URL + ": enrol: the core answers 403: this token is wrong, used or too old"},
		"nobody there":          {empty, []string{"--core", closed, "--token", vantageToken}, 3, closed + " was not reached"},
		"another core":          {enrolled, []string{"--core", other.URL, "--token", vantageToken}, 2, "enrolled as vantage berlin of " + core.URL + ", not of " + other.URL},
		"another key":           {keyless, []string{"--core", core.URL}, 3, "is not the one that was enrolled"},
		"damaged enrolment":     {damaged, []string{"--core", core.URL}, 3, "vantage.json is damaged"},
		"two processes":         {busy, []string{"--core", core.URL}, 3, "uses the data directory"},
	} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"--data-dir", c.dir(t), "vantage"}, c.args)
			v := startVantage(t, nil, args...)
			status := v.wait()
			text := v.out.String()
			if status != c.status || !strings.Contains(text, c.want) {
				t.Errorf("status %d, want %d and %q\n%s", status, c.status, c.want, text)
			}
			if strings.Contains(text, vantageToken) || strings.Contains(text, secret) {
				t.Errorf("a secret is shown\n%s", text)
			}
		})
	}
	if other.pubkey != "" || core.pubkey != "" {
		t.Error("somebody was enrolled")
	}
}

// Interrupted while the core keeps it waiting, it ends at once.
func TestVantageInterrupted(t *testing.T) {
	asked := make(chan struct{})
	core := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
	}))
	defer core.Close()
	v := startVantage(t, nil, "--data-dir", t.TempDir(), "vantage", "--core", core.URL, "--token", vantageToken)
	<-asked
	if status := v.end(); status != exitFine {
		t.Errorf("status %d\n%s", status, v.out)
	}
}

func TestVantageDir(t *testing.T) {
	c := Default()
	if user, root := c.vantageDir(1000), c.vantageDir(0); user != "pharos-vantage" || root != "/var/lib/pharos-vantage" {
		t.Errorf("%s, %s", user, root)
	}
	if c.DataDir = "/srv/v"; c.vantageDir(0) != "/srv/v" {
		t.Error("data_dir is not used")
	}
}
