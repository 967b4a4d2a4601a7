package probe

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// maxRetryAfter is the longest wish of a 429 that is obeyed (probe.md).
const maxRetryAfter = time.Hour

// upgrade asks for a WebSocket. Where that fails over a connection which has
// already carried NIP-11, a fresh one has the last word: that is what other
// clients open.
func (a *attempt) upgrade(ctx context.Context) bool {
	h, accept, err := a.askUpgrade(ctx)
	if a.reused && ctx.Err() == nil && readNetError(err) != netTimeout && !switched(&h, accept) && restriction(&h) == monitor.CauseNone {
		if a.traced() {
			a.note(a.stage, "refused over the connection that carried NIP-11: once more over a fresh one")
		}
		a.drop()
		if !a.open(ctx) {
			return false
		}
		h, accept, err = a.askUpgrade(ctx)
	}
	switch {
	case errors.Is(err, errNotHTTP):
		return a.fail(monitor.CauseUpgradeInvalid, "%s answered the upgrade with something that is not HTTP", a.to.host)
	case err != nil:
		return a.broken(ctx, err, "the upgrade to WebSocket")
	}
	a.obs.HTTPStatus = h.status
	if t, err := http.ParseTime(h.date); err == nil {
		a.obs.ServerDate = t.UTC()
		if a.traced() {
			a.traceDate(time.Now())
		}
	}
	if switched(&h, accept) {
		t := &a.obs.Times
		a.obs.RTTOpen = wholeMS(t[monitor.StageTCP] + t[monitor.StageTLS] + t[monitor.StageUpgrade])
		return true
	}
	status := statusText(h.status)
	if cause := restriction(&h); cause != monitor.CauseNone {
		evidence := a.to.host + " answered the upgrade with " + status
		switch cause {
		case monitor.CauseChallenge:
			evidence = a.to.host + " showed a challenge page for browsers (" + status + ")"
		case monitor.CauseHTTP429:
			a.obs.RetryAfter = retryAfter(h.retry, time.Now())
			if a.obs.RetryAfter > 0 {
				evidence += ", to be asked again after " + limitText(a.obs.RetryAfter)
			}
		default:
		}
		return a.finish(monitor.OutcomeRestricted, a.stage, cause, evidence)
	}
	switch {
	case h.status == http.StatusSwitchingProtocols:
		why := "a wrong Sec-WebSocket-Accept"
		switch {
		case !h.socket || !h.upgrade:
			why = "no Upgrade: websocket"
		case h.extras && h.accept == accept:
			why = "an extension or a subprotocol that nobody offered"
		}
		return a.fail(monitor.CauseUpgradeInvalid, "%s answered the upgrade with HTTP 101 and %s", a.to.host, why)
	case h.status == http.StatusNotFound:
		return a.fail(monitor.CauseHTTP404, "%s answered the upgrade with %s", a.to.host, status)
	case h.status >= 500 && h.status <= 599:
		return a.fail(monitor.CauseHTTP5xx, "%s answered the upgrade with %s", a.to.host, status)
	}
	return a.fail(monitor.CauseHTTPOther, "%s answered the upgrade with %s", a.to.host, status)
}

// askUpgrade sends the request and reads the response's head. accept is the
// answer that the key demands.
func (a *attempt) askUpgrade(ctx context.Context) (h head, accept string, err error) {
	start := a.enter(monitor.StageUpgrade, a.c.cfg.Timeouts.Upgrade)
	defer a.leave(start)
	a.w.limit(ctx, a.limit)
	var nonce [16]byte
	rand.Read(nonce[:])
	var key [24]byte
	base64.StdEncoding.Encode(key[:], nonce[:])
	req := a.requestHead()
	req = append(req, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "...)
	req = append(req, key[:]...)
	if a.c.cfg.Origin != "" {
		req = append(req, "\r\nOrigin: "...)
		req = append(req, a.c.cfg.Origin...)
	}
	req = append(req, "\r\n\r\n"...)
	if a.traced() {
		a.traceRequest(req)
	}
	if err = a.w.write(req); err == nil {
		h, err = a.w.readHead()
	}
	if err != nil && a.traced() {
		a.note(a.stage, "no response: %s", err)
	}
	return h, acceptKey(key[:]), err
}

// requestHead begins a request with what all of them have.
func (a *attempt) requestHead() []byte {
	b := append(a.scratch[:0], "GET "...)
	b = append(b, a.to.path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, a.to.header...)
	b = append(b, "\r\nUser-Agent: "...)
	return append(b, a.c.cfg.UserAgent...)
}

// acceptKey is the Sec-WebSocket-Accept of a key (RFC 6455, 4.2.2).
func acceptKey(key []byte) string {
	var b [60]byte
	sum := sha1.Sum(append(append(b[:0], key...), "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"...))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// switched reports whether the head opens a WebSocket as RFC 6455, 4.1 demands
// it; a browser would accept no other.
func switched(h *head, accept string) bool {
	return h.status == http.StatusSwitchingProtocols && h.socket && h.upgrade && !h.extras && h.accept == accept
}

// restriction is the cause where something answers, but not for us.
func restriction(h *head) monitor.Cause {
	if h.challenge && h.status != http.StatusSwitchingProtocols {
		return monitor.CauseChallenge
	}
	switch h.status {
	case http.StatusUnauthorized:
		return monitor.CauseHTTP401
	case http.StatusPaymentRequired:
		return monitor.CausePayment
	case http.StatusForbidden:
		return monitor.CauseHTTP403
	case http.StatusProxyAuthRequired:
		return monitor.CauseHTTP407
	case http.StatusTooManyRequests:
		return monitor.CauseHTTP429
	case http.StatusUnavailableForLegalReasons:
		return monitor.CauseHTTP451
	}
	return monitor.CauseNone
}

// retryAfter reads a Retry-After header: seconds or a date, 0 = none, at most
// maxRetryAfter.
func retryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseUint(s, 10, 63); err == nil {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second
	} else if errors.Is(err, strconv.ErrRange) {
		return maxRetryAfter
	}
	if t, err := http.ParseTime(s); err == nil {
		return min(max(0, t.Sub(now)), maxRetryAfter).Round(time.Second)
	}
	return 0
}

// wholeMS is d in whole milliseconds, at least one (probe.md).
func wholeMS(d time.Duration) time.Duration { return max(d.Round(time.Millisecond), time.Millisecond) }
