package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
)

const day = 24 * time.Hour

// sweep is one that found these, each named by as many authors as given.
func sweep(whole bool, found map[monitor.RelayURL]int) *monitor.Sweep {
	s := &monitor.Sweep{Start: time.Now().Add(-time.Minute), At: time.Now(), Whole: whole, Authors: 1000, Rejected: map[string]int{"host": 2}}
	for u, n := range found { // in any order
		s.Found = append(s.Found, monitor.FoundRelay{URL: u, Kinds: []int{3, 10002}, Authors: n})
	}
	return s
}

// named are relays that one author names.
func namedOnce(relays ...monitor.RelayURL) map[monitor.RelayURL]int {
	out := map[monitor.RelayURL]int{}
	for _, u := range relays {
		out[u] = 1
	}
	return out
}

func (w *world) discover(s *monitor.Sweep) monitor.DiscoveryStatus {
	w.t.Helper()
	st, err := w.engine.Discover(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	if st.Sweep == nil || st.Sweep.Found != nil || len(s.Found) > 0 && s.Found[0].URL == "" {
		w.t.Fatalf("the sweep in the status is %+v", st.Sweep)
	}
	return st
}

// found are the watched relays that discovery brought, by URL.
func (w *world) found() []monitor.RelayURL {
	out := []monitor.RelayURL{}
	for _, r := range w.engine.Relays(monitor.RelayQuery{Source: monitor.SourceDiscovery}) {
		out = append(out, r.URL)
	}
	return out
}

func (w *world) wantFound(want ...monitor.RelayURL) {
	w.t.Helper()
	slices.Sort(want)
	if d := cmp.Diff(append([]monitor.RelayURL{}, want...), w.found()); d != "" {
		w.t.Fatalf("relays of discovery (-want +got):\n%s", d)
	}
}

func (w *world) wantCounts(st monitor.DiscoveryStatus, found, watched, waiting int) {
	w.t.Helper()
	if st.Found != found || st.Watched != watched || st.Waiting != waiting {
		w.t.Fatalf("%d found, %d watched, %d waiting; want %d, %d, %d", st.Found, st.Watched, st.Waiting, found, watched, waiting)
	}
}

// later stops the engine and lets much time pass: nothing is probed, and what is
// known stands.
func (w *world) later(d time.Duration) {
	w.stop()
	elapse(d)
}

func wild(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://wild%05d.example.net/", i))
}

func wilds(n int) []monitor.RelayURL {
	out := make([]monitor.RelayURL, n)
	for i := range out {
		out[i] = wild(i)
	}
	return out
}

func onHost(host string, path int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://%s/%02d", host, path))
}

func TestDiscoveryTakesInWhatIsNamedMost(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.cfg.MaxRelays, w.cfg.MaxPerHost, w.cfg.Discovery = 46, 3, true
		w.configure(t)
		w.run(2 * time.Minute)
		if d := w.engine.Status().Discovery; d == nil || d.Sweep != nil {
			t.Errorf("before the first sweep: %+v", d)
		}
		w.want(w.do(monitor.CommandAdd, onHost("h.example", 0)), "")
		generation, version, began := w.engine.Generation().Number, w.version(), time.Now()
		st := w.discover(sweep(true, map[monitor.RelayURL]int{
			url(0): 9, onHost("h.example", 1): 3, onHost("h.example", 2): 5, onHost("h.example", 3): 4, onHost("h.example", 4): 5,
			wild(1): 1, wild(2): 7, wild(3): 1, wild(4): 2, stranger: 8,
		}))
		// Two of the host besides the operator's, then three others: one by its name.
		w.wantFound(onHost("h.example", 2), onHost("h.example", 4), wild(2), wild(4), stranger)
		w.wantCounts(st, 10, 6, 4)
		if st.Held != "" {
			t.Errorf("held: %s", st.Held)
		}
		if v := w.engine.RelayView(stranger); !v.Candidate || !v.Monitored || !v.FirstSeen.Equal(began) ||
			cmp.Diff(&monitor.Provenance{Kinds: []int{3, 10002}, Authors: 8, FirstSeen: began, LastSeen: began}, v.Provenance) != "" {
			t.Errorf("%+v, provenance %+v", v.WatchedRelay, v.Provenance)
		}
		if v := w.engine.RelayView(url(0)); v.Source != monitor.SourceConfig || v.Candidate || v.Provenance.Authors != 9 {
			t.Errorf("a configured relay that is found: %+v, provenance %+v", v.WatchedRelay, v.Provenance)
		}
		if v := w.engine.RelayView(url(1)); v.Provenance != nil {
			t.Errorf("provenance of a relay that was not found: %+v", v.Provenance)
		}
		if task, ok := w.tasks()[stranger]; !ok || !task.Candidate || w.version() == version {
			t.Errorf("task %+v", task)
		}
		w.run(time.Second)
		if n := w.engine.Generation().Number; n != generation {
			t.Errorf("generation %d after %d: candidates make none", n, generation)
		}
		w.run(12 * time.Minute)
		w.wantState(stranger, monitor.StateOnline)
		if d := w.engine.Status().Discovery; d == nil || d.Found != 10 || d.Sweep.Authors != 1000 || d.Sweep.Rejected["host"] != 2 {
			t.Errorf("status %+v", d)
		}
		w.restart()
		w.wantFound(onHost("h.example", 2), onHost("h.example", 4), wild(2), wild(4), stranger)
		st = *w.engine.Status().Discovery
		w.wantCounts(st, 10, 6, 4)
		if v := w.engine.RelayView(stranger); v.Candidate || v.Provenance == nil || v.Provenance.Authors != 8 || !v.Provenance.FirstSeen.Equal(began) {
			t.Errorf("after a restart: candidate %v, provenance %+v", v.Candidate, v.Provenance)
		}
		// More room: those that waited come, and are told since when they are known.
		w.cfg.MaxRelays = 100
		w.configure(t)
		w.wantCounts(w.discover(sweep(false, namedOnce(wild(1)))), 1, 1, 0)
		if p := w.engine.RelayView(wild(1)).Provenance; p == nil || !p.FirstSeen.Equal(began) || !p.LastSeen.Equal(time.Now()) {
			t.Errorf("provenance %+v, first named %s", p, began)
		}
	})
}

