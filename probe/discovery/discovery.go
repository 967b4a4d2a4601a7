package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// The kinds that name relays.
const (
	KindContacts     = 3     // NIP-02; relays as the keys of an old habit's content
	KindRelayList    = 10002 // NIP-65
	KindInboxes      = 10050 // NIP-17
	KindRelaySet     = 30002 // NIP-51
	KindRelayMonitor = 30166 // NIP-66, one relay each
)

// allKinds in ascending order; a list keeps its kind as the place in it.
var allKinds = [...]int{KindContacts, KindRelayList, KindInboxes, KindRelaySet, KindRelayMonitor}

const (
	// parallel sources are read at a time.
	parallel = 4
	// verifiers check signatures at a time, of all sources together.
	verifiers = 2
	// wholeEvery is after what time a source is read from its beginning again,
	// or after how many sweeps.
	wholeEvery       = 24 * time.Hour
	wholeEverySweeps = 24
	// overlap is how far before the last good sweep the next one begins.
	overlap = time.Hour
)

// Config is what discovery needs. Fields left at zero have the default that is
// named.
type Config struct {
	// Sources are the relays that are asked, at least one.
	Sources []monitor.RelayURL
	// Kinds are those that are asked for, of 3, 10002, 10050, 30002 and 30166;
	// none = all.
	Kinds []int
	// Client opens the connections; it must guard against addresses that are not
	// public (relay-url.md), and must not follow redirects.
	Client *http.Client
	// UserAgent is what we call ourselves, with a contact.
	UserAgent string
	// AllowNetworks are ranges whose addresses are relays although they are not
	// public.
	AllowNetworks []netip.Prefix
	// Key authenticates to sources that ask for it (NIP-42); zero = not at all.
	Key nostr.Key
	// Self is our own public key in hex: what we publish names nothing new.
	Self string

	// MaxEvents is how many messages are read of one source in a sweep: 100 000.
	MaxEvents int
	// MaxBytes is how many bytes are read of one source in a sweep: 512 MB.
	MaxBytes int64
	// PageSize is how many events are asked for at once: 500.
	PageSize int
	// MaxAuthors is whose lists are kept at most: 200 000. With it the memory is
	// bounded: four lists are kept for each at most (~80 B), 50 names of relays
	// (4 B) and 5 relays (~150 B), not all by everyone; ~1.3 KB together, while
	// one list of 8 relays takes ~260 B.
	MaxAuthors int
	// SourceLimit is the time for one source in a sweep: 5 min.
	SourceLimit time.Duration
	// IdleLimit is the time for the next message of a source: 20 s.
	IdleLimit time.Duration

	Log *slog.Logger // nil = none
}

// fill sets the defaults and returns every problem, as monitor.ErrInvalid.
func (c *Config) fill() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w discovery: "+format, append([]any{monitor.ErrInvalid}, args...)...))
	}
	c.Sources = slices.Clone(c.Sources)
	c.Kinds = slices.Clone(c.Kinds)
	c.AllowNetworks = slices.Clone(c.AllowNetworks)
	if len(c.Sources) == 0 {
		bad("it needs a source")
	}
	for i, s := range c.Sources {
		if canonical, err := monitor.ParseRelayURL(string(s), c.AllowNetworks...); err != nil || canonical != s {
			bad("source %d is no relay URL in its canonical form", i+1)
		}
		if slices.Contains(c.Sources[:i], s) {
			bad("source %s is there twice", s)
		}
	}
	if len(c.Kinds) == 0 {
		c.Kinds = allKinds[:]
	}
	for _, k := range c.Kinds {
		if !slices.Contains(allKinds[:], k) {
			bad("kind %d names no relays", k)
		}
	}
	c.Kinds = slices.Clone(c.Kinds)
	slices.Sort(c.Kinds)
	c.Kinds = slices.Compact(c.Kinds)
	if c.Client == nil {
		bad("it needs a client")
	}
	if c.Self != "" {
		self, err := nostr.ParsePublicKey(c.Self)
		if err != nil {
			bad("our own public key is none: %v", err)
		}
		c.Self = self
	}
	positive(bad, "max events", &c.MaxEvents, 100_000)
	positive(bad, "max bytes", &c.MaxBytes, 512<<20)
	positive(bad, "page size", &c.PageSize, 500)
	positive(bad, "max authors", &c.MaxAuthors, 200_000)
	positive(bad, "source limit", &c.SourceLimit, 5*time.Minute)
	positive(bad, "idle limit", &c.IdleLimit, 20*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return errors.Join(problems...)
}

// positive sets the default of a number, which must not be below zero.
func positive[N int | int64 | time.Duration](bad func(string, ...any), name string, n *N, standard N) {
	switch {
	case *n < 0:
		bad("%s is below zero", name)
	case *n == 0:
		*n = standard
	}
}

// sees reports whether c judges events and URLs as o does, so that what was read
// under one holds under the other.
func (c *Config) sees(o *Config) bool {
	return slices.Equal(c.Kinds, o.Kinds) && slices.Equal(c.AllowNetworks, o.AllowNetworks) && c.Self == o.Self
}

