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

// clock compares our clock with the Date headers of the relays' upgrade
// responses: one offset a host, so that no single operator decides.
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

// skew returns the median offset of the recent hosts, 0 if there are too few.
func (c *clock) skew(now time.Time) time.Duration {
	var offsets []time.Duration
	for _, d := range c.dates {
		if now.Sub(d.at).Abs() <= clockRecent {
			offsets = append(offsets, d.offset)
		}
	}
	if len(offsets) < clockHosts {
		return 0
	}
	slices.Sort(offsets)
	return offsets[len(offsets)/2]
}
