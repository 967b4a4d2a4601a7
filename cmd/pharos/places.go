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

// openPlaces opens the databases of a configuration; nil = it names none, and
// places are unknown. The error names each one that is of no use.
func openPlaces(c *Config) (*geo.DB, error) {
	return geo.Open(geo.Config{CityDB: c.Geo.CityDB, ASNDB: c.Geo.ASNDB})
}

// next is what another configuration answers from: those that are open, where it
// names the same, whatever has become of their files since.
func (p *places) next(c, old *Config) (*geo.DB, error) {
	if c.Geo.CityDB == old.Geo.CityDB && c.Geo.ASNDB == old.Geo.ASNDB {
		return p.db.Load(), nil
	}
	return openPlaces(c)
}

// take answers from db from now on.
func (p *places) take(db *geo.DB) {
	if p.db.Swap(db) != db {
		p.changed()
	}
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
	db, err := openPlaces(a.config())
	if err != nil {
		return exitWith(exitUsage, err)
	}
	a.places.db.Store(db)
	return nil
}
