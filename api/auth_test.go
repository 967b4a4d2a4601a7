package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	adminToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	checkURL   = "https://pharos.example/v1/admin/check"
	oneRelay   = `{"relays":["wss://a.example"]}`
)

var bearer = []string{"Authorization", "Bearer " + adminToken}

// fakeOperator is an operator made of functions; nil ones do all they are told.
type fakeOperator struct {
	administer func(context.Context, monitor.Command) ([]monitor.CommandResult, error)
	reload     func(context.Context) (api.Reloaded, error)

	mu   sync.Mutex
	seen []monitor.Command
}

func (o *fakeOperator) Administer(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
	o.mu.Lock()
	o.seen = append(o.seen, c)
	o.mu.Unlock()
	if o.administer != nil {
		return o.administer(ctx, c)
	}
	if err := c.Validate(time.Now()); err != nil {
		return nil, err
	}
	results := make([]monitor.CommandResult, len(c.Relays))
	for i, u := range c.Relays {
		results[i] = monitor.CommandResult{Relay: u, Done: true}
	}
	return results, nil
}

func (o *fakeOperator) Reload(ctx context.Context) (api.Reloaded, error) {
	if o.reload == nil {
		return api.Reloaded{}, nil
	}
	return o.reload(ctx)
}

// commands lists what was asked of it.
func (o *fakeOperator) commands() []monitor.Command {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// operated is a bench whose API has an operator's key and keeps its log.
type operated struct {
	*bench
	operator *fakeOperator
	settings api.Settings
	key      nostr.Key // of an operator
	log      bytes.Buffer
}

// runOperated gives f an API with operators, as run does.
func runOperated(t *testing.T, f func(o *operated)) {
	t.Helper()
	key, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(b *bench) {
		b.fixtures()
		o := &operated{bench: b, operator: &fakeOperator{}, key: key}
		o.settings = api.Settings{
			Name: "Pharos", PublicURL: "wss://pharos.example", Operators: []string{strings.Repeat("00", 32), key.Pubkey()},
		}
		o.api = api.New(api.Options{
			Core: b.core, History: b.hist, Operator: o.operator, Roster: newRoster(), Intake: &fakeIntake{}, AdminToken: adminToken, Settings: o.settings,
			Log: slog.New(slog.NewTextHandler(&o.log, nil)),
		})
		f(o)
	})
}

