package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pharos-nostr/pharos/monitor"
)

// Core is what the API asks the core. All of it answers from memory.
type Core interface {
	// Generation is the current snapshot, never nil: at first one that is
	// warming up.
	Generation() *monitor.Generation
	RelayView(u monitor.RelayURL) monitor.RelayView
	Status() monitor.Status
	// Ready reports whether this process does its work, and why not.
	Ready() (bool, string)
}

// History is what the API asks the store. Every method may return
// monitor.ErrUnavailable and obeys its context.
type History interface {
	Transitions(ctx context.Context, q monitor.TransitionQuery) ([]monitor.Transition, error)
	Observations(ctx context.Context, q monitor.ObservationQuery) ([]monitor.Observation, error)
	Ping(ctx context.Context) error
}

// Options is what an API is made of.
type Options struct {
	Core    Core    // required
	History History // required

	Name      string        // of this monitor
	Pubkey    string        // hex, of the service key
	RelayURL  string        // where our own relay answers; "" = nowhere known
	Frequency time.Duration // at which reports are renewed
	Version   string

	// MaxAge, MinCount and MinFresh are the guards of the live list (config
	// live.*; 4 h, 100 and 0.8 where they are zero). The core applies them;
	// the API tells them to the reader, and refuses a list older than MaxAge
	// itself, should the core have stopped making generations.
	MaxAge   time.Duration
	MinCount int
	MinFresh float64

	// AllowNetworks opens address ranges for URLs that callers ask about
	// (config probe.allow_networks).
	AllowNetworks []netip.Prefix

	Log *slog.Logger // nil = slog.Default
	// Registry is what /metrics shows; the API adds its own metrics to it.
	// nil = a new one.
	Registry *prometheus.Registry
}

// API answers HTTP requests. It is safe for concurrent use and owns no
// goroutine.
type API struct {
	opts    Options
	log     *slog.Logger
	handler http.Handler
	huma    huma.API
	http    *httpMetrics

	shelf    atomic.Pointer[shelf]
	stocking sync.Mutex // held while the shelf is replaced
}

// New builds the API. It panics when opts.Registry already holds metrics of
// the same names.
func New(opts Options) *API {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Registry == nil {
		opts.Registry = prometheus.NewRegistry()
	}
	if opts.MaxAge == 0 {
		opts.MaxAge = 4 * time.Hour
	}
	if opts.MinCount == 0 {
		opts.MinCount = 100
	}
	if opts.MinFresh == 0 {
		opts.MinFresh = 0.8
	}
	a := &API{opts: opts, log: opts.Log}
	a.http = newHTTPMetrics(opts.Registry)
	opts.Registry.MustRegister(&collector{a})

	r := chi.NewRouter()
	r.Use(a.observe, cors.Handler(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{http.MethodGet, http.MethodHead},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"ETag", "X-Pharos-Generation", "Retry-After"},
		MaxAge:         int((24 * time.Hour).Seconds()),
	}), middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		a.writeProblem(w, newProblem(http.StatusNotFound, "there is nothing at this path; / lists what there is"))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Allow", allowed(r, req.URL.Path))
		a.writeProblem(w, newProblem(http.StatusMethodNotAllowed, "this path does not take "+methodLabel(req.Method)+"; Allow names what it takes"))
	})
	a.handler = r

	a.huma = newHuma(r, opts.Version)
	a.routeLists()
	a.routeRelay()
	a.routeHistory()
	a.routeStatus()
	a.routePages(r)
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// allowed lists the methods that a path takes, for the header Allow.
func allowed(routes chi.Routes, path string) string {
	list := http.MethodOptions
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !routes.Match(chi.NewRouteContext(), m, path) {
			continue
		}
		list += ", " + m
		if m == http.MethodGet {
			list += ", " + http.MethodHead
		}
	}
	return list
}
