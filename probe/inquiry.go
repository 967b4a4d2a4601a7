package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// answerTime is how long a relay has for each question after the read.
const answerTime = 2 * time.Second

// inquiry is what a probe asks beyond the read, over the same connection: one
// question at a time, each with its own limit, all within the overall one.
type inquiry struct {
	a     *attempt
	limit time.Time // of the questions
	asked []*question
	held  string // the subscription that the relay still holds, "" = none
	neg   bool   // held is a negentropy session
	over  error  // why the connection carries no more questions
	// stop: the relay wants authentication or fewer requests, so that it is
	// asked nothing more (probe.md, read).
	stop bool

	challenge string // the newest one, "" = none
	tried     bool   // it was answered, or could not be
	// signed are the signatures that a trace must not tell.
	signed []string
}

// question is one thing that was asked, and how the relay took it.
type question struct {
	id     string      // of the subscription or event
	max    int         // EVENTs that may come before the end
	kind   messageKind // what settled it; messageNone = silence so far
	ok     bool        // of an OK
	reason string      // of an OK, CLOSED, NEG-ERR or NOTICE
	events int
	// each, when not nil, is told every EVENT.
	each func(event json.RawMessage)
}

// newQuestion is one about a subscription that at most limit EVENTs may answer.
func newQuestion(limit int) *question {
	id := randomID()
	return &question{id: string(id[:]), max: limit}
}

// further returns the inquiry, which begins when first something is kept for it.
func (a *attempt) further() *inquiry {
	if a.inquiry == nil {
		a.inquiry = &inquiry{a: a}
	}
	return a.inquiry
}

// digs reports whether anything is asked after an ok read.
func (a *attempt) digs() bool {
	return a.req.Capabilities || a.req.Write && a.c.cfg.Key.Pubkey() != ""
}

// dig asks what the request wants to know after an ok read, and parts. id is
// the subscription of the read, which brought events and, by eose, their end.
func (a *attempt) dig(ctx context.Context, id string, events int, eose monitor.Finding) {
	in := a.further()
	in.held, in.limit = id, a.overall
	stored := 0
	if a.infoFollows() { // it keeps its time and its bytes
		in.limit = in.limit.Add(-a.c.cfg.Timeouts.Info)
		stored = min(a.budget, maxInfoBytes)
		a.budget -= stored
	}
	writes := a.mayWrite()
	end := in.limit
	if writes {
		in.limit = in.limit.Add(-min(answerTime, a.c.cfg.Timeouts.Write))
	}
	if a.req.Capabilities {
		in.capabilities(ctx, events, eose)
	}
	if in.limit = end; writes {
		in.write(ctx)
	}
	a.stage = monitor.StageRead
	var bye *closeError
	switch {
	case in.over == nil && !in.neg:
		a.part(ctx, in.held, in.held != "", partTime)
	case in.over == nil:
		a.part(ctx, "", false, partTime)
	case errors.As(in.over, &bye):
		a.part(ctx, "", false, 0)
	}
	a.budget += stored
}

// put sends a question, after the end of the subscription that the relay still
// holds, and waits for what settles it, at most for wait. It reports false when
// the question was not asked, because there is no more time or no leave.
func (in *inquiry) put(ctx context.Context, q *question, wait time.Duration, parts ...string) bool {
	now := time.Now()
	if in.over != nil || in.stop || !now.Before(in.limit) {
		return false
	}
	until := now.Add(wait)
	if until.After(in.limit) {
		until = in.limit
	}
	in.a.w.limit(ctx, until)
	in.asked = append(in.asked, q)
	if err := in.letGo(); err != nil {
		in.over = err
		return true
	}
	if err := in.a.send(parts...); err != nil {
		in.over = err
		return true
	}
	in.listen(ctx, q, func() bool { return q.kind != messageNone })
	if q.kind == messageClosed || q.kind == messageNotice {
		switch q.cause() {
		case monitor.CauseAuthRequired, monitor.CauseRateLimited:
			in.stop = true
		default:
		}
	}
	return true
}

