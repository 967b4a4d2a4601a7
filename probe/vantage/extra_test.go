package vantage_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// gives is a relay that has an answer to whatever it is asked.
func gives(ctx context.Context, req probe.Request) monitor.Observation {
	o := ok(ctx, req)
	if req.Info {
		no := false
		o.Info = &monitor.Info{Raw: []byte(`{"name":"a relay"}`), Name: "a relay", NIPs: []int{1, 11, 42}, PaymentRequired: &no}
	}
	if req.Facts {
		o.DNS = &monitor.DNSFacts{IPv4: monitor.ReachAnswers}
	}
	if req.Capabilities {
		o.Capabilities = &monitor.Capabilities{EOSE: monitor.FindingConfirmed}
	}
	if req.Write {
		o.Write = &monitor.WriteFacts{Result: monitor.WriteAccepted}
	}
	return o
}

// askedFor returns the probes of one relay for which f holds.
func (c *checker) askedFor(r monitor.RelayURL, f func(a asked) bool) (out []asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.asked {
		if a.Relay == r && f(a) {
			out = append(out, a)
		}
	}
	return out
}

// deeper is the default cadence with facts every hour and depth every so often.
func deeper(depth time.Duration) monitor.Cadence {
	c := monitor.DefaultCadence()
	c.FactsEvery, c.DepthEvery = time.Hour, depth
	return c
}

func facts(a asked) bool        { return a.Facts }
func capabilities(a asked) bool { return a.Capabilities }

func TestFactsAndDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onion := monitor.RelayURL("ws://pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion/")
		ts := append(tasks(40), monitor.Task{Relay: onion})
		c := deeper(4 * time.Hour)
		b := run(t, vantage.Config{
			Write: true, Cadence: c,
			Networks: map[monitor.Network]int{monitor.Clearnet: 100, monitor.Tor: 10},
		}, gives, ts...)
		b.sleep(4*time.Hour + 6*time.Minute)
		deep := 0
		for i := range 40 {
			r := relay(i)
			all := b.checker.askedFor(r, func(asked) bool { return true })
			if a := all[0]; !a.Info || !a.Facts || a.Capabilities || a.Write || a.Document != nil {
				t.Errorf("the first look at %s asks %+v, want the document and facts, and nothing deep", r, a.Request)
			}
			at := b.checker.askedFor(r, facts)
			if len(at) < 5 || len(at) > 6 {
				t.Errorf("the facts of %s were asked for %d times in 4 h, want at first and every hour", r, len(at))
			}
			// The relay has a slot of its own, whenever the vantage was started.
			tests := b.checker.askedFor(r, capabilities)
			deep += len(tests)
			slot := c.FirstDepth(r, "here", false, b.start)
			if len(tests) == 0 || tests[0].at.Before(slot) || tests[0].at.Sub(slot) > c.Interval+time.Minute || len(tests) > 2 {
				t.Errorf("%s was tested at %v, want once at %s", r, tests, slot)
				continue
			}
			no := false
			want := &monitor.Info{PaymentRequired: &no, RestrictedWrites: &no}
			if diff := cmp.Diff(want, tests[0].Document); diff != "" || !tests[0].Write {
				t.Errorf("a test of %s asks for a write: %v, and knows of its document\n%s", r, tests[0].Write, diff)
			}
		}
		if at := b.checker.askedFor(onion, facts); len(at) != 0 {
			t.Errorf("an onion was asked for address families at %v", at)
		}
		tests := b.checker.askedFor(onion, capabilities)
		if len(tests) == 0 {
			t.Error("an onion was never tested")
		}
		if n := b.Stats().DeepProbes; n != uint64(deep+len(tests)) {
			t.Errorf("%d deep probes are counted, want %d", n, deep+len(tests))
		}

		// A relay that is new need not wait so long, and is not tested twice for it.
		var added []monitor.RelayURL
		for i := range 30 {
			added = append(added, relay(500+i))
			ts = append(ts, monitor.Task{Relay: relay(500 + i), Candidate: i%2 == 0})
		}
		b.core.watch(ts...)
		now := time.Now()
		b.sleep(150 * time.Minute)
		for _, r := range added {
			tests := b.checker.askedFor(r, capabilities)
			if len(tests) == 0 || tests[0].at.Sub(now) > time.Hour+11*time.Minute {
				t.Errorf("%s, which is new, was tested at %v, want within an hour", r, tests)
			} else if len(tests) > 1 && tests[1].at.Sub(tests[0].at) < 2*time.Hour {
				t.Errorf("%s was tested at %v", r, tests)
			}
		}
	})
}

func TestNoWriteUnlessAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{Cadence: deeper(time.Hour)}, gives, tasks(20)...)
		b.sleep(70 * time.Minute)
		writes, tests := 0, 0
		for _, a := range b.checker.all() {
			if a.Write {
				writes++
			}
			if a.Capabilities {
				tests++
			}
		}
		if writes != 0 || tests < 20 {
			t.Errorf("%d writes and %d tests, want none and one of each relay", writes, tests)
		}
	})
}

// A restart tests no relay before its own slot, and all of them within DepthEvery.
func TestDepthIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		c := deeper(4 * time.Hour)
		c.Interval = 10 * time.Minute
		b := run(t, vantage.Config{Cadence: c}, gives, tasks(n)...)
		count := func() map[monitor.RelayURL]int {
			k := map[monitor.RelayURL]int{}
			for _, a := range b.checker.all() {
				if a.Capabilities {
					k[a.Relay]++
				}
			}
			return k
		}
		b.sleep(30 * time.Minute)
		if tests, want := len(count()), n/8; tests < want/2 || tests > want*3/2 {
			t.Errorf("%d of %d relays were tested in the first half hour, want about %d", tests, n, want)
		}
		b.sleep(3*time.Hour + 45*time.Minute)
		tests := count()
		for i := range n {
			if k := tests[relay(i)]; k < 1 || k > 2 {
				t.Fatalf("%s was tested %d times in 4 h", relay(i), k)
			}
		}
	})
}

// However much is due at once, tests are a small share of all probes.
func TestDepthBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := monitor.DefaultCadence()
		c.DepthEvery = time.Second
		b := run(t, vantage.Config{Cadence: c}, gives, tasks(3000)...)
		b.sleep(11 * time.Minute)
		b.checker.forget()
		b.sleep(10 * time.Minute)
		perMinute := map[int]int{}
		tests := 0
		for _, a := range b.checker.all() {
			if a.Capabilities {
				tests++
				perMinute[int(a.at.Sub(b.start)/time.Minute)]++
			}
		}
		if all := len(b.checker.all()); tests > all*8/100 || tests < all*3/100 {
			t.Errorf("%d of %d probes were tests, want about one in twenty", tests, all)
		}
		for m, k := range perMinute {
			if k > 3000/5*8/100 {
				t.Errorf("%d tests in minute %d", k, m)
			}
		}
	})
}

// What a relay does not answer to is asked for again in an hour, not at every
// probe; and only of one that answers.
func TestAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mute, failing, limits := relay(0), relay(1), relay(2)
		b := run(t, vantage.Config{Cadence: deeper(time.Hour)}, func(ctx context.Context, req probe.Request) monitor.Observation {
			switch req.Relay {
			case mute:
				return ok(ctx, req)
			case failing:
				return fail(ctx, req)
			case limits:
				o := gives(ctx, req)
				o.Outcome, o.Cause = monitor.OutcomeRefused, monitor.CauseRateLimited
				return o
			}
			return gives(ctx, req)
		}, tasks(10)...)
		b.sleep(6 * time.Hour)
		for what, f := range map[string]func(asked) bool{"facts": facts, "tests": capabilities} {
			at := b.checker.askedFor(mute, f)
			if len(at) < 4 {
				t.Errorf("%s were asked for %d times in 6 h of one that has none", what, len(at))
			}
			for i := range at[1:] {
				if gap := at[i+1].at.Sub(at[i].at); gap < time.Hour {
					t.Errorf("%s were asked for again after %s", what, gap)
				}
			}
		}
		if at := b.checker.askedFor(failing, capabilities); len(at) != 0 {
			t.Errorf("one that fails was tested at %v", at)
		}
		if at := b.checker.askedFor(failing, facts); len(at) == 0 {
			t.Error("one that fails was not asked for facts")
		}
		if at := b.checker.askedFor(limits, capabilities); len(at) != 0 {
			t.Errorf("one that wants less was tested at %v", at)
		}
	})
}

