package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Store keeps what must survive a restart. Its errors wrap monitor's kinds:
// ErrConflict for a batch that is stored already, ErrUnavailable while the
// database is away.
type Store interface {
	Load(ctx context.Context) (*monitor.Stored, error)
	Watch(ctx context.Context, relays []monitor.WatchedRelay) error
	Ingest(ctx context.Context, in *monitor.Ingest) error
	Commit(ctx context.Context, d *monitor.Decision) error
}

// Publisher builds and signs our events and decides when they are due. What
// it returns is served only after it was stored.
type Publisher interface {
	Reports(now time.Time, online []monitor.ReportSource) []monitor.SignedEvent
	Withdraw(urls []monitor.RelayURL)
	Snapshot(now time.Time, generation uint64, newestCheck time.Time, urls []monitor.RelayURL) *monitor.SignedEvent
	Announcements(now time.Time) []monitor.SignedEvent
}

// Config is what an engine works with.
type Config struct {
	Liveness      monitor.Liveness
	Corroboration monitor.Corroboration
	Cadence       monitor.Cadence
	Freshness     monitor.Freshness

	// Relays are the configured ones: stored relays of the sources config,
	// file and builtin that are not among them are no longer watched. The
	// configuration renews a relay's source: one that an operator had added
	// becomes the configuration's, and leaves with it.
	Relays []monitor.WatchedRelay
	// Exclude are the relays that the configuration wants never probed,
	// wherever they come from. Operators' exclusions are in the store.
	Exclude []monitor.RelayURL
	// Own is where this monitor itself is a relay. It answers whatever becomes of the
	// network, and would corroborate the failures of all others (S10): discovery and
	// strangers' submissions never bring it in, only who names it here does.
	Own []monitor.RelayURL
	// MaxRelays bounds the watched relays, candidates included, and MaxPerHost
	// those of one host: strangers' submissions above it are refused, and what
	// discovery finds waits. 0 = no bound. What the configuration and operators
	// name is always watched.
	MaxRelays, MaxPerHost int
	// Discovery: sweeps are to come. Relays that other people's lists name then
	// stay watched when the configuration names them no longer, and Status tells
	// of the sweeps before the first one of this process. Without it what was found
	// earlier stays watched.
	Discovery bool
	// Vantages are those of this process, each with a distinct name. The enrolled
	// ones of other machines are in the store.
	Vantages []monitor.Vantage
	// Registry keeps the enrolled ones; nil = nobody can be invited.
	Registry Registry
	// Pubkey (hex) is the service key's: stored events of another are ignored.
	Pubkey string
	// StartHold is for how long after a start with a persisted list nothing
	// leaves online; 0 = two intervals.
	StartHold time.Duration

	// OnGeneration are called in order with each new generation, before it is
	// what Generation returns; they must not block.
	OnGeneration []func(*monitor.Generation)
	// Locate says where an address stands; nil = there are no databases. It must
	// be quick, and ask nothing of the engine.
	Locate func(netip.Addr) monitor.Place
	Log    *slog.Logger
}

const (
	roundEvery   = time.Second      // a generation at most once a second (api.md)
	sweepEvery   = 10 * time.Second // every relay is judged anew: votes expire without an observation
	refreshEvery = time.Minute      // a generation for the times (api.md)
	storeTimeout = 15 * time.Second // one transaction
	maxExpedited = 3                // vantages of other groups asked on a first failure
	// Generation numbers are reserved in the store before they are used, so that
	// none comes twice, whatever ends the process.
	reserveAhead = 1000
	reserveLow   = 100 // fewer left: reserve again
)