func TestDiscoveryLeavesOutWhatIsExcludedOrATwin(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		w.cfg.Exclude = []monitor.RelayURL{"wss://barred.example/", "wss://barred.example/x"}
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: "wss://watched.example/a", Source: monitor.SourceConfig},
			monitor.WatchedRelay{URL: "wss://asked.example/a/", Source: monitor.SourceConfig})
		w.configure(t)
		w.run(2 * time.Minute)
		w.do(monitor.CommandExclude, url(2), "wss://excluded.example/", "wss://excluded.example/x")
		w.do(monitor.CommandAdd, "wss://removed.example/")
		w.do(monitor.CommandRemove, "wss://removed.example/")
		st := w.discover(sweep(true, namedOnce(
			"wss://barred.example/", "wss://barred.example/x/", "ws://barred.example/", url(2), "wss://excluded.example/", "wss://excluded.example/x/", "ws://excluded.example/",
			"wss://watched.example/a/", "wss://asked.example/a",
			"wss://both.example/a", "wss://both.example/a/", "wss://slash.example/a/", "wss://both.example/", "ws://both.example/",
			"wss://removed.example/",
		)))
		want := []monitor.RelayURL{"wss://asked.example/a", "wss://both.example/a", "wss://slash.example/a/", "wss://both.example/", "ws://both.example/", "wss://removed.example/"}
		w.wantFound(want...)
		w.wantCounts(st, 15, 6, 0)
		if v := w.engine.RelayView("wss://asked.example/a/"); !v.Monitored {
			t.Error("a configured relay gave way to its slash twin")
		}
		// The one with the slash stays until another one is online in its stead.
		w.vantages[0].sees = but(monitor.OutcomeFailed, "wss://slash.example/a")
		w.run(11 * time.Minute)
		w.discover(sweep(true, namedOnce(append(want, "wss://slash.example/a")...)))
		w.run(11 * time.Minute)
		w.discover(sweep(false, nil))
		w.wantFound(append(want, "wss://slash.example/a")...)
		w.vantages[0].sees = up
		w.run(25 * time.Hour)
		w.wantState("wss://slash.example/a", monitor.StateOnline)
		w.discover(sweep(false, nil))
		w.wantFound("wss://asked.example/a", "wss://both.example/a", "wss://slash.example/a", "wss://both.example/", "ws://both.example/", "wss://removed.example/")
		if last := w.last("wss://slash.example/a/"); last.To != monitor.StateUnknown || last.Evidence != "wss://slash.example/a is the same relay" {
			t.Errorf("the last transition is %+v", last)
		}
		w.want(w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{"wss://slash.example/a/"}}), "is watched as wss://slash.example/a")
	})
}

