package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

const stranger monitor.RelayURL = "wss://stranger.example/"

// do gives a command that must be taken, and returns why it was not done for
// each relay, "" where it was.
func (w *world) do(kind monitor.CommandKind, relays ...monitor.RelayURL) []string {
	w.t.Helper()
	return w.give(monitor.Command{Kind: kind, Actor: "token", Relays: relays})
}

func (w *world) give(c monitor.Command) []string {
	w.t.Helper()
	results, err := w.engine.Administer(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("%s: %v", c.Kind, err)
	}
	out := []string{}
	for i, r := range results {
		if len(c.Relays) > 0 && r.Relay != c.Relays[i] {
			w.t.Fatalf("%s: result %d is of %s, want %s", c.Kind, i, r.Relay, c.Relays[i])
		}
		if r.Done != (r.Why == "") {
			w.t.Fatalf("%s %s: done %v, and why %q", c.Kind, r.Relay, r.Done, r.Why)
		}
		out = append(out, r.Why)
	}
	return out
}

func (w *world) want(got []string, want ...string) {
	w.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), got); d != "" {
		w.t.Fatalf("results (-want +got):\n%s", d)
	}
}

// pause is the command for so long from now.
func pause(d time.Duration, relays ...monitor.RelayURL) monitor.Command {
	return monitor.Command{Kind: monitor.CommandPause, Actor: "token", Until: time.Now().Add(d), Relays: relays}
}

func (w *world) wantState(u monitor.RelayURL, want monitor.State) {
	w.t.Helper()
	if got := w.engine.RelayView(u).Verdict; got.State != want {
		w.t.Fatalf("%s is %s (%s), want %s", u, got.State, got.Reason, want)
	}
}

// tasks are what a vantage is to watch.
func (w *world) tasks() map[monitor.RelayURL]monitor.Task {
	w.t.Helper()
	tasks, err := w.engine.Tasks(w.t.Context(), w.vantages[0].name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[monitor.RelayURL]monitor.Task{}
	for _, t := range tasks.Relays {
		out[t.Relay] = t
	}
	return out
}

// version is that of the tasks.
func (w *world) version() uint64 {
	w.t.Helper()
	tasks, err := w.engine.Tasks(w.t.Context(), w.vantages[0].name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return tasks.Version
}

// last is the newest transition of a relay.
func (w *world) last(u monitor.RelayURL) monitor.Transition {
	for _, t := range slices.Backward(w.store.transitions()) {
		if t.Relay == u {
			return t
		}
	}
	return monitor.Transition{}
}

func (w *world) wantAudit(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, a := range w.store.audited() {
		got = append(got, fmt.Sprintf("%s %s %d %s", a.Actor, a.Kind, len(a.Relays), a.Note))
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("audit (-want +got):\n%s", d)
	}
}

func TestAnOperatorAddsAndRemovesRelays(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		began := time.Now()
		w.want(w.do(monitor.CommandAdd, url(0), stranger, stranger), "is watched already", "", "is named twice")
		w.run(2 * time.Minute)
		w.wantLive(append(urls(40), stranger)...)
		if v := w.engine.RelayView(stranger); v.Source != monitor.SourceOperator || v.Candidate || !v.FirstSeen.Equal(began) {
			t.Errorf("source %s, candidate %v, first seen %s", v.Source, v.Candidate, v.FirstSeen)
		}
		w.restart()
		w.wantLive(append(urls(40), stranger)...)

		before := w.engine.Generation().Number
		got := w.do(monitor.CommandRemove, url(0), stranger, "wss://nobody.example/")
		w.want(got, "is in the configuration: take it out there and reload, or exclude it", "", "is not watched")
		// A generation was made in this very second: the next one is a second away.
		if n := w.engine.Generation().Number; n != before {
			t.Errorf("generation %d after %d within one second", n, before)
		}
		w.run(time.Second)
		w.wantLive(urls(40)...)
		w.run(5 * time.Second)
		before = w.engine.Generation().Number
		w.want(w.do(monitor.CommandExclude, url(39)), "")
		if n := w.engine.Generation().Number; n != before+1 {
			t.Errorf("generation %d after %d, want one at once where none was made for long", n, before)
		}
		w.wantLive(urls(39)...)
		w.want(w.do(monitor.CommandInclude, url(39)), "")
		w.run(2 * time.Minute)
		if last := w.last(stranger); last.From != monitor.StateOnline || last.To != monitor.StateUnknown || last.Evidence != "an operator removed it" {
			t.Errorf("the last transition is %+v", last)
		}
		if w.store.reported(stranger) {
			t.Error("its report is still stored")
		}
		if !slices.Contains(w.pub.withdrawn, stranger) {
			t.Error("the publisher does not know of its withdrawal")
		}
		if _, ok := w.tasks()[stranger]; ok || w.engine.RelayView(stranger).Monitored {
			t.Error("it is still watched")
		}
		w.run(time.Minute) // results of probes that were under way
		w.restart()
		if _, ok := w.tasks()[stranger]; ok {
			t.Error("a restart watches it again")
		}

		// It comes back with its history, and nothing of long ago counts.
		elapse(2 * time.Hour)
		w.want(w.do(monitor.CommandAdd, stranger), "")
		w.wantState(stranger, monitor.StateUnknown)
		if v := w.engine.RelayView(stranger); !v.FirstSeen.Equal(began) || !v.Monitored || v.Ballots[0].Vote != monitor.VoteNone {
			t.Errorf("first seen %s, want %s; ballots %+v", v.FirstSeen, began, v.Ballots)
		}
		w.run(2 * time.Minute)
		w.wantState(stranger, monitor.StateOnline)
		w.wantAudit("token add 1 ", "token remove 1 ", "token exclude 1 ", "token include 1 ", "token add 1 ")
	})
}

