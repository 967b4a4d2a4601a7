package nostr

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrBadMessage: the text is no message of a relay (NIP-01).
var ErrBadMessage = errors.New("bad message")

// Message is what a relay says (NIP-01, NIP-42). The fields that its Type does
// not have are empty.
type Message struct {
	// Type is the first element: EVENT, EOSE, CLOSED, NOTICE, OK, AUTH, or one
	// that we do not know.
	Type string
	// ID is the subscription of EVENT, EOSE and CLOSED, the event of OK.
	ID string
	// Text is the reason of CLOSED and OK, the text of NOTICE, the challenge of
	// AUTH; "" where there is none.
	Text     string
	Accepted bool // of OK
	// Event is the object of EVENT, which nobody has looked into; it shares the
	// memory of what was parsed.
	Event json.RawMessage
}

// ParseMessage reads a message that a relay sent. The error is an ErrBadMessage:
// the text is no JSON array that begins with a string, or an element that its
// type must have is not there or is of another type. Further elements are
// ignored, and so is an optional text that is no string.
func ParseMessage(b []byte) (Message, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return Message{}, fmt.Errorf("%w: no JSON array", ErrBadMessage)
	}
	var m Message
	if !element(parts, 0, &m.Type) {
		return Message{}, fmt.Errorf("%w: it does not begin with its type", ErrBadMessage)
	}
	ok := true
	switch m.Type {
	case "EVENT":
		ok = element(parts, 1, &m.ID) && len(parts) > 2
		if ok {
			m.Event = parts[2]
		}
	case "EOSE":
		ok = element(parts, 1, &m.ID)
	case "CLOSED":
		ok = element(parts, 1, &m.ID)
		element(parts, 2, &m.Text)
	case "NOTICE", "AUTH":
		ok = element(parts, 1, &m.Text)
	case "OK":
		ok = element(parts, 1, &m.ID) && element(parts, 2, &m.Accepted)
		element(parts, 3, &m.Text)
	}
	if !ok {
		return Message{}, fmt.Errorf("%w: %.16q lacks an element", ErrBadMessage, m.Type)
	}
	return m, nil
}

// element reads the ith part, and reports whether it is there and of v's type.
func element(parts []json.RawMessage, i int, v any) bool {
	return i < len(parts) && string(parts[i]) != "null" && json.Unmarshal(parts[i], v) == nil
}
