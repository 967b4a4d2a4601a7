package nostr

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

// The wire types, so that a publisher needs no import of go-nostr.
type (
	Event     = gonostr.Event
	Tag       = gonostr.Tag
	Tags      = gonostr.Tags
	Timestamp = gonostr.Timestamp
)

// The kinds that we sign.
const (
	KindProfile      = 0     // NIP-01
	KindRelayList    = 10002 // NIP-65
	KindAnnouncement = 10166 // NIP-66, what a monitor does and how often
	KindRelaySet     = 30002 // NIP-51, our snapshot of the online set
	KindReport       = 30166 // NIP-66, one relay
)

// ErrBadEvent: the event is no JSON, or its id or signature is wrong.
var ErrBadEvent = errors.New("bad event")

// Encode returns ev as it goes on the wire, with the fields that indexes need.
// The event must have been signed.
func Encode(ev *Event) (*monitor.SignedEvent, error) {
	if ev.ID == "" || ev.Sig == "" {
		return nil, fmt.Errorf("encode kind %d: %w: not signed", ev.Kind, ErrBadEvent)
	}
	body, err := ev.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode kind %d: %w", ev.Kind, err)
	}
	return &monitor.SignedEvent{
		ID:        ev.ID,
		Kind:      ev.Kind,
		Pubkey:    ev.PubKey,
		D:         ev.Tags.GetD(),
		CreatedAt: ev.CreatedAt.Time().UTC(),
		Expires:   Expiration(ev),
		JSON:      body,
	}, nil
}

// Decode reads an event object without checking its id or signature; for what
// comes from our own store. The error is an ErrBadEvent.
func Decode(body []byte) (*Event, error) {
	ev := new(Event)
	if err := ev.UnmarshalJSON(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	return ev, nil
}

// Verify checks the event's id and signature; the error is an ErrBadEvent.
func Verify(ev *Event) error {
	if !ev.CheckID() {
		return fmt.Errorf("%w: id %.64s does not match the content", ErrBadEvent, ev.ID)
	}
	ok, err := ev.CheckSignature()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadEvent, err)
	}
	if !ok {
		return fmt.Errorf("%w: signature of %s does not match", ErrBadEvent, ev.ID)
	}
	return nil
}

// Expiration is the time of the event's NIP-40 tag; zero when it has none that
// can be read. At that second the event is expired (reports.md 21).
func Expiration(ev *Event) time.Time {
	for _, t := range ev.Tags {
		if len(t) >= 2 && t[0] == "expiration" {
			if s, err := strconv.ParseInt(t[1], 10, 64); err == nil && s > 0 {
				return time.Unix(s, 0).UTC()
			}
			return time.Time{}
		}
	}
	return time.Time{}
}
