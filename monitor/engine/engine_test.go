package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

func inWorld(t *testing.T, relays int, vantages []string, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, relays, vantages...)
		defer func() { w.stop() }()
		f(t, w)
	})
}

func TestNothingIsServedBeforeTheFirstPass(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		if g := w.engine.Generation(); g.Fallback != monitor.FallbackWarmingUp || len(g.Online) != 0 {
			t.Fatalf("at the start: fallback %q, %d online", g.Fallback, len(g.Online))
		}
		if ok, _ := w.engine.Ready(); ok {
			t.Fatal("ready before anything was probed")
		}
		w.pub.perRound = 1
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(3), url(4))
		w.run(20 * time.Second)
		if got := w.live(); len(got) != 0 {
			t.Fatalf("%d relays served in the middle of the first pass", len(got))
		}
		// The first list that is served is whole, however late its reports come,
		// and nobody is sent here before it.
		for end := time.Now().Add(3 * time.Minute); len(w.live()) == 0 && time.Now().Before(end); {
			if ok, _ := w.engine.Ready(); ok {
				t.Fatal("ready without a list, although enough was measured")
			}
			w.run(time.Second)
		}
		if got := w.live(); len(got) != 38 {
			t.Fatalf("the first list has %d relays, want 38", len(got))
		}
		w.run(3 * time.Minute)
		var want []monitor.RelayURL
		for i, u := range urls(40) {
			if i != 3 && i != 4 {
				want = append(want, u)
			}
		}
		w.wantLive(want...)
		g := w.engine.Generation()
		if !g.Usable() || g.Snapshot == nil {
			t.Errorf("fallback %q, snapshot %v: want a usable list with one", g.Fallback, g.Snapshot)
		}
		if len(g.Down) != 2 || g.Down[0].URL != url(3) || g.Down[0].Cause != monitor.CauseTimeout {
			t.Errorf("down: %+v, want relays 3 and 4 with timeout", g.Down)
		}
		if ok, why := w.engine.Ready(); !ok {
			t.Errorf("not ready: %s", why)
		}
	})
}

func TestADeadRelayLeavesAndReturns(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.wantLive(urls(40)...)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(39))
		w.run(3 * time.Minute)
		w.wantLive(urls(39)...)
		if len(w.store.log) != 41 {
			t.Fatalf("%d transitions stored, want 41", len(w.store.log))
		}
		last := w.store.log[40]
		if last.Relay != url(39) || last.To != monitor.StateOffline || last.Quorum != (monitor.Quorum{For: 1, Of: 1}) ||
			last.Cause != monitor.CauseTimeout || len(last.Ballots) != 1 || last.Evidence == "" {
			t.Errorf("transition %+v: want relay 39 offline, 1/1, with cause and evidence", last)
		}
		if _, ok := w.store.events[string(url(39))]; ok {
			t.Error("the report of an offline relay is still stored")
		}
		w.vantages[0].sees = up
		w.run(6 * time.Minute)
		w.wantLive(urls(40)...)
	})
}

func TestOneVantageCutOffMovesNothing(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[1].sees = down
		w.run(2 * time.Hour)
		w.wantLive(urls(40)...)
		if n := w.moves(monitor.StateOnline); n != 0 {
			t.Errorf("%d transitions from online, want none", n)
		}
	})
}

func TestTwoVantagesTakeOneRelayOffline(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(0))
		w.vantages[1].sees = but(monitor.OutcomeFailed, url(0))
		w.run(3 * time.Minute)
		w.wantLive(urls(40)[1:]...)
		if q := w.store.log[len(w.store.log)-1].Quorum; q != (monitor.Quorum{For: 2, Of: 2}) {
			t.Errorf("quorum %s, want 2/2", q)
		}
	})
}

func TestEverythingAtOnceIsHeld(t *testing.T) {
	inWorld(t, 60, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = down
		w.run(30 * time.Minute)
		w.wantLive(urls(60)...)
		if s := w.engine.Status(); s.Held != 60 || !s.Engaged {
			t.Errorf("held %d, engaged %v: want all 60", s.Held, s.Engaged)
		}
		if g := w.engine.Generation(); g.Held != 60 {
			t.Errorf("the generation tells of %d held", g.Held)
		}
		w.vantages[0].sees = up
		w.run(10 * time.Minute)
		w.wantLive(urls(60)...)
		if s := w.engine.Status(); s.Held != 0 || s.Engaged {
			t.Errorf("after recovery held %d, engaged %v", s.Held, s.Engaged)
		}
		if n := w.moves(monitor.StateOnline); n != 0 {
			t.Errorf("%d transitions from online, want none", n)
		}
	})
}

