package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// readable are the paths of the document that answer GET without more.
var readable = []string{
	"/v1/live", "/v1/online", "/v1/georelays.csv", "/v1/offline-set", "/v1/relay", "/v1/relays", "/v1/transitions", "/v1/history", "/v1/status", "/healthz", "/readyz",
}

// pages are what can be read besides.
var pages = []string{"/", "/docs", "/metrics", "/openapi.json"}

// Every response that the document promises to readers is given; that each has
// the documented shape is checked wherever a test asks.
func TestEveryAnswerToReaders(t *testing.T) {
	away := func() error { return fmt.Errorf("query: %w", monitor.ErrUnavailable) }
	boom := func() { panic("boom") }
	lost := func(b *bench) {
		b.hist.transitions = func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error) { return nil, away() }
		b.hist.observations = func(context.Context, monitor.ObservationQuery) ([]monitor.Observation, error) { return nil, away() }
		b.hist.ping = func(context.Context) error { return away() }
	}
	cold := func(b *bench) {
		g := unusable(generation(b.now), monitor.FallbackTooFew)
		b.core.generation = func() *monitor.Generation { return g }
	}
	panics := func(b *bench) {
		b.core.generation = func() *monitor.Generation { boom(); return nil }
		b.core.view = func(monitor.RelayURL) monitor.RelayView { boom(); return monitor.RelayView{} }
		b.core.relays = func(monitor.RelayQuery) []monitor.RelayEntry { boom(); return nil }
		b.core.ready = func() (bool, string) { boom(); return false, "" }
		b.hist.transitions = func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error) { boom(); return nil, nil }
		b.hist.observations = func(context.Context, monitor.ObservationQuery) ([]monitor.Observation, error) {
			boom()
			return nil, nil
		}
	}
	for _, r := range []struct {
		target string
		status int
		broken func(*bench)
		header []string
	}{
		{"/v1/live", 200, nil, nil},
		{"/v1/live", 304, nil, []string{"If-None-Match", "*"}},
		{"/v1/live", 406, nil, []string{"Accept", "text/html"}},
		{"/v1/live?nip=x", 422, nil, nil},
		{"/v1/live", 500, panics, nil},
		{"/v1/live?format=event", 503, cold, nil},
		{"/v1/online", 200, nil, nil},
		{"/v1/online", 304, nil, []string{"If-None-Match", "*"}},
		{"/v1/online?x=1", 422, nil, nil},
		{"/v1/online", 500, panics, nil},
		{"/v1/online", 503, cold, nil},
		{"/v1/georelays.csv", 200, nil, nil},
		{"/v1/georelays.csv", 304, nil, []string{"If-None-Match", "*"}},
		{"/v1/georelays.csv?x=1", 422, nil, nil},
		{"/v1/georelays.csv", 500, panics, nil},
		{"/v1/georelays.csv", 503, cold, nil},
		{"/v1/offline-set", 200, nil, nil},
		{"/v1/offline-set", 304, nil, []string{"If-None-Match", "*"}},
		{"/v1/offline-set?x=1", 422, nil, nil},
		{"/v1/offline-set", 500, panics, nil},
		{"/v1/relay?url=wss://a.example", 200, nil, nil},
		{"/v1/relay?url=http://a.example", 422, nil, nil},
		{"/v1/relay?url=wss://a.example", 500, panics, nil},
		{"/v1/relays", 200, nil, nil},
		{"/v1/relays?state=up", 422, nil, nil},
		{"/v1/relays", 500, panics, nil},
		{"/v1/transitions", 200, nil, nil},
		{"/v1/transitions?state=up", 422, nil, nil},
		{"/v1/transitions", 500, panics, nil},
		{"/v1/transitions", 503, lost, nil},
		{"/v1/history?url=wss://a.example", 200, nil, nil},
		{"/v1/history", 422, nil, nil},
		{"/v1/history?url=wss://a.example", 500, panics, nil},
		{"/v1/history?url=wss://a.example", 503, lost, nil},
		{"/v1/status", 200, nil, nil},
		{"/v1/status?x=1", 422, nil, nil},
		{"/v1/status", 500, panics, nil},
		{"/healthz", 200, nil, nil},
		{"/healthz?x=1", 422, nil, nil},
		{"/readyz", 200, nil, nil},
		{"/readyz?x=1", 422, nil, nil},
		{"/readyz", 500, panics, nil},
		{"/readyz", 503, lost, nil},
	} {
		run(t, func(b *bench) {
			b.fixtures()
			if r.broken != nil {
				r.broken(b)
			}
			w := b.get(r.target, r.header...)
			if w.Code != r.status {
				b.Fatalf("GET %s: %d, want %d: %s", r.target, w.Code, r.status, w.Body)
			}
			if r.status >= 400 {
				b.problem(w, r.status)
			}
		})
	}
}

