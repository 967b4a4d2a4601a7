package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// reloadable starts an app whose next configuration edit makes of its last one.
func reloadable(t *testing.T, c Config) (s *started, reload func(edit func(*Config)) api.Reloaded) {
	t.Helper()
	s = start(t, c, dataDir(t))
	s.reread = func() (*Config, error) {
		next := c
		return &next, nil
	}
	return s, func(edit func(*Config)) api.Reloaded {
		t.Helper()
		c = *s.config()
		edit(&c)
		out, err := s.Reload(t.Context())
		if err != nil {
			t.Fatalf("reload: %v\n%s", err, s.log)
		}
		return out
	}
}

// startSpy is a relay that refuses everybody and tells how they call themselves.
func startSpy(t *testing.T) (*relaytest.Relay, <-chan string) {
	t.Helper()
	agents := make(chan string, 1000)
	return relaytest.Start(t, relaytest.Options{Script: func(conn net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		select {
		case agents <- req.UserAgent():
		default:
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}}), agents
}

// A reload adds and takes out relays, changes what readers are told and how
// probes are made, while what is known stays and the list is served throughout.
func TestReload(t *testing.T) {
	relays := relaytest.StartMany(t, 4, relaytest.Options{})
	late := relaytest.Start(t, relaytest.Options{})
	spy, agents := startSpy(t)
	c := fastConfig(t, append(slices.Clone(relays), spy)...)
	c.Database.URL = DSN(postgres.TestDatabase(t))
	s, reload := reloadable(t, c)
	s.waitFor(t, urlsOf(relays...))
	if at := httpURL(answersAt(s.dir)); at != s.URL() {
		t.Errorf("commands look for it at %s, and it is at %s", at, s.URL())
	}
	before := s.reports(t)
	out := reload(func(c *Config) {
		c.Relays = append(slices.Clone(c.Relays[1:]), string(late.URL()))
		c.Exclude = []string{string(relays[1].URL())}
		c.Name, c.Live.MinCount = "Other", 2
		c.Probe.UserAgent = "other/1"
		c.Publish.Frequency, c.Publish.Expiration = Duration(2*time.Hour), Duration(12*time.Hour)
		c.Listen = "127.0.0.1:1" // only a restart can
	})
	if diff := cmp.Diff(api.Reloaded{
		Changed:     []string{"name", "relays", "exclude", "probe.user_agent", "live.min_count", "publish.frequency", "publish.expiration"},
		NeedRestart: []string{"listen"},
	}, out); diff != "" {
		t.Errorf("reload (-want +got):\n%s", diff)
	}
	kept := []*relaytest.Relay{relays[2], relays[3]}
	if l := s.live(t); !l.Usable || l.Count < len(kept) {
		t.Errorf("after the reload the list is usable %v with %d relays", l.Usable, l.Count)
	}
	s.waitFor(t, urlsOf(append(kept, late)...))
	s.waitUntil(t, "the relay to hold the same", func() bool {
		return slices.Equal(keys(s.reports(t)), urlsOf(append(kept, late)...))
	})
	for d, ev := range s.reports(t) {
		if old := before[d]; old != nil && ev.CreatedAt < old.CreatedAt {
			t.Errorf("the report on %s went back", d)
		}
	}
	var history struct {
		Transitions []struct {
			URL string `json:"url"`
		} `json:"transitions"`
	}
	get(t, s.URL()+"/v1/transitions", &history)
	for _, k := range kept {
		n := 0
		for _, tr := range history.Transitions {
			if tr.URL == string(k.URL()) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s, which the reload did not touch, has %d transitions, want its first verdict alone", k.URL(), n)
		}
	}
	var status struct {
		Name string `json:"name"`
	}
	get(t, s.URL()+"/v1/status", &status)
	if status.Name != "Other" {
		t.Errorf("the name is %q", status.Name)
	}
	s.waitUntil(t, "a probe with the new user agent", func() bool {
		for {
			select {
			case agent := <-agents:
				if agent == "other/1" {
					return true
				}
			default:
				return false
			}
		}
	})
	if got := s.config().Listen; got != c.Listen {
		t.Errorf("the listen address became %q without a restart", got)
	}

	// An exclusion that is lifted again.
	reload(func(c *Config) { c.Exclude, c.Relays = nil, append(c.Relays, string(relays[1].URL())) })
	s.waitFor(t, urlsOf(relays[1], relays[2], relays[3], late))
}

// A wrong configuration changes nothing, and names every problem.
func TestReloadRefused(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{})
	dir := dataDir(t)
	file := filepath.Join(dir, "pharos.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := "relays: [" + string(relay.URL()) + "]\nname: First\n"
	write(good)
	signals, hangups := make(chan os.Signal, 1), make(chan os.Signal, 1)
	log := &lockedBuffer{}
	status := make(chan int, 1)
	environ := []string{
		"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_PROBE_INTERVAL=12s", "PHAROS_DISCOVERY_ENABLED=false",
		"PHAROS_SELF_CHECK_CANARIES=[]", "PHAROS_DATABASE_URL=" + postgres.TestDatabase(t),
	}
	flags := []string{"--config", file, "--listen", "127.0.0.1:0", "--data-dir", dir}
	go func() {
		status <- run(context.Background(), append(flags, "serve"), process{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: log, signals: signals, hangups: hangups, environ: environ,
		})
	}()
	live := waitForLog(t, log, "msg=ready", "live=")
	base := strings.TrimSuffix(live, "/v1/live")
	client := func() result {
		return pharos(t, "", environ, "--config", file, "--listen", strings.TrimPrefix(base, "http://"), "--data-dir", dir, "config", "reload")
	}

	write(good + "probe: {interval: 5, concurrency: 0}\nlisten: nowhere\n")
	hangups <- syscall.SIGHUP
	waitForLog(t, log, "configuration not reloaded", "probe.interval")
	got := client()
	if got.status != exitUsage {
		t.Errorf("config reload of a wrong file: %+v", got)
	}
	for _, key := range []string{"probe.interval", "probe.concurrency"} {
		if !strings.Contains(got.stderr, key) {
			t.Errorf("config reload does not name %s:\n%s", key, got.stderr)
		}
	}
	write(strings.Replace(good, "First", "Second", 1))
	if got := client(); got.status != exitFine || !strings.Contains(got.stdout, "name") {
		t.Errorf("config reload: %+v", got)
	}
	var seen struct {
		Name string `json:"name"`
	}
	if code := get(t, base+"/v1/status", &seen); code != http.StatusOK || seen.Name != "Second" {
		t.Errorf("after the reload the status is %d with name %q", code, seen.Name)
	}
	signals <- syscall.SIGTERM
	if s := <-status; s != exitFine {
		t.Errorf("exit status %d\n%s", s, log)
	}
}

// A file that was found without being named must still be there: nobody means the
// defaults by removing it for a moment.
func TestReloadOfAFileThatIsGone(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "pharos.yaml", "name: First\n", 0o600)
	c := &command{flags: &commandLine{}}
	if cfg, err := c.load(); err != nil || cfg.Name != "First" {
		t.Fatal(cfg, err)
	}
	if err := os.Remove("pharos.yaml"); err != nil {
		t.Fatal(err)
	}
	if cfg, err := c.reread(); err == nil || !strings.Contains(err.Error(), "pharos.yaml: cannot be read: there is no such file") {
		t.Errorf("read again: %v, %v", cfg, err)
	}
}

