package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The key of NIP-49's example.
const (
	sealedKey  = "ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8th8wclt0h4p"
	sealedNpub = "npub1vu4rr079n5lsg4ywexma4m469asczn5ve3qyfqz9qpl4g70kjw3sgny3w6"
	plainKey   = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	plainNpub  = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg"
)

// writeFile makes a file with exactly this mode and returns its name.
func writeFile(t *testing.T, name, text string, mode fs.FileMode) string {
	t.Helper()
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // nobody could write to a 0400
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestOpenKey(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	password := writeFile(t, filepath.Join(t.TempDir(), "password"), "nostr\n", 0o600)
	sealed := writeFile(t, filepath.Join(t.TempDir(), "sealed.key"), sealedKey+"\n", 0o600)
	const inEnvironment, wrong = keyPasswordVariable + "=nostr", keyPasswordVariable + "=n0str-wrong"
	provide := "CREDENTIALS_DIRECTORY=" + credentials

	open := func(c Config, environ ...string) (npub string, created bool, file string, err error) {
		key, created, file, err := c.openKey(dir, environ)
		return key.Npub(), created, file, err
	}
	with := func(file, passwordFile string) Config {
		c := Default()
		c.Key = Key{File: file, PasswordFile: passwordFile}
		return c
	}

	// Nothing is there: a key is made, and is the same the next time.
	made, created, file, err := open(Default())
	if err != nil || !created || file != filepath.Join(dir, "service.key") {
		t.Fatalf("the first start: %v, made %v in %s", err, created, file)
	}
	if again, created, _, err := open(Default(), inEnvironment, provide); err != nil || created || again != made {
		t.Errorf("the second: %v, made %v, %s after %s", err, created, again, made)
	}

	// An encrypted one, with its password from either place.
	for name, environ := range map[string][]string{with(sealed, password).Key.PasswordFile: nil, "": {inEnvironment}} {
		if npub, created, _, err := open(with(sealed, name), environ...); err != nil || created || npub != sealedNpub {
			t.Errorf("an encrypted key, password %q: %v, %s", name, err, npub)
		}
	}
	for _, c := range []struct {
		name    string
		config  Config
		environ []string
		says    string
	}{
		{"no password", with(sealed, ""), nil, "its password is needed: name a file with it in key.password_file, or set PHAROS_KEY_PASSWORD in the environment"},
		{"an empty one", with(sealed, ""), []string{keyPasswordVariable + "="}, "its password is needed"},
		{"a wrong one", with(sealed, ""), []string{wrong}, "the password is not that of this key"},
		{"the environment above the file", with(sealed, password), []string{wrong}, "the password is not that of this key"},
		{"a file that went away", with(sealed, password+".gone"), nil, "cannot be read: there is no such file"},
	} {
		_, _, _, err := open(c.config, c.environ...)
		var exit *exitError
		if !errors.As(err, &exit) || exit.status != exitStart || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, secret := range []string{"n0str-wrong", sealedKey[20:40]} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: a secret is shown: %v", c.name, err)
			}
		}
	}

	// What the service manager provides stands above the data directory and
	// below key.file.
	writeFile(t, filepath.Join(credentials, "service.key"), sealedKey, 0o440)
	writeFile(t, filepath.Join(credentials, "key_password"), "nostr", 0o400)
	if npub, created, file, err := open(Default(), provide); err != nil || created || npub != sealedNpub || file != filepath.Join(credentials, "service.key") {
		t.Errorf("a credential: %v, made %v, %s in %s", err, created, npub, file)
	}
	plain := writeFile(t, filepath.Join(t.TempDir(), "plain.key"), plainKey, 0o600)
	if npub, _, _, err := open(with(plain, ""), provide); err != nil || npub != plainNpub {
		t.Errorf("key.file beside a credential: %v, %s", err, npub)
	}
	if err := os.Chmod(filepath.Join(credentials, "service.key"), 0o444); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := open(Default(), provide); err == nil {
		t.Error("a credential that everybody may read is taken")
	}
}

