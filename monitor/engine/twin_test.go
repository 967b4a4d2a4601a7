package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	plain     monitor.RelayURL = "ws://twin.example/a"
	overTLS   monitor.RelayURL = "wss://twin.example/a"
	onPort    monitor.RelayURL = "ws://twin.example:8080/a"
	elsewhere monitor.RelayURL = "ws://twin.example/b"
)

// paired reports whether a wss relay stands for u, and that all agree on it.
func (w *world) paired(u monitor.RelayURL) bool {
	w.t.Helper()
	v := w.engine.RelayView(u)
	_, task := w.tasks()[u]
	if !v.Monitored || task == (v.Twin != "") || v.Twin != "" && v.Verdict.State != monitor.StateUnknown {
		w.t.Fatalf("%s: twin %q, a task %v, %s", u, v.Twin, task, v.Verdict.State)
	}
	return v.Twin != ""
}

func TestAnOnlineTwinOverTLSStands(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		down := []monitor.RelayURL{}
		look := func() {
			for _, v := range w.vantages {
				v.sees = func(u monitor.RelayURL, now time.Time) monitor.Outcome {
					return but(monitor.OutcomeFailed, down...)(u, now)
				}
			}
		}
		look()
		w.discover(sweep(true, namedOnce(plain, onPort, elsewhere)))
		w.run(12 * time.Minute)
		w.wantState(plain, monitor.StateOnline)
		w.discover(sweep(true, namedOnce(plain, onPort, elsewhere, overTLS)))
		if w.paired(plain) {
			t.Fatal("a wss relay that nobody has seen yet stands for it")
		}
		w.run(12 * time.Minute)
		w.wantState(overTLS, monitor.StateOnline)
		if !w.paired(plain) || w.paired(onPort) || w.paired(elsewhere) || w.paired(overTLS) {
			t.Fatal("it is still probed, or another one is not")
		}
		why := string(overTLS) + " is online and stands for it"
		if v := w.engine.RelayView(plain); v.Twin != overTLS || v.Verdict.Reason != "unknown: "+why {
			t.Errorf("twin %q, reason %q", v.Twin, v.Verdict.Reason)
		}
		if last := w.last(plain); last.From != monitor.StateOnline || last.To != monitor.StateUnknown || last.Evidence != why {
			t.Errorf("the last transition is %+v", last)
		}
		list := append([]monitor.RelayURL{elsewhere, onPort}, append(urls(40), overTLS)...)
		slices.Sort(list)
		w.wantLive(list...)
		if w.store.reported(plain) || w.store.recorded("a", plain) {
			t.Error("its report or its records are kept")
		}
		s := w.engine.Status()
		if s.Twins != 1 || s.States[monitor.StateUnknown] != 0 || s.Engaged || w.engine.Generation().Monitored != 43 {
			t.Errorf("%d twins, states %v, engaged %v, %d monitored", s.Twins, s.States, s.Engaged, w.engine.Generation().Monitored)
		}
		w.want(w.do(monitor.CommandCheck, plain), "is not probed while "+why)
		w.want(w.do(monitor.CommandReset, plain), "is not probed while "+why)

		// Nothing moves, and nobody is asked for it, also after a restart.
		moves := len(w.store.transitions())
		w.run(10 * time.Minute)
		w.restart()
		look()
		if !w.paired(plain) {
			t.Fatal("a restart probes it again")
		}
		w.run(10 * time.Minute)
		if !w.paired(plain) || len(w.store.transitions()) != moves {
			t.Fatalf("twin %q, transitions %+v", w.engine.RelayView(plain).Twin, w.store.transitions()[moves:])
		}
		if ok, why := w.engine.Ready(); !ok {
			t.Errorf("not ready: %s", why)
		}
		// An observation of a probe that was under way does not count.
		v, now := w.vantages[0], time.Now()
		v.pendings = append(v.pendings, monitor.Observation{Relay: plain, Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeOK})
		w.run(10 * time.Second)
		if !w.paired(plain) || w.store.recorded("a", plain) || w.engine.Status().Unwatched != 1 {
			t.Error("a result of a relay that is not probed counts")
		}

		// The twin goes down, and this one is looked at as before.
		down = append(down, overTLS)
		w.run(10 * time.Minute)
		w.wantState(overTLS, monitor.StateOffline)
		if w.paired(plain) {
			t.Fatal("a relay that is offline stands for another")
		}
		w.wantState(plain, monitor.StateOnline)
		list = append([]monitor.RelayURL{elsewhere, plain, onPort}, urls(40)...)
		slices.Sort(list)
		w.wantLive(list...)
		down = nil
		w.run(30 * time.Minute)
		w.wantState(overTLS, monitor.StateOnline)
		if !w.paired(plain) {
			t.Fatal("it is probed although its twin is online again")
		}
		// Somebody asks for this very URL.
		w.want(w.do(monitor.CommandAdd, plain), "")
		w.run(time.Minute)
		if w.paired(plain) {
			t.Fatal("an operator's relay is not probed")
		}
		w.wantState(plain, monitor.StateOnline)
		w.run(20 * time.Minute)
		w.wantState(plain, monitor.StateOnline)
	})
}

