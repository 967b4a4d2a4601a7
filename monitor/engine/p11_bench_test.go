package engine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
)

// BenchmarkP11Core is the whole core but for its database and for signing:
// 50 000 relays that 10 vantages look at every 5 minutes, 1 667 observations/s,
// in virtual time. A first look at all within a minute fills it, two more let it
// settle; then it is measured for three: every batch, every round with its
// generation, the sweeps. A tenth of the relays is down for ever, a new one goes
// down for 5 minutes every 10 s, and of the other probes one in 500 fails alone,
// so that suspicion asks. The bar: 0.5 core, 512 MiB.
//
// cores is process CPU per simulated second, the scripted vantages included;
// rss-MiB is the process's peak, with the limit that pharos takes from a cgroup of
// 512 MiB, and heap-MiB what is alive at the end.
func BenchmarkP11Core(b *testing.B) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20 * 9 / 10))
	for b.Loop() {
		var m measured
		// Virtual time is only for tests: this runs one.
		all := func(_, _ string) (bool, error) { return true, nil }
		if !testing.RunTests(all, []testing.InternalTest{{Name: "P11", F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { m = measure(t) })
		}}}) {
			b.Fatal("the measurement failed")
		}
		b.ReportMetric(m.cpu.Seconds()/m.simulated.Seconds(), "cores")
		b.ReportMetric(m.cpu.Seconds()*1e6/float64(m.observations), "cpu-µs/obs")
		b.ReportMetric(float64(m.observations)/m.simulated.Seconds(), "obs/s")
		b.ReportMetric(float64(m.transitions), "transitions")
		b.ReportMetric(float64(m.heap)/(1<<20), "heap-MiB")
		b.ReportMetric(float64(m.rss)/(1<<20), "rss-MiB")
	}
	b.ReportMetric(0, "ns/op") // the virtual time is fixed
}

const (
	coreRelays   = 50_000
	coreVantages = 10
	coreInterval = 5 * time.Minute
	coreBatch    = 5 * time.Second
	coreTurn     = coreRelays * int(coreBatch/time.Second) / int(coreInterval/time.Second) // relays in a batch
	// cpuLimit ends the measurement early on a machine that is far over the bar.
	cpuLimit = 40 * time.Second
)

type measured struct {
	simulated, cpu            time.Duration
	observations, transitions int
	heap, rss                 uint64 // bytes
}