// Discovery reads the sources, sweep by sweep. It is safe for concurrent use.
type Discovery struct {
	// sweeping is full while a sweep runs; what follows is the sweep's.
	sweeping chan struct{}
	cfg      Config
	lists    *lists
	sources  map[monitor.RelayURL]*source
	round    uint32 // of sweeps
	// wholeAt is when all sources were last asked for everything, wholeRound in
	// which sweep; complete is the latest one in which all told it.
	wholeAt    time.Time
	wholeRound uint32
	complete   uint32

	mu   sync.Mutex
	next Config // which the next sweep takes over
}

// New returns a Discovery that has read nothing yet. The error is
// monitor.ErrInvalid and names everything that is wrong.
func New(cfg Config) (*Discovery, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	return &Discovery{
		sweeping: make(chan struct{}, 1),
		cfg:      cfg, next: cfg,
		lists:   newLists(cfg.MaxAuthors),
		sources: map[monitor.RelayURL]*source{},
	}, nil
}

// Configure replaces all of the configuration for the next sweep on; one that
// runs ends under the old one. The lists that were read are kept, unless other
// kinds, networks or another key of ours judge them differently: then the next
// sweep begins anew. The error is monitor.ErrInvalid, and nothing has changed
// then.
func (d *Discovery) Configure(cfg Config) error {
	if err := cfg.fill(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = cfg
	return nil
}

// takeOver makes what was configured last the configuration.
func (d *Discovery) takeOver() {
	d.mu.Lock()
	next := d.next
	d.mu.Unlock()
	if !next.sees(&d.cfg) {
		d.lists = newLists(next.MaxAuthors)
		clear(d.sources)
		d.wholeRound = 0
	}
	d.cfg = next
	d.lists.maxAuthors = next.MaxAuthors
	for url := range d.sources {
		if !slices.Contains(next.Sources, url) {
			delete(d.sources, url)
			d.wholeRound = 0 // what it alone told counts no longer
		}
	}
	for _, url := range next.Sources {
		if d.sources[url] == nil {
			d.sources[url] = &source{url: url}
		}
	}
}

// ErrNothingRead: no source gave anything in a sweep. Its Problems say why.
var ErrNothingRead = errors.New("no source could be read")

// Sweep reads all sources, several at a time, each for SourceLimit at most: what
// is new since its last good sweep, or everything in the first one and once a
// day. Another sweep that runs is waited for.
//
// The error is ctx's, or ErrNothingRead; what was come to is in the Sweep all
// the same.
func (d *Discovery) Sweep(ctx context.Context) (monitor.Sweep, error) {
	select {
	case d.sweeping <- struct{}{}:
		defer func() { <-d.sweeping }()
	case <-ctx.Done():
		return monitor.Sweep{}, fmt.Errorf("sweep: %w", ctx.Err())
	}
	d.takeOver()
	d.round++
	start := time.Now()
	if d.wholeRound == 0 || start.Sub(d.wholeAt) >= wholeEvery || d.round-d.wholeRound >= wholeEverySweeps {
		d.wholeAt, d.wholeRound = start, d.round
	}
	readings := d.readAll(ctx, start, d.wholeRound == d.round)

	s := monitor.Sweep{
		Start: start, At: time.Now(), Whole: true,
		Sources: make([]monitor.DiscoverySource, 0, len(readings)),
		Ignored: map[string]int{}, Refusals: map[string]int{},
	}
	gave := false
	for _, r := range readings {
		s.Sources = append(s.Sources, r.result)
		add(s.Ignored, r.ignored)
		add(s.Refusals, r.refusals)
		gave = gave || r.result.Pages > 0 || r.result.Events > 0
		s.Whole = s.Whole && r.result.Whole && r.source.known
		d.cfg.Log.Debug("discovery source read", "source", r.result.URL, "events", r.result.Events,
			"pages", r.result.Pages, "whole", r.result.Whole, "problem", r.result.Problem)
	}
	// What no source has any more goes, but only when all told everything.
	oldest := uint32(0)
	if d.wholeRound == d.round && s.Whole {
		oldest, d.complete = d.round, d.round
	}
	d.lists.prune(oldest, s.At)
	// Who was left out for want of room comes only once, until everything is
	// asked for again.
	s.Whole = s.Whole && (d.lists.full == 0 || d.lists.full < d.complete)
	d.lists.tally(&s)
	switch {
	case ctx.Err() != nil:
		return s, fmt.Errorf("sweep: %w", ctx.Err())
	case !gave:
		return s, fmt.Errorf("sweep: %w", ErrNothingRead)
	}
	return s, nil
}

// readAll reads the sources, parallel of them at a time.
func (d *Discovery) readAll(ctx context.Context, now time.Time, whole bool) []*reading {
	readings := make([]*reading, len(d.cfg.Sources))
	slots, checks := make(chan struct{}, parallel), make(chan struct{}, verifiers)
	var wg sync.WaitGroup
	for i, url := range d.cfg.Sources {
		r := newReading(&d.cfg, d.lists, d.sources[url], d.round, now, checks)
		r.whole = whole || r.source.good.IsZero()
		readings[i] = r
		wg.Go(func() {
			slots <- struct{}{} // whoever has one gives it back within SourceLimit
			defer func() { <-slots }()
			r.read(ctx)
		})
	}
	wg.Wait()
	return readings
}

func add(to, from map[string]int) {
	for k, n := range from {
		to[k] += n
	}
}
