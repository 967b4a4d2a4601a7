package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeCore is a server in the place of a running core, and its data directory.
type fakeCore struct {
	*httptest.Server
	dir   string
	token string

	mu       sync.Mutex
	answer   answerFunc
	requests []string // method, path and body
}

type answerFunc func(w http.ResponseWriter, path string, body []byte)

// newFakeCore answers what comes with the right token as answer says.
func newFakeCore(t *testing.T, answer answerFunc) *fakeCore {
	t.Helper()
	f := &fakeCore{dir: t.TempDir(), answer: answer}
	token, created, err := loadOrCreateAdminToken(f.dir)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	f.token = token.Reveal()
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		answer := f.answer
		f.mu.Unlock()
		if r.Method == http.MethodPost && (r.Header.Get("Authorization") != "Bearer "+f.token || r.Header.Get("Content-Type") != "application/json") {
			problemAnswer(w, http.StatusUnauthorized, `{"title":"Unauthorized","status":401,"detail":"the token is not the one in admin.token of the data directory"}`)
			return
		}
		answer(w, r.URL.RequestURI(), body)
	}))
	t.Cleanup(f.Close)
	return f
}

// asked is what it was asked since the last call.
func (f *fakeCore) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// answers changes how it answers.
func (f *fakeCore) answers(answer answerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func problemAnswer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// run runs a command against it.
func (f *fakeCore) run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	return pharos(t, stdin, nil, append([]string{
		"--config", "testdata/config/good/empty.yaml", "--data-dir", f.dir, "--listen", strings.TrimPrefix(f.URL, "http://"),
	}, args...)...)
}

