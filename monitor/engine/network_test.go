package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// onionWorld is three vantages that reach Tor, with two onions beside the others;
// f is given the first.
func onionWorld(t *testing.T, f func(w *world, onion monitor.RelayURL)) {
	onion := monitor.RelayURL("ws://" + strings.Repeat("a", 56) + ".onion/")
	inWorld(t, 5, []string{"a", "b", "c"}, func(_ *testing.T, w *world) {
		for _, u := range []monitor.RelayURL{onion, monitor.RelayURL("ws://" + strings.Repeat("b", 56) + ".onion/")} {
			w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: u, Source: monitor.SourceConfig, FirstSeen: time.Now()})
		}
		for i := range w.cfg.Vantages {
			w.cfg.Vantages[i].Networks = []monitor.Network{monitor.Clearnet, monitor.Tor}
		}
		w.restart()
		w.run(3 * time.Minute)
		f(w, onion)
	})
}

func (v *watcher) say(networks, down []monitor.Network) {
	v.health.Networks, v.health.Down = networks, down
}

var (
	both  = []monitor.Network{monitor.Clearnet, monitor.Tor}
	clear = both[:1]
	tor   = both[1:]
)

// While its way into a network is down a vantage has no vote there and is asked
// nothing; elsewhere it goes on, and where it is back as well.
func TestALostNetwork(t *testing.T) {
	onionWorld(t, func(w *world, onion monitor.RelayURL) {
		a := w.vantages[0]
		a.say(both, tor)
		a.sees = but(monitor.OutcomeSkipped, onion)
		w.run(10 * time.Second)
		if b := w.ballots(onion)["a"]; b.Eligible || !b.Able {
			t.Errorf("a's ballot on the onion: %+v", b)
		}
		if b := w.ballots(url(1))["a"]; !b.Eligible {
			t.Errorf("a's ballot elsewhere: %+v", b)
		}
		if q := w.engine.RelayView(onion).Verdict.Quorum; q.Of != 2 {
			t.Errorf("the onion's quorum is %s", q)
		}
		if v := w.vantage("a"); !slices.Equal(v.Health.Down, tor) || !v.Reaches(monitor.Tor) || !v.Eligible {
			t.Errorf("a is shown as %+v", v)
		}
		// b suspects the onion: c is asked, a is not. The operator asks: neither.
		asked := func() (n int) { // by the schedule of its own it comes every half minute
			due := a.due[onion]
			a.sees = func(u monitor.RelayURL, at time.Time) monitor.Outcome {
				if u == onion {
					n++
					return monitor.OutcomeSkipped
				}
				return monitor.OutcomeOK
			}
			a.due[onion] = time.Now().Add(time.Hour)
			w.vantages[1].sees = but(monitor.OutcomeFailed, onion)
			w.do(monitor.CommandCheck, onion)
			w.run(25 * time.Second)
			w.vantages[1].sees = up
			a.due[onion] = due
			return n
		}
		if n := asked(); n != 0 {
			t.Errorf("a was asked %d times for a relay that it cannot reach", n)
		}
		w.run(3 * time.Minute)
		a.say(both, nil)
		w.run(20 * time.Second)
		if n := asked(); n == 0 {
			t.Error("a was not asked although its network is back")
		}
		a.sees = up
		w.run(2 * time.Minute)
		if b := w.ballots(onion)["a"]; !b.Eligible || b.Vote != monitor.VoteUp {
			t.Errorf("back, a's ballot is %+v", b)
		}
	})
}