func TestAnExcludedRelayIsNowhere(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.want(w.give(monitor.Command{Kind: monitor.CommandExclude, Actor: "aa", Note: "they asked", Relays: []monitor.RelayURL{url(39), stranger}}), "", "")
		check := func(when string) {
			t.Helper()
			w.wantLive(urls(39)...)
			for _, u := range []monitor.RelayURL{url(39), stranger} {
				if v := w.engine.RelayView(u); v.Monitored || !v.Excluded || v.Verdict.State != monitor.StateUnknown {
					t.Errorf("%s: %s: monitored %v, excluded %v, %s", when, u, v.Monitored, v.Excluded, v.Verdict.State)
				}
				if _, ok := w.tasks()[u]; ok {
					t.Errorf("%s: %s is a task", when, u)
				}
			}
			if g := w.engine.Generation(); g.Monitored != 39 || len(g.Down) != 0 {
				t.Errorf("%s: %d monitored, %d down", when, g.Monitored, len(g.Down))
			}
			n := 0
			for _, c := range w.engine.Status().States {
				n += c
			}
			if n != 39 {
				t.Errorf("%s: %d counted, want 39", when, n)
			}
			if got := w.engine.Relays(monitor.RelayQuery{Excluded: true}); len(got) != 2 || got[0].URL != url(39) || got[1].URL != stranger || !got[0].Excluded {
				t.Errorf("%s: excluded ones %+v", when, got)
			}
			for _, v := range w.cfg.Vantages {
				if w.store.recorded(v.Name, url(39)) {
					t.Errorf("%s: vantage %s keeps its record", when, v.Name)
				}
			}
		}
		check("at once")
		if last := w.last(url(39)); last.To != monitor.StateUnknown || last.Evidence != "an operator excluded it" {
			t.Errorf("the last transition is %+v", last)
		}
		if s := w.engine.Status(); s.Engaged {
			t.Error("the brake counts it as a departure")
		}
		w.run(2 * time.Minute)
		check("later")
		w.restart()
		check("after a restart") // it stands in the configuration still
		excluded := "is excluded by an operator: include it first"
		w.want(w.do(monitor.CommandAdd, url(39), stranger), excluded, excluded)
		w.want(w.do(monitor.CommandCheck, url(39)), excluded)
		w.want(w.give(pause(time.Hour, url(39))), excluded)
		w.want(w.do(monitor.CommandExclude, url(39)), "is excluded already")
		w.want(w.do(monitor.CommandInclude, url(39), stranger, url(1)), "", "", "is not excluded")
		w.wantState(url(39), monitor.StateUnknown)
		if _, ok := w.tasks()[stranger]; ok {
			t.Error("a relay that nobody named is watched after its exclusion")
		}
		w.run(2 * time.Minute)
		w.wantLive(urls(40)...)
		w.wantAudit("aa exclude 2 they asked", "token include 2 ")
	})
}

func TestTheConfigurationExcludes(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, stranger), "")
		w.run(2 * time.Minute)
		w.wantLive(append(urls(40), stranger)...)
		w.cfg.Exclude = []monitor.RelayURL{url(0), stranger, "wss://never.example/"}
		w.restart()
		w.run(time.Minute)
		w.wantLive(urls(40)[1:]...)
		for _, u := range w.cfg.Exclude {
			if v := w.engine.RelayView(u); v.Monitored || !v.Excluded {
				t.Errorf("%s: monitored %v, excluded %v", u, v.Monitored, v.Excluded)
			}
			if w.store.relay(u).Excluded {
				t.Errorf("%s: the configuration's exclusion is stored", u)
			}
		}
		if last := w.last(stranger); last.To != monitor.StateUnknown || last.Evidence != "the configuration excludes it" {
			t.Errorf("the last transition is %+v", last)
		}
		if got := w.engine.Relays(monitor.RelayQuery{Excluded: true}); len(got) != 3 {
			t.Errorf("%d excluded relays listed, want 3", len(got))
		}
		barred := "is excluded by the configuration: take it out of exclude there and reload"
		w.want(w.do(monitor.CommandInclude, stranger), barred)
		w.want(w.do(monitor.CommandAdd, stranger), barred)
		w.want(w.do(monitor.CommandExclude, stranger), barred)
		w.wantAudit("token add 1 ")

		// By nobody else than the configuration: it ends with it.
		w.cfg.Exclude = nil
		w.restart()
		w.wantState(stranger, monitor.StateUnknown)
		w.run(2 * time.Minute)
		w.wantLive(append(urls(40), stranger)...)
	})
}