// subscribe puts a REQ.
func (in *inquiry) subscribe(ctx context.Context, q *question, filter string) bool {
	if !in.put(ctx, q, answerTime, `["REQ","`, q.id, `",`, filter, `]`) {
		return false
	}
	if q.kind != messageClosed {
		in.held, in.neg = q.id, false
	}
	return true
}

// letGo ends the subscription that the relay still holds.
func (in *inquiry) letGo() error {
	if in.held == "" {
		return nil
	}
	label := `["CLOSE","`
	if in.neg {
		label = `["NEG-CLOSE","`
	}
	id := in.held
	in.held, in.neg = "", false
	return in.a.send(label, id, `"]`)
}

// listen takes messages until done, or until the deadline that was set: then
// the connection stands still, unless a message was torn by it.
func (in *inquiry) listen(ctx context.Context, now *question, done func() bool) {
	f := &in.a.frames
	for !done() {
		op, msg, err := f.next()
		if err != nil {
			if in.a.traced() {
				in.a.note(in.a.stage, "no answer: %s", err)
			}
			if readNetError(err) != netTimeout || f.torn || ctx.Err() != nil {
				in.over = err
			}
			return
		}
		r := readMessage(msg)
		switch {
		case op != opText || r.kind == messageNone:
			in.over = errNotNostr
			return
		case r.kind == messageAuth:
			in.a.obs.AuthSeen = true
			in.a.challenged(msg)
		case r.kind == messageNotice:
			now.noticed(r.text)
		default:
			// A late answer is one all the same: it may be that of an earlier
			// question.
			for _, q := range in.asked {
				if q.id == r.id {
					q.take(&r)
					break
				}
			}
		}
	}
}

var errNotNostr = errors.New("what the relay sent is not Nostr")

// take judges a message that names the question. What came first counts, but
// for a NOTICE, which may have been about something else.
func (q *question) take(r *message) {
	if q.kind != messageNone && q.kind != messageNotice {
		return
	}
	if r.kind == messageEvent {
		q.events++
		if q.each != nil {
			q.each(r.event)
		}
		if q.events <= q.max {
			return
		}
	}
	q.kind, q.ok, q.reason = r.kind, r.ok, r.text
}

// noticed judges a NOTICE, which names no question: one that speaks of an
// unknown request, or wants fewer of them, is meant for the present one.
func (q *question) noticed(text string) {
	if q == nil || q.kind != messageNone {
		return
	}
	n := question{kind: messageNotice, reason: text}
	switch n.cause() {
	case monitor.CauseAuthRequired, monitor.CauseRateLimited:
	default:
		if !unknownRequest(text) {
			return
		}
	}
	q.kind, q.reason = n.kind, n.reason
}

// cause is that of a refusal.
func (q *question) cause() monitor.Cause {
	c := closedCause(q.reason)
	if c == monitor.CauseDeclined && q.kind == messageNotice {
		c = noticeCause(q.reason)
	}
	return c
}

// refused reports whether the relay turned the question down because it does
// not know the like, rather than for who asks or how often.
func (q *question) refused() bool {
	if q.kind != messageClosed && q.kind != messageNotice {
		return false
	}
	switch q.cause() {
	case monitor.CauseUnsupported, monitor.CauseInvalid:
		return true
	case monitor.CauseError, monitor.CauseDeclined:
		return unknownRequest(q.reason)
	default:
		return false
	}
}

// passedOver reports whether the relay said nothing to q, but answered what was
// asked after it: it is not merely slow.
func (in *inquiry) passedOver(q *question) bool {
	after := false
	for _, other := range in.asked {
		switch {
		case other == q:
			after = q.kind == messageNone
		case after && other.kind > messageAuth, after && other.events > 0,
			after && (other.kind == messageEOSE || other.kind == messageClosed):
			return true
		}
	}
	return false
}

