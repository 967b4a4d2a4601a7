package vantage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// Checker probes one relay; *probe.Checker is one. Check keeps its own limits,
// ends soon after ctx does, never panics, and calls Request.Admit with the
// address it is about to dial.
type Checker interface {
	Check(ctx context.Context, req probe.Request) monitor.Observation
	// HasRoots reports whether there is any CA root to trust.
	HasRoots() bool
}

// Core is what a vantage works for, in the same process or over HTTPS.
type Core interface {
	// Tasks returns what to watch. Relays is nil when known is still right.
	Tasks(ctx context.Context, vantage string, known uint64) (monitor.Tasks, error)
	// Deliver stores a batch, or keeps it where it outlives this process.
	// monitor.ErrConflict: the number is not the next one and nothing was stored;
	// any other error: it may or may not be stored.
	Deliver(ctx context.Context, b monitor.Batch) (monitor.Answer, error)
}

// Config is how a vantage works. Every field but Name has a good zero value.
type Config struct {
	Name string // unique at the core

	// Networks that the Checker can reach, with how many probes may be in
	// flight on each. nil = clearnet with 1024. Relays of any other network are
	// skipped with no_proxy. No network takes another one's room.
	Networks map[monitor.Network]int
	// Proxies tell of each network that is reached through a proxy whether the
	// proxy answers; a nil or missing entry = the network needs none. They are
	// asked at once and then every SelfCheckEvery, at most 15 s apart, and have 5 s
	// each. While one fails, the relays of its network are skipped with impaired,
	// and no failure there counts that it has not vouched for afterwards.
	Proxies map[monitor.Network]func(context.Context) error
	// Proxied: all that the Checker and Dial send goes through a proxy of this
	// vantage. Names are resolved on this side of it and say nothing about the
	// other, so dns canaries are left out; of another kind there must be one, unless
	// there are none at all.
	Proxied bool
	// Write asks for the write test, too, where capabilities are tested.
	Write bool
	// Rate is how many probes may start in a second; 0 = spread over the
	// interval. The pace falls below it under load.
	Rate float64
	// PerIP and PerSubnet (/24 or /48) bound the connections at one time;
	// 0 = 2 and 4 (probe.md, Being a good guest).
	PerIP, PerSubnet int

	// Cadence: zero = monitor.DefaultCadence, and so are FactsEvery and DepthEvery
	// alone, which an older core does not know.
	Cadence  monitor.Cadence
	Liveness monitor.Liveness // zero = monitor.DefaultLiveness

	// Canaries are asked every SelfCheckEvery (0 = 15 s); none = the network
	// counts as available.
	Canaries       []Canary
	SelfCheckEvery time.Duration
	// SourceAddress is where tcp canaries are asked from. Dial replaces the
	// dialler for them. Resolve finds the addresses of dns canaries, as probes
	// find those of relays; nil = the system's resolver.
	SourceAddress netip.Addr
	Dial          func(ctx context.Context, network, address string) (net.Conn, error)
	Resolve       func(ctx context.Context, name string) ([]netip.Addr, error)

	BatchEvery time.Duration // 0 = 5 s
	// QueueSize bounds the observations that wait for the core; the oldest are
	// dropped and counted beyond it. 0 = 100 000, some 60 MB.
	QueueSize int
	// DrainLimit is how long Run waits for probes in flight once ctx has ended
	// (0 = 12 s), FlushLimit how long for the core to take what is left
	// (0 = 5 s).
	DrainLimit, FlushLimit time.Duration
}

// tasksEvery is how often the core is asked for changes.
const tasksEvery = time.Second

// own makes c's maps its own.
func (c *Config) own() {
	c.Networks, c.Proxies = maps.Clone(c.Networks), maps.Clone(c.Proxies)
}

// reached are the networks of c, clearnet first.
func (c *Config) reached() (ns []monitor.Network) {
	for _, n := range []monitor.Network{monitor.Clearnet, monitor.Tor, monitor.I2P, monitor.Loki} {
		if _, ok := c.Networks[n]; ok {
			ns = append(ns, n)
		}
	}
	return ns
}