func TestWhileTheStoreIsAwayNoVerdictChanges(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.store.away.Store(true)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(7))
		w.run(3 * time.Minute)
		w.wantLive(urls(40)...)
		if ok, _ := w.engine.Ready(); ok {
			t.Error("ready without a store")
		}
		if w.engine.Status().StoreError == "" {
			t.Error("the status does not say that the store is away")
		}
		w.store.away.Store(false)
		w.run(10 * time.Minute)
		w.wantLive(append(urls(7), urls(40)[8:]...)...)
		if s := w.engine.Status(); s.StoreError != "" {
			t.Errorf("still %q", s.StoreError)
		}
		for _, said := range []string{"the store is away", "the store is back"} {
			if n := strings.Count(w.log.String(), said); n != 1 {
				t.Errorf("%q is logged %d times, want once", said, n)
			}
		}
	})
}

func TestARestartServesTheListAtOnce(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		before := w.engine.Generation().Number
		w.restart()
		w.wantLive(urls(40)...)
		if g := w.engine.Generation(); !g.Usable() || g.Number <= before {
			t.Errorf("fallback %q, generation %d after %d", g.Fallback, g.Number, before)
		}
		for _, r := range w.engine.Generation().Online {
			if r.RTTOpenMS != 80 || r.RTTReadMS != 40 {
				t.Fatalf("%s: open %d ms, read %d ms: want what was measured before the restart", r.URL, r.RTTOpenMS, r.RTTReadMS)
			}
		}
		w.run(time.Minute)
		w.wantLive(urls(40)...)
	})
}

func TestAnOldListIsNotServed(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.stop()
		elapse(4*time.Hour + time.Second)
		w.start()
		if g := w.engine.Generation(); g.Fallback != monitor.FallbackWarmingUp || len(g.Online) != 0 {
			t.Fatalf("fallback %q with %d relays, want warming_up and none", g.Fallback, len(g.Online))
		}
		w.run(2 * time.Minute)
		w.wantLive(urls(40)...)
	})
}

func TestARelayThatIsNoLongerConfiguredIsWithdrawn(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.cfg.Relays = w.cfg.Relays[:39]
		w.restart()
		w.run(time.Minute)
		w.wantLive(urls(39)...)
		if _, ok := w.store.events[string(url(39))]; ok {
			t.Error("its report is still stored")
		}
	})
}

func TestABatchIsTakenOnce(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		now := time.Now()
		b := monitor.Batch{Vantage: "a", Seq: 1, SentAt: now, Observations: []monitor.Observation{
			{Relay: url(0), Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeFailed},
		}}
		if _, err := w.engine.Deliver(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Deliver(t.Context(), b); !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("a replay: %v, want ErrConflict", err)
		}
		b.Vantage = "stranger"
		if _, err := w.engine.Deliver(t.Context(), b); !errors.Is(err, monitor.ErrNotFound) {
			t.Errorf("a stranger: %v, want ErrNotFound", err)
		}
		if n := w.engine.RelayView(url(0)).Ballots[0].FailureCount; n != 1 {
			t.Errorf("%d failures counted, want 1", n)
		}
	})
}

func TestWrongTimesAreHistoryOnly(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		elapse(time.Hour)
		now := time.Now()
		at := func(seq uint64, times ...time.Time) {
			b := monitor.Batch{Vantage: "a", Seq: seq, SentAt: now}
			for _, at := range times {
				b.Observations = append(b.Observations, monitor.Observation{Relay: url(0), Vantage: "a", Start: at, At: at, Outcome: monitor.OutcomeFailed})
			}
			if _, err := w.engine.Deliver(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		failures := func() int { return w.engine.RelayView(url(0)).Ballots[0].FailureCount }
		at(1, now.Add(2*time.Minute), now.Add(-10*time.Minute))
		if n := failures(); n != 0 {
			t.Errorf("%d failures counted from the future and from a spool", n)
		}
		at(2, now.Add(-time.Second))
		at(3, now.Add(-31*time.Second))
		if n := failures(); n != 1 {
			t.Errorf("%d failures counted, want the newest alone", n)
		}
		if w.store.ingested != 4 {
			t.Errorf("%d observations in the history, want all 4", w.store.ingested)
		}
	})
}

func TestAWrongClockDecidesNothing(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		now := time.Now()
		b := monitor.Batch{Vantage: "a", Seq: w.vantages[0].seq + 1, SentAt: now}
		w.vantages[0].seq++
		for _, u := range urls(6) {
			b.Observations = append(b.Observations, monitor.Observation{Relay: u, Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeOK, ServerDate: now.Add(-5 * time.Minute)})
		}
		if _, err := w.engine.Deliver(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(20))
		w.run(4 * time.Minute)
		if g := w.engine.Generation(); g.Fallback != monitor.FallbackClock {
			t.Errorf("fallback %q, want clock", g.Fallback)
		}
		if n := w.moves(monitor.StateOnline); n != 0 {
			t.Errorf("%d transitions with a wrong clock", n)
		}
	})
}