// unknownRequests are parts of what relays say to a request that they do not
// know, in lower case.
var unknownRequests = []string{
	"unknown", "unsupported", "not support", "unrecogni", "not implemented", "unimplemented", "not recogni",
	"bad msg", "bad message", "bad req", "invalid", "malformed", "parse", "disabled", "not enabled",
}

// unknownRequest reports whether a relay's prose says that it does not know
// what it was asked.
func unknownRequest(text string) bool { return containsAny(text, unknownRequests) }

func containsAny(text string, parts []string) bool {
	text = strings.ToLower(text)
	for _, s := range parts {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// message is what a relay says to any question.
type message struct {
	kind  messageKind
	id    string // of the subscription or event that it names
	ok    bool   // of an OK
	text  string // the reason, or the text of a NOTICE
	event json.RawMessage
}

// readMessage reads a message for the questions of an inquiry. One of the wrong
// shape is messageOther, as one that nobody asked for is.
func readMessage(msg []byte) (r message) {
	label, _, ok := cutString(msg, '[')
	if !ok || !json.Valid(msg) {
		return message{}
	}
	r.kind = messageOther
	var kind messageKind
	switch string(label) {
	case "EVENT":
		kind = messageEvent
	case "EOSE":
		kind = messageEOSE
	case "CLOSED":
		kind = messageClosed
	case "NOTICE":
		kind = messageNotice
	case "AUTH":
		kind = messageAuth
	case "OK":
		kind = messageOK
	case "COUNT":
		kind = messageCount
	case "NEG-MSG":
		kind = messageNegMsg
	case "NEG-ERR":
		kind = messageNegErr
	default:
		return r
	}
	var parts []json.RawMessage
	if json.Unmarshal(msg, &parts) != nil {
		return r
	}
	// text reads a string; the message is none of ours when it must have one
	// and does not.
	text := func(i int, must bool) string {
		var s string
		if (i >= len(parts) || json.Unmarshal(parts[i], &s) != nil) && must {
			kind = messageOther
		}
		return s
	}
	switch kind {
	case messageAuth:
	case messageNotice:
		r.text = text(1, false)
	case messageEvent:
		if r.id = text(1, true); len(parts) > 2 {
			r.event = parts[2]
		}
	case messageEOSE:
		r.id = text(1, true)
	case messageClosed, messageNegErr:
		r.id, r.text = text(1, true), text(2, false)
	case messageOK:
		r.id, r.text = text(1, true), text(3, false)
		if len(parts) < 3 || json.Unmarshal(parts[2], &r.ok) != nil || parts[2][0] == 'n' {
			kind = messageOther
		}
	case messageCount:
		r.id = text(1, true)
		var result struct {
			Count *uint64 `json:"count"`
		}
		if len(parts) < 3 || json.Unmarshal(parts[2], &result) != nil || result.Count == nil {
			kind = messageOther
		}
	case messageNegMsg:
		r.id = text(1, true)
		if b, err := hex.DecodeString(text(2, true)); err != nil || len(b) == 0 {
			kind = messageOther
		}
	default:
	}
	if kind == messageOther {
		return message{kind: messageOther}
	}
	r.kind = kind
	return r
}

// filters asks for an event that does not exist, and where one comes all the
// same, for another such: what answers both has no idea of what it is asked. That
// nothing came says something where the relay is known to have events.
func (in *inquiry) filters(ctx context.Context, events int) monitor.Finding {
	for range 2 {
		var nonce [32]byte
		rand.Read(nonce[:])
		q := newQuestion(0)
		if in.a.traced() {
			in.a.note(in.a.stage, "ask for an event that does not exist")
		}
		asked := in.subscribe(ctx, q, `{"ids":["`+hex.EncodeToString(nonce[:])+`"],"kinds":[1],"limit":1}`)
		switch {
		case asked && q.events > 0:
		case asked && q.kind == messageEOSE && events > 0:
			return monitor.FindingConfirmed
		default:
			return monitor.FindingUnknown
		}
	}
	return monitor.FindingDisproved
}
