package probe

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

// messageKind is what a relay's message is to a probe.
type messageKind uint8

const (
	messageNone    messageKind = iota // not Nostr
	messageOther                      // Nostr, but no answer to a subscription
	messageForeign                    // EVENT, EOSE or CLOSED of another subscription
	messageEcho                       // our own REQ
	messageEvent                      // EVENT of our subscription
	messageEOSE                       // EOSE of our subscription
	messageClosed                     // CLOSED of our subscription
	messageNotice
	messageAuth
	// Answers to what only an inquiry asks.
	messageOK
	messageCount
	messageNegMsg
	messageNegErr
)

// parseMessage tells what a text message is, and the reason that a CLOSED or
// NOTICE gives. EVENTs are not verified: that would be a quarter of a probe's
// cost, and proves nothing more about the relay.
func parseMessage(msg []byte, subscription string) (kind messageKind, reason string) {
	msg = bytes.TrimSpace(msg)
	label, rest, ok := cutString(msg, '[')
	if !ok || !json.Valid(msg) {
		return messageNone, ""
	}
	if string(label) == "EVENT" { // not taken apart: it may be large
		if id, _, ok := cutString(rest, ','); ok && string(id) == subscription {
			return messageEvent, ""
		}
		return messageForeign, ""
	}
	var parts []json.RawMessage
	if json.Unmarshal(msg, &parts) != nil {
		return messageNone, ""
	}
	text := func(i int) string {
		var s string
		if i < len(parts) {
			_ = json.Unmarshal(parts[i], &s)
		}
		return s
	}
	switch string(label) {
	case "EOSE":
		if text(1) == subscription {
			return messageEOSE, ""
		}
		if text(1) != "" {
			return messageForeign, ""
		}
	case "CLOSED":
		if text(1) == subscription {
			return messageClosed, text(2)
		}
		return messageForeign, ""
	case "REQ":
		if text(1) == subscription {
			return messageEcho, ""
		}
	case "NOTICE":
		return messageNotice, text(1)
	case "AUTH":
		return messageAuth, ""
	}
	return messageOther, ""
}

// cutString takes the mark and the JSON string that follows it from the front
// of b. A string with an escape is none that a probe looks for.
func cutString(b []byte, mark byte) (text, rest []byte, ok bool) {
	b = bytes.TrimLeft(b, jsonSpace)
	if len(b) == 0 || b[0] != mark {
		return nil, nil, false
	}
	b = bytes.TrimLeft(b[1:], jsonSpace)
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	i := bytes.IndexByte(b[1:], '"')
	if i < 0 {
		return nil, nil, false
	}
	return b[1 : i+1], b[i+2:], true
}

const jsonSpace = " \t\r\n"

// refusals maps the machine-readable prefixes of CLOSED (NIP-01, NIP-42) to
// causes.
var refusals = map[string]monitor.Cause{
	"auth-required":    monitor.CauseAuthRequired,
	"restricted":       monitor.CauseRestricted,
	"blocked":          monitor.CauseBlocked,
	"rate-limited":     monitor.CauseRateLimited,
	"payment-required": monitor.CausePayment,
	"payment":          monitor.CausePayment,
	"pow":              monitor.CausePow,
	"invalid":          monitor.CauseInvalid,
	"unsupported":      monitor.CauseUnsupported,
	"error":            monitor.CauseError,
}

// closedCause is the cause that the reason of a CLOSED stands for.
func closedCause(reason string) monitor.Cause {
	prefix, _, ok := strings.Cut(reason, ":")
	if ok {
		if c, ok := refusals[strings.ToLower(strings.TrimSpace(prefix))]; ok {
			return c
		}
	}
	return monitor.CauseDeclined
}

// noticeCause is the cause that a NOTICE followed by silence stands for.
// NOTICEs are prose; only the wish for fewer requests is told apart.
func noticeCause(text string) monitor.Cause {
	text = strings.ToLower(text)
	for _, s := range []string{"rate-limit", "rate limit", "ratelimit", "too many", "slow down"} {
		if strings.Contains(text, s) {
			return monitor.CauseRateLimited
		}
	}
	return monitor.CauseDeclined
}
