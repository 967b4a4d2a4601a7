package api

import (
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// maxReplays bounds how many events are remembered: over fifty a second for as
// long as one can be used. Only operators' get in.
const maxReplays = 10_000

// replays remembers the signed requests that were carried out, so that each is
// once. The zero value is ready; it is safe for concurrent use.
type replays struct {
	mu   sync.Mutex
	ends map[string]time.Time // by event id: when created_at is too old, and more
	next time.Time            // when to look for what may be forgotten
}

// used reports whether an event's id was taken.
func (r *replays) used(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, used := r.ends[id]
	return used
}

// claim takes an event's id. fresh is false when it was taken before; room is
// false when so many are remembered that it cannot be told, and nothing is
// forgotten to make room.
func (r *replays) claim(id string, created, now time.Time) (fresh, room bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, used := r.ends[id]; used {
		return false, true
	}
	if len(r.ends) >= maxReplays || now.After(r.next) {
		for id, end := range r.ends {
			if now.After(end) {
				delete(r.ends, id)
			}
		}
		r.next = now.Add(nostr.HTTPAuthWindow)
	}
	if len(r.ends) >= maxReplays {
		return true, false
	}
	if r.ends == nil {
		r.ends = make(map[string]time.Time)
	}
	// Twice the window, should our clock be set back a little meanwhile.
	r.ends[id] = created.Add(2 * nostr.HTTPAuthWindow)
	return true, true
}