// measure runs one core in a bubble.
func measure(t *testing.T) measured {
	cfg := engine.Config{
		Liveness: monitor.DefaultLiveness(), Corroboration: monitor.DefaultCorroboration(), Cadence: monitor.DefaultCadence(),
		Freshness: monitor.DefaultFreshness(), Pubkey: "us", Log: slog.New(slog.DiscardHandler),
	}
	f := newFleet()
	for _, u := range f.relays {
		cfg.Relays = append(cfg.Relays, monitor.WatchedRelay{URL: u, Source: monitor.SourceConfig, FirstSeen: time.Now()})
	}
	for i := range coreVantages {
		cfg.Vantages = append(cfg.Vantages, monitor.Vantage{Name: fmt.Sprint("v", i), Networks: []monitor.Network{monitor.Clearnet}})
	}
	s := &forgetful{}
	e, err := engine.New(t.Context(), cfg, s, func([]monitor.SignedEvent) (engine.Publisher, error) {
		return &hourly{publisher{at: map[monitor.RelayURL]time.Time{}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Relays = nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	f.run(t, e, time.Minute, 5, 1000, 0)
	f.run(t, e, 2*time.Minute, 4, coreTurn/4, 0) // room for the second looks
	if g := e.Generation(); len(g.Online) < coreRelays*8/10 || !g.Usable() {
		t.Fatalf("after the first look %d relays are served, fallback %q", len(g.Online), g.Fallback)
	}
	runtime.GC()
	seen, moved, before := f.sent, s.transitions, processCPU(t)
	var m measured
	m.simulated = f.run(t, e, 3*time.Minute, 1, coreTurn, before+cpuLimit)
	m.cpu = processCPU(t) - before
	m.observations, m.transitions = f.sent-seen, s.transitions-moved
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.heap, m.rss = mem.HeapAlloc, peakRSS(t)
	if m.transitions == 0 {
		t.Error("no verdict changed: nothing was corroborated")
	}
	runtime.KeepAlive(e)
	return m
}

// forgetful is a store that has everything it was given and gives nothing back.
type forgetful struct {
	relays      []monitor.WatchedRelay
	transitions int
}

func (s *forgetful) Watch(_ context.Context, relays []monitor.WatchedRelay) error {
	s.relays = relays
	return nil
}

func (s *forgetful) Load(context.Context) (*monitor.Stored, error) {
	out := &monitor.Stored{Relays: s.relays}
	s.relays = nil
	return out, nil
}

func (s *forgetful) Ingest(context.Context, *monitor.Ingest) error { return nil }

func (s *forgetful) Commit(_ context.Context, d *monitor.Decision) error {
	s.transitions += len(d.Transitions)
	return nil
}

// hourly is the publisher of the tests, with each relay's second report spread
// over the hour that follows its first: a service that runs for long.
type hourly struct{ publisher }

func (p *hourly) Reports(now time.Time, online []monitor.ReportSource) []monitor.SignedEvent {
	var first []monitor.RelayURL
	for i := range online {
		if _, known := p.at[online[i].URL]; !known {
			first = append(first, online[i].URL)
		}
	}
	out := p.publisher.Reports(now, online)
	for _, u := range first {
		p.at[u] = now.Add(-rand.N(time.Hour))
	}
	return out
}

func (p *hourly) Snapshot(now time.Time, _ uint64, _ time.Time, urls []monitor.RelayURL) *monitor.SignedEvent {
	h := fnv.New64a()
	for _, u := range urls {
		_, _ = h.Write([]byte(u))
	}
	return &monitor.SignedEvent{ID: fmt.Sprint("set", h.Sum64()), Kind: 30002, Pubkey: "us", D: "nip66-online", CreatedAt: now, Expires: now.Add(time.Hour)}
}

// fleet is ten scripted vantages, each on its way round all relays.
type fleet struct {
	relays []monitor.RelayURL
	index  map[monitor.RelayURL]int
	text   string // a long part of NIP-11 documents
	start  time.Time
	random *rand.Rand
	points [coreVantages]point
	sent   int // observations
}

// point is one vantage.
type point struct {
	seq    uint64
	at     int             // next relay of the round, counted on
	failed map[int]int     // looks that failed in a row
	again  monitor.DueHeap // relays to look at before their turn
	obs    []monitor.Observation
}

func newFleet() *fleet {
	f := &fleet{index: map[monitor.RelayURL]int{}, text: strings.Repeat("words ", 120), start: time.Now(), random: rand.New(rand.NewPCG(11, 1))}
	for i := range coreRelays {
		u := monitor.RelayURL(fmt.Sprintf("wss://relay%05d.example.com/", i))
		f.relays, f.index[u] = append(f.relays, u), i
	}
	for i := range f.points {
		f.points[i] = point{at: i * coreRelays / coreVantages, failed: map[int]int{}}
	}
	return f
}

// run lets d pass, in which each vantage hands over every 5 s so many batches of
// turn relays, and returns how much did, until the process's CPU clock comes to
// limit (0 = no limit).
func (f *fleet) run(t *testing.T, e *engine.Engine, d time.Duration, batches, turn int, limit time.Duration) time.Duration {
	begun := time.Now()
	for tick := 0; time.Since(begun) < d; tick++ {
		if tick%coreVantages == 0 && limit > 0 && processCPU(t) > limit {
			break
		}
		elapse(coreBatch / coreVantages)
		synctest.Wait()
		for range batches {
			f.deliver(t, e, tick%coreVantages, turn)
		}
	}
	return time.Since(begun)
}

// deliver hands over what vantage i saw in the last 5 s: the next turn relays of
// its round, and those that are due besides.
func (f *fleet) deliver(t *testing.T, e *engine.Engine, i, turn int) {
	now := time.Now()
	p := &f.points[i]
	p.obs = p.obs[:0]
	for n := range turn {
		f.look(p, p.at%coreRelays, now.Add(-coreBatch*time.Duration(turn-n)/time.Duration(turn+1)))
		p.at++
	}
	for len(p.obs) < 1000 {
		u, due, ok := p.again.Pop(now)
		if !ok {
			break
		}
		f.look(p, f.index[u], due)
	}
	p.seq++
	a, err := e.Deliver(t.Context(), monitor.Batch{
		Vantage: fmt.Sprint("v", i), Seq: p.seq, SentAt: now, Observations: p.obs,
		Health: monitor.Health{CanarySuccess: now.Add(-time.Second), Watched: coreRelays},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.sent += len(p.obs)
	for _, u := range a.Expedite {
		p.again.Set(u, now)
	}
	for u, at := range a.Due {
		p.again.Set(u, at)
	}
}

// look adds what the vantage sees of a relay.
func (f *fleet) look(p *point, i int, at time.Time) {
	u := f.relays[i]
	o := monitor.Observation{
		Relay: u, Start: at.Add(-200 * time.Millisecond), At: at, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead,
		RTTOpen: 120 * time.Millisecond, RTTRead: 40 * time.Millisecond, HTTPStatus: 101,
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 443), ServerDate: at.Truncate(time.Second),
	}
	if f.down(i, at) || f.random.IntN(500) == 0 {
		o.Outcome, o.Stage, o.Cause, o.Evidence = monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout, "no answer to the connection within 4 s"
		o.RTTOpen, o.RTTRead, o.HTTPStatus, o.ServerDate = 0, 0, 0, time.Time{}
		p.failed[i]++
		if n := p.failed[i]; n <= 2 { // after 30 and 60 s; what follows is the round's
			p.again.Set(u, at.Add(15*time.Second<<n))
		}
		p.obs = append(p.obs, o)
		return
	}
	if p.failed[i] > 0 {
		delete(p.failed, i)
		p.again.Set(u, at.Add(30*time.Second))
	}
	if minute := int(at.Sub(f.start) / time.Minute); minute <= 0 || (minute/5+i)%12 == 0 { // once an hour
		o.Info = &monitor.Info{Name: u.Host(), Description: f.text, Software: "strfry", NIPs: []int{1, 2, 4, 9, 11, 42}}
		o.Info.Raw = fmt.Appendf(nil, `{"name":%q,"description":%q,"supported_nips":[1,2,4,9,11,42],"software":"strfry"}`, u.Host(), f.text)
		o.TLS = &monitor.TLSFacts{Version: "1.3", Issuer: "R11", Names: []string{u.Host()}, NotAfter: f.start.AddDate(0, 2, 0)}
	}
	p.obs = append(p.obs, o)
}

// down is the truth: a tenth for ever, and one more relay every 10 s for an
// interval.
func (f *fleet) down(i int, at time.Time) bool {
	if i%10 == 0 {
		return true
	}
	const lasts = int(coreInterval / (10 * time.Second))
	n := int(at.Sub(f.start) / (10 * time.Second))
	for k := max(0, n-lasts); k < n; k++ {
		if k*7919%coreRelays == i {
			return true
		}
	}
	return false
}

// processCPU is the CPU time that this process has used.
func processCPU(t *testing.T) time.Duration {
	u := usage(t)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakRSS is the most memory that this process ever had, in bytes.
func peakRSS(t *testing.T) uint64 {
	u := usage(t)
	if runtime.GOOS == "darwin" {
		return uint64(u.Maxrss) // in bytes there
	}
	return uint64(u.Maxrss) << 10
}

func usage(t *testing.T) (u syscall.Rusage) {
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return u
}