// This monitor answers its own vantages whatever becomes of the network: with it among
// the watched relays the failure of all others looks corroborated (S10).
func TestOurOwnRelayIsNeverBroughtIn(t *testing.T) {
	const ours, port = monitor.RelayURL("wss://monitor.example/"), monitor.RelayURL("wss://monitor.example:8443/")
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		w.discover(sweep(true, namedOnce(ours))) // by an earlier version
		w.run(10 * time.Minute)
		w.wantState(ours, monitor.StateOnline)
		w.cfg.Own = []monitor.RelayURL{ours}
		w.cfg.Discovery = true
		w.configure(t)
		w.wantFound()
		if last := w.last(ours); last.To != monitor.StateUnknown || last.Evidence != "it is this monitor itself" {
			t.Errorf("the last transition is %+v", last)
		}
		st := w.discover(sweep(true, namedOnce(ours, "ws://monitor.example/", "wss://monitor.example/path", port)))
		w.wantFound(port)
		w.wantCounts(st, 4, 1, 0)
		w.want(w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{ours, "ws://monitor.example/x"}}),
			"is this monitor itself", "is this monitor itself")
		w.run(10 * time.Minute)
		w.wantLive(append([]monitor.RelayURL{port}, urls(3)...)...)
		// Only the network of others is gone.
		w.vantages[0].sees = but(monitor.OutcomeFailed, append(urls(3), port)...)
		w.run(20 * time.Minute)
		w.wantLive(append([]monitor.RelayURL{port}, urls(3)...)...)
		// Who asks for it by name has it.
		w.want(w.do(monitor.CommandAdd, ours), "")
		w.configure(t)
		if !w.engine.RelayView(ours).Monitored {
			t.Error("an operator asked for it, and it is not watched")
		}
	})
}

func TestFoundRelaysLeaveWhenNobodyNamesThem(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		alive, fallen, never, asked := wild(1), wild(2), wild(3), wild(4)
		w.vantages[0].sees = but(monitor.OutcomeFailed, never)
		w.discover(sweep(true, namedOnce(alive, fallen, never, asked)))
		w.run(12 * time.Minute)
		w.want(w.do(monitor.CommandAdd, asked), "")
		w.vantages[0].sees = but(monitor.OutcomeFailed, never, fallen, asked)
		w.run(20 * time.Minute)
		w.wantState(fallen, monitor.StateDead)
		w.wantState(alive, monitor.StateOnline)
		again := sweep(true, namedOnce(url(0)))
		at := func() *monitor.Sweep { again.At = time.Now(); return again }
		w.later(6 * day)
		w.discover(at())
		w.wantFound(alive, fallen, never)
		elapse(2 * day)
		again.Whole = false
		w.discover(at())
		w.wantFound(alive, fallen, never)
		again.Whole = true
		w.discover(at())
		w.wantFound(alive, fallen)
		if r := w.store.relay(never); r.Source != monitor.SourceNone || r.Verdict.Reason != "unknown: nobody names it any longer" {
			t.Errorf("it left as %+v", r)
		}
		elapse(20 * day)
		w.discover(at())
		w.wantFound(alive, fallen)
		w.discover(sweep(false, namedOnce(fallen))) // somebody still does
		elapse(29 * day)
		w.discover(at())
		w.wantFound(alive, fallen)
		elapse(2 * day)
		w.start() // the same after a restart
		w.discover(at())
		w.wantFound(alive)
		if v := w.engine.RelayView(asked); !v.Monitored {
			t.Error("what an operator added left as well")
		}
		// What was not named for long is forgotten, but for what is watched now.
		w.later(91 * day)
		w.discover(at())
		if n := len(w.store.named); n != 1 {
			t.Errorf("%d relays are still stored as named, want 1", n)
		}
		w.wantFound(alive)
		// One that comes back is a candidate again, with its history.
		w.discover(sweep(true, namedOnce(never)))
		w.wantFound(alive, never)
		w.wantState(never, monitor.StateUnknown)
	})
}