// What the core never got is asked for again; while it is away for long, relays
// are not asked over and over for what it would not get either.
func TestExtrasLostOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := prepare(t, vantage.Config{QueueSize: 100}, gives, tasks(50)...)
		b.core.set(func(c *core) { c.deliver = func(monitor.Batch) error { return monitor.ErrUnavailable } })
		b.begin(t)
		b.sleep(3 * time.Hour)
		if s := b.Stats(); s.Dropped < 1000 {
			t.Fatalf("%d observations were dropped: the test shows nothing", s.Dropped)
		}
		for i := range 50 {
			for what, f := range map[string]func(asked) bool{
				"facts": facts, "tests": capabilities, "documents": func(a asked) bool { return a.Info },
			} {
				if n := len(b.checker.askedFor(relay(i), f)); n > 2 {
					t.Errorf("%s of %s were asked for %d times while the core was away", what, relay(i), n)
				}
			}
		}
		b.core.set(func(c *core) { c.deliver = nil })
		b.sleep(80 * time.Minute)
		dns, infos := map[monitor.RelayURL]bool{}, map[monitor.RelayURL]bool{}
		for _, o := range b.core.observations() {
			if o.DNS != nil {
				dns[o.Relay] = true
			}
			if o.Info != nil {
				infos[o.Relay] = true
			}
		}
		if len(dns) != 50 || len(infos) != 50 {
			t.Errorf("the core has the facts of %d and the documents of %d relays, want all 50", len(dns), len(infos))
		}
	})
}

// A set of facts that was measured while this vantage was late is not handed on.
func TestFactsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, func(ctx context.Context, req probe.Request) monitor.Observation {
			o := gives(ctx, req)
			t := time.NewTimer(10 * time.Second)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			return o
		}, tasks(60)...)
		b.sleep(9 * time.Second)
		b.RunLate(1500 * time.Millisecond)
		b.sleep(15 * time.Second)
		unclear := b.core.observations(monitor.OutcomeUnclear)
		if len(unclear) == 0 {
			t.Fatal("nothing was in doubt: the test shows nothing")
		}
		for _, o := range unclear {
			if o.DNS != nil {
				t.Fatalf("%s: facts %+v of a probe that is not believed", o.Relay, o.DNS)
			}
		}
		b.sleep(10 * time.Minute)
		for _, o := range unclear {
			if n := len(b.checker.askedFor(o.Relay, facts)); n < 2 {
				t.Errorf("the facts of %s were not asked for again", o.Relay)
			}
		}
	})
}

// A candidate's way: first looked at within ten minutes, with the interval once
// it answers, and every DeadLong after one ladder of failures.
func TestCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts []monitor.Task
		for i := range 100 {
			ts = append(ts, monitor.Task{Relay: relay(i), Candidate: i < 50})
		}
		dead := func(r monitor.RelayURL) bool {
			return slices.ContainsFunc(ts[25:50], func(t monitor.Task) bool { return t.Relay == r })
		}
		c := monitor.DefaultCadence()
		c.DeadLong = 2 * time.Hour
		b := run(t, vantage.Config{Cadence: c}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if dead(req.Relay) {
				return fail(ctx, req)
			}
			return ok(ctx, req)
		}, ts...)
		b.sleep(10*time.Minute + time.Second)
		early := 0
		for _, task := range ts[:50] {
			at := b.checker.of(task.Relay)
			if len(at) == 0 {
				t.Errorf("%s was not looked at within ten minutes", task.Relay)
			} else if at[0].Sub(b.start) < time.Minute {
				early++
			}
		}
		if early > 15 {
			t.Errorf("%d of 50 candidates were looked at in the first minute: they are not spread", early)
		}
		b.sleep(30 * time.Minute)
		b.checker.forget()
		b.sleep(6 * time.Hour)
		for _, task := range ts[:25] {
			if n := len(b.checker.of(task.Relay)); n < 72-1 || n > 72+1 {
				t.Errorf("%s, which answers, was probed %d times in 6 h", task.Relay, n)
			}
		}
		for _, task := range ts[25:50] {
			if n := len(b.checker.of(task.Relay)); n < 2 || n > 4 {
				t.Errorf("%s, which is dead, was probed %d times in 6 h, want every two", task.Relay, n)
			}
		}
	})
}