// With a password at hand a new key is not written in the clear.
func TestNewKeyIsEncrypted(t *testing.T) {
	dir := t.TempDir()
	c := Default()
	const environ = keyPasswordVariable + "=correct horse"
	key, created, file, err := c.openKey(dir, []string{environ})
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "ncryptsec1") {
		t.Errorf("the file holds no ncryptsec: %v", err)
	}
	again, created, _, err := c.openKey(dir, []string{environ})
	if err != nil || created || again.Pubkey() != key.Pubkey() {
		t.Errorf("the second start: %v, made %v", err, created)
	}
	// Never where a service manager should have put one.
	if _, created, _, err := c.openKey(dir, []string{"CREDENTIALS_DIRECTORY=" + filepath.Join(dir, "none")}); err == nil || created {
		t.Errorf("made %v, %v", created, err)
	}
}

func TestPasswordFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	for text, want := range map[string]string{
		"word": "word", "word\n": "word", "word\r\n": "word", " two words \n": " two words ", "\ufeffword\n": "word",
	} {
		if got, err := readPassword(writeFile(t, name, text, 0o600), false); err != nil || got.Reveal() != want {
			t.Errorf("%q is %q, %v", text, got.Reveal(), err)
		}
	}
	for text, says := range map[string]string{
		"": "is empty", "\n": "is empty", "SEKRIT\nmore\n": "has more than one line", "\nSEKRIT": "has more than one line", "SEKRIT\rmore": "has more than one line",
		"SEKRIT\xff": "is not UTF-8", strings.Repeat("SEKRIT", 1000): "larger than 4 KB",
	} {
		_, err := readPassword(writeFile(t, name, text, 0o600), false)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "SEKRIT") {
			t.Errorf("%.20q: %v", text, err)
		}
		got := pharos(t, "", []string{"PHAROS_KEY_PASSWORD_FILE=" + name}, "config", "check")
		if got.status != exitUsage || !strings.Contains(got.stderr, "key.password_file: ") || !strings.Contains(got.stderr, says) || strings.Contains(got.stderr, "SEKRIT") {
			t.Errorf("config check: %+v", got)
		}
	}
	for mode, fine := range map[fs.FileMode][2]bool{0o400: {true, true}, 0o600: {true, true}, 0o440: {false, true}, 0o644: {false, false}, 0o620: {false, false}} {
		writeFile(t, name, "word", mode)
		for i, provided := range []bool{false, true} {
			if _, err := readPassword(name, provided); (err == nil) != fine[i] || err != nil && !strings.Contains(err.Error(), "run: chmod 600 "+name) {
				t.Errorf("%04o, provided %v: %v", mode, provided, err)
			}
		}
	}
}

// The password is no key of the configuration, and nothing prints it.
func TestKeyPasswordInTheEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"config", "check"}, {"config", "print"}} {
		got := pharos(t, "", []string{keyPasswordVariable + "=hunter2"}, args...)
		if got.status != 0 || strings.Contains(got.stdout+got.stderr, "hunter2") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestBackupDir(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, fine := range []string{dir, filepath.Join(dir, "a", "b"), "made/here"} {
		if err := checkWritableDir(fine); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	file := writeFile(t, filepath.Join(dir, "file"), "", 0o600)
	for _, bad := range []string{file, filepath.Join(file, "below", "it")} {
		if err := checkWritableDir(bad); err == nil || !strings.Contains(err.Error(), file+" is no directory") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if os.Getuid() == 0 { // who may write anywhere
		return
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{closed, filepath.Join(closed, "below")} {
		if err := checkWritableDir(bad); err == nil || !strings.Contains(err.Error(), "nothing can be written (permission denied)") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestOperatorKeys(t *testing.T) {
	l, err := loadConfig("testdata/config/good/empty.yaml", []string{"PHAROS_OPERATORS=" + plainNpub + ", " + "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"}, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.operatorKeys()
	if want := "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e 79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%v, %v", got, err)
	}
	// A secret key among them is told from a public one, and not repeated.
	for _, secret := range []string{plainKey, strings.ToUpper(plainKey), sealedKey} {
		got := pharos(t, "", []string{"PHAROS_OPERATORS=" + secret}, "config", "check")
		if got.status != exitUsage || !strings.Contains(got.stderr, "operators[0]: is no public key: it is a secret key") || strings.Contains(strings.ToLower(got.stderr), strings.ToLower(secret[8:30])) {
			t.Errorf("%+v", got)
		}
	}
}
