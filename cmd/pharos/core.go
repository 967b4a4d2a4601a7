package main

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/publisher"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// startCore starts what decides, signs and serves. On the way down the engine
// ends its last round before subscribers are closed.
func (a *App) startCore(ctx context.Context, key nostr.Key, store *postgres.Store) error {
	cfg := a.config()
	for _, v := range a.vantages(cfg) {
		if err := store.Enrol(ctx, v); err != nil {
			return exitWith(exitStart, err)
		}
	}
	a.sayWhereItStands(cfg)
	if a.newKey {
		n, err := store.ForgetOtherKeys(ctx, key.Pubkey())
		if err != nil {
			return exitWith(exitStart, err)
		}
		a.log.Warn("reports of another key forgotten", "count", n)
	}
	token, created, err := loadOrCreateAdminToken(a.dir)
	if err != nil {
		return exitWith(exitStart, err)
	}
	if created {
		a.log.Info("made a token for operators' requests", "file", adminTokenFile(a.dir))
	}
	if a.relay, err = relay.New(a.relayOptions(cfg)); err != nil {
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
	rules := a.engineConfig(cfg, a.list)
	rules.Registry = store
	a.engine, err = engine.New(ctx, rules, store, func(stored []monitor.SignedEvent) (engine.Publisher, error) {
		var err error
		a.publisher, err = publisher.New(a.publisherConfig(cfg), key, stored)
		return a.publisher, err
	})
	if err != nil {
		return exitWith(exitStart, err)
	}
	a.api = api.New(api.Options{
		Core: core{a.engine, a}, History: store, Operator: core{a.engine, a}, Roster: a.engine, Intake: a.engine, AdminToken: token.Reveal(),
		Pubkey: key.Pubkey(), Version: versionText(), Registry: a.metrics, Log: a.log,
		Settings: a.apiSettings(cfg),
	})
	a.route(cfg)
	a.background("engine", a.engine.Run)
	return nil
}

// sayWhereItStands warns of what an operator easily forgets.
func (a *App) sayWhereItStands(cfg *Config) {
	if cfg.PublicURL == "" {
		a.log.Warn("public_url is not set: the relay list (kind 10002) names the listen address and is of use on this machine only")
		return
	}
	if len(cfg.TrustedProxies) == 0 && isLoopback(cfg.Listen) {
		a.log.Warn("public_url is set, and only this machine can reach the listen address: if a reverse proxy stands in front, name it in trusted_proxies, else all clients look like one and share, or escape, the limits")
	}
}

// route puts the relay and the API behind the port.
func (a *App) route(cfg *Config) {
	split := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.relay.Wants(r) {
			a.relay.ServeHTTP(w, r)
			return
		}
		a.api.ServeHTTP(w, r)
	})
	h := clientAddress(cfg.TrustedProxies)(split)
	a.handler.Store(&h)
}

// core is the engine as readers and operators see it: it is not ready while the
// app shuts down, and tells of this machine too.
type core struct {
	*engine.Engine
	app *App
}

func (c core) Ready() (bool, string) { return c.app.Ready() }

func (c core) Status() monitor.Status {
	s := c.Engine.Status()
	if h := c.app.host.Load(); h != nil {
		s.Warnings = h.Warnings()
	}
	s.GeoAttribution = c.app.config().Geo.Attribution
	return s
}

// Reload reads the configuration again.
func (c core) Reload(ctx context.Context) (api.Reloaded, error) { return c.app.Reload(ctx) }

// vantages are those of this process as the core knows them.
func (a *App) vantages(cfg *Config) []monitor.Vantage {
	out := cfg.enrolled()
	now := time.Now()
	for i := range out {
		out[i].Enrolled = now
	}
	return out
}

