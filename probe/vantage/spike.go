package vantage

import (
	"time"
)

// The failure spike rule (corroboration.md, Is it me?).
const (
	spikeWindow   = 200
	spikeLeast    = 20  // failures
	spikeTimes    = 5   // × the usual
	spikePlaces   = 20  // target networks over which they are spread
	spikeOutage   = 0.8 // share in one network that makes it the provider's outage
	spikeForget   = time.Hour
	spikeLearning = 1.0 / 2000
)

// spike watches the last 200 probes of relays that were online here. Relays
// that fail leave that set, so with a short list the window could stand still
// with its failures for ever: probes older than an hour leave it too.
type spike struct {
	ring     []spikeProbe // oldest first
	failures int
	places   map[place]int // failures by target network
	// usual is the share of failures among probes that left the window while
	// nothing was wrong: those still in it must not raise the limit that they
	// are held against.
	usual float64
	on    bool
	since time.Time
}

type spikeProbe struct {
	failed  bool
	target  place
	started time.Time
}

func newSpike() *spike { return &spike{places: map[place]int{}} }

// add takes the outcome of one probe, and judges. A change is reported with
// since when the spike is or was there.
func (s *spike) add(failed bool, target place, started, now time.Time) (changed bool) {
	s.ring = append(s.ring, spikeProbe{failed, target, started})
	if failed {
		s.failures++
		s.places[target]++
	}
	return s.judge(now)
}

// judge lets go what is too old and decides anew.
func (s *spike) judge(now time.Time) (changed bool) {
	for len(s.ring) > spikeWindow || (len(s.ring) > 0 && now.Sub(s.ring[0].started) > spikeForget) {
		s.drop()
	}
	limit := max(spikeLeast, spikeTimes*s.usual*spikeWindow)
	on := float64(s.failures) >= limit
	// Once there, it ends with the count alone.
	if on && !s.on {
		on = len(s.places) >= spikePlaces && !s.oneNetwork()
	}
	if on == s.on {
		return false
	}
	s.on = on
	if on {
		s.since = s.oldestFailure()
	}
	return true
}

func (s *spike) drop() {
	p := s.ring[0]
	s.ring = s.ring[1:]
	x := 0.0
	if p.failed {
		x = 1
		s.failures--
		if s.places[p.target]--; s.places[p.target] == 0 {
			delete(s.places, p.target)
		}
	}
	if !s.on {
		s.usual += (x - s.usual) * spikeLearning
	}
}

func (s *spike) oneNetwork() bool {
	for _, n := range s.places {
		if float64(n) >= spikeOutage*float64(s.failures) {
			return true
		}
	}
	return false
}

func (s *spike) oldestFailure() time.Time {
	for _, p := range s.ring {
		if p.failed {
			return p.started
		}
	}
	return time.Time{}
}

// clear forgets the window, as after a time that says nothing.
func (s *spike) clear() {
	s.ring, s.failures = nil, 0
	clear(s.places)
}
