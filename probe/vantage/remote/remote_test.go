package remote_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
	"github.com/pharos-nostr/pharos/probe/vantage"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

var _ vantage.Core = (*remote.Core)(nil)

// deliver delivers and wants no error.
func deliver(t *testing.T, c *remote.Core, b monitor.Batch) monitor.Answer {
	t.Helper()
	a, err := c.Deliver(t.Context(), b)
	if err != nil {
		t.Fatalf("deliver batch %d: %v", b.Seq, err)
	}
	return a
}

// spooled are the names of the batches on the disk.
func spooled(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "spool", "*.batch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return names
}

func TestDeliver(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	due := time.Now().Add(time.Minute).UTC().Round(time.Second)
	f.next = wire.Answer{Expedite: []monitor.RelayURL{"wss://relay1.example.com/"}, Due: map[monitor.RelayURL]time.Time{"wss://relay2.example.com/": due}}
	c, _ := open(t, remote.Config{URL: f.URL + "/", Key: key, Dir: dir, UserAgent: "pharos/test"})
	background(t, c)

	b := observed(1, 3)
	got := deliver(t, c, b)
	want := monitor.Answer{Expedite: []monitor.RelayURL{"wss://relay1.example.com/"}, Due: map[monitor.RelayURL]time.Time{"wss://relay2.example.com/": due}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got)\n%s", diff)
	}
	if stored := f.batches(); len(stored) != 1 || len(stored[0].Observations) != 3 || !stored[0].Observations[1].At.Equal(b.Observations[1].At) {
		t.Errorf("stored %+v", stored)
	}
	if got := spooled(t, dir); len(got) != 0 {
		t.Errorf("still on the disk: %q", got)
	}
	if got = deliver(t, c, observed(2, 0)); len(got.Expedite)+len(got.Due) > 0 {
		t.Errorf("answered twice: %+v", got)
	}
	if _, err := c.Deliver(t.Context(), observed(2, 1)); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("a number used twice: error %v", err)
	}
	if s := c.Stats(); s.Sent != 2 || s.Reached.IsZero() || s.Failures != 0 || s.Problem != "" {
		t.Errorf("stats %+v", s)
	}
}

// While the core is away batches are kept, and go out in order once it is back,
// those of an earlier process first; each tells the present time as that of its
// sending.
func TestSpoolSurvives(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	f.watch(relayTask("wss://relay1.example.com/"))
	down := true
	f.intercept = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		if down {
			w.WriteHeader(http.StatusBadGateway)
		}
		return down
	}
	cfg := remote.Config{URL: f.URL, Key: key, Dir: dir, Name: "berlin"}
	first, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := background(t, first)
	for seq := uint64(5); seq < 8; seq++ {
		b := observed(seq, 2)
		b.SentAt = b.SentAt.Add(-3 * time.Hour)
		deliver(t, first, b)
	}
	if s := first.Stats(); s.Batches != 3 || s.Observations != 6 || s.Bytes == 0 || !strings.Contains(s.Problem, "HTTP status 502") {
		t.Errorf("stats %+v", s)
	}
	if _, err := remote.New(cfg); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second process: error %v", err)
	}
	_ = stop()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	f.set(func() { down, f.lastSeq = false, 2 })
	c, l := open(t, cfg)
	tasks, err := c.Tasks(t.Context(), "berlin", 0)
	if err != nil || tasks.LastSeq != 7 {
		t.Fatalf("tasks %+v, error %v; want the spool's last number", tasks, err)
	}
	background(t, c)
	deliver(t, c, observed(8, 1))
	f.await("four batches", func() bool { return len(f.seqs()) == 4 })
	if got := f.seqs(); !slices.Equal(got, []uint64{5, 6, 7, 8}) {
		t.Errorf("stored %v", got)
	}
	for _, b := range f.batches() {
		if skew := time.Since(b.SentAt).Abs(); skew > time.Minute {
			t.Errorf("batch %d looks %s old", b.Seq, skew)
		}
	}
	if l.count("spool found") != 1 {
		t.Error("the log does not tell of the spool")
	}
}

