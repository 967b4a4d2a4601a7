package remote

import (
	"cmp"
	"time"
)

// Stats is what a Core counts and knows.
type Stats struct {
	Reached  time.Time // when the core last answered, zero = never yet
	Failures uint64    // requests that failed
	// Skew is this machine's clock − the core's, by its newest answer.
	Skew time.Duration
	// Problem says why the core does not take or answer what is sent, "" = it
	// does.
	Problem string

	Sent                uint64 // batches that the core has
	Batches             int    // that wait in the spool
	Observations        int    // in these
	Bytes               int64  // of these
	Dropped             uint64 // batches given up for want of room in the spool
	DroppedObservations uint64 // in these
	Broken              uint64 // batches that were half-written or damaged
	Refused             uint64 // batches that the core refused for good
	Foreign             uint64 // batches lost because somebody else sent under their numbers
	Unsendable          uint64 // observations left out of a batch for what they hold
	InfosDropped        uint64 // NIP-11 documents left out of a batch that was too large
}

// Stats returns the present figures.
func (c *Core) Stats() Stats {
	c.mu.Lock()
	s := c.stats
	s.Problem = cmp.Or(c.sending.problem, c.asking.problem)
	c.mu.Unlock()
	batches, observations, bytes, lost := c.spool.size()
	s.Batches, s.Observations, s.Bytes = batches, observations, bytes
	s.Dropped, s.DroppedObservations, s.Broken = lost.dropped, lost.droppedObservations, lost.broken
	return s
}