// Whoever asks too often is told so by every operation that counts.
func TestEveryOperationIsLimited(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		for _, op := range documented(b.api.OpenAPI()) {
			if op.Path == "/healthz" || op.Path == "/readyz" || strings.HasPrefix(op.Path, "/v1/vantages/{name}/") { // vantages have a limit of their own
				continue
			}
			b.api = newAPI(b.core, b.hist)
			s := settings()
			s.PerMinute = 1
			b.api.Configure(s)
			b.do(http.MethodGet, "/nope")
			w := b.do(op.Method, op.Path)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
				b.Errorf("%s %s: %d %v", op.Method, op.Path, w.Code, w.Header())
			}
		}
	})
}

// fixtures gives the fakes something of everything to tell.
func (b *bench) fixtures() {
	g := generation(b.now)
	b.core.generation = func() *monitor.Generation { return g }
	b.core.view = func(u monitor.RelayURL) monitor.RelayView { return relayView(u, b.now) }
	b.core.status = func() monitor.Status { return status(b.now) }
	b.core.relays = func(q monitor.RelayQuery) []monitor.RelayEntry { return entries(b.now) }
	b.hist.transitions = func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error) {
		return transitions(b.now, 3), nil
	}
	b.hist.observations = func(context.Context, monitor.ObservationQuery) ([]monitor.Observation, error) {
		return observations(b.now), nil
	}
}

// The document is OpenAPI 3.1, hangs together, and tells enough of each
// operation.
func TestOpenAPIDocument(t *testing.T) {
	run(t, func(b *bench) {
		w := b.get("/openapi.json")
		type operation struct {
			OperationID, Summary string
			Tags                 []string
			Responses            map[string]struct{ Description string }
			Parameters           []struct{ Name, Description string }
		}
		var doc struct {
			OpenAPI string
			Info    struct {
				Title, Version string
				License        struct{ Identifier string }
			}
			Servers    []struct{ URL string }
			Tags       []struct{ Name, Description string }
			Paths      map[string]map[string]operation
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			b.Fatal(err)
		}
		if !strings.HasPrefix(doc.OpenAPI, "3.1.") || doc.Info.Title == "" || doc.Info.Version != "1.2.3" || doc.Info.License.Identifier == "" || len(doc.Servers) != 1 {
			b.Errorf("%q %+v %v", doc.OpenAPI, doc.Info, doc.Servers)
		}
		chapters := map[string]bool{}
		for _, tag := range doc.Tags {
			chapters[tag.Name] = tag.Description != ""
		}
		index := b.get("/").Body.String()
		ids := map[string]bool{}
		for path, methods := range doc.Paths {
			for method, op := range methods {
				name := strings.ToUpper(method) + " " + path
				if op.OperationID == "" || op.Summary == "" || ids[op.OperationID] || len(op.Tags) != 1 || !chapters[op.Tags[0]] {
					b.Errorf("%s: %+v", name, op)
				}
				ids[op.OperationID] = true
				for _, p := range op.Parameters {
					if p.Description == "" {
						b.Errorf("%s: parameter %s is not described", name, p.Name)
					}
				}
				for status, r := range op.Responses {
					if r.Description == "" {
						b.Errorf("%s: response %s is not described", name, status)
					}
				}
				if !strings.Contains(index, name+"\n") {
					b.Errorf("the index does not name %s", name)
				}
			}
		}
		for _, path := range readable {
			if _, ok := doc.Paths[path]["get"]; !ok {
				b.Errorf("GET %s is not in the document", path)
			}
		}
		for _, path := range pages[1:] {
			if !strings.Contains(index, "GET "+path+"\n") {
				b.Errorf("the index does not name %s", path)
			}
		}
		const ref = `"$ref":"#/components/schemas/`
		used := map[string]bool{}
		for _, part := range strings.Split(w.Body.String(), ref)[1:] {
			name, _, _ := strings.Cut(part, `"`)
			if used[name] = true; doc.Components.Schemas[name] == nil {
				b.Errorf("dangling reference to %s", name)
			}
		}
		for name, schema := range b.api.OpenAPI().Components.Schemas.Map() {
			if !used[name] {
				b.Errorf("nothing uses the schema %s", name)
			}
			for field, p := range schema.Properties {
				if p.Nullable && len(p.Enum) > 0 && !slices.Contains(p.Enum, nil) {
					b.Errorf("%s.%s may be null by its type and not by its enumeration", name, field)
				}
			}
		}
	})
}

