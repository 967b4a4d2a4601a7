package vantage

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/pharos-nostr/pharos/probe"
)

// place is something that may not be asked too much at a time: one address, the
// network around it, or a host whose address is not known.
type place struct {
	prefix netip.Prefix
	host   string
}

// around is the neighbour that addr belongs to.
func around(addr netip.Addr) place { return place{prefix: probe.Subnet(addr)} }

// places returns what a connection to addr occupies; with addr unknown, the
// host alone.
func places(addr netip.Addr, host string) []place {
	if !addr.IsValid() {
		return []place{{host: host}}
	}
	addr = addr.Unmap()
	return []place{{prefix: netip.PrefixFrom(addr, addr.BitLen())}, around(addr)}
}

// permits counts the connections to each place and keeps, in order, the relays
// that wait for one. Which places a relay needs is known before its probe only
// as far as its address is: from the URL, or from the last probe. Otherwise the
// host's name stands for it, and the probe itself asks again once it has
// resolved the name (claim).
//
// Only claim may be called from other goroutines than the loop's.
type permits struct {
	mu               sync.Mutex
	perIP, perSubnet int
	held             map[place]int

	queues  map[place]*list.List // of *watched; the loop's alone
	waiting int
}

func newPermits(perIP, perSubnet int) *permits {
	return &permits{perIP: perIP, perSubnet: perSubnet, held: map[place]int{}, queues: map[place]*list.List{}}
}

// limit is for those that hold mu.
func (p *permits) limit(k place) int {
	if k.host != "" || k.prefix.IsSingleIP() {
		return p.perIP
	}
	return p.perSubnet
}

// bound changes how many permits there are at each place, and returns the relays
// that may try again.
func (p *permits) bound(perIP, perSubnet int) []*watched {
	p.mu.Lock()
	p.perIP, p.perSubnet = perIP, perSubnet
	p.mu.Unlock()
	var woken []*watched
	for k := range p.queues {
		woken = append(woken, p.wake(k)...)
	}
	return woken
}

// blocked returns the first of ks that is full.
func (p *permits) blocked(ks []place) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full(ks)
}

func (p *permits) full(ks []place) (place, bool) {
	for _, k := range ks {
		if p.held[k] >= p.limit(k) {
			return k, true
		}
	}
	return place{}, false
}

// claim takes one permit at each of ks, or none and says so.
func (p *permits) claim(ks []place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, full := p.full(ks); full {
		return false
	}
	for _, k := range ks {
		p.held[k]++
	}
	return true
}

// release gives permits back and returns the relays that may try again, no more
// of them than there is room for.
func (p *permits) release(ks []place) []*watched {
	p.mu.Lock()
	for _, k := range ks {
		if p.held[k]--; p.held[k] <= 0 {
			delete(p.held, k)
		}
	}
	p.mu.Unlock()
	var woken []*watched
	for _, k := range ks {
		woken = append(woken, p.wake(k)...)
	}
	return woken
}

// wake takes as many relays out of the queue of k as it has room for.
func (p *permits) wake(k place) []*watched {
	q := p.queues[k]
	if q == nil {
		return nil
	}
	p.mu.Lock()
	room := p.limit(k) - p.held[k]
	p.mu.Unlock()
	var woken []*watched
	for ; room > 0 && q.Len() > 0; room-- {
		w := q.Front().Value.(*watched)
		p.leave(w)
		w.woken = k
		woken = append(woken, w)
	}
	return woken
}

// park lets w wait until there is room at k.
func (p *permits) park(w *watched, k place) {
	q := p.queues[k]
	if q == nil {
		q = list.New()
		p.queues[k] = q
	}
	w.parkedAt, w.element = k, q.PushBack(w)
	p.waiting++
}

// leave takes w out of the queue that it waits in, if any.
func (p *permits) leave(w *watched) {
	if w.parkedAt == (place{}) {
		return
	}
	q := p.queues[w.parkedAt]
	q.Remove(w.element)
	if q.Len() == 0 {
		delete(p.queues, w.parkedAt)
	}
	w.parkedAt, w.element = place{}, nil
	p.waiting--
}
