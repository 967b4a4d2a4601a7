package world_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// machine is where one vantage runs: what it probes with, its canaries and its
// way to the core, all of them as the scenario says.
type machine struct {
	*vantageSpec
	stage *stage

	mu     sync.Mutex
	probes []probed
	stop   func() // ends the vantage and waits for it; nil while it is not running
}

type probed struct {
	relay *relaySpec
	at    time.Duration
}

var canaries = []string{"tcp://canary-one.example.net:443", "tcp://canary-two.example.org:443", "dns://canary-three.example.com"}

// start runs the vantage.
func (m *machine) start() error {
	cfg := vantage.Config{
		Name: m.name, Networks: map[monitor.Network]int{}, Cadence: m.stage.cfg.Cadence, Liveness: m.stage.cfg.Liveness,
		Dial: m.dial, Resolve: m.resolve, PerIP: 2, PerSubnet: 8,
	}
	for _, n := range m.networks {
		cfg.Networks[n] = 256
	}
	for _, text := range canaries {
		c, err := vantage.ParseCanary(text)
		if err != nil {
			return err
		}
		cfg.Canaries = append(cfg.Canaries, c)
	}
	v, err := vantage.New(cfg, m, m, m.stage.log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	m.stop = func() {
		cancel()
		if err := <-done; err != nil {
			m.stage.t.Errorf("vantage %s: %v", m.name, err)
		}
		m.stop = nil
	}
	return nil
}

// thaw waits while the machine is frozen.
func (m *machine) thaw() {
	for m.freeze.is("frozen", m.stage.now()) {
		t := m.stage.now()
		elapse(m.freeze.after(t) - t)
	}
}

// Check probes a relay as the scenario says.
func (m *machine) Check(ctx context.Context, req probe.Request) monitor.Observation {
	m.thaw()
	r := m.stage.byURL(req.Relay)
	begun, start := m.stage.now(), time.Now()
	m.mu.Lock()
	m.probes = append(m.probes, probed{r, begun})
	m.mu.Unlock()
	o := monitor.Observation{Relay: req.Relay, Start: start}
	if _, ok := req.Admit(ctx, r.addr); !ok {
		o.Outcome, o.Cause, o.At = monitor.OutcomeSkipped, monitor.CauseOverload, time.Now()
		return o
	}
	s := m.stage.sight(m.vantageSpec, r, begun)
	wait := time.NewTimer(s.takes)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		s = sights["noroute"]
	}
	if m.freeze.is("frozen", m.stage.now()) { // its connections are dead when it wakes up
		m.thaw()
		s = sights["timeout"]
	}
	o.At, o.Outcome, o.Stage, o.Cause = time.Now(), s.outcome, s.stage, s.cause
	o.Address = netip.AddrPortFrom(r.addr, 443)
	if s.outcome == monitor.OutcomeFailed || s.outcome == monitor.OutcomeUnclear {
		o.Evidence = fmt.Sprintf("it came to %s at %s", s.cause, s.stage)
		return o
	}
	o.RTTOpen, o.RTTRead, o.ServerDate = 80*time.Millisecond, 20*time.Millisecond, o.At.Truncate(time.Second)
	return o
}

// HasRoots is asked by the vantage's one loop every few seconds: here it stands
// still with its machine.
func (m *machine) HasRoots() bool {
	m.thaw()
	return !m.roots.is("missing", m.stage.now())
}

var errAway = errors.New("network is unreachable")

// dial answers a canary.
func (m *machine) dial(_ context.Context, _, address string) (net.Conn, error) {
	m.thaw()
	if m.network.is("lost", m.stage.now()) {
		return nil, fmt.Errorf("dial %s: %w", address, errAway)
	}
	here, there := net.Pipe()
	return here, there.Close()
}

func (m *machine) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	m.thaw()
	if now := m.stage.now(); m.network.is("lost", now) || m.resolver.is("lost", now) {
		return nil, fmt.Errorf("resolve %s: %w", name, errAway)
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// reach returns the core, or why it cannot be reached.
func (m *machine) reach() (*engine.Engine, error) {
	m.thaw()
	now := m.stage.now()
	e := m.stage.engine.Load()
	if e == nil || m.core.is("lost", now) || !m.local && m.network.is("lost", now) {
		return nil, fmt.Errorf("%w: the core cannot be reached", monitor.ErrUnavailable)
	}
	return e, nil
}

// Tasks asks the core.
func (m *machine) Tasks(ctx context.Context, name string, known uint64) (monitor.Tasks, error) {
	e, err := m.reach()
	if err != nil {
		return monitor.Tasks{}, err
	}
	t, err := e.Tasks(ctx, name, known)
	shift := m.shift()
	if t.Relays = slices.Clone(t.Relays); shift != 0 {
		for i := range t.Relays {
			if p := &t.Relays[i].PausedUntil; !p.IsZero() {
				*p = p.Add(-shift)
			}
		}
	}
	return t, err
}

// Deliver hands a batch to the core. All clocks of the scenario are one: a
// vantage's wrong clock is put into what it sends.
func (m *machine) Deliver(ctx context.Context, b monitor.Batch) (monitor.Answer, error) {
	e, err := m.reach()
	if err != nil {
		return monitor.Answer{}, err
	}
	if err := ctx.Err(); err != nil { // it was frozen meanwhile
		return monitor.Answer{}, err
	}
	shift, date := m.shift(), -m.stage.coreClock()
	b.SentAt = b.SentAt.Add(shift)
	b.Observations, b.Recoveries = slices.Clone(b.Observations), slices.Clone(b.Recoveries)
	for i := range b.Observations {
		o := &b.Observations[i]
		o.Start, o.At = o.Start.Add(shift), o.At.Add(shift)
		if !o.ServerDate.IsZero() {
			o.ServerDate = o.ServerDate.Add(date)
		}
	}
	for i := range b.Recoveries {
		r := &b.Recoveries[i]
		r.Since, r.At = r.Since.Add(shift), r.At.Add(shift)
	}
	for _, t := range []*time.Time{&b.Health.ImpairedSince, &b.Health.CanarySuccess} {
		if !t.IsZero() {
			*t = t.Add(shift)
		}
	}
	a, err := e.Deliver(ctx, b)
	for u, t := range a.Due {
		a.Due[u] = t.Add(-shift)
	}
	return a, err
}

// shift is how far the vantage's clock is ahead of the core's.
func (m *machine) shift() time.Duration {
	if m.local {
		return 0
	}
	d := -m.stage.coreClock()
	if c := m.clock.at(m.stage.now()); c != nil {
		off, _ := time.ParseDuration(c.word)
		d += off
	}
	return d
}

// between counts the probes of relays in a span of time.
func (m *machine) between(relays []*relaySpec, from, to time.Duration) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.probes {
		if p.at >= from && p.at < to && slices.Contains(relays, p.relay) {
			n++
		}
	}
	return n
}
