package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/discovery"
	"github.com/pharos-nostr/pharos/publisher"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// How long the steps of a shutdown may take; together less than the 20 s of
// config.md.
const (
	drainLimit = 12 * time.Second // probes in flight
	flushLimit = 3 * time.Second  // the last batches
	closeLimit = 3 * time.Second  // subscribers and requests
)

// App is one process that does everything: New reads the relay files, Start brings
// it up part by part, Stop takes it down in the order of config.md.
type App struct {
	cfg    atomic.Pointer[Config]
	dir    string
	newKey bool
	log    *slog.Logger
	// reread reads the configuration again for a reload; New's gives back what
	// is in force.
	reread  func() (*Config, error)
	environ []string // where a key's password may be
	// changing holds a token while the start, or a reload, sets list and points.
	changing chan struct{}

	list       *relayList
	lock       *dirLock
	listener   net.Listener
	server     *http.Server
	handler    atomic.Pointer[http.Handler]
	stopHTTP   func(ctx context.Context) error // once; later calls do nothing
	stopping   atomic.Bool
	engine     *engine.Engine
	publisher  *publisher.Publisher
	relay      *relay.Relay
	api        *api.API
	host       atomic.Pointer[host]
	points     []*point
	places     *places
	discovery  *discovery.Discovery
	discoverer *discoverer
	backups    *dailyBackup // nil = none are made
	metrics    *prometheus.Registry
	pubkey     string

	// stops are what Stop does, newest first: each part adds how it ends when
	// it is up.
	stops  []stopStep
	failed chan error // a part ended by itself; buffered for each of them
}

type stopStep struct {
	name string
	stop func(ctx context.Context) error
}

// New prepares an app on the data directory dir. The error says what is wrong
// with what the configuration names.
func New(cfg *Config, dir string, newKey bool, log *slog.Logger) (*App, error) {
	list, err := cfg.relays()
	if err != nil {
		return nil, exitWith(exitUsage, err)
	}
	a := &App{dir: dir, newKey: newKey, log: log, list: list, metrics: prometheus.NewRegistry(), changing: make(chan struct{}, 1), failed: make(chan error, 4)}
	c := *cfg
	a.cfg.Store(&c)
	a.reread = func() (*Config, error) {
		same := *a.config()
		return &same, nil
	}
	return a, nil
}

// config is the configuration that is in force; it is never changed, only
// replaced.
func (a *App) config() *Config { return a.cfg.Load() }

// Start brings the app up. When it fails, what was up already is taken down
// again, and the error says in one sentence why (exit status 3).
func (a *App) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
			defer cancel()
			err = errors.Join(err, a.Stop(ctx))
		}
	}()
	a.changing <- struct{}{}
	defer func() { <-a.changing }()
	a.sayWhatIsWatched(a.config(), a.list)
	limitMemory(a.log, a.config().Database.URL == "")
	if err := a.config().checkSources(ctx); err != nil {
		return err
	}
	if err := a.openDataDir(); err != nil {
		return err
	}
	if err := a.listen(ctx); err != nil {
		return err
	}
	key, err := a.openKey()
	if err != nil {
		return err
	}
	a.pubkey = key.Pubkey()
	store, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	if err := a.startPlaces(); err != nil {
		return err
	}
	if err := a.startCore(ctx, key, store); err != nil {
		return err
	}
	a.background("places", a.places.watch)
	a.backups = a.dailyBackup(a.environ)
	if err := a.startHousekeeping(store, a.backups); err != nil {
		return err
	}
	if err := a.startVantages(); err != nil {
		return err
	}
	if err := a.startDiscovery(); err != nil {
		return err
	}
	a.startHost(store)
	return nil
}

// URL is where HTTP answers, once Start has returned.
func (a *App) URL() string { return httpURL(a.listener.Addr().String()) }

// Failed yields an error when a part ended that should not have: the process
// cannot go on.
func (a *App) Failed() <-chan error { return a.failed }

// Ready reports whether the app does its work, and if not, why.
func (a *App) Ready() (bool, string) {
	if a.stopping.Load() {
		return false, "it is shutting down"
	}
	return a.engine.Ready()
}

// Stop takes everything down: it says that it is not ready, stops probing,
// waits for the probes and hands over what they saw, closes subscribers, store
// and database. It may be called after a Start that failed, and only once.
func (a *App) Stop(ctx context.Context) error {
	a.stopping.Store(true)
	var errs []error
	for _, s := range slices.Backward(a.stops) {
		if err := s.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
	}
	a.stops = nil
	return errors.Join(errs...)
}

func (a *App) onStop(name string, stop func(ctx context.Context) error) {
	a.stops = append(a.stops, stopStep{name, stop})
}