func TestAPauseKeepsTheVerdictAndEndsByItself(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		version := w.version()
		until := time.Now().Add(time.Hour)
		w.want(w.give(pause(time.Hour, url(5), stranger)), "", "is not watched")
		w.want(w.give(pause(time.Hour, url(5))), "is paused until then already")
		if w.version() == version || !w.tasks()[url(5)].PausedUntil.Equal(until) {
			t.Error("the vantages are not told")
		}
		w.want(w.do(monitor.CommandCheck, url(5)), "is paused: resume it first")
		// What is broken in a pause is not seen.
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(5))
		w.run(30 * time.Minute)
		w.wantLive(urls(40)...)
		w.restart()
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(5))
		if v := w.engine.RelayView(url(5)); !v.PausedUntil.Equal(until) || !w.tasks()[url(5)].PausedUntil.Equal(until) {
			t.Errorf("after a restart it is paused until %s, want %s", v.PausedUntil, until)
		}
		yes := true
		if got := w.engine.Relays(monitor.RelayQuery{Paused: &yes}); len(got) != 1 || got[0].URL != url(5) {
			t.Errorf("paused ones: %+v", got)
		}
		w.run(29 * time.Minute)
		w.wantState(url(5), monitor.StateOnline)
		version = w.version()
		w.run(10 * time.Minute)
		w.wantState(url(5), monitor.StateOffline)
		if w.version() == version || !w.tasks()[url(5)].PausedUntil.IsZero() || !w.store.relay(url(5)).PausedUntil.IsZero() {
			t.Error("a pause that is over is still there")
		}
		w.want(w.do(monitor.CommandResume, url(5)), "is not paused")

		w.vantages[0].sees = up
		w.want(w.give(pause(time.Hour, url(5))), "")
		w.want(w.do(monitor.CommandResume, url(5)), "")
		if !w.tasks()[url(5)].PausedUntil.IsZero() {
			t.Error("it is still paused")
		}
		w.run(10 * time.Minute)
		w.wantLive(urls(40)...)
		w.want(w.give(pause(20*time.Second, url(6))), "")
		w.run(15 * time.Second)
		if w.store.relay(url(6)).PausedUntil.IsZero() {
			t.Error("it is not paused")
		}
		w.run(10 * time.Second)
		if !w.store.relay(url(6)).PausedUntil.IsZero() {
			t.Error("a pause that is over is still stored")
		}
		w.wantAudit("token pause 1 ", "token pause 1 ", "token resume 1 ", "token pause 1 ")
	})
}

func TestALongPauseKeepsNothingOnline(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.want(w.give(pause(24*time.Hour, url(0))), "")
		w.run(3*time.Hour + 50*time.Minute)
		w.wantLive(urls(40)...)
		w.run(30 * time.Minute)
		w.wantLive(urls(40)[1:]...)
		w.wantState(url(0), monitor.StateUnknown)
	})
}

func TestTheFirstPassDoesNotWaitForPausedAndExcludedRelays(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.give(pause(time.Hour, urls(4)...)), "", "", "", "")
		w.want(w.do(monitor.CommandExclude, urls(8)[4:]...), "", "", "", "")
		for _, u := range urls(4) {
			w.vantages[0].due[u] = time.Now().Add(30 * time.Minute) // not even looked at
		}
		w.vantages[0].sees = func(u monitor.RelayURL, _ time.Time) monitor.Outcome {
			if u < url(8) {
				return monitor.OutcomeUnclear
			}
			return monitor.OutcomeOK
		}
		w.run(2 * time.Minute)
		w.wantLive(urls(40)[8:]...)
		if g := w.engine.Generation(); !g.Usable() || g.Monitored != 36 {
			t.Errorf("fallback %q, %d monitored", g.Fallback, g.Monitored)
		}
	})
}

func TestACheckAsksEveryVantage(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, onion), "")
		w.run(2 * time.Minute)
		w.vantages[1].silent = true
		w.run(5 * time.Minute) // b is no longer eligible
		w.want(w.do(monitor.CommandCheck, url(3), stranger, onion), "", "is not watched", "is on a network that no vantage reaches")
		w.want(w.do(monitor.CommandCheck, url(3)), "")
		for _, v := range w.vantages {
			v.seq++
			a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: v.name, Seq: v.seq, SentAt: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]monitor.RelayURL{url(3)}, a.Expedite); d != "" {
				t.Errorf("vantage %s is asked for (-want +got):\n%s", v.name, d)
			}
		}
		w.wantAudit("token add 1 ") // a check changes nothing
	})
}

