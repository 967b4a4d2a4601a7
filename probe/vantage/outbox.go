package vantage

import (
	"sync"

	"github.com/pharos-nostr/pharos/monitor"
)

// maxInfoBytes bounds the NIP-11 documents in the outbox: a document may be
// 64 KB, a hundred thousand of them would be gigabytes.
const maxInfoBytes = 32 << 20

// outbox keeps what the core has not taken yet. It is bounded: when it is full
// the oldest observation is dropped and counted. At full load (50 000 relays
// every 5 min) 100 000 observations are ten minutes and about 60 MB. Safe for
// concurrent use.
type outbox struct {
	full chan struct{} // told when a whole batch waits; holds one

	mu         sync.Mutex
	limit      int
	queue      []monitor.Observation // from head on
	head       int
	infoBytes  int
	recoveries []monitor.Recovery
	dropped    uint64
	infosLost  uint64
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, full: make(chan struct{}, 1)}
}

func infoSize(o *monitor.Observation) int {
	if o.Info == nil {
		return 0
	}
	return len(o.Info.Raw)
}

// add appends o. kept is false when there was no room for its NIP-11 document,
// which is then to be asked for again.
func (b *outbox) add(o monitor.Observation, batch int) (infoKept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	infoKept = true
	if n := infoSize(&o); n > 0 && b.infoBytes+n > maxInfoBytes {
		o.Info, infoKept = nil, false
		b.infosLost++
	}
	if len(b.queue)-b.head >= b.limit {
		b.drop(1)
		b.dropped++
	}
	b.infoBytes += infoSize(&o)
	b.queue = append(b.queue, o)
	if len(b.queue)-b.head >= batch {
		select {
		case b.full <- struct{}{}:
		default: // told already
		}
	}
	return infoKept
}

// bound changes how many observations may wait.
func (b *outbox) bound(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	if n := len(b.queue) - b.head - limit; n > 0 {
		b.drop(n)
		b.dropped += uint64(n)
	}
}

// drop forgets the n oldest.
func (b *outbox) drop(n int) {
	for i := b.head; i < b.head+n; i++ {
		b.infoBytes -= infoSize(&b.queue[i])
		b.queue[i] = monitor.Observation{}
	}
	b.head += n
	if b.head*2 >= len(b.queue) {
		rest := copy(b.queue, b.queue[b.head:])
		clear(b.queue[rest:])
		b.queue, b.head = b.queue[:rest], 0
	}
	if len(b.queue) == 0 && cap(b.queue) > 4096 {
		b.queue = nil
	}
}

func (b *outbox) recovered(r monitor.Recovery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recoveries = append(b.recoveries, r)
}

// take removes the oldest n observations at most, and the recoveries that are
// not newer than them; all recoveries when nothing is left behind.
func (b *outbox) take(n int) ([]monitor.Observation, []monitor.Recovery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.queue)-b.head)
	obs := append([]monitor.Observation(nil), b.queue[b.head:b.head+n]...)
	b.drop(n)
	due := len(b.recoveries)
	if len(b.queue) > b.head {
		for due = 0; due < len(b.recoveries) && !b.recoveries[due].At.After(obs[n-1].At); due++ {
		}
	}
	recs := append([]monitor.Recovery(nil), b.recoveries[:due]...)
	b.recoveries = append([]monitor.Recovery(nil), b.recoveries[due:]...)
	return obs, recs
}

func (b *outbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) - b.head
}

func (b *outbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) == b.head && len(b.recoveries) == 0
}

func (b *outbox) lost() (observations, infos uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped, b.infosLost
}
