package engine

import (
	"slices"
	"time"
)

const (
	clockHosts  = 5                // fewest hosts for a judgement (corroboration.md, Wrong clock)
	clockKeep   = 64               // newest hosts that are asked
	clockRecent = 10 * time.Minute // older Date headers say nothing about now
)

// clock compares our clock with the Date headers of the upgrade responses that
// one vantage saw: one offset a host, so that no single operator decides.
type clock struct{ dates []clockDate }

type clockDate struct {
	host   string
	offset time.Duration // theirs − ours
	at     time.Time
}

func (c *clock) add(host string, offset time.Duration, now time.Time) {
	c.dates = slices.DeleteFunc(c.dates, func(d clockDate) bool { return d.host == host })
	if len(c.dates) == clockKeep {
		c.dates = slices.Delete(c.dates, 0, 1)
	}
	c.dates = append(c.dates, clockDate{host, offset, now})
}

// skew returns the median offset of the recent hosts, false if there are too
// few.
func (c *clock) skew(now time.Time) (time.Duration, bool) {
	var offsets []time.Duration
	for _, d := range c.dates {
		if now.Sub(d.at).Abs() <= clockRecent {
			offsets = append(offsets, d.offset)
		}
	}
	if len(offsets) < clockHosts {
		return 0, false
	}
	slices.Sort(offsets)
	return offsets[len(offsets)/2], true
}

// clockSkew is by how much the relays' clocks are ahead of ours, 0 where nothing
// is known: the median of what the vantages saw, so that no single one decides
// either; of two in the middle the smaller. Its caller holds mu.
func (e *Engine) clockSkew(now time.Time) time.Duration {
	var offsets []time.Duration
	for _, v := range e.vantages {
		if o, ok := v.clock.skew(now); ok && !v.Revoked {
			offsets = append(offsets, o)
		}
	}
	n := len(offsets)
	if n == 0 {
		return 0
	}
	slices.Sort(offsets)
	low, high := offsets[(n-1)/2], offsets[n/2]
	if low.Abs() < high.Abs() {
		return low
	}
	return high
}