func TestConfiguredRelaysAreProbedBesideTheirTwins(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		own := w.cfg.Relays
		w.cfg.Relays = append(slices.Clone(own), monitor.WatchedRelay{URL: plain, Source: monitor.SourceBuiltin}, monitor.WatchedRelay{URL: overTLS, Source: monitor.SourceConfig})
		w.cfg.Discovery = true
		w.configure(t)
		w.discover(sweep(true, namedOnce(plain)))
		w.run(70 * time.Minute)
		w.wantState(plain, monitor.StateOnline)
		// Only discovery names it: the other one stands for it. And back.
		w.cfg.Relays = append(slices.Clone(own), monitor.WatchedRelay{URL: overTLS, Source: monitor.SourceConfig})
		w.configure(t)
		w.run(20 * time.Second)
		if !w.paired(plain) {
			t.Fatal("it is still probed")
		}
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: plain, Source: monitor.SourceConfig})
		w.configure(t)
		if w.paired(plain) {
			t.Fatal("a configured relay is not probed")
		}
		w.run(time.Minute)
		w.wantState(plain, monitor.StateOnline)
		w.restart()
		w.run(time.Minute)
		if w.paired(plain) {
			t.Fatal("a configured relay is not probed after a restart")
		}
		// Discovery takes no ws relay while another stands for it.
		w.cfg.Relays = w.cfg.Relays[:11]
		w.cfg.Discovery = false
		w.configure(t)
		w.wantCounts(w.discover(sweep(true, namedOnce(plain, onPort))), 2, 1, 0)
		w.wantFound(onPort)
	})
}

// A list that was stored long ago takes nothing from itself: a twin must have been
// seen since the start, and the first pass is not held up by those that stand aside.
func TestATwinMustBeSeenAfterAStart(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.discover(sweep(true, namedOnce(plain)))
		w.run(12 * time.Minute)
		w.wantState(plain, monitor.StateOnline)
		w.later(6 * time.Hour)
		// As a version left it that knew of no twins.
		then := time.Now().Add(-6 * time.Hour)
		w.store.mu.Lock()
		w.store.relays[overTLS] = monitor.WatchedRelay{
			URL: overTLS, Source: monitor.SourceDiscovery, FirstSeen: then,
			Verdict: monitor.Verdict{State: monitor.StateOnline, Since: then, LastSuccess: then},
		}
		w.store.mu.Unlock()
		w.start()
		w.vantages[0].sees = but(monitor.OutcomeUnclear, overTLS)
		w.run(30 * time.Second)
		if w.paired(plain) {
			t.Fatal("a relay that nobody has seen for six hours stands for another")
		}
		w.vantages[0].sees = up
		w.run(3 * time.Minute)
		if !w.paired(plain) {
			t.Fatal("it is still probed")
		}
		w.later(6 * time.Hour)
		w.start()
		if !w.paired(plain) {
			t.Fatal("a restart forgets it")
		}
		w.run(3 * time.Minute)
		w.wantLive(append(urls(10), overTLS)...)
	})
}