func (c *Config) fill() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%w "+format, append([]any{monitor.ErrInvalid}, args...)...))
	}
	if c.Name == "" {
		bad("vantage: it needs a name")
	}
	if c.Networks == nil {
		c.Networks = map[monitor.Network]int{monitor.Clearnet: 1024}
	}
	for n, limit := range c.Networks {
		if limit < 1 {
			bad("concurrency %d of network %s: it must be at least 1", limit, n)
		}
	}
	if c.Rate < 0 {
		bad("rate %v: it must be positive, or 0 to spread the probes over the interval", c.Rate)
	}
	for _, n := range []struct {
		name   string
		value  *int
		orElse int
	}{
		{"connections per address", &c.PerIP, 2},
		{"connections per subnet", &c.PerSubnet, 4},
		{"queue size", &c.QueueSize, 100_000},
	} {
		if *n.value < 0 {
			bad("%s %d: it must be positive", n.name, *n.value)
		} else if *n.value == 0 {
			*n.value = n.orElse
		}
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		orElse time.Duration
	}{
		{"self-check interval", &c.SelfCheckEvery, 15 * time.Second},
		{"batch interval", &c.BatchEvery, 5 * time.Second},
		{"drain limit", &c.DrainLimit, 12 * time.Second},
		{"flush limit", &c.FlushLimit, 5 * time.Second},
	} {
		if *d.value < 0 {
			bad("%s %s: it must be positive", d.name, *d.value)
		} else if *d.value == 0 {
			*d.value = d.orElse
		}
	}
	if c.Cadence == (monitor.Cadence{}) {
		c.Cadence = monitor.DefaultCadence()
	}
	if c.Cadence.Interval <= 0 {
		bad("interval %s: it must be positive", c.Cadence.Interval)
	}
	for _, d := range []struct {
		name   string
		value  *time.Duration
		orElse time.Duration
	}{
		{"interval of facts", &c.Cadence.FactsEvery, monitor.DefaultCadence().FactsEvery},
		{"interval of depth", &c.Cadence.DepthEvery, monitor.DefaultCadence().DepthEvery},
	} {
		if *d.value < 0 {
			bad("%s %s: it must be positive", d.name, *d.value)
		} else if *d.value == 0 {
			*d.value = d.orElse
		}
	}
	if c.Proxied && len(c.Canaries) > 0 {
		c.Canaries = slices.DeleteFunc(slices.Clone(c.Canaries), func(k Canary) bool { return k.kind == "dns" })
		if len(c.Canaries) == 0 {
			bad("canaries: only dns ones, which say nothing about the network behind a proxy: name one of tcp, ws or wss too")
		}
	}
	if c.Liveness == (monitor.Liveness{}) {
		c.Liveness = monitor.DefaultLiveness()
	}
	if c.Dial == nil {
		d := &net.Dialer{}
		if c.SourceAddress.IsValid() {
			d.LocalAddr = &net.TCPAddr{IP: c.SourceAddress.AsSlice(), Zone: c.SourceAddress.Zone()}
		}
		c.Dial = d.DialContext
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	return errors.Join(problems...)
}

// Vantage is one vantage point. New makes it, Run runs it once.
type Vantage struct {
	name                   string
	drainLimit, flushLimit time.Duration
	core                   Core
	log                    *slog.Logger

	setupMu sync.Mutex
	setup   *setup // the present one
	ended   bool   // Run is over

	// What we measure ourselves with; tests put their own in.
	clocks      func(origin time.Time) reading
	latency     func() time.Duration
	cpu         func() (time.Duration, bool)
	descriptors func() (used, limit int, ok bool)

	started atomic.Bool
	version atomic.Uint64 // of the tasks that are being followed
	lag     *lagMeter
	outbox  *outbox
	sender  *sender

	mu     sync.Mutex
	state  monitor.Health
	gauges Stats // all but what is counted elsewhere
}