const onion monitor.RelayURL = "ws://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.onion/"

func TestAResetRelayStartsAnew(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		v := w.vantages[0]
		v.sees = but(monitor.OutcomeFailed, url(7))
		w.run(time.Hour)
		w.wantState(url(7), monitor.StateDead)
		w.want(w.do(monitor.CommandReset, url(7), url(8), stranger), "", "", "is not watched")
		w.wantLive(append(urls(7), urls(40)[9:]...)...)
		for _, u := range []monitor.RelayURL{url(7), url(8)} {
			if r := w.engine.RelayView(u); r.Verdict.State != monitor.StateUnknown || !r.Eligible || r.Ballots[0].FailureCount != 0 ||
				!r.Verdict.LastSuccess.IsZero() || len(r.Verdict.Changes) != 0 {
				t.Errorf("%s: %+v", u, r.Verdict)
			}
			if w.store.recorded("a", u) {
				t.Errorf("the record of %s is still stored", u)
			}
			if last := w.last(u); last.To != monitor.StateUnknown || last.Evidence != "an operator reset it" {
				t.Errorf("the last transition is %+v", last)
			}
		}
		if w.store.reported(url(8)) {
			t.Error("the report of a reset relay is still stored")
		}
		// A result from before the reset says nothing.
		v.seq++
		old := time.Now().Add(-time.Second)
		if _, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: time.Now(), Observations: []monitor.Observation{
			{Relay: url(7), Vantage: "a", Start: old, At: old, Outcome: monitor.OutcomeFailed},
		}}); err != nil {
			t.Fatal(err)
		}
		if n := w.engine.RelayView(url(7)).Ballots[0].FailureCount; n != 0 {
			t.Error("a probe from before the reset counts")
		}
		for _, u := range []monitor.RelayURL{url(7), url(8)} {
			v.due[u] = time.Now() // that answer asked for both
		}
		w.run(time.Minute)
		w.wantState(url(8), monitor.StateOnline)
		// By its own record the vantage would come once an hour: too rarely for
		// a streak.
		w.run(5 * time.Minute)
		w.wantState(url(7), monitor.StateOffline)
		w.run(20 * time.Minute)
		w.wantState(url(7), monitor.StateDead)
		w.wantAudit("token reset 2 ")
	})
}

// When a probe ended is told by the vantage's clock, which may be off.
func TestAResetKeepsToTheVantagesClock(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		const ahead = 40 * time.Second
		failure := func(ago time.Duration) int {
			t.Helper()
			w.vantages[0].seq++
			b := monitor.Batch{Vantage: "a", Seq: w.vantages[0].seq, SentAt: time.Now().Add(ahead)}
			at := b.SentAt.Add(-ago)
			b.Observations = []monitor.Observation{{Relay: url(0), Vantage: "a", Start: at, At: at, Outcome: monitor.OutcomeFailed}}
			if _, err := w.engine.Deliver(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			return w.ballots(url(0))["a"].FailureCount
		}
		failure(0)
		w.want(w.do(monitor.CommandReset, url(0)), "")
		if n := failure(10 * time.Second); n != 0 {
			t.Errorf("a probe from before the reset counts: %d failures", n)
		}
		elapse(20 * time.Second)
		if n := failure(10 * time.Second); n != 1 {
			t.Errorf("%d failures counted, want the one since the reset", n)
		}
	})
}

// A relay that is reset while it is paused is looked at when the pause ends.
func TestAResetWaitsForTheEndOfAPause(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		asked := func() (expedite []monitor.RelayURL, due map[monitor.RelayURL]time.Time) {
			t.Helper()
			w.vantages[0].seq++
			a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: w.vantages[0].seq, SentAt: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			return a.Expedite, a.Due
		}
		w.want(w.give(pause(time.Hour, url(0))), "")
		w.want(w.do(monitor.CommandReset, url(0)), "")
		for range 2 {
			if expedite, due := asked(); len(expedite)+len(due) != 0 {
				t.Errorf("in the pause a look is asked for: at once %v, due %v", expedite, due)
			}
			elapse(20 * time.Minute)
		}
		elapse(20*time.Minute + time.Second)
		if _, due := asked(); due[url(0)].IsZero() {
			t.Errorf("after the pause due %v, want the relay that was reset", due)
		}
	})
}

// Nobody is asked to look at a relay that was removed meanwhile.
func TestARemovedRelayIsNotAskedFor(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, stranger), "")
		w.run(2 * time.Minute)
		w.want(w.do(monitor.CommandCheck, stranger, url(0)), "", "")
		w.want(w.do(monitor.CommandRemove, stranger), "")
		a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: w.vantages[0].seq + 1, SentAt: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]monitor.RelayURL{url(0)}, a.Expedite); d != "" {
			t.Errorf("asked for (-want +got):\n%s", d)
		}
	})
}

