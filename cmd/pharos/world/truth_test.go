package world_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// epoch is where a simulated world's times begin: on a slot of every interval
// that divides a day.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// day is 24 hours.
const day = 24 * time.Hour

// span is a time from ≤ t < to, since epoch.
type span struct{ from, to time.Duration }

// spans are in order and apart from each other.
type spans []span

// at returns the span that t lies in.
func (s spans) at(t time.Duration) (span, bool) {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > t })
	if i < len(s) && s[i].from <= t {
		return s[i], true
	}
	return span{}, false
}

func (s spans) has(t time.Duration) bool { _, ok := s.at(t); return ok }

// touches reports whether some of s lies in from ≤ t ≤ to.
func (s spans) touches(from, to time.Duration) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].to > from })
	return i < len(s) && s[i].from <= to
}

// merged puts spans in order and joins those that overlap.
func merged(s spans) spans {
	slices.SortFunc(s, func(a, b span) int { return int(a.from - b.from) })
	var out spans
	for _, x := range s {
		if n := len(out); n > 0 && x.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, x.to)
		} else {
			out = append(out, x)
		}
	}
	return out
}

// size of a world.
type size struct {
	relays, vantages int
	length           time.Duration
	seed             uint64
	block            float64 // of the relays when a vantage is blocked; 0 = blockShare
	// flawless: nothing goes wrong but relays.
	flawless bool
}

// truth is what really happens in a world: which relays are down when, and what
// goes wrong at the vantages themselves.
type truth struct {
	size
	relays   []*trueRelay
	vantages []*trueVantage
}

type trueRelay struct {
	url      monitor.RelayURL
	key      uint64 // for draws
	provider int    // that it shares a network with; -1 = none
	down     spans
}

type trueVantage struct {
	name string
	key  uint64
	lost spans // its network is away, and with it the core
	deaf spans // no relay can be reached, the core can
	lame spans // a part of the packets is lost
	// blocked: for a part of the relays its connections are dropped, silently.
	blocked spans
	share   float64
	lies    bool
	noise   float64
}

// How often what goes wrong; the means of exponential gaps and the medians of
// log-normal lengths.
const (
	noise       = 0.0005 // of single probes fail for no reason of the relay's
	lameShare   = 0.3    // of probes fail in such a time
	blockShare  = 0.03   // of the relays
	lieShare    = 0.05   // of the relays are called down, and as many up, each day
	deadShare   = 0.04   // are dead from the beginning
	dyingShare  = 0.02   // die some time
	flapShare   = 0.03   // are up and down in long spells
	poorShare   = 0.10   // have outages every few days
	watchedFrom = time.Hour
)

// providers are the parts of the relays that live and fall together.
var providers = []float64{0.15, 0.08, 0.05, 0.03, 0.02, 0.015, 0.01, 0.01}

// newTruth draws a world; the same size and seed give the same one. The relays'
// fate does not depend on how many vantages there are.
func newTruth(z size) *truth {
	w := &truth{size: z}
	var fates []spans // of the providers
	for p := range providers {
		d := newDice(z.seed, 1, uint64(p))
		fate := d.every(20*day, 40*time.Minute, 1, z.length)
		if p == 0 && len(fate) == 0 { // the great one falls once at least
			from := watchedFrom + time.Duration(d.Float64()*float64(z.length-watchedFrom)*0.8)
			fate = spans{{from, from + time.Hour}}
		}
		fates = append(fates, fate)
	}
	for i := range z.relays {
		d := newDice(z.seed, 2, uint64(i))
		r := &trueRelay{url: monitor.RelayURL(fmt.Sprintf("wss://relay-%04d.example/", i)), key: d.Uint64(), provider: -1}
		r.down = d.fate(z.length)
		share := d.Float64()
		for p, part := range providers {
			if share -= part; share < 0 {
				r.provider = p
				r.down = append(r.down, fates[p]...)
				break
			}
		}
		r.down = merged(r.down)
		w.relays = append(w.relays, r)
	}
	for i := range z.vantages {
		d := newDice(z.seed, 3, uint64(i))
		v := &trueVantage{name: fmt.Sprintf("vantage-%d", i), key: d.Uint64(), share: cmp.Or(z.block, blockShare)}
		w.vantages = append(w.vantages, v)
		if z.flawless {
			continue
		}
		v.noise, v.lies = noise, z.vantages >= 3 && i == z.vantages-1
		v.lost = d.every(5*day, 20*time.Minute, 1.2, z.length)
		v.deaf = d.every(7*day, 10*time.Minute, 1.2, z.length)
		v.lame = d.every(3*day, 6*time.Minute, 0.7, z.length)
		v.blocked = d.every(10*day, 12*time.Hour, 0.7, z.length)
	}
	return w
}

