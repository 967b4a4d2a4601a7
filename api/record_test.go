package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/api"
)

// Every response that the OpenAPI document promises must be given by some
// test, and every response that a test is given must be as documented:
//
//   - bench.do, bench.get and bench.send record (operation, status) and hold the
//     answer against the document: status, headers, content type, schema.
//   - When all tests of the package ran, TestMain fails where something is
//     documented that none of them was given.
//
// So whoever adds an operation or a status writes an ordinary test that asks
// for it through the bench. unrecorded is for what is meant to break the
// document, such as an error that no store returns for that operation.
var exercised = &record{seen: map[string]bool{}, promised: map[string]bool{}}

// record is what the tests of this package have been answered.
type record struct {
	mu             sync.Mutex
	seen, promised map[string]bool // "operation status"
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && everything() {
			for _, missing := range exercised.missing() {
				fmt.Fprintf(os.Stderr, "%s is documented, and no test was answered so\n", missing)
				code = 1
			}
		}
		os.Exit(code)
	}))
}

// everything reports whether this run has all tests in it.
func everything() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return flag.Lookup("test.count").Value.String() != "0"
}

func (r *record) missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, p := range slices.Sorted(maps.Keys(r.promised)) {
		if !r.seen[p] {
			out = append(out, p)
		}
	}
	return out
}

// learn takes in what a document promises.
func (r *record) learn(doc *huma.OpenAPI) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range documented(doc) {
		for status := range op.Responses {
			r.promised[op.OperationID+" "+status] = true
		}
	}
}

// check records an answer and holds it against the document. A request that is
// no documented operation is left alone.
func (r *record) check(t *testing.T, a *api.API, req *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	doc := a.OpenAPI()
	op := operation(doc, req)
	if op == nil {
		return
	}
	r.learn(doc)
	what := fmt.Sprintf("%s %.200s → %d", req.Method, req.URL.RequestURI(), w.Code)
	promised := op.Responses[strconv.Itoa(w.Code)]
	if promised == nil {
		t.Errorf("%s is not documented: %.300s", what, w.Body)
		return
	}
	r.mu.Lock()
	r.seen[op.OperationID+" "+strconv.Itoa(w.Code)] = true
	r.mu.Unlock()
	var named []string
	for name, h := range promised.Headers {
		named = append(named, http.CanonicalHeaderKey(name))
		if h.Required && w.Header().Get(name) == "" {
			t.Errorf("%s: header %s is missing", what, name)
		}
	}
	for name := range w.Header() {
		if !common(name) && !slices.Contains(named, name) {
			t.Errorf("%s: header %s is not documented", what, name)
		}
	}
	if w.Body.Len() == 0 {
		return // HEAD, 304, or a text of no lines
	}
	media := promised.Content[w.Header().Get("Content-Type")]
	if media == nil {
		t.Errorf("%s: Content-Type %q is not documented: %.300s", what, w.Header().Get("Content-Type"), w.Body)
		return
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" && ct != "application/problem+json" {
		return // text is documented in words
	}
	var v any
	if err := json.Unmarshal(unpack(t, w.Header().Get("Content-Encoding"), w.Body.Bytes()), &v); err != nil {
		t.Errorf("%s: %v: %.300s", what, err, w.Body)
		return
	}
	var res huma.ValidateResult
	huma.Validate(doc.Components.Schemas, media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, v, &res)
	if len(res.Errors) > 0 {
		t.Errorf("%s does not conform: %v (of %d faults) in %.500s", what, res.Errors[0], len(res.Errors), w.Body)
	}
}

// common reports whether a header is of HTTP in general, and needs no word in
// each response's documentation.
func common(name string) bool {
	switch name {
	case "Cache-Control", "Vary", "X-Content-Type-Options":
		return true
	}
	return strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "Access-Control-")
}

// documented lists the operations of a document.
func documented(doc *huma.OpenAPI) []*huma.Operation {
	var out []*huma.Operation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				out = append(out, op)
			}
		}
	}
	return out
}

// operation finds the documented operation that a request is for; nil = none.
// HEAD is answered as GET is.
func operation(doc *huma.OpenAPI, r *http.Request) *huma.Operation {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	have := strings.Split(r.URL.Path, "/")
	for _, op := range documented(doc) {
		if op.Method == method && slices.EqualFunc(strings.Split(op.Path, "/"), have, func(want, have string) bool {
			return want == have || strings.HasPrefix(want, "{") && have != ""
		}) {
			return op
		}
	}
	return nil
}

// send has the API answer r, and holds the answer against the document.
func (b *bench) send(r *http.Request) *httptest.ResponseRecorder {
	b.Helper()
	w := b.unrecorded(r)
	exercised.check(b.T, b.api, r, w)
	return w
}

// unrecorded has the API answer r.
func (b *bench) unrecorded(r *http.Request) *httptest.ResponseRecorder {
	b.Helper()
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r)
	return w
}