// Bad input is a 422 that names every problem, and never a 500.
func TestJunk(t *testing.T) {
	many := make([]string, 10000)
	for i := range many {
		many[i] = fmt.Sprintf("p%d=%d", i, i)
	}
	for name, query := range map[string]string{
		"10 000 parameters":  strings.Join(many, "&"),
		"10 000 repetitions": strings.Repeat("url=wss%3A%2F%2Fa.example&", 10000),
		"long value":         "url=" + strings.Repeat("a", 200000),
		"long name":          strings.Repeat("a", 200000) + "=1",
		"invalid UTF-8":      "url=%ff%fe",
		"invalid UTF-8 raw":  "url=\xff\xfe",
		"invalid UTF-8 name": "%ff%fe=1",
		"invalid UTF-8 word": "vantage=%ff&url=wss://a.example",
		"NUL":                "url=wss%3A%2F%2Fa.example%2F%00",
		"NUL in a word":      "vantage=a%00b&url=wss%3A%2F%2Fa.example",
		"line break":         "url=wss%3A%2F%2Fa.example%0d%0aX-Injected%3A%201",
		"bad escape":         "url=%zz",
		"semicolon":          "url=wss://a.example;x=1",
		"no value":           "url=",
		"only a name":        "url",
		"name after a flag":  "a&url=wss://a.example",
		"bad times":          "from=yesterday&to=2006-13-45T99:99:99Z",
		"times out of range": "from=-1&to=99999999999999999999",
		"year 10000":         "to=253402300800",
		"bad numbers":        "limit=1e9&cursor=0x1",
		"limit too high":     "limit=10001",
		"limit of none":      "limit=0",
		"many NIPs":          "nip=" + strings.Repeat("1&nip=", 20) + "1",
		"one bad NIP":        "nip=1&nip=x",
		"NIP without value":  "nip=1&nip=",
		"NIP out of range":   "nip=65536",
		"many marks":         "mark=" + strings.Repeat("held&mark=", 20) + "held",
		"unknown mark":       "mark=held&mark=x",
		"no boolean":         "auth=maybe&candidate=2",
		"no country":         "country=DEU",
		"guard too old":      "max_age=14401",
		"guard of none":      "min_count=0",
		"huge number":        "max_rtt_open_ms=" + strings.Repeat("9", 5000),
		"cursor of junk":     "cursor=" + strings.Repeat("A", 600),
		"cursor not base64":  "cursor=%2B%2B%2B%2B",
		"cursor too long":    "cursor=" + strings.Repeat("A", 100000),
		"long q":             "q=" + strings.Repeat("q", 513),
		"negative cursor":    "cursor=-9223372036854775808",
		"cursor overflow":    "cursor=9223372036854775808",
		"format in capitals": "format=JSON",
		"unknown resolution": "resolution=hour",
		"unknown state":      "state=up",
		"fields unknown":     "fields=url,state",
		"event and fields":   "format=event&fields=url",
		"long vantage":       "url=wss://a.example&vantage=" + strings.Repeat("v", 65),
		"from after to":      "url=wss://a.example&from=1000&to=999&state=dead",
		"invisible name":     "%e2%80%ae=1",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.fixtures()
				for _, path := range append(pages, readable...) {
					w := b.get(path + "?" + query)
					p := b.problem(w, http.StatusUnprocessableEntity)
					if n := len(p.Errors); n == 0 || n > 101 {
						b.Errorf("%s: %d errors", path, n)
					}
					for _, e := range p.Errors {
						if !strings.HasPrefix(e.Location, "query") && !strings.HasPrefix(e.Message, "and ") {
							b.Errorf("%s: no location in %+v", path, e)
						}
					}
					if w.Body.Len() > 64<<10 {
						b.Errorf("%s: an answer of %d bytes", path, w.Body.Len())
					}
				}
			})
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	run(t, func(b *bench) {
		w := b.get("/v1/transitions?from=x&to=-5&state=up&limit=0&cursor=z&url=http://a.example&network=tor&limit=3")
		b.problem(w, http.StatusUnprocessableEntity)
		golden(b.T, "problems.json", w.Body.Bytes())
	})
}