// One vantage that tells wrong dates, by malice or behind a proxy that rewrites
// them, does not make the core doubt its own clock; two of three do.
func TestOneVantageDoesNotSetTheClock(t *testing.T) {
	inWorld(t, 40, []string{"a", "b", "c"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		dates := func(i int, off time.Duration) {
			t.Helper()
			now, v := time.Now(), w.vantages[i]
			v.seq++
			b := monitor.Batch{Vantage: v.name, Seq: v.seq, SentAt: now}
			for _, u := range urls(6) {
				b.Observations = append(b.Observations, monitor.Observation{Relay: u, Vantage: v.name, Start: now, At: now, Outcome: monitor.OutcomeOK, ServerDate: now.Add(off)})
			}
			if _, err := w.engine.Deliver(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			w.run(2 * time.Second)
		}
		dates(1, 0)
		dates(0, 5*time.Minute)
		if s := w.engine.Status(); s.ClockSkew != 0 || s.Fallback != monitor.FallbackNone {
			t.Errorf("one of two: skew %s, fallback %q", s.ClockSkew, s.Fallback)
		}
		dates(2, time.Second)
		if s := w.engine.Status(); s.ClockSkew != time.Second || s.Fallback != monitor.FallbackNone {
			t.Errorf("one of three: skew %s, fallback %q", s.ClockSkew, s.Fallback)
		}
		dates(2, 6*time.Minute)
		if s := w.engine.Status(); s.ClockSkew != 5*time.Minute || s.Fallback != monitor.FallbackClock {
			t.Errorf("two of three: skew %s, fallback %q", s.ClockSkew, s.Fallback)
		}
	})
}

func TestASpikeIsForgottenByItsRecovery(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		since := time.Now()
		v := w.vantages[1]
		v.sees, v.health = down, monitor.Health{Impairments: []monitor.Impairment{monitor.ImpairedSpike}, ImpairedSince: since}
		w.run(5 * time.Minute)
		if n := w.engine.RelayView(url(0)).Ballots[1].FailureCount; n == 0 {
			t.Fatal("an impaired vantage must go on stepping")
		}
		v.sees, v.health = up, monitor.Health{}
		v.recovery = []monitor.Recovery{{Impairment: monitor.ImpairedSpike, Since: since, At: time.Now()}}
		v.deliver(w)
		for _, u := range urls(40) {
			if n := w.engine.RelayView(u).Ballots[1].FailureCount; n != 0 {
				t.Fatalf("%s: %d failures left of the impaired time", u, n)
			}
		}
	})
}

func TestAFirstFailureAsksAnotherGroup(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		now := time.Now()
		a := w.vantages[0]
		a.seq++
		_, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: a.seq, SentAt: now, Observations: []monitor.Observation{
			{Relay: url(5), Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout},
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := w.vantages[1]
		b.seq++
		answer, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: b.seq, SentAt: now})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Expedite) != 1 || answer.Expedite[0] != url(5) {
			t.Errorf("b is asked for %v, want relay 5", answer.Expedite)
		}
	})
}

func TestAProvidersOutageLeavesOnceItFailedAgain(t *testing.T) {
	inWorld(t, 60, []string{"a", "b", "c"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		gone := urls(20) // a third: above the brake's tenth, below its half
		for _, v := range w.vantages {
			v.sees = but(monitor.OutcomeFailed, gone...)
		}
		w.run(time.Minute)
		w.wantLive(urls(60)...)
		if s := w.engine.Status(); s.Held != 20 {
			t.Errorf("%d held, want 20", s.Held)
		}
		w.run(10 * time.Minute)
		w.wantLive(urls(60)[20:]...)
		if s := w.engine.Status(); s.Held != 0 || s.Engaged {
			t.Errorf("still held %d, engaged %v", s.Held, s.Engaged)
		}
	})
}

func TestNothingLeavesRightAfterARestart(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.cfg.StartHold = 10 * time.Minute
		w.run(2 * time.Minute)
		w.restart()
		for _, v := range w.vantages {
			v.sees = but(monitor.OutcomeFailed, url(1))
		}
		w.run(9 * time.Minute)
		w.wantLive(urls(40)...)
		w.run(4 * time.Minute)
		if got := len(w.live()); got != 39 {
			t.Errorf("%d on the list after the start hold, want 39", got)
		}
	})
}

func TestAVantageThatSeesNothingClearlyDecidesNothing(t *testing.T) {
	inWorld(t, 80, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = func(u monitor.RelayURL, _ time.Time) monitor.Outcome {
			switch {
			case u == url(0):
				return monitor.OutcomeFailed
			case u < url(40):
				return monitor.OutcomeUnclear
			}
			return monitor.OutcomeOK
		}
		w.run(5 * time.Minute)
		w.wantLive(urls(80)...)
		if n := w.moves(monitor.StateOnline); n != 0 {
			t.Errorf("%d transitions, want none", n)
		}
	})
}

