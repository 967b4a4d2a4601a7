package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
)

// newHuma makes the huma API. Its own pages are off: the docs page loads from
// a CDN, and the handler of the document builds it unguarded at the first
// request.
func newHuma(r chi.Router, version string) huma.API {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Pharos",
				Version: version,
				Description: "Which Nostr relays are online, as several vantages agree. Times are RFC 3339 in UTC. " +
					"HEAD is answered wherever GET is. A list with usable = false must not be used to drop a relay: " +
					"its absence from an untrusted list says nothing.",
				License: &huma.License{Name: "MIT", Identifier: "MIT"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The monitor that this document came from."}},
			// Whoever has no key may read; operations that want one say so.
			Security:   []map[string][]string{{}},
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
		},
		Formats:       huma.DefaultFormats,
		DefaultFormat: "application/json",
	}
	// Fields may be added to answers: a client must not choke on them.
	config.AllowAdditionalPropertiesByDefault = true
	return humachi.New(r, config)
}

// tags are the chapters of the document, in their order.
var tags = []*huma.Tag{
	{Name: "Lists", Description: "Whole sets of relays, as of one generation: what clients filter by."},
	{Name: "Relays", Description: "Single relays, and all that are watched."},
	{Name: "History", Description: "What happened, for operators of relays and of this monitor."},
	{Name: "Operators", Description: "What only the operators of this monitor may do."},
	{Name: "Vantages", Description: "What vantages on other machines use."},
	{Name: "Service", Description: "This monitor itself."},
}

// bodies are examples of what is posted, by operation.
var bodies = map[string]string{
	"submit-relay":      `{"url":"wss://relay.example.com"}`,
	"opt-out-relay":     `{"url":"wss://relay.example.com"}`,
	"admin-check":       `{"relays":["wss://relay.example.com"]}`,
	"admin-reset":       `{"relays":["wss://relay.example.com"]}`,
	"admin-relays":      `{"add":["wss://relay.example.com"],"note":"our own"}`,
	"admin-exclude":     `{"add":["wss://relay.example.com"],"note":"its operator wants no probes"}`,
	"admin-pause":       `{"relays":["wss://relay.example.com"],"for":"1h30m"}`,
	"admin-maintenance": `{"relays":["wss://relay.example.com"],"for":"2d","note":"new disks"}`,
	"admin-release":     `{"all":true}`,
	"admin-vantages":    `{"invite":{"name":"ber","group":"hetzner"}}`,
	"enrol-vantage":     `{"version":1,"token":"…","networks":["clearnet"]}`,
}

// finish completes the document when every operation is registered.
func finish(doc *huma.OpenAPI) {
	used := map[string]bool{}
	problems := doc.Components.Schemas.Schema(reflect.TypeFor[problem](), true, "")
	for path, item := range doc.Paths {
		for _, op := range methods(item) {
			for _, tag := range op.Tags {
				used[tag] = true
			}
			for _, p := range op.Parameters {
				// huma has its words by now; in the document it is no keyword.
				p.Schema.PatternDescription = ""
			}
			if body := bodies[op.OperationID]; body != "" && op.RequestBody != nil {
				op.RequestBody.Content["application/json"].Example = json.RawMessage(body)
			}
			if !unlimited(path) && op.Responses["429"] == nil {
				op.Responses["429"] = &huma.Response{
					Description: http.StatusText(http.StatusTooManyRequests),
					Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: problems}},
				}
			}
			for _, status := range []string{"429", "503"} {
				sends(op, status, "Retry-After", &huma.Header{
					Description: "In how many seconds to try again.", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger},
				})
			}
			sends(op, "401", "WWW-Authenticate", &huma.Header{
				Description: "Nostr, and for operators Bearer too.", Required: true, Schema: &huma.Schema{Type: huma.TypeString},
			})
			if ok := op.Responses["200"]; ok != nil && ok.Headers[generationHeader] != nil { // a list: its 503 tells of a generation too
				sends(op, "503", generationHeader, ok.Headers[generationHeader])
			}
		}
	}
	for _, tag := range tags {
		if used[tag.Name] {
			doc.Tags = append(doc.Tags, tag)
		}
	}
	allowNull(doc)
}

// sends documents a header of a response, where there is one of that status.
func sends(op *huma.Operation, status, name string, h *huma.Header) {
	r := op.Responses[status]
	if r == nil {
		return
	}
	if r.Headers == nil {
		r.Headers = map[string]*huma.Header{}
	}
	r.Headers[name] = h
}

// methods lists the operations of a path, reading ones first.
func methods(item *huma.PathItem) []*huma.Operation {
	return slices.DeleteFunc([]*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete}, func(op *huma.Operation) bool { return op == nil })
}

// allowNull adds null to the enumerations of what may be null: huma says so in
// the type only, and a strict reader of JSON Schema asks both.
func allowNull(doc *huma.OpenAPI) {
	for _, s := range doc.Components.Schemas.Map() {
		for _, p := range s.Properties {
			if p.Nullable && len(p.Enum) > 0 {
				p.Enum = append(p.Enum, nil)
			}
		}
	}
}

// content is what one answer may hold, and when it does.
type content struct {
	doc string
	of  any
}

// response documents a 200 whose body the handler writes itself: one of the
// given types, or of contents that say when it is.
func response(api huma.API, description string, types ...any) *huma.Response {
	schemas := make([]*huma.Schema, 0, len(types))
	for _, t := range types {
		c, ok := t.(content)
		if !ok {
			c.of = t
		}
		// Beside a reference stands what it is here.
		s := *api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(c.of), true, "List")
		s.Description, s.Nullable = c.doc, false
		schemas = append(schemas, &s)
	}
	s := schemas[0]
	if len(schemas) > 1 {
		s = &huma.Schema{AnyOf: schemas}
	}
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: s}}}
}

// listResponses documents what a pre-encoded list answers.
func listResponses(api huma.API, description string, types ...any) map[string]*huma.Response {
	text := func(doc string) *huma.Header {
		return &huma.Header{Description: doc, Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	headers := map[string]*huma.Header{
		"ETag":          text("Differs between representations and codings."),
		"Cache-Control": text("How long a cache may answer for us."),
		"Vary":          text("What the representation depends on."),
		generationHeader: {
			Description: "The generation that the list was taken from.",
			Required:    true,
			Schema:      &huma.Schema{Type: huma.TypeInteger},
		},
	}
	ok := response(api, description, types...)
	ok.Headers = headers
	return map[string]*huma.Response{
		"200": ok,
		"304": {Description: "The client has this representation (If-None-Match).", Headers: maps.Clone(headers)},
	}
}

// raw answers with what write puts on the wire, past huma's own encoding.
func raw(write func(http.ResponseWriter, *http.Request)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, w := humachi.Unwrap(ctx)
		write(w, r)
	}}
}

// answer is a JSON body that is made for one request.
type answer[T any] struct{ Body T }