// doAll does what is asked of it, but for relays with "no" in their name.
func doAll(w http.ResponseWriter, _ string, body []byte) {
	var in adminRequest
	if err := json.Unmarshal(body, &in); err != nil {
		problemAnswer(w, http.StatusBadRequest, `{"detail":"no JSON"}`)
		return
	}
	out := adminResults{}
	for _, list := range [][]string{in.Add, in.Remove, in.Relays} {
		for _, u := range list {
			r := adminResult{Input: u, URL: u, Done: !strings.Contains(u, "no")}
			if !r.Done {
				r.Reason = "is watched already"
			}
			out.Results = append(out.Results, r)
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func TestSteer(t *testing.T) {
	f := newFakeCore(t, func(w http.ResponseWriter, path string, body []byte) {
		switch {
		case path == "/v1/admin/reload":
			_, _ = w.Write([]byte(`{"changed":["relays","probe.interval"],"need_restart":["listen"]}`))
		case strings.Contains(string(body), `"note":"none held"`):
			_, _ = w.Write([]byte(`{"results":[]}`))
		case strings.Contains(string(body), `"all":true`):
			_, _ = w.Write([]byte(`{"results":[{"input":"","url":"wss://held.example/","done":true,"reason":""}]}`))
		default:
			doAll(w, path, body)
		}
	})
	for _, c := range []struct {
		args            []string
		request, stdout string
	}{
		{[]string{"relays", "add", "wss://a.example/", "wss://no.example/", "--note", "why"}, `POST /v1/admin/relays {"add":["wss://a.example/","wss://no.example/"],"note":"why"}`, "wss://a.example/: added\nwss://no.example/: is watched already\n"},
		{[]string{"relays", "remove", "wss://a.example/"}, `POST /v1/admin/relays {"remove":["wss://a.example/"]}`, "wss://a.example/: removed\n"},
		{[]string{"relays", "exclude", "wss://a.example/"}, `POST /v1/admin/exclude {"add":["wss://a.example/"]}`, "wss://a.example/: excluded\n"},
		{[]string{"relays", "include", "wss://a.example/"}, `POST /v1/admin/exclude {"remove":["wss://a.example/"]}`, "wss://a.example/: no longer excluded\n"},
		{[]string{"relays", "check", "wss://a.example/"}, `POST /v1/admin/check {"relays":["wss://a.example/"]}`, "wss://a.example/: will be probed now\n"},
		{[]string{"relays", "reset", "wss://a.example/"}, `POST /v1/admin/reset {"relays":["wss://a.example/"]}`, "wss://a.example/: its records are forgotten\n"},
		{[]string{"relays", "pause", "--for", "1d", "wss://a.example/"}, `POST /v1/admin/pause {"relays":["wss://a.example/"],"for":"24h0m0s"}`, "wss://a.example/: paused for 1d\n"},
		{[]string{"relays", "resume", "wss://a.example/"}, `POST /v1/admin/pause {"relays":["wss://a.example/"],"resume":true}`, "wss://a.example/: no longer paused\n"},
		{[]string{"relays", "maintenance", "--for", "2h", "--from", "2026-12-01T00:00:00Z", "--note", "disks", "wss://a.example/"}, `POST /v1/admin/maintenance {"relays":["wss://a.example/"],"from":"2026-12-01T00:00:00Z","for":"2h0m0s","note":"disks"}`, "wss://a.example/: in maintenance for 2h\n"},
		{[]string{"relays", "release", "wss://a.example/"}, `POST /v1/admin/release {"relays":["wss://a.example/"]}`, "wss://a.example/: released\n"},
		{[]string{"relays", "release", "--all"}, `POST /v1/admin/release {"all":true}`, "wss://held.example/: released\n"},
		{[]string{"relays", "release", "--all", "--note", "none held"}, `POST /v1/admin/release {"all":true,"note":"none held"}`, "there was nothing to do\n"},
		{[]string{"config", "reload"}, `POST /v1/admin/reload {}`, "changed: relays, probe.interval\nonly after a restart: listen\n"},
	} {
		got := f.run(t, "", c.args...)
		if asked := f.asked(); got.status != 0 || got.stdout != c.stdout || got.stderr != "" || len(asked) != 1 || asked[0] != c.request {
			t.Errorf("%v: %+v, requests %q", c.args, got, asked)
		}
	}
	for _, args := range [][]string{{"relays", "release"}, {"relays", "release", "--all", "wss://a.example/"}, {"relays", "pause", "wss://a.example/"}, {"relays", "pause", "--for", "1 day", "wss://a.example/"}, {"relays", "exclude"}} {
		if got := f.run(t, "", args...); got.status != exitUsage || got.stderr == "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if asked := f.asked(); len(asked) != 0 {
		t.Errorf("wrong usage was sent: %q", asked)
	}
	// Nothing was done: that is a bad answer.
	if got := f.run(t, "", "relays", "add", "wss://no.example/"); got.status != exitBad || got.stdout != "wss://no.example/: is watched already\n" || got.stderr != "pharos: nothing was changed\n" {
		t.Errorf("nothing done: %+v", got)
	}
}

// Whatever answers, or does not, is told in a sentence, and the token is not.
func TestCoreErrors(t *testing.T) {
	f := newFakeCore(t, doAll)
	elsewhere := newFakeCore(t, func(http.ResponseWriter, string, []byte) {})
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		says   string
	}{
		"problem": {func(w http.ResponseWriter) {
			problemAnswer(w, 422, `{"detail":"the request has 2 problems; errors names each","errors":[{"location":"body.add[0]","message":"is empty"},{"message":"is late"}]}`)
		}, " says: the request has 2 problems; errors names each\nbody.add[0]: is empty\nis late\n"},
		"many": {func(w http.ResponseWriter) {
			problemAnswer(w, 422, `{"detail":"so","errors":[`+strings.Repeat(`{"message":"x"},`, 20)+`{"message":"x"}]}`)
		}, "\nx\nand 11 more\n"},
		"busy": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			problemAnswer(w, 503, `{"title":"Service Unavailable"}`)
		}, " says: Service Unavailable\ntry again in 7 seconds\n"},
		"another program": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, "not as Pharos does"},
		"not found":       {func(w http.ResponseWriter) { w.WriteHeader(404) }, "does not know this request"},
		"broken":          {func(w http.ResponseWriter) { problemAnswer(w, 500, `{`) }, "answers with HTTP status 500"},
		"moved": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(307)
		}, "answers with HTTP status 307"},
		"endless":   {func(w http.ResponseWriter) { _, _ = w.Write([]byte(strings.Repeat(" ", maxCoreAnswer+1) + "{}")) }, "not as Pharos does"},
		"broke off": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "broke off"},
	} {
		f.answers(func(w http.ResponseWriter, _ string, _ []byte) { c.answer(w) })
		got := f.run(t, "", "relays", "exclude", "wss://a.example/")
		if got.status != exitBad || !strings.Contains(got.stderr, c.says) || strings.Contains(got.stderr+got.stdout, f.token) || !strings.Contains(got.stderr, f.URL) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(elsewhere.asked()) != 0 {
		t.Error("the token went to another address")
	}
	// The token of another data directory.
	f.dir = elsewhere.dir
	if got := f.run(t, "", "relays", "exclude", "wss://a.example/"); got.status != exitBad || !strings.Contains(got.stderr, "Name it with --data-dir") || strings.Contains(got.stderr, elsewhere.token) {
		t.Errorf("another token: %+v", got)
	}
	// Nobody there.
	f.Close()
	if got := f.run(t, "", "relays", "exclude", "wss://a.example/"); got.status != exitBad || !strings.Contains(got.stderr, "nothing answers at "+f.URL+": start Pharos with pharos serve") {
		t.Errorf("not running: %+v", got)
	}
	if got := pharos(t, "", nil, "--config", "testdata/config/good/empty.yaml", "--listen", "127.0.0.1:0", "relays", "list"); got.status != exitUsage || !strings.Contains(got.stderr, "which is any free port") {
		t.Errorf("no port: %+v", got)
	}
}

