package vantage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// checker is a Checker made of a function; it keeps what it was asked.
type checker struct {
	check   func(ctx context.Context, req probe.Request) monitor.Observation
	noRoots bool

	mu       sync.Mutex
	asked    []asked
	inFlight map[string]int // by host
	most     map[string]int
}

type asked struct {
	probe.Request
	at time.Time
}

func (c *checker) HasRoots() bool { return !c.noRoots }

func (c *checker) Check(ctx context.Context, req probe.Request) (o monitor.Observation) {
	start := time.Now()
	host := req.Relay.Host()
	c.mu.Lock()
	c.asked = append(c.asked, asked{req, start})
	if c.inFlight == nil {
		c.inFlight, c.most = map[string]int{}, map[string]int{}
	}
	for _, h := range []string{host, ""} {
		c.inFlight[h]++
		c.most[h] = max(c.most[h], c.inFlight[h])
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inFlight[host]--
		c.inFlight[""]--
	}()
	if c.check != nil {
		o = c.check(ctx, req)
	} else {
		o = answer(ctx, 100*time.Millisecond, monitor.OutcomeOK)
	}
	o.Relay, o.Start, o.At = req.Relay, start, time.Now()
	return o
}

// answer is an outcome after d.
func answer(ctx context.Context, d time.Duration, o monitor.Outcome) monitor.Observation {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return monitor.Observation{Outcome: monitor.OutcomeUnclear, Cause: monitor.CauseLocalNetwork}
	case <-t.C:
	}
	obs := monitor.Observation{Outcome: o, Stage: monitor.StageRead}
	if o == monitor.OutcomeFailed {
		obs.Stage, obs.Cause = monitor.StageTCP, monitor.CauseTimeout
	}
	return obs
}

// of returns when relay was probed.
func (c *checker) of(relay monitor.RelayURL) (at []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.asked {
		if a.Relay == relay {
			at = append(at, a.at)
		}
	}
	return at
}

// mostAt is how many probes of one host, or of all where it is "", were in flight
// at one time.
func (c *checker) mostAt(host string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[host]
}

func (c *checker) all() []asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

func (c *checker) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = nil
}

// core is a Core that stores what it gets.
type core struct {
	mu       sync.Mutex
	tasks    monitor.Tasks
	batches  []monitor.Batch
	sent     []time.Time
	expedite []monitor.RelayURL
	due      map[monitor.RelayURL]time.Time
	// deliver, when set, is asked before a batch is stored.
	deliver func(b monitor.Batch) error
	// lose makes deliveries fail although the batch was stored.
	lose bool
}

func (c *core) watch(tasks ...monitor.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks.Version++
	c.tasks.Relays = append([]monitor.Task{}, tasks...)
}

func (c *core) Tasks(_ context.Context, _ string, known uint64) (monitor.Tasks, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tasks
	if known == t.Version {
		t.Relays = nil
	}
	return t, nil
}

func (c *core) Deliver(_ context.Context, b monitor.Batch) (monitor.Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deliver != nil {
		if err := c.deliver(b); err != nil {
			return monitor.Answer{}, err
		}
	}
	if b.Seq != c.tasks.LastSeq+1 {
		return monitor.Answer{}, fmt.Errorf("batch %d after %d: %w", b.Seq, c.tasks.LastSeq, monitor.ErrConflict)
	}
	c.tasks.LastSeq = b.Seq
	c.batches = append(c.batches, b)
	c.sent = append(c.sent, time.Now())
	if c.lose {
		return monitor.Answer{}, errors.New("the connection broke")
	}
	a := monitor.Answer{Expedite: c.expedite, Due: c.due}
	c.expedite, c.due = nil, nil
	return a, nil
}

func (c *core) set(f func(c *core)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// observations stored so far, and those of one outcome only where o is given.
func (c *core) observations(o ...monitor.Outcome) (obs []monitor.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.batches {
		for _, x := range b.Observations {
			if len(o) == 0 || slices.Contains(o, x.Outcome) {
				obs = append(obs, x)
			}
		}
	}
	return obs
}

func (c *core) recoveries() (rs []monitor.Recovery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.batches {
		rs = append(rs, b.Recoveries...)
	}
	return rs
}

func (c *core) newest() monitor.Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.batches[len(c.batches)-1]
}

// bench is a vantage that runs in a bubble.
type bench struct {
	*vantage.Vantage
	checker *checker
	core    *core
	cfg     vantage.Config
	start   time.Time
	moved   atomic.Int64 // of the clock, nanoseconds
	fds     atomic.Int64
	logged  bytes.Buffer
	cancel  context.CancelFunc
	done    chan error
}

// run starts a vantage and stops it at the end of the test.
func run(t *testing.T, cfg vantage.Config, check func(ctx context.Context, req probe.Request) monitor.Observation, tasks ...monitor.Task) *bench {
	t.Helper()
	b := prepare(t, cfg, check, tasks...)
	b.begin(t)
	return b
}