// What only a fuller API has is told by name.
func TestParametersOfAFullerAPIAreRefusedByName(t *testing.T) {
	run(t, func(b *bench) {
		for name, target := range map[string]string{
			"min_uptime_7d": "/v1/live?min_uptime_7d=0.9", "sort": "/v1/live?sort=uptime_7d", "resolution": "/v1/history?url=wss://a.example&resolution=day",
		} {
			p := b.problem(b.get(target), http.StatusUnprocessableEntity)
			if len(p.Errors) != 1 || p.Errors[0].Location != "query."+name {
				b.Errorf("%s: %+v", name, p.Errors)
			}
		}
	})
}

// No password and no token of a URL that somebody asks about comes back.
func TestProblemsDoNotRepeatSecrets(t *testing.T) {
	run(t, func(b *bench) {
		for _, u := range []string{
			"wss://user:hunter2@a.example/", "wss://a.example/?token=hunter2", "wss://hunter2:x@a.example/?q#hunter2", "hunter2@a.example",
			"wss://a.example/%00?hunter2", "ws://user:hunter2@127.0.0.1:1/",
		} {
			for _, path := range []string{"/v1/relay", "/v1/transitions", "/v1/history"} {
				w := b.get(path + "?url=" + url.QueryEscape(u))
				b.problem(w, http.StatusUnprocessableEntity)
				if strings.Contains(w.Body.String(), "hunter2") {
					b.Errorf("%s repeats the secret of %s: %s", path, u, w.Body)
				}
			}
		}
	})
}

func TestUnknownPathsAndMethods(t *testing.T) {
	run(t, func(b *bench) {
		for _, path := range []string{"/nope", "/v1", "/v1/live/", "/v1/live/x", "//v1/live", "/v1/%00", "/\xff"} {
			b.problem(b.get(path), http.StatusNotFound)
		}
		b.problem(b.do("BREW", "/nope"), http.StatusNotFound)
		// OPTIONS is answered to a browser that asks for another origin, only.
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "BREW"} {
			for _, path := range append(pages, readable...) {
				w := b.do(method, path)
				b.problem(w, http.StatusMethodNotAllowed)
				if allow := w.Header().Get("Allow"); allow != "GET, HEAD" {
					b.Errorf("%s %s: Allow %q", method, path, allow)
				}
			}
		}
	})
}

func TestHeadWorksEverywhere(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		for _, target := range []string{
			"/", "/docs", "/metrics", "/openapi.json", "/v1/relays", "/v1/live", "/v1/live?format=csv&limit=1", "/v1/online", "/v1/offline-set", "/v1/relay?url=wss://a.example",
			"/v1/transitions", "/v1/history?url=wss://a.example", "/v1/status", "/healthz", "/readyz",
		} {
			get, head := b.get(target), b.do(http.MethodHead, target)
			if get.Code != http.StatusOK || head.Code != get.Code || head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
				b.Errorf("%s: GET %d, HEAD %d %v", target, get.Code, head.Code, head.Header())
			}
		}
		if w := b.do(http.MethodHead, "/v1/relay?url=x"); w.Code != http.StatusUnprocessableEntity {
			b.Errorf("HEAD of bad input: %d", w.Code)
		}
	})
}

