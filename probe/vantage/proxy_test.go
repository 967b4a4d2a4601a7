package vantage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

var both = map[monitor.Network]int{monitor.Clearnet: 200, monitor.Tor: 32}

// proxied is a tor proxy that may be told to go away, and relays that answer
// through it: gone does not show in their answers. It says how it was when it was
// asked, slow later.
type proxied struct {
	away, gone atomic.Bool
	slow       time.Duration
}

func (p *proxied) proxies() map[monitor.Network]func(context.Context) error {
	return map[monitor.Network]func(context.Context) error{monitor.Tor: func(context.Context) error {
		away := p.away.Load() || p.gone.Load()
		elapse(p.slow)
		if away {
			return errors.New("dial tcp 127.0.0.1:9050: connection refused")
		}
		return nil
	}}
}

func (p *proxied) check(ctx context.Context, req probe.Request) monitor.Observation {
	if req.Relay.Network() == monitor.Tor {
		o := answer(ctx, 2*time.Second, monitor.OutcomeOK)
		if p.away.Load() {
			o = monitor.Observation{Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout}
		}
		return o
	}
	return ok(ctx, req)
}

// A thousand dead onions keep to the room of their own network: the others are
// probed as if they were not there.
func TestDeadOnionsTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := tasks(300)
		for i := range 1000 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		var now, most atomic.Int64
		b := run(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Clearnet: 8, monitor.Tor: 32}},
			func(ctx context.Context, req probe.Request) monitor.Observation {
				if req.Relay.Network() == monitor.Clearnet {
					return ok(ctx, req)
				}
				for n := now.Add(1); ; {
					m := most.Load()
					if n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				defer now.Add(-1)
				return answer(ctx, 45*time.Second, monitor.OutcomeFailed)
			}, ts...)
		b.sleep(time.Hour + 2*time.Minute)
		for i := range 300 {
			if n := len(b.checker.of(relay(i))); n < 12 || n > 14 {
				t.Errorf("%s was probed %d times in an hour", relay(i), n)
			}
		}
		for _, o := range b.core.observations() {
			if o.Relay.Network() == monitor.Clearnet && (o.Outcome != monitor.OutcomeOK || o.Lag > time.Second) {
				t.Errorf("%s: %s %s, %s late at %s", o.Relay, o.Outcome, o.Cause, o.Lag, o.Start.Sub(b.start))
			}
		}
		if n := most.Load(); n != 32 {
			t.Errorf("%d onions at a time, want all the room that they have: 32", n)
		}
		if h := b.core.newest().Health; len(h.Impairments) > 0 {
			t.Errorf("dead onions impair the vantage: %+v", h)
		}
		if s := b.Stats(); s.InFlight[monitor.Tor] != 32 || len(s.InFlight) != 2 {
			t.Errorf("in flight: %v", s.InFlight)
		}
	})
}

// All URLs of one onion share its permits.
func TestPermitsOfAnOnion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := onion(7).Host()
		var ts []monitor.Task
		for i := range 8 {
			ts = append(ts, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("ws://%s:%d/", host, 8000+i))}, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("ws://%s/path%d", host, i))})
		}
		b := run(t, vantage.Config{Networks: both}, func(ctx context.Context, req probe.Request) monitor.Observation {
			// The proxy resolves the name: there is no address.
			if _, ok := req.Admit(ctx, netip.Addr{}); !ok {
				return monitor.Observation{Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload}
			}
			return answer(ctx, 10*time.Second, monitor.OutcomeOK)
		}, ts...)
		b.sleep(2 * time.Minute)
		if n := b.checker.mostAt(host); n != 2 {
			t.Errorf("%d connections at a time to one onion, want 2", n)
		}
		for _, task := range ts {
			if len(b.checker.of(task.Relay)) == 0 {
				t.Errorf("%s never had its turn", task.Relay)
			}
		}
	})
}

