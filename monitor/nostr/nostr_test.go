package nostr_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	secretHex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"
	secret    = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5" // NIP-19's example
	public    = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"
	npub      = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg"
)

func TestParseKey(t *testing.T) {
	for _, text := range []string{secret, secretHex, strings.ToUpper(secretHex), strings.ToUpper(secret), " " + secret + "\r\n"} {
		k, err := nostr.ParseKey(text)
		if err != nil {
			t.Errorf("%.10s…: %v", text, err)
			continue
		}
		if k.Pubkey() != public || k.Npub() != npub {
			t.Errorf("%.10s…: pubkey %s, npub %s", text, k.Pubkey(), k.Npub())
		}
	}
	damaged := secret[:20] + "q" + secret[21:]
	for name, tc := range map[string]struct{ text, says string }{
		"empty":           {" \n", "empty"},
		"short":           {secretHex[:62], "neither an nsec nor 64 hex digits"},
		"no hex":          {secretHex[:63] + "g", "neither an nsec nor 64 hex digits"},
		"npub":            {npub, "the secret one (nsec)"},
		"damaged nsec":    {damaged, "damaged"},
		"encrypted":       {"ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8th8wclt0h4p", "there is no password"},
		"zero":            {strings.Repeat("0", 64), "zero"},
		"the order":       {"fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", "order"},
		"two on one line": {secret + " " + secret, "damaged"},
	} {
		_, err := nostr.ParseKey(tc.text)
		if !errors.Is(err, nostr.ErrBadKey) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.TrimSpace(tc.text) != "" && name != "npub" && name != "zero" {
			if strings.Contains(err.Error(), strings.TrimSpace(tc.text)[6:20]) {
				t.Errorf("%s: the error contains the key: %v", name, err)
			}
		}
	}
}

func TestKeyIsMasked(t *testing.T) {
	k, err := nostr.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "key", k, "in", struct{ K nostr.Key }{k}, "pointer", &k)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "key", k, "in", map[string]any{"k": k})
	j, err := json.Marshal(map[string]any{"k": k, "p": &k})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(j) + fmt.Sprint(k, &k, []nostr.Key{k}) +
		fmt.Sprintf("%v %+v %#v %s %q %x %d %X", k, k, k, k, k, k, k, &k) + fmt.Sprintf("%#v %+v", struct{ K nostr.Key }{k}, &struct{ K *nostr.Key }{&k})
	for _, leak := range []string{secretHex[:16], strings.ToUpper(secretHex[:16]), secret[5:20], secretHex[48:], "103 222 162"} {
		if strings.Contains(all, leak) {
			t.Errorf("%q leaks into %s", leak, all)
		}
	}
	if !strings.Contains(all, "[secret key]") {
		t.Errorf("no mask in %s", all)
	}
}