func TestASweepAddsAtMostHalf(t *testing.T) {
	inWorld(t, 500, []string{"a"}, func(t *testing.T, w *world) {
		// Up to 500 relays any number may come, and the more so the fewer there are.
		w.wantCounts(w.discover(sweep(true, namedOnce(wilds(1500)...))), 1500, 1500, 0)
		found := map[monitor.RelayURL]int{}
		for i := range 4000 {
			found[wild(i)] = i
		}
		st := w.discover(sweep(true, found))
		w.wantCounts(st, 4000, 2500, 1500)
		if want := "2500 relays more were found than one sweep may add"; strings.Contains(st.Held, want) || !strings.HasPrefix(st.Held, "1500 relays more were found than one sweep may add to 2000: at most 1000") {
			t.Errorf("held: %q", st.Held)
		}
		if n := strings.Count(w.log.String(), "discovery held back"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		if v := w.engine.RelayView(wild(3000)); !v.Monitored {
			t.Error("the most named ones did not come first")
		}
		if v := w.engine.RelayView(wild(2999)); v.Monitored {
			t.Error("one more came")
		}
		if d := w.engine.Status().Discovery; d.Held != st.Held {
			t.Errorf("the status says %q", d.Held)
		}
		st = w.discover(sweep(true, found))
		w.wantCounts(st, 4000, 4000, 0)
		if st.Held != "" {
			t.Errorf("held: %q", st.Held)
		}
	})
}

func TestASweepTakesAtMostHalfAway(t *testing.T) {
	inWorld(t, 300, []string{"a"}, func(t *testing.T, w *world) {
		w.discover(sweep(true, namedOnce(wilds(301)...)))
		w.later(8 * day)
		st := w.discover(sweep(true, nil))
		if st.Held != "301 of 601 relays would leave, which is more than half: none leaves" || len(w.found()) != 301 {
			t.Errorf("held: %q, %d are left", st.Held, len(w.found()))
		}
		if n := strings.Count(w.log.String(), "discovery held back"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		st = w.discover(sweep(true, namedOnce(wild(7))))
		if st.Held != "" || len(w.found()) != 1 {
			t.Errorf("held: %q, %d are left, want the one that is named", st.Held, len(w.found()))
		}
	})
}

// A small set may lose all that it found.
func TestASmallSetIsNotHeld(t *testing.T) {
	inWorld(t, 100, []string{"a"}, func(t *testing.T, w *world) {
		w.discover(sweep(true, namedOnce(wilds(400)...)))
		w.later(8 * day)
		if st := w.discover(sweep(true, nil)); st.Held != "" || len(w.found()) != 0 {
			t.Errorf("held: %q, %d are left", st.Held, len(w.found()))
		}
		// Of those that are named alike the first ones by URL come.
		w.cfg.MaxRelays = 105
		w.configure(t)
		found := map[monitor.RelayURL]int{}
		for i := range 200 {
			found[wild(i)] = 1 + i*7919%3
		}
		w.discover(sweep(true, found))
		w.wantFound(wild(1), wild(4), wild(7), wild(10), wild(13))
	})
}

func TestDeadCandidatesMakeRoomInAFullSet(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.cfg.MaxRelays = 14
		w.configure(t)
		w.vantages[0].sees = but(monitor.OutcomeFailed, wild(0), wild(1), stranger)
		w.discover(sweep(true, namedOnce(wild(1))))
		elapse(time.Minute)
		w.discover(sweep(true, map[monitor.RelayURL]int{wild(0): 9, wild(1): 1, wild(2): 1}))
		w.want(w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{stranger}}), "")
		w.run(26 * time.Hour)
		for _, u := range []monitor.RelayURL{wild(0), wild(1), stranger} {
			w.wantState(u, monitor.StateDead)
		}
		all := namedOnce(wilds(20)...)
		all[wild(1)] = 50
		w.wantCounts(w.discover(sweep(true, all)), 20, 3, 17) // none is dead for a week
		w.later(7 * day)
		st := w.discover(sweep(true, map[monitor.RelayURL]int{wild(0): 9, wild(1): 50, wild(2): 1, wild(3): 1}))
		w.wantCounts(st, 4, 3, 1)
		w.wantFound(wild(0), wild(2), wild(3)) // the oldest went
		// It waits behind all that were never tried, however many name it.
		w.discover(sweep(true, all))
		w.wantFound(wild(2), wild(3), wild(4))
		if v := w.engine.RelayView(stranger); !v.Monitored {
			t.Error("a stranger's submission made room for discovery")
		}
		w.cfg.MaxRelays = 12 // fewer: nothing more comes, and nothing alive leaves
		w.configure(t)
		w.discover(sweep(true, all))
		w.wantFound(wild(2), wild(3), wild(4))
	})
}

