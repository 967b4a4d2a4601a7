package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A process goes on where it began, whatever listen is by now: commands find it
// by its data directory.
func TestCommandsFindTheProcess(t *testing.T) {
	f := newFakeCore(t, doAll)
	address := strings.TrimPrefix(f.URL, "http://")
	exclude := func(args ...string) result {
		t.Helper()
		args = append(args, "--config", "testdata/config/good/empty.yaml", "--data-dir", f.dir, "relays", "exclude", "wss://a.example/")
		return pharos(t, "", []string{"PHAROS_LISTEN=127.0.0.1:1"}, args...)
	}
	nobody := func(name string, got result) {
		t.Helper()
		if got.status != exitBad || !strings.Contains(got.stderr, "nothing answers at http://127.0.0.1:1:") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	nobody("no lock", exclude())
	lock, err := lockDataDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	nobody("it does not listen yet", exclude())
	lock.announce(address)
	if got := exclude(); got.status != exitFine {
		t.Errorf("listen was changed: %+v", got)
	}
	if got := pharos(t, "", []string{"PHAROS_LISTEN=127.0.0.1:1"}, "--config", "testdata/config/good/empty.yaml", "--data-dir", f.dir, "health"); !strings.Contains(got.stderr, f.URL) {
		t.Errorf("health: %+v", got)
	}
	nobody("--listen is obeyed", exclude("--listen", "127.0.0.1:1"))
	if _, err := lockDataDir(f.dir); err == nil || !strings.HasPrefix(err.Error(), "process "+strconv.Itoa(os.Getpid())+" uses the data directory ") {
		t.Errorf("a second process: %v", err)
	}
	if err := lock.release(); err != nil {
		t.Fatal(err)
	}
	nobody("it ended", exclude())

	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"it was killed": strconv.Itoa(dead.Process.Pid) + "\n" + address + "\n",
		"damaged":       "\x00" + address,
		"of another":    "-1\n" + address + "\n",
	} {
		writeFile(t, filepath.Join(f.dir, lockName), text, 0o600)
		nobody(name, exclude())
	}
}
