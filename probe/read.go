package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// partTime is how long a probe that is done waits for the relay to close its
// side too.
const partTime = 150 * time.Millisecond

// heard is what came within the read stage.
type heard struct {
	events  int // of our subscription
	auth    bool
	foreign bool   // something of another subscription came
	other   bool   // Nostr came that is about no subscription at all
	notice  string // the latest
	spoke   bool   // an AUTH or NOTICE came
	let     bool   // the relay took our authentication
}

// read asks for one note and waits for the first words of Nostr. Where the
// relay answers, what the request wants to know beyond that is asked next.
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

	sub := randomID()
	id := string(sub[:]) // stays on the stack
	var got heard
	var farewell bool // the relay still holds the subscription
	err := a.ask(id)
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
			got.events++
			continue
		case messageNotice:
			got.spoke, got.notice = true, reason
			continue
		case messageAuth:
			got.spoke, got.auth, a.obs.AuthSeen = true, true, true
			a.challenged(msg)
			continue
		case messageForeign:
			got.foreign = true
			continue
		case messageEOSE:
			a.leave(start)
			a.finish(monitor.OutcomeOK, a.stage, monitor.CauseNone, a.to.host+" answered the subscription")
			if a.digs() {
				a.dig(ctx, strings.Clone(id), got.events, monitor.FindingConfirmed)
				return
			}
			farewell = true
		case messageClosed:
			if got.events == 0 && a.mayAuthenticate(reason) {
				if a.authenticated(ctx, reason) {
					got.spoke, got.auth, got.let = true, true, true
					sub = randomID()
					id = string(sub[:])
					err = a.ask(id)
					continue
				}
				a.leave(start)
				break
			}
			a.leave(start)
			a.closed(got, reason)
		case messageNone, messageEcho:
			a.leave(start)
			a.notNostr(got, kind, op, msg)
			return
		default:
			got.other = true
			continue
		}
		a.part(ctx, id, farewell, partTime)
		return
	}
	a.leave(start)
	if a.traced() {
		a.note(a.stage, "no more: %s", err)
	}
	a.ended(ctx, got, err)
	kind := readNetError(err)
	switch {
	case kind == netTimeout && a.obs.NoEOSE && a.digs() && !f.torn:
		a.dig(ctx, strings.Clone(id), got.events, monitor.FindingDisproved)
	case kind == netTimeout || errors.As(err, new(*closeError)):
		a.part(ctx, id, got.events > 0, 0)
	}
}

// randomID is a subscription id that nobody can have heard of.
func randomID() (id [16]byte) {
	var nonce [8]byte
	rand.Read(nonce[:])
	hex.Encode(id[:], nonce[:])
	return id
}

// ask sends the question of the read stage.
func (a *attempt) ask(id string) error {
	return a.send(`["REQ","`, id, `",{"kinds":[1],"limit":1}]`)
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
	if got.events > 0 {
		a.noEOSE()
		return
	}
	what := " closed the subscription"
	if got.let {
		what = " took our authentication and closed the subscription all the same"
	}
	a.finish(monitor.OutcomeRefused, a.stage, closedCause(reason), a.to.host+what+quoted(reason))
}

// notNostr ends the probe after a message that is not Nostr.
func (a *attempt) notNostr(got heard, kind messageKind, op byte, msg []byte) {
	switch {
	case got.events > 0:
		a.noEOSE()
	case got.let:
		a.declined(got)
	case kind == messageEcho:
		a.fail(monitor.CauseNotNostr, "%s sent our own question back: it is an echo, not a relay", a.to.host)
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
	case got.events > 0:
		a.noEOSE()
		return
	case got.let:
		a.declined(got)
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
		switch {
		case a.late():
		case len(a.frames.msg) > 0:
			a.fail(monitor.CauseSilent, "%s began a message and did not finish it within %s", a.to.host, a.waited())
		case got.foreign:
			a.fail(monitor.CauseSilent, "%s answered another subscription than ours, and ours not within %s", a.to.host, a.waited())
		case got.other:
			a.fail(monitor.CauseSilent, "%s said nothing about the subscription for %s, only other things", a.to.host, a.waited())
		default:
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
	case got.let:
		a.finish(monitor.OutcomeRefused, a.stage, monitor.CauseAuthRequired, a.to.host+" took our authentication and did not answer the subscription all the same"+quoted(got.notice))
	case got.auth && cause == monitor.CauseDeclined:
		a.finish(monitor.OutcomeRefused, a.stage, monitor.CauseAuthRequired, a.to.host+" asked for authentication and answered nothing else")
	default:
		a.finish(monitor.OutcomeRefused, a.stage, cause, a.to.host+" answered only with a notice"+quoted(got.notice))
	}
}
