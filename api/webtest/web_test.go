package webtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// patience bounds every wait; on a machine with nothing else to do a start
// takes a few seconds, and all of the browser's tests half a minute.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needs says what is missing for these tests, which make installs. They fail
// then, and do not skip.
func needs(t *testing.T) (node, chromium string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("these tests need Node.js 20.19 or newer: run make need-npm, and the tests by make test: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), node, "--version").Output()
	version := strings.Split(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"), ".")
	if major, _ := strconv.Atoi(version[0]); err != nil || major < 20 {
		t.Fatalf("these tests need Node.js 20.19 or newer, this is %q: run make need-npm, and the tests by make test", out)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if chromium, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("these tests need Chromium: run make need-chromium, or apt-get install chromium: %v", err)
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		t.Fatalf("the browser's tests are not installed: run make need-npm: %v", err)
	}
	return node, chromium
}

// rememberSources makes the results that go test remembers depend on what is
// really tested here: the scripts, and the program, which is no import.
func rememberSources(t *testing.T) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (name == "node_modules" || name == ".git" || name == "bin"):
			return filepath.SkipDir
		case !d.IsDir():
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // an editor's or another test's file
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serve builds Pharos and starts it on a few relays of ours, and returns where
// it answers. It is stopped, and must have ended well, when the test ends.
func serve(t *testing.T) string {
	t.Helper()
	// The private database's user must be able to enter it.
	dir, err := os.MkdirTemp("", "pharos-web-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	program := filepath.Join(dir, "pharos")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "github.com/pharos-nostr/pharos/cmd/pharos")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var relays []string
	for range 3 {
		r := relaytest.Start(t, relaytest.Options{})
		relays = append(relays, strconv.Quote(string(r.URL())))
	}
	config := filepath.Join(dir, "pharos.yaml")
	text := fmt.Sprintf("data_dir: %q\nlisten: 127.0.0.1:0\nrelays: [%s]\ndiscovery: {enabled: false}\nself_check: {canaries: []}\n"+
		"probe: {interval: 1m, allow_networks: [127.0.0.0/8], tls_ca_file: %q}\nlive: {min_count: 1}\n",
		filepath.Join(dir, "data"), strings.Join(relays, ", "), relaytest.CAFile(t))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve", "--config", config) // ended by its signal below
	cmd.Env = append(os.Environ(), "PHAROS_CONFIG=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	ready := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		log.follow(stderr, ready)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		hung := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("pharos serve ended with %v\n%s", err, log)
		}
		hung.Stop()
	})
	select {
	case url := <-ready:
		return url
	case <-read:
		t.Fatalf("pharos serve ended\n%s", log)
	case <-ctx.Done():
		t.Fatalf("pharos serve was not ready after %s\n%s", patience, log)
	}
	return ""
}

// logged is what a process logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var readyLine = regexp.MustCompile(`msg=ready .*live=(http://\S+)/v1/live`)

// follow keeps the log until it ends, and tells once where the process answers.
func (l *logged) follow(r io.Reader, ready chan<- string) {
	for s := bufio.NewScanner(r); s.Scan(); {
		l.mu.Lock()
		l.text.WriteString(s.Text() + "\n")
		l.mu.Unlock()
		if m := readyLine.FindStringSubmatch(s.Text()); m != nil {
			ready <- m[1]
		}
	}
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// script runs one of the installed programs and returns what it printed.
func script(t *testing.T, node string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, args...)
	cmd.Env = append(os.Environ(), env...)
	// The browser is a child of its own: it must not outlive a time-out.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestWeb(t *testing.T) {
	node, chromium := needs(t)
	rememberSources(t)
	url := serve(t)
	t.Run("the OpenAPI document lints clean", func(t *testing.T) { lint(t, node, url) })
	t.Run("the page in a browser", func(t *testing.T) {
		out, err := script(t, node,
			[]string{"PHAROS_URL=" + url, "PHAROS_CHROMIUM=" + chromium, "PHAROS_RESULTS=" + t.TempDir()},
			"node_modules/@playwright/test/cli.js", "test")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !regexp.MustCompile(`(?m)^\s*\d+ passed`).MatchString(out) {
			t.Errorf("no test ran:\n%s", out)
		}
	})
}

// lint lets neither an error nor a warning of the recommended rules through.
func lint(t *testing.T, node, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	doc, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !json.Valid(doc) {
		t.Fatalf("/openapi.json: %s, %d bytes, %v", resp.Status, len(doc), err)
	}
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := script(t, node, []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"},
		"node_modules/@redocly/cli/bin/cli.js", "lint", "--config", "redocly.yaml", "--format", "json", "--max-problems", "1000", file)
	start := strings.Index(out, "{")
	var result struct {
		Totals   struct{ Errors, Warnings int }
		Problems []struct {
			Severity, RuleID, Message string
			Location                  []struct{ Pointer string }
		}
	}
	if start < 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	if e := json.NewDecoder(strings.NewReader(out[start:])).Decode(&result); e != nil {
		t.Fatalf("%v, %v\n%s", err, e, out)
	}
	for _, p := range result.Problems {
		t.Errorf("%s %s: %s %v", p.Severity, p.RuleID, p.Message, p.Location)
	}
	if err != nil || result.Totals.Errors+result.Totals.Warnings != len(result.Problems) {
		t.Errorf("%v: %d errors, %d warnings", err, result.Totals.Errors, result.Totals.Warnings)
	}
}
