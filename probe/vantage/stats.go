package vantage

// Stats is what a vantage counts and measures beside its health, for metrics.
type Stats struct {
	Ready  int     // relays that are due and wait for the pace or for room
	Parked int     // relays that are due and wait for a permit
	Rate   float64 // present pace, starts a second

	Expedited        uint64 // expedited probes started
	ExpeditesDropped uint64 // asked for, but not startable within 60 s or not watched here

	Batches          uint64 // taken by the core
	DeliveryFailures uint64 // attempts
	Queued           int    // observations that wait for the core
	Dropped          uint64 // observations given up because the queue was full
	InfosDropped     uint64 // NIP-11 documents given up, to be read again
}

// Stats returns the present figures; they are at most a second old.
func (v *Vantage) Stats() Stats {
	v.mu.Lock()
	s := v.gauges
	v.mu.Unlock()
	s.Batches, s.DeliveryFailures = v.sender.batches.Load(), v.sender.failures.Load()
	s.Queued = v.outbox.len()
	s.Dropped, s.InfosDropped = v.outbox.lost()
	return s
}
