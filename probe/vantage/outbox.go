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
	lostNow    []loss // not yet told
}

// loss is what an observation held that was dropped, beside its outcome.
type loss struct {
	relay              monitor.RelayURL
	info, facts, depth bool
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

// add appends o, without its NIP-11 document where there is no room for it.
func (b *outbox) add(o monitor.Observation, batch int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := infoSize(&o); n > 0 && b.infoBytes+n > maxInfoBytes {
		o.Info = nil
		b.infosLost++
		b.lostNow = append(b.lostNow, loss{relay: o.Relay, info: true})
	}
	if len(b.queue)-b.head >= b.limit {
		b.giveUp(1)
	}
	b.infoBytes += infoSize(&o)
	b.queue = append(b.queue, o)
	if len(b.queue)-b.head >= batch {
		select {
		case b.full <- struct{}{}:
		default: // told already
		}
	}
}

// losses returns what was lost since it was last called, to be asked for again.
func (b *outbox) losses() []loss {
	b.mu.Lock()
	defer b.mu.Unlock()
	ls := b.lostNow
	b.lostNow = nil
	return ls
}

// crowded reports whether the outbox is so full that what is added may well be
// dropped: the core has been away for long.
func (b *outbox) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)-b.head > b.limit/2 || b.infoBytes > maxInfoBytes/2
}

// bound changes how many observations may wait.
func (b *outbox) bound(limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = limit
	if n := len(b.queue) - b.head - limit; n > 0 {
		b.giveUp(n)
	}
}

// giveUp drops the n oldest, which the core has not got.
func (b *outbox) giveUp(n int) {
	for i := b.head; i < b.head+n; i++ {
		o := &b.queue[i]
		x := loss{o.Relay, o.Info != nil, o.DNS != nil, o.Capabilities != nil || o.Write != nil}
		if x.info || x.facts || x.depth {
			b.lostNow = append(b.lostNow, x)
		}
	}
	b.drop(n)
	b.dropped += uint64(n)
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