// A proxy that goes away takes its network with it and nothing else: no relay
// fails for it, not even in the seconds before it is noticed.
func TestProxyAway(t *testing.T) {
	for name, gap := range map[string]time.Duration{"just after it was asked": 200 * time.Millisecond, "later": 7 * time.Second, "just before": 14 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &proxied{slow: 4 * time.Second}
				ts := tasks(100)
				for i := range 300 {
					ts = append(ts, monitor.Task{Relay: onion(i)})
				}
				b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, p.check, ts...)
				b.sleep(10 * time.Minute) // a whole number of rounds
				if h := b.core.newest().Health; len(h.Down) != 0 || !slices.Equal(h.Networks, []monitor.Network{monitor.Clearnet, monitor.Tor}) {
					t.Fatalf("all is well, and health is %+v", h)
				}
				b.sleep(gap)
				b.checker.forget()
				p.away.Store(true)
				b.sleep(20 * time.Second)
				began := 0
				for _, a := range b.checker.all() {
					if a.Relay.Network() == monitor.Tor {
						began++
					}
				}
				if began == 0 && gap < 10*time.Second {
					t.Error("no onion was probed before the proxy was missed: the test shows nothing")
				}
				h := b.core.newest().Health
				if !slices.Equal(h.Down, []monitor.Network{monitor.Tor}) || len(h.Impairments) != 0 {
					t.Errorf("health is %+v, want tor down and nothing impaired", h)
				}
				b.checker.forget()
				b.sleep(20 * time.Minute)
				for _, a := range b.checker.all() {
					if a.Relay.Network() == monitor.Tor {
						t.Fatalf("%s was probed %s after its proxy went away", a.Relay, a.at.Sub(b.start))
					}
				}
				for i := range 100 {
					if n := len(b.checker.of(relay(i))); n != 4 {
						t.Errorf("%s was probed %d times in 20 min", relay(i), n)
					}
				}
				skipped := map[monitor.RelayURL]int{}
				for _, o := range b.core.observations(monitor.OutcomeSkipped) {
					if o.Relay.Network() != monitor.Tor || o.Cause != monitor.CauseImpaired || !strings.Contains(o.Evidence, "tor") || strings.Contains(o.Evidence, "127.0.0.1") {
						t.Fatalf("skipped: %+v", o)
					}
					skipped[o.Relay]++
				}
				if len(skipped) != 300 || skipped[onion(3)] < 3 || skipped[onion(3)] > 6 {
					t.Errorf("%d onions were skipped, one of them %d times, want all of them at each slot", len(skipped), skipped[onion(3)])
				}
				if n := b.Stats().ProxySkips; n < 1200 || n > 1800 {
					t.Errorf("%d skips are counted", n)
				}
				b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{onion(5)} })
				b.sleep(8 * time.Second)
				if n := len(b.checker.of(onion(5))); n != 0 || b.Stats().Expedited != 0 {
					t.Error("an expedited probe was made without the proxy")
				}

				p.away.Store(false)
				b.checker.forget()
				b.sleep(5*time.Minute + 20*time.Second)
				if h := b.core.newest().Health; len(h.Down) != 0 {
					t.Errorf("the proxy is back: %+v", h)
				}
				perSecond := map[time.Duration]int{}
				for i := range 300 {
					at := b.checker.of(onion(i))
					if len(at) < 1 || len(at) > 2 {
						t.Errorf("%s was probed %d times in the interval after the proxy came back", onion(i), len(at))
						continue
					}
					perSecond[at[0].Sub(b.start)/time.Second]++
				}
				for s, n := range perSecond {
					if n > 10 {
						t.Errorf("%d onions in second %d: a burst", n, s)
					}
				}
				for _, o := range b.core.observations(monitor.OutcomeFailed) {
					t.Fatalf("%s failed at %s for the proxy that was away: %s", o.Relay, o.At.Sub(b.start), o.Evidence)
				}
				if n := strings.Count(b.logged.String(), "proxy does not answer"); n != 1 {
					t.Errorf("the log says %d times that the proxy does not answer", n)
				}
			})
		})
	}
}

// Failures of onions count once the proxy was seen to work afterwards, and keep
// their ladder.
func TestProxyVouches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		bad := onion(0)
		ts := append(tasks(20), monitor.Task{Relay: bad})
		for i := range 200 {
			ts = append(ts, monitor.Task{Relay: onion(1 + i)})
		}
		b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay == bad {
				return fail(ctx, req)
			}
			return p.check(ctx, req)
		}, ts...)
		b.sleep(30 * time.Minute)
		at := b.checker.of(bad)
		want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute}
		if len(at) < len(want)+1 {
			t.Fatalf("a failing onion was probed %d times", len(at))
		}
		for i, cooldown := range want {
			if gap := at[i+1].Sub(at[i]); gap < cooldown || gap > cooldown+time.Second {
				t.Errorf("probe %d came %s after the one before, want the cooldown of %s", i+2, gap, cooldown)
			}
		}
		if n := len(b.core.observations(monitor.OutcomeFailed)); n < len(at)-1 {
			t.Errorf("%d of %d failures reached the core", n, len(at))
		}
		if n := len(b.core.observations(monitor.OutcomeUnclear)); n != 0 {
			t.Errorf("%d observations are unclear", n)
		}

		// Taken off the list, and put back, while its failure waits.
		for b.Stats().Held == 0 {
			b.sleep(100 * time.Millisecond)
		}
		b.core.watch(slices.DeleteFunc(slices.Clone(ts), func(t monitor.Task) bool { return t.Relay == bad })...)
		b.sleep(time.Minute)
		if n := b.core.newest().Health.Watched; n != len(ts)-1 {
			t.Errorf("%d are watched, want %d", n, len(ts)-1)
		}
		b.core.watch(ts...)
		b.checker.forget()
		b.sleep(6 * time.Minute)
		if n := len(b.checker.of(bad)); n < 3 {
			t.Errorf("it was probed %d times after it had come back on the list", n)
		}
	})
}