func (a *App) engineConfig(cfg *Config, list *relayList) engine.Config {
	now := time.Now()
	relays := make([]monitor.WatchedRelay, len(list.Relays))
	for i, r := range list.Relays {
		r.FirstSeen = now
		relays[i] = r
	}
	return engine.Config{
		Liveness: cfg.livenessRules(), Corroboration: cfg.corroboration(),
		Cadence: cfg.cadence(), Freshness: cfg.freshness(),
		Relays: relays, Exclude: cfg.excluded(), Own: a.own(cfg), Vantages: a.vantages(cfg), Pubkey: a.pubkey,
		Discovery: cfg.Discovery.Enabled, MaxRelays: cfg.Discovery.MaxRelays, MaxPerHost: cfg.Discovery.MaxPerHost,
		Locate:       a.places.locate,
		StartHold:    cfg.Corroboration.StartHold.D(),
		OnGeneration: []func(*monitor.Generation){a.relay.Update}, Log: a.log,
	}
}

// own is where this monitor is a relay.
func (a *App) own(cfg *Config) []monitor.RelayURL {
	out := []monitor.RelayURL{monitor.RelayURL(a.relayURL())}
	if u, err := monitor.Canonical(cfg.PublicURL); err == nil {
		out = append(out, u)
	}
	return out
}

func (a *App) publisherConfig(cfg *Config) publisher.Config {
	return publisher.Config{
		Name: cfg.Name, Contact: cfg.Contact,
		PublicURL: cfg.PublicURL, ListenURL: a.relayURL(),
		Frequency: cfg.Publish.Frequency.D(), Expiration: cfg.Publish.Expiration.D(),
		SnapshotLife: cfg.Live.MaxAge.D(), Timeout: cfg.Probe.Timeouts.Overall.D(),
		Checks: cfg.checks(), Networks: cfg.networks(),
		Geohash: cfg.geohash(), Log: a.log,
	}
}

func (a *App) relayOptions(cfg *Config) relay.Options {
	return relay.Options{
		Name: cfg.Name, Contact: cfg.Contact, Pubkey: a.pubkey, Version: versionText(),
		MaxSubscriptions:  cfg.Limits.RelaySubscriptions,
		RequestsPerMinute: cfg.Limits.RelayReqPerMinute, MaxConnections: cfg.Limits.RelayConnections,
		Exempt: cfg.Limits.Exempt, ClientAddress: clientOf, Log: a.log,
	}
}

func (a *App) apiSettings(cfg *Config) api.Settings {
	operators, err := cfg.operatorKeys()
	if err != nil { // validated
		a.log.Error("operators cannot be read", "error", err)
	}
	return api.Settings{
		Name: cfg.Name, RelayURL: cmp.Or(cfg.PublicURL, a.relayURL()), Frequency: cfg.Publish.Frequency.D(),
		MaxAge: cfg.Live.MaxAge.D(), MinCount: cfg.Live.MinCount, MinFresh: cfg.Live.MinFresh,
		AllowNetworks: cfg.Probe.AllowNetworks, PublicURL: cfg.PublicURL, Operators: operators,
		PerMinute: cfg.Limits.HTTPPerMinute, Exempt: cfg.Limits.Exempt,
	}
}

// relayURL is where our relay answers on this machine.
func (a *App) relayURL() string {
	return "ws" + httpURL(a.listener.Addr().String())[len("http"):] + "/"
}

// checks are those that are really made from here (reports.md, 10166); what
// vantages of other machines make besides is theirs to configure.
func (c *Config) checks() []string {
	out := []string{"open", "read", "nip11", "dns"}
	if c.Probe.Write && len(c.Vantages) > 0 {
		out = append(out, "write")
	}
	if c.Probe.Auth && len(c.Vantages) > 0 {
		out = append(out, "auth")
	}
	if c.Geo.CityDB != "" {
		out = append(out, "geo")
	}
	return out
}

// geohash is where this monitor is: its first vantage's place, "" where it has
// none of its own.
func (c *Config) geohash() string {
	if len(c.Vantages) == 0 {
		return ""
	}
	return c.Vantages[0].Geohash
}