// background runs work until it is told to stop, and waits for its end then.
// Work that ends before that with an error fails the app.
func (a *App) background(name string, work func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := work(ctx)
		if err != nil && ctx.Err() == nil {
			a.failed <- fmt.Errorf("%s: %w", name, err)
			err = nil // said once
		}
		done <- err
	}()
	a.onStop(name, func(ctx context.Context) error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (a *App) sayWhatIsWatched(cfg *Config, list *relayList) {
	for i, j := range list.Junk {
		if i == 100 {
			a.log.Warn("more relay lines skipped", "count", len(list.Junk)-i)
			break
		}
		a.log.Warn("relay line skipped", "file", j.File, "line", j.Line, "reason", j.Reason, "why", j.Words)
	}
	sources := map[monitor.Source]int{}
	for _, r := range list.Relays {
		sources[r.Source]++
	}
	a.log.Info("watching relays", "count", len(list.Relays), "configured", sources[monitor.SourceConfig],
		"from_files", sources[monitor.SourceFile], "built_in", sources[monitor.SourceBuiltin],
		"repeated", list.Repeated, "excluded", list.Excluded, "skipped", len(list.Junk))
	if cfg.Discovery.Enabled {
		a.log.Info("discovering relays", "sources", len(cfg.sources()), "interval", cfg.Discovery.Interval.String(), "max_relays", cfg.Discovery.MaxRelays)
	}
}

func (a *App) openDataDir() error {
	if err := makeDataDir(a.dir); err != nil {
		return err
	}
	lock, err := lockDataDir(a.dir)
	if err != nil {
		return err
	}
	a.lock = lock
	a.onStop("lock", func(context.Context) error { return lock.release() })
	a.log.Info("data directory", "path", a.dir)
	return nil
}

// listen takes the port and answers on it that we are starting: a migration
// may take its time, and a supervisor must see that we live.
func (a *App) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.config().Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return exitf(exitStart, "%s is in use by another program: stop that, or choose another address with --listen", a.config().Listen)
	case errors.Is(err, os.ErrPermission):
		return exitf(exitStart, "there is no permission to listen on %s: choose a port above 1023 with --listen", a.config().Listen)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return exitf(exitStart, "%s is no address of this machine: choose another with --listen", a.config().Listen)
	case err != nil:
		return exitf(exitStart, "cannot listen on %s: %v", a.config().Listen, err)
	}
	a.listener = l
	a.lock.announce(l.Addr().String())
	starting := http.Handler(http.HandlerFunc(answerStarting))
	a.handler.Store(&starting)
	a.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*a.handler.Load()).ServeHTTP(w, r) }),
		// WebSocket connections are hijacked and then free of these.
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	}()
	var once sync.Once
	a.stopHTTP = func(ctx context.Context) (err error) {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(ctx, closeLimit)
			defer cancel()
			if err = a.server.Shutdown(ctx); err != nil { // somebody reads slowly: that must not keep us
				err = a.server.Close()
			}
			<-done
		})
		return err
	}
	a.onStop("HTTP", a.stopHTTP)
	a.log.Info("listening", "url", httpURL(l.Addr().String()))
	return nil
}

func answerStarting(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ok"}` + "\n"))
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"not ready: it is starting"}` + "\n"))
}

func (a *App) openKey() (nostr.Key, error) {
	key, created, file, err := a.config().openKey(a.dir, a.environ)
	if err != nil {
		return nostr.Key{}, err
	}
	if created {
		a.log.Info("made a new service key: keep a copy of the file, clients know this monitor by it", "npub", key.Npub(), "file", file)
	} else {
		a.log.Info("service key", "npub", key.Npub())
	}
	return key, nil
}

func (a *App) openStore(ctx context.Context) (*postgres.Store, error) {
	cfg := a.config()
	url := cfg.Database.URL.Reveal()
	if url == "" {
		cluster, err := postgres.StartCluster(ctx, postgres.ClusterConfig{DataDir: a.dir, PgBin: cfg.Database.PgBin, MaxConns: cfg.Database.MaxConns, BackupDir: cfg.Database.BackupDir, Log: a.log})
		if err != nil {
			return nil, exitWith(exitStart, err)
		}
		a.onStop("the private PostgreSQL", cluster.Stop)
		url = cluster.URL()
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: url, MaxConns: cfg.Database.MaxConns, Log: a.log})
	if err != nil {
		return nil, exitWith(exitStart, err)
	}
	a.onStop("store", func(context.Context) error { store.Close(); return nil })
	return store, nil
}

// startHost watches this machine once everything is up.
func (a *App) startHost(store *postgres.Store) {
	cfg := a.config()
	h := &host{log: a.log, raw: store, free: diskFree, minFree: func() float64 { return a.config().Retention.MinFreeDisk }}
	if cfg.Database.URL == "" {
		h.dir = a.dir
	}
	h.others = []func() string{
		a.tooFewDescriptors,
		a.rootsMissing,
		a.clockOff,
	}
	if a.backups != nil {
		h.others = append(h.others, a.backups.Warning)
	}
	a.host.Store(h)
	a.background("host", h.run)
}

// rootsMissing warns where nothing can be verified.
func (a *App) rootsMissing() string {
	for _, p := range a.points {
		if !p.checker.Load().HasRoots() {
			return "there are no CA certificates here, so that no wss:// relay can be verified and nothing is decided by them: install the package ca-certificates"
		}
	}
	return ""
}

// clockOff warns when the relays together tell another time.
func (a *App) clockOff() string {
	cfg := a.config()
	skew := a.engine.Status().ClockSkew
	if skew.Abs() <= cfg.Corroboration.MaxClockSkew.D() {
		return ""
	}
	return fmt.Sprintf("this machine's clock seems to be wrong, by the relays' own, by %s: nothing is decided or published until it is set (timedatectl set-ntp true)", skew.Round(time.Second))
}

// tooFewDescriptors warns where fewer probes are in flight than is configured.
func (a *App) tooFewDescriptors() string {
	cfg := a.config()
	_, warning := descriptorRoom(cfg.Probe.Concurrency * len(cfg.Vantages))
	return warning
}
