package vantage

import (
	"math"
	"time"
)

// slowness of all that we probe, against what is usual.
type slowness uint8

const (
	steady   slowness = iota
	unsure            // it was slower, and nothing new is known
	slow              // twice the usual
	verySlow          // four times, or more than half a second
)

const (
	tempoSamples  = 32 // relays differ: fewer would mistake a chance mixture for a change
	slowBy        = 20 * time.Millisecond
	verySlowBy    = 500 * time.Millisecond
	tempoLearning = 0.02
	tempoYielding = 0.2
)

// tempo compares how long relays take to open now with how long they usually
// take. Where most of them are slower at once the reason is on our side, even
// though our own process may not feel it: a full uplink or NAT, cores that we
// share with others, or a host of many relays that we ask too much. Times are
// compared as logarithms, each with its own relay's usual one as far as that is
// known.
type tempo struct {
	typical float64 // of a relay seen for the first time; NaN = not known yet
	normal  float64 // how much slower than usual is accepted by now
	after   time.Time

	n             int
	sum           float64 // of logarithms of slowness
	opened, usual float64 // sums of logarithms
	state         slowness
	excess        time.Duration
}

func newTempo() *tempo { return &tempo{typical: math.NaN()} }

// add takes the open time of a success, begun at begun, of a relay that usually
// takes usual (0 = not known), and returns what is usual for it from now on.
func (t *tempo) add(open, usual time.Duration, begun time.Time) time.Duration {
	if open <= 0 {
		return usual
	}
	x := math.Log(float64(open))
	ref := t.typical
	next := x
	if usual > 0 {
		ref = math.Log(float64(usual))
		// Faster is believed sooner than slower.
		weight := 0.1
		if x < ref {
			weight = 0.3
		}
		next = ref + weight*(x-ref)
	}
	if begun.After(t.after) {
		t.n++
		t.opened += x
		if math.IsNaN(ref) {
			ref = x
		}
		t.usual += ref
		t.sum += x - ref
	}
	return time.Duration(math.Exp(next))
}

// judge looks at the successes since the last time, once there are enough. slowed
// says that the pace is at its lowest already: what is slow even so is not slow
// by us, and becomes the usual.
func (t *tempo) judge(now time.Time, slowed bool) slowness {
	if t.n < tempoSamples {
		if t.state != steady {
			return unsure
		}
		return steady
	}
	n := float64(t.n)
	mean, opened, usual := t.sum/n, math.Exp(t.opened/n), math.Exp(t.usual/n)
	t.n, t.sum, t.opened, t.usual = 0, 0, 0, 0
	if math.IsNaN(t.typical) {
		t.typical = math.Log(opened)
		return steady
	}
	t.excess = time.Duration(opened - usual*math.Exp(t.normal))
	over := mean - t.normal
	t.state = steady
	switch {
	case over >= math.Log(4) && t.excess >= slowBy || t.excess >= verySlowBy:
		t.state = verySlow
	case over >= math.Log(2) && t.excess >= slowBy:
		t.state = slow
	}
	weight := tempoLearning
	if slowed {
		weight = tempoYielding
	}
	t.normal = max(0, t.normal+weight*over)
	t.typical += weight * (math.Log(opened) - t.typical)
	if t.state != steady {
		t.after = now // what has begun before tells of the pace before
	}
	return t.state
}
