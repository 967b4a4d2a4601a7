package relay

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// maxAddresses bounds the addresses that are remembered without being
	// connected; about 100 bytes each.
	maxAddresses = 65536
	// sweepEvery is how often addresses with nothing to remember are forgotten.
	sweepEvery = time.Minute
)

// limiter counts, by address, what its connections ask for (reports.md 17). It
// runs nothing of its own: whoever uses it also tidies it.
type limiter struct {
	mu    sync.Mutex
	by    map[netip.Prefix]*visitor
	swept time.Time
}

// visitor is all that one address did lately.
type visitor struct {
	key         netip.Prefix
	connections int
	// full is when its allowance of requests is whole again: each request
	// moves it on by its share of a minute. At most a minute ahead, so that a
	// quiet minute allows a minute's worth at once.
	full time.Time
}

func newLimiter() *limiter { return &limiter{by: map[netip.Prefix]*visitor{}} }

// visitorKey is what counts as one address: of IPv6 the /64, which is what one
// customer is given at least.
func visitorKey(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil { // no address at all: these share one entry
		return netip.Prefix{}
	}
	return p
}

// connect counts one more connection of the address key, or returns nil if it
// has limit of them already; limit < 0 = none. Each that is allowed must be
// given back by disconnect, once.
func (l *limiter) connect(key netip.Prefix, limit int, now time.Time) *visitor {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy(now)
	v := l.by[key]
	if v == nil {
		l.makeRoom()
		v = &visitor{key: key}
		l.by[key] = v
	}
	if limit >= 0 && v.connections >= limit {
		return nil
	}
	v.connections++
	return v
}

func (l *limiter) disconnect(v *visitor, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.connections--; v.idle(now) {
		delete(l.by, v.key)
	}
}

// request counts one request of v, of which perMinute are allowed. wait is 0
// when it may be answered, else how long until one may.
func (l *limiter) request(v *visitor, perMinute int, now time.Time) (wait time.Duration) {
	share := time.Minute / time.Duration(perMinute)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy(now)
	next := now
	if v.full.After(now) {
		next = v.full
	}
	next = next.Add(share)
	if wait := next.Sub(now) - time.Minute; wait > 0 {
		return wait
	}
	v.full = next
	return 0
}

func (v *visitor) idle(now time.Time) bool { return v.connections == 0 && !v.full.After(now) }

// tidy forgets the addresses that are gone and whose allowance is whole. The
// caller holds mu.
func (l *limiter) tidy(now time.Time) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for key, v := range l.by {
		if v.idle(now) {
			delete(l.by, key)
		}
	}
}

// makeRoom forgets one that is not connected, if there are too many: at worst
// it may ask a minute's worth too much when it comes back. Those connected are
// bounded by their connections. The caller holds mu.
func (l *limiter) makeRoom() {
	if len(l.by) < maxAddresses {
		return
	}
	for key, v := range l.by {
		if v.connections == 0 {
			delete(l.by, key)
			return
		}
	}
}