// Engine is the core. Make it with New, then Run; everything else may be
// called from any goroutine once New has returned.
type Engine struct {
	cfg   Config
	store Store
	pub   Publisher
	log   *slog.Logger

	generation atomic.Pointer[monitor.Generation]

	sweeps sync.Mutex // one sweep of discovery at a time; taken before turn
	turn   sync.Mutex // one round, command or configuration at a time; taken before ingest
	ingest sync.Mutex // one batch at a time, none during a command; taken before mu

	mu       sync.RWMutex // guards all below
	started  time.Time
	relays   []*relay // those that are watched, by URL
	byURL    map[monitor.RelayURL]*relay
	aside    map[monitor.RelayURL]*relay // stored, but not watched: excluded, removed, no longer configured
	bounds   bounds
	vantages []*vantage        // those that count
	revoked  []monitor.Vantage // on other machines; shown, and nothing else
	tasks    taskList
	ousted   error // another core wrote to the store: Run ends with it
	sweep    bool  // judge every relay in the next round
	warmUp   warmUp
	brake    brakeState
	watching time.Time                     // since when some vantage is eligible without a gap; zero = none is
	alone    map[monitor.Network]time.Time // since when < 2 groups are eligible though ≥ 2 are able
	service  map[serviceKey]*monitor.SignedEvent
	snapshot *monitor.SignedEvent
	gone     []*relay // no longer watched since the start: their verdicts are still to be ended
	storeErr error
	// maintenance holds the windows that were not over when they were read or
	// declared, by From.
	maintenance map[monitor.RelayURL][]monitor.Maintenance
	counts      counts
	discovery   monitor.DiscoveryStatus
	lastReports time.Time // when all reports were looked through last
	aliases     aliases
	places      map[monitor.Place]*monitor.Place // those that relays have, each once

	// Used under turn alone.
	number    uint64 // newest generation
	reserved  uint64 // numbers up to here are the store's word that they are ours
	pending   *round // decided, not yet committed
	lastSweep time.Time
	owed      bool      // readers wait for a generation
	pauseEnds time.Time // when the next pause is over; zero = none
	// doubtful relays are those of commands that the store failed on, and may
	// have kept: their rows are written again.
	doubtful map[monitor.RelayURL]bool
}

// serviceKey is the address of one of the monitor's own events.
type serviceKey struct {
	kind int
	d    string
}

// relay is all that the engine keeps of one relay.
type relay struct {
	monitor.WatchedRelay
	seen    []monitor.VantageRelay // aligned with Engine.vantages
	facts   *facts                 // nil = none
	place   *monitor.Place         // nil = nowhere that is known
	report  *monitor.SignedEvent   // stored, nil = none
	unsaid  bool                   // the report's content may have changed since
	auth    bool                   // last measured read was refused for want of AUTH
	payment bool                   // … of payment
	dirty   bool                   // judge in the next round
	pending bool                   // counted by the brake
	// released: an operator lets its held departure go.
	released bool
	// twin is the wss relay that stands for this ws one, which is not probed
	// meanwhile; "" = none does.
	twin monitor.RelayURL
	// provenance is where discovery found it named; nil = nowhere.
	provenance *monitor.Provenance
	// attempted since the start, and why it was last skipped (warm-up).
	attempted bool
	skipped   monitor.Cause
}

// vantage is all that the engine keeps of one vantage.
type vantage struct {
	monitor.Vantage
	observer *monitor.Observer
	pass     pass
	clock    clock
	expedite []monitor.RelayURL // to be asked with the next answer
	doubtful uint64             // a batch that the store failed on, and may have kept
	// follow holds the relays of which our record may want a look before the
	// vantage plans one, and when it is to be told: see lookAgain.
	follow       monitor.DueHeap
	disagreement disagreement
}

type counts struct {
	observations map[monitor.Outcome]uint64
	transitions  map[monitor.State]uint64
	ingested     uint64
	refused      uint64
	unwatched    uint64 // observations
	signed       uint64
}

// New loads the stored state, brings it in line with the configured relays and
// vantages, and serves a persisted list at once if it is young enough. publisher
// makes the publisher, given the stored events.
func New(ctx context.Context, cfg Config, store Store, publisher func([]monitor.SignedEvent) (Publisher, error)) (*Engine, error) {
	cfg = cfg.ready()
	e := &Engine{
		cfg: cfg, store: store, log: cfg.Log, bounds: boundsOf(&cfg),
		byURL:       map[monitor.RelayURL]*relay{},
		aside:       map[monitor.RelayURL]*relay{},
		doubtful:    map[monitor.RelayURL]bool{},
		places:      map[monitor.Place]*monitor.Place{},
		aliases:     aliases{stale: true},
		maintenance: map[monitor.RelayURL][]monitor.Maintenance{},
		alone:       map[monitor.Network]time.Time{},
		service:     map[serviceKey]*monitor.SignedEvent{},
		started:     time.Now(),
		tasks:       taskList{version: uint64(time.Now().UnixMicro())},
		sweep:       true,
		counts:      counts{observations: map[monitor.Outcome]uint64{}, transitions: map[monitor.State]uint64{}},
	}
	if err := store.Watch(ctx, cfg.Relays); err != nil {
		return nil, fmt.Errorf("store the configured relays: %w", err)
	}
	stored, err := store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the stored state: %w", err)
	}
	if e.pub, err = publisher(stored.Events); err != nil {
		return nil, err
	}
	e.restore(stored, e.started)
	e.reserved = e.number + reserveAhead
	if err := store.Commit(ctx, &monitor.Decision{At: e.started, Generation: e.reserved}); err != nil {
		return nil, fmt.Errorf("reserve generation numbers: %w", err)
	}
	e.publish(e.started)
	return e, nil
}

