package nostr_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const checkURL = "https://pharos.example/v1/admin/check"

var authNow = time.Unix(1_800_000_000, 0)

func authKey(t testing.TB) nostr.Key {
	t.Helper()
	k, err := nostr.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func payloadOf(body string) string {
	h := sha256.Sum256([]byte(body))
	return hex.EncodeToString(h[:])
}

// authEvent signs POST of checkURL with body {}.
func authEvent() *nostr.Event {
	return &nostr.Event{
		Kind: nostr.KindHTTPAuth, CreatedAt: nostr.Timestamp(authNow.Unix()),
		Tags: nostr.Tags{{"u", checkURL}, {"method", "POST"}, {"payload", payloadOf("{}")}},
	}
}

func header(t testing.TB, ev *nostr.Event) string {
	t.Helper()
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return "Nostr " + base64.StdEncoding.EncodeToString(body)
}

func request() nostr.HTTPRequest {
	return nostr.HTTPRequest{Method: "POST", URLs: []string{checkURL, "http://127.0.0.1:7766/v1/admin/check"}, Now: authNow}
}

func verify(h, body string) (nostr.HTTPAuth, error) {
	a, err := nostr.VerifyHTTPAuth(h, request())
	if err == nil {
		err = a.MatchBody([]byte(body))
	}
	return a, err
}

func TestHTTPAuth(t *testing.T) {
	k := authKey(t)
	ev := authEvent()
	ev.Content = "???>>>~~~" // its base64 has + and /
	if err := k.Sign(ev); err != nil {
		t.Fatal(err)
	}
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]string{
		"standard":           "Nostr " + base64.StdEncoding.EncodeToString(body),
		"standard, unpadded": "Nostr " + base64.RawStdEncoding.EncodeToString(body),
		"URL":                "Nostr " + base64.URLEncoding.EncodeToString(body),
		"URL, unpadded":      "Nostr " + base64.RawURLEncoding.EncodeToString(body),
		"lower case":         "nostr " + base64.StdEncoding.EncodeToString(body),
	} {
		a, err := verify(h, "{}")
		if err != nil || a.Pubkey != public || a.ID != ev.ID || !a.CreatedAt.Equal(authNow) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestHTTPAuthAccepts(t *testing.T) {
	k := authKey(t)
	for name, tc := range map[string]struct {
		change func(*nostr.Event)
		body   string
	}{
		"the other URL":        {func(ev *nostr.Event) { ev.Tags[0][1] = "http://127.0.0.1:7766/v1/admin/check" }, "{}"},
		"capitals":             {func(ev *nostr.Event) { ev.Tags[0][1] = "HTTPS://Pharos.Example/v1/admin/check" }, "{}"},
		"default port":         {func(ev *nostr.Event) { ev.Tags[0][1] = "https://pharos.example:443/v1/admin/check" }, "{}"},
		"a minute ago":         {func(ev *nostr.Event) { ev.CreatedAt -= 60 }, "{}"},
		"a minute ahead":       {func(ev *nostr.Event) { ev.CreatedAt += 60 }, "{}"},
		"further tags":         {func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{"x", "y", "z"}, nostr.Tag{}) }, "{}"},
		"payload in capitals":  {func(ev *nostr.Event) { ev.Tags[2][1] = strings.ToUpper(ev.Tags[2][1]) }, "{}"},
		"no body, no payload":  {func(ev *nostr.Event) { ev.Tags = ev.Tags[:2] }, ""},
		"no body, its payload": {func(ev *nostr.Event) { ev.Tags[2][1] = payloadOf("") }, ""},
	} {
		ev := authEvent()
		tc.change(ev)
		if err := k.Sign(ev); err != nil {
			t.Fatal(err)
		}
		if _, err := verify(header(t, ev), tc.body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// One fault each: every one has its own sentence, and no part of the header is
// in it.
func TestHTTPAuthFaults(t *testing.T) {
	k := authKey(t)
	type fault struct {
		change func(*nostr.Event) // before it is signed
		damage func(*nostr.Event) // afterwards
		header func(string) string
		body   string // "" = {}
		says   string
	}
	faults := map[string]fault{
		"wrong kind":      {change: func(ev *nostr.Event) { ev.Kind = 22242 }, says: "not of kind 27235"},
		"too old":         {change: func(ev *nostr.Event) { ev.CreatedAt -= 61 }, says: "more than 60 seconds ago"},
		"of 1970":         {change: func(ev *nostr.Event) { ev.CreatedAt = 0 }, says: "more than 60 seconds ago"},
		"from the future": {change: func(ev *nostr.Event) { ev.CreatedAt += 61 }, says: "ahead of our clock"},
		"far future":      {change: func(ev *nostr.Event) { ev.CreatedAt = 1 << 62 }, says: "created_at is more than"},

		"no u":                {change: func(ev *nostr.Event) { ev.Tags = ev.Tags[1:] }, says: "no tag u"},
		"two u":               {change: func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{"u", checkURL}) }, says: "more than one tag u"},
		"short u":             {change: func(ev *nostr.Event) { ev.Tags[0] = nostr.Tag{"u"} }, says: "u does not hold one value"},
		"long u":              {change: func(ev *nostr.Event) { ev.Tags[0] = append(ev.Tags[0], "x") }, says: "u does not hold one value"},
		"empty u":             {change: func(ev *nostr.Event) { ev.Tags[0][1] = "" }, says: "u does not hold one value"},
		"short and right u":   {change: func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{"u"}) }, says: "u does not hold one value"},
		"u of another host":   {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://evil.example/v1/admin/check" }, says: "not the URL of this request; expected " + checkURL},
		"u of another path":   {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://pharos.example/v1/admin/reset" }, says: "not the URL of this request"},
		"u in capitals":       {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://pharos.example/v1/admin/CHECK" }, says: "not the URL of this request"},
		"u with slash":        {change: func(ev *nostr.Event) { ev.Tags[0][1] += "/" }, says: "not the URL of this request"},
		"u with query":        {change: func(ev *nostr.Event) { ev.Tags[0][1] += "?a=1" }, says: "not the URL of this request"},
		"u with empty query":  {change: func(ev *nostr.Event) { ev.Tags[0][1] += "?" }, says: "not the URL of this request"},
		"u with fragment":     {change: func(ev *nostr.Event) { ev.Tags[0][1] += "#x" }, says: "not the URL of this request"},
		"u with user":         {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://hunter2@pharos.example/v1/admin/check" }, says: "not the URL of this request"},
		"u with other scheme": {change: func(ev *nostr.Event) { ev.Tags[0][1] = "http://pharos.example/v1/admin/check" }, says: "not the URL of this request"},
		"u with ws scheme":    {change: func(ev *nostr.Event) { ev.Tags[0][1] = "wss://pharos.example/v1/admin/check" }, says: "not the URL of this request"},
		"u with other port":   {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://pharos.example:444/v1/admin/check" }, says: "not the URL of this request"},
		"u relative":          {change: func(ev *nostr.Event) { ev.Tags[0][1] = "/v1/admin/check" }, says: "not the URL of this request"},
		"u escaped":           {change: func(ev *nostr.Event) { ev.Tags[0][1] = "https://pharos.example/v1/admin/%63heck" }, says: "not the URL of this request"},

		"no method":     {change: func(ev *nostr.Event) { ev.Tags = append(ev.Tags[:1:1], ev.Tags[2]) }, says: "no tag method"},
		"two methods":   {change: func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{"method", "POST"}) }, says: "more than one tag method"},
		"short method":  {change: func(ev *nostr.Event) { ev.Tags[1] = nostr.Tag{"method"} }, says: "method does not hold one value"},
		"another one":   {change: func(ev *nostr.Event) { ev.Tags[1][1] = "GET" }, says: "method is not POST"},
		"in lower case": {change: func(ev *nostr.Event) { ev.Tags[1][1] = "post" }, says: "method is not POST"},

		"no payload":       {change: func(ev *nostr.Event) { ev.Tags = ev.Tags[:2] }, says: "payload is missing"},
		"two payloads":     {change: func(ev *nostr.Event) { ev.Tags = append(ev.Tags, ev.Tags[2]) }, says: "more than one tag payload"},
		"short payload":    {change: func(ev *nostr.Event) { ev.Tags[2] = nostr.Tag{"payload"} }, says: "payload does not hold one value"},
		"payload no hash":  {change: func(ev *nostr.Event) { ev.Tags[2][1] = "{}" }, says: "payload is not the SHA-256 of a body"},
		"another body":     {body: `{"relays":[]}`, says: "not the SHA-256 of this body"},
		"body, its nil":    {change: func(ev *nostr.Event) { ev.Tags[2][1] = payloadOf("") }, says: "not the SHA-256 of this body"},
		"body with a line": {body: "{}\n", says: "not the SHA-256 of this body"},

		"altered tag":       {damage: func(ev *nostr.Event) { ev.Content = "x" }, says: "id or signature is wrong"},
		"altered id":        {damage: func(ev *nostr.Event) { ev.ID = payloadOf("x") }, says: "id or signature is wrong"},
		"altered signature": {damage: func(ev *nostr.Event) { ev.Sig = ev.Sig[:126] + flip(ev.Sig[126:]) }, says: "id or signature is wrong"},
		"no signature":      {damage: func(ev *nostr.Event) { ev.Sig = "" }, says: "lower-case hex"},
		"long signature":    {damage: func(ev *nostr.Event) { ev.Sig += "00" }, says: "lower-case hex"},
		"another signer":    {damage: func(ev *nostr.Event) { ev.PubKey = payloadOf("x") }, says: "id or signature is wrong"},
		"capital pubkey":    {damage: func(ev *nostr.Event) { ev.PubKey = strings.ToUpper(ev.PubKey) }, says: "lower-case hex"},
		"capital id":        {damage: func(ev *nostr.Event) { ev.ID = strings.ToUpper(ev.ID) }, says: "lower-case hex"},
		"capital signature": {damage: func(ev *nostr.Event) { ev.Sig = strings.ToUpper(ev.Sig) }, says: "lower-case hex"},

		"empty":         {header: func(string) string { return "" }, says: "scheme is not Nostr"},
		"scheme alone":  {header: func(string) string { return "Nostr" }, says: "no event"},
		"nothing in it": {header: func(string) string { return "Nostr ====" }, says: "no event"},
		"other scheme":  {header: func(h string) string { return "Bearer " + h[6:] }, says: "scheme is not Nostr"},
		"no base64":     {header: func(string) string { return "Nostr ***" }, says: "not in base64"},
		"cut base64":    {header: func(h string) string { return h[:40] }, says: "no Nostr event"},
		"with a space":  {header: func(h string) string { return h[:40] + " " + h[40:] }, says: "not in base64"},
		"with a line":   {header: func(h string) string { return h[:40] + "\n" + h[40:] }, says: "not in base64"},
		"no JSON":       {header: func(string) string { return "Nostr " + base64.StdEncoding.EncodeToString([]byte("hello")) }, says: "no Nostr event"},
		"another shape": {header: func(string) string { return "Nostr " + base64.StdEncoding.EncodeToString([]byte(`{"tags":[[1]]}`)) }, says: "no Nostr event"},
		"null":          {header: func(string) string { return "Nostr " + base64.StdEncoding.EncodeToString([]byte("null")) }, says: "not of kind"},
		"plain JSON":    {header: func(string) string { return `Nostr {"kind":27235}` }, says: "not in base64"},
		"too long":      {change: func(ev *nostr.Event) { ev.Content = strings.Repeat("x", 16<<10) }, says: "longer than 16384 bytes"},
	}
	for name, f := range faults {
		ev := authEvent()
		if f.change != nil {
			f.change(ev)
		}
		if err := k.Sign(ev); err != nil {
			t.Fatal(err)
		}
		if f.damage != nil {
			f.damage(ev)
		}
		h := header(t, ev)
		if f.header != nil {
			h = f.header(h)
		}
		if f.body == "" {
			f.body = "{}"
		}
		_, err := verify(h, f.body)
		if !errors.Is(err, nostr.ErrBadAuth) || !strings.Contains(err.Error(), f.says) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range []string{ev.ID, ev.Sig, ev.PubKey, "hunter2", "evil"} {
			if part != "" && strings.Contains(err.Error(), part) {
				t.Errorf("%s: the header is repeated: %v", name, err)
			}
		}
		if strings.ContainsAny(err.Error(), "\n") || len(err.Error()) > 200 {
			t.Errorf("%s: no sentence: %v", name, err)
		}
	}
}

func flip(hex2 string) string {
	var b byte
	_, _ = fmt.Sscanf(hex2, "%02x", &b)
	return fmt.Sprintf("%02x", b^1)
}

// The query is part of the URL.
func TestHTTPAuthQuery(t *testing.T) {
	k := authKey(t)
	r := request()
	r.Method, r.URLs = "GET", []string{"http://[::1]:7766/x?b=2&a=1"}
	for u, want := range map[string]bool{
		"http://[::1]:7766/x?b=2&a=1":   true,
		"http://[::1]:7766/x?a=1&b=2":   false,
		"http://[::1]:7766/x":           false,
		"http://[::1]:7766/x?b=2&a=1&":  false,
		"http://[::1]:7766/x?b=2&a=%31": false,
	} {
		ev := authEvent()
		ev.Tags = nostr.Tags{{"u", u}, {"method", "GET"}}
		if err := k.Sign(ev); err != nil {
			t.Fatal(err)
		}
		if _, err := nostr.VerifyHTTPAuth(header(t, ev), r); (err == nil) != want {
			t.Errorf("%s: %v", u, err)
		}
	}
	ev := authEvent()
	if err := k.Sign(ev); err != nil {
		t.Fatal(err)
	}
	r = request()
	r.URLs = nil
	if _, err := nostr.VerifyHTTPAuth(header(t, ev), r); !errors.Is(err, nostr.ErrBadAuth) {
		t.Errorf("without a URL to match: %v", err)
	}
}

// Whatever the header is, it is refused as ErrBadAuth or signed by the key
// whose pubkey is returned, for this request.
func FuzzVerifyHTTPAuth(f *testing.F) {
	k := authKey(f)
	for _, change := range []func(*nostr.Event){
		func(*nostr.Event) {},
		func(ev *nostr.Event) { ev.Tags = nil },
		func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{}, nostr.Tag{"u"}) },
		func(ev *nostr.Event) { ev.Tags[0][1] = "https://[::1%25x]:99999/%zz?#" },
		func(ev *nostr.Event) { ev.CreatedAt = -1 << 63 },
		func(ev *nostr.Event) { ev.Content = "\x00\u2028\xff" },
	} {
		ev := authEvent()
		change(ev)
		if err := k.Sign(ev); err != nil {
			f.Fatal(err)
		}
		f.Add(header(f, ev), []byte("{}"))
	}
	for _, h := range []string{"", "Nostr", "Nostr e30", "Nostr e30=", "Nostr bnVsbA==", "Nostr W10", "Bearer x", "Nostr eyJ0YWdzIjpbW11dfQ"} {
		f.Add(h, []byte(nil))
	}
	f.Fuzz(func(t *testing.T, h string, body []byte) {
		a, err := nostr.VerifyHTTPAuth(h, request())
		if err == nil {
			err = a.MatchBody(body)
		}
		if err != nil {
			if !errors.Is(err, nostr.ErrBadAuth) {
				t.Errorf("another kind of error: %v", err)
			}
			return
		}
		if a.Pubkey != public || len(a.ID) != 64 || payloadOf(string(body)) != payloadOf("{}") && len(body) > 0 {
			t.Errorf("accepted %+v with body %q", a, body)
		}
	})
}
