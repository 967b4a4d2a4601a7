package main

import (
	"cmp"
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
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
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

// App is one process that does everything: New wires nothing yet, Start brings
// it up part by part, Stop takes it down in the order of config.md.
type App struct {
	cfg    Config
	dir    string
	newKey bool
	log    *slog.Logger

	list     *relayList
	listener net.Listener
	server   *http.Server
	handler  atomic.Pointer[http.Handler]
	stopHTTP func(ctx context.Context) error // once; later calls do nothing
	stopping atomic.Bool
	engine   *engine.Engine
	relay    *relay.Relay
	metrics  *prometheus.Registry
	pubkey   string

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
	return &App{cfg: *cfg, dir: dir, newKey: newKey, log: log, list: list, metrics: prometheus.NewRegistry(), failed: make(chan error, 3)}, nil
}

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
	a.sayWhatIsWatched()
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
	if err := a.startCore(ctx, key, store); err != nil {
		return err
	}
	if err := a.startHousekeeping(store); err != nil {
		return err
	}
	return a.startVantages()
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

func (a *App) sayWhatIsWatched() {
	for i, j := range a.list.Junk {
		if i == 100 {
			a.log.Warn("more relay lines skipped", "count", len(a.list.Junk)-i)
			break
		}
		a.log.Warn("relay line skipped", "file", j.File, "line", j.Line, "reason", j.Reason, "why", j.Words)
	}
	sources := map[monitor.Source]int{}
	for _, r := range a.list.Relays {
		sources[r.Source]++
	}
	a.log.Info("watching relays", "count", len(a.list.Relays), "configured", sources[monitor.SourceConfig],
		"from_files", sources[monitor.SourceFile], "built_in", sources[monitor.SourceBuiltin],
		"repeated", a.list.Repeated, "excluded", a.list.Excluded, "skipped", len(a.list.Junk))
	if a.cfg.Discovery.Enabled {
		a.log.Info("relays are not discovered yet: this version watches the configured ones")
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
	a.onStop("lock", func(context.Context) error { return lock.release() })
	a.log.Info("data directory", "path", a.dir)
	return nil
}

// listen takes the port and answers on it that we are starting: a migration
// may take its time, and a supervisor must see that we live.
func (a *App) listen(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return exitf(exitStart, "%s is in use by another program: stop that, or choose another address with --listen", a.cfg.Listen)
	case errors.Is(err, os.ErrPermission):
		return exitf(exitStart, "there is no permission to listen on %s: choose a port above 1023 with --listen", a.cfg.Listen)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return exitf(exitStart, "%s is no address of this machine: choose another with --listen", a.cfg.Listen)
	case err != nil:
		return exitf(exitStart, "cannot listen on %s: %v", a.cfg.Listen, err)
	}
	a.listener = l
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
	file := a.cfg.keyFile(a.dir)
	key, created, err := nostr.LoadOrCreateKey(file)
	if err != nil {
		return nostr.Key{}, keyError(file, err)
	}
	if created {
		a.log.Info("made a new service key: keep a copy of the file, clients know this monitor by it", "npub", key.Npub(), "file", file)
	} else {
		a.log.Info("service key", "npub", key.Npub())
	}
	return key, nil
}

func (a *App) openStore(ctx context.Context) (*postgres.Store, error) {
	url := a.cfg.Database.URL.Reveal()
	if url == "" {
		cluster, err := postgres.StartCluster(ctx, postgres.ClusterConfig{DataDir: a.dir, PgBin: a.cfg.Database.PgBin, MaxConns: a.cfg.Database.MaxConns, Log: a.log})
		if err != nil {
			return nil, exitWith(exitStart, err)
		}
		a.onStop("the private PostgreSQL", cluster.Stop)
		url = cluster.URL()
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: url, MaxConns: a.cfg.Database.MaxConns, Log: a.log})
	if err != nil {
		return nil, exitWith(exitStart, err)
	}
	a.onStop("store", func(context.Context) error { store.Close(); return nil })
	return store, nil
}

