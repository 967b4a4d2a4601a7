package vantage_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// paused are the skipped observations of one relay.
func (b *bench) paused(t *testing.T, r monitor.RelayURL) (n int) {
	t.Helper()
	for _, o := range b.core.observations(monitor.OutcomeSkipped) {
		if o.Cause != monitor.CausePaused {
			t.Errorf("%s was skipped with %s (%s)", o.Relay, o.Cause, o.Evidence)
		}
		if o.Relay == r {
			n++
		}
	}
	return n
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tasks(100)
		b := run(t, vantage.Config{}, ok, all...)
		b.sleep(11 * time.Minute)
		until := time.Now().Add(32 * time.Minute)
		all[3].PausedUntil = until
		b.core.watch(all...)
		b.sleep(2 * time.Second)
		b.checker.forget()
		b.sleep(20 * time.Minute)
		if at := b.checker.of(relay(3)); len(at) != 0 {
			t.Errorf("paused, it was probed at %v", at)
		}
		if n := b.paused(t, relay(3)); n != 4 {
			t.Errorf("%d rows say that it is paused, want one at each slot", n)
		}
		o := b.core.observations(monitor.OutcomeSkipped)[0]
		if want := "until " + until.UTC().Format(time.RFC3339); !strings.Contains(o.Evidence, want) || o.Vantage != "here" || o.Start != o.At {
			t.Errorf("the row is %+v, want %q in its evidence", o, want)
		}
		b.core.set(func(c *core) { c.expedite = []monitor.RelayURL{relay(3)} })
		b.sleep(8 * time.Second)
		if at := b.checker.of(relay(3)); len(at) != 0 || b.Stats().Expedited != 0 {
			t.Errorf("paused, it was expedited at %v", at)
		}
		if n := b.paused(t, relay(3)); n != 5 {
			t.Errorf("%d rows say that it is paused, want one for the expedited probe too", n)
		}
		b.sleep(18 * time.Minute)
		at := b.checker.of(relay(3))
		if len(at) == 0 || at[0].Before(until) || at[0].Sub(until) > 5*time.Minute {
			t.Errorf("after the pause it was probed at %v, want within an interval of %s", at, until)
		}
		for i := range 100 {
			if n := len(b.checker.of(relay(i))); i != 3 && n < 7 {
				t.Errorf("%s, which was not paused, was probed %d times in 38 min", relay(i), n)
			}
		}
	})
}

// A pause ends with the list that no longer has it.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tasks(10)
		all[0].PausedUntil = time.Now().Add(1000 * time.Hour)
		b := run(t, vantage.Config{}, ok, all...)
		b.sleep(11 * time.Minute)
		if n := len(b.checker.of(relay(0))); n != 0 || b.paused(t, relay(0)) < 2 {
			t.Fatalf("paused from the start, it was probed %d times and %d rows say so", n, b.paused(t, relay(0)))
		}
		all[0].PausedUntil = time.Time{}
		b.core.watch(all...)
		b.sleep(5*time.Minute + 2*time.Second)
		if n := len(b.checker.of(relay(0))); n == 0 {
			t.Error("resumed, it was not probed within an interval")
		}
	})
}

// A relay that is due already, and only waits for a permit, is paused as well;
// those that wait behind it go on.
func TestPauseOfOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c, d := monitor.Task{Relay: "ws://20.0.0.1:1/"}, monitor.Task{Relay: "ws://20.0.0.1:2/"}, monitor.Task{Relay: "ws://20.0.0.1:3/"}
		release := make(chan struct{})
		b := run(t, vantage.Config{PerIP: 1}, func(ctx context.Context, _ probe.Request) monitor.Observation {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return monitor.Observation{Outcome: monitor.OutcomeOK}
		}, a, c, d)
		b.sleep(10 * time.Second)
		if s := b.Stats(); s.Parked != 2 {
			t.Fatalf("%d wait for a permit, want two", s.Parked)
		}
		first := b.checker.all()[0].Relay
		list := []monitor.Task{a, c, d}
		var paused monitor.RelayURL
		for i := range list {
			if list[i].Relay != first {
				paused, list[i].PausedUntil = list[i].Relay, time.Now().Add(time.Hour)
				break
			}
		}
		b.core.watch(list...)
		b.sleep(7 * time.Second)
		if n := b.paused(t, paused); n != 1 {
			t.Errorf("%d rows say that it is paused, want one at once", n)
		}
		close(release)
		b.sleep(2 * time.Second)
		if n := len(b.checker.of(paused)); n != 0 {
			t.Errorf("paused while it waited, it was probed %d times", n)
		}
		if n := len(b.checker.all()); n != 2 {
			t.Errorf("%d probes, want the one in flight and the one that waited behind", n)
		}
	})
}

// One whose name turns out to belong to a full address while it is paused does
// not queue up there.
func TestPauseOfOneThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, named := monitor.Task{Relay: "ws://20.0.0.1:1/"}, monitor.Task{Relay: "wss://named.example.com/"}
		resolve, release := make(chan struct{}), make(chan struct{})
		b := run(t, vantage.Config{PerIP: 1}, func(ctx context.Context, req probe.Request) monitor.Observation {
			if req.Relay == holder.Relay {
				<-release
				return monitor.Observation{Outcome: monitor.OutcomeOK}
			}
			<-resolve
			if _, ok := req.Admit(ctx, netip.MustParseAddr("20.0.0.1")); !ok {
				return monitor.Observation{Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload}
			}
			return monitor.Observation{Outcome: monitor.OutcomeOK}
		}, holder, named)
		b.sleep(10 * time.Second)
		named.PausedUntil = time.Now().Add(time.Hour)
		b.core.watch(holder, named)
		b.sleep(2 * time.Second)
		close(resolve)
		b.sleep(time.Second)
		if s := b.Stats(); s.Parked != 0 {
			t.Errorf("%d wait for a permit, want none", s.Parked)
		}
		close(release)
		b.sleep(10 * time.Second)
		if n := len(b.checker.of(named.Relay)); n != 1 || b.paused(t, named.Relay) != 1 {
			t.Errorf("it was begun %d times and %d rows say that it is paused, want one each", n, b.paused(t, named.Relay))
		}
	})
}
