package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
)

// pages are those that tell of the settings, made for one set of them.
type pages struct {
	settings *Settings
	index    *body
	docs     *body
}

// routePages serves what is no operation of the API: the document that
// describes it, the same to read, the metrics, and an index for whoever finds
// the root.
func (a *API) routePages(r chi.Router) {
	doc := a.huma.OpenAPI()
	finish(doc)
	document := newHashed("openapi", "application/json", func() (page, error) {
		data, err := json.Marshal(doc)
		return page{data: data}, err
	})
	serve := func(pick func() *body) http.HandlerFunc {
		return a.strictly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.serveBody(w, r, pick(), "public, max-age=300")
		}))
	}
	r.Get("/openapi.json", serve(func() *body { return document }))
	r.Get("/", serve(func() *body { return a.presentPages().index }))
	docs := serve(func() *body { return a.presentPages().docs })
	r.Get("/docs", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", docsPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		docs(w, r)
	})
	r.Method(http.MethodGet, "/metrics", a.strictly(metricsHandler(a.opts.Registry, a.log),
		&huma.Param{Name: "name[]", In: "query", Schema: &huma.Schema{Type: huma.TypeArray}}))
}

// presentPages returns the pages for the settings of now.
func (a *API) presentPages() *pages {
	settings := a.settings.Load()
	if p := a.pages.Load(); p != nil && p.settings == settings {
		return p
	}
	doc := a.huma.OpenAPI()
	p := &pages{settings: settings}
	p.index = newHashed("index", "text/plain; charset=utf-8", func() (page, error) { return page{data: a.index(doc, settings)}, nil })
	p.docs = newHashed("docs", "text/html; charset=utf-8", func() (page, error) {
		data, err := renderDocs(doc, settings.Name, settings.baseURL())
		return page{data: data}, err
	})
	a.pages.Store(p)
	return p
}

// baseURL is where readers reach this server, which is beside our relay; it has
// no slash at the end.
func (s *Settings) baseURL() string {
	u := cmp.Or(s.PublicURL, s.RelayURL, "http://localhost")
	for from, to := range map[string]string{"wss://": "https://", "ws://": "http://"} {
		if rest, ok := strings.CutPrefix(u, from); ok {
			u = to + rest
		}
	}
	return strings.TrimRight(u, "/")
}

// index is the page at the root: what there is, in words.
func (a *API) index(doc *huma.OpenAPI, s *Settings) []byte {
	b := []byte(s.Name + " (Pharos " + a.opts.Version + ") watches Nostr relays and says which are online.\n\n")
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, op := range methods(doc.Paths[path]) {
			b = append(b, op.Method+" "+path+"\n    "+op.Summary+"\n"...)
		}
	}
	b = append(b, "GET /metrics\n    For Prometheus\n"+
		"GET /docs\n    All of this, with every parameter and answer, to read\n"+
		"GET /openapi.json\n    The same as OpenAPI 3.1, for programs\n"...)
	if s.RelayURL != "" {
		b = append(b, "\nSigned reports (NIP-66) are read from the relay at "+s.RelayURL+"\n"...)
	}
	return b
}