func prepare(t *testing.T, cfg vantage.Config, check func(ctx context.Context, req probe.Request) monitor.Observation, tasks ...monitor.Task) *bench {
	t.Helper()
	b := &bench{checker: &checker{check: check}, core: &core{}, cfg: cfg, start: time.Now(), done: make(chan error, 1)}
	if b.cfg.Name == "" {
		b.cfg.Name = "here"
	}
	b.core.watch(tasks...)
	var log io.Writer = &b.logged
	if testing.Verbose() {
		log = io.MultiWriter(log, t.Output())
	}
	v, err := vantage.New(b.cfg, b.checker, b.core, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	v.Steady(func() time.Duration { return time.Duration(b.moved.Load()) }, func() (int, int, bool) { return int(b.fds.Load()), 100, true })
	b.Vantage = v
	return b
}

func (b *bench) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() { b.done <- b.Run(ctx) }()
	t.Cleanup(func() { b.stop(t) })
}

// stop ends the vantage, if it has not ended, and returns how long that took.
func (b *bench) stop(t *testing.T) time.Duration {
	t.Helper()
	if b.cancel == nil {
		return 0
	}
	began := time.Now()
	b.cancel()
	b.cancel = nil
	if err := <-b.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	return time.Since(began)
}

func (b *bench) sleep(d time.Duration) {
	elapse(d)
	synctest.Wait()
}

// elapse lets virtual time pass; it belongs in a synctest bubble only.
func elapse(d time.Duration) { time.Sleep(d) }

func tasks(n int) []monitor.Task {
	ts := make([]monitor.Task, n)
	for i := range ts {
		ts[i].Relay = relay(i)
	}
	return ts
}

// relay is the i-th of many, each in a network of its own.
func relay(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("ws://20.%d.%d.1:7000/", i/250, i%250))
}

func ok(ctx context.Context, _ probe.Request) monitor.Observation {
	return answer(ctx, 100*time.Millisecond, monitor.OutcomeOK)
}

func fail(ctx context.Context, _ probe.Request) monitor.Observation {
	return answer(ctx, 100*time.Millisecond, monitor.OutcomeFailed)
}

func TestFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(3000)...)
		b.sleep(70 * time.Second)
		perSecond := map[int]int{}
		seen := map[monitor.RelayURL]bool{}
		for _, a := range b.checker.all() {
			perSecond[int(a.at.Sub(b.start)/time.Second)]++
			if !seen[a.Relay] && !a.Info {
				t.Fatalf("%s: NIP-11 is not asked for in the first probe", a.Relay)
			}
			seen[a.Relay] = true
		}
		if len(seen) != 3000 {
			t.Errorf("%d of 3000 relays were probed within 70 s", len(seen))
		}
		for s, n := range perSecond {
			if n > 110 { // 50 a second first looks, some second ones, headroom
				t.Errorf("%d probes started in second %d: a burst", n, s)
			}
		}
		if got := len(b.core.observations(monitor.OutcomeOK)); got < 2900 {
			t.Errorf("the core has %d observations", got)
		}
	})
}

// A short list does not take the whole minute for its first pass.
func TestFirstPassOfAShortList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(50)...)
		b.sleep(8 * time.Second)
		if n := len(b.checker.all()); n < 50 {
			t.Errorf("%d of 50 relays were probed within 8 s", n)
		}
	})
}

func TestCadenceOfOnlineRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := vantage.Config{Cadence: monitor.DefaultCadence()}
		b := run(t, cfg, func(ctx context.Context, req probe.Request) monitor.Observation {
			o := ok(ctx, req)
			if req.Info {
				o.Info = &monitor.Info{Name: "a relay"}
			}
			return o
		}, tasks(50)...)
		b.sleep(3 * time.Hour)
		infos := 0
		for i := range 50 {
			at := b.checker.of(relay(i))
			// One first look, then one per interval.
			if len(at) < 36 || len(at) > 38 {
				t.Errorf("%s: %d probes in 3 h, want 37", relay(i), len(at))
			}
			phase := cfg.Cadence.Phase(relay(i), "here")
			for _, a := range at[1:] {
				// The wall clock of a bubble began at a whole interval.
				if late := (time.Duration(a.UnixNano())%cfg.Cadence.Interval - phase); late < 0 || late > time.Second {
					t.Errorf("%s: probed %s after its phase %s", relay(i), late, phase)
				}
			}
		}
		for _, a := range b.checker.all() {
			if a.Info {
				infos++
			}
			if a.at.Sub(b.start) > 10*time.Minute && a.LastOutcome != monitor.OutcomeOK {
				t.Fatalf("the last outcome handed to the checker is %q", a.LastOutcome)
			}
		}
		if infos < 3*50 || infos > 4*50 {
			t.Errorf("%d NIP-11 documents of 50 relays in 3 h, want one at first and one per hour", infos)
		}
		for _, o := range b.core.observations() {
			if o.Vantage != "here" || o.Lag < 0 || o.Lag > time.Second {
				t.Fatalf("observation of vantage %q with lag %s", o.Vantage, o.Lag)
			}
		}
	})
}

func TestFailingLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := relay(0)
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay == failing {
				return fail(ctx, req)
			}
			return ok(ctx, req)
		}, tasks(200)...)
		b.sleep(2 * time.Hour)
		at := b.checker.of(failing)
		// The last of them made it dead, as others answered all the time (S11).
		want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, time.Hour}
		if len(at) < len(want)+1 {
			t.Fatalf("a failing relay was probed %d times in 2 h", len(at))
		}
		for i, cooldown := range want {
			if gap := at[i+1].Sub(at[i]); gap < cooldown || gap > cooldown+time.Second {
				t.Errorf("probe %d came %s after the one before, want the cooldown of %s", i+2, gap, cooldown)
			}
		}
	})
}

func TestTaskChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := relay(0)
		candidate := monitor.Task{Relay: relay(1), Candidate: true}
		check := func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay == dead || req.Relay == candidate.Relay {
				return fail(ctx, req)
			}
			return ok(ctx, req)
		}
		others := tasks(100)[2:]
		all := append([]monitor.Task{{Relay: dead}, candidate}, others...)
		b := run(t, vantage.Config{}, check, all...)
		b.sleep(40 * time.Minute)
		if n := len(b.checker.of(dead)); n != 6 {
			t.Fatalf("a relay failed %d times in 40 min, want 6 until it is dead", n)
		}
		climbed := len(b.checker.of(candidate.Relay))
		if climbed != monitor.CandidateLadder {
			t.Fatalf("a candidate was tried %d times in 40 min, want its one ladder of %d", climbed, monitor.CandidateLadder)
		}

		// The list changes, in another order, again and again: who stays on it
		// keeps its record and slot.
		gone, added := others[0].Relay, relay(1000)
		slices.Reverse(all)
		all = slices.DeleteFunc(all, func(t monitor.Task) bool { return t.Relay == gone })
		all = append(all, monitor.Task{Relay: added})
		b.checker.forget()
		changed := time.Now()
		for range 10 {
			b.core.watch(all...)
			b.sleep(time.Minute)
		}
		if n := len(b.checker.of(dead)); n != 0 {
			t.Errorf("a dead relay was probed %d times after the list had changed: its record was lost", n)
		}
		if n := len(b.checker.of(gone)); n != 0 {
			t.Errorf("a relay that was taken off the list was probed %d times", n)
		}
		if at := b.checker.of(added); len(at) == 0 || at[0].Sub(changed) > 65*time.Second {
			t.Errorf("a new relay was probed at %v, want within a minute", at)
		}
		for _, o := range others[1:] {
			if n := len(b.checker.of(o.Relay)); n != 2 {
				t.Errorf("%s was probed %d times in two intervals", o.Relay, n)
			}
		}
		if n := b.core.newest().Health.Watched; n != len(all) {
			t.Errorf("%d relays are watched, want %d", n, len(all))
		}

		// A candidate that is one no more gets the cadence of the others.
		for i := range all {
			all[i].Candidate = false
		}
		b.core.watch(all...)
		b.sleep(time.Hour + 5*time.Minute)
		if n := len(b.checker.of(candidate.Relay)); n == 0 {
			t.Error("a candidate that was promoted still waits for the next day")
		}
	})
}

func TestPermitsOfLiteralAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts []monitor.Task
		for i := range 20 { // one address
			ts = append(ts, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("ws://20.0.0.1:%d/", 7000+i))})
		}
		for i := range 20 { // one /24
			ts = append(ts, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("ws://20.0.1.%d:7000/", 1+i))})
		}
		others := tasks(1000)[500:]
		ts = append(ts, others...)
		var mu sync.Mutex
		subnet, mostSubnet := 0, 0
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if !strings.HasPrefix(req.Relay.Host(), "20.0.") {
				return ok(ctx, req)
			}
			if strings.HasPrefix(req.Relay.Host(), "20.0.1.") {
				mu.Lock()
				subnet++
				mostSubnet = max(mostSubnet, subnet)
				mu.Unlock()
				defer func() { mu.Lock(); subnet--; mu.Unlock() }()
			}
			return answer(ctx, 12*time.Second, monitor.OutcomeOK)
		}, ts...)
		b.sleep(65 * time.Second)
		for _, o := range others {
			if len(b.checker.of(o.Relay)) == 0 {
				t.Errorf("%s waits behind relays without permits", o.Relay)
			}
		}
		if s := b.Stats(); s.Parked == 0 {
			t.Error("no relay waits for a permit: the test shows nothing")
		}
		b.sleep(3 * time.Minute)
		for _, tt := range ts {
			if len(b.checker.of(tt.Relay)) == 0 {
				t.Errorf("%s never got its turn", tt.Relay)
			}
		}
		if most := b.checker.mostAt("20.0.0.1"); most != 2 {
			t.Errorf("%d connections at a time to one address, want 2", most)
		}
		mu.Lock()
		defer mu.Unlock()
		if mostSubnet != 4 {
			t.Errorf("%d connections at a time to one /24, want 4", mostSubnet)
		}
		if skipped := b.core.observations(monitor.OutcomeSkipped); len(skipped) > 0 {
			t.Errorf("%d relays were skipped: %+v", len(skipped), skipped[0])
		}
	})
}

func TestPermitsOfResolvedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts []monitor.Task
		for i := range 60 {
			ts = append(ts, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("wss://relay%d.example.com/", i))})
		}
		var mu sync.Mutex
		now, most, done := 0, 0, 0
		shared := netip.MustParseAddr("::ffff:20.0.0.1")
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			release, admitted := req.Admit(ctx, shared)
			if release != nil {
				defer release()
			}
			if !admitted {
				return monitor.Observation{Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload}
			}
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; done++; mu.Unlock() }()
			return answer(ctx, 3*time.Second, monitor.OutcomeOK)
		}, ts...)
		b.sleep(2 * time.Minute)
		mu.Lock()
		if done < 60 {
			t.Errorf("%d of 60 names of one address were probed within two minutes", done)
		}
		if most != 2 {
			t.Errorf("%d connections at a time to the address that they share, want 2", most)
		}
		mu.Unlock()
		if skipped := b.core.observations(monitor.OutcomeSkipped); len(skipped) > 0 {
			t.Errorf("%d relays were skipped that only had to wait: %+v", len(skipped), skipped[0])
		}
		// Now that the address is known nobody has to ask in vain.
		b.checker.forget()
		b.sleep(5 * time.Minute)
		if n := len(b.checker.all()); n > 62 {
			t.Errorf("%d probes were begun for 60 relays", n)
		}
	})
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cadence := monitor.DefaultCadence()
		cadence.Interval = 30 * time.Second
		b := run(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Clearnet: 1}, Cadence: cadence},
			func(ctx context.Context, _ probe.Request) monitor.Observation {
				return answer(ctx, 10*time.Second, monitor.OutcomeOK)
			}, tasks(10)...)
		b.sleep(10 * time.Minute)
		if most := b.checker.mostAt(""); most != 1 {
			t.Errorf("%d probes in flight, want 1", most)
		}
		if n := len(b.checker.all()); n < 58 || n > 60 {
			t.Errorf("%d probes of 10 s in 10 min, want one after the other", n)
		}
		skipped := b.core.observations(monitor.OutcomeSkipped)
		// 10 relays are due 20 times each, of which 60 fit in; those that wait,
		// for up to an interval, are not due anew meanwhile.
		if len(skipped) < 30 || len(skipped) > 140 {
			t.Errorf("%d probes were skipped", len(skipped))
		}
		for _, o := range skipped {
			if o.Cause != monitor.CauseOverload || o.Stage != monitor.StageNone || !o.Start.Equal(o.At) || o.Lag != cadence.Interval || o.Evidence == "" {
				t.Fatalf("skipped for want of room: %+v", o)
			}
		}
		for i := range 10 {
			if len(b.checker.of(relay(i))) == 0 {
				t.Errorf("%s never had its turn", relay(i))
			}
		}
	})
}

func TestNetworksAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onion := monitor.RelayURL("ws://pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion/")
		onion2 := monitor.RelayURL("ws://duckduckgogg42xjoc72x3sjasowoarfbgcmvfimaftt6twagswzczad.onion/")
		loki := monitor.RelayURL("ws://relay.loki/")
		ts := append(tasks(100), monitor.Task{Relay: onion}, monitor.Task{Relay: onion2}, monitor.Task{Relay: loki})
		b := run(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Clearnet: 100, monitor.Tor: 1}},
			func(ctx context.Context, req probe.Request) monitor.Observation {
				if req.Relay.Network() == monitor.Tor {
					return answer(ctx, 45*time.Second, monitor.OutcomeFailed)
				}
				return ok(ctx, req)
			}, ts...)
		b.sleep(150 * time.Second)
		for i := range 100 {
			if len(b.checker.of(relay(i))) == 0 {
				t.Errorf("%s waits behind a slow network", relay(i))
			}
		}
		if len(b.checker.of(onion)) == 0 || len(b.checker.of(onion2)) == 0 {
			t.Error("a network with room for one starves")
		}
		b.sleep(3 * time.Hour)
		if n := len(b.checker.of(loki)); n != 0 {
			t.Errorf("a relay without a proxy was probed %d times", n)
		}
		rows := 0
		for _, o := range b.core.observations(monitor.OutcomeSkipped) {
			if o.Relay == loki {
				rows++
				if o.Cause != monitor.CauseNoProxy {
					t.Fatalf("skipped with %s", o.Cause)
				}
			}
		}
		if rows < 3 || rows > 4 {
			t.Errorf("%d rows in 3 h say that there is no proxy, want one an hour", rows)
		}
	})
}

func TestExpedite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(500)...)
		b.sleep(7 * time.Minute)
		b.checker.forget()
		asked := time.Now()
		b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{relay(7), relay(8), "ws://20.9.9.9:1/"} })
		b.sleep(8 * time.Second)
		for _, r := range []monitor.RelayURL{relay(7), relay(8)} {
			if at := b.checker.of(r); len(at) == 0 || at[0].Sub(asked) > 7*time.Second {
				t.Errorf("%s was probed at %v, want with the next answer of the core", r, at)
			}
		}
		if s := b.Stats(); s.Expedited != 2 || s.ExpeditesDropped != 1 {
			t.Errorf("%d expedited, %d dropped, want 2 and the unknown one", s.Expedited, s.ExpeditesDropped)
		}
		b.sleep(6 * time.Minute)
		for i := range 20 {
			want := 1
			if i == 7 || i == 8 {
				want = 2 // the slot has not moved
			}
			if n := len(b.checker.of(relay(i))); n < want || n > want+1 {
				t.Errorf("%s was probed %d times", relay(i), n)
			}
		}
	})
}

