package engine_test

import (
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

func (w *world) configure(t *testing.T) {
	t.Helper()
	if err := w.engine.Configure(t.Context(), w.cfg); err != nil {
		t.Fatal(err)
	}
}

func TestANewConfigurationBringsAndTakesRelays(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, stranger), "")
		w.run(2 * time.Minute)
		w.wantLive(append(urls(40), stranger)...)
		before := w.engine.Generation().Number

		all := w.cfg.Relays
		w.cfg.Relays = append(all[1:39:39],
			monitor.WatchedRelay{URL: "wss://more.example/", Source: monitor.SourceFile, FirstSeen: time.Now()},
			monitor.WatchedRelay{URL: stranger, Source: monitor.SourceConfig, FirstSeen: time.Now()})
		barred := monitor.RelayURL("wss://barred.example/")
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: barred, Source: monitor.SourceConfig, FirstSeen: time.Now()})
		w.cfg.Exclude = []monitor.RelayURL{url(1), barred} // named and excluded
		w.configure(t)
		// The list stays served without those that left, at once; nothing warms up.
		w.wantLive(append(urls(39)[2:], stranger)...)
		if g := w.engine.Generation(); !g.Usable() || g.Number != before+1 {
			t.Errorf("fallback %q, generation %d after %d", g.Fallback, g.Number, before)
		}
		for u, why := range map[monitor.RelayURL]string{
			url(0): "the configuration does not name it any longer", url(39): "the configuration does not name it any longer", url(1): "the configuration excludes it",
		} {
			if last := w.last(u); last.From != monitor.StateOnline || last.To != monitor.StateUnknown || last.Evidence != why {
				t.Errorf("%s: the last transition is %+v", u, last)
			}
			if ok := w.store.reported(u); ok || w.store.relay(u).Source != monitor.SourceConfig {
				t.Errorf("%s: report still stored (%v), source %s", u, ok, w.store.relay(u).Source)
			}
		}
		if _, ok := w.tasks()[barred]; ok || w.engine.RelayView(barred).Monitored {
			t.Error("a relay that is named and excluded is watched")
		}
		if w.engine.Status().Engaged {
			t.Error("the brake counts them as departures")
		}
		w.run(2 * time.Minute)
		w.wantLive(append(append([]monitor.RelayURL{"wss://more.example/"}, urls(39)[2:]...), stranger)...)
		w.restart()
		w.wantLive(append(append([]monitor.RelayURL{"wss://more.example/"}, urls(39)[2:]...), stranger)...)

		// What comes back is judged anew, and what an operator had added leaves
		// with the configuration that named it.
		w.cfg.Relays, w.cfg.Exclude = all, nil
		w.configure(t)
		w.run(time.Second) // one generation a second at most
		w.wantLive(urls(39)[2:]...)
		w.wantState(url(0), monitor.StateUnknown)
		w.run(2 * time.Minute)
		w.wantLive(urls(40)...)
		w.wantAudit("token add 1 ")
	})
}

func TestAConfiguredRelayThatAnOperatorExcluded(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandExclude, stranger), "")
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: stranger, Source: monitor.SourceFile, FirstSeen: time.Now()})
		w.configure(t)
		w.run(time.Minute)
		if v := w.engine.RelayView(stranger); v.Monitored || !v.Excluded {
			t.Fatal("the configuration ends an operator's exclusion")
		}
		w.want(w.do(monitor.CommandInclude, stranger), "")
		w.run(2 * time.Minute)
		w.wantLive(append(urls(10), stranger)...)
	})
}

func TestNewRulesHoldFromTheNextRound(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(30)...)
		w.run(10 * time.Minute)
		w.wantLive(urls(40)...)
		failures := w.engine.RelayView(url(0)).Ballots[0].FailureCount
		w.cfg.Corroboration.HoldMin = 40
		w.cfg.Freshness.MinCount = 50
		w.cfg.StartHold = time.Nanosecond
		w.configure(t)
		if n := w.engine.RelayView(url(0)).Ballots[0].FailureCount; n != failures || n == 0 {
			t.Errorf("%d failures on record, want %d as before", n, failures)
		}
		w.run(2 * time.Second)
		w.wantLive(urls(40)[30:]...)
		if f := w.engine.Generation().Fallback; f != monitor.FallbackTooFew {
			t.Errorf("fallback %q, want too_few", f)
		}
	})
}

func TestTheNextRoundJudgesByNewRules(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		began := time.Now()
		w.cfg.Corroboration.ConfirmFailures = 100
		w.configure(t)
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(0))
		w.run(5 * time.Minute)
		w.wantState(url(0), monitor.StateOnline)
		// Every relay is judged every ten seconds anyway: right after that.
		elapse(10*time.Second - time.Since(began)%(10*time.Second) + 2500*time.Millisecond)
		w.cfg.Corroboration.ConfirmFailures = 3
		w.configure(t)
		elapse(1500 * time.Millisecond)
		w.wantState(url(0), monitor.StateOffline)
	})
}

// A configuration that comes before the first round finds relays whose leaving
// is not stored yet.
func TestAConfigurationRightAfterAStart(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.cfg.Exclude = urls(1)
		w.restart()
		w.cfg.Exclude = nil
		w.configure(t)
		v, now := w.vantages[0], time.Now()
		v.seq++
		if _, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: now, Observations: []monitor.Observation{
			{Relay: url(0), Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeOK},
		}}); err != nil {
			t.Fatal(err)
		}
		elapse(1500 * time.Millisecond) // the first round
		w.wantState(url(0), monitor.StateOnline)
		w.run(2 * time.Minute)
		w.wantLive(urls(10)...)
		ended := 0
		for _, m := range w.store.transitions() {
			if m.Relay == url(0) && m.To == monitor.StateUnknown {
				ended++
			}
		}
		if ended != 1 {
			t.Errorf("its verdict was ended %d times, want once", ended)
		}
	})
}