// New returns a vantage that works for core through checker, or an error
// (monitor.ErrInvalid) that names every setting which is wrong.
func New(cfg Config, checker Checker, core Core, log *slog.Logger) (*Vantage, error) {
	cfg.own()
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	v := &Vantage{
		name: cfg.Name, drainLimit: cfg.DrainLimit, flushLimit: cfg.FlushLimit,
		setup: newSetup(cfg, checker), core: core, log: log.With("vantage", cfg.Name),
		clocks: readClocks, cpu: cpuTime, descriptors: descriptors,
		latency: newSchedLatency().read,
		lag:     newLagMeter(time.Now()),
		outbox:  newOutbox(cfg.QueueSize),
	}
	v.state.Networks = cfg.reached()
	v.sender = &sender{v: v, log: v.log}
	return v, nil
}

// Run watches what the core asks for until ctx ends; then it starts no probe any
// more, waits for those in flight, at most DrainLimit, and hands the core what
// is left, within FlushLimit. Afterwards nothing of it runs any more. The core
// may come and go: probing goes on. The error is nil unless Run was called
// before.
func (v *Vantage) Run(ctx context.Context) error {
	if v.started.Swap(true) {
		return errors.New("run vantage: it was run before")
	}
	var helpers, delivery sync.WaitGroup
	helpersCtx, stopHelpers := context.WithCancel(ctx)
	defer stopHelpers()
	// Probes in flight outlive ctx; the loop ends them.
	probes, endProbes := context.WithCancel(context.WithoutCancel(ctx))
	defer endProbes()

	l := newLoop(v, probes)
	defer v.end()
	closing := make(chan struct{})
	v.lag.start(time.Now())
	meterCtx, stopMeter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMeter()
	helpers.Go(func() { v.lag.run(meterCtx) })
	helpers.Go(func() { v.pollTasks(helpersCtx, l.tasks) })
	helpers.Go(func() { watch(helpersCtx, v, canaryChecks, l.canaries) })
	helpers.Go(func() { watch(helpersCtx, v, proxyChecks, l.proxies) })
	delivery.Go(func() { v.sender.run(ctx, closing, l.answers) })

	l.run(ctx)
	l.drain(endProbes)
	close(closing)
	delivery.Wait()
	stopHelpers()
	stopMeter()
	helpers.Wait()
	return nil
}

// pollTasks asks the core what to watch and passes on every change.
func (v *Vantage) pollTasks(ctx context.Context, changes chan<- monitor.Tasks) {
	wait := tasksEvery
	failing := false
	for {
		call, cancel := context.WithTimeout(ctx, deliverLimit)
		tasks, err := v.core.Tasks(call, v.name, v.version.Load())
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				v.log.Warn("tasks not fetched", "error", err)
			}
			failing, wait = true, min(2*wait, retryMost)
		default:
			failing, wait = false, tasksEvery
			if tasks.Relays != nil {
				select {
				case changes <- tasks:
				case <-ctx.Done():
					return
				}
				v.version.Store(tasks.Version)
			}
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// checks is one kind of question about ourselves that is asked again and again.
type checks[T any] struct {
	every func(s *setup) time.Duration // 0 = there is nothing to ask
	ask   func(ctx context.Context, s *setup) T
}

// watch asks at once and then every so often, and with another configuration at
// once again, until ctx ends.
func watch[T any](ctx context.Context, v *Vantage, c checks[T], rounds chan<- T) {
	for ctx.Err() == nil {
		watchUnder(ctx, v.present(), c, rounds)
	}
}

// watchUnder asks until ctx ends or s is replaced.
func watchUnder[T any](ctx context.Context, s *setup, c checks[T], rounds chan<- T) {
	every := c.every(s)
	next := time.NewTimer(0)
	defer next.Stop()
	if every == 0 {
		next.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.replaced:
			return
		case <-next.C:
		}
		began := time.Now()
		r := c.ask(ctx, s)
		if ctx.Err() != nil {
			return // an end of ours is no failure of theirs
		}
		select {
		case rounds <- r:
		case <-s.replaced:
			return
		case <-ctx.Done():
			return
		}
		next.Reset(max(0, every-time.Since(began)))
	}
}

// pause waits for d; false when ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// health is the newest health, for a batch.
func (v *Vantage) health() monitor.Health {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.state
	h.Impairments = slices.Clone(h.Impairments)
	h.Networks, h.Down = slices.Clone(h.Networks), slices.Clone(h.Down)
	return h
}