func TestExpediteBudgetOfAVantage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 3000 relays in 5 min are 10 a second; with headroom 12.5, of which 5 %
		// are 38 in a minute, and as many as the bucket holds at first.
		b := run(t, vantage.Config{}, ok, tasks(3000)...)
		b.sleep(7 * time.Minute)
		var all []monitor.RelayURL
		for i := range 3000 {
			all = append(all, relay(i))
		}
		b.core.set(func(c *core) { c.expedite = all })
		b.sleep(5 * time.Minute)
		s := b.Stats()
		if s.Expedited < 30 || s.Expedited > 60 {
			t.Errorf("%d of 3000 were expedited, want about 45", s.Expedited)
		}
		if s.ExpeditesDropped < 2000 {
			t.Errorf("%d requests were dropped after a minute", s.ExpeditesDropped)
		}
		if n := len(b.core.observations(monitor.OutcomeSkipped)); n != 0 {
			t.Errorf("%d ordinary probes were skipped for want of room", n)
		}
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			o := answer(ctx, 100*time.Millisecond, monitor.OutcomeRestricted)
			o.Stage, o.Cause, o.RetryAfter = monitor.StageUpgrade, monitor.CauseHTTP429, 20*time.Minute
			return o
		}, tasks(1)...)
		b.sleep(10 * time.Minute)
		b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{relay(0)} })
		b.core.watch(tasks(2)...)
		b.sleep(9 * time.Minute)
		if n := len(b.checker.of(relay(0))); n != 1 {
			t.Errorf("it was probed %d times within the 20 min for which it wanted to be left alone", n)
		}
		skipped := b.core.observations(monitor.OutcomeSkipped)
		if len(skipped) != 1 || skipped[0].Cause != monitor.CauseRateLimited {
			t.Errorf("the expedited probe: %+v, want one row that says rate_limited", skipped)
		}
		b.sleep(10 * time.Minute)
		if n := len(b.checker.of(relay(0))); n != 2 {
			t.Errorf("it was probed %d times after 29 min, want again after 20 min", n)
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{Rate: 1000}, ok)
		b.core.set(func(c *core) { c.tasks.LastSeq = 41 })
		b.sleep(21 * time.Second)
		b.core.mu.Lock()
		for i, x := range b.core.batches {
			if x.Vantage != "here" || x.Seq != uint64(42+i) || len(x.Observations) != 0 || x.SentAt.IsZero() || len(x.Health.Impairments) != 0 {
				t.Errorf("batch %d: %+v", i, x)
			}
			if at := b.core.sent[i].Sub(b.start); at != time.Duration(i+1)*5*time.Second {
				t.Errorf("batch %d was sent after %s", i, at)
			}
		}
		if len(b.core.batches) != 4 {
			t.Errorf("%d batches in 21 s, want one in 5 s, empty as they are", len(b.core.batches))
		}
		b.core.mu.Unlock()

		b.core.watch(tasks(30_000)...) // 500 a second
		b.sleep(30 * time.Second)
		b.core.mu.Lock()
		defer b.core.mu.Unlock()
		most := 0
		for _, x := range b.core.batches {
			most = max(most, len(x.Observations))
		}
		if most != 1000 {
			t.Errorf("the largest of %d batches holds %d observations, want 1000", len(b.core.batches), most)
		}
		if h := b.core.batches[len(b.core.batches)-1].Health; h.Watched != 30_000 || h.InFlight == 0 {
			t.Errorf("health: %+v", h)
		}
	})
}

func TestCoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{QueueSize: 2000}, ok, tasks(1000)...)
		b.sleep(2 * time.Minute)
		before := len(b.core.observations())
		var attempts atomic.Int64
		b.core.set(func(c *core) {
			c.deliver = func(monitor.Batch) error {
				attempts.Add(1)
				return fmt.Errorf("store it: %w", monitor.ErrUnavailable)
			}
		})
		away := time.Now()
		b.sleep(20 * time.Minute)
		probes := len(b.checker.all())
		if probes < 4900 {
			t.Errorf("%d probes in 22 min: probing stopped without the core", probes)
		}
		if n := attempts.Load(); n < 60 || n > 100 {
			t.Errorf("%d attempts in 20 min, want one every 15 s", n)
		}
		s := b.Stats()
		if s.Queued != 2000 || s.Dropped == 0 {
			t.Errorf("%d queued, %d dropped, want the bound of 2000", s.Queued, s.Dropped)
		}
		if n := strings.Count(b.logged.String(), "batch not delivered"); n != 1 {
			t.Errorf("the core's absence was logged %d times", n)
		}
		b.core.set(func(c *core) { c.deliver = nil })
		b.sleep(time.Minute)
		obs := b.core.observations()
		if got := len(obs) + int(b.Stats().Dropped) + b.Stats().Queued; got < len(b.checker.all())-5 {
			t.Errorf("%d observations delivered, dropped or queued of %d", got, len(b.checker.all()))
		}
		if b.Stats().Queued > 30 {
			t.Errorf("%d observations still wait a minute after the core came back", b.Stats().Queued)
		}
		seen := map[string]int{}
		for i, o := range obs {
			seen[fmt.Sprint(o.Relay, o.At.UnixNano())]++
			if i > 0 && o.At.Before(obs[i-1].At) {
				t.Fatal("observations are out of order")
			}
		}
		for k, n := range seen {
			if n > 1 {
				t.Fatalf("%s was delivered %d times", k, n)
			}
		}
		// The newest were kept.
		kept := 0
		for _, o := range obs[before:] {
			if o.At.After(away.Add(18 * time.Minute)) {
				kept++
			}
		}
		if kept < 350 {
			t.Errorf("%d of the newest observations were kept", kept)
		}
	})
}

