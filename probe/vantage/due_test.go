package vantage_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// The core's record rules: where it wants a relay earlier than the vantage
// plans, the vantage follows, and where it wants it later, it does not.
func TestDueOfTheCore(t *testing.T) {
	for name, c := range map[string]struct {
		due    time.Duration // after the answer
		paused bool
		early  bool // it is probed within a minute of it
	}{
		"sooner":            {due: 20 * time.Second, early: true},
		"past":              {due: -time.Hour, early: true},
		"later":             {due: 24 * time.Hour},
		"sooner but paused": {due: 20 * time.Second, paused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const relay = "wss://dead.example.com/"
				refuse := func(ctx context.Context, _ probe.Request) monitor.Observation {
					return answer(ctx, 100*time.Millisecond, monitor.OutcomeFailed)
				}
				// Nothing else succeeds, so the relay never dies: its cooldowns grow to
				// five minutes.
				b := run(t, vantage.Config{}, refuse, monitor.Task{Relay: relay})
				elapse(31 * time.Minute)
				synctest.Wait()
				at := b.checker.of(relay)
				for n := len(at); len(at) == n; at = b.checker.of(relay) { // just after a probe
					elapse(time.Second)
					synctest.Wait()
				}
				if c.paused {
					b.core.watch(monitor.Task{Relay: relay, PausedUntil: time.Now().Add(time.Hour)})
				}
				n := len(at)
				b.core.set(func(k *core) { k.due = map[monitor.RelayURL]time.Time{relay: time.Now().Add(c.due)} })
				elapse(time.Minute)
				synctest.Wait()
				if got := len(b.checker.of(relay)) - n; (got > 0) != c.early {
					t.Errorf("%d probes within a minute, want some: %v", got, c.early)
				}
				elapse(5 * time.Minute)
				synctest.Wait()
				if got := len(b.checker.of(relay)) - n; (got > 0) == c.paused {
					t.Errorf("%d probes within six minutes", got)
				}
			})
		})
	}
}