// A reload that the store cannot keep changes nothing, and is possible again
// when the store is back.
func TestReloadWithoutAStore(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{})
	late := relaytest.Start(t, relaytest.Options{})
	c := fastConfig(t, relay)
	s, _ := reloadable(t, c)
	s.waitFor(t, urlsOf(relay))
	s.reread = func() (*Config, error) {
		next := c
		next.Name, next.Relays = "Other", append(slices.Clone(c.Relays), string(late.URL()))
		return &next, nil
	}
	away, cancel := context.WithCancel(t.Context())
	cancel() // as a store that never answers
	if _, err := s.Reload(away); err == nil {
		t.Error("a reload that could not be stored succeeded")
	}
	if got := s.config().Name; got != c.Name {
		t.Errorf("the name is %q after a reload that failed", got)
	}
	var all struct {
		Relays []struct {
			URL string `json:"url"`
		} `json:"relays"`
	}
	get(t, s.URL()+"/v1/relays", &all)
	if len(all.Relays) != 1 {
		t.Errorf("after a reload that failed %d relays are watched", len(all.Relays))
	}
	if _, err := s.Reload(t.Context()); err != nil {
		t.Errorf("the next reload: %v", err)
	}
	s.waitFor(t, urlsOf(relay, late))
}

// A reload does not come between the steps of a start.
func TestReloadDuringTheStart(t *testing.T) {
	c := fastConfig(t, relaytest.Start(t, relaytest.Options{}))
	a, err := New(&c, t.TempDir(), false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.changing <- struct{}{} // as Start does
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Reload(ctx); !errors.Is(err, monitor.ErrUnavailable) {
		t.Errorf("a reload during the start: %v", err)
	}
}