func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(100)...)
		b.sleep(12 * time.Second)
		b.core.set(func(c *core) { c.lose = true })
		b.sleep(5 * time.Second)
		b.core.set(func(c *core) { c.lose = false })
		b.sleep(3 * time.Minute)
		seen := map[monitor.RelayURL]int{}
		for _, o := range b.core.observations() {
			if at := b.checker.of(o.Relay); len(at) == 1 {
				seen[o.Relay]++
			}
		}
		for r, n := range seen {
			if n != 1 {
				t.Errorf("the one probe of %s was stored %d times", r, n)
			}
		}
		if len(seen) == 0 {
			t.Error("nothing was stored: the test shows nothing")
		}
	})
}

func TestSequenceUsedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(100)...)
		b.sleep(12 * time.Second)
		// An earlier process of this vantage got a last batch in.
		b.core.set(func(c *core) { c.tasks.LastSeq += 7 })
		b.sleep(3 * time.Minute)
		delivered := map[monitor.RelayURL]bool{}
		for _, o := range b.core.observations() {
			delivered[o.Relay] = true
		}
		if len(delivered) != 100 {
			t.Errorf("observations of %d of 100 relays were delivered", len(delivered))
		}
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, 8*time.Second, monitor.OutcomeOK)
		}, tasks(600)...)
		b.sleep(31*time.Second + 500*time.Millisecond)
		begun := len(b.checker.all())
		if took := b.stop(t); took > 8*time.Second {
			t.Errorf("it took %s to stop, want until the last probe in flight ended", took)
		}
		if n := len(b.checker.all()); n != begun {
			t.Errorf("%d probes were begun after the end", n-begun)
		}
		if n := len(b.core.observations(monitor.OutcomeOK)); n != begun {
			t.Errorf("%d of %d observations were delivered", n, begun)
		}
		if b.Run(t.Context()) == nil {
			t.Error("it can be run twice")
		}
	})
}

func TestShutdownOfHangingProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, time.Hour, monitor.OutcomeOK)
		}, tasks(60)...)
		b.sleep(30 * time.Second)
		if took := b.stop(t); took < 12*time.Second || took > 13*time.Second {
			t.Errorf("it took %s to stop, want 12 s", took)
		}
		if n := len(b.core.observations(monitor.OutcomeUnclear)); n == 0 {
			t.Error("what was cut off was not delivered")
		}
	})
}

func TestShutdownWithoutCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(60)...)
		b.core.set(func(c *core) { c.deliver = func(monitor.Batch) error { return monitor.ErrUnavailable } })
		b.sleep(30 * time.Second)
		if took := b.stop(t); took > 6*time.Second {
			t.Errorf("it took %s to stop, want 5 s for the flush", took)
		}
		if !strings.Contains(b.logged.String(), "observations lost at shutdown") {
			t.Error("it does not say that observations were lost")
		}
	})
}

// canaries over a dialler of ours.
func canaries(t *testing.T, texts ...string) (cs []vantage.Canary) {
	t.Helper()
	for _, s := range texts {
		c, err := vantage.ParseCanary(s)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	return cs
}

func TestNetworkAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		away, one := false, false
		set := func(a, o bool) { mu.Lock(); away, one = a, o; mu.Unlock() }
		get := func() (bool, bool) { mu.Lock(); defer mu.Unlock(); return away, one }
		cfg := vantage.Config{
			Canaries: canaries(t, "tcp://192.0.2.1:443", "tcp://198.51.100.1:443", "wss://canary.example.com"),
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				if away, one := get(); away || one && address == "192.0.2.1:443" {
					return nil, errors.New("no route")
				}
				a, b := net.Pipe()
				b.Close()
				return a, nil
			},
		}
		b := run(t, cfg, func(ctx context.Context, req probe.Request) monitor.Observation {
			if away, one := get(); away || one && req.Relay == "wss://canary.example.com/" {
				return fail(ctx, req)
			}
			return ok(ctx, req)
		}, tasks(100)...)
		b.sleep(6 * time.Minute)
		if h := b.core.newest().Health; len(h.Impairments) > 0 || time.Since(h.CanarySuccess) > 25*time.Second {
			t.Fatalf("all is well, and health is %+v", h)
		}
		set(false, true)
		b.sleep(time.Minute)
		if h := b.core.newest().Health; len(h.Impairments) > 0 {
			t.Errorf("one canary still answers: %+v", h)
		}

		set(true, false)
		began := time.Now()
		b.sleep(22 * time.Second)
		h := b.core.newest().Health
		if !slices.Contains(h.Impairments, monitor.ImpairedNetwork) || h.ImpairedSince.After(began) {
			t.Errorf("no canary answers: %+v, want the network impaired since before %s", h, began)
		}
		b.sleep(30 * time.Minute)
		// Failures that do not count keep the interval: nothing of the ladder.
		b.checker.forget()
		b.sleep(5 * time.Minute)
		if n := len(b.checker.all()) - 20; n < 95 || n > 135 {
			t.Errorf("%d probes of 100 relays in an interval without network", n)
		}

		set(false, false)
		back := time.Now()
		b.sleep(22 * time.Second)
		if h := b.core.newest().Health; len(h.Impairments) > 0 || !h.ImpairedSince.IsZero() {
			t.Errorf("the network is back: %+v", h)
		}
		var got []monitor.Impairment
		for _, r := range b.core.recoveries() {
			got = append(got, r.Impairment)
			if !r.At.After(back) || r.Impairment == monitor.ImpairedNetwork && r.Since.After(began) {
				t.Errorf("recovery %+v: went away at %s, came back at %s", r, began, back)
			}
		}
		if n := len(got); n == 0 || got[0] != monitor.ImpairedNetwork || slices.Contains(got[1:], monitor.ImpairedNetwork) {
			t.Errorf("recoveries %v, want one of the network", got)
		}
	})
}

