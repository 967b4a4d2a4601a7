package probe

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	// kindAuth is the kind that answers a challenge (NIP-42).
	kindAuth = 22242
	// maxChallenge is the longest challenge that is answered, in bytes.
	maxChallenge = 1 << 10
)

// identifies reports whether the vantage may answer a challenge at all.
func (a *attempt) identifies() bool { return a.c.cfg.Auth && a.c.cfg.Key.Pubkey() != "" }

// challenged keeps what an AUTH asks for, where it may be answered.
func (a *attempt) challenged(msg []byte) {
	if !a.identifies() {
		return
	}
	var parts []json.RawMessage
	var s string
	if json.Unmarshal(msg, &parts) == nil && len(parts) > 1 && json.Unmarshal(parts[1], &s) == nil && s != "" && len(s) <= maxChallenge {
		a.further().challenge = s
	}
}

// mayAuthenticate reports whether a refusal is to be answered by NIP-42, which
// a probe does once.
func (a *attempt) mayAuthenticate(reason string) bool {
	return a.identifies() && closedCause(reason) == monitor.CauseAuthRequired && (a.inquiry == nil || !a.inquiry.tried)
}

// authenticated answers the challenge after the REQ was refused, and reports
// whether the relay took it; if not, it has recorded how the probe ended.
func (a *attempt) authenticated(ctx context.Context, reason string) bool {
	in := a.further()
	in.limit = a.limit
	q, sent := in.authenticate(ctx)
	host := a.to.host
	refused := func(c monitor.Cause, evidence string) bool {
		return a.finish(monitor.OutcomeRefused, a.stage, c, evidence)
	}
	switch {
	case ctx.Err() != nil:
		return a.cancelled()
	case sent && q.kind == messageOK && q.ok:
		// The read's limit goes on.
		a.w.limit(ctx, a.limit)
		return true
	case sent && q.kind == messageOK:
		cause := closedCause(q.reason)
		if cause == monitor.CauseDeclined {
			cause = monitor.CauseAuthRequired
		}
		return refused(cause, host+" refused our authentication"+quoted(q.reason))
	case sent:
		return refused(monitor.CauseAuthRequired, host+" asked for authentication and did not answer ours"+quoted(reason))
	case in.challenge == "":
		return refused(monitor.CauseAuthRequired, host+" asked for authentication, but sent no challenge"+quoted(reason))
	default:
		return refused(monitor.CauseAuthRequired, host+" asked for authentication too late to be answered"+quoted(reason))
	}
}

// authenticate waits for the challenge where none has come yet, answers it and
// waits for the OK, all before the limit. sent = false: there was nothing to
// answer, or no time.
func (in *inquiry) authenticate(ctx context.Context) (q *question, sent bool) {
	a := in.a
	in.tried = true
	if in.challenge == "" && in.over == nil {
		until := time.Now().Add(answerTime)
		if until.After(in.limit) {
			until = in.limit
		}
		a.w.limit(ctx, until)
		if a.traced() {
			a.note(a.stage, "wait for the challenge")
		}
		in.listen(ctx, nil, func() bool { return in.challenge != "" })
	}
	q = &question{}
	if in.challenge == "" {
		return q, false
	}
	body, ok := a.sign(q, &nostr.Event{
		Kind: kindAuth, CreatedAt: nostr.Timestamp(time.Now().Unix()),
		Tags: nostr.Tags{{"relay", string(a.req.Relay)}, {"challenge", in.challenge}},
	})
	if !ok {
		return q, false
	}
	if a.traced() {
		a.note(a.stage, "authenticate as %s", a.c.cfg.Key.Npub())
	}
	return q, in.put(ctx, q, a.c.cfg.Timeouts.Overall, `["AUTH",`, body, `]`)
}

// sign makes ev the vantage's own and the answer to it that of q. It returns
// ev as it is sent.
func (a *attempt) sign(q *question, ev *nostr.Event) (body string, ok bool) {
	if err := a.c.cfg.Key.Sign(ev); err != nil {
		a.c.log.Error("an event of a probe cannot be signed", "relay", string(a.req.Relay), "error", err)
		return "", false
	}
	b, err := ev.MarshalJSON()
	if err != nil {
		a.c.log.Error("an event of a probe cannot be encoded", "relay", string(a.req.Relay), "error", err)
		return "", false
	}
	q.id = ev.ID
	if a.traced() {
		a.further().signed = append(a.further().signed, ev.Sig)
	}
	return string(b), true
}