func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "service.key")
	if _, err := nostr.LoadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	k, err := nostr.CreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st.Mode(), err)
	}
	again, err := nostr.LoadKey(path)
	if err != nil || again.Pubkey() != k.Pubkey() {
		t.Fatalf("%v: %s, want %s", err, again.Pubkey(), k.Pubkey())
	}
	if _, err := nostr.CreateKey(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating over a file: %v", err)
	}
	if after, err := nostr.LoadKey(path); err != nil || after.Pubkey() != k.Pubkey() {
		t.Errorf("the file was touched: %v", err)
	}
	if _, err := nostr.CreateKey(filepath.Join(dir, "no", "such", "dir")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}

	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, text := range map[string]string{"nsec": secret + "\n", "hex": secretHex, "bom": "\ufeff" + secretHex + "\r\n"} {
		if k, err := nostr.LoadKey(write(name, text, 0o400)); err != nil || k.Pubkey() != public {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o777} {
		p := write("open", secret, mode)
		if _, err := nostr.LoadKey(p); !errors.Is(err, nostr.ErrBadKey) || !strings.Contains(err.Error(), "chmod 600 "+p) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
	for name, text := range map[string]string{"empty": "", "words": "not a key", "large": strings.Repeat("a", 5000), "short": secretHex[:62], "zero": strings.Repeat("0", 64)} {
		p := write(name, text, 0o600)
		if _, err := nostr.LoadKey(p); !errors.Is(err, nostr.ErrBadKey) || !strings.Contains(err.Error(), p) || !strings.Contains(err.Error(), "restore your copy of it, or move it away") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A pipe is refused before it is opened, which would wait for a writer.
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := nostr.LoadKey(pipe)
		refused <- err
	}()
	select {
	case err := <-refused:
		if !errors.Is(err, nostr.ErrBadKey) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("a pipe: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a pipe is waited for")
	}
	if _, err := nostr.LoadKey(dir); !errors.Is(err, nostr.ErrBadKey) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := nostr.LoadKey(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestNewKey(t *testing.T) {
	a, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if a.Pubkey() == b.Pubkey() || len(a.Pubkey()) != 64 {
		t.Error(a.Pubkey(), b.Pubkey())
	}
	if _, v, err := nip19.Decode(a.Npub()); err != nil || v != a.Pubkey() {
		t.Error(v, err)
	}
}

func TestSignEncodeVerify(t *testing.T) {
	k, err := nostr.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	ev := nostr.Event{
		Kind: nostr.KindReport, CreatedAt: 1700000000, Content: "{\"name\":\"é \\\"quoted\\\" <&> \u2028\"}\n",
		Tags: nostr.Tags{{"d", "wss://relay.example.com/"}, {"expiration", "1700021600"}},
	}
	if _, err := nostr.Encode(&ev); !errors.Is(err, nostr.ErrBadEvent) {
		t.Errorf("encoding an unsigned event: %v", err)
	}
	if err := k.Sign(&ev); err != nil {
		t.Fatal(err)
	}
	// The library agrees, on the bytes too.
	if ok, err := ev.CheckSignature(); !ok || err != nil || ev.GetID() != ev.ID || ev.PubKey != public {
		t.Errorf("go-nostr: %v %v", ok, err)
	}
	s, err := nostr.Encode(&ev)
	if err != nil {
		t.Fatal(err)
	}
	want := &monitor.SignedEvent{
		ID: ev.ID, Kind: 30166, Pubkey: public, D: "wss://relay.example.com/",
		CreatedAt: time.Unix(1700000000, 0).UTC(), Expires: time.Unix(1700021600, 0).UTC(), JSON: s.JSON,
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	back, err := nostr.Decode(s.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&ev, back); d != "" {
		t.Error(d)
	}
	if err := nostr.Verify(back); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*nostr.Event){
		"content":   func(e *nostr.Event) { e.Content += " " },
		"id":        func(e *nostr.Event) { e.ID = strings.Repeat("0", 64) },
		"short id":  func(e *nostr.Event) { e.ID = "" },
		"signature": func(e *nostr.Event) { e.Sig = strings.Repeat("0", 128) },
		"no hex":    func(e *nostr.Event) { e.Sig = "xyz" },
		"pubkey":    func(e *nostr.Event) { e.PubKey = strings.Repeat("f", 64); e.ID = e.GetID() },
	} {
		e := *back
		spoil(&e)
		if err := nostr.Verify(&e); !errors.Is(err, nostr.ErrBadEvent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := nostr.Decode([]byte(`{"id":`)); !errors.Is(err, nostr.ErrBadEvent) {
		t.Errorf("half an event: %v", err)
	}
	var none nostr.Key
	if err := none.Sign(&ev); !errors.Is(err, nostr.ErrBadKey) {
		t.Errorf("signing with no key: %v", err)
	}
	if none.Pubkey() != "" || none.Npub() != "" {
		t.Error("no key has a public one")
	}
}

func TestExpiration(t *testing.T) {
	for value, want := range map[string]time.Time{"1700000000": time.Unix(1700000000, 0).UTC(), "soon": {}, "-5": {}, "": {}} {
		if got := nostr.Expiration(&nostr.Event{Tags: nostr.Tags{{"expiration"}, {"expiration", value}}}); !got.Equal(want) {
			t.Errorf("%q: %v", value, got)
		}
	}
	if got := nostr.Expiration(&nostr.Event{}); !got.IsZero() {
		t.Error(got)
	}
}

func event() gonostr.Event {
	return gonostr.Event{
		Kind: 30166, CreatedAt: 1700000000,
		Content: `{"name":"a relay","description":"` + strings.Repeat("words ", 100) + `"}`,
		Tags: gonostr.Tags{
			{"d", "wss://relay.example.com/"},
			{"n", "clearnet"},
			{"rtt-open", "83"},
			{"L", "nip66.status"},
			{"l", "online", "nip66.status"},
			{"R", "!auth"},
			{"R", "!payment"},
			{"R", "!pow"},
			{"R", "!writes"},
			{"N", "1"},
			{"N", "11"},
			{"N", "42"},
			{"expiration", "1700021600"},
		},
	}
}
