package probe

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// TestParseInfo holds that an odd field is lost alone.
func TestParseInfo(t *testing.T) {
	t.Parallel()
	yes, no, pow := true, false, 12
	const hex64 = "F9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"
	for name, tt := range map[string]struct {
		body string
		want monitor.Info
	}{
		"empty object": {` {} `, monitor.Info{}},
		"all": {
			`{"name":"n","description":"d","pubkey":"` + hex64 + `","contact":"c","software":"s","version":"v","supported_nips":[11,1,11,42],
			"limitation":{"auth_required":true,"payment_required":false,"restricted_writes":true,"min_pow_difficulty":12},
			"relay_countries":["DE"],"language_tags":["de","en"],"tags":["t"],"retention":[{"kinds":[1,[2,3]]}]}`,
			monitor.Info{
				Name: "n", Description: "d", Pubkey: strings.ToLower(hex64), Contact: "c", Software: "s", Version: "v", NIPs: []int{1, 11, 42},
				AuthRequired: &yes, PaymentRequired: &no, RestrictedWrites: &yes, MinPow: &pow,
				Countries: []string{"DE"}, Languages: []string{"de", "en"}, Tags: []string{"t"},
			},
		},
		"odd fields": {
			`{"name":"n","description":["d"],"pubkey":"npub1xyz","contact":7,"software":null,"version":{"a":1},"supported_nips":1,"limitation":[],"relay_countries":"DE","language_tags":[1,"de",null,[]],"tags":{}}`,
			monitor.Info{Name: "n", Languages: []string{"de"}},
		},
		"odd limits": {
			`{"limitation":{"auth_required":"yes","payment_required":null,"restricted_writes":1,"min_pow_difficulty":-1}}`, monitor.Info{},
		},
		"odd numbers":   {`{"supported_nips":[1,"2",null,-4,1.5,99999,[3],11]}`, monitor.Info{NIPs: []int{1, 11}}},
		"NUL":           {`{"name":"a\u0000b\\u0000\ud800c\ud83d\ude00"}`, monitor.Info{Name: "a\uFFFDb\\u0000\uFFFDc😀"}},
		"invalid UTF-8": {"{\"name\":\"a\xffb\"}", monitor.Info{Name: "a\uFFFDb"}},
		"byte-order":    {"\uFEFF{\"name\":\"n\"}\n", monitor.Info{Name: "n"}},
		"a list":        {`[1]`, monitor.Info{Problem: "not_json"}},
		"a text":        {`"a"`, monitor.Info{Problem: "not_json"}},
		"nothing":       {``, monitor.Info{Problem: "not_json"}},
		"two objects":   {`{}{}`, monitor.Info{Problem: "not_json"}},
		"HTML":          {`<html>`, monitor.Info{Problem: "not_json"}},
		"deep":          {`{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, monitor.Info{Problem: "not_json"}},
		"swollen":       {`{"a":"` + strings.Repeat("\xff ", 30_000) + `"}`, monitor.Info{Problem: "not_json"}},
	} {
		got := parseInfo([]byte(tt.body))
		raw := got.Raw
		got.Raw = nil
		if diff := cmp.Diff(&tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if (raw == nil) != (tt.want.Problem != "") {
			t.Errorf("%s: the document is %q", name, raw)
		}
		checkRaw(t, raw)
	}
	long := make([]int, 300)
	for i := range long {
		long[i] = i + 1
	}
	b, _ := json.Marshal(map[string]any{"supported_nips": long})
	if n := len(parseInfo(b).NIPs); n != maxItems {
		t.Errorf("%d numbers are kept, want %d", n, maxItems)
	}
}

// checkRaw holds what is true of every document that is kept.
func checkRaw(t *testing.T, raw []byte) {
	t.Helper()
	if raw == nil {
		return
	}
	var v map[string]any
	if !utf8.Valid(raw) || json.Unmarshal(raw, &v) != nil || len(raw) > maxInfo {
		t.Errorf("the document is %.200q (%d bytes)", raw, len(raw))
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "\x00") {
				t.Errorf("the document has a NUL: %.200q", raw)
			}
		case []any:
			for _, v := range v {
				walk(v)
			}
		case map[string]any:
			for k, v := range v {
				walk(k)
				walk(v)
			}
		}
	}
	walk(v)
}

// TestClean holds what becomes of a relay's text.
func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		" a \r\n\t b\x00c\u202ed ":  "a b c d",
		"a\xffb":                    "a\uFFFDb",
		"\x1b[31mred":               "[31mred",
		strings.Repeat("x", 300):    strings.Repeat("x", 199) + "…",
		strings.Repeat("é", 150):    strings.Repeat("é", 99) + "…",
		strings.Repeat(" ", 1000):   "…",
		strings.Repeat("é", 100000): strings.Repeat("é", 99) + "…",
	} {
		got := clean(in)
		if got != want {
			t.Errorf("%.20q: got %q, want %q", in, got, want)
		}
		if !utf8.ValidString(got) || len(got) > maxText+3 {
			t.Errorf("%.20q: got %q of %d bytes", in, got, len(got))
		}
	}
}
