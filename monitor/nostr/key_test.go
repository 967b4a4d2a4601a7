package nostr_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr/nip49"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// NIP-49's own example.
const (
	sealed         = "ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8th8wclt0h4p"
	sealedPassword = "nostr"
	sealedSecret   = "3501454135014541350145413501453fefb02227e449e57cf4d3a3ce05378683"
)

func password(s string) nostr.Password { return func() (string, error) { return s, nil } }

func keyFile(t *testing.T, text string, mode fs.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "service.key")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEncryptedKeyFiles(t *testing.T) {
	plain, err := nostr.ParseKey(sealedSecret)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"as it is": sealed, "a line": sealed + "\n", "upper case": strings.ToUpper(sealed)} {
		k, err := nostr.KeyFile{Path: keyFile(t, text, 0o600), Password: password(sealedPassword)}.Load()
		if err != nil || k.Pubkey() != plain.Pubkey() {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A password that nobody needs is not asked for.
	asked := false
	ask := func() (string, error) { asked = true; return "", errors.New("no") }
	if k, err := (nostr.KeyFile{Path: keyFile(t, secret, 0o600), Password: ask}).Load(); err != nil || k.Pubkey() != public || asked {
		t.Errorf("a plain key: %v, asked %v", err, asked)
	}
	// bech32 of the same bytes with another work factor: the symbols 1 to 4 hold it.
	work := func(logN byte) string {
		const symbols = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
		bits := uint32(2)<<12 | uint32(logN)<<4 | uint32(strings.IndexByte(symbols, sealed[13])&15)
		b := []byte(sealed)
		for i := range 4 {
			b[10+i] = symbols[bits>>(15-5*i)&31]
		}
		return string(b)
	}
	if work(16) != sealed {
		t.Fatalf("the example has another head: %s", work(16))
	}
	for name, c := range map[string]struct {
		text     string
		password nostr.Password
		says     string
	}{
		"wrong password":    {sealed, password("Nostr"), "the password is not that of this key"},
		"empty password":    {sealed, password(""), "the password is not that of this key"},
		"no password":       {sealed, nil, "it is encrypted (ncryptsec), and there is no password"},
		"password away":     {sealed, func() (string, error) { return "", errors.New("say it so") }, "it is encrypted (ncryptsec): say it so"},
		"damaged":           {sealed[:100] + "q" + sealed[101:], password(sealedPassword), "the ncryptsec is damaged"},
		"short":             {sealed[:len(sealed)-1], password(sealedPassword), "the ncryptsec is damaged"},
		"the prefix":        {"ncryptsec1", password(sealedPassword), "the ncryptsec is damaged"},
		"no bech32":         {"ncryptsec1bbbb" + sealed[14:], password(sealedPassword), "the ncryptsec is damaged"},
		"mixed case":        {"ncryptsec1" + strings.ToUpper(sealed[10:]), password(sealedPassword), "the ncryptsec is damaged"},
		"two":               {sealed + sealed, password(sealedPassword), "the ncryptsec is damaged"},
		"absurd work":       {work(21), ask, "work factor of 2^21, and more than 2^20 is refused"},
		"absurd work, more": {work(255), ask, "work factor of 2^255"},
		"no work":           {work(0), ask, "work factor of 2^0"},
		"another version":   {"ncryptsec1q5" + sealed[12:], ask, "and only version 2 can be read"},
	} {
		file := keyFile(t, c.text, 0o600)
		_, err := nostr.KeyFile{Path: file, Password: c.password}.Load()
		if !errors.Is(err, nostr.ErrBadKey) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), sealed[20:40]) || strings.Contains(err.Error(), "Nostr") {
			t.Errorf("%s: the error is several lines or shows a secret: %v", name, err)
		}
		// What holds a key must not be thrown away for want of its password.
		if damaged := strings.Contains(c.says, "damaged"); damaged != strings.Contains(err.Error(), "restore your copy") {
			t.Errorf("%s: the advice is wrong: %v", name, err)
		}
	}
	if asked {
		t.Error("the password was asked for in vain")
	}
}

func TestCreateEncrypted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.key")
	k, err := nostr.KeyFile{Path: file, Password: password("pass wörd")}.Create()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(text, []byte("ncryptsec1")) {
		t.Fatalf("the file holds no ncryptsec: %v", err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	again, err := nostr.KeyFile{Path: file, Password: password("pass wörd")}.Load()
	if err != nil || again.Pubkey() != k.Pubkey() {
		t.Errorf("read back: %v", err)
	}
	// The library agrees, and finds the work that is wanted of it.
	b, err := nip49.DecryptToBytes(strings.TrimSpace(string(text)), "pass wörd")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := nostr.ParseKey(hex.EncodeToString(b)); err != nil || other.Pubkey() != k.Pubkey() {
		t.Errorf("go-nostr: %v", err)
	}
	if head := string(text[:13]); head[:12] != "ncryptsec1qg" {
		t.Errorf("the head is %s", head)
	}
	for name, p := range map[string]nostr.Password{"empty": password(""), "none": func() (string, error) { return "", errors.New("none") }} {
		file := filepath.Join(t.TempDir(), "service.key")
		if _, err := (nostr.KeyFile{Path: file, Password: p}).Create(); !errors.Is(err, nostr.ErrBadKey) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file was left: %v", name, err)
		}
	}
}

// The files of a service manager may be readable by a group, and no more.
func TestProvidedKeyFiles(t *testing.T) {
	for mode, fine := range map[fs.FileMode]bool{0o400: true, 0o440: true, 0o600: true, 0o640: true, 0o444: false, 0o660: false, 0o450: false} {
		file := keyFile(t, secret, mode)
		_, err := nostr.KeyFile{Path: file, Provided: true}.Load()
		if (err == nil) != fine || err != nil && !errors.Is(err, nostr.ErrBadKey) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	if _, err := nostr.LoadKey(keyFile(t, secret, 0o440)); !errors.Is(err, nostr.ErrBadKey) {
		t.Errorf("not provided: %v", err)
	}
}

func TestParsePublicKey(t *testing.T) {
	for _, text := range []string{npub, public, strings.ToUpper(public), strings.ToUpper(npub), " " + npub + "\n"} {
		if got, err := nostr.ParsePublicKey(text); err != nil || got != public {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		" ":                            "it is empty",
		secret:                         "it is a secret key",
		strings.ToUpper(secret):        "it is a secret key",
		sealed:                         "it is a secret key",
		npub[:20] + "q" + npub[21:]:    "the npub is damaged",
		"npub1":                        "the npub is damaged",
		public[:62]:                    "neither an npub nor 64 hex digits",
		public[:63] + "g":              "neither an npub nor 64 hex digits",
		strings.Repeat("f", 64):        "no key has that number",
		"alice@example.com":            "neither an npub nor 64 hex digits",
		"nostr:" + npub:                "neither an npub nor 64 hex digits",
		npub + " " + npub:              "the npub is damaged",
		"nprofile1qqsrhuxx8l9ex335q7h": "neither an npub nor 64 hex digits",
	} {
		_, err := nostr.ParsePublicKey(text)
		if !errors.Is(err, nostr.ErrBadPubkey) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.12s: %v", text, err)
		}
		if err != nil && len(text) > 20 && strings.Contains(err.Error(), text[6:20]) {
			t.Errorf("the error repeats the text: %v", err)
		}
	}
}