// Two of three groups lose their network: what is left does not take an onion
// down for six hours, and nothing changes for the others.
func TestALostNetworkLeavesOneAlone(t *testing.T) {
	onionWorld(t, func(w *world, onion monitor.RelayURL) {
		for _, v := range w.vantages[:2] {
			v.say(both, tor)
			v.sees = but(monitor.OutcomeSkipped, onion)
		}
		w.run(20 * time.Second)
		w.vantages[2].sees = but(monitor.OutcomeFailed, onion)
		w.run(3*time.Hour + 50*time.Minute)
		v := w.engine.RelayView(onion).Verdict
		if v.State != monitor.StateOnline || !v.Marks.Has(monitor.MarkDegraded) {
			t.Errorf("after less than four hours %s, %s: %s", v.State, v.Marks, v.Reason)
		}
		if v := w.engine.RelayView(url(1)).Verdict; v.Marks.Has(monitor.MarkDegraded) || v.Quorum.Of != 3 {
			t.Errorf("elsewhere %s %s", v.Quorum, v.Marks)
		}
		w.run(2 * time.Hour) // rule 7 came in between
		if v := w.engine.RelayView(onion).Verdict; v.State != monitor.StateUnknown {
			t.Errorf("after less than six hours %s: %s", v.State, v.Reason)
		}
		w.run(20 * time.Minute)
		if v := w.engine.RelayView(onion).Verdict; v.State != monitor.StateDead && v.State != monitor.StateOffline {
			t.Errorf("after more than six hours %s: %s", v.State, v.Reason)
		}
	})
}

// A vantage that has no way into a network any longer does not reach it: it is no
// group that was lost, and is counted nowhere there.
func TestANetworkIsNoLongerReached(t *testing.T) {
	onionWorld(t, func(w *world, onion monitor.RelayURL) {
		total := func(u monitor.RelayURL) int {
			for _, o := range w.engine.Generation().Online {
				if o.URL == u {
					return o.VantagesTotal
				}
			}
			return -1
		}
		if total(onion) != 3 || total(url(1)) != 3 {
			t.Fatalf("of %d and %d vantages", total(onion), total(url(1)))
		}
		w.vantages[0].say(clear, nil)
		w.vantages[1].say(clear, nil)
		w.run(2 * time.Minute)
		if total(onion) != 1 || total(url(1)) != 3 {
			t.Errorf("of %d and %d vantages", total(onion), total(url(1)))
		}
		if v := w.engine.RelayView(onion).Verdict; !v.Marks.Has(monitor.MarkUncorroborated) || v.Marks.Has(monitor.MarkDegraded) {
			t.Errorf("marks %s", v.Marks)
		}
		// One that says nothing of networks keeps what it said.
		w.vantages[0].say(nil, nil)
		w.run(20 * time.Second)
		if v := w.vantage("a"); !slices.Equal(v.Networks, clear) {
			t.Errorf("a reaches %v", v.Networks)
		}
		w.vantages[0].say(both, nil)
		w.run(2 * time.Minute)
		if total(onion) != 2 {
			t.Errorf("of %d vantages after one is back", total(onion))
		}
	})
}

// A relay that shuts one vantage out is marked, with its name, and stays as it is.
func TestARelaySinglesOneVantageOut(t *testing.T) {
	inWorld(t, 3, []string{"a", "b", "c"}, func(t *testing.T, w *world) {
		w.run(3 * time.Minute)
		w.vantages[1].sees = but(monitor.OutcomeRestricted, url(1))
		w.run(3 * time.Minute)
		for i, want := range []bool{false, true, false} {
			v := w.engine.RelayView(url(i)).Verdict
			if v.State != monitor.StateOnline || v.Marks.Has(monitor.MarkSingledOut) != want || strings.Contains(v.Reason, "; b alone") != want {
				t.Errorf("%s: %s %s: %s", url(i), v.State, v.Marks, v.Reason)
			}
		}
		if got := w.store.relay(url(1)).Verdict.Marks; !got.Has(monitor.MarkSingledOut) {
			t.Errorf("stored with the marks %s", got)
		}
		w.vantages[1].sees = up
		w.run(2 * time.Minute)
		if v := w.engine.RelayView(url(1)).Verdict; v.Marks != 0 || strings.Contains(v.Reason, "alone") {
			t.Errorf("let in again: %s: %s", v.Marks, v.Reason)
		}
	})
}