// Retry-After is obeyed after a deep probe as after any, and what it asked in vain
// does not come back with the next.
func TestRetryAfterOfADeepProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []time.Time
		b := run(t, vantage.Config{Cadence: deeper(time.Hour)}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if !req.Capabilities {
				return gives(ctx, req)
			}
			mu.Lock()
			told = append(told, time.Now())
			mu.Unlock()
			o := answer(ctx, 100*time.Millisecond, monitor.OutcomeRestricted)
			o.Stage, o.Cause, o.RetryAfter = monitor.StageUpgrade, monitor.CauseHTTP429, 40*time.Minute
			return o
		}, tasks(5)...)
		b.sleep(5 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(told) < 5 {
			t.Fatalf("%d deep probes: the test shows nothing", len(told))
		}
		for i := range 5 {
			at := b.checker.askedFor(relay(i), func(asked) bool { return true })
			for k, a := range at {
				if !a.Capabilities || k+1 == len(at) {
					continue
				}
				if next := at[k+1]; next.at.Sub(a.at) < 40*time.Minute || next.Capabilities {
					t.Errorf("%s was probed %s after it had asked for 40 min of peace, deep: %v", relay(i), next.at.Sub(a.at), next.Capabilities)
				}
			}
		}
	})
}

// Another cadence of depth holds for what has not been tested yet, too.
func TestConfigureDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{}, gives, tasks(50)...)
		b.sleep(11 * time.Minute)
		c := monitor.DefaultCadence()
		c.DepthEvery = time.Hour
		b.configure(t, vantage.Config{Cadence: c})
		b.sleep(time.Hour + 10*time.Minute)
		for i := range 50 {
			if n := len(b.checker.askedFor(relay(i), capabilities)); n < 1 || n > 2 {
				t.Errorf("%s was tested %d times in the hour", relay(i), n)
			}
		}
		// A core that knows of neither leaves them as they are.
		c.FactsEvery, c.DepthEvery = 0, 0
		b.checker.forget()
		b.configure(t, vantage.Config{Cadence: c})
		b.sleep(3 * time.Hour)
		for i := range 50 {
			if f, d := len(b.checker.askedFor(relay(i), facts)), len(b.checker.askedFor(relay(i), capabilities)); f > 2 || d > 1 {
				t.Errorf("%s: %d times facts and %d tests in 3 h without a cadence, want the usual", relay(i), f, d)
			}
		}
	})
}

// Somebody waits for an expedited probe: it is no time for a long one.
func TestExpeditesAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, vantage.Config{Cadence: deeper(time.Second)}, gives, tasks(20)...)
		b.sleep(17 * time.Minute)
		for i := range 20 {
			b.checker.forget()
			b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{relay(i)} })
			before := b.Stats().Expedited
			for b.Stats().Expedited == before {
				b.sleep(50 * time.Millisecond)
			}
			at := b.checker.askedFor(relay(i), func(asked) bool { return true })
			if len(at) == 0 || at[len(at)-1].Capabilities {
				t.Fatalf("%s was tested in an expedited probe", relay(i))
			}
		}
	})
}

// While our own network is away nothing is asked that would have to be asked again.
func TestNoExtrasWithoutNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		b := run(t, vantage.Config{
			Canaries: canaries(t, "tcp://192.0.2.1:443"),
			Dial: func(context.Context, string, string) (net.Conn, error) {
				if away.Load() {
					return nil, errors.New("no route")
				}
				a, b := net.Pipe()
				b.Close()
				return a, nil
			},
		}, gives, tasks(20)...)
		b.sleep(10 * time.Minute)
		for _, a := range b.checker.all() {
			if a.Info || a.Facts || a.Capabilities {
				t.Fatalf("without a network %s was asked %+v", a.Relay, a.Request)
			}
		}
		away.Store(false)
		b.sleep(6 * time.Minute)
		for i := range 20 {
			if len(b.checker.askedFor(relay(i), facts)) != 1 {
				t.Errorf("with the network back %s was not asked for facts", relay(i))
			}
		}
	})
}

func onion(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("ws://%056d.onion/", i))
}
