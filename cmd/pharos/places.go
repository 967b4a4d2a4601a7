package main

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/geo"
)

// placesEvery is how often the files of the databases are looked at.
const placesEvery = time.Minute

// places knows where addresses stand, by the operator's databases.
type places struct {
	log *slog.Logger
	db  atomic.Pointer[geo.DB] // nil = there is none
	// changed is called after another database took its place.
	changed func()
}

// locate is where an address stands.
func (p *places) locate(a netip.Addr) monitor.Place { return p.db.Load().Locate(a) }

// open takes the databases of a configuration; none = places are unknown. The
// error leaves things as they were.
func (p *places) open(c *Config) error {
	next, err := geo.Open(geo.Config{CityDB: c.Geo.CityDB, ASNDB: c.Geo.ASNDB})
	if err != nil {
		return err
	}
	p.db.Store(next)
	return nil
}

// watch reads the files again when they change, until ctx ends.
func (p *places) watch(ctx context.Context) error {
	tick := time.NewTicker(placesEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.look()
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *places) look() {
	changed, err := p.db.Load().Reload()
	if err != nil {
		p.log.Warn("the places of relays stay those of the old database", "error", err)
	}
	if changed {
		p.log.Info("the places of relays come from a new database")
		p.changed()
	}
}

// startPlaces opens the databases; the engine asks them from its start on.
func (a *App) startPlaces() error {
	a.places = &places{log: a.log, changed: func() { a.engine.Relocate() }}
	if err := a.places.open(a.config()); err != nil {
		return exitWith(exitUsage, err)
	}
	return nil
}

// followPlaces takes over the databases of another configuration.
func (a *App) followPlaces(cfg *Config, old *Config) error {
	if cfg.Geo.CityDB == old.Geo.CityDB && cfg.Geo.ASNDB == old.Geo.ASNDB {
		return nil
	}
	err := a.places.open(cfg)
	a.engine.Relocate()
	return err
}
