package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pharos-nostr/pharos/monitor"
)

// Core is what the API asks the core. All of it answers from memory.
type Core interface {
	// Generation is the current snapshot, never nil: at first one that is
	// warming up.
	Generation() *monitor.Generation
	RelayView(u monitor.RelayURL) monitor.RelayView
	// Relays lists the watched relays that q selects, by URL.
	Relays(q monitor.RelayQuery) []monitor.RelayEntry
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
	Core     Core     // required
	History  History  // required
	Operator Operator // required; who carries out the commands
	Roster   Roster   // required; who may be a vantage on another machine
	Intake   Intake   // required; what those work with

	// AdminToken lets its holder command; "" = only a key of Settings.Operators.
	AdminToken string

	Pubkey  string // hex, of the service key
	Version string
	Settings

	Log *slog.Logger // nil = slog.Default
	// Registry is what /metrics shows; the API adds its own metrics to it.
	// nil = a new one.
	Registry *prometheus.Registry
}

// Settings are those options that Configure may change.
type Settings struct {
	Name      string        // of this monitor
	RelayURL  string        // where our own relay answers; "" = nowhere known
	Frequency time.Duration // at which reports are renewed

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

	// PublicURL is the ws(s) URL that this service is announced with, which a
	// signed request (NIP-98) is held against; "" = none.
	PublicURL string
	Operators []string // pubkeys in hex whose signed requests may command
	// PerMinute is how many requests an address may send in a minute (config
	// limits.http_per_minute), 0 = as many as it likes; those within Exempt
	// always may.
	PerMinute int
	Exempt    []netip.Prefix
}

func (s Settings) withDefaults() *Settings {
	if s.MaxAge == 0 {
		s.MaxAge = 4 * time.Hour
	}
	if s.MinCount == 0 {
		s.MinCount = 100
	}
	if s.MinFresh == 0 {
		s.MinFresh = 0.8
	}
	return &s
}

// API answers HTTP requests. It is safe for concurrent use and owns no
// goroutine.
type API struct {
	opts    Options
	log     *slog.Logger
	handler http.Handler
	huma    huma.API
	http    *httpMetrics
	auth    *auth
	limits  *limits
	desk    *desk

	settings atomic.Pointer[Settings]
	shelf    atomic.Pointer[shelf]
	pages    atomic.Pointer[pages]
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
	a := &API{opts: opts, log: opts.Log}
	a.settings.Store(opts.Settings.withDefaults())
	a.http = newHTTPMetrics(opts.Registry)
	a.auth, a.limits = newAuth(opts.AdminToken), newLimits(opts.Registry)
	a.desk = newDesk(opts.Registry, a.limits.limited)
	opts.Registry.MustRegister(&collector{a})

	r := chi.NewRouter()
	r.Use(a.observe, crossOrigin, a.limit, middleware.GetHead)
	nothing := func(w http.ResponseWriter, _ *http.Request) {
		a.writeProblem(w, newProblem(http.StatusNotFound, "there is nothing at this path; / lists what there is"))
	}
	r.NotFound(nothing)
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) {
		allow := allowed(r, cmp.Or(req.URL.RawPath, req.URL.Path))
		if allow == "" { // a method that chi has never heard of
			nothing(w, req)
			return
		}
		w.Header().Set("Allow", allow)
		a.writeProblem(w, newProblem(http.StatusMethodNotAllowed, "this path does not take "+methodLabel(req.Method)+"; Allow names what it takes"))
	})
	a.handler = r

	a.huma = newHuma(r, opts.Version)
	a.routeLists()
	a.routeRelay()
	a.routeRelays()
	a.routeSubmit()
	a.routeOptOut()
	a.routeAdmin()
	a.routeVantages()
	a.routeHistory()
	a.routeStatus()
	a.routePages(r)
	return a
}

// Configure swaps the settings: requests that begin after it see the new ones.
func (a *API) Configure(s Settings) {
	a.settings.Store(s.withDefaults())
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// allowed lists the methods that a path takes, for the header Allow. OPTIONS is
// none of them: only a browser's preflight is answered, see crossOrigin.
func allowed(routes chi.Routes, path string) string {
	var list []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if !routes.Match(chi.NewRouteContext(), m, path) {
			continue
		}
		list = append(list, m)
		if m == http.MethodGet {
			list = append(list, http.MethodHead)
		}
	}
	return strings.Join(list, ", ")
}
