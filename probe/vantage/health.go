package vantage

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// conditions keeps which impairments there are now and since when.
type conditions struct {
	since map[monitor.Impairment]time.Time
}

// recovers reports whether the end of i is a recovery (S26): the others touch
// no record.
func recovers(i monitor.Impairment) bool {
	switch i {
	case monitor.ImpairedNetwork, monitor.ImpairedSuspended, monitor.ImpairedClock, monitor.ImpairedSpike:
		return true
	default:
		return false
	}
}

// set notes whether i is there. began counts only when it is new. It reports a
// change, and for one that ended since when it was there.
func (c *conditions) set(i monitor.Impairment, on bool, began time.Time) (changed bool, since time.Time) {
	since, was := c.since[i]
	switch {
	case on == was:
		return false, since
	case on:
		if c.since == nil {
			c.since = map[monitor.Impairment]time.Time{}
		}
		c.since[i] = began
		return true, began
	default:
		delete(c.since, i)
		return true, since
	}
}

func (c *conditions) has(i monitor.Impairment) bool {
	_, ok := c.since[i]
	return ok
}

// shift moves all times along with a clock that was set.
func (c *conditions) shift(d time.Duration) {
	for i, t := range c.since {
		c.since[i] = t.Add(d)
	}
}

// health fills in the part of the health that tells what is wrong.
func (c *conditions) health(h *monitor.Health) {
	h.Impairments, h.ImpairedSince = nil, time.Time{}
	for i, t := range c.since {
		h.Impairments = append(h.Impairments, i)
		if h.ImpairedSince.IsZero() || t.Before(h.ImpairedSince) {
			h.ImpairedSince = t
		}
	}
	slices.Sort(h.Impairments)
}