// Many onions that fail though their proxy works are no failure of this vantage's
// own network.
func TestFailingOnionsAreNoSpike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dead atomic.Bool
		ts := tasks(50)
		for i := range 300 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		p := &proxied{}
		b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if dead.Load() && req.Relay.Network() == monitor.Tor {
				return fail(ctx, req)
			}
			return ok(ctx, req)
		}, ts...)
		b.sleep(12 * time.Minute)
		dead.Store(true)
		b.sleep(6 * time.Minute)
		if n := len(b.core.observations(monitor.OutcomeFailed)); n < 250 {
			t.Fatalf("%d failures: the test shows nothing", n)
		}
		if h := b.core.newest().Health; len(h.Impairments) != 0 {
			t.Errorf("%+v", h)
		}
	})
}

// Dead onions do not all come back with their proxy.
func TestProxyBackWithoutTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		dead := func(r monitor.RelayURL) bool { return r < onion(100) }
		var ts []monitor.Task
		for i := range 150 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if dead(req.Relay) {
				return fail(ctx, req)
			}
			return p.check(ctx, req)
		}, ts...)
		b.sleep(2 * time.Hour)
		p.gone.Store(true)
		b.sleep(2 * time.Hour)
		p.gone.Store(false)
		b.checker.forget()
		b.sleep(6 * time.Minute)
		n, live := 0, 0
		for _, a := range b.checker.all() {
			if dead(a.Relay) {
				n++
			} else {
				live++
			}
		}
		if n > 30 || live < 50 {
			t.Errorf("%d dead onions and %d others were probed in the interval after the proxy came back, want about ten and fifty", n, live)
		}
	})
}

// A proxy that never answers in time is away from the start, and what waits for
// its word at the end is handed on, not believed.
func TestProxyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		b := run(t, vantage.Config{Networks: both, Proxies: map[monitor.Network]func(context.Context) error{monitor.Tor: hang}},
			func(ctx context.Context, req probe.Request) monitor.Observation { return fail(ctx, req) },
			monitor.Task{Relay: onion(1)}, monitor.Task{Relay: onion(2)}, monitor.Task{Relay: relay(1)})
		b.sleep(2 * time.Second)
		if s := b.Stats(); s.Held != 2 {
			t.Errorf("%d failures wait for the proxy's word, want 2", s.Held)
		}
		b.sleep(4 * time.Second)
		if s := b.Stats(); s.Held != 0 {
			t.Errorf("%d failures still wait after five seconds", s.Held)
		}
		b.sleep(10 * time.Second)
		if h := b.core.newest().Health; !slices.Equal(h.Down, []monitor.Network{monitor.Tor}) {
			t.Errorf("health: %+v", h)
		}
		b.stop(t)
		for _, o := range b.core.observations() {
			if o.Relay.Network() == monitor.Tor && o.Outcome == monitor.OutcomeFailed {
				t.Errorf("%s failed: %s", o.Relay, o.Evidence)
			}
		}

		// It ends in the first round: nobody has vouched for anything.
		b = run(t, vantage.Config{Networks: both, Proxies: map[monitor.Network]func(context.Context) error{monitor.Tor: hang}}, fail, monitor.Task{Relay: onion(1)})
		b.sleep(2 * time.Second)
		if took := b.stop(t); took > time.Second {
			t.Errorf("it took %s to stop", took)
		}
		obs := b.core.observations()
		if len(obs) != 1 || obs[0].Outcome != monitor.OutcomeUnclear || obs[0].Cause != monitor.CauseLocalNetwork {
			t.Errorf("at the end the core has %+v, want one that is unclear", obs)
		}
	})
}

