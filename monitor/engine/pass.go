package engine

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	passMinProbes  = 50   // corroboration.md, Brakes: a pass of ≥ 50 probes …
	passMaxUnclear = 0.25 // … with > 25 % unclear decides nothing
)

// pass counts what one vantage measured in the last interval.
type pass struct{ slots []passSlot }

type passSlot struct {
	at              time.Time
	probes, unclear int
}

// add counts those of a batch whose relays count, and forgets what is older than an
// interval.
func (p *pass) add(fresh []*monitor.Observation, counts func(monitor.RelayURL) bool, now time.Time, interval time.Duration) {
	s := passSlot{at: now}
	for _, o := range fresh {
		if o.Outcome == monitor.OutcomeSkipped || !counts(o.Relay) {
			continue
		}
		s.probes++
		if o.Outcome == monitor.OutcomeUnclear {
			s.unclear++
		}
	}
	p.slots = slices.DeleteFunc(p.slots, func(s passSlot) bool { return now.Sub(s.at) > interval })
	if s.probes > 0 {
		p.slots = append(p.slots, s)
	}
}

// unclear reports whether too much of the last interval told nothing.
func (p *pass) unclear(now time.Time, interval time.Duration) bool {
	probes, unclear := 0, 0
	for _, s := range p.slots {
		if now.Sub(s.at) <= interval {
			probes += s.probes
			unclear += s.unclear
		}
	}
	return probes >= passMinProbes && float64(unclear) > passMaxUnclear*float64(probes)
}
