package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

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
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)},
		},
		Formats:       huma.DefaultFormats,
		DefaultFormat: "application/json",
	}
	// Fields may be added to answers: a client must not choke on them.
	config.AllowAdditionalPropertiesByDefault = true
	return humachi.New(r, config)
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

// response documents a 200 whose body the handler writes itself: any of the
// given types.
func response(api huma.API, description string, types ...any) *huma.Response {
	schemas := make([]*huma.Schema, 0, len(types))
	for _, t := range types {
		schemas = append(schemas, api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(t), true, "List"))
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
		return &huma.Header{Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	headers := map[string]*huma.Header{
		"ETag":          text("Differs between representations and codings."),
		"Cache-Control": text("How long a cache may answer for us."),
		"Vary":          text("What the representation depends on."),
		"X-Pharos-Generation": {
			Description: "The generation that the list was taken from.",
			Schema:      &huma.Schema{Type: huma.TypeInteger},
		},
	}
	ok := response(api, description, types...)
	ok.Headers = headers
	return map[string]*huma.Response{
		"200": ok,
		"304": {Description: "The client has this representation (If-None-Match).", Headers: headers},
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

// routePages serves what is no operation of the API: the document that
// describes it, the metrics and an index for whoever finds the root.
func (a *API) routePages(r chi.Router) {
	doc := a.huma.OpenAPI()
	allowNull(doc)
	started := strconv.FormatInt(time.Now().UnixMilli(), 36)
	document := newBody("openapi-"+started, "application/json", func() ([]byte, error) { return json.Marshal(doc) })
	index := newBody("index-"+started, "text/plain; charset=utf-8", func() ([]byte, error) { return a.index(doc), nil })
	page := func(b *body) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { a.serveBody(w, r, b, "public, max-age=300") }
	}
	r.Get("/openapi.json", page(document))
	r.Get("/", page(index))
	r.Method(http.MethodGet, "/metrics", metricsHandler(a.opts.Registry, a.log))
}

// index is the page at the root: what there is, in words.
func (a *API) index(doc *huma.OpenAPI) []byte {
	b := []byte(a.opts.Name + " (Pharos " + a.opts.Version + ") watches Nostr relays and says which are online.\n\n")
	for _, path := range paths(doc) {
		b = append(b, "GET "+path+"\n    "+doc.Paths[path].Get.Summary+"\n"...)
	}
	b = append(b, "GET /metrics\n    For Prometheus\nGET /openapi.json\n    All of this, with every parameter and answer, as OpenAPI 3.1\n"...)
	if a.opts.RelayURL != "" {
		b = append(b, "\nSigned reports (NIP-66) are read from the relay at "+a.opts.RelayURL+"\n"...)
	}
	return b
}

// paths lists the paths of the document that can be read, sorted.
func paths(doc *huma.OpenAPI) []string {
	var out []string
	for path, item := range doc.Paths {
		if item.Get != nil {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}
