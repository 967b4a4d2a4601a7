package discovery

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	// maxRelays of one list are believed; who names more names all that there are.
	maxRelays = 100
	// maxEvent is the largest event that is read, bytes.
	maxEvent = 64 << 10
	// future is how far ahead an author's clock may be.
	future = 15 * time.Minute
)

// Why an event is not believed, in the words of monitor.Sweep.
const (
	ignoredSignature = "signature" // wrong, or the id is
	ignoredTooLong   = "too_long"  // names over maxRelays relays
	ignoredTooLarge  = "too_large" // over maxEvent bytes
	ignoredNotAsked  = "not_asked" // another kind, time or subscription
	ignoredOlder     = "older"
	ignoredMalformed = "malformed"
	ignoredFuture    = "future"
	ignoredExpired   = "expired" // NIP-40
	ignoredOwn       = "own"
	ignoredAuthors   = "authors" // there is no room for another one
	ignoredRoom      = "room"    // there is none for another list or relay
)

// candidate is an event that may be believed when its signature is right.
type candidate struct {
	event *nostr.Event
	head  head
}

// reader says which events may be believed.
type reader struct {
	kinds []int
	self  string
	now   time.Time
	lists *lists
}

// read takes an event apart, all but its signature; ignored is why it is not
// believed, "" = it may be. The candidate's event and its created are there
// wherever the JSON could be read.
func (r *reader) read(body []byte) (c candidate, ignored string) {
	if len(body) > maxEvent {
		return c, ignoredTooLarge
	}
	ev, err := nostr.Decode(body)
	if err != nil {
		return c, ignoredMalformed
	}
	pubkey, okay := hex32(ev.PubKey)
	id, ok := hex32(ev.ID)
	if !okay || !ok || len(ev.Sig) != 128 || ev.CreatedAt < 0 {
		return c, ignoredMalformed
	}
	c.event = ev
	c.head = head{pubkey: pubkey, created: int64(ev.CreatedAt), id: prefix8(id)}
	kind := slices.Index(allKinds[:], ev.Kind)
	if kind < 0 || !slices.Contains(r.kinds, ev.Kind) {
		return c, ignoredNotAsked
	}
	c.head.kind = uint8(kind)
	if ev.Kind >= 30000 {
		d := ""
		for _, t := range ev.Tags {
			if len(t) >= 2 && t[0] == "d" {
				d = t[1]
				break
			}
		}
		if d == "" && ev.Kind == KindRelayMonitor {
			return c, ignoredMalformed
		}
		c.head.d = r.lists.hash(d)
	}
	if expires := nostr.Expiration(ev); !expires.IsZero() {
		if !expires.After(r.now) {
			return c, ignoredExpired
		}
		c.head.expires = expires.Unix()
	}
	switch {
	case ev.PubKey == r.self:
		return c, ignoredOwn
	case ev.CreatedAt.Time().After(r.now.Add(future)):
		return c, ignoredFuture
	}
	return c, ""
}

// relaysOf lists what an event names, as it is written there; of more than
// maxRelays it returns some more than that.
func relaysOf(ev *nostr.Event) []string {
	var texts []string
	tag := "relay"
	switch ev.Kind {
	case KindContacts:
		var relays map[string]json.RawMessage
		if len(ev.Content) == 0 || json.Unmarshal([]byte(ev.Content), &relays) != nil {
			return nil // any text may be there
		}
		for text := range relays {
			texts = append(texts, text)
		}
		return texts
	case KindRelayList:
		tag = "r"
	case KindRelayMonitor:
		tag = "d"
	}
	for _, t := range ev.Tags {
		if len(t) >= 2 && t[0] == tag {
			texts = append(texts, t[1])
			if ev.Kind == KindRelayMonitor || len(texts) > maxRelays {
				break
			}
		}
	}
	return texts
}
