package world_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// TestTheSimulatedPharosIsTheRealOne runs one world through the simulation and
// through real vantages, engine and publisher: the verdicts must be the same ones
// at about the same times.
func TestTheSimulatedPharosIsTheRealOne(t *testing.T) {
	t.Parallel()
	const hours = 4
	w := newTruth(size{relays: 100, vantages: 3, length: (hours + 1) * time.Hour, seed: 1, flawless: true})
	r := defaultRules()
	sim := simulate(w, r)

	s := &scenario{interval: r.cadence.Interval, maxAge: r.corroboration.LiveMaxAge, truth: map[string]timeline{}, sights: map[string]timeline{}}
	for _, v := range w.vantages {
		s.vantages = append(s.vantages, &vantageSpec{name: v.name, group: v.name, networks: []monitor.Network{monitor.Clearnet}})
	}
	for i, r := range w.relays {
		name := fmt.Sprintf("r%03d", i)
		if err := s.addRelays(line{}, []string{name}); err != nil {
			t.Fatal(err)
		}
		s.relays[i].url = r.url
		if r.provider >= 0 {
			s.relays[i].addr = netip.AddrFrom4([4]byte{101, byte(r.provider), 1, byte(i)})
		}
		for _, d := range r.down {
			s.truth[name] = append(s.truth[name], moment{at: d.from, word: "timeout"}, moment{at: d.to, word: "ok"})
		}
	}
	s.expectations = []*expectation{{from: hours * time.Hour, to: hours * time.Hour, list: true, words: []string{"usable"}}}
	synctest.Test(t, func(t *testing.T) {
		st := play(t, s)
		moved := 0
		for i, spec := range s.relays {
			var real, mine []move // after the first looks, which real vantages hurry
			for _, m := range st.store.transitions(spec.url) {
				if at := m.At.Sub(st.zero); at > watchedFrom {
					real = append(real, move{at: at, to: m.To})
				}
			}
			before := monitor.StateUnknown
			for _, m := range sim.relays[i].moves {
				if m.to != before && m.at > watchedFrom && m.at < st.now() {
					mine = append(mine, move{at: m.at, to: m.to})
				}
				before = m.to
			}
			moved += len(real)
			same := slices.EqualFunc(real, mine, func(a, b move) bool {
				return a.to == b.to && (a.at-b.at).Abs() <= 15*time.Second
			})
			if !same {
				t.Errorf("%s, down %v:\nthe real one:   %v\nthe simulation: %v", spec.name, w.relays[i].down, real, mine)
			}
		}
		t.Logf("%d transitions", moved)
		if moved < 20 {
			t.Errorf("%d transitions: too few to compare", moved)
		}
	})
}