// A relay that is found and configured belongs to the configuration, and stays
// when the configuration lets go of it.
func TestFoundRelaysAndTheConfiguration(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.cfg.Discovery = true
		w.configure(t)
		w.discover(sweep(true, namedOnce(wild(1), url(0), url(1))))
		w.run(12 * time.Minute)
		plain := w.cfg.Relays
		more := append(slices.Clone(plain), monitor.WatchedRelay{URL: wild(1), Source: monitor.SourceFile, FirstSeen: time.Now()})
		lists := append(urls(10), wild(1))
		for name, change := range map[string]func(){"reload": func() { w.configure(t) }, "restart": func() { w.restart() }} {
			w.cfg.Relays = more
			change()
			if v := w.engine.RelayView(wild(1)); v.Source != monitor.SourceFile || v.Candidate {
				t.Errorf("%s: source %s, candidate %v", name, v.Source, v.Candidate)
			}
			w.cfg.Relays = plain[1:]
			change()
			w.run(time.Second)
			for _, u := range []monitor.RelayURL{wild(1), url(0)} {
				if v := w.engine.RelayView(u); v.Source != monitor.SourceDiscovery || v.Candidate || !v.Monitored {
					t.Errorf("%s: %s: source %s, candidate %v, monitored %v", name, u, v.Source, v.Candidate, v.Monitored)
				}
				if s := w.store.relay(u).Source; s != monitor.SourceDiscovery {
					t.Errorf("%s: %s is stored with source %s", name, u, s)
				}
			}
			w.wantLive(lists...)
			w.cfg.Relays = plain
			change()
		}
		// Nobody names it, or discovery is off: it leaves with the configuration.
		w.cfg.Relays = plain[:9]
		w.configure(t)
		w.cfg.Discovery = false
		w.cfg.Relays = plain[1:9]
		w.configure(t)
		w.run(2 * time.Second)
		w.wantLive(append(urls(9)[1:], wild(1))...)
	})
}