func TestAResetEndsFlapping(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		for range 4 {
			w.vantages[0].sees = but(monitor.OutcomeFailed, url(0))
			w.run(4 * time.Minute)
			w.vantages[0].sees = up
			w.run(6 * time.Minute)
		}
		if !w.engine.RelayView(url(0)).Verdict.Marks.Has(monitor.MarkFlapping) {
			t.Fatal("it does not flap")
		}
		w.want(w.do(monitor.CommandReset, url(0)), "")
		w.run(time.Minute)
		if v := w.engine.RelayView(url(0)).Verdict; v.State != monitor.StateOnline || v.Marks.Has(monitor.MarkFlapping) {
			t.Errorf("after the reset %s with marks %q", v.State, v.Marks)
		}
	})
}

func TestAnOperatorReleasesHeldDepartures(t *testing.T) {
	inWorld(t, 60, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.want(w.do(monitor.CommandRelease, url(0)), "is not held")
		w.want(w.do(monitor.CommandRelease))
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(40)...)
		w.run(20 * time.Minute)
		w.wantLive(urls(60)...)
		w.want(w.do(monitor.CommandRelease, url(0), url(1), url(59)), "", "", "is not held")
		w.want(w.do(monitor.CommandRelease, url(0)), "is released already")
		w.run(2 * time.Second)
		w.wantLive(urls(60)[2:]...)
		if s := w.engine.Status(); s.Held != 38 || !s.Engaged {
			t.Errorf("%d held, engaged %v: want the other 38", s.Held, s.Engaged)
		}
		results, err := w.engine.Administer(t.Context(), monitor.Command{Kind: monitor.CommandRelease, Actor: "token"})
		if err != nil || len(results) != 38 || results[0] != (monitor.CommandResult{Relay: url(2), Done: true}) {
			t.Fatalf("release of all: %v, %d results", err, len(results))
		}
		w.want(w.do(monitor.CommandRelease)) // all are released already
		w.run(2 * time.Second)
		w.wantLive(urls(60)[40:]...)
		if s := w.engine.Status(); s.Held != 0 || s.Engaged {
			t.Errorf("%d held, engaged %v: what an operator let go is no departure to the brake", s.Held, s.Engaged)
		}
		w.wantAudit("token release 2 ", "token release 38 ")
	})
}

func TestAReleaseEndsWithTheHold(t *testing.T) {
	inWorld(t, 60, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(40)...)
		w.run(45 * time.Second) // suspected and held, not yet down
		if s := w.engine.Status(); s.Held == 0 || len(w.live()) != 60 {
			t.Fatalf("%d held, %d on the list", s.Held, len(w.live()))
		}
		w.do(monitor.CommandRelease)
		w.vantages[0].sees = up
		w.run(10 * time.Minute)
		w.wantLive(urls(60)...)
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(40)...)
		w.run(20 * time.Minute)
		w.wantLive(urls(60)...) // the old release is no longer in force
	})
}

func TestMaintenanceIsKept(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		now := time.Now()
		declare := func(from, until time.Time) []string {
			return w.give(monitor.Command{Kind: monitor.CommandMaintenance, Actor: "aa", Note: "disks", From: from, Until: until, Relays: []monitor.RelayURL{url(0), stranger}})
		}
		w.want(declare(now.Add(2*time.Hour), now.Add(3*time.Hour)), "", "is not watched")
		w.want(declare(time.Time{}, now.Add(time.Hour)), "", "is not watched")
		w.want(declare(now, now.Add(time.Hour)), "has this window already", "is not watched")
		want := []monitor.Maintenance{{From: now, Until: now.Add(time.Hour), Note: "disks", Actor: "aa"}, {From: now.Add(2 * time.Hour), Until: now.Add(3 * time.Hour), Note: "disks", Actor: "aa"}}
		for _, when := range []string{"at once", "after a restart"} {
			got := w.engine.RelayView(url(0)).Maintenance
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
			w.restart()
		}
		elapse(time.Hour)
		if got := w.engine.RelayView(url(0)).Maintenance; len(got) != 1 || !got[0].From.Equal(want[1].From) {
			t.Errorf("after the first window: %+v", got)
		}
		w.wantAudit("aa maintenance 1 disks", "aa maintenance 1 disks")
		for i := range monitor.MaxWindows {
			declare(now.Add(5*time.Hour), now.Add(6*time.Hour+time.Duration(i)*time.Second))
		}
		w.want(declare(now.Add(5*time.Hour), now.Add(8*time.Hour)), "has 100 maintenance windows already", "is not watched")
	})
}