// ready fills in what is left to the engine, and takes out of the configured
// relays those that the configuration excludes.
func (c Config) ready() Config {
	if c.StartHold == 0 {
		c.StartHold = 2 * c.Corroboration.Interval
	}
	barred := setOf(c.Exclude)
	c.Relays = slices.DeleteFunc(slices.Clone(c.Relays), func(r monitor.WatchedRelay) bool { return barred[r.URL] })
	return c
}

// restore fills a new engine from the store.
func (e *Engine) restore(stored *monitor.Stored, now time.Time) {
	e.muster(stored.Vantages, now)
	reported := map[monitor.RelayURL]bool{}
	for i := range stored.Events {
		if stored.Events[i].Kind == nostr.KindReport {
			reported[monitor.RelayURL(stored.Events[i].D)] = true
		}
	}
	for _, r := range stored.Relays {
		rs := &relay{WatchedRelay: r, dirty: true}
		if p, found := stored.Provenance[r.URL]; found {
			rs.provenance = &p
			if e.bounds.keeps(rs, now) {
				rs.Source = monitor.SourceDiscovery
				e.doubtful[r.URL] = true // its row is to say so too
			}
		}
		known := reported[r.URL] || r.Verdict.State != monitor.StateUnknown
		if !e.bounds.watched(&rs.WatchedRelay) {
			for _, v := range e.vantages {
				_, recorded := stored.Seen[v.Name][r.URL]
				known = known || recorded
			}
			if known {
				e.gone = append(e.gone, rs)
			}
			e.aside[r.URL] = rs
			continue
		}
		rs.seen = make([]monitor.VantageRelay, len(e.vantages))
		for i, v := range e.vantages {
			old, ok := stored.Seen[v.Name][r.URL]
			if !ok {
				continue
			}
			rs.seen[i] = e.resume(v, rs, old, now)
		}
		if f, ok := stored.Facts[r.URL]; ok {
			rs.facts = restored(f)
		}
		e.relays = append(e.relays, rs)
		e.byURL[r.URL] = rs
	}
	for url, windows := range stored.Maintenance {
		e.maintenance[url] = windows
	}
	slices.SortFunc(e.relays, func(a, b *relay) int { return cmp.Compare(a.URL, b.URL) })
	for _, r := range e.relays {
		e.resumeTwin(r)
	}
	e.recount(stored)
	e.retask()

	for i := range stored.Events {
		ev := &stored.Events[i]
		if ev.Pubkey != e.cfg.Pubkey {
			continue
		}
		e.keep(ev)
	}
	e.number = stored.Generation
	e.startWarmUp(stored.Served, now)
}

// keep files a stored event where it is served from.
func (e *Engine) keep(ev *monitor.SignedEvent) {
	switch ev.Kind {
	case nostr.KindReport:
		if r := e.byURL[monitor.RelayURL(ev.D)]; r != nil {
			r.report = ev
		}
	case nostr.KindRelaySet:
		e.snapshot = ev
	default:
		e.service[serviceKey{ev.Kind, ev.D}] = ev
	}
}

// Run decides and publishes until ctx ends; a round that is under way is
// finished first. It ends with ErrConflict when another core has taken the
// database over: what this one holds in memory is then no longer the truth.
func (e *Engine) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := e.round(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
	}
}

// storeAnswered notes how the store answered, and says in the log once when it
// goes away and once when it is back. Its caller holds mu.
func (e *Engine) storeAnswered(err error) {
	switch {
	case err != nil && e.storeErr == nil:
		e.log.Error("the store is away: no batch is taken and no verdict changes until it is back", "error", err)
	case err == nil && e.storeErr != nil:
		e.log.Info("the store is back")
	}
	e.storeErr = err
}

// Generation returns the newest snapshot; never nil.
func (e *Engine) Generation() *monitor.Generation { return e.generation.Load() }

// vantage returns the index of the vantage of that name, -1 for none.
func (e *Engine) vantage(name string) int {
	return slices.IndexFunc(e.vantages, func(v *vantage) bool { return v.Name == name })
}