// dice draw what happens to one thing.
type dice struct{ *rand.Rand }

func newDice(seed, kind, i uint64) dice { return dice{rand.New(rand.NewPCG(seed, kind<<32|i))} }

// every draws spans: gaps of that mean, lengths of that median and spread. All
// lie after the first hour, so that every world begins well.
func (d dice) every(gap, median time.Duration, spread float64, until time.Duration) spans {
	var out spans
	for t := watchedFrom; ; {
		t += time.Duration(d.ExpFloat64() * float64(gap))
		if t >= until {
			return out
		}
		long := max(time.Second, time.Duration(float64(median)*math.Exp(spread*d.NormFloat64())))
		out = append(out, span{t, t + long})
		t += long
	}
}

// fate draws a relay's own outages.
func (d dice) fate(until time.Duration) spans {
	kind := d.Float64()
	at := func(share float64) bool { kind -= share; return kind < 0 }
	blips, outages := 10*day, 60*day
	var out spans
	switch {
	case at(deadShare):
		return spans{{0, until + day}}
	case at(dyingShare):
		out = spans{{watchedFrom + time.Duration(d.Float64()*float64(until-watchedFrom)), until + day}}
	case at(flapShare):
		for _, spell := range d.every(4*day, 8*time.Hour, 0.7, until) {
			for t := spell.from; t < spell.to; {
				down := time.Duration((2 + 28*d.Float64()) * float64(time.Minute))
				out = append(out, span{t, t + down})
				t += down + time.Duration((5+55*d.Float64())*float64(time.Minute))
			}
		}
	case at(poorShare):
		blips, outages = day, 5*day
	}
	out = append(out, d.every(blips, 30*time.Second, 1, until)...)     // seconds to minutes
	out = append(out, d.every(outages, 50*time.Minute, 1.3, until)...) // minutes to a day
	return out
}

// draw is a number from 0 to 1 that belongs to a probe, or to a day.
func draw(a, b uint64, t time.Duration) float64 {
	h := a ^ b*0x9e3779b97f4a7c15 ^ uint64(t)*0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	h ^= h >> 32
	return float64(h>>11) / (1 << 53)
}

// sees reports whether a probe of r that v begins at t succeeds, as v tells it.
func (v *trueVantage) sees(r *trueRelay, t time.Duration) bool {
	if v.lies {
		switch lie := draw(v.key, r.key, t/day); {
		case lie < lieShare:
			return false
		case lie > 1-lieShare:
			return true
		}
	}
	if r.down.has(t) || v.lost.has(t) || v.deaf.has(t) || v.blocks(r, t) {
		return false
	}
	x := draw(v.key, r.key, t)
	return x >= v.noise && (x >= lameShare || !v.lame.has(t))
}

func (v *trueVantage) blocks(r *trueRelay, t time.Duration) bool {
	b, ok := v.blocked.at(t)
	return ok && draw(v.key, r.key, b.from) < v.share
}

// nextFailure is the first slot from ≤ t < until, of those every interval after
// phase, at which v fails to see r; until itself when there is none. Where v has
// no network it tells nothing (S25): those slots are passed over.
func (v *trueVantage) nextFailure(r *trueRelay, phase, interval, from, until time.Duration) time.Duration {
	t := slotAtOrAfter(from, phase, interval)
	for t < until {
		if x := draw(v.key, r.key, t); x < v.noise && !v.lost.has(t) && !v.deaf.has(t) {
			return t
		}
		if v.lies || r.down.has(t) || v.blocks(r, t) || v.lame.has(t) || v.deaf.has(t) {
			if s, deaf := v.deaf.at(t); !v.sees(r, t) && !v.lost.has(t) && (!deaf || t < s.from+canaryEvery+canaryWait) {
				return t
			}
		}
		t += interval
	}
	return until
}

func slotAtOrAfter(t, phase, interval time.Duration) time.Duration {
	n := (t - phase + interval - 1) / interval
	if t <= phase {
		n = 0
	}
	return phase + n*interval
}