// A first sweep finds thirty times as many relays as are configured, most of
// them dead names, while the first pass is under way.
func TestAFloodOfCandidatesDisturbsNothing(t *testing.T) {
	inWorld(t, 100, []string{"a", "b"}, func(t *testing.T, w *world) {
		n := 0
		for _, v := range w.vantages {
			v.sees = func(u monitor.RelayURL, _ time.Time) monitor.Outcome {
				switch {
				case !strings.Contains(string(u), "wild"), strings.HasSuffix(string(u), "7.example.net/"):
					return monitor.OutcomeOK
				case strings.HasSuffix(string(u), "0.example.net/"):
					return monitor.OutcomeFailed
				}
				return monitor.OutcomeUnclear // a name whose servers do not answer
			}
		}
		w.pub.perRound = 1 // reports take their time
		generation := w.engine.Generation().Number
		w.discover(sweep(true, namedOnce(wilds(3000)...)))
		if got := w.engine.Generation().Number; got != generation {
			t.Errorf("generation %d after %d", got, generation)
		}
		if s := w.engine.Status(); s.Candidates != 3000 || s.States[monitor.StateUnknown] != 100 || w.engine.Generation().Monitored != 100 {
			t.Errorf("%d candidates, states %v, %d monitored", s.Candidates, s.States, w.engine.Generation().Monitored)
		}
		for end := time.Now().Add(3 * time.Minute); len(w.live()) == 0 && time.Now().Before(end); n++ {
			w.run(5 * time.Second)
		}
		if ok, why := w.engine.Ready(); !ok || !w.engine.Generation().Usable() {
			t.Fatalf("after %d s: ready %v (%s), fallback %q", 5*n, ok, why, w.engine.Generation().Fallback)
		}
		if m := w.engine.Status().WarmUp; m.Due > 100 {
			t.Errorf("%d relays are due in the first pass", m.Due)
		}
		w.run(3 * time.Minute)
		for _, v := range w.engine.Status().Vantages {
			if !v.Eligible {
				t.Errorf("vantage %s is not believed for dead names", v.Name)
			}
		}
		if s := w.engine.Status(); s.Engaged || s.Held > 0 {
			t.Error("the brake holds")
		}
	})
}