// A stored batch whose answer is lost is not stored twice, and not sent for ever.
func TestLostAnswer(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	f.lose = true
	c, _ := open(t, remote.Config{URL: f.URL, Key: key})
	background(t, c)
	deliver(t, c, observed(1, 1))
	deliver(t, c, observed(2, 1))
	f.await("an empty spool", func() bool { return c.Stats().Batches == 0 })
	if got := f.seqs(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("stored %v", got)
	}
	if s := c.Stats(); s.Sent != 2 || s.Foreign != 0 {
		t.Errorf("stats %+v", s)
	}
}

// Somebody else's use of our numbers is no silent loss.
func TestForeignSequence(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	f.lastSeq = 50
	c, l := open(t, remote.Config{URL: f.URL, Key: key})
	background(t, c)
	deliver(t, c, observed(7, 1))
	f.await("the batch to be given up", func() bool { return c.Stats().Foreign == 1 })
	if l.count("another machine") != 1 {
		t.Error("the log does not tell of it")
	}
	if _, err := c.Deliver(t.Context(), observed(8, 1)); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("a number below the core's: error %v", err)
	}
	deliver(t, c, observed(51, 1))
	if got := f.seqs(); !slices.Equal(got, []uint64{51}) {
		t.Errorf("stored %v", got)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		problem bool
		kept    bool
		refused uint64
	}{
		"unprocessable":            {http.StatusUnprocessableEntity, true, false, 1},
		"bad request":              {http.StatusBadRequest, true, true, 0},
		"too large":                {http.StatusRequestEntityTooLarge, true, false, 1},
		"wrong type":               {http.StatusUnsupportedMediaType, true, true, 0},
		"too large for a proxy":    {http.StatusRequestEntityTooLarge, false, true, 0},
		"forbidden by a proxy":     {http.StatusForbidden, false, true, 0},
		"not the leader":           {http.StatusMisdirectedRequest, true, true, 0},
		"conflict of another kind": {http.StatusConflict, true, true, 0},
		"not enrolled":             {http.StatusNotFound, true, true, 0},
		"redirect":                 {http.StatusMovedPermanently, false, true, 0},
		"store away":               {http.StatusServiceUnavailable, true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			key := newKey(t)
			f := newFakeCore(t, key)
			f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				switch {
				case c.problem:
					refuse(w, c.status, "because of the moon", nil)
				default:
					w.Header().Set("Location", "/elsewhere")
					w.WriteHeader(c.status)
				}
				return true
			}
			k, l := open(t, remote.Config{URL: f.URL, Key: key})
			stop := background(t, k)
			deliver(t, k, observed(1, 1))
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
			s := k.Stats()
			if s.Refused != c.refused || (s.Batches == 1) != c.kept || len(f.asked()) != 1 {
				t.Errorf("stats %+v", s)
			}
			if c.problem && l.count("because of the moon") != 1 {
				t.Error("the log does not say why")
			}
		})
	}
}

func TestRevoked(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	f.watch(relayTask("wss://relay1.example.com/"))
	f.pubkey = newKey(t).Pubkey()
	dir := t.TempDir()
	for name, revoke := range map[string]func(c *remote.Core) error{
		"by a batch": func(c *remote.Core) error { _, err := c.Deliver(t.Context(), observed(1, 1)); return err },
		"by tasks":   func(c *remote.Core) error { _, _ = c.Tasks(t.Context(), "berlin", 0); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, l := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir + name})
			done := make(chan error, 1)
			go func() { done <- c.Run(context.Background()) }()
			c.AwaitRun()
			if err := revoke(c); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, remote.ErrRevoked) {
				t.Errorf("run: %v", err)
			}
			if _, err := c.Deliver(t.Context(), observed(9, 1)); !errors.Is(err, remote.ErrRevoked) {
				t.Errorf("deliver: %v", err)
			}
			if _, err := c.Tasks(t.Context(), "berlin", 0); !errors.Is(err, remote.ErrRevoked) {
				t.Errorf("tasks: %v", err)
			}
			if l.count("this vantage was revoked on the core") != 1 {
				t.Error("the log does not tell of it once")
			}
		})
	}
}

