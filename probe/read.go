package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// partTime is how long a probe that is done waits for the relay to close its
// side too.
const partTime = 150 * time.Millisecond

// heard is what came within the read stage.
type heard struct {
	event  bool
	auth   bool
	notice string // the latest
	spoke  bool   // an AUTH or NOTICE came
}

// read asks for one note and waits for the first words of Nostr.
func (a *attempt) read(ctx context.Context) {
	start := a.enter(monitor.StageRead, a.c.cfg.Timeouts.Read)
	a.w.limit(ctx, a.limit)
	f := &a.frames
	f.w, f.pongLen = a.w, -1
	if a.traced() {
		f.trace = a.traceFrame
	}
	defer func() {
		f.done()
		a.drop()
	}()

	var nonce [8]byte
	rand.Read(nonce[:])
	var sub [16]byte
	hex.Encode(sub[:], nonce[:])
	id := string(sub[:])

	var got heard
	var farewell bool // the relay still holds the subscription
	err := a.send(`["REQ","`, id, `",{"kinds":[1],"limit":1}]`)
	for err == nil {
		var op byte
		var msg []byte
		if op, msg, err = f.next(); err != nil {
			break
		}
		kind, reason := messageNone, ""
		if op == opText {
			kind, reason = parseMessage(msg, id)
		}
		if kind >= messageEvent && kind <= messageNotice && a.obs.RTTRead == 0 {
			a.obs.RTTRead = wholeMS(time.Since(start))
		}
		switch kind {
		case messageEvent:
			got.event = true
			continue
		case messageNotice:
			got.spoke, got.notice = true, reason
			continue
		case messageAuth:
			got.spoke, got.auth, a.obs.AuthSeen = true, true, true
			continue
		case messageOther:
			continue
		case messageEOSE:
			a.leave(start)
			a.finish(monitor.OutcomeOK, a.stage, monitor.CauseNone, a.to.host+" answered the subscription")
			farewell = true
		case messageClosed:
			a.leave(start)
			a.closed(got, reason)
		case messageNone:
			a.leave(start)
			a.notNostr(got, op, msg)
			return
		}
		a.part(ctx, id, farewell, partTime)
		return
	}
	a.leave(start)
	if a.traced() {
		a.note(a.stage, "no more: %s", err)
	}
	a.ended(ctx, got, err)
	if readNetError(err) == netTimeout || errors.As(err, new(*closeError)) {
		a.part(ctx, id, got.event, 0)
	}
}

// send writes one text message.
func (a *attempt) send(parts ...string) error {
	var b [128]byte
	msg := b[:0]
	for _, p := range parts {
		msg = append(msg, p...)
	}
	if a.traced() {
		a.traceFrame(TraceSent, opText, bytes.Clone(msg)) // which leaves msg on the stack
	}
	return a.w.write(appendFrame(a.scratch[:0], opText, msg))
}

// part ends the WebSocket in good manners, and waits at most wait for the
// relay to do the same.
func (a *attempt) part(ctx context.Context, id string, closeSubscription bool, wait time.Duration) {
	until := time.Now().Add(max(wait, partTime/3))
	a.w.limit(ctx, until)
	out := a.scratch[:0]
	if closeSubscription {
		var b [32]byte
		msg := append(append(append(b[:0], `["CLOSE","`...), id...), `"]`...)
		out = appendFrame(out, opText, msg)
		if a.traced() {
			a.traceFrame(TraceSent, opText, bytes.Clone(msg))
		}
	}
	out = appendFrame(out, opClose, []byte{1000 >> 8, 1000 & 0xff})
	if a.traced() {
		a.traceFrame(TraceSent, opClose, []byte{1000 >> 8, 1000 & 0xff})
	}
	if a.w.write(out) == nil && wait > 0 {
		a.w.part(ctx, until)
	}
}

// noEOSE ends the probe where an event came, but not their end.
func (a *attempt) noEOSE() {
	a.obs.NoEOSE = true
	a.finish(monitor.OutcomeOK, a.stage, monitor.CauseNone, a.to.host+" sent an event, but never said that there are no more")
}

// closed ends the probe after a CLOSED.
func (a *attempt) closed(got heard, reason string) {
	if got.event {
		a.noEOSE()
		return
	}
	a.finish(monitor.OutcomeRefused, a.stage, closedCause(reason), a.to.host+" closed the subscription"+quoted(reason))
}

// notNostr ends the probe after a message that is not Nostr.
func (a *attempt) notNostr(got heard, op byte, msg []byte) {
	switch {
	case got.event:
		a.noEOSE()
	case op != opText:
		a.fail(monitor.CauseNotNostr, "%s sent a binary message, which is not Nostr", a.to.host)
	default:
		a.fail(monitor.CauseNotNostr, "%s sent text that is not Nostr%s", a.to.host, quoted(string(msg[:min(len(msg), 4*maxText)])))
	}
}

// ended ends the probe when no more can come: at the limit, or because the
// connection is over.
func (a *attempt) ended(ctx context.Context, got heard, err error) {
	var bye *closeError
	kind := readNetError(err)
	switch {
	case ctx.Err() != nil:
		a.cancelled()
		return
	case got.event:
		a.noEOSE()
		return
	case errors.Is(err, errNoFrame):
		a.fail(monitor.CauseNotNostr, "%s sent bytes that are no WebSocket frame", a.to.host)
		return
	case kind == netOversized:
		a.fail(monitor.CauseOversized, "%s sent or announced more than 256 KB before a first event", a.to.host)
		return
	case got.spoke:
		a.declined(got)
		return
	case errors.As(err, &bye):
		code := ""
		if bye.code != 0 {
			code = " with code " + strconv.Itoa(bye.code)
		}
		a.fail(monitor.CauseClosedEarly, "%s closed the connection%s before it answered%s", a.to.host, code, quoted(bye.reason))
		return
	case kind == netClosed:
		a.fail(monitor.CauseClosedEarly, "%s closed the connection before it answered", a.to.host)
		return
	case kind == netUnknown && a.secured():
		a.fail(monitor.CauseClosedEarly, "%s broke TLS off before it answered: %s", a.to.host, clean(err.Error()))
		return
	case kind == netReset:
		a.fail(monitor.CauseClosedEarly, "%s reset the connection before it answered", a.to.host)
		return
	case kind == netTimeout:
		if !a.late() {
			a.fail(monitor.CauseSilent, "%s opened the WebSocket and then said nothing for %s", a.to.host, a.waited())
		}
		return
	}
	a.broken(ctx, err, "the wait for its answer")
}

// declined ends the probe where AUTH or NOTICE was all that came.
func (a *attempt) declined(got heard) {
	cause := noticeCause(got.notice)
	switch {
	case got.auth && cause == monitor.CauseDeclined:
		a.finish(monitor.OutcomeRefused, a.stage, monitor.CauseAuthRequired, a.to.host+" asked for authentication and answered nothing else")
	default:
		a.finish(monitor.OutcomeRefused, a.stage, cause, a.to.host+" answered only with a notice"+quoted(got.notice))
	}
}