func TestADiscoveryWhileTheStoreIsAway(t *testing.T) {
	inWorld(t, 10, []string{"a"}, func(t *testing.T, w *world) {
		w.store.away.Store(true)
		if _, err := w.engine.Discover(t.Context(), sweep(true, namedOnce(wild(1)))); !errors.Is(err, monitor.ErrUnavailable) {
			t.Fatalf("%v, want ErrUnavailable", err)
		}
		w.wantFound()
		w.store.away.Store(false)
		w.store.lostCommit.Store(true)
		if _, err := w.engine.Discover(t.Context(), sweep(true, namedOnce(wild(1)))); !errors.Is(err, monitor.ErrUnavailable) {
			t.Fatalf("%v, want ErrUnavailable", err)
		}
		w.wantFound()
		w.run(5 * time.Second)
		if s := w.store.relay(wild(1)).Source; s != monitor.SourceNone {
			t.Errorf("a restart would watch it as %s", s)
		}
		w.discover(sweep(true, namedOnce(wild(1))))
		w.wantFound(wild(1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.engine.Discover(ctx, sweep(true, namedOnce(wild(2)))); !errors.Is(err, monitor.ErrUnavailable) {
			t.Fatalf("%v, want ErrUnavailable for a sweep that was given up", err)
		}
		w.store.ousted.Store(true)
		if _, err := w.engine.Discover(t.Context(), sweep(true, namedOnce(wild(2)))); !errors.Is(err, monitor.ErrConflict) {
			t.Fatalf("%v, want ErrConflict", err)
		}
	})
}

// Whatever is found, in whatever order, above the caps there is only what was
// asked for, a big set grows by half at most, and nothing that is excluded comes.
func TestDiscoveryKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := engine.Config{
			Liveness: monitor.DefaultLiveness(), Corroboration: monitor.DefaultCorroboration(), Cadence: monitor.DefaultCadence(), Freshness: monitor.DefaultFreshness(),
			Log: slog.New(slog.DiscardHandler), Pubkey: "us",
			MaxRelays: rapid.SampledFrom([]int{0, 3, 600, 700, 5000}).Draw(t, "most"), MaxPerHost: rapid.IntRange(0, 4).Draw(t, "most per host"),
		}
		configured := rapid.SampledFrom([]int{0, 5, 499, 500, 501, 650}).Draw(t, "configured")
		for i := range configured {
			cfg.Relays = append(cfg.Relays, monitor.WatchedRelay{URL: monitor.RelayURL(fmt.Sprintf("wss://host%d.example/own%d", i%100, i)), Source: monitor.SourceConfig})
		}
		hosts := rapid.IntRange(1, 400).Draw(t, "hosts")
		var found []monitor.FoundRelay
		for i := range rapid.IntRange(0, 900).Draw(t, "found") {
			u := fmt.Sprintf("%s://host%d.example/%s%d%s", []string{"ws", "wss", "wss"}[i%3], i%hosts, "p", i/hosts/2, []string{"", "/"}[i/hosts%2])
			found = append(found, monitor.FoundRelay{URL: monitor.RelayURL(u), Authors: 1 + i*7919%13})
		}
		for i := 0; i < len(found); i += 10 {
			cfg.Exclude = append(cfg.Exclude, found[i].URL)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		var outcome []monitor.RelayURL
		for try := range uint64(2) {
			random := rand.New(rand.NewPCG(seed, try))
			random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
			e, err := engine.New(context.Background(), cfg, newStore(), func([]monitor.SignedEvent) (engine.Publisher, error) {
				return &publisher{at: map[monitor.RelayURL]time.Time{}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			st, err := e.Discover(context.Background(), &monitor.Sweep{At: time.Now(), Whole: true, Found: found})
			if err != nil {
				t.Fatal(err)
			}
			watched, perHost := []monitor.RelayURL{}, map[string]int{}
			own := map[string]int{}
			for _, r := range e.Relays(monitor.RelayQuery{}) {
				watched = append(watched, r.URL)
				perHost[r.URL.Host()]++
				if r.Source != monitor.SourceDiscovery {
					own[r.URL.Host()]++
				}
				if slices.Contains(cfg.Exclude, r.URL) {
					t.Fatalf("%s is excluded", r.URL)
				}
				if base, ok := strings.CutSuffix(string(r.URL), "/"); ok && slices.Contains(watched, monitor.RelayURL(base)) {
					t.Fatalf("%s and its slash twin are watched", base)
				}
			}
			if cfg.MaxRelays > 0 && len(watched) > max(cfg.MaxRelays, configured) {
				t.Fatalf("%d watched, at most %d may be", len(watched), cfg.MaxRelays)
			}
			for host, n := range perHost {
				if cfg.MaxPerHost > 0 && n > max(cfg.MaxPerHost, own[host]) {
					t.Fatalf("%d watched of %s, at most %d may be", n, host, cfg.MaxPerHost)
				}
			}
			added := len(watched) - configured
			if configured > 500 && added > configured/2 {
				t.Fatalf("%d more than %d", added, configured)
			}
			if st.Found != len(found) || st.Watched != added || (st.Held != "") && (configured <= 500 || added != configured/2) {
				t.Fatalf("%d added of %d: %+v", added, len(found), st)
			}
			if try == 0 {
				outcome = watched
			} else if d := cmp.Diff(outcome, watched); d != "" {
				t.Fatalf("in another order (-first +second):\n%s", d)
			}
		}
	})
}

// What becomes of candidates that never answer changes no list, and asks nobody.
func TestDeadCandidatesAreQuiet(t *testing.T) {
	inWorld(t, 10, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		for _, v := range w.vantages {
			v.sees = but(monitor.OutcomeFailed, wilds(100)...)
		}
		w.discover(sweep(true, namedOnce(wilds(100)...)))
		generation := w.engine.Generation().Number
		w.run(20 * time.Minute)
		if n := w.engine.Generation().Number - generation; n > 22 {
			t.Errorf("%d generations in 20 minutes", n)
		}
		if n := w.moves(monitor.StateUnknown); n < 110 {
			t.Fatalf("%d first verdicts: the candidates were not looked at", n)
		}
		w.discover(sweep(true, namedOnce(stranger)))
		now := time.Now()
		for i, v := range w.vantages {
			v.seq++
			b := monitor.Batch{Vantage: v.name, Seq: v.seq, SentAt: now}
			if i == 0 {
				b.Observations = []monitor.Observation{{Relay: stranger, Vantage: v.name, Start: now, At: now, Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout}}
			}
			a, err := w.engine.Deliver(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Expedite) > 0 {
				t.Errorf("vantage %s is asked for %v", v.name, a.Expedite)
			}
		}
	})
}
