package vantage

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

var t0 = time.Date(2026, 10, 2, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// taken counts the starts that p allows in d when asked every millisecond, and
// the most in any hundred milliseconds.
func taken(p *pacer, from time.Time, d time.Duration) (all, most int) {
	var window []time.Time
	for now := from; now.Before(from.Add(d)); now = now.Add(time.Millisecond) {
		for p.ready(now) {
			p.starts.take()
			all++
			window = append(window, now)
		}
		for len(window) > 0 && now.Sub(window[0]) >= 100*time.Millisecond {
			window = window[1:]
		}
		most = max(most, len(window))
	}
	return all, most
}

func TestPacerSpreadsStarts(t *testing.T) {
	p := newPacer(0, t0)
	p.demand(80, 0, t0)
	// An hour without a start is no hour to be made up for.
	all, most := taken(p, at(time.Hour), 10*time.Second)
	if all < 990 || all > 1005 {
		t.Errorf("%d starts in 10 s, want 1000: 80 a second with a quarter of headroom", all)
	}
	if most > 14 {
		t.Errorf("%d starts within 100 ms, want no burst beyond 10 and the bucket's 2", most)
	}
}

func TestPacerFixedRate(t *testing.T) {
	p := newPacer(20, t0)
	p.demand(500, 1000, t0)
	if all, _ := taken(p, t0, 10*time.Second); all < 198 || all > 202 {
		t.Errorf("%d starts in 10 s, want 200", all)
	}
}

func TestPacerClockBackwards(t *testing.T) {
	p := newPacer(10, t0)
	taken(p, t0, time.Second)
	if all, _ := taken(p, at(-time.Hour), time.Second); all < 9 || all > 11 {
		t.Errorf("%d starts in the second after the clock went back, want 10", all)
	}
}

func TestPacerAdapts(t *testing.T) {
	p := newPacer(0, t0)
	p.demand(1000, 0, t0)
	step := func(l load, n int) {
		for range n {
			p.wanted = true
			p.adapt(l, t0)
		}
	}
	want := func(what string, rate float64) {
		t.Helper()
		if math.Abs(p.rate-rate) > 0.01 {
			t.Errorf("%s: %v starts/s, want %v", what, p.rate, rate)
		}
	}
	want("a long list begins", slowStart)
	p.adapt(load{}, t0)
	want("a pace that nobody waits for", slowStart)
	step(load{}, 1)
	want("a quarter of a second of calm", 105.5)
	step(load{slow: unsure}, 1)
	want("it was slow a moment ago", 105.5)
	step(load{}, 60)
	want("fifteen seconds of calm", 1250)
	step(load{lag: 8 * time.Millisecond}, 20)
	want("a lag between calm and mild", 1250)
	for name, mild := range map[string]load{"a mild lag": {lag: 30 * time.Millisecond}, "busy cores": {cpu: 0.9}, "slow relays": {slow: slow}} {
		step(load{}, 20)
		step(mild, 1)
		want(name, 1000)
		step(mild, 20)
		want(name+" for long: what the schedule needs", 1000)
	}
	for name, severe := range map[string]load{"a severe lag": {lag: 200 * time.Millisecond}, "a severe delay": {late: 600 * time.Millisecond}, "very slow relays": {slow: verySlow}} {
		step(load{}, 100)
		step(severe, 1)
		want(name, 625)
		step(load{lag: 30 * time.Millisecond, slow: unsure}, 1)
		want("relays that were slow after "+name, 625)
		step(load{lag: 30 * time.Millisecond}, 20)
		want("a mild lag after "+name+": what the schedule needs", 1000)
		step(severe, 20)
		want(name+" for long", 50)
		if !p.lowest() {
			t.Error("that is not the lowest")
		}
	}
	p.demand(1000, 100_000, t0)
	want("a backlog under load", 50)
	p.demand(1, 0, t0)
	want("a short list", minRate)
}

func TestExpediteBudget(t *testing.T) {
	p := newPacer(0, t0)
	p.demand(160, 0, t0)
	n := 0
	for now := at(time.Hour); now.Before(at(time.Hour + time.Minute)); now = now.Add(10 * time.Millisecond) {
		for p.urgent.ready(now) {
			p.urgent.take()
			n++
		}
	}
	// 5 % of 200/s for a minute, and what the bucket held at first.
	if n < 600 || n > 700 {
		t.Errorf("%d expedited probes in a minute, want 600 to 700", n)
	}
}

func TestTempo(t *testing.T) {
	const ms = time.Millisecond
	// Relays that differ by a factor of ten, each as far as usual.
	type seen struct{ usual time.Duration }
	relays := make([]seen, 1000)
	i := 0
	probe := func(tp *tempo, n int, by float64, now time.Time) {
		for range n {
			r := &relays[i%len(relays)]
			open := time.Duration(float64(30*ms)*math.Pow(10, float64(i*7%10)/10)*by) + 1
			r.usual = tp.add(open, r.usual, now)
			i++
		}
	}
	want := func(tp *tempo, what string, s slowness, now time.Time, lowest bool) {
		t.Helper()
		if got := tp.judge(now, lowest); got != s {
			t.Errorf("%s: slowness %d, want %d (excess %s)", what, got, s, tp.excess)
		}
	}
	for _, known := range []bool{false, true} {
		clear(relays)
		i = 0
		tp := newTempo()
		now := at(time.Second)
		probe(tp, 100, 1, now)
		want(tp, "the first relays", steady, now, false)
		if known {
			for range 20 {
				probe(tp, 100, 1, now)
				want(tp, "as usual", steady, now, false)
			}
			// A mixture of fast and slow relays that is not usual.
			for range 40 {
				relays[1].usual = tp.add(relays[1].usual, relays[1].usual, now)
			}
			want(tp, "fast relays alone", steady, now, false)
		}
		probe(tp, 40, 1.5, now)
		want(tp, "a little slower", steady, now, false)
		probe(tp, 40, 2.5, now)
		want(tp, "two and a half times", slow, now, false)
		if tp.excess < 50*ms || tp.excess > 200*ms {
			t.Errorf("excess %s", tp.excess)
		}
		probe(tp, 40, 5, now)
		want(tp, "what began before the pace was lowered", unsure, now, false)
		now = now.Add(time.Second)
		probe(tp, 40, 5, now)
		want(tp, "five times", verySlow, now, false)
		now = now.Add(time.Second)
		probe(tp, 31, 1, now)
		want(tp, "too few", unsure, now, false)
		probe(tp, 1, 1, now)
		want(tp, "enough", steady, now, false)

		if !known {
			continue
		}
		// An uplink that stays slow whatever we do is the usual one in the end.
		for n := range 100 {
			now = now.Add(time.Second)
			probe(tp, 40, 5, now)
			if s := tp.judge(now, true); n > 30 && s != steady {
				t.Fatalf("after %d rounds at the lowest pace it is still called slow", n)
			}
		}
	}
	tp := newTempo()
	now := at(time.Second)
	for _, by := range []time.Duration{2 * ms, 2 * ms, 12 * ms} {
		for range 40 {
			tp.add(by, 0, now)
		}
		want(tp, "milliseconds on a fast network", steady, now, false)
	}
}

func TestLagMeter(t *testing.T) {
	m := newLagMeter(t0)
	now := t0
	tick := func(late time.Duration) {
		now = now.Add(lagTick + late)
		m.tick(now)
	}
	for range 90 {
		tick(0)
	}
	for range 10 {
		tick(40 * time.Millisecond)
	}
	if got := m.p95(); got != 40*time.Millisecond {
		t.Errorf("p95 = %s, want 40ms", got)
	}
	median, worst := m.take(now)
	if median != 0 || worst != 40*time.Millisecond {
		t.Errorf("median %s, worst %s, want 0 and 40ms", median, worst)
	}
	if _, worst = m.take(now); worst != 0 {
		t.Errorf("worst %s right after a take, want 0", worst)
	}
	if got := m.late(now.Add(lagTick + 300*time.Millisecond)); got != 300*time.Millisecond {
		t.Errorf("overdue tick: late %s, want 300ms", got)
	}

	k := m.mark(now)
	for range 20 {
		tick(90 * time.Millisecond)
	}
	if over, starved := m.since(k, now); over || starved != 0 {
		t.Errorf("short delays: over %v, starved %s, want none", over, starved)
	}
	for range 4 {
		tick(300 * time.Millisecond)
	}
	if over, starved := m.since(k, now); over || starved != 1200*time.Millisecond {
		t.Errorf("longer delays: over %v, starved %s, want 1.2s", over, starved)
	}
	tick(1100 * time.Millisecond)
	if over, _ := m.since(k, now); !over || m.lastOver() != now {
		t.Errorf("a delay of 1.1 s was not noticed")
	}
	if over, starved := m.since(m.mark(now), now); over || starved != 0 {
		t.Errorf("a probe begun afterwards: over %v, starved %s, want none", over, starved)
	}
	if over, _ := m.since(m.mark(now), now.Add(2*time.Second)); !over {
		t.Error("a tick that is 2 s overdue and has not come was not noticed")
	}
}

func TestClockWatch(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name             string
		wall, mono, boot time.Duration // that passed; boot 0 = not known
		want             disturbance
	}{
		{"a second", s, s, s, disturbance{}},
		{"slewed", s + 400*time.Millisecond, s, s, disturbance{}},
		{"late, but not frozen", 9 * s, 9 * s, 9 * s, disturbance{}},
		{"suspended", 3601 * s, s, 3601 * s, disturbance{kind: monitor.ImpairedSuspended, since: t0, at: at(3601 * s)}},
		{"frozen", 20 * s, 20 * s, 20 * s, disturbance{kind: monitor.ImpairedSuspended, since: t0, at: at(20 * s)}},
		{"set forward", 3601 * s, s, s, disturbance{kind: monitor.ImpairedClock, since: at(3600 * s), at: at(3601 * s), shift: 3600 * s}},
		{"set back", -3599 * s, s, s, disturbance{kind: monitor.ImpairedClock, since: at(-3600 * s), at: at(-3599 * s), shift: -3600 * s}},
		{"suspended and set", 7201 * s, s, 3601 * s, disturbance{kind: monitor.ImpairedSuspended, since: at(3600 * s), at: at(7201 * s), shift: 3600 * s}},
		{"boot not known", 3601 * s, s, 0, disturbance{kind: monitor.ImpairedClock, since: at(3600 * s), at: at(3601 * s), shift: 3600 * s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			boot := func(d time.Duration) time.Duration {
				if tt.boot == 0 {
					return 0
				}
				return time.Hour + d
			}
			var c clockWatch
			if d := c.look(reading{wall: t0, mono: s, boot: boot(0)}); d != (disturbance{}) {
				t.Fatalf("the first look found %+v", d)
			}
			got := c.look(reading{wall: at(tt.wall), mono: s + tt.mono, boot: boot(tt.boot)})
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(disturbance{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadClocks(t *testing.T) {
	origin := time.Now()
	a := readClocks(origin)
	b := readClocks(origin)
	if b.mono < a.mono || b.boot < a.boot || a.wall.IsZero() {
		t.Errorf("clocks go back: %+v, then %+v", a, b)
	}
}

// spikeOf runs n probes, one a second, of which the failing ones are spread over
// nets networks.
func spikeOf(s *spike, from time.Time, n int, fails func(i int) bool, nets int) time.Time {
	for i := range n {
		s.add(fails(i), place{host: fmt.Sprint(i % nets)}, from, from)
		from = from.Add(time.Second)
	}
	return from
}

func TestSpike(t *testing.T) {
	never := func(int) bool { return false }
	always := func(int) bool { return true }
	every := func(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }
	for _, tt := range []struct {
		name  string
		usual func(int) bool
		fails func(int) bool
		n     int
		nets  int
		want  bool
	}{
		{"19 failures", never, always, 19, 100, false},
		{"20 failures over 20 networks", never, always, 20, 20, true},
		{"20 failures over 19 networks", never, always, 20, 19, false},
		{"200 failures over 19 networks", never, always, 200, 19, false},
		{"one network", never, always, 200, 1, false},
		{"half of all", never, every(2), 200, 97, true},
		// 5 % usual = 10 of 200: 5 × that is 50.
		{"40 failures where 10 are usual", every(20), always, 38, 97, false},
		{"70 failures where 10 are usual", every(20), always, 70, 97, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpike()
			now := spikeOf(s, t0, 20_000, tt.usual, 97)
			if s.on {
				t.Fatal("the usual is a spike")
			}
			began := now
			spikeOf(s, now, tt.n, tt.fails, tt.nets)
			if s.on != tt.want {
				t.Fatalf("spike %v with %d failures in %d networks, usual %.3f, want %v", s.on, s.failures, len(s.places), s.usual, tt.want)
			}
			if s.on && s.since.After(began) {
				t.Errorf("since %s, want at or before the first failure at %s", s.since, began)
			}
		})
	}
}

func TestSpikeOneNetworkAmongOthers(t *testing.T) {
	s := newSpike()
	for i := range 200 {
		target := place{host: "provider"}
		if i%5 == 4 {
			target = place{host: fmt.Sprint(i)}
		}
		s.add(true, target, at(time.Duration(i)*time.Second), at(time.Duration(i)*time.Second))
		if s.on {
			t.Fatalf("80 %% of %d failures share one network, and it is a spike", s.failures)
		}
	}
	// 159 of 200 do not.
	s.add(true, place{host: "another"}, at(201*time.Second), at(201*time.Second))
	if !s.on {
		t.Error("79.5 % share one network, and it is no spike")
	}
}

func TestSpikeEnds(t *testing.T) {
	s := newSpike()
	now := spikeOf(s, t0, 200, func(i int) bool { return i >= 150 }, 50)
	if !s.on {
		t.Fatal("50 failures are no spike")
	}
	usual := s.usual
	now = spikeOf(s, now, 150+30, func(int) bool { return false }, 50)
	if !s.on {
		t.Error("it ended at 20 failures, want below")
	}
	if s.usual != usual {
		t.Error("a spike taught what is usual")
	}
	spikeOf(s, now, 1, func(int) bool { return false }, 50)
	if s.on {
		t.Errorf("it goes on with %d failures", s.failures)
	}

	s = newSpike()
	now = spikeOf(s, t0, 50, func(int) bool { return true }, 50)
	if !s.on {
		t.Fatal("50 failures are no spike")
	}
	if s.judge(now.Add(spikeForget + time.Minute)); s.on {
		t.Error("with nothing left to probe the spike stays for ever")
	}
}

func TestCanaryWatch(t *testing.T) {
	var w canaryWatch
	ok := func(d time.Duration) canaryRound { return canaryRound{began: at(d), succeeded: at(d + time.Second)} }
	no := func(d time.Duration) canaryRound { return canaryRound{began: at(d)} }
	if w.round(ok(0)) || w.down {
		t.Error("a network that works from the start changed")
	}
	if !w.round(no(15*time.Second)) || !w.down || !w.since.Equal(at(time.Second)) {
		t.Errorf("all failed: down %v since %s, want since the last success", w.down, w.since)
	}
	if w.round(no(30 * time.Second)) {
		t.Error("still down, and it changed")
	}
	if !w.round(ok(45*time.Second)) || w.down {
		t.Error("it is back, and still down")
	}
	w = canaryWatch{}
	if !w.round(no(0)) || !w.since.Equal(t0) {
		t.Errorf("never seen to work: since %s, want since the round", w.since)
	}
}

func TestPlaces(t *testing.T) {
	pfx := func(s string) place { return place{prefix: netip.MustParsePrefix(s)} }
	for _, tt := range []struct {
		addr string
		want []place
	}{
		{"192.0.2.77", []place{pfx("192.0.2.77/32"), pfx("192.0.2.0/24")}},
		{"::ffff:192.0.2.77", []place{pfx("192.0.2.77/32"), pfx("192.0.2.0/24")}},
		{"2001:db8:1:2::3", []place{pfx("2001:db8:1:2::3/128"), pfx("2001:db8:1::/48")}},
		{"", []place{{host: "relay.example"}}},
	} {
		addr, _ := netip.ParseAddr(tt.addr)
		if diff := cmp.Diff(tt.want, places(addr, "relay.example"), cmp.AllowUnexported(place{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", tt.addr, diff)
		}
	}
}

func TestPermitsQueue(t *testing.T) {
	p := newPermits(2, 4)
	ks := places(netip.MustParseAddr("192.0.2.1"), "")
	for range 2 {
		if !p.claim(ks) {
			t.Fatal("two permits for one address were refused")
		}
	}
	k, full := p.blocked(ks)
	if !full || k != ks[0] {
		t.Fatalf("blocked at %v, %v, want the address", k, full)
	}
	if p.claim(ks) {
		t.Fatal("a third permit for one address was given")
	}
	var ws [3]*watched
	for i := range ws {
		ws[i] = &watched{relay: monitor.RelayURL(fmt.Sprint(i))}
		p.park(ws[i], k)
	}
	p.leave(ws[0]) // it is removed meanwhile
	if got := p.release(ks); len(got) != 1 || got[0] != ws[1] {
		t.Errorf("one permit back woke %v, want the one that waited longest", got)
	}
	if p.waiting != 1 {
		t.Errorf("%d wait, want 1", p.waiting)
	}
	other := places(netip.MustParseAddr("192.0.2.2"), "")
	for range 2 {
		if !p.claim(other) {
			t.Fatal("the /24 has room for three more")
		}
	}
	third := places(netip.MustParseAddr("192.0.2.3"), "")
	if !p.claim(third) {
		t.Fatal("the /24 has room for one more")
	}
	if k, full := p.blocked(third); !full || k != third[1] {
		t.Errorf("blocked at %v, %v, want the /24", k, full)
	}
}

func TestOutboxBound(t *testing.T) {
	b := newOutbox(100)
	for i := range 250 {
		b.add(monitor.Observation{At: at(time.Duration(i) * time.Second)}, 1000)
	}
	if dropped, _ := b.lost(); dropped != 150 || b.len() != 100 {
		t.Fatalf("%d dropped, %d left, want 150 and 100", dropped, b.len())
	}
	b.recovered(monitor.Recovery{At: at(155 * time.Second)})
	b.recovered(monitor.Recovery{At: at(255 * time.Second)})
	for n := range 10 {
		obs, recs := b.take(10)
		for i, o := range obs {
			if want := at(time.Duration(150+10*n+i) * time.Second); !o.At.Equal(want) {
				t.Fatalf("observation of %s, want %s", o.At, want)
			}
		}
		// The first goes with the observations around it, the second, newer
		// than all, with the last of them.
		if want := map[int]int{0: 1, 9: 1}[n]; len(recs) != want {
			t.Errorf("batch %d has %d recoveries, want %d", n, len(recs), want)
		}
	}
	if !b.empty() {
		t.Error("something is left")
	}
}

func TestOutboxBoundsDocuments(t *testing.T) {
	b := newOutbox(10_000)
	o := monitor.Observation{Info: &monitor.Info{Raw: make([]byte, 64<<10)}}
	kept := 0
	for range 1000 {
		b.add(o, 10_000)
		if len(b.losses()) == 0 {
			kept++
		}
	}
	if kept != maxInfoBytes/(64<<10) {
		t.Errorf("%d documents of 64 KB kept, want %d", kept, maxInfoBytes/(64<<10))
	}
	obs, _ := b.take(1000)
	if len(obs) != 1000 || obs[999].Info != nil {
		t.Error("an observation was lost, or its document kept beyond the bound")
	}
	if b.add(o, 10_000); len(b.losses()) != 0 {
		t.Error("there is room again, and the document was refused")
	}
}

func TestConditions(t *testing.T) {
	var c conditions
	c.set(monitor.ImpairedSpike, true, at(time.Minute))
	c.set(monitor.ImpairedNetwork, true, t0)
	c.set(monitor.ImpairedNetwork, true, at(time.Hour))
	var h monitor.Health
	c.health(&h)
	want := monitor.Health{Impairments: []monitor.Impairment{monitor.ImpairedNetwork, monitor.ImpairedSpike}, ImpairedSince: t0}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	if changed, since := c.set(monitor.ImpairedNetwork, false, time.Time{}); !changed || !since.Equal(t0) {
		t.Errorf("it ended: %v since %s", changed, since)
	}
	c.health(&h)
	if diff := cmp.Diff(monitor.Health{Impairments: []monitor.Impairment{monitor.ImpairedSpike}, ImpairedSince: at(time.Minute)}, h); diff != "" {
		t.Error(diff)
	}
}

func TestMachineIsMeasured(t *testing.T) {
	if used, limit, ok := descriptors(); ok && (used < 3 || used > limit) {
		t.Errorf("%d of %d descriptors", used, limit)
	}
	if d, ok := cpuTime(); ok && d <= 0 {
		t.Errorf("processor time %s", d)
	}
	s := newSchedLatency()
	done := make(chan struct{})
	for range 100 {
		go func() { done <- struct{}{} }()
		<-done
	}
	if d := s.read(); d < 0 || d > time.Minute {
		t.Errorf("scheduling latency %s", d)
	}
}