// Networks come and go with a configuration.
func TestConfigureNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		ts := tasks(100)
		for i := range 60 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		slow := func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay.Network() == monitor.Tor {
				return answer(ctx, 20*time.Second, monitor.OutcomeOK)
			}
			return ok(ctx, req)
		}
		b := run(t, vantage.Config{}, slow, ts...)
		b.sleep(12 * time.Minute)
		onions := func() (n int) {
			for i := range 60 {
				if len(b.checker.of(onion(i))) > 0 {
					n++
				}
			}
			return n
		}
		if h := b.core.newest().Health; onions() != 0 || !slices.Equal(h.Networks, []monitor.Network{monitor.Clearnet}) {
			t.Fatalf("%d onions were probed without a proxy; health %+v", onions(), h)
		}
		b.configure(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Clearnet: 100, monitor.Tor: 10}, Proxies: p.proxies()})
		b.sleep(3*time.Minute + 30*time.Second)
		if n := onions(); n != 60 {
			t.Errorf("%d of 60 onions were probed once there was a proxy", n)
		}
		if h := b.core.newest().Health; !slices.Equal(h.Networks, []monitor.Network{monitor.Clearnet, monitor.Tor}) {
			t.Errorf("health %+v", h)
		}
		// Until some are under way and others wait.
		for s := b.Stats(); s.InFlight[monitor.Tor] < 2; s = b.Stats() {
			b.sleep(time.Second)
		}
		under := b.Stats().InFlight[monitor.Tor]
		b.checker.forget()
		before := len(b.core.observations(monitor.OutcomeOK))
		b.configure(t, vantage.Config{})
		b.sleep(30 * time.Second)
		if n := onions(); n != 0 {
			t.Errorf("%d onions were probed without a lane", n)
		}
		ended := 0
		for _, o := range b.core.observations(monitor.OutcomeOK)[before:] {
			if o.Relay.Network() == monitor.Tor {
				ended++
			}
		}
		if ended < under {
			t.Errorf("%d of %d onions that were being probed were reported", ended, under)
		}
		b.sleep(2 * time.Hour)
		rows := map[monitor.RelayURL]int{}
		for _, o := range b.core.observations(monitor.OutcomeSkipped) {
			if o.Cause != monitor.CauseNoProxy {
				t.Fatalf("skipped with %s", o.Cause)
			}
			rows[o.Relay]++
		}
		if len(rows) != 60 || onions() != 0 {
			t.Errorf("%d onions have rows that say that there is no proxy, %d were probed", len(rows), onions())
		}
		if s := b.Stats(); len(s.InFlight) != 1 {
			t.Errorf("in flight: %v", s.InFlight)
		}
		b.configure(t, vantage.Config{Networks: both})
		b.sleep(5*time.Minute + 30*time.Second)
		if n := onions(); n != 60 {
			t.Errorf("%d of 60 onions were probed in the interval after the proxy had come back", n)
		}
		for i := range 100 {
			if n := len(b.checker.of(relay(i))); n < 24 || n > 26 {
				t.Errorf("%s was probed %d times in two hours in which networks came and went", relay(i), n)
			}
		}
	})
}

// A proxy that is away, and is configured away, holds back nothing more.
func TestConfigureProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		p.gone.Store(true)
		b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, p.check, monitor.Task{Relay: onion(1)})
		b.sleep(10 * time.Minute)
		if len(b.core.newest().Health.Down) != 1 {
			t.Fatal("the proxy is not missed: the test shows nothing")
		}
		b.checker.forget()
		b.configure(t, vantage.Config{Networks: both})
		b.sleep(6 * time.Minute)
		if h := b.core.newest().Health; len(h.Down) != 0 || len(b.checker.of(onion(1))) == 0 {
			t.Errorf("without a proxy to ask: %+v, and %d probes", h, len(b.checker.of(onion(1))))
		}
	})
}

// Behind a proxy, names are resolved on this side of it: they tell nothing.
func TestCanariesBehindAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var through atomic.Int64
		cfg := vantage.Config{
			Proxied:  true,
			Canaries: canaries(t, "dns://canary.example", "tcp://192.0.2.1:443"),
			Dial: func(context.Context, string, string) (net.Conn, error) {
				through.Add(1)
				return nil, errors.New("the proxy is away")
			},
			Resolve: func(context.Context, string) ([]netip.Addr, error) {
				t.Error("a name was resolved to see whether the proxy works")
				return make([]netip.Addr, 1), nil
			},
		}
		b := run(t, cfg, ok, tasks(5)...)
		b.sleep(25 * time.Second)
		if h := b.core.newest().Health; through.Load() == 0 || !slices.Equal(h.Impairments, []monitor.Impairment{monitor.ImpairedNetwork}) {
			t.Errorf("the proxy is away: %+v", h)
		}
		if cfg.Canaries[0].String() != "dns://canary.example" || cfg.Canaries[1].String() != "tcp://192.0.2.1:443" {
			t.Error("the caller's canaries were changed")
		}
		only := vantage.Config{Name: "b", Proxied: true, Canaries: canaries(t, "dns://canary.example")}
		if err := b.Configure(only, b.checker); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "canaries") {
			t.Errorf("dns canaries alone: %v", err)
		}
		only.Canaries = nil
		if err := b.Configure(only, b.checker); err != nil {
			t.Errorf("none at all: %v", err)
		}
	})
}