// startCore starts what decides, signs and serves. On the way down the engine
// ends its last round before subscribers are closed.
func (a *App) startCore(ctx context.Context, key nostr.Key, store *postgres.Store) error {
	now := time.Now()
	vantages := a.cfg.enrolled()
	for i := range vantages {
		vantages[i].Enrolled = now
		if err := store.Enrol(ctx, vantages[i]); err != nil {
			return exitWith(exitStart, err)
		}
	}
	if a.cfg.PublicURL == "" {
		a.log.Warn("public_url is not set: the relay list (kind 10002) names the listen address and is of use on this machine only")
	}
	if a.newKey {
		n, err := store.ForgetOtherKeys(ctx, key.Pubkey())
		if err != nil {
			return exitWith(exitStart, err)
		}
		a.log.Warn("reports of another key forgotten", "count", n)
	}
	pub := publisher.Config{
		Name: a.cfg.Name, Contact: a.cfg.Contact,
		PublicURL: a.cfg.PublicURL, ListenURL: a.relayURL(),
		Frequency: a.cfg.Publish.Frequency.D(), Expiration: a.cfg.Publish.Expiration.D(),
		SnapshotLife: a.cfg.Live.MaxAge.D(), Timeout: a.cfg.Probe.Timeouts.Overall.D(),
		Checks: []string{"open", "read", "nip11", "dns"}, Networks: []monitor.Network{monitor.Clearnet},
		Geohash: a.cfg.geohash(), Log: a.log,
	}
	var err error
	a.relay, err = relay.New(relay.Options{
		Name: a.cfg.Name, Contact: a.cfg.Contact, Pubkey: key.Pubkey(), Version: versionText(),
		MaxSubscriptions: a.cfg.Limits.RelaySubscriptions, Log: a.log,
	})
	if err != nil {
		return exitWith(exitStart, err)
	}
	// Requests are answered until the subscribers are gone, and never without a
	// store behind them.
	a.onStop("HTTP", a.stopHTTP)
	a.onStop("relay", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, closeLimit)
		defer cancel()
		return a.relay.Shutdown(ctx)
	})

	for i := range a.list.Relays {
		a.list.Relays[i].FirstSeen = now
	}
	a.engine, err = engine.New(ctx, engine.Config{
		Liveness: a.cfg.livenessRules(), Corroboration: a.cfg.corroboration(),
		Cadence: a.cfg.cadence(), Freshness: a.cfg.freshness(),
		Relays: a.list.Relays, Vantages: vantages, Pubkey: key.Pubkey(), StartHold: a.cfg.Corroboration.StartHold.D(),
		OnGeneration: []func(*monitor.Generation){a.relay.Update}, Log: a.log,
	}, store, func(stored []monitor.SignedEvent) (engine.Publisher, error) { return publisher.New(pub, key, stored) })
	if err != nil {
		return exitWith(exitStart, err)
	}
	answers := api.New(api.Options{
		Core: readiness{a.engine, a}, History: store,
		Name: a.cfg.Name, Pubkey: key.Pubkey(), RelayURL: cmp.Or(a.cfg.PublicURL, a.relayURL()),
		Frequency: a.cfg.Publish.Frequency.D(), Version: versionText(),
		MaxAge: a.cfg.Live.MaxAge.D(), MinCount: a.cfg.Live.MinCount, MinFresh: a.cfg.Live.MinFresh,
		AllowNetworks: a.cfg.Probe.AllowNetworks, Registry: a.metrics, Log: a.log,
	})
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.relay.Wants(r) {
			a.relay.ServeHTTP(w, r)
			return
		}
		answers.ServeHTTP(w, r)
	}))
	a.handler.Store(&h)
	a.background("engine", a.engine.Run)
	return nil
}

// readiness is the engine, which is not ready while the app shuts down.
type readiness struct {
	*engine.Engine
	app *App
}

func (r readiness) Ready() (bool, string) { return r.app.Ready() }

// relayURL is where our relay answers on this machine.
func (a *App) relayURL() string {
	return "ws" + httpURL(a.listener.Addr().String())[len("http"):] + "/"
}

// geohash is where this monitor is: its first vantage's place.
func (c *Config) geohash() string { return c.Vantages[0].Geohash }

// startVantages starts probing. On the way down all of them stop at once.
func (a *App) startVantages() error {
	canaries, err := a.cfg.canaries()
	if err != nil {
		return exitWith(exitUsage, err)
	}
	var points []point
	for i := range a.cfg.Vantages {
		v := &a.cfg.Vantages[i]
		pc := probeConfig(&a.cfg, a.log.With("vantage", v.Name))
		pc.SourceAddress = v.SourceAddress
		checker, err := probe.New(pc)
		if err != nil {
			return exitf(exitUsage, "probe: %v", err)
		}
		one, err := vantage.New(vantage.Config{
			Name:     v.Name,
			Networks: map[monitor.Network]int{monitor.Clearnet: a.cfg.Probe.Concurrency},
			Rate:     a.cfg.Probe.Rate, PerIP: a.cfg.Probe.PerIP, PerSubnet: a.cfg.Probe.PerSubnet,
			Cadence: a.cfg.cadence(), Liveness: a.cfg.livenessRules(),
			Canaries: canaries, SelfCheckEvery: a.cfg.SelfCheck.Interval.D(),
			SourceAddress: v.SourceAddress, Resolve: checker.Resolve,
			DrainLimit: drainLimit, FlushLimit: flushLimit,
		}, checker, a.engine, a.log)
		if err != nil {
			return exitWith(exitUsage, err)
		}
		points = append(points, point{v.Name, one, checker})
	}
	if err := a.metrics.Register(&collector{points: points, relay: a.relay}); err != nil {
		return exitf(exitStart, "metrics: %v", err)
	}
	a.background("probing", func(ctx context.Context) error {
		errs := make([]error, len(points))
		var running sync.WaitGroup
		for i, p := range points {
			running.Go(func() {
				errs[i] = p.vantage.Run(ctx)
				p.checker.Close()
			})
		}
		running.Wait()
		return errors.Join(errs...)
	})
	return nil
}

// canaries are what the vantages ask to know their own network.
func (c *Config) canaries() ([]vantage.Canary, error) {
	texts := c.SelfCheck.Canaries.List
	if c.SelfCheck.Canaries.Default {
		texts = vantage.DefaultCanaries()
	}
	out := make([]vantage.Canary, len(texts))
	for i, s := range texts {
		var err error
		if out[i], err = vantage.ParseCanary(s, c.Probe.AllowNetworks...); err != nil {
			return nil, err
		}
	}
	return out, nil
}