func TestAdminToken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admin.token")
	token, created, err := loadOrCreateAdminToken(dir)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if raw, err := base64.RawURLEncoding.DecodeString(token.Reveal()); err != nil || len(raw) != 32 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	again, created, err := loadOrCreateAdminToken(dir)
	if err != nil || created || again != token {
		t.Errorf("a second start: made %v, %v", created, err)
	}
	other, _, err := loadOrCreateAdminToken(t.TempDir())
	if err != nil || other == token {
		t.Errorf("two directories have the same token, or %v", err)
	}

	good := token.Reveal() + "\n"
	link := filepath.Join(t.TempDir(), "there")
	writeFile(t, link, good, 0o600)
	for name, c := range map[string]struct {
		make func(file string) error
		says string
	}{
		"others read it": {func(string) error { writeFile(t, file, good, 0o644); return nil }, "has the permissions 0644, so others can reach it; run: chmod 600 " + file},
		"a group":        {func(string) error { writeFile(t, file, good, 0o640); return nil }, "has the permissions 0640"},
		"a link":         {func(string) error { return os.Symlink(link, file) }, "is no regular file; remove it"},
		"a directory":    {func(string) error { return os.Mkdir(file, 0o700) }, "is no regular file; remove it"},
		"empty":          {func(string) error { writeFile(t, file, "", 0o600); return nil }, "holds no token; remove it"},
		"short":          {func(string) error { writeFile(t, file, good[:20], 0o600); return nil }, "holds no token; remove it"},
		"two":            {func(string) error { writeFile(t, file, good+good, 0o600); return nil }, "holds no token; remove it"},
	} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := c.make(file); err != nil {
			t.Fatal(err)
		}
		_, created, err := loadOrCreateAdminToken(dir)
		var exit *exitError
		if created || !errors.As(err, &exit) || exit.status != exitStart || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), good[:10]) {
			t.Errorf("%s: made %v, %v", name, created, err)
		}
		got := pharos(t, "", nil, "--config", "testdata/config/good/empty.yaml", "--data-dir", dir, "relays", "exclude", "wss://a.example/")
		if got.status != exitBad || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s, a command: %+v", name, got)
		}
	}
	if _, _, err := loadOrCreateAdminToken(filepath.Join(dir, "none")); err == nil {
		t.Error("made in a directory that is not there")
	}
	empty := t.TempDir()
	got := pharos(t, "", nil, "--config", "testdata/config/good/empty.yaml", "--data-dir", empty, "relays", "exclude", "wss://a.example/")
	if got.status != exitBad || !strings.Contains(got.stderr, "pharos serve makes it at its first start") {
		t.Errorf("no token: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(empty, "admin.token")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a command made a token: %v", err)
	}
}
