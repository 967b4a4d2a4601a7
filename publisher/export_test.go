package publisher

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Report is the current report on a relay at now, nil when there is none or it
// has expired.
func (p *Publisher) Report(url monitor.RelayURL, now time.Time) *monitor.SignedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.current(url, now); r != nil {
		return r.ev
	}
	return nil
}

// Service returns the current 10166, 0 and 10002, as far as they were signed.
func (p *Publisher) Service() []*monitor.SignedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*monitor.SignedEvent
	for _, k := range []int{nostr.KindAnnouncement, nostr.KindProfile, nostr.KindRelayList} {
		if a := p.service[k]; a != nil {
			out = append(out, a.ev)
		}
	}
	return out
}
