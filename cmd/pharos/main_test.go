package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// result is what one run of the program came to.
type result struct {
	status         int
	stdout, stderr string
}

// pharos runs the program as main does, in a process of its own making.
func pharos(t *testing.T, stdin string, environ []string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	status := run(t.Context(), args, process{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, environ: environ,
	})
	return result{status, out.String(), errs.String()}
}

func TestUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		args   []string
		status int
		stderr string
	}{
		"no command":              {nil, 2, "expected one of"},
		"unknown command":         {[]string{"fly"}, 2, "unexpected argument fly"},
		"unknown flag":            {[]string{"serve", "--fast"}, 2, "unknown flag --fast"},
		"wrong log level":         {[]string{"--log-level=loud", "version"}, 2, "--log-level"},
		"check without a relay":   {[]string{"check"}, 2, "expected"},
		"check of junk":           {[]string{"check", "wss://10.0.0.1", "http://relay.example.com"}, 2, "(private)"},
		"check from nowhere":      {[]string{"check", "--vantage", "moon", "wss://relay.example.com"}, 2, "the configuration has local"},
		"missing configuration":   {[]string{"--config", "no.yaml", "serve"}, 2, "no.yaml: cannot be read: there is no such file"},
		"missing relay file":      {[]string{"--relays", "no.txt", "serve"}, 2, `--relays: relay_files[0]: "no.txt" cannot be read`},
		"check of a missing file": {[]string{"check", "./no.txt", "/no/such/file"}, 2, "/no/such/file cannot be read: there is no such file"},
		"keygen nowhere":          {[]string{"keygen", "--out", "no/such/key"}, 3, "the key file no/such/key cannot be made: there is no directory no/such; make it"},
		"health of a wrong URL":   {[]string{"health", "ftp://host"}, 2, "the URL has the scheme"},
		"health without process":  {[]string{"health", "127.0.0.1:1"}, 1, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			got := pharos(t, "", nil, c.args...)
			if got.status != c.status || !strings.Contains(got.stderr, c.stderr) || got.stdout != "" {
				t.Errorf("status %d, stdout %q, stderr %q; want status %d and %q", got.status, got.stdout, got.stderr, c.status, c.stderr)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	if got := pharos(t, "", nil, "--help"); got.status != 0 || !strings.Contains(got.stdout, "serve") || got.stderr != "" {
		t.Errorf("--help: %+v", got)
	}
	if got := pharos(t, "", nil, "version"); got.status != 0 || !strings.HasPrefix(got.stdout, "pharos ") {
		t.Errorf("version: %+v", got)
	}
}

func TestConfigCheck(t *testing.T) {
	got := pharos(t, "", nil, "--config", "testdata/config/bad/six_faults.yaml", "config", "check")
	if got.status != 2 || strings.Count(got.stderr, "six_faults.yaml:") != 6 || !strings.Contains(got.stderr, "6 problems in the configuration") {
		t.Errorf("status %d, stderr:\n%s", got.status, got.stderr)
	}
	got = pharos(t, "", nil, "--config", "../../deploy/pharos.example.yaml", "config", "check")
	if got.status != 0 || !strings.Contains(got.stdout, "fine") {
		t.Errorf("the example: %+v", got)
	}
}

func TestConfigPrintMasks(t *testing.T) {
	t.Chdir(t.TempDir())
	got := pharos(t, "", []string{"PHAROS_DATABASE_URL=host=db password=hunter2"}, "config", "print")
	if got.status != 0 || strings.Contains(got.stdout, "hunter2") || !strings.Contains(got.stdout, `url: "********"`) {
		t.Errorf("%+v", got)
	}
}

func TestRelayFiles(t *testing.T) {
	const lines = "\ufeff# relays\n\nwss://relay.example.com\r\nwss://relay.example.com/  # again\n" +
		"relay.example.org\nwss://10.0.0.1\nwss://127.1.2.3:7000\nwss://h.example/a/\nwss://h.example/a\n" +
		"wss://relay.example.com/?token=hunter2\nwss://user:hunter2@relay.example.com\n"
	long := "wss://" + strings.Repeat("x", 10_000) + ".example\nwss://last.example\n"
	file := filepath.Join(t.TempDir(), "relays.txt")
	if err := os.WriteFile(file, []byte(lines+long), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := loadConfig("testdata/config/good/empty.yaml", []string{"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_EXCLUDE=wss://last.example"}, Overrides{Relays: &file})
	if err != nil {
		t.Fatal(err)
	}
	list, err := l.relays()
	if err != nil {
		t.Fatal(err)
	}
	var urls, junk []string
	for _, r := range list.Relays {
		urls = append(urls, string(r.URL))
		if r.Source != monitor.SourceFile {
			t.Errorf("%s has the source %s", r.URL, r.Source)
		}
	}
	for _, j := range list.Junk {
		junk = append(junk, j.File[strings.LastIndex(j.File, "/")+1:]+":"+string(rune('0'+j.Line/10))+string(rune('0'+j.Line%10))+" "+j.Reason)
	}
	if got, want := strings.Join(urls, " "), "wss://relay.example.com/ wss://127.1.2.3:7000/ wss://h.example/a"; got != want {
		t.Errorf("relays are %s, want %s", got, want)
	}
	if got, want := strings.Join(junk, ", "), "relays.txt:05 scheme, relays.txt:06 private, relays.txt:10 query, relays.txt:11 userinfo, relays.txt:12 length"; got != want {
		t.Errorf("junk is %s, want %s", got, want)
	}
	if list.Repeated != 2 || list.Excluded != 1 {
		t.Errorf("%d repeated, %d excluded", list.Repeated, list.Excluded)
	}

	got := pharos(t, "", []string{"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8"}, "--config", "testdata/config/good/empty.yaml", "--relays", file, "config", "check")
	if got.status != 0 || !strings.Contains(got.stdout, file+":10: skipped, query: it contains a query") || strings.Contains(got.stdout, "hunter2") {
		t.Errorf("config check: %+v", got)
	}
}

func TestNothingToWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(file, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"config", "check"}, {"serve"}} {
		got := pharos(t, "", []string{"PHAROS_DISCOVERY_ENABLED=false"}, append([]string{"--relays", file, "--data-dir", t.TempDir()}, command...)...)
		if got.status != 2 || !strings.Contains(got.stderr, "there is no relay to watch: name some in relays or relay_files") {
			t.Errorf("%v: %+v", command, got)
		}
	}
}

// Each relay of the built-in list is one, in canonical form, once.
func TestBuiltinRelays(t *testing.T) {
	c := Default()
	list, err := c.relays()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Junk) != 0 || list.Repeated != 0 {
		t.Errorf("junk %+v, %d repeated", list.Junk, list.Repeated)
	}
	if n := len(list.Relays); n < 100 || n > 150 {
		t.Errorf("%d relays", n)
	}
	for _, r := range list.Relays {
		if r.Source != monitor.SourceBuiltin || !strings.HasPrefix(string(r.URL), "wss://") || !bytes.Contains(builtinRelays, []byte("\n"+string(r.URL)+"\n")) {
			t.Errorf("%s (%s) is not canonical in the list", r.URL, r.Source)
		}
	}
}

