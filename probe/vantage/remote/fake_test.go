package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

// fakeCore is a core as the contract has it, in memory: it verifies signatures,
// takes each event once, keeps the high-water mark, and answers tasks with deltas.
type fakeCore struct {
	*httptest.Server
	t      testing.TB
	pubkey string
	token  string // of the invitation, "" = none

	mu       sync.Mutex
	skew     time.Duration // of its clock
	ids      map[string]bool
	lastSeq  uint64
	stored   []monitor.Batch
	versions []map[monitor.RelayURL]monitor.Task // by version-1
	rules    wire.Rules
	next     wire.Answer // to the next batch
	requests []string    // method, path and what it came to
	// intercept, when set, may answer in its place: it returns true then. It is
	// asked with the request's body before anything is verified.
	intercept func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// lose: the next batch is stored, but its answer is lost.
	lose bool
	came chan struct{} // told of each request that was answered
}

func newFakeCore(t testing.TB, key nostr.Key) *fakeCore {
	t.Helper()
	f := &fakeCore{
		t: t, pubkey: key.Pubkey(), ids: map[string]bool{}, came: make(chan struct{}, 10_000),
		rules: wire.Rules{Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness()},
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// watch makes a new version of the tasks.
func (f *fakeCore) watch(relays ...monitor.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[monitor.RelayURL]monitor.Task{}
	for _, r := range relays {
		list[r.Relay] = r
	}
	f.versions = append(f.versions, list)
}

func (f *fakeCore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeCore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { f.came <- struct{}{} }()
	body, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxBody+1))
	if err != nil {
		return // the client is gone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rec := &recorder{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		f.requests = append(f.requests, fmt.Sprintf("%s %s %d", r.Method, r.URL.RequestURI(), rec.status))
	}()
	if f.intercept != nil && f.intercept(rec, r, body) {
		return
	}
	now := time.Now().Add(f.skew)
	auth, err := nostr.VerifyHTTPAuth(r.Header.Get("Authorization"), nostr.HTTPRequest{Method: r.Method, URLs: []string{f.URL + r.URL.RequestURI()}, Now: now})
	if err == nil {
		err = auth.MatchBody(body)
	}
	if err == nil && f.ids[auth.ID] {
		err = errors.New("this event was used before")
	}
	if err != nil {
		rec.Header().Set("X-Pharos-Time", now.UTC().Format(time.RFC3339Nano))
		refuse(rec, http.StatusUnauthorized, err.Error(), nil)
		return
	}
	f.ids[auth.ID] = true
	switch r.URL.Path {
	case "/v1/vantages/enrol":
		f.enrol(rec, auth.Pubkey, body)
		return
	case "/v1/vantages/berlin/tasks", "/v1/vantages/berlin/observations":
	default:
		refuse(rec, http.StatusNotFound, "no such vantage", nil)
		return
	}
	if auth.Pubkey != f.pubkey {
		refuse(rec, http.StatusForbidden, "this is not the vantage's key", nil)
		return
	}
	if r.Method == http.MethodGet {
		f.answerTasks(rec, r, now)
		return
	}
	f.observe(rec, r, body)
}

func (f *fakeCore) enrol(w http.ResponseWriter, pubkey string, body []byte) {
	var e wire.Enrolment
	if err := json.Unmarshal(body, &e); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error(), nil)
		return
	}
	if e.Token != f.token || f.pubkey != "" && pubkey != f.pubkey {
		refuse(w, http.StatusForbidden, "the token is wrong or used", nil)
		return
	}
	f.pubkey = pubkey
	answer(w, wire.Enrolled{Name: "berlin", Group: "hetzner"})
}

func (f *fakeCore) answerTasks(w http.ResponseWriter, r *http.Request, now time.Time) {
	version := len(f.versions)
	etag := fmt.Sprintf(`"%d-%d"`, version, f.rules.Cadence.Interval/time.Second)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	t := wire.Tasks{Version: uint64(version), LastSeq: f.lastSeq, Rules: f.rules, ServerTime: now}
	list := f.versions[version-1]
	since, _ := strconv.Atoi(r.URL.Query().Get("since"))
	old := map[monitor.RelayURL]monitor.Task{}
	if since > 0 && since <= version {
		old, t.Base = f.versions[since-1], uint64(since)
	}
	for u, task := range list {
		if before, ok := old[u]; !ok || before != task {
			t.Set = append(t.Set, task)
		}
	}
	for u := range old {
		if _, ok := list[u]; !ok {
			t.Removed = append(t.Removed, u)
		}
	}
	w.Header().Set("ETag", etag)
	answer(w, t)
}

func (f *fakeCore) observe(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		refuse(w, http.StatusUnsupportedMediaType, "not gzip", nil)
		return
	}
	b, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error(), nil)
		return
	}
	if b.Seq <= f.lastSeq {
		refuse(w, http.StatusConflict, "this batch is not the next", map[string]any{"last_seq": f.lastSeq})
		return
	}
	f.lastSeq = b.Seq
	f.stored = append(f.stored, *b)
	if f.lose {
		f.lose = false
		panic(http.ErrAbortHandler)
	}
	a := f.next
	a.Stored = b.Seq
	f.next = wire.Answer{}
	answer(w, a)
}

// seqs are the numbers of the batches that are stored, in their order.
func (f *fakeCore) seqs() (out []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.stored {
		out = append(out, b.Seq)
	}
	return out
}

// batches are those that are stored.
func (f *fakeCore) batches() []monitor.Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stored)
}

func (f *fakeCore) asked() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, f.requests = f.requests, nil
	return out
}

// await waits until done says so, looking after each request.
func (f *fakeCore) await(what string, done func() bool) {
	f.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond) // for what happens after the answer
	defer tick.Stop()
	for !done() {
		select {
		case <-f.came:
		case <-tick.C:
		case <-limit.C:
			f.t.Fatalf("waited in vain: %s", what)
		}
	}
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, detail string, more map[string]any) {
	p := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail}
	for k, v := range more {
		p[k] = v
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

// logs is a log that a test reads.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func newKey(t testing.TB) nostr.Key {
	t.Helper()
	k, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// open makes a Core that is closed at the end of the test.
func open(t *testing.T, cfg remote.Config) (*remote.Core, *logs) {
	t.Helper()
	l := &logs{}
	if cfg.Name == "" {
		cfg.Name = "berlin"
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	var w io.Writer = l
	if testing.Verbose() {
		w = io.MultiWriter(l, os.Stderr)
	}
	cfg.Log = slog.New(slog.NewTextHandler(w, nil))
	c, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, l
}

// background runs c until the returned function is called, which tells what Run
// returned.
func background(t *testing.T, c *remote.Core) (stop func() error) {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- c.Run(ctx) }()
	c.AwaitRun()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// observed is a batch of n observations.
func observed(seq uint64, n int) monitor.Batch {
	now := time.Now().Round(0)
	b := monitor.Batch{Vantage: "berlin", Seq: seq, SentAt: now, Health: monitor.Health{Watched: n}}
	for i := range n {
		b.Observations = append(b.Observations, monitor.Observation{
			Relay: monitor.RelayURL(fmt.Sprintf("wss://relay%d.example.com/", i)), Vantage: "berlin",
			Start: now.Add(-time.Second), At: now, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead, Evidence: fmt.Sprint(seq),
		})
	}
	return b
}

func relayTask(u monitor.RelayURL) monitor.Task { return monitor.Task{Relay: u} }