func TestStrangersSubmitWithinBounds(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		host := func(i int) monitor.RelayURL {
			return monitor.RelayURL(fmt.Sprintf("wss://one.example/%d", i))
		}
		cfg := w.cfg
		cfg.MaxRelays, cfg.MaxPerHost = 6, 2
		if err := w.engine.Configure(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		w.cfg = cfg
		w.want(w.do(monitor.CommandExclude, "wss://excluded.example/"), "")
		submit := func(relays ...monitor.RelayURL) []string {
			return w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: relays})
		}
		w.want(submit(url(0), "wss://excluded.example/", host(1)), "is watched already", "is not to be watched here", "")
		elapse(time.Second)
		synctest.Wait() // for the round of this second
		// Strangers make no generations.
		before := w.engine.Generation().Number
		w.want(submit(host(0), host(2)), "", "is one too many: 2 relays of host one.example are watched already")
		if n := w.engine.Generation().Number; n != before {
			t.Errorf("a submission made generation %d", n)
		}
		w.vantages[0].sees = but(monitor.OutcomeFailed, host(0), host(1))
		if v := w.engine.RelayView(host(0)); v.Source != monitor.SourceSubmitted || !v.Candidate || !v.Monitored {
			t.Fatalf("a submitted relay: %+v", v.WatchedRelay)
		}
		if s := w.engine.Status(); s.Candidates != 2 || w.engine.Generation().Monitored != 3 {
			t.Errorf("%d candidates, %d monitored", s.Candidates, w.engine.Generation().Monitored)
		}
		w.run(time.Minute)
		w.want(submit(stranger, "wss://late.example/"), "", "cannot be watched now: this monitor is full with 6 relays")
		w.restart() // they stay
		w.vantages[0].sees = but(monitor.OutcomeFailed, host(0), host(1))
		w.run(2 * time.Hour)
		w.wantState(host(0), monitor.StateDead)
		w.wantState(stranger, monitor.StateOnline)
		// The dead make room, the oldest first; one that lives stays.
		full := "cannot be watched now: this monitor is full with 6 relays"
		w.want(submit("wss://late.example/"), "")
		if w.engine.RelayView(host(1)).Monitored || !w.engine.RelayView(host(0)).Monitored || !w.engine.RelayView(stranger).Monitored {
			t.Error("the wrong one made room")
		}
		if got := w.store.relay(host(1)).Source; got != monitor.SourceNone {
			t.Errorf("stored with source %s", got)
		}
		w.want(submit(host(0), "wss://later.example/"), "is watched already", full) // not in favour of itself
		w.cfg.MaxPerHost = 1
		w.configure(t)
		w.want(submit("wss://later.example/", host(5)), "", full) // its host has room again
		if w.engine.RelayView(host(0)).Monitored {
			t.Error("a dead one stays")
		}
		// An operator's word makes a candidate an ordinary relay.
		w.want(w.do(monitor.CommandAdd, "wss://late.example/"), "")
		if v := w.engine.RelayView("wss://late.example/"); v.Source != monitor.SourceOperator || v.Candidate || w.tasks()["wss://late.example/"].Candidate {
			t.Errorf("after add: %+v", v.WatchedRelay)
		}
	})
}

func TestACommandWhileTheStoreIsAway(t *testing.T) {
	inWorld(t, 60, []string{"a"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, stranger), "")
		w.want(w.do(monitor.CommandExclude, "wss://excluded.example/"), "")
		w.run(2 * time.Minute)
		w.want(w.give(pause(time.Hour, url(1))), "")
		w.vantages[0].sees = but(monitor.OutcomeFailed, urls(40)[2:]...)
		w.run(5 * time.Minute)
		type picture struct {
			Live, Excluded []monitor.RelayURL
			Tasks          map[monitor.RelayURL]monitor.Task
			Views          []monitor.RelayView
			Audit          int
			Number         uint64
		}
		look := func() (p picture) {
			p = picture{Live: w.live(), Tasks: w.tasks(), Audit: len(w.store.audited()), Number: w.engine.Generation().Number}
			for _, u := range append(urls(60), stranger, "wss://new.example/") {
				p.Views = append(p.Views, w.engine.RelayView(u))
			}
			for _, r := range w.engine.Relays(monitor.RelayQuery{Excluded: true}) {
				p.Excluded = append(p.Excluded, r.URL)
			}
			return p
		}
		before := look()
		w.store.away.Store(true)
		hour := time.Now().Add(time.Hour)
		commands := []monitor.Command{
			{Kind: monitor.CommandAdd, Relays: []monitor.RelayURL{"wss://new.example/"}},
			{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{"wss://new.example/"}},
			{Kind: monitor.CommandRemove, Relays: []monitor.RelayURL{stranger}},
			{Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{url(0), "wss://new.example/"}},
			{Kind: monitor.CommandInclude, Relays: []monitor.RelayURL{"wss://excluded.example/"}},
			{Kind: monitor.CommandPause, Until: hour, Relays: []monitor.RelayURL{url(0)}},
			{Kind: monitor.CommandResume, Relays: []monitor.RelayURL{url(1)}},
			{Kind: monitor.CommandReset, Relays: []monitor.RelayURL{url(0)}},
			{Kind: monitor.CommandMaintenance, Until: hour, Relays: []monitor.RelayURL{url(0)}},
			{Kind: monitor.CommandRelease},
			{Kind: monitor.CommandCheck, Relays: []monitor.RelayURL{url(0)}},
		}
		for _, c := range commands {
			if results, err := w.engine.Administer(t.Context(), c); !errors.Is(err, monitor.ErrUnavailable) || results != nil {
				t.Errorf("%s: %v, %v: want ErrUnavailable", c.Kind, results, err)
			}
		}
		cfg := w.cfg
		cfg.Relays, cfg.Exclude = cfg.Relays[:3], []monitor.RelayURL{stranger}
		if err := w.engine.Configure(t.Context(), cfg); !errors.Is(err, monitor.ErrUnavailable) {
			t.Errorf("configure: %v", err)
		}
		if d := cmp.Diff(before, look()); d != "" {
			t.Fatalf("something changed (-before +after):\n%s", d)
		}
		if len(w.pub.withdrawn) != 0 {
			t.Errorf("withdrawn: %v", w.pub.withdrawn)
		}
		w.store.away.Store(false)
		w.run(5 * time.Second)
		if s := w.engine.Status(); s.Held != 38 {
			t.Errorf("%d held, want all 38: nobody released them", s.Held)
		}
		w.restart()
		w.wantLive(before.Live...)
		if d := cmp.Diff(before.Tasks, w.tasks()); d != "" {
			t.Errorf("tasks after a restart (-before +after):\n%s", d)
		}
	})
}