// A proxy that is away for one round only: what was under way then is not believed
// for its coming back.
func TestProxyBlip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		var blips atomic.Int64
		b := run(t, vantage.Config{Networks: both, Proxies: p.proxies()}, func(ctx context.Context, req probe.Request) monitor.Observation {
			before := blips.Load()
			o := answer(ctx, 25*time.Second, monitor.OutcomeOK)
			if blips.Load() != before {
				o.Outcome, o.Cause = monitor.OutcomeFailed, monitor.CauseReset
			}
			return o
		}, monitor.Task{Relay: onion(1)}, monitor.Task{Relay: onion(2)}, monitor.Task{Relay: onion(3)})
		for range 20 {
			for b.Stats().InFlight[monitor.Tor] == 0 {
				b.sleep(time.Second)
			}
			// Rounds are at whole quarters of a minute.
			b.sleep(15*time.Second - time.Since(b.start)%(15*time.Second) - time.Second)
			blips.Add(1)
			p.gone.Store(true)
			b.sleep(2 * time.Second)
			p.gone.Store(false)
			b.sleep(time.Minute)
		}
		if len(b.core.observations(monitor.OutcomeUnclear)) < 10 {
			t.Error("nothing was under way: the test shows nothing")
		}
		for _, o := range b.core.observations(monitor.OutcomeFailed) {
			t.Errorf("%s failed from %s to %s: %s", o.Relay, o.Start.Sub(b.start), o.At.Sub(b.start), o.Evidence)
		}
	})
}

// What waits for room when the proxy goes away is given up with it.
func TestProxyAwayWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &proxied{}
		var ts []monitor.Task
		for i := range 40 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		b := run(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Tor: 1}, Proxies: p.proxies()}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, 10*time.Second, monitor.OutcomeOK)
		}, ts...)
		b.sleep(time.Minute)
		b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{onion(0), onion(1), onion(2), onion(3)} })
		b.sleep(6 * time.Second)
		waiting := b.Stats().Ready
		if waiting < 20 {
			t.Fatalf("%d wait: the test shows nothing", waiting)
		}
		p.gone.Store(true)
		b.sleep(16 * time.Second)
		b.checker.forget()
		b.sleep(20 * time.Second)
		if s := b.Stats(); s.Ready != 0 || len(b.checker.all()) != 0 {
			t.Errorf("%d still wait, and %d were probed", s.Ready, len(b.checker.all()))
		}
		if n := len(b.core.observations(monitor.OutcomeSkipped)); n < waiting-4 {
			t.Errorf("%d of %d rows say why", n, waiting)
		}
		p.gone.Store(false)
		b.sleep(8 * time.Minute)
		for _, task := range ts {
			if len(b.checker.of(task.Relay)) == 0 {
				t.Errorf("%s was not probed when the proxy was back", task.Relay)
			}
		}
	})
}

// So is what waits when its network is configured away.
func TestConfigureNetworkAwayWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts []monitor.Task
		for i := range 40 {
			ts = append(ts, monitor.Task{Relay: onion(i)})
		}
		b := run(t, vantage.Config{Networks: map[monitor.Network]int{monitor.Clearnet: 1, monitor.Tor: 1}}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			return answer(ctx, 10*time.Second, monitor.OutcomeOK)
		}, ts...)
		b.sleep(time.Minute)
		waiting := b.Stats().Ready
		b.configure(t, vantage.Config{})
		b.sleep(10 * time.Second)
		rows := 0
		for _, o := range b.core.observations(monitor.OutcomeSkipped) {
			if o.Cause == monitor.CauseNoProxy {
				rows++
			}
		}
		if s := b.Stats(); waiting < 20 || rows < waiting || s.Ready != 0 {
			t.Errorf("of %d that waited %d have a row that says why, and %d still wait", waiting, rows, s.Ready)
		}
	})
}
