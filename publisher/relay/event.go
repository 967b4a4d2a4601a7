package relay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

// event is one served event: what filters ask about, and its bytes. It is
// never changed once it is served.
type event struct {
	source  *monitor.SignedEvent
	id      string
	pubkey  string
	d       string
	kind    int
	created int64
	expires int64  // 0 = never
	tags    []tag  // those with one-letter names, sorted, each once; others cannot be asked for
	slot    uint32 // in the tag index
	listed  bool   // part of the list (reports, snapshot), hidden when it is not to be trusted
}

type tag struct {
	name  byte
	value string
}

func newEvent(s *monitor.SignedEvent, listed bool) (*event, error) {
	var full nostr.Event
	if err := full.UnmarshalJSON(s.JSON); err != nil {
		return nil, fmt.Errorf("read event %s of kind %d: %w", s.ID, s.Kind, err)
	}
	e := &event{
		source: s, id: s.ID, pubkey: s.Pubkey, d: s.D, kind: s.Kind,
		created: s.CreatedAt.Unix(), listed: listed,
	}
	if !s.Expires.IsZero() {
		e.expires = s.Expires.Unix()
	}
	n := 0
	for _, t := range full.Tags {
		if len(t) >= 2 && len(t[0]) == 1 {
			n++
		}
	}
	e.tags = make([]tag, 0, n)
	for _, t := range full.Tags {
		if len(t) >= 2 && len(t[0]) == 1 {
			e.tags = append(e.tags, tag{t[0][0], t[1]})
		}
	}
	slices.SortFunc(e.tags, func(a, b tag) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	e.tags = slices.Compact(e.tags)
	return e, nil
}

// expired: at its second an event is expired (reports.md 21).
func (e *event) expired(now int64) bool { return e.expires != 0 && now >= e.expires }

// oldestFirst orders events so that walking back gives the newest first and,
// within one second, the lowest id first (NIP-01).
func oldestFirst(a, b *event) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(b.id, a.id))
}
