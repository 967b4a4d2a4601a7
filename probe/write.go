package probe

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	// kindWrite is that of the write test (probe.md, write). It is ephemeral:
	// relays hand such events on and keep none (NIP-01).
	kindWrite = 20166
	// writeExpires is after how long the event is expired for those that keep
	// it all the same (NIP-40).
	writeExpires = 5 * time.Minute
	// writeContent is what whoever sees the event reads.
	writeContent = "A write test by a monitor of Nostr relays. There is nothing to keep."
)

// mayWrite reports whether the write test is wanted, and whether the relay's
// NIP-11 lets it be: never where it demands payment or restricts writes, nor
// where nobody knows.
func (a *attempt) mayWrite() bool {
	if !a.req.Write || a.c.cfg.Key.Pubkey() == "" {
		return false
	}
	why := ""
	switch may, known := writable(a.obs.Info); {
	case known && !may:
		why = "by its NIP-11 it takes payment or restricts writes"
	case known:
	default:
		switch may, known := writable(a.req.Document); {
		case known && !may:
			why = "by the NIP-11 known of it, it takes payment or restricts writes"
		case !known:
			why = "its NIP-11 is not known"
		}
	}
	if why != "" && a.traced() {
		a.note(monitor.StageWrite, "no write test: %s", why)
	}
	return why == ""
}

// writable reports whether a relay's NIP-11 lets anybody write, where it tells:
// a relay that has none clearly makes no demands.
func writable(info *monitor.Info) (may, known bool) {
	if info == nil {
		return false, false
	}
	switch info.Problem {
	case "":
		yes := func(b *bool) bool { return b != nil && *b }
		return !yes(info.PaymentRequired) && !yes(info.RestrictedWrites), true
	case monitor.CauseHTTP404.String(), monitor.CauseHTTPOther.String(), notJSON:
		return true, true
	}
	return false, false // a timeout, a refusal: there may be one
}

// write sends one event, and waits for the OK. It changes nothing of the
// outcome.
func (in *inquiry) write(ctx context.Context) {
	a := in.a
	if in.over != nil || in.stop || !time.Now().Before(in.limit) {
		return
	}
	start := a.enter(monitor.StageWrite, a.c.cfg.Timeouts.Write)
	if a.limit.Before(in.limit) {
		in.limit = a.limit
	}
	q, ok := in.event(ctx)
	if !ok {
		return
	}
	if q.kind == messageOK && !q.ok && a.mayAuthenticate(q.reason) {
		// The same event is never sent twice: a new one is signed.
		if auth, sent := in.authenticate(ctx); sent && auth.ok {
			if again, ok := in.event(ctx); ok {
				q = again
			}
		}
	}
	a.leave(start)
	f := &monitor.WriteFacts{Result: monitor.WriteUnknown}
	switch {
	case q.kind != messageOK:
		a.obs.RTTWrite = 0 // of the event before it, if any
	case q.ok || muted(q.reason):
		f.Result, f.Reason = monitor.WriteAccepted, reasonText(q.reason)
	default:
		f.Result, f.Reason = monitor.WriteRefused, reasonText(q.reason)
	}
	a.obs.Write = f
	if a.traced() {
		a.note(a.stage, "the event was %s%s", map[monitor.WriteResult]string{
			monitor.WriteUnknown: "not answered", monitor.WriteRefused: "refused", monitor.WriteAccepted: "accepted",
		}[f.Result], quoted(f.Reason))
	}
}

// muted reports whether an OK false only says that nobody was listening, as some
// relays do of an ephemeral event that they would have passed on.
func muted(reason string) bool {
	prefix, _, ok := strings.Cut(reason, ":")
	return ok && strings.EqualFold(strings.TrimSpace(prefix), "mute")
}

// event sends a fresh event of the write test, and reports whether it did.
func (in *inquiry) event(ctx context.Context) (*question, bool) {
	a := in.a
	var nonce [8]byte
	rand.Read(nonce[:])
	now := time.Now()
	q := &question{}
	body, ok := a.sign(q, &nostr.Event{
		Kind: kindWrite, CreatedAt: nostr.Timestamp(now.Unix()), Content: writeContent,
		Tags: nostr.Tags{
			{"expiration", strconv.FormatInt(now.Add(writeExpires).Unix(), 10)},
			{"probe", hex.EncodeToString(nonce[:])}, // no two events are the same
		},
	})
	if !ok {
		return q, false
	}
	start := time.Now()
	if !in.put(ctx, q, a.c.cfg.Timeouts.Write, `["EVENT",`, body, `]`) {
		return q, false
	}
	if q.kind == messageOK {
		a.obs.RTTWrite = wholeMS(time.Since(start))
	}
	return q, true
}

// reasonText is a relay's reason as facts have it: one line of at most 200
// bytes.
func reasonText(s string) string {
	s = clean(s)
	if len(s) <= maxText {
		return s
	}
	end := maxText - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
