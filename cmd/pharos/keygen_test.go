package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

func TestKeygenEncrypted(t *testing.T) {
	dir := t.TempDir()
	passwordFile := writeFile(t, filepath.Join(dir, "password"), "from the file\n", 0o600)
	for password, environ := range map[string][]string{
		"from the environment": {keyPasswordVariable + "=from the environment", "PHAROS_KEY_PASSWORD_FILE=" + passwordFile},
		"from the file":        {"PHAROS_KEY_PASSWORD_FILE=" + passwordFile},
	} {
		file := filepath.Join(t.TempDir(), "service.key")
		got := pharos(t, "", environ, "--config", "testdata/config/good/empty.yaml", "keygen", "--encrypt", "--out", file)
		if got.status != 0 || got.stderr != "" || !strings.HasPrefix(got.stdout, "npub1") || strings.Count(got.stdout, "\n") != 1 {
			t.Fatalf("%+v", got)
		}
		key, err := nostr.KeyFile{Path: file, Password: func() (string, error) { return password, nil }}.Load()
		if err != nil || key.Npub() != strings.TrimSpace(got.stdout) {
			t.Errorf("%s: %v, %s", password, err, key.Npub())
		}
		if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "ncryptsec1") {
			t.Errorf("%s: the file holds no ncryptsec: %v", password, err)
		}
		again := pharos(t, "", environ, "--config", "testdata/config/good/empty.yaml", "keygen", "--encrypt", "--out", file)
		if again.status != exitStart || !strings.Contains(again.stderr, "is there already and is never overwritten") {
			t.Errorf("once more: %+v", again)
		}
	}
	file := filepath.Join(dir, "service.key")
	got := pharos(t, "secret\nsecret\n", nil, "--config", "testdata/config/good/empty.yaml", "keygen", "--encrypt", "--out", file)
	if got.status != exitStart || !strings.Contains(got.stderr, "there is no terminal to ask for a password on; set PHAROS_KEY_PASSWORD") || got.stdout != "" {
		t.Errorf("without a terminal: %+v", got)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a key was made without its password")
	}
	// Without the flag a key is plain, wherever a password is.
	plain := pharos(t, "", []string{keyPasswordVariable + "=unused"}, "keygen", "--out", file)
	if key, err := nostr.LoadKey(file); err != nil || key.Npub() != strings.TrimSpace(plain.stdout) {
		t.Errorf("a plain key: %v, %+v", err, plain)
	}
}