func TestFailureSpike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		bad := false
		set := func(b bool) { mu.Lock(); bad = b; mu.Unlock() }
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			mu.Lock()
			defer mu.Unlock()
			if bad {
				return monitor.Observation{Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout}
			}
			return monitor.Observation{Outcome: monitor.OutcomeOK}
		}, tasks(1000)...)
		b.sleep(10 * time.Minute)
		set(true)
		began := time.Now()
		b.sleep(20 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedSpike}) || h.ImpairedSince.After(began.Add(5*time.Second)) {
			t.Fatalf("60 of 1000 relays failed: %+v", h)
		}
		b.sleep(2 * time.Minute)
		set(false)
		b.sleep(10 * time.Minute)
		if h := b.core.newest().Health; len(h.Impairments) > 0 {
			t.Errorf("it is over: %+v", h)
		}
		rs := b.core.recoveries()
		if len(rs) != 1 || rs[0].Impairment != monitor.ImpairedSpike || rs[0].Since.After(began.Add(5*time.Second)) {
			t.Errorf("recoveries %+v, want one of the spike", rs)
		}
	})
}

func TestClockJump(t *testing.T) {
	for _, tt := range []struct {
		name string
		jump time.Duration
	}{{"forwards", time.Hour}, {"backwards", -time.Hour}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := run(t, vantage.Config{}, ok, tasks(200)...)
				b.sleep(6 * time.Minute)
				b.moved.Store(int64(tt.jump))
				b.sleep(11 * time.Second)
				rs := b.core.recoveries()
				if len(rs) != 1 || rs[0].Impairment != monitor.ImpairedClock {
					t.Errorf("recoveries %+v, want one of the clock", rs)
				}
				if n := len(b.core.newest().Health.Impairments); n != 0 {
					t.Errorf("%d impairments remain", n)
				}
			})
		})
	}
}

func TestOwnLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, 10*time.Second, monitor.OutcomeFailed)
		}, tasks(120)...)
		b.sleep(8 * time.Second)
		b.RunLate(1500 * time.Millisecond)
		late := time.Now()
		b.sleep(6 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedLag}) {
			t.Errorf("1.5 s late: %+v", h)
		}
		b.sleep(20 * time.Second)
		if h := b.core.newest().Health; len(h.Impairments) > 0 {
			t.Errorf("no longer late: %+v", h)
		}
		if rs := b.core.recoveries(); len(rs) > 0 {
			t.Errorf("lag ends without a recovery, got %+v", rs)
		}
		doubted := 0
		for _, o := range b.core.observations() {
			want := monitor.OutcomeFailed
			if o.Start.Before(late) && o.At.After(late) {
				want = monitor.OutcomeUnclear
				doubted++
			}
			if o.Outcome != want || want == monitor.OutcomeUnclear && o.Cause != monitor.CauseLag {
				t.Errorf("probe from %s to %s around the lag: %s %s", o.Start.Sub(late), o.At.Sub(late), o.Outcome, o.Cause)
			}
		}
		if doubted == 0 {
			t.Error("no probe was in flight: the test shows nothing")
		}
	})
}

func TestHoldsBackWhileLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := prepare(t, vantage.Config{}, ok, tasks(6000)...)
		lag := time.Duration(0)
		var mu sync.Mutex
		b.Felt(func() time.Duration { mu.Lock(); defer mu.Unlock(); return lag })
		b.begin(t)
		b.sleep(20 * time.Second)
		before := b.Stats().Rate
		mu.Lock()
		lag = 200 * time.Millisecond
		mu.Unlock()
		b.sleep(3 * time.Second)
		b.checker.forget()
		b.sleep(5 * time.Second)
		if r := b.Stats().Rate; r > before/10 {
			t.Errorf("under load the pace is %.1f/s, was %.1f/s", r, before)
		}
		if n := len(b.checker.all()); n > 60 {
			t.Errorf("%d probes started in 5 s under load", n)
		}
		mu.Lock()
		lag = 0
		mu.Unlock()
		b.sleep(20 * time.Second)
		if r := b.Stats().Rate; r < before {
			t.Errorf("after the load the pace is %.1f/s, was %.1f/s", r, before)
		}
	})
}

func TestDescriptorsAndRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := prepare(t, vantage.Config{}, fail, tasks(120)...)
		b.checker.noRoots = true
		b.begin(t)
		b.sleep(6 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedRoots}) {
			t.Errorf("no roots: %+v", h)
		}
		b.sleep(30 * time.Second)
		if n := len(b.core.observations(monitor.OutcomeFailed)); n > 0 {
			t.Errorf("%d relays failed at a vantage without CA roots", n)
		}
		if !strings.Contains(b.logged.String(), "ca-certificates") {
			t.Error("the log does not say what to do")
		}
		b.stop(t)

		b = run(t, vantage.Config{}, fail, tasks(120)...)
		b.fds.Store(91)
		b.sleep(11 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedDescriptors}) {
			t.Errorf("91 of 100 descriptors: %+v", h)
		}
		b.fds.Store(50)
		b.sleep(11 * time.Second)
		if h := b.core.newest().Health; len(h.Impairments) > 0 {
			t.Errorf("50 of 100 descriptors: %+v", h)
		}
		if rs := b.core.recoveries(); len(rs) > 0 {
			t.Errorf("it ends without a recovery, got %+v", rs)
		}
	})
}

func TestPanicInAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, err := probe.New(probe.Config{
			Log:  slog.New(slog.DiscardHandler),
			Dial: func(context.Context, string, string) (net.Conn, error) { panic("a bug") },
		})
		if err != nil {
			t.Fatal(err)
		}
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay == relay(0) {
				return broken.Check(ctx, req)
			}
			return ok(ctx, req)
		}, tasks(20)...)
		b.sleep(70 * time.Second)
		if obs := b.core.observations(monitor.OutcomeUnclear); len(obs) == 0 || obs[0].Relay != relay(0) || obs[0].Cause != monitor.CauseLocalNetwork {
			t.Errorf("a probe that broke: %+v", obs)
		}
		if n := len(b.core.observations(monitor.OutcomeOK)); n < 19 {
			t.Errorf("%d other relays were probed", n)
		}
		if broken.Panics() == 0 {
			t.Error("it was not counted")
		}
	})
}

func TestTwoVantagesInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := run(t, vantage.Config{Name: "a"}, ok, tasks(50)...)
		b := run(t, vantage.Config{Name: "b"}, fail, tasks(50)...)
		a.sleep(4 * time.Minute)
		if n := len(a.core.observations(monitor.OutcomeFailed)); n > 0 {
			t.Errorf("%d failures of b are a's", n)
		}
		if n := len(b.core.observations(monitor.OutcomeOK)); n > 0 {
			t.Errorf("%d successes of a are b's", n)
		}
		same := 0
		for i := range 50 {
			if a.checker.of(relay(i))[0].Equal(b.checker.of(relay(i))[0]) {
				same++
			}
		}
		if same > 5 {
			t.Errorf("%d of 50 relays were probed by both at the same time", same)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	_, err := vantage.New(vantage.Config{Rate: -1, PerIP: -2, BatchEvery: -time.Second, Networks: map[monitor.Network]int{monitor.Tor: 0}}, &checker{}, &core{}, log)
	if !errors.Is(err, monitor.ErrInvalid) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"name", "rate", "per address", "batch interval", "tor"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not speak of %s: %v", want, err)
		}
	}
}

func TestNameCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var addrs atomic.Int64 // that the name has
		addrs.Store(1)
		b := run(t, vantage.Config{
			Canaries: canaries(t, "dns://canary.example"),
			Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
				if name != "canary.example" {
					return nil, errors.New("another name")
				}
				return make([]netip.Addr, addrs.Load()), nil
			},
		}, ok, tasks(10)...)
		b.sleep(25 * time.Second)
		if h := b.core.newest().Health; len(h.Impairments) > 0 || h.CanarySuccess.IsZero() {
			t.Errorf("the name has an address: %+v", h)
		}
		addrs.Store(0)
		b.sleep(25 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedNetwork}) {
			t.Errorf("the name has no address: %+v", h)
		}
		if !strings.Contains(b.logged.String(), `msg="vantage impaired"`) {
			t.Errorf("the log does not say so:\n%s", b.logged.String())
		}
	})
}

func TestParseCanary(t *testing.T) {
	for _, s := range append(vantage.DefaultCanaries(), "wss://relay.example.com", "TCP://192.0.2.1:443") {
		if c, err := vantage.ParseCanary(s); err != nil || c.String() == "" {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"", "relay.example.com", "http://relay.example.com", "tcp://192.0.2.1", "tcp://:443", "dns://", "dns://a/b", "wss://127.0.0.1/"} {
		if _, err := vantage.ParseCanary(s); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("%q: error %v, want that it is invalid", s, err)
		}
	}
}