func TestCORS(t *testing.T) {
	run(t, func(b *bench) {
		for _, target := range []string{"/v1/live", "/v1/relay", "/v1/status", "/nope"} {
			w := b.get(target, "Origin", "https://client.example")
			if o := w.Header().Get("Access-Control-Allow-Origin"); o != "*" {
				b.Errorf("%s: Access-Control-Allow-Origin %q", target, o)
			}
			if e := w.Header().Get("Access-Control-Expose-Headers"); !strings.Contains(e, "X-Pharos-Generation") || !strings.Contains(strings.ToLower(e), "etag") {
				b.Errorf("%s: Access-Control-Expose-Headers %q", target, e)
			}
		}
		w := b.do(http.MethodOptions, "/v1/live", "Origin", "https://client.example",
			"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "If-None-Match")
		if w.Code != http.StatusOK || w.Header().Get("Access-Control-Allow-Methods") != "GET" || w.Header().Get("Access-Control-Allow-Headers") == "" {
			b.Errorf("preflight: %d %v", w.Code, w.Header())
		}
		w = b.do(http.MethodOptions, "/v1/live", "Origin", "https://client.example", "Access-Control-Request-Method", "POST")
		if w.Header().Get("Access-Control-Allow-Methods") != "" {
			b.Error("preflight lets others write")
		}
	})
}

func TestPanicsCostOneAnswer(t *testing.T) {
	run(t, func(b *bench) {
		b.core.view = func(monitor.RelayURL) monitor.RelayView { panic("wss://secret.example/") }
		for range 2 {
			w := b.get("/v1/relay?url=wss://a.example")
			b.problem(w, http.StatusInternalServerError)
			if strings.Contains(w.Body.String(), "secret") {
				b.Error("the panic's value is told to the caller")
			}
		}
		if w := b.get("/v1/live"); w.Code != http.StatusOK {
			b.Errorf("afterwards: %d", w.Code)
		}
		if w := b.get("/metrics"); !strings.Contains(w.Body.String(), "pharos_http_panics_total 2\n") {
			b.Error("not counted")
		}
		b.core.status = func() monitor.Status { panic("boom") }
		if w := b.get("/metrics"); w.Code != http.StatusInternalServerError {
			b.Errorf("metrics of a broken core: %d", w.Code)
		}
	})
}

// What breaks inside is not told, even where huma words the problem.
func TestFaultsInsideAreNotTold(t *testing.T) {
	for status, told := range map[int]bool{500: false, 503: false, 422: true} {
		text, err := json.Marshal(huma.NewError(status, "detail", errors.New("db.internal")))
		if err != nil || strings.Contains(string(text), "db.internal") != told {
			t.Errorf("%d: %s %v", status, text, err)
		}
	}
}

// brokenWriter fails as a client's connection does in the middle.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (w brokenWriter) Write([]byte) (int, error) { panic("lost in the middle") }

// An answer that breaks off in the middle must not look like a whole one.
func TestPanicInTheMiddleCutsTheConnection(t *testing.T) {
	run(t, func(b *bench) {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				b.Errorf("recovered %v, want http.ErrAbortHandler", v)
			}
		}()
		b.api.ServeHTTP(brokenWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/v1/live", nil))
	})
}

func TestReadiness(t *testing.T) {
	run(t, func(b *bench) {
		if w := b.get("/readyz"); w.Code != http.StatusOK {
			b.Errorf("ready: %d", w.Code)
		}
		b.core.ready = func() (bool, string) { return false, "120 of 2600 relays measured" }
		if p := b.problem(b.get("/readyz"), http.StatusServiceUnavailable); !strings.Contains(p.Detail, "120 of 2600") {
			b.Errorf("reason is missing: %s", p.Detail)
		}
		if w := b.get("/healthz"); w.Code != http.StatusOK {
			b.Errorf("health of a process that is not ready: %d", w.Code)
		}
		if w := b.get("/v1/status"); !strings.Contains(w.Body.String(), `"ready":false,"not_ready":"120 of 2600 relays measured"`) {
			b.Errorf("status: %s", w.Body)
		}
		b.core.ready = nil
		b.hist.ping = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		start := time.Now()
		b.problem(b.get("/readyz"), http.StatusServiceUnavailable)
		if d := time.Since(start); d != 2*time.Second { // of the bubble
			b.Errorf("waited %s for the store", d)
		}
	})
}

func TestStatusBody(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		golden(b.T, "status.json", b.get("/v1/status").Body.Bytes())
	})
}

// What the store says may name hosts and users; it is for the log.
func TestStatusKeepsTheStoresWordsToItself(t *testing.T) {
	run(t, func(b *bench) {
		b.core.status = func() monitor.Status { return monitor.Status{StoreError: "dial db.internal as pharos: refused"} }
		body := b.get("/v1/status").Body.String()
		if !strings.Contains(body, `"store":{"up":false}`) || strings.Contains(body, "db.internal") {
			b.Errorf("%s", body)
		}
		b.hist.transitions = func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error) {
			return nil, errors.New("dial db.internal as pharos: refused")
		}
		w := b.get("/v1/transitions")
		b.problem(w, http.StatusInternalServerError)
		if strings.Contains(w.Body.String(), "db.internal") {
			b.Errorf("%s", w.Body)
		}
	})
}