// The store keeps a command and its answer is lost: it was refused, and so it
// stays, also over a restart.
func TestALostAnswerToACommand(t *testing.T) {
	for _, c := range []monitor.Command{
		{Kind: monitor.CommandRemove, Relays: []monitor.RelayURL{stranger}},
		{Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{url(0)}},
		{Kind: monitor.CommandAdd, Relays: []monitor.RelayURL{"wss://new.example/"}},
	} {
		t.Run(string(c.Kind), func(t *testing.T) {
			inWorld(t, 20, []string{"a"}, func(t *testing.T, w *world) {
				w.want(w.do(monitor.CommandAdd, stranger), "")
				w.run(2 * time.Minute)
				w.store.lostCommit.Store(true)
				if _, err := w.engine.Administer(t.Context(), c); !errors.Is(err, monitor.ErrUnavailable) {
					t.Fatalf("%v, want ErrUnavailable", err)
				}
				w.run(2 * time.Second)
				w.restart()
				w.wantLive(append(urls(20), stranger)...)
				if _, ok := w.tasks()["wss://new.example/"]; ok || len(w.tasks()) != 21 {
					t.Errorf("%d tasks after the restart", len(w.tasks()))
				}
				// It can be given again.
				w.want(w.give(c), "")
			})
		})
	}
}

func TestBadCommandsAreRefused(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		for _, c := range []monitor.Command{
			{Kind: "destroy", Relays: urls(1)},
			{Kind: monitor.CommandPause, Relays: urls(1)},
			{Kind: monitor.CommandAdd},
		} {
			if _, err := w.engine.Administer(t.Context(), c); !errors.Is(err, monitor.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", c.Kind, err)
			}
		}
		if n := len(w.store.audited()); n != 0 {
			t.Errorf("%d audit entries", n)
		}
	})
}

func TestACommandOfAnOustedCore(t *testing.T) {
	inWorld(t, 3, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.store.ousted.Store(true)
		if _, err := w.engine.Administer(t.Context(), monitor.Command{Kind: monitor.CommandExclude, Relays: urls(1)}); !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("%v, want ErrConflict", err)
		}
		w.wantLive(urls(3)...)
		elapse(2 * time.Second)
		w.stop()
		if !errors.Is(w.ended, monitor.ErrConflict) {
			t.Errorf("Run returned %v, want ErrConflict", w.ended)
		}
	})
}