func TestKeygen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.key")
	got := pharos(t, "", nil, "keygen", "--out", file)
	if got.status != 0 || !strings.HasPrefix(got.stdout, "npub1") || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", st, err)
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	again := pharos(t, "", nil, "keygen", "--out", file)
	if want := "pharos: the key file " + file + " is there already and is never overwritten: choose another name, or move it away\n"; again.stderr != want {
		t.Errorf("over an existing key it says %q, want %q", again.stderr, want)
	}
	if again.status != 3 || again.stdout != "" || strings.Contains(again.stderr, strings.TrimSpace(string(secret))) {
		t.Errorf("over an existing key: %+v", again)
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, secret) {
		t.Errorf("the key was overwritten: %v", err)
	}
}

func TestKeygenInDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if got := pharos(t, "", nil, "--config", "testdata/config/good/empty.yaml", "--data-dir", dir, "keygen"); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "service.key")); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	ready, body := true, `{"status":"ok"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/base/readyz":
			w.WriteHeader(http.StatusNotFound)
		case !ready:
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(map[string]string{"detail": "not ready: the first pass is under way"})
		default:
			_, _ = io.WriteString(w, body)
		}
	}))
	defer server.Close()
	if got := pharos(t, "", nil, "health", server.URL+"/base"); got.status != 0 || got.stdout != "ready\n" {
		t.Errorf("ready: %+v", got)
	}
	for _, body = range []string{"", "<html>", `{"status":"fine"}`, `"ok"`} { // another program
		if got := pharos(t, "", nil, "health", server.URL+"/base"); got.status != 1 || !strings.Contains(got.stderr, "not as Pharos does") || got.stdout != "" {
			t.Errorf("%q: %+v", body, got)
		}
	}
	ready = false
	if got := pharos(t, "", nil, "health", server.URL+"/base/readyz"); got.status != 1 || !strings.Contains(got.stderr, "says not ready: the first pass is under way") {
		t.Errorf("not ready: %+v", got)
	}
	if got := pharos(t, "", nil, "health", server.URL); got.status != 1 || !strings.Contains(got.stderr, "HTTP status 404") {
		t.Errorf("another program: %+v", got)
	}
}

// What keeps serve from starting is one sentence and status 3.
func TestServeCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()

	badKey := filepath.Join(t.TempDir(), "bad.key")
	openKey := filepath.Join(t.TempDir(), "open.key")
	secret := "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	pipe := filepath.Join(t.TempDir(), "pipe.key")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{badKey: 0o600, openKey: 0o644} {
		text := secret
		if file == badKey {
			text = secret[:40] + "garbage"
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	locked := t.TempDir()
	lock, err := lockDataDir(locked)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.release() }()

	for name, c := range map[string]struct {
		environ []string
		args    []string
		stderr  string
	}{
		"port in use":            {nil, []string{"--listen", taken.Addr().String()}, "is in use by another program"},
		"no address of ours":     {nil, []string{"--listen", "192.0.2.1:7766"}, "is no address of this machine"},
		"no source of ours":      {[]string{"PHAROS_VANTAGES=[{name: a, source_address: 127.0.0.1}, {name: b, source_address: 192.0.2.1}]"}, []string{"--listen", "127.0.0.1:0"}, "192.0.2.1, the source address of the vantage b, is no address of this machine"},
		"data directory in use":  {nil, []string{"--data-dir", locked, "--listen", "127.0.0.1:0"}, "uses the data directory"},
		"data directory a file":  {nil, []string{"--data-dir", badKey, "--listen", "127.0.0.1:0"}, "data directory"},
		"key with wrong content": {[]string{"PHAROS_KEY_FILE=" + badKey}, []string{"--listen", "127.0.0.1:0"}, badKey},
		"key with advice":        {[]string{"PHAROS_KEY_FILE=" + badKey}, []string{"--listen", "127.0.0.1:0"}, "restore your copy of it, or move it away"},
		"key a pipe":             {[]string{"PHAROS_KEY_FILE=" + pipe}, []string{"--listen", "127.0.0.1:0"}, "is not a regular file"},
		"key open to others":     {[]string{"PHAROS_KEY_FILE=" + openKey}, []string{"--listen", "127.0.0.1:0"}, "chmod 600"},
		"database away":          {[]string{"PHAROS_DATABASE_URL=postgres://pharos:hunter2@127.0.0.1:1/pharos"}, []string{"--listen", "127.0.0.1:0"}, "database"},
		"PostgreSQL missing":     {[]string{"PHAROS_DATABASE_PG_BIN=" + t.TempDir()}, []string{"--listen", "127.0.0.1:0"}, "install them with"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--config", "testdata/config/good/minimal.yaml", "--log-level", "error", "--data-dir", t.TempDir()}, c.args...)
			got := pharos(t, "", c.environ, append(args, "serve")...)
			text := strings.TrimSpace(got.stderr)
			if got.status != 3 || !strings.Contains(text, c.stderr) || strings.Contains(text, "\n") {
				t.Errorf("status %d, stderr %q; want 3 and one sentence with %q", got.status, got.stderr, c.stderr)
			}
			for _, kind := range kinds {
				if strings.Contains(text, ": "+kind.Error()+": ") {
					t.Errorf("the sentence has the word of a kind, %q: %s", kind, text)
				}
			}
			for _, s := range []string{"hunter2", secret[5:40]} {
				if strings.Contains(got.stderr, s) {
					t.Errorf("a secret is shown: %s", got.stderr)
				}
			}
		})
	}
}

func TestCheckTargets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte("wss://b.example\nc.example # bare\njunk line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c := &command{process: process{stdin: strings.NewReader("ws://d.example\nwss://b.example/\n"), stderr: &errs}}
	l := &loaded{Config: Default()}
	got, err := (&checkCmd{Relays: []string{"a.example", file, "-"}}).targets(c, l)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, u := range got.relays {
		urls = append(urls, string(u))
	}
	if s := strings.Join(urls, " "); s != "wss://a.example/ wss://b.example/ wss://c.example/ ws://d.example/" || got.junk != 1 {
		t.Errorf("targets are %s, %d junk", s, got.junk)
	}
	if !strings.Contains(errs.String(), file+":3: skipped, whitespace") {
		t.Errorf("stderr is %q", errs.String())
	}
}

func TestRunPassesOnPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a panic that is no early exit was swallowed")
		}
	}()
	run(context.Background(), []string{"version"}, process{stdout: panicWriter{}, stderr: &bytes.Buffer{}})
}

type panicWriter struct{}

func (panicWriter) Write([]byte) (int, error) { panic("broken") }

func TestSentence(t *testing.T) {
	for want, err := range map[string]error{
		"start: no data directory":               fmt.Errorf("start: %w: no data directory", monitor.ErrInvalid),
		"another led":                            fmt.Errorf("%w: another led", monitor.ErrConflict),
		"first: one\nsecond":                     errors.Join(fmt.Errorf("first: %w: one", nostr.ErrBadKey), fmt.Errorf("second: %w", monitor.ErrNotFound)),
		"invalid database.url: write it so":      fmt.Errorf("%w database.url: write it so", monitor.ErrInvalid),
		"database unavailable: nothing is there": fmt.Errorf("database %w: nothing is there", monitor.ErrUnavailable),
		"unavailable":                            monitor.ErrUnavailable,
	} {
		if got := sentence(err); got != want {
			t.Errorf("%q becomes %q, want %q", err, got, want)
		}
	}
}

// What is no file that ends is refused before it is opened, wherever the
// configuration names it.
func TestIrregularFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("dir", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"big.yaml": maxConfigFile + 1, "big.txt": maxRelayFile + 1} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
	}
	for file, says := range map[string]string{"pipe": "it is no regular file", "/dev/zero": "it is no regular file", "dir": "it is a directory"} {
		for _, args := range [][]string{{"--config", file}, {"--relays", file}} {
			got := pharos(t, "", nil, append(args, "config", "check")...)
			if got.status != 2 || !strings.Contains(got.stderr, "cannot be read: "+says) {
				t.Errorf("%v: %+v", args, got)
			}
		}
		got := pharos(t, "", []string{"PHAROS_PROBE_TLS_CA_FILE=" + file}, "config", "check")
		if got.status != 2 || !strings.Contains(got.stderr, "cannot be read: "+says) {
			t.Errorf("CA file %s: %+v", file, got)
		}
	}
	if got := pharos(t, "", nil, "--config", "big.yaml", "config", "check"); got.status != 2 || !strings.Contains(got.stderr, "it is larger than 1 MB") {
		t.Errorf("a large configuration: %+v", got)
	}
	if got := pharos(t, "", nil, "--relays", "big.txt", "config", "check"); got.status != 2 || !strings.Contains(got.stderr, "it is larger than 64 MB") {
		t.Errorf("a large relay file: %+v", got)
	}
	if got := pharos(t, "", nil, "check", "/dev/zero"); got.status != 2 || !strings.Contains(got.stderr, "it is larger than 64 MB") {
		t.Errorf("an endless relay file: %+v", got)
	}
}

func TestReason(t *testing.T) {
	if got := reason(&os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}); got != "the file system is read-only" {
		t.Errorf("got %q", got)
	}
}
