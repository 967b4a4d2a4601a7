package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/nbd-wtf/go-nostr/nip49"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// vault is a test's secrets by name, and everything that the program lets out.
type vault struct {
	secrets map[string]string
	seen    map[string]string // by where
}

// add remembers a secret and returns it.
func (v *vault) add(name, secret string) string {
	v.secrets[name] = secret
	return secret
}

func (v *vault) saw(where, text string) { v.seen[where] += text }

// piece is how much of a long secret is enough to be a leak, characters.
const piece = 16

// check looks for every secret, and for the pieces of the long ones, in
// everything that was seen.
func (v *vault) check(t *testing.T) {
	t.Helper()
	for where, text := range v.seen {
		for name, secret := range v.secrets {
			i := strings.Index(text, secret)
			for at := 0; i < 0 && at+piece <= len(secret); at += piece {
				i = strings.Index(text, secret[at:at+piece])
			}
			if i >= 0 {
				t.Errorf("%s shows the secret %q: …%s…", where, name, text[max(0, i-200):min(len(text), i+50)])
			}
		}
	}
}

// keyWithPassword makes an encrypted key, and puts what is secret of it into
// the vault.
func (v *vault) keyWithPassword(t *testing.T, file, password string) {
	t.Helper()
	if _, err := (nostr.KeyFile{Path: file, Password: func() (string, error) { return password, nil }}).Create(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sealed := v.add("encrypted key", strings.TrimSpace(string(text)))
	b, err := nip49.DecryptToBytes(sealed, password)
	if err != nil {
		t.Fatal(err)
	}
	nsec, err := nip19.EncodePrivateKey(v.add("key in hex", hex.EncodeToString(b)))
	if err != nil {
		t.Fatal(err)
	}
	v.add("nsec", nsec)
	v.add("key in base64", base64.StdEncoding.EncodeToString(b))
	v.add("key as Go prints bytes", strings.Trim(fmt.Sprint(b), "[]"))
}

// send sends a request with an Authorization header and notes the answer.
func (v *vault) send(t *testing.T, method, url, authorization, body string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	path := req.URL.Path
	v.saw(fmt.Sprintf("the answer to %s %s", method, path), fmt.Sprint(resp.Header)+string(answer))
	return resp.StatusCode
}

// signed is the Authorization header of NIP-98 for one request.
func signed(t *testing.T, key nostr.Key, method, url, body string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	ev := nostr.Event{Kind: 27235, CreatedAt: gonostr.Now(), Tags: nostr.Tags{{"u", url}, {"method", method}, {"payload", hex.EncodeToString(sum[:])}}}
	if err := key.Sign(&ev); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(ev)
	if err != nil {
		t.Fatal(err)
	}
	return "Nostr " + base64.StdEncoding.EncodeToString(b)
}

// processes notes the arguments of every process of this machine, and the
// environment of those that are not this one.
func (v *vault) processes(t *testing.T) (seen int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("this test needs /proc, which shows other processes' arguments")
	}
	for _, dir := range dirs {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil { // it ended meanwhile
			continue
		}
		seen++
		v.saw("a process's arguments", string(args)+"\n")
		if filepath.Base(dir) != fmt.Sprint(os.Getpid()) {
			if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil {
				v.saw("a process's environment", string(env)+"\n")
			}
		}
	}
	return seen
}

