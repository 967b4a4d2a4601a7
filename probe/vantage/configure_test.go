package vantage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// every is the default cadence with another interval.
func every(d time.Duration) monitor.Cadence {
	c := monitor.DefaultCadence()
	c.Interval = d
	return c
}

// configure hands b's checker back with another configuration.
func (b *bench) configure(t *testing.T, cfg vantage.Config) {
	t.Helper()
	if err := b.Configure(cfg, b.checker); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// Another interval holds at once, for all that is planned, and without a burst.
func TestConfigureInterval(t *testing.T) {
	for name, interval := range map[string]time.Duration{"shorter": time.Minute, "longer": 20 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 1200
				b := run(t, vantage.Config{}, ok, tasks(n)...)
				b.sleep(12*time.Minute + 34*time.Second)
				b.checker.forget()
				b.configure(t, vantage.Config{Cadence: every(interval)})
				changed := time.Now()
				b.sleep(interval + time.Second)
				perSecond := map[int]int{}
				for _, a := range b.checker.all() {
					perSecond[int(a.at.Sub(changed)/time.Second)]++
				}
				for i := range n {
					if at := b.checker.of(relay(i)); len(at) < 1 || len(at) > 2 {
						t.Fatalf("%s was probed %d times in the first %s, want once", relay(i), len(at), interval)
					}
				}
				even := n / int(interval/time.Second)
				for s, probes := range perSecond {
					if probes > 2*even+12 {
						t.Errorf("%d probes in second %d, want about %d: a burst", probes, s, even)
					}
				}
				b.checker.forget()
				b.sleep(2 * interval)
				for i := range 20 {
					if at := b.checker.of(relay(i)); len(at) != 2 || at[1].Sub(at[0]).Round(time.Second) != interval {
						t.Errorf("%s was probed at %v, want every %s", relay(i), at, interval)
					}
				}
			})
		})
	}
}

// What is due for another reason than the interval stays due then.
func TestConfigureForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet, failing, returning := relay(0), relay(1), relay(2)
		var looks atomic.Int32
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			switch req.Relay {
			case quiet:
				o := answer(ctx, 100*time.Millisecond, monitor.OutcomeRestricted)
				o.Cause, o.RetryAfter = monitor.CauseHTTP429, 40*time.Minute
				return o
			case failing:
				return fail(ctx, req)
			case returning:
				if looks.Add(1) < 3 {
					return fail(ctx, req)
				}
			}
			return ok(ctx, req)
		}, tasks(200)...)
		// Until the third look of the one that returns, 90 s after its first.
		for looks.Load() < 3 {
			b.sleep(time.Second)
		}
		b.configure(t, vantage.Config{Cadence: every(time.Minute)})
		b.sleep(25 * time.Second)
		b.configure(t, vantage.Config{Cadence: every(10 * time.Minute)})
		b.sleep(4 * time.Minute)
		b.configure(t, vantage.Config{Cadence: every(3 * time.Minute)})
		b.sleep(28 * time.Minute)

		if at := b.checker.of(quiet); len(at) != 1 {
			t.Errorf("a relay that wanted to be left alone for 40 min was probed at %v", at)
		}
		at := b.checker.of(failing)
		want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute}
		if len(at) < len(want)+1 {
			t.Fatalf("a failing relay was probed %d times", len(at))
		}
		for i, cooldown := range want {
			if gap := at[i+1].Sub(at[i]); gap < cooldown || gap > cooldown+time.Second {
				t.Errorf("probe %d of the failing relay came %s after the one before, want the cooldown of %s", i+2, gap, cooldown)
			}
		}
		if at := b.checker.of(returning); len(at) < 4 || at[3].Sub(at[2]).Round(time.Second) != 30*time.Second {
			t.Errorf("a relay that returned was probed at %v, want a second look after 30 s", at)
		}
		b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{quiet} })
		b.sleep(8 * time.Second)
		if at := b.checker.of(quiet); len(at) != 1 {
			t.Errorf("an expedited probe of the relay that wants to be left alone was made: %v", at)
		}
		b.sleep(10 * time.Minute)
		if at := b.checker.of(quiet); len(at) != 2 || at[1].Sub(at[0]) < 40*time.Minute || at[1].Sub(at[0]) > 44*time.Minute {
			t.Errorf("the relay that wanted to be left alone for 40 min was probed at %v", at)
		}
	})
}