// A wrong clock is told once, in words, and shown.
func TestWrongClock(t *testing.T) {
	for _, c := range []struct {
		skew  time.Duration // of the core
		words string
	}{
		{-10*time.Minute - 3*time.Second, "this machine's clock is 10m3s ahead of the core's: set it"},
		{time.Hour, "this machine's clock is 1h0m0s behind the core's: set it"},
	} {
		key := newKey(t)
		f := newFakeCore(t, key)
		f.watch(relayTask("wss://relay1.example.com/"))
		f.skew = c.skew
		k, l := open(t, remote.Config{URL: f.URL, Key: key})
		background(t, k)
		deliver(t, k, observed(1, 1))
		if _, err := k.Tasks(t.Context(), "berlin", 0); !errors.Is(err, monitor.ErrUnavailable) {
			t.Errorf("tasks: %v", err)
		}
		s := k.Stats()
		if s.Problem != c.words || (s.Skew+c.skew).Abs() > 5*time.Second || s.Batches != 1 {
			t.Errorf("stats %+v, want %q", s, c.words)
		}
		if n := l.count(c.words); n != 1 {
			t.Errorf("told %d times", n)
		}
		// Set right, it is well again.
		f.set(func() { f.skew = 0 })
		f.await("the batch", func() bool { return len(f.seqs()) == 1 })
	}
}

// Whose signature is refused for another reason is not told of clocks.
func TestUnauthorized(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	f.intercept = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("X-Pharos-Time", time.Now().Format(time.RFC3339Nano))
		refuse(w, http.StatusUnauthorized, "the tag u is not the URL of this request", nil)
		return true
	}
	c, l := open(t, remote.Config{URL: f.URL, Key: key})
	stop := background(t, c)
	deliver(t, c, observed(1, 1))
	_ = stop()
	if s := c.Stats(); s.Batches != 1 || !strings.Contains(s.Problem, "the tag u is not") || l.count("clock") > 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestTasks(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	until := time.Now().Add(time.Hour).UTC().Round(time.Second)
	a, b, d := relayTask("wss://a.example.com/"), relayTask("wss://b.example.com/"), monitor.Task{Relay: "wss://d.example.com/", Candidate: true}
	paused := monitor.Task{Relay: b.Relay, PausedUntil: until}
	f.watch(a, b)
	var told []time.Duration
	c, _ := open(t, remote.Config{URL: f.URL, Key: key, OnRules: func(r wire.Rules) { told = append(told, r.Cadence.Interval) }})
	known := uint64(0)
	fetch := func(what string, want []monitor.Task, asked ...string) {
		t.Helper()
		c.Forget()
		got, err := c.Tasks(t.Context(), "berlin", known)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(want, got.Relays); diff != "" {
			t.Errorf("%s (-want +got)\n%s", what, diff)
		}
		if diff := cmp.Diff(asked, f.asked()); diff != "" {
			t.Errorf("%s: requests (-want +got)\n%s", what, diff)
		}
		known = got.Version
	}
	const path = "GET /v1/vantages/berlin/tasks"
	fetch("all", []monitor.Task{a, b}, path+" 200")
	fetch("nothing new", nil, path+"?since=1 304")
	f.watch(b, d)
	fetch("one came, one went", []monitor.Task{b, d}, path+"?since=1 200")
	f.watch(paused, d)
	fetch("one paused", []monitor.Task{paused, d}, path+"?since=2 200")
	known = 0
	fetch("for one who knows nothing", []monitor.Task{paused, d}, path+"?since=3 304")
	f.set(func() { f.rules.Cadence.Interval = time.Minute })
	fetch("other rules", nil, path+"?since=3 200")
	if !slices.Equal(told, []time.Duration{5 * time.Minute, time.Minute}) {
		t.Errorf("rules told: %v", told)
	}

	// Changes of a version that is not ours: all of it is asked for.
	f.watch(a)
	bases := 0
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.URL.Query().Get("since") == "" {
				return false
			}
			bases++
			answer(w, wire.Tasks{Version: 4, Base: 2, Rules: f.rules, ServerTime: time.Now()})
			return true
		}
	})
	fetch("a strange base", []monitor.Task{a}, path+"?since=3 200", path+" 200")
	if bases != 1 {
		t.Errorf("%d strange bases", bases)
	}
}

// Between two looks at the core, what is known is answered from memory.
func TestTasksAreNotAskedTooOften(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	f.watch(relayTask("wss://a.example.com/"))
	c, _ := open(t, remote.Config{URL: f.URL, Key: key})
	for range 5 {
		if got, err := c.Tasks(t.Context(), "berlin", 0); err != nil || len(got.Relays) != 1 {
			t.Fatalf("%+v, error %v", got, err)
		}
	}
	if got := f.asked(); len(got) != 1 {
		t.Errorf("asked %q", got)
	}
}

