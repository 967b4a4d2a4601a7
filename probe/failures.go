package probe

import (
	"net/netip"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// failureAge is how long a TCP failure of an ip:port counts for the other
	// relays on it (probe.md, Stages).
	failureAge = 30 * time.Second
	// maxFailures bounds what is remembered; past it the oldest half goes.
	maxFailures = 8192
)

// failure is a TCP connect that failed.
type failure struct {
	cause monitor.Cause
	at    time.Time
	// relay is the one that measured it. For that one it never counts again:
	// a second look must be a look.
	relay monitor.RelayURL
}

// failures remembers dead ip:ports. The zero value is ready.
type failures struct {
	mu sync.Mutex
	m  map[netip.AddrPort]failure
}

// get returns the failure that counts for the relay at addr now.
func (f *failures) get(addr netip.AddrPort, relay monitor.RelayURL, now time.Time) (failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.m[addr]
	if !ok || e.relay == relay || now.Sub(e.at) >= failureAge {
		return failure{}, false
	}
	return e, true
}

func (f *failures) put(addr netip.AddrPort, e failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = make(map[netip.AddrPort]failure)
	}
	if len(f.m) >= maxFailures {
		for age := failureAge; len(f.m) > maxFailures/2; age /= 2 {
			for k, v := range f.m {
				if e.at.Sub(v.at) >= age {
					delete(f.m, k)
				}
			}
		}
	}
	f.m[addr] = e
}

// forget takes back what is known of addr: it was reached.
func (f *failures) forget(addr netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, addr)
}