// What is in flight ends under the old checker; what starts meanwhile has the new
// one.
func TestConfigureChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		b := prepare(t, vantage.Config{}, nil, tasks(20)...)
		second := &checker{check: func(ctx context.Context, _ probe.Request) monitor.Observation {
			select {
			case <-hang:
			case <-ctx.Done():
			}
			return monitor.Observation{Outcome: monitor.OutcomeOK, Evidence: "the second"}
		}}
		if err := b.Configure(vantage.Config{}, second); err != nil {
			t.Fatal(err)
		}
		b.begin(t)
		b.sleep(10 * time.Second)
		if n := second.mostAt(""); n != 20 || len(b.checker.all()) > 0 {
			t.Fatalf("%d probes hang at the second checker, %d came to the first", n, len(b.checker.all()))
		}
		third := &checker{}
		if err := b.Configure(vantage.Config{}, third); err != nil {
			t.Fatal(err)
		}
		b.core.watch(tasks(40)...)
		b.sleep(30 * time.Second)
		if n := len(third.all()); n < 20 {
			t.Errorf("%d probes of 20 further relays came to the third checker", n)
		}
		if n := len(second.all()); n != 20 {
			t.Errorf("%d probes came to the second, want only the 20 that hang there", n)
		}
		close(hang)
		b.sleep(10 * time.Second)
		if n := len(slices.DeleteFunc(b.core.observations(), func(o monitor.Observation) bool { return o.Evidence != "the second" })); n != 20 {
			t.Errorf("the core has %d of 20 observations of the second checker", n)
		}
		b.stop(t)
		if err := b.Configure(vantage.Config{}, third); !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestConfigureBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Forty relays at one address, whose probes take a minute each.
		var same []monitor.Task
		for i := range 40 {
			same = append(same, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("ws://20.0.0.1:%d/", 7000+i))})
		}
		b := run(t, vantage.Config{PerIP: 2, Networks: map[monitor.Network]int{monitor.Clearnet: 10}}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, time.Minute, monitor.OutcomeOK)
		}, same...)
		b.sleep(5 * time.Second)
		if n := b.checker.mostAt(""); n != 2 {
			t.Fatalf("%d at one address", n)
		}
		b.configure(t, vantage.Config{PerIP: 30, PerSubnet: 30, Networks: map[monitor.Network]int{monitor.Clearnet: 10}})
		b.sleep(5 * time.Second)
		if n := b.checker.mostAt(""); n != 10 {
			t.Errorf("%d in flight, want more permits at once, and the ten of the network", n)
		}
		b.configure(t, vantage.Config{PerIP: 30, PerSubnet: 30, Networks: map[monitor.Network]int{monitor.Clearnet: 25, monitor.Tor: 5}})
		b.sleep(5 * time.Second)
		if n := b.checker.mostAt(""); n != 25 {
			t.Errorf("%d in flight, want 25", n)
		}
		// Fewer: none is started until there is room again.
		started := len(b.checker.all())
		b.configure(t, vantage.Config{PerIP: 1, PerSubnet: 1})
		b.sleep(40 * time.Second)
		if n := len(b.checker.all()); n != started {
			t.Errorf("%d were started beyond the new bound", n-started)
		}
		b.checker.mu.Lock()
		b.checker.most[""] = 0
		b.checker.mu.Unlock()
		b.sleep(5 * time.Minute)
		if n := b.checker.mostAt(""); n != 1 {
			t.Errorf("%d at a time, want one", n)
		}
	})
}

func TestConfigureRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{Rate: 2}, ok, tasks(600)...)
		b.sleep(30 * time.Second)
		if n := len(b.checker.all()); n < 55 || n > 65 {
			t.Fatalf("%d probes in 30 s at two a second", n)
		}
		b.configure(t, vantage.Config{})
		b.sleep(40 * time.Second)
		if n := len(b.checker.all()); n < 600 {
			t.Errorf("%d probes of 600 relays, want all of them once nothing bounds the rate", n)
		}
		b.checker.forget()
		b.configure(t, vantage.Config{Rate: 1})
		b.sleep(time.Minute)
		if n := len(b.checker.all()); n < 55 || n > 65 {
			t.Errorf("%d probes in a minute at one a second", n)
		}
	})
}

func TestConfigureCanaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := 0
		away := vantage.Config{
			Canaries: canaries(t, "tcp://192.0.2.1:443"), SelfCheckEvery: 4 * time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return nil, errors.New("no route")
			},
		}
		b := run(t, vantage.Config{}, ok, tasks(50)...)
		b.sleep(time.Minute)
		impaired := func() bool {
			return slices.Contains(b.core.newest().Health.Impairments, monitor.ImpairedNetwork)
		}
		b.configure(t, away)
		b.sleep(20 * time.Second)
		mu.Lock()
		n := asked
		mu.Unlock()
		if n < 5 || n > 6 || !impaired() {
			t.Errorf("canaries that fail were asked %d times in 20 s, impaired: %v", n, impaired())
		}
		slower := away
		slower.SelfCheckEvery = time.Hour
		b.configure(t, slower)
		b.sleep(time.Minute)
		mu.Lock()
		more := asked - n
		mu.Unlock()
		if more != 1 || !impaired() {
			t.Errorf("asked %d times more in a minute, want at once and then not for an hour; impaired: %v", more, impaired())
		}
		b.configure(t, vantage.Config{})
		b.sleep(6 * time.Second)
		if impaired() {
			t.Errorf("without canaries the network counts as available: %+v", b.core.newest().Health)
		}
		if r := b.core.recoveries(); len(r) != 1 || r[0].Impairment != monitor.ImpairedNetwork {
			t.Errorf("recoveries: %+v", r)
		}
	})
}

func TestConfigureQueueAndBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(200)...)
		b.core.set(func(c *core) { c.deliver = func(monitor.Batch) error { return monitor.ErrUnavailable } })
		b.sleep(time.Minute)
		before := b.Stats()
		b.configure(t, vantage.Config{QueueSize: 50, BatchEvery: time.Minute})
		if s := b.Stats(); s.Queued != 50 || s.Dropped != uint64(before.Queued-50) {
			t.Errorf("%d queued and %d dropped of %d, want the newest 50", s.Queued, s.Dropped, before.Queued)
		}
		b.core.set(func(c *core) { c.deliver = nil })
		b.sleep(10 * time.Minute)
		b.core.mu.Lock()
		sent := slices.Clone(b.core.sent)
		b.core.mu.Unlock()
		if gap := sent[len(sent)-1].Sub(sent[len(sent)-2]); gap != time.Minute {
			t.Errorf("batches are %s apart, want a minute", gap)
		}
	})
}

// Expedited probes that wait are made as far as their budget goes, and the slots
// after them, and of those that were not made, are the new cadence's.
func TestConfigureKeepsExpedites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(300)...)
		b.sleep(11 * time.Minute)
		var all []monitor.RelayURL
		for i := range 200 {
			all = append(all, relay(i))
		}
		b.core.set(func(c *core) { c.expedite = all })
		for b.Stats().Expedited == 0 {
			b.sleep(100 * time.Millisecond)
		}
		b.configure(t, vantage.Config{Cadence: every(time.Hour)})
		began := b.Stats().Expedited
		b.sleep(2 * time.Minute)
		s := b.Stats()
		if s.Expedited < began+15 || s.Expedited+s.ExpeditesDropped < 195 {
			t.Errorf("of 200 expedited probes %d were made, %d of them before, and %d dropped", s.Expedited, began, s.ExpeditesDropped)
		}
		b.checker.forget()
		b.sleep(time.Hour)
		for _, r := range all {
			if n := len(b.checker.of(r)); n != 1 {
				t.Fatalf("%s was probed %d times in the hour that is the interval now", r, n)
			}
		}
	})
}

func TestConfigureRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, ok, tasks(10)...)
		b.sleep(2 * time.Minute)
		next := &checker{}
		err := b.Configure(vantage.Config{
			Rate: -1, PerIP: -1, BatchEvery: -1, Cadence: monitor.Cadence{Interval: -1},
			Networks: map[monitor.Network]int{monitor.Clearnet: 0},
		}, next)
		if !errors.Is(err, monitor.ErrInvalid) || len(strings.Split(err.Error(), "\n")) != 5 {
			t.Errorf("got %v, want all five problems", err)
		}
		if err := b.Configure(vantage.Config{}, nil); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("without a checker: %v", err)
		}
		b.checker.forget()
		b.sleep(5 * time.Minute)
		if len(next.all()) != 0 || len(b.checker.all()) != 10 {
			t.Errorf("%d probes by the refused checker, %d by the other; want nothing changed", len(next.all()), len(b.checker.all()))
		}
	})
}

// The detector watches many calls beside a vantage at work, which goes on by the
// last of them.
func TestConfigureAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{Canaries: canaries(t, "wss://canary.example.com")}, ok, tasks(500)...)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := range 50 {
					cfg := vantage.Config{Cadence: every(time.Duration(1+(i+k)%5) * time.Minute), Rate: float64(20 * k), PerIP: 1 + k%3}
					if k%2 == 0 {
						cfg.Canaries = canaries(t, "wss://canary.example.com")
					}
					if err := b.Configure(cfg, b.checker); err != nil {
						t.Error(err)
					}
					elapse(time.Second)
				}
			})
		}
		wg.Wait()
		b.configure(t, vantage.Config{Cadence: every(2 * time.Minute)})
		b.sleep(2 * time.Minute)
		b.checker.forget()
		b.sleep(6 * time.Minute)
		for i := range 500 {
			if n := len(b.checker.of(relay(i))); n != 3 {
				t.Fatalf("%s was probed %d times in six minutes, want the two minutes of the last configuration", relay(i), n)
			}
		}
	})
}