func TestBadTasks(t *testing.T) {
	good, err := json.Marshal(wire.Tasks{Version: 1, Rules: wire.Rules{Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness()}, ServerTime: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"no JSON": "<html>", "nothing": "", "no tasks": "{}", "too large": string(good) + strings.Repeat(" ", 9<<20), "unknown relay": `{"version":1,"set":[{"relay":"x"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			key := newKey(t)
			f := newFakeCore(t, key)
			f.intercept = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				_, _ = w.Write([]byte(body))
				return true
			}
			c, _ := open(t, remote.Config{URL: f.URL, Key: key})
			if got, err := c.Tasks(t.Context(), "berlin", 0); !errors.Is(err, monitor.ErrUnavailable) || got.Relays != nil {
				t.Errorf("%+v, error %v", got, err)
			}
			// It is not asked again at once.
			if _, err := c.Tasks(t.Context(), "berlin", 0); !errors.Is(err, monitor.ErrUnavailable) || len(f.asked()) != 1 {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A full spool drops the oldest, and counts them.
func TestSpoolIsBounded(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	var size bytes.Buffer
	b := observed(1, 10)
	if err := wire.EncodeBatch(&size, &b); err != nil {
		t.Fatal(err)
	}
	limit := int64(size.Len()) * 7 / 2 // three, not four
	c, _ := open(t, remote.Config{URL: "http://127.0.0.1:1", Key: key, Dir: dir, MaxSpool: limit})
	for seq := uint64(1); seq <= 10; seq++ {
		deliver(t, c, observed(seq, 10))
	}
	if _, err := c.Deliver(t.Context(), observed(10, 1)); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("a number that is in the spool: error %v", err)
	}
	s := c.Stats()
	if s.Batches != 3 || s.Dropped != 7 || s.DroppedObservations != 70 || s.Bytes > limit {
		t.Errorf("stats %+v", s)
	}
	if got := spooled(t, dir); len(got) != 3 || !strings.HasPrefix(got[0], "00000000000000000008-") {
		t.Errorf("on the disk: %q", got)
	}
}

// What is damaged on the disk is recognised, given up and counted; the rest goes
// out.
func TestDamagedSpool(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	spool := filepath.Join(dir, "spool")
	cfg := remote.Config{URL: f.URL, Key: key, Dir: dir, Name: "berlin"}
	first, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= 6; seq++ {
		deliver(t, first, observed(seq, 5))
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	name := func(seq, count int) string { return filepath.Join(spool, fmt.Sprintf("%020d-%d.batch", seq, count)) }
	whole, err := os.ReadFile(name(2, 5))
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(name(2, 5), whole[:len(whole)/2], 0o600))
	must(os.WriteFile(name(3, 5), nil, 0o600))
	must(os.Remove(name(4, 5)))
	must(os.Mkdir(name(4, 5), 0o700)) // not ours
	must(os.WriteFile(name(5, 5), whole, 0o600))
	must(os.WriteFile(filepath.Join(spool, "unfinished"), whole, 0o600))
	must(os.WriteFile(filepath.Join(spool, "notes.txt"), whole, 0o600))
	must(os.WriteFile(filepath.Join(spool, "18446744073709551615-5.batch"), whole, 0o600)) // not ours

	c, _ := open(t, cfg)
	background(t, c)
	f.await("the end of the spool", func() bool { return c.Stats().Batches == 0 })
	if got := f.seqs(); !slices.Equal(got, []uint64{1, 6}) {
		t.Errorf("stored %v", got)
	}
	if s := c.Stats(); s.Broken != 4 || s.Sent != 2 {
		t.Errorf("stats %+v, want 4 broken", s)
	}
	if _, err := os.Stat(filepath.Join(spool, "unfinished")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished batch is still there: %v", err)
	}
	deliver(t, c, observed(7, 5))
}

// A batch that cannot be read for the moment is not given up: the process may be
// out of descriptors. One that never can be does not hold up the others for ever.
func TestUnreadableSpool(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	c, logs := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir})
	for seq := uint64(1); seq <= 3; seq++ {
		deliver(t, c, observed(seq, 2))
	}
	unreadable := func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	for range 3 {
		c.SendOldest(t.Context(), unreadable)
	}
	if n := len(spooled(t, dir)); n != 3 || logs.count("cannot be read now") != 1 {
		t.Fatalf("%d batches are left, said %d times", n, logs.count("cannot be read now"))
	}
	c.SendOldest(t.Context(), os.ReadFile)
	for range 20 {
		if c.Stats().Batches == 2 {
			c.SendOldest(t.Context(), unreadable)
		}
	}
	c.SendOldest(t.Context(), os.ReadFile)
	if s := c.Stats(); s.Sent != 2 || s.Broken != 1 || s.Batches != 0 || !slices.Equal(f.seqs(), []uint64{1, 3}) {
		t.Errorf("%+v, stored %v", s, f.seqs())
	}
}

// Somebody who tidies up takes away what waits, not what comes.
func TestSpoolTakenAway(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	c, logs := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir})
	deliver(t, c, observed(1, 1))
	if err := os.RemoveAll(filepath.Join(dir, "spool")); err != nil {
		t.Fatal(err)
	}
	deliver(t, c, observed(2, 1))
	if n := len(spooled(t, dir)); n != 1 || logs.count("cannot be written") != 0 {
		t.Errorf("%d batches on the disk", n)
	}
	background(t, c)
	f.await("the end of the spool", func() bool { return c.Stats().Batches == 0 })
	if s := c.Stats(); s.Sent != 1 || s.Broken != 1 {
		t.Errorf("%+v", s)
	}
}

// Where the disk takes nothing, batches go straight to the core, or stay with the
// sender.
func TestFullDisk(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	c, l := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir})
	background(t, c)
	// A directory in the place of the file makes every write fail, for root too.
	blocked := filepath.Join(dir, "spool", "unfinished")
	block := func() {
		if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	block()
	f.set(func() { f.next.Expedite = []monitor.RelayURL{"wss://relay1.example.com/"} })
	if a := deliver(t, c, observed(1, 1)); len(a.Expedite) != 1 {
		t.Errorf("answer %+v", a)
	}
	f.set(func() { f.lose = true })
	if _, err := c.Deliver(t.Context(), observed(2, 1)); err == nil {
		t.Error("a lost answer is no error")
	}
	if _, err := c.Deliver(t.Context(), observed(2, 1)); err == nil || !strings.Contains(err.Error(), "the core is away") {
		t.Errorf("during the back-off: error %v", err)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	deliver(t, c, observed(2, 1)) // by the spool: the core has it already
	f.await("an empty spool", func() bool { return c.Stats().Batches == 0 })
	if got, s := f.seqs(), c.Stats(); !slices.Equal(got, []uint64{1, 2}) || s.Foreign != 0 || s.Sent != 2 {
		t.Errorf("stored %v, stats %+v", got, s)
	}
	if l.count("the spool cannot be written") != 1 || l.count("the spool can be written again") != 1 {
		t.Error("the log does not tell of the disk once")
	}
}

// Past a full disk no batch overtakes those in the spool.
func TestFullDiskKeepsTheOrder(t *testing.T) {
	key, dir := newKey(t), t.TempDir()
	f := newFakeCore(t, key)
	c, _ := open(t, remote.Config{URL: f.URL, Key: key, Dir: dir})
	deliver(t, c, observed(1, 1)) // nobody sends it
	if err := os.MkdirAll(filepath.Join(dir, "spool", "unfinished", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deliver(t.Context(), observed(2, 1)); err == nil || !strings.Contains(err.Error(), "older ones wait") {
		t.Errorf("error %v", err)
	}
	background(t, c)
	f.await("the first", func() bool { return c.Stats().Batches == 0 })
	deliver(t, c, observed(2, 1))
	if got := f.seqs(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("stored %v", got)
	}
}

// What cannot be sent does not hold up the rest.
func TestUnsendable(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	c, _ := open(t, remote.Config{URL: f.URL, Key: key})
	background(t, c)
	b := observed(1, 3)
	b.Observations[1].Start, b.Observations[1].At = time.Unix(5, 0), time.Unix(6, 0)
	b.SentAt = time.Unix(7, 0)
	deliver(t, c, b)
	if stored := f.batches(); len(stored) != 1 || len(stored[0].Observations) != 2 || b.Observations[1].Start != time.Unix(5, 0) {
		t.Errorf("stored %+v", stored)
	}
	if s := c.Stats(); s.Unsendable != 1 {
		t.Errorf("stats %+v", s)
	}
}

// Documents beyond what a body may hold are left out, and the batch is sent.
func TestTooManyDocuments(t *testing.T) {
	key := newKey(t)
	f := newFakeCore(t, key)
	c, _ := open(t, remote.Config{URL: f.URL, Key: key})
	background(t, c)
	b := observed(1, 200)
	noise := rand.NewChaCha8([32]byte{})
	for i := range b.Observations {
		bytes := make([]byte, 22<<10)
		_, _ = noise.Read(bytes)
		text := base64.StdEncoding.EncodeToString(bytes) // hardly compresses
		b.Observations[i].Info = &monitor.Info{Raw: fmt.Appendf(nil, `{"description":"%s"}`, text), Description: text}
	}
	deliver(t, c, b)
	s := c.Stats()
	stored := f.batches()
	if len(stored) != 1 || s.InfosDropped == 0 || s.InfosDropped > 120 || b.Observations[199].Info == nil {
		t.Errorf("%d stored, stats %+v", len(stored), s)
	}
}

func TestEnrol(t *testing.T) {
	f := newFakeCore(t, nostr.Key{})
	f.token = "one-time-token"
	key := newKey(t)
	networks := []monitor.Network{monitor.Clearnet}
	for range 2 { // the second time as if the answer had been lost
		got, err := remote.Enrol(t.Context(), remote.Config{URL: f.URL, Key: key}, f.token, networks)
		if err != nil || got != (wire.Enrolled{Name: "berlin", Group: "hetzner"}) {
			t.Fatalf("%+v, error %v", got, err)
		}
	}
	for name, c := range map[string]struct {
		cfg   remote.Config
		token string
		skew  time.Duration
		want  string
	}{
		"wrong token":  {remote.Config{URL: f.URL, Key: key}, "another-token", 0, "the token is wrong or used"},
		"used token":   {remote.Config{URL: f.URL, Key: newKey(t)}, f.token, 0, "the token is wrong or used"},
		"nobody there": {remote.Config{URL: "http://127.0.0.1:1", Key: key}, f.token, 0, "http://127.0.0.1:1 was not reached"},
		"no key":       {remote.Config{URL: f.URL}, f.token, 0, "needs a key"},
		"no URL":       {remote.Config{URL: "pharos", Key: key}, f.token, 0, "is no URL"},
		"wrong clock":  {remote.Config{URL: f.URL, Key: key}, f.token, -time.Hour, "this machine's clock is 1h0m0s ahead of the core's"},
	} {
		t.Run(name, func(t *testing.T) {
			f.set(func() { f.skew = c.skew })
			got, err := remote.Enrol(t.Context(), c.cfg, c.token, networks)
			if err == nil || got != (wire.Enrolled{}) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.token) {
				t.Errorf("%+v, error %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestCoreURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://Pharos.Example.com":          "https://pharos.example.com",
		"https://pharos.example.com/":         "https://pharos.example.com",
		"HTTPS://pharos.example.com:443/a/b/": "https://pharos.example.com/a/b",
		"http://127.0.0.1:7766":               "http://127.0.0.1:7766",
		"http://[::1]:80":                     "http://[::1]",
		"wss://pharos.example.com":            "scheme",
		"pharos.example.com":                  "is no URL",
		"https://":                            "is no URL",
		"https://user:hunter2@example.com":    "user name or password",
		"https://example.com/?a=b":            "behind its path",
		"https://example.com/#a":              "behind its path",
		"":                                    "is no URL",
	} {
		u, err := remote.CoreURL(in)
		switch {
		case err == nil && u.String() != want:
			t.Errorf("%q is %q, want %q", in, u, want)
		case err != nil && (!errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
}

func TestNew(t *testing.T) {
	_, err := remote.New(remote.Config{MaxSpool: -1})
	if !errors.Is(err, monitor.ErrInvalid) {
		t.Fatal(err)
	}
	for _, want := range []string{"name", "directory", "bound", "URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not tell of the %s", err, want)
		}
	}
}
