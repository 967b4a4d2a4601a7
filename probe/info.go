package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// maxInfo is the largest NIP-11 document that is read (probe.md).
	maxInfo = 64 << 10
	// maxInfoBytes is what is read for it at most, heads, chunk marks and a
	// redirect included: the rest of maxBytes is for the WebSocket.
	maxInfoBytes = maxInfo + 16<<10
)

// rationed runs get with the bytes that NIP-11 may take.
func (a *attempt) rationed(get func()) {
	rest := max(0, a.budget-maxInfoBytes)
	a.budget -= rest
	get()
	a.budget += rest
}

// infoFirst returns the limit for NIP-11 before the upgrade, 0 = the upgrade
// goes first. It never decides liveness: it gets only so much time as leaves
// the upgrade and the read their own, a second dial included.
func (a *attempt) infoFirst() time.Duration {
	if !a.req.Info || !a.req.LastOutcome.Success() {
		return 0
	}
	t := a.c.cfg.Timeouts
	reserved := a.way.widened(monitor.StageUpgrade, t.Upgrade) + a.way.widened(monitor.StageRead, t.Read)
	most := a.way.widened(monitor.StageInfo, t.Info)
	spare := time.Until(a.overall) - reserved - a.obs.Times[monitor.StageTCP] - a.obs.Times[monitor.StageTLS]
	if spare = min(spare, most); spare < most/4 {
		return 0
	}
	return spare
}

// infoFollows reports whether NIP-11 is still to be asked for.
func (a *attempt) infoFollows() bool { return a.req.Info && a.obs.Info == nil }

// infoOver asks for NIP-11 over the present connection, and reports whether it
// can carry the upgrade too; if not, it is closed.
func (a *attempt) infoOver(ctx context.Context, limit time.Duration) (kept bool) {
	start := a.enterFor(monitor.StageInfo, limit)
	a.rationed(func() { a.obs.Info, kept = a.askInfo(ctx, true) })
	if a.traced() {
		a.traceInfo(a.obs.Info)
	}
	a.obs.Times[monitor.StageInfo] = max(time.Since(start), 1)
	if !kept {
		a.drop()
	}
	a.reused = kept
	return kept
}

// infoApart asks for NIP-11 over a connection of its own. Nothing else of the
// observation changes.
func (a *attempt) infoApart(ctx context.Context) {
	a.drop()
	saved, to := a.obs, a.to
	start := a.enter(monitor.StageInfo, a.c.cfg.Timeouts.Info)
	a.overall = a.limit
	if a.open(ctx) {
		a.stage, a.limit = monitor.StageInfo, a.overall
		a.rationed(func() { saved.Info, _ = a.askInfo(ctx, true) })
	} else {
		saved.Info = &monitor.Info{Problem: a.obs.Cause.String()}
	}
	if a.traced() {
		a.traceInfo(saved.Info)
	}
	a.obs, a.to = saved, to
	a.obs.Times[monitor.StageInfo] = max(time.Since(start), 1)
}

// askInfo sends the request, follows one redirect where it may, and reads the
// document.
func (a *attempt) askInfo(ctx context.Context, follow bool) (info *monitor.Info, kept bool) {
	a.w.limit(ctx, a.limit)
	req := append(a.requestHead(), "\r\nAccept: application/nostr+json\r\n\r\n"...)
	if a.traced() {
		a.traceRequest(req)
	}
	if err := a.w.write(req); err != nil {
		return infoProblem(err), false
	}
	h, err := a.w.readHead()
	if err != nil {
		return infoProblem(err), false
	}
	if h.status == http.StatusSwitchingProtocols {
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}, false
	}
	buf := messages.Get().(*[]byte)
	body, kept, err := a.w.readBody((*buf)[:0], &h, maxInfo)
	if a.traced() {
		if len(body) > 0 {
			a.tell(a.stage, TraceReceived, fmt.Sprintf("body, %d bytes: %s", len(body), visible(body, maxTraced)))
		}
		if err != nil {
			a.note(a.stage, "no whole body: %s", err)
		}
	}
	defer func() {
		if cap(body) <= keepMessage {
			*buf = body[:0]
			messages.Put(buf)
		}
	}()
	switch h.status {
	case http.StatusOK:
		if err != nil {
			return infoProblem(err), false
		}
		return parseInfo(body), kept
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if follow && h.where != "" {
			return a.redirected(ctx, h.where), false
		}
	}
	return &monitor.Info{Problem: infoStatus(&h)}, kept && err == nil
}

// redirected asks for NIP-11 where the relay said that it is. The address is
// judged as the relay's own was, the dial guard included.
func (a *attempt) redirected(ctx context.Context, where string) *monitor.Info {
	scheme := "http://"
	if a.to.secure {
		scheme = "https://"
	}
	base, err := url.Parse(scheme + a.to.header + a.to.path)
	if err != nil {
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}
	}
	target, err := base.Parse(where)
	if err != nil {
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}
	}
	switch target.Scheme {
	case "http":
		target.Scheme = "ws"
	case "https":
		target.Scheme = "wss"
	default:
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}
	}
	u, err := monitor.ParseRelayURL(target.String(), a.c.cfg.AllowNetworks...)
	if err != nil {
		var bad *monitor.URLError
		if errors.As(err, &bad) && (bad.Reason == monitor.ReasonPrivate || bad.Reason == monitor.ReasonReserved) {
			return &monitor.Info{Problem: monitor.CauseBlockedAddress.String()}
		}
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}
	}
	// From one network into another would tell the other one who asks.
	if u.Network() != a.req.Relay.Network() {
		return &monitor.Info{Problem: monitor.CauseHTTPOther.String()}
	}
	saved, to, overall, limit := a.obs, a.to, a.overall, a.limit
	defer func() { a.obs, a.to, a.overall = saved, to, overall }()
	a.drop()
	a.overall = limit
	a.to = endpointOf(u)
	if a.traced() {
		a.note(a.stage, "redirected to %s", u)
	}
	if !a.resolve(ctx) || !a.open(ctx) {
		return &monitor.Info{Problem: a.obs.Cause.String()}
	}
	a.stage, a.limit = monitor.StageInfo, limit
	info, _ := a.askInfo(ctx, false)
	return info
}

// infoStatus is the word for a status that brings no document.
func infoStatus(h *head) string {
	cause := restriction(h)
	switch {
	case cause != monitor.CauseNone:
	case h.status == http.StatusNotFound:
		cause = monitor.CauseHTTP404
	case h.status >= 500 && h.status <= 599:
		cause = monitor.CauseHTTP5xx
	default:
		cause = monitor.CauseHTTPOther
	}
	return cause.String()
}

// infoProblem is the word for an error while reading the document.
func infoProblem(err error) *monitor.Info {
	var cause monitor.Cause
	switch readNetError(err) {
	case netTimeout:
		cause = monitor.CauseTimeout
	case netReset:
		cause = monitor.CauseReset
	case netClosed:
		cause = monitor.CauseClosedEarly
	case netOversized:
		cause = monitor.CauseOversized
	case netUnreachable:
		cause = monitor.CauseUnreachable
	case netLocal:
		cause = monitor.CauseLocalNetwork
	default:
		cause = monitor.CauseHTTPOther
	}
	return &monitor.Info{Problem: cause.String()}
}
