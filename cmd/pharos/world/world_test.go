package world_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// "make world" and "make world-full" set these; the test of every day is small.
var (
	flagRelays   = flag.Int("relays", 200, "relays of the simulated world")
	flagDays     = flag.Int("days", 3, "days that it lasts")
	flagVantages = flag.String("vantages", "3,5", "numbers of vantages, separated by commas")
	flagSeeds    = flag.Int("seeds", 1, "worlds of each kind")
)

// result is one world's.
type result struct {
	pharos score
	simple []score
}

// judge runs Pharos, and where asked the simpler policies, through a world.
func judge(w *truth, r rules, others bool) result {
	p := simulate(w, r)
	var out result
	for _, s := range p.relays {
		out.pharos.add(scoreOf(w, s.trueRelay, s.moves))
	}
	if !others {
		return out
	}
	out.simple = make([]score, len(simple))
	for i, policy := range simple {
		for _, t := range w.relays {
			out.simple[i].add(scoreOf(w, t, policy.run(w, t, r)))
		}
	}
	return out
}

// TestWorld prints the table of the simulated world, and holds what the spec
// promises of it.
func TestWorld(t *testing.T) {
	var numbers []int
	for text := range strings.SplitSeq(*flagVantages, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-vantages %s: want numbers", *flagVantages)
		}
		numbers = append(numbers, n)
	}
	results := make([][]result, len(numbers))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, n := range numbers {
		results[i] = make([]result, *flagSeeds)
		for j := range *flagSeeds {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				w := newTruth(size{relays: *flagRelays, vantages: n, length: time.Duration(*flagDays) * day, seed: uint64(j + 1)})
				results[i][j] = judge(w, defaultRules(), true)
			})
		}
	}
	wg.Wait()

	var b strings.Builder
	fmt.Fprintf(&b, "%d relays, %d days, %d seeds; an interval of %s; from 3 vantages on one of them lies\n\n%s", *flagRelays, *flagDays, *flagSeeds, defaultRules().cadence.Interval, header)
	for i, n := range numbers {
		all := results[i][0]
		for _, r := range results[i][1:] {
			all.pharos.add(r.pharos)
			for k := range all.simple {
				all.simple[k].add(r.simple[k])
			}
		}
		b.WriteString(all.pharos.row(n, "**Pharos**", true))
		for k := range all.simple {
			b.WriteString(all.simple[k].row(n, simple[k].name, false))
		}
		promised(t, n, &all)
	}
	b.WriteString("\n¹ per 1 000 relay-years, calls of relays that had been up for the hour before: made up, not late. ² departures from the list at a moment at which the relay was up, also just after an outage.\n")
	if testing.Verbose() {
		fmt.Fprint(os.Stdout, b.String())
	}
	if t.Failed() {
		t.Log(b.String())
	}
}

// promised checks what issue and spec want to see.
func promised(t *testing.T, vantages int, r *result) {
	t.Helper()
	p := &r.pharos
	if p.outages == 0 || len(p.detected) == 0 {
		t.Fatalf("%d vantages: nothing happened in this world", vantages)
	}
	naive := r.simple[0].perKiloYear(r.simple[0].falseOffline)
	most := 1.0
	switch {
	case vantages < 3:
		most = naive / 50 // nobody else to ask
	case vantages < 5:
		most = naive / 500 // the liar and one that is blocked are a majority
	}
	for name, n := range map[string]int{"offline": p.falseOffline, "dead": p.falseDead} {
		if got := p.perKiloYear(n); got >= most {
			t.Errorf("%d vantages: %.2f false %s per 1 000 relay-years, want < %.0f", vantages, got, name, most)
		}
	}
	if got, within := p.detection(0.5), 2*defaultRules().cadence.Interval; got >= within {
		t.Errorf("%d vantages: half of the outages were noticed after %v, want < %v", vantages, got, within)
	}
	if vantages >= 3 && p.missed > 0 {
		t.Errorf("%d vantages: %d of %d outages of %v and more were never shown", vantages, p.missed, p.outages, long)
	}
	if naive <= 1000 {
		t.Errorf("one vantage, one failure: %.0f false offline per 1 000 relay-years: this world is too kind", naive)
	}
}

// TestEveryRuleIsNeeded takes rules away and sees the numbers go bad: a world in
// which they do not would show nothing.
func TestEveryRuleIsNeeded(t *testing.T) {
	for name, c := range map[string]struct {
		vantages int
		block    float64
		breaks   func(*rules)
		worse    func(with, without *score) bool
	}{
		"one failure is enough": {
			vantages: 1,
			breaks:   func(r *rules) { r.corroboration.ConfirmFailures = 1 },
			worse:    func(with, without *score) bool { return without.falseOffline > 10*with.falseOffline },
		},
		// A third of the relays is kept from the only vantage, for hours.
		"no brake": {
			vantages: 1, block: 0.3,
			breaks: func(r *rules) { r.corroboration.HoldMin = 1 << 30 },
			worse:  func(with, without *score) bool { return 2*without.falseOffline > 3*with.falseOffline },
		},
		"nobody is asked for a second opinion": {
			vantages: 3,
			breaks:   func(r *rules) { r.noExpedites = true },
			worse:    func(with, without *score) bool { return without.detection(0.5) > with.detection(0.5) },
		},
		// With five, not every one is asked at the first failure.
		"an older up counts": {
			vantages: 5,
			breaks:   func(r *rules) { r.noSuspicion = true },
			worse:    func(with, without *score) bool { return without.detection(0.5) > with.detection(0.5) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTruth(size{relays: 200, vantages: c.vantages, length: 3 * day, seed: 1, block: c.block})
			whole, broken := defaultRules(), defaultRules()
			c.breaks(&broken)
			with, without := judge(w, whole, false).pharos, judge(w, broken, false).pharos
			table := header + with.row(c.vantages, "with", true) + without.row(c.vantages, "without: "+name, true)
			if !c.worse(&with, &without) {
				t.Error("nothing is worse without it\n" + table)
			} else {
				t.Log(table)
			}
		})
	}
}