// Commands, batches, rounds, configurations and readers at once.
func TestEverythingAtTheSameTime(t *testing.T) {
	inWorld(t, 30, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		var all sync.WaitGroup
		stop := make(chan struct{})
		loop := func(f func(i int)) {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						f(i)
						elapse(10 * time.Millisecond)
					}
				}
			})
		}
		kinds := []monitor.CommandKind{
			monitor.CommandAdd, monitor.CommandExclude, monitor.CommandInclude, monitor.CommandCheck, monitor.CommandReset,
			monitor.CommandPause, monitor.CommandResume, monitor.CommandRemove, monitor.CommandRelease, monitor.CommandSubmit, monitor.CommandMaintenance,
		}
		for n := range 2 {
			loop(func(i int) {
				c := monitor.Command{Kind: kinds[i%len(kinds)], Actor: fmt.Sprint(n), Until: time.Now().Add(time.Hour), Relays: []monitor.RelayURL{url(i % 40), stranger}}
				if _, err := w.engine.Administer(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		}
		loop(func(i int) {
			cfg := w.cfg
			cfg.Relays = cfg.Relays[:20+i%10]
			if err := w.engine.Configure(t.Context(), cfg); err != nil {
				t.Error(err)
			}
		})
		loop(func(i int) {
			w.engine.Relays(monitor.RelayQuery{Excluded: i%2 == 0})
			w.engine.RelayView(url(i % 40))
			w.engine.Status()
			if g := w.engine.Generation(); slices.ContainsFunc(g.Online, func(r monitor.OnlineRelay) bool { return r.Report == nil }) {
				t.Error("a relay without its report is in a generation")
			}
		})
		w.run(time.Minute)
		close(stop)
		all.Wait()

		w.do(monitor.CommandInclude, append(urls(40), stranger)...)
		w.do(monitor.CommandResume, append(urls(40), stranger)...)
		if err := w.engine.Configure(t.Context(), w.cfg); err != nil {
			t.Fatal(err)
		}
		w.run(3 * time.Minute)
		live := w.live()
		for _, u := range urls(30) {
			if !slices.Contains(live, u) {
				t.Errorf("%s is not on the list in the end: %s", u, w.engine.RelayView(u).Verdict.Reason)
			}
		}
		tasks := w.tasks()
		w.restart()
		if d := cmp.Diff(tasks, w.tasks()); d != "" {
			t.Errorf("tasks after a restart (-before +after):\n%s", d)
		}
		if strings.Contains(w.log.String(), "level=ERROR") {
			t.Error(w.log.String())
		}
	})
}

func TestACommandWaitsForABatchUnderWay(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.store.gate = make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			now := time.Now()
			_, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: w.vantages[0].seq + 1, SentAt: now, Observations: []monitor.Observation{
				{Relay: url(0), Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeFailed},
			}})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		both.Go(func() {
			if _, err := w.engine.Administer(t.Context(), monitor.Command{Kind: monitor.CommandExclude, Relays: urls(1)}); err != nil {
				t.Error(err)
			}
		})
		for range 10_000 { // one that does not wait is through by now
			runtime.Gosched()
		}
		close(w.store.gate)
		both.Wait()
		w.wantLive(urls(5)[1:]...)
		if w.store.recorded("a", url(0)) {
			t.Error("a record is stored of a relay that is excluded")
		}
	})
}

// What was decided before a command is stored before it.
func TestACommandComesAfterWhatWasDecided(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		// Nothing of the store's is away for the batches that bring it down.
		w.store.awayForCommits.Store(true)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(7))
		w.run(4 * time.Minute)
		w.wantState(url(7), monitor.StateOnline)
		w.store.awayForCommits.Store(false)
		w.want(w.do(monitor.CommandExclude, url(7)), "")
		var moves []string
		for _, m := range w.store.transitions() {
			if m.Relay == url(7) {
				moves = append(moves, m.From.String()+" "+m.To.String())
			}
		}
		if d := cmp.Diff([]string{"unknown online", "online offline", "offline unknown"}, moves); d != "" {
			t.Errorf("transitions (-want +got):\n%s", d)
		}
		w.run(time.Minute)
		if v := w.engine.RelayView(url(7)); !v.Excluded || v.Verdict.State != monitor.StateUnknown || w.store.relay(url(7)).Verdict.State != monitor.StateUnknown {
			t.Errorf("in the end %+v", v.WatchedRelay)
		}
	})
}

func TestALostCheckIsAskedForAgain(t *testing.T) {
	inWorld(t, 5, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		deliver := func(name int, obs ...monitor.Observation) []monitor.RelayURL {
			v := w.vantages[name]
			v.seq++
			a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: v.name, Seq: v.seq, SentAt: time.Now(), Observations: obs})
			if err != nil {
				t.Fatal(err)
			}
			asked := a.Expedite
			for u, at := range a.Due {
				if !at.After(time.Now()) && !slices.Contains(asked, u) {
					asked = append(asked, u)
				}
			}
			return asked
		}
		w.want(w.do(monitor.CommandReset, url(0)), "")
		for _, want := range []int{1, 0} {
			if got := deliver(0); len(got) != want {
				t.Fatalf("asked for %v, want %d relays", got, want)
			}
		}
		elapse(monitor.ExpeditedTimeout)
		if got := deliver(0); len(got) != 1 || got[0] != url(0) {
			t.Fatalf("after an answer that was lost, asked for %v", got)
		}
		// Nobody is asked to look at a paused relay because of a late result.
		w.want(w.give(pause(time.Hour, url(3))), "")
		now := time.Now()
		deliver(0, monitor.Observation{Relay: url(3), Vantage: "a", Start: now, At: now, Outcome: monitor.OutcomeFailed})
		if got := deliver(1); slices.Contains(got, url(3)) {
			t.Error("a paused relay is to be probed")
		}
	})
}
