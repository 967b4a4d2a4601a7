package vantage

import "github.com/pharos-nostr/pharos/monitor"

// Stats is what a vantage counts and measures beside its health, for metrics.
type Stats struct {
	Ready  int     // relays that are due and wait for the pace or for room
	Parked int     // relays that are due and wait for a permit
	Rate   float64 // present pace, starts a second
	// InFlight counts the probes under way on each network of the configuration,
	// and on no other. It is the caller's to read, not to change.
	InFlight map[monitor.Network]int
	Held     int // failures that wait until the network's proxy is seen to work

	Expedited        uint64 // expedited probes started
	ExpeditesDropped uint64 // asked for, but not startable within 60 s or not watched here

	DeepProbes uint64 // that tested capabilities
	ProxySkips uint64 // probes not made because the network's proxy did not answer

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