// Issue 3, Must show 5: whatever is secret, it is in no log, answer, error,
// dump or argument. A whole process runs, and is asked rightly and wrongly.
func TestSecretsStayHidden(t *testing.T) {
	v := &vault{secrets: map[string]string{}, seen: map[string]string{}}
	dir, work := dataDir(t), t.TempDir()
	password := v.add("key password", "pw-Zuckerrohr-4711")
	v.keyWithPassword(t, filepath.Join(dir, "service.key"), password)
	// Children must not inherit it, so it is in the real environment too.
	t.Setenv(keyPasswordVariable, password)
	operator, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	relay := relaytest.Start(t, relaytest.Options{})
	good := fmt.Sprintf("relays: [%q]\noperators: [%s]\nself_check: {canaries: []}\ndiscovery: {enabled: false}\nprobe: {interval: 12s, allow_networks: [127.0.0.0/8]}\n", relay.URL(), operator.Npub())
	config := writeFile(t, filepath.Join(work, "pharos.yaml"), good, 0o600)

	log, out := &lockedBuffer{}, &lockedBuffer{}
	signals, status := make(chan os.Signal, 1), make(chan int, 1)
	go func() {
		status <- run(context.Background(), []string{"--config", config, "--listen", "127.0.0.1:0", "--data-dir", dir, "--log-level", "debug", "serve"}, process{
			stdin: strings.NewReader(""), stdout: out, stderr: log, signals: signals, environ: []string{keyPasswordVariable + "=" + password},
		})
	}()
	base := strings.TrimSuffix(waitForLog(t, log, "msg=ready", "live="), "/v1/live")
	b, err := os.ReadFile(adminTokenFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	token := v.add("admin token", strings.TrimSpace(string(b)))

	v.askTheAPI(t, base, token, operator)
	v.reloadWrongly(t, base, token, config, good)
	v.useCommands(t, base, dir, config, password)

	var dump bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&dump, 2); err != nil {
		t.Fatal(err)
	}
	v.saw("the dump of all goroutines", dump.String())
	if n := v.processes(t); n < 2 || !strings.Contains(v.seen["a process's arguments"], dir) {
		t.Errorf("of %d processes none was the database's", n)
	}

	signals <- syscall.SIGTERM
	select {
	case got := <-status:
		if got != 0 {
			t.Errorf("exit status %d", got)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	v.saw("the log", log.String())
	v.saw("standard output", out.String())
	for where, text := range map[string]string{
		"the log":                      "npub1",
		"the dump of all goroutines":   "goroutine",
		"the answer to GET /metrics":   "pharos_",
		"the answer to GET /v1/status": "version",
	} {
		if !strings.Contains(v.seen[where], text) {
			t.Errorf("%s holds no %q: it was not looked at", where, text)
		}
	}
	v.files(t, dir)
	v.check(t)
}

// askTheAPI sends what operators and strangers send, rightly and wrongly.
func (v *vault) askTheAPI(t *testing.T, base, token string, operator nostr.Key) {
	t.Helper()
	for _, path := range []string{"/metrics", "/v1/status", "/openapi.json", "/docs", "/v1/live", "/v1/relays", "/v1/transitions", "/readyz", "/healthz", "/", "/no/such/path"} {
		v.send(t, http.MethodGet, base+path, "", "")
		v.send(t, http.MethodGet, base+path, "Bearer "+token, "")
	}
	check := base + "/v1/admin/check"
	const body = `{"relays":["wss://relay.example.com"]}`
	stranger, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	right := signed(t, operator, http.MethodPost, check, body)
	for _, c := range []struct {
		name, authorization, body string
		status                    int
	}{
		{"the token", "Bearer " + token, body, http.StatusOK},
		{"a mistyped token", "Bearer " + v.add("mistyped token", strings.ToUpper(token[:20])+"-x"), body, http.StatusUnauthorized},
		{"a password", "Basic " + v.add("basic credentials", base64.StdEncoding.EncodeToString([]byte("admin:pw-Kandiszucker"))), body, http.StatusUnauthorized},
		{"a signed request", right, body, http.StatusOK},
		{"the same once more", right, body, http.StatusUnauthorized},
		{"a stranger's", signed(t, stranger, http.MethodPost, check, body), body, http.StatusForbidden},
		{"for another body", signed(t, operator, http.MethodPost, check, "{}"), body, http.StatusUnauthorized},
		{"a broken one", right[:len(right)-10], body, http.StatusUnauthorized},
		{"a wrong body", "Bearer " + token, `{"relays":["wss://a.example/?auth=` + v.add("secret of a URL", "qs-Rohrohrzucker") + `"],"note":7}`, http.StatusUnprocessableEntity},
		{"a refused URL", "Bearer " + token, `{"relays":["wss://user:` + v.add("password of a URL", "pw-Puderzucker") + `@a.example","wss://a.example/?auth=qs-Rohrohrzucker"]}`, http.StatusOK},
	} {
		if got := v.send(t, http.MethodPost, check, c.authorization, c.body); got != c.status {
			t.Errorf("%s answers %d, want %d", c.name, got, c.status)
		}
		if _, credentials, _ := strings.Cut(c.authorization, " "); strings.HasPrefix(c.authorization, "Nostr ") {
			v.add("signed: "+c.name, credentials[len(credentials)/2:]) // what all of them begin with is none
		}
	}
	submitted := `{"url":"wss://user:pw-Puderzucker@a.example/?auth=qs-Rohrohrzucker"}`
	v.send(t, http.MethodPost, base+"/v1/relays/submit", "", submitted)
	v.send(t, http.MethodGet, base+"/v1/relay?url="+url.QueryEscape("wss://a.example/?auth=qs-Rohrohrzucker"), "", "")
	v.send(t, http.MethodGet, base+"/v1/live?token=qs-Rohrohrzucker", "", "")
}

// reloadWrongly has the process read a configuration that is wrong and full of
// secrets.
func (v *vault) reloadWrongly(t *testing.T, base, token, config, good string) {
	t.Helper()
	operatorSecret := v.add("operator's nsec", plainKey)
	bad := good + fmt.Sprintf(`database: {url: "mysql://pharos:%s@db/pharos"}
networks: {tor: {proxy: "socks5h://tor:%s@127.0.0.1:9050"}}
alerts: {webhooks: [{url: "https://hooks.example.com/%s"}], heartbeat_url: "https://beat.example.com/%s"}
key: {nsec: %s, passwort_file: %s}
`, v.add("database password", "pw-Kristallzucker"), v.add("proxy password", "pw-Invertzucker"), v.add("webhook", "wh-Traubenzucker"),
		v.add("heartbeat", "hb-Fruchtzucker"), operatorSecret, v.add("misplaced password", "pw-Milchzucker"))
	bad = strings.Replace(bad, "operators: [", "operators: ["+operatorSecret+", ", 1)
	writeFile(t, config, bad, 0o600)
	if got := v.send(t, http.MethodPost, base+"/v1/admin/reload", "Bearer "+token, "{}"); got != http.StatusUnprocessableEntity {
		t.Errorf("a wrong configuration is answered with %d", got)
	}
	for _, args := range [][]string{{"config", "check"}, {"config", "print"}, {"config", "reload"}, {"serve"}} {
		got := pharos(t, "", nil, append([]string{"--config", config, "--log-level", "debug"}, args...)...)
		if got.status != exitUsage || strings.Count(got.stderr, "\n") < 6 {
			t.Errorf("%v with a wrong configuration: status %d, %s", args, got.status, got.stderr)
		}
		v.saw(fmt.Sprintf("the command %v with a wrong configuration", args), got.stdout+got.stderr)
	}
	writeFile(t, config, good, 0o600)
	if got := v.send(t, http.MethodPost, base+"/v1/admin/reload", "Bearer "+token, "{}"); got != http.StatusOK {
		t.Errorf("the right configuration is answered with %d", got)
	}
}

// useCommands runs the commands beside the process, with secrets in all that
// they are given.
func (v *vault) useCommands(t *testing.T, base, dir, config, password string) {
	t.Helper()
	work := t.TempDir()
	dsn, err := url.Parse(postgres.TestDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword(dsn.User.Username(), "pw-Kristallzucker")
	recorded, tools := recordingTools(t, dir)
	wrongPassword := writeFile(t, filepath.Join(work, "wrong"), v.add("wrong password", "pw-Malzzucker"), 0o600)
	keyCopy := filepath.Join(work, "copied.key")
	text, err := os.ReadFile(filepath.Join(dir, "service.key"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, keyCopy, string(text), 0o600)
	damagedKey := writeFile(t, filepath.Join(work, "damaged.key"), plainKey[:60]+"qqq", 0o600)
	v.add("damaged key", plainKey[10:60])

	list := "wss://user:pw-Puderzucker@a.example\nwss://a.example/?auth=qs-Rohrohrzucker\nwss://good.example\n"
	const away = "postgres://pharos:pw-Kristallzucker@127.0.0.1:1/pharos"
	for _, c := range []struct {
		name    string
		status  int
		stdin   string
		environ []string
		args    []string
	}{
		{"config print", 0, "", []string{"PHAROS_DATABASE_URL=" + away}, []string{"config", "print"}},
		{"config check", 0, "", nil, []string{"config", "check"}},
		{"migrate without its database", 3, "", []string{"PHAROS_DATABASE_URL=" + away}, []string{"migrate"}},
		{"serve without its database", 3, "", []string{"PHAROS_DATABASE_URL=" + away}, []string{"--listen", "127.0.0.1:0", "--data-dir", work, "serve"}},
		{"serve with a wrong password", 3, "", []string{"PHAROS_KEY_FILE=" + keyCopy, "PHAROS_KEY_PASSWORD_FILE=" + wrongPassword}, []string{"--listen", "127.0.0.1:0", "--data-dir", work, "serve"}},
		{"serve without a password", 3, "", []string{"PHAROS_KEY_FILE=" + keyCopy, keyPasswordVariable + "="}, []string{"--listen", "127.0.0.1:0", "--data-dir", work, "serve"}},
		{"serve with a damaged key", 3, "", []string{"PHAROS_KEY_FILE=" + damagedKey}, []string{"--listen", "127.0.0.1:0", "--data-dir", work, "serve"}},
		{"keygen", 0, "", nil, []string{"keygen", "--out", filepath.Join(work, "new.key")}},
		{"keygen --encrypt", 0, "", []string{keyPasswordVariable + "=" + password}, []string{"keygen", "--encrypt", "--out", filepath.Join(work, "sealed.key")}},
		{"relays list", 0, "", nil, []string{"relays", "list"}},
		{"relays import", 0, list, nil, []string{"relays", "import", "-"}},
		{"relays exclude", 1, "", nil, []string{"relays", "exclude", "wss://user:pw-Puderzucker@a.example", "wss://a.example/?auth=qs-Rohrohrzucker"}},
		{"relays exclude, refused", 1, "", nil, []string{"relays", "exclude", "wss://a.example", "--note", strings.Repeat("so ", 200)}},
		{"check", 2, "", nil, []string{"check", "wss://user:pw-Puderzucker@a.example"}},
		{"health", 1, "", nil, []string{"health", "http://user:pw-Puderzucker@127.0.0.1:1"}},
		{"config reload", 0, "", nil, []string{"config", "reload"}},
		{"backup", 0, "", []string{"PHAROS_DATABASE_URL=" + dsn.String(), "PHAROS_DATABASE_PG_BIN=" + tools}, []string{"backup", filepath.Join(work, "backup")}},
		{"restore beside it", 3, "", nil, []string{"restore", filepath.Join(work, "backup")}},
	} {
		args := append([]string{"--config", config, "--log-level", "debug", "--data-dir", dir, "--listen", strings.TrimPrefix(base, "http://")}, c.args...)
		got := pharos(t, c.stdin, c.environ, args...)
		if got.status != c.status {
			t.Errorf("%s: status %d, want %d, %s", c.name, got.status, c.status, got.stderr)
		}
		v.saw("the command "+c.name, got.stdout+got.stderr)
	}
	text, err = os.ReadFile(recorded)
	if err != nil || !strings.Contains(string(text), "pg_dump") {
		t.Errorf("the backup's program was not recorded: %v", err)
	}
	v.saw("the arguments of the backup's program", string(text))
}

// recordingTools is a directory with PostgreSQL's programs, taken from those
// that run in dataDir, of which pg_dump first writes its arguments to a file.
func recordingTools(t *testing.T, dataDir string) (recorded, tools string) {
	t.Helper()
	var bin string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.Contains(args, []byte(dataDir)) {
			continue
		}
		if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && filepath.Base(exe) == "postgres" {
			bin = filepath.Dir(exe)
		}
	}
	if bin == "" {
		t.Fatal("the private PostgreSQL is not among the processes")
	}
	tools = t.TempDir()
	recorded = filepath.Join(tools, "recorded")
	programs, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.Symlink(filepath.Join(bin, p.Name()), filepath.Join(tools, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf("#!/bin/sh\necho \"pg_dump $*\" >> %q\nexec %q \"$@\"\n", recorded, filepath.Join(bin, "pg_dump"))
	writeFile(t, filepath.Join(tools, "pg_dump"), script, 0o755)
	return recorded, tools
}

// files notes every text that the process left in its data directory, but for
// the files that are there to hold a secret.
func (v *vault) files(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(dir, "service.key") || path == adminTokenFile(dir) {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		for secret, text := range v.secrets {
			if bytes.Contains(b, []byte(text)) {
				t.Errorf("the file %s holds the secret %q", name, secret)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