// post makes a request with a JSON body.
func post(target, body string, headers ...string) *http.Request {
	r := request(http.MethodPost, target, headers...)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

func (o *operated) post(target, body string, headers ...string) *httptest.ResponseRecorder {
	o.Helper()
	return o.send(post(target, body, headers...))
}

// sign makes the header Authorization of a POST now; change may spoil the event
// before it is signed.
func (o *operated) sign(k nostr.Key, url, body string, change func(*nostr.Event)) []string {
	o.Helper()
	h := sha256.Sum256([]byte(body))
	ev := &nostr.Event{
		Kind: nostr.KindHTTPAuth, CreatedAt: nostr.Timestamp(time.Now().Unix()),
		Tags: nostr.Tags{{"u", url}, {"method", "POST"}, {"payload", hex.EncodeToString(h[:])}},
	}
	if change != nil {
		change(ev)
	}
	if err := k.Sign(ev); err != nil {
		o.Fatal(err)
	}
	text, err := ev.MarshalJSON()
	if err != nil {
		o.Fatal(err)
	}
	return []string{"Authorization", "Nostr " + base64.StdEncoding.EncodeToString(text)}
}

func TestOperatorsAreLetIn(t *testing.T) {
	runOperated(t, func(o *operated) {
		for name, tc := range map[string]struct {
			headers []string
			actor   string
		}{
			"token":         {bearer, "token"},
			"token, scheme": {[]string{"Authorization", "bearer  " + adminToken + " "}, "token"},
			"key":           {o.sign(o.key, checkURL, oneRelay, nil), o.key.Pubkey()},
		} {
			before := len(o.operator.commands())
			if w := o.post("/v1/admin/check", oneRelay, tc.headers...); w.Code != http.StatusOK {
				o.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			commands := o.operator.commands()[before:]
			if len(commands) != 1 || commands[0].Actor != tc.actor || commands[0].Kind != monitor.CommandCheck {
				o.Errorf("%s: %+v", name, commands)
			}
		}
	})
}

// Each wrong way to ask is refused with its reason, does nothing, is counted and
// logged, and nothing of the credentials is repeated.
func TestStrangersAreRefused(t *testing.T) {
	runOperated(t, func(o *operated) {
		stranger, err := nostr.NewKey()
		if err != nil {
			o.Fatal(err)
		}
		wrong := strings.Repeat("f", 64)
		type fault struct {
			headers []string
			status  int
			says    string
			reason  string
		}
		signed := func(change func(*nostr.Event)) []string { return o.sign(o.key, checkURL, oneRelay, change) }
		faults := map[string]fault{
			"nothing":         {nil, 401, "this is for operators", "missing"},
			"empty":           {[]string{"Authorization", ""}, 401, "this is for operators", "missing"},
			"wrong token":     {[]string{"Authorization", "Bearer " + wrong}, 401, "the token is not", "token"},
			"no token":        {[]string{"Authorization", "Bearer"}, 401, "the token is not", "token"},
			"part of a token": {[]string{"Authorization", "Bearer " + adminToken[:63]}, 401, "the token is not", "token"},
			"longer token":    {[]string{"Authorization", "Bearer " + adminToken + "0"}, 401, "the token is not", "token"},
			"another scheme":  {[]string{"Authorization", "Basic " + adminToken}, 401, "neither Bearer nor Nostr", "malformed"},
			"bare token":      {[]string{"Authorization", adminToken}, 401, "neither Bearer nor Nostr", "malformed"},
			"two headers":     {append(slices.Clone(bearer), bearer...), 401, "more than one header", "malformed"},
			"a stranger's":    {o.sign(stranger, checkURL, oneRelay, nil), 403, "not listed in operators", "key"},
			"wrong u":         {o.sign(o.key, "https://evil.example/v1/admin/check", oneRelay, nil), 401, "expected " + checkURL, "event"},
			"u of another":    {o.sign(o.key, "https://pharos.example/v1/admin/reset", oneRelay, nil), 401, "tag u", "event"},
			"another method":  {signed(func(ev *nostr.Event) { ev.Tags[1][1] = "GET" }), 401, "tag method", "event"},
			"old":             {signed(func(ev *nostr.Event) { ev.CreatedAt -= 61 }), 401, "more than 60 seconds ago", "event"},
			"before we began": {signed(func(ev *nostr.Event) { ev.CreatedAt-- }), 401, "before Pharos was started", "event"},
			"future":          {signed(func(ev *nostr.Event) { ev.CreatedAt += 61 }), 401, "ahead of our clock", "event"},
			"another body":    {o.sign(o.key, checkURL, `{"relays":[]}`, nil), 401, "not the SHA-256 of this body", "event"},
			"no payload":      {signed(func(ev *nostr.Event) { ev.Tags = ev.Tags[:2] }), 401, "payload is missing", "event"},
			"no event":        {[]string{"Authorization", "Nostr " + wrong}, 401, "no Nostr event", "event"},
		}
		from := 0
		for name, f := range faults {
			o.log.Reset()
			from++ // each within its own limit of failures
			client := fmt.Sprintf("192.0.2.%d", from)
			r := post("/v1/admin/check", oneRelay, f.headers...)
			r.RemoteAddr = client + ":1"
			w := o.send(r)
			p := o.problem(w, f.status)
			if !strings.Contains(p.Detail, f.says) {
				o.Errorf("%s: %s", name, p.Detail)
			}
			if want := f.status == 401; slices.Equal(w.Header().Values("WWW-Authenticate"), []string{"Bearer", "Nostr"}) != want {
				o.Errorf("%s: WWW-Authenticate %q", name, w.Header().Values("WWW-Authenticate"))
			}
			if log := o.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "reason="+f.reason) || !strings.Contains(log, "client="+client) {
				o.Errorf("%s: log %q", name, log)
			}
			for _, text := range []string{w.Body.String(), o.log.String()} {
				if strings.Contains(text, adminToken[:16]) || strings.Contains(text, wrong[:16]) || len(f.headers) > 0 && len(f.headers[1]) > 20 && strings.Contains(text, f.headers[1][6:20]) {
					o.Errorf("%s: the credentials are repeated: %s", name, text)
				}
			}
		}
		if c := o.operator.commands(); len(c) > 0 {
			o.Errorf("carried out: %+v", c)
		}
		metrics := o.get("/metrics").Body.String()
		for _, line := range []string{
			`pharos_http_auth_failures_total{reason="missing"} 2`, `pharos_http_auth_failures_total{reason="token"} 4`,
			`pharos_http_auth_failures_total{reason="key"} 1`, `pharos_http_auth_failures_total{reason="replay"} 0`,
		} {
			if !strings.Contains(metrics, line+"\n") {
				o.Errorf("metrics lack %s", line)
			}
		}
	})
}

// An empty admin token is nobody's.
func TestNoAdminToken(t *testing.T) {
	run(t, func(b *bench) {
		b.api = api.New(api.Options{Core: b.core, History: b.hist, Operator: &fakeOperator{}, Log: slog.New(slog.DiscardHandler)})
		for _, h := range []string{"Bearer", "Bearer ", "Bearer  "} {
			b.problem(b.send(post("/v1/admin/check", oneRelay, "Authorization", h)), http.StatusUnauthorized)
		}
	})
}

// Where an event may have been signed for: below public_url, or the address
// that the connection came in at; any Host only where no public_url is known.
func TestSignedURLs(t *testing.T) {
	local := func(addr string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request {
			a, err := net.ResolveTCPAddr("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(a)))
		}
	}
	home := local("127.0.0.1:7766")
	for name, tc := range map[string]struct {
		public, host, u string
		via             func(*http.Request) *http.Request
		ok              bool
	}{
		"public":                    {"wss://pharos.example", "x", "https://pharos.example/v1/admin/check", home, true},
		"public with slash":         {"wss://pharos.example/", "x", "https://pharos.example/v1/admin/check", home, true},
		"public with a prefix":      {"wss://pharos.example/p/", "x", "https://pharos.example/p/v1/admin/check", home, true},
		"public without its prefix": {"wss://pharos.example/p/", "x", "https://pharos.example/v1/admin/check", home, false},
		"public in clear":           {"ws://pharos.example", "x", "http://pharos.example/v1/admin/check", home, true},
		"public, other scheme":      {"wss://pharos.example", "x", "http://pharos.example/v1/admin/check", home, false},
		"own address":               {"wss://pharos.example", "127.0.0.1:7766", "http://127.0.0.1:7766/v1/admin/check", home, true},
		"own address, TLS":          {"wss://pharos.example", "127.0.0.1:7766", "https://127.0.0.1:7766/v1/admin/check", home, true},
		"own name":                  {"wss://pharos.example", "LOCALHOST:7766", "http://localhost:7766/v1/admin/check", home, true},
		"own IPv6":                  {"wss://pharos.example", "[::1]:7766", "http://[::1]:7766/v1/admin/check", local("[::1]:7766"), true},
		"not what was asked":        {"wss://pharos.example", "127.0.0.1:7766", "http://127.0.0.1:7767/v1/admin/check", home, false},
		"another Pharos' name":      {"wss://pharos.example", "other.example", "https://other.example/v1/admin/check", home, false},
		"localhost from afar":       {"wss://pharos.example", "localhost:7766", "http://localhost:7766/v1/admin/check", local("198.51.100.1:7766"), false},
		"another address":           {"wss://pharos.example", "10.0.0.1:7766", "http://10.0.0.1:7766/v1/admin/check", home, false},
		"no public, any name":       {"", "lan:7766", "http://lan:7766/v1/admin/check", home, true},
		"no public, behind TLS":     {"", "lan", "https://lan/v1/admin/check", home, true},
		"no public, another name":   {"", "lan", "https://wan/v1/admin/check", home, false},
	} {
		t.Run(name, func(t *testing.T) {
			runOperated(t, func(o *operated) {
				o.settings.PublicURL = tc.public
				o.api.Configure(o.settings)
				r := post("/v1/admin/check", oneRelay, o.sign(o.key, tc.u, oneRelay, nil)...)
				r.Host = tc.host
				if w := o.send(tc.via(r)); (w.Code == http.StatusOK) != tc.ok {
					o.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}

// A signed request is carried out once, whoever else sends it at the same time.
func TestReplay(t *testing.T) {
	runOperated(t, func(o *operated) {
		headers := o.sign(o.key, checkURL, oneRelay, nil)
		// Another encoding of the same event is the same event.
		other := []string{"Authorization", strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(headers[1]), "=")}
		other[1] = "Nostr " + strings.TrimPrefix(other[1], "Nostr ")
		codes := make(chan int)
		for i := range 8 {
			go func() {
				r := post("/v1/admin/check", oneRelay, headers...)
				if i%2 == 1 {
					r = post("/v1/admin/check", oneRelay, other...)
				}
				codes <- o.unrecorded(r).Code
			}()
		}
		count := map[int]int{}
		for range 8 {
			count[<-codes]++
		}
		if count[200] != 1 || count[401] != 7 || len(o.operator.commands()) != 1 {
			o.Errorf("answers %v, carried out %d times", count, len(o.operator.commands()))
		}
		for _, after := range []time.Duration{0, 59 * time.Second, 2 * time.Second, 3 * time.Minute} {
			elapse(after)
			o.problem(o.post("/v1/admin/check", oneRelay, headers...), http.StatusUnauthorized)
		}
		if n := len(o.operator.commands()); n != 1 {
			o.Errorf("carried out %d times", n)
		}
	})
}

// An event of a clock ahead of ours stays used for as long as its time is good,
// also when meanwhile others were swept out.
func TestReplayAfterASweep(t *testing.T) {
	runOperated(t, func(o *operated) {
		headers := o.sign(o.key, checkURL, oneRelay, func(ev *nostr.Event) {
			ev.CreatedAt = nostr.Timestamp(time.Now().Add(50 * time.Second).Unix())
		})
		if w := o.post("/v1/admin/check", oneRelay, headers...); w.Code != http.StatusOK {
			o.Fatal(w.Body)
		}
		elapse(nostr.HTTPAuthWindow + time.Second)
		if w := o.post("/v1/admin/check", oneRelay, o.sign(o.key, checkURL, oneRelay, nil)...); w.Code != http.StatusOK {
			o.Fatal(w.Body)
		}
		if p := o.problem(o.post("/v1/admin/check", oneRelay, headers...), http.StatusUnauthorized); !strings.Contains(p.Detail, "used before") {
			o.Errorf("%s", p.Detail)
		}
	})
}

// When so many events were used that not all can be remembered, further ones are
// refused; nothing is forgotten before its time.
func TestReplayTableFull(t *testing.T) {
	runOperated(t, func(o *operated) {
		first := o.sign(o.key, checkURL, oneRelay, nil)
		if w := o.post("/v1/admin/check", oneRelay, first...); w.Code != http.StatusOK {
			o.Fatal(w.Body)
		}
		o.api.FillReplays()
		next := o.sign(o.key, checkURL, oneRelay, func(ev *nostr.Event) { ev.Content = "next" })
		o.problem(o.post("/v1/admin/check", oneRelay, next...), http.StatusTooManyRequests)
		if p := o.problem(o.post("/v1/admin/check", oneRelay, first...), http.StatusUnauthorized); !strings.Contains(p.Detail, "used before") {
			o.Errorf("%s", p.Detail)
		}
		if w := o.post("/v1/admin/check", oneRelay, bearer...); w.Code != http.StatusOK {
			o.Errorf("with the token: %d %s", w.Code, w.Body)
		}
		elapse(2*time.Minute + time.Second)
		later := o.sign(o.key, checkURL, oneRelay, nil)
		if w := o.post("/v1/admin/check", oneRelay, later...); w.Code != http.StatusOK {
			o.Errorf("later: %d %s", w.Code, w.Body)
		}
	})
}

// A refused signature is not used up: whoever copies one cannot spoil it.
func TestRefusedEventsAreNotUsedUp(t *testing.T) {
	runOperated(t, func(o *operated) {
		headers := o.sign(o.key, checkURL, oneRelay, nil)
		o.problem(o.post("/v1/admin/check", `{"relays":["wss://b.example"]}`, headers...), http.StatusUnauthorized)
		o.problem(o.post("/v1/admin/reset", oneRelay, headers...), http.StatusUnauthorized)
		if w := o.post("/v1/admin/check", oneRelay, headers...); w.Code != http.StatusOK {
			o.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// Failures are limited by address; right credentials are let in all the same,
// and nobody's network is exempt.
func TestAuthFailuresAreLimited(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.settings.Exempt = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		o.api.Configure(o.settings)
		try := func(from string, headers ...string) *httptest.ResponseRecorder {
			r := post("/v1/admin/check", oneRelay, headers...)
			r.RemoteAddr = from
			return o.send(r)
		}
		for i := range 10 {
			o.problem(try("192.0.2.1:1", "Authorization", fmt.Sprintf("Bearer %d", i)), http.StatusUnauthorized)
		}
		w := try("192.0.2.1:2", "Authorization", "Bearer x")
		o.problem(w, http.StatusTooManyRequests)
		if w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
			o.Errorf("%v", w.Header())
		}
		o.problem(try("192.0.2.2:1", "Authorization", "Bearer x"), http.StatusUnauthorized)
		if w := try("192.0.2.1:3", bearer...); w.Code != http.StatusOK {
			o.Errorf("the operator behind that address: %d", w.Code)
		}
		elapse(2 * time.Minute)
		o.problem(try("192.0.2.1:4", "Authorization", "Bearer x"), http.StatusUnauthorized)
		if m := o.get("/metrics").Body.String(); !strings.Contains(m, `pharos_http_limited_total{limit="auth"} 1`+"\n") {
			o.Error("not counted")
		}
	})
}

// However many fail, the log gets a line a second.
func TestAuthFailuresDoNotFloodTheLog(t *testing.T) {
	runOperated(t, func(o *operated) {
		for i := range 1000 {
			r := post("/v1/admin/check", oneRelay)
			r.RemoteAddr = fmt.Sprintf("198.51.%d.%d:1", i/256, i%256)
			o.problem(o.send(r), http.StatusUnauthorized)
		}
		if n := strings.Count(o.log.String(), "\n"); n == 0 || n > 21 {
			o.Errorf("%d lines", n)
		}
	})
}

// Keys that a new configuration names may command, others no longer.
func TestOperatorsAreConfigured(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.settings.Operators = nil
		o.api.Configure(o.settings)
		o.problem(o.post("/v1/admin/check", oneRelay, o.sign(o.key, checkURL, oneRelay, nil)...), http.StatusForbidden)
		o.settings.Operators = []string{strings.ToUpper(o.key.Pubkey())}
		o.api.Configure(o.settings)
		if w := o.post("/v1/admin/check", oneRelay, o.sign(o.key, checkURL, oneRelay, nil)...); w.Code != http.StatusOK {
			o.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// failingBody breaks off.
type failingBody struct{ err error }

func (b failingBody) Read([]byte) (int, error) { return 0, b.err }
func (b failingBody) Close() error             { return nil }

// What is no body of JSON is refused before it is acted on, for operators and
// for strangers.
func TestBodies(t *testing.T) {
	runOperated(t, func(o *operated) {
		big := `{"relays":["` + strings.Repeat("a", 2<<20) + `"]}`
		for name, tc := range map[string]struct {
			body   string
			header []string
			read   error
			status int
			says   string
		}{
			"too large":        {body: big, status: 413, says: "larger than"},
			"form":             {header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, says: "application/json"},
			"text":             {header: []string{"Content-Type", "text/plain"}, status: 415, says: "application/json"},
			"JSON of a kind":   {header: []string{"Content-Type", "application/vnd.x+json"}, status: 415, says: "application/json"},
			"no type":          {header: []string{"Content-Type", " "}, status: 415, says: "application/json"},
			"latin1":           {header: []string{"Content-Type", "application/json; charset=iso-8859-1"}, status: 415, says: "application/json"},
			"type in caps":     {body: `{}`, header: []string{"Content-Type", "Application/JSON; Charset=UTF-8"}, status: 422, says: "problem"},
			"compressed":       {header: []string{"Content-Encoding", "gzip"}, status: 415, says: "application/json"},
			"invalid UTF-8":    {body: "{\"relays\":[\"wss://a.example/\xff\"]}", status: 400, says: "not UTF-8"},
			"cut":              {body: `{"relays":[`, status: 400, says: "no JSON"},
			"no JSON":          {body: `relays`, status: 400, says: "no JSON"},
			"two values":       {body: oneRelay + oneRelay, status: 400, says: "no JSON"},
			"given twice":      {body: `{"relays":["wss://a.example"],"relays":["wss://b.example"]}`, status: 400, says: "no JSON"},
			"nested":           {body: strings.Repeat("[", 1<<20), status: 400, says: "no JSON"},
			"nested objects":   {body: strings.Repeat(`{"a":`, 100000), status: 400, says: "no JSON"},
			"nested too deep":  {body: `{"relays":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`, status: 400, says: "no JSON"},
			"nested less deep": {body: `{"relays":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}`, status: 422, says: "problem"},
			"empty":            {body: "", header: []string{"X", "empty"}, status: 400, says: "required"},
			"slow":             {read: os.ErrDeadlineExceeded, status: 408, says: "did not arrive"},
			"broken":           {read: errors.New("hunter2"), status: 400, says: "could not be read"},
			"unknown field":    {body: `{"relays":["wss://a.example"],"url":"wss://b.example","hunter2":1}`, status: 422, says: "problem"},
			"field in caps":    {body: `{"RELAYS":["wss://a.example"]}`, status: 422, says: "problem"},
			"other type":       {body: `{"relays":"wss://a.example"}`, status: 422, says: "problem"},
			"numbers":          {body: `{"relays":[1,null,{}]}`, status: 422, says: "problem"},
			"null":             {body: `null`, status: 422, says: "problem"},
			"null list":        {body: `{"relays":null}`, status: 422, says: "problem"},
			"list":             {body: `["wss://a.example"]`, status: 422, says: "problem"},
			"missing":          {body: `{}`, status: 422, says: "problem"},
			"none":             {body: `{"relays":[]}`, status: 422, says: "problem"},
			"too many":         {body: `{"relays":["x"` + strings.Repeat(`,"x"`, 5000) + `]}`, status: 422, says: "problem"},
			"long name":        {body: `{"relays":["wss://a.example"],"` + strings.Repeat("x", 1<<20) + `":1}`, status: 422, says: "problem"},
			"long note":        {body: `{"relays":["wss://a.example"],"note":"` + strings.Repeat("x", 501) + `"}`, status: 422, says: "problem"},
			"note of lines":    {body: `{"relays":["wss://a.example"],"note":"a\nb"}`, status: 422, says: "one line"},
			"with a parameter": {header: []string{"X", "query"}, status: 422, says: "problem"},
		} {
			target, body := "/v1/admin/check", tc.body
			if body == "" && (len(tc.header) == 0 || tc.header[1] != "empty") {
				body = oneRelay
			}
			if len(tc.header) > 1 && tc.header[1] == "query" {
				target += "?x=1"
			}
			r := post(target, body, append(slices.Clone(bearer), tc.header...)...)
			if tc.read != nil {
				r.Body = failingBody{tc.read}
			}
			w := o.send(r)
			if w.Code != tc.status {
				o.Errorf("%s: %d %.300s", name, w.Code, w.Body)
				continue
			}
			p := o.problem(w, tc.status)
			if !strings.Contains(p.Detail, tc.says) && (len(p.Errors) == 0 || !strings.Contains(p.Errors[0].Message, tc.says)) {
				o.Errorf("%s: %s %v", name, p.Detail, p.Errors)
			}
			if w.Body.Len() > 64<<10 || tc.status == 422 && name != "note of lines" && len(p.Errors) == 0 || strings.Contains(w.Body.String(), "b.example") {
				o.Errorf("%s: %.500s", name, w.Body)
			}
		}
		for _, c := range o.operator.commands() {
			if c.Note != "a\nb" { // which the core judges
				o.Errorf("carried out: %+v", c)
			}
		}
	})
}

// A body that says that it is too large is not read; one that does not say is
// read no further than it may be.
func TestLargeBodies(t *testing.T) {
	runOperated(t, func(o *operated) {
		for path, limit := range map[string]int64{"/v1/admin/check": 2 << 20, submitPath: 8 << 10} {
			r := post(path, "", bearer...)
			r.Body, r.ContentLength = failingBody{errors.New("read")}, limit+1
			o.problem(o.send(r), http.StatusRequestEntityTooLarge)
			most := bytes.NewReader(make([]byte, limit+1))
			r = post(path, "", bearer...)
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(most, failingBody{errors.New("read")})), -1
			o.problem(o.send(r), http.StatusRequestEntityTooLarge)
		}
	})
}

// A stranger's body is not even read.
func TestStrangersBodiesAreNotRead(t *testing.T) {
	runOperated(t, func(o *operated) {
		r := post("/v1/admin/check", oneRelay, "Authorization", "Bearer x")
		r.Body = failingBody{errors.New("read")}
		o.problem(o.send(r), http.StatusUnauthorized)
	})
}

// No page of another origin can command: no answer of the admin paths allows it.
func TestAdminIsNotForOtherOrigins(t *testing.T) {
	runOperated(t, func(o *operated) {
		origin := []string{"Origin", "https://evil.example"}
		preflight := o.do(http.MethodOptions, "/v1/admin/check", append(origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")...)
		answered := o.post("/v1/admin/check", oneRelay, append(origin, bearer...)...)
		refused := o.post("/v1/admin/check", oneRelay, origin...)
		for _, w := range []*httptest.ResponseRecorder{preflight, answered, refused} {
			for name := range w.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					o.Errorf("%d: %s: %s", w.Code, name, w.Header().Get(name))
				}
			}
		}
		if preflight.Code < 400 || preflight.Header().Get("Allow") != "POST" {
			o.Errorf("preflight: %d %v", preflight.Code, preflight.Header())
		}
	})
}

// pipeListener hands out one connection.
type pipeListener struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// A body that does not come is waited for ten seconds, by a real server, also
// where nobody wants it; one that came does not end a command that takes longer.
func TestSlowBodies(t *testing.T) {
	const token = "Authorization: Bearer " + adminToken + "\r\n"
	for _, tc := range []struct {
		path, headers, body string
		status              int
		after               time.Duration
	}{
		{"/v1/admin/check", token, "{", 408, 10 * time.Second},
		{submitPath, "", "{", 408, 10 * time.Second},
		{"/v1/admin/check", "", "{", 401, 10 * time.Second},
		{"/v1/live", "", "{", 405, 10 * time.Second},
		{"/v1/admin/check", token, oneRelay, 200, 20 * time.Second},
	} {
		runOperated(t, func(o *operated) {
			o.operator.administer = func(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
				elapse(20 * time.Second)
				return []monitor.CommandResult{{Relay: c.Relays[0], Done: true}}, ctx.Err()
			}
			l := &pipeListener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
			alive := make(chan error, 1)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				o.api.ServeHTTP(w, r)
				alive <- r.Context().Err()
			})}
			done := make(chan error)
			go func() { done <- server.Serve(l) }()
			ours, theirs := net.Pipe()
			l.conn <- theirs
			length := len(tc.body)
			if tc.body == "{" {
				length = 100
			}
			start := time.Now()
			sent := make(chan error)
			go func() { // a pipe has no buffer
				_, err := fmt.Fprintf(ours, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", tc.path, tc.headers, length, tc.body)
				sent <- err
			}()
			answer, err := http.ReadResponse(bufio.NewReader(ours), nil)
			if err != nil {
				o.Fatal(err)
			}
			if took := time.Since(start); answer.StatusCode != tc.status || took != tc.after {
				o.Errorf("%s: %d after %s, want %d after %s", tc.path, answer.StatusCode, took, tc.status, tc.after)
			}
			if err := <-alive; err != nil && tc.status == http.StatusOK {
				o.Errorf("the request was ended: %v", err)
			}
			_ = ours.Close()
			<-sent
			if err := server.Close(); err != nil {
				o.Error(err)
			}
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				o.Error(err)
			}
		})
	}
}