func TestAClockThatWasSetBackDoesNotStopTheRecords(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		now := time.Now()
		v := w.vantages[0]
		// As far ahead as the core believes an observation:
		// inside the tolerated skew; then the clock is mended.
		v.seq++
		ahead := now.Add(50 * time.Second)
		deliver := func(b monitor.Batch) {
			if _, err := w.engine.Deliver(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		deliver(monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: now, Observations: []monitor.Observation{
			{Relay: url(0), Vantage: "a", Start: ahead, At: ahead, Outcome: monitor.OutcomeOK},
		}})
		v.seq++
		deliver(monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: now, Recoveries: []monitor.Recovery{
			{Impairment: monitor.ImpairedClock, Since: now, At: now},
		}})
		elapse(20 * time.Second) // over the grace period
		v.seq++
		at := time.Now()
		deliver(monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: at, Observations: []monitor.Observation{
			{Relay: url(0), Vantage: "a", Start: at, At: at, Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout},
		}})
		if n := w.engine.RelayView(url(0)).Ballots[0].FailureCount; n != 1 {
			t.Errorf("%d failures counted after the clock was set back, want 1", n)
		}
	})
}

func TestACoreThatLostTheDatabaseEnds(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.store.ousted.Store(true)
		for _, v := range w.vantages {
			v.sees = but(monitor.OutcomeFailed, url(0))
		}
		w.run(5 * time.Minute)
		w.wantLive(urls(5)...)
		w.stop()
		if !errors.Is(w.ended, monitor.ErrConflict) {
			t.Errorf("Run returned %v, want ErrConflict", w.ended)
		}
	})
}

func TestALostAnswerOfTheStoreIsNoLostBatch(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(7))
		w.store.lostNext.Store(true)
		w.run(4 * time.Minute)
		w.wantLive(append(urls(7), urls(40)[8:]...)...)
		seqs := map[uint64]bool{}
		for _, b := range w.store.batches {
			if seqs[b.Seq] {
				t.Errorf("batch %d is stored twice", b.Seq)
			}
			seqs[b.Seq] = true
		}
		if s := w.engine.Status(); s.Refused != 1 || s.StoreError != "" {
			t.Errorf("refused %d, store error %q: want the one lost answer", s.Refused, s.StoreError)
		}
	})
}

func TestAnInterruptedFirstPassIsNotServed(t *testing.T) {
	inWorld(t, 200, []string{"a"}, func(t *testing.T, w *world) {
		w.run(25 * time.Second)
		if n := w.moves(monitor.StateUnknown); n == 0 || n == 200 {
			t.Fatalf("%d first verdicts, want the middle of the pass", n)
		}
		w.restart()
		if g := w.engine.Generation(); g.Fallback != monitor.FallbackWarmingUp || len(g.Online) != 0 {
			t.Fatalf("fallback %q with %d relays, want warming_up and none", g.Fallback, len(g.Online))
		}
		w.run(2 * time.Minute)
		w.wantLive(urls(200)...)
		w.restart()
		w.wantLive(urls(200)...)
	})
}

func TestHeldRelaysKeepTheirReports(t *testing.T) {
	inWorld(t, 60, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(20)...)
		w.run(3 * time.Hour)
		w.wantLive(urls(60)...)
		for _, r := range w.engine.Generation().Online {
			if age := time.Since(r.Report.CreatedAt); age > time.Hour+time.Minute {
				t.Errorf("%s: its report is %s old, and the frequency is an hour", r.URL, age)
			}
		}
	})
}

func TestNoGenerationNumberComesTwice(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		last := w.engine.Generation().Number
		for range 3 {
			w.run(40 * time.Minute) // quiet: hardly anything is committed
			if n := w.engine.Generation().Number; n <= last {
				t.Fatalf("generation %d after %d", n, last)
			}
			last = w.engine.Generation().Number
			w.restart()
			if n := w.engine.Generation().Number; n <= last {
				t.Fatalf("after a restart generation %d, before it %d", n, last)
			}
		}
	})
}

func TestReadyWithoutAnOutsideNetwork(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.vantages[0].sees = func(monitor.RelayURL, time.Time) monitor.Outcome { return monitor.OutcomeUnclear }
		w.run(2 * time.Minute)
		if ok, why := w.engine.Ready(); !ok {
			t.Errorf("not ready: %s", why)
		}
		if g := w.engine.Generation(); g.Fallback != monitor.FallbackWarmingUp || len(g.Online) != 0 {
			t.Errorf("fallback %q, %d online: want nothing served", g.Fallback, len(g.Online))
		}
	})
}
