package engine

import (
	"slices"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

// A ws relay is watched, but not probed, while the wss relay at the same host and
// path is online and stands for it (relay-url.md, Many URLs, one relay). Which
// ones follows from the verdicts and the URLs alone, so that a restart finds the
// same. The same place means the same authority: both at their default ports, or
// both at the same port, since another port is another service's.

// endTwin follows the twin's URL.
const endTwin = " is online and stands for it"

// overTLS returns the wss URL at the same place as a ws one.
func overTLS(u monitor.RelayURL) (monitor.RelayURL, bool) {
	if u.TLS() {
		return "", false
	}
	return monitor.RelayURL("wss:" + strings.TrimPrefix(string(u), "ws:")), true
}

// withoutSlash returns the URL of which u is the slash twin: the same without the
// slash at the end of a path that is not the root.
func withoutSlash(u monitor.RelayURL) (monitor.RelayURL, bool) {
	if p := u.Path(); len(p) < 2 || !strings.HasSuffix(p, "/") {
		return "", false
	}
	return u[:len(u)-1], true
}

// asked reports whether somebody here asked for the relay by this very URL: it is
// monitored whatever else is.
func (r *relay) asked() bool {
	return r.Source.Configured() || r.Source == monitor.SourceOperator
}

// standIn returns the wss relay that may stand for u now; nil = none.
func (e *Engine) standIn(u monitor.RelayURL) *relay {
	over, ok := overTLS(u)
	if !ok {
		return nil
	}
	t := e.byURL[over]
	if t == nil || t.Verdict.State != monitor.StateOnline {
		return nil
	}
	return t
}

// pair ends the verdicts of the ws relays that a wss one stands for from now on,
// and has those probed again for which none does any longer. It returns the former,
// which the round must not judge. A twin must have been seen up since the start:
// what is online by what was stored alone takes nothing from the list.
func (e *Engine) pair(out *round) map[*relay]bool {
	ended := map[*relay]bool{}
	alone := false
	for _, r := range e.relays {
		if r.URL.TLS() {
			continue
		}
		t := e.standIn(r.URL)
		switch {
		case r.twin != "" && (t == nil || r.asked()):
			r.twin, r.dirty, alone = "", true, true // a fact of the verdicts that are stored
		case r.twin == "" && t != nil && !r.asked() && t.Verdict.LastSuccess.After(e.started):
			out.end(r, r.WatchedRelay, string(t.URL)+endTwin)
			out.twins = append(out.twins, r)
			ended[r] = true
		}
	}
	if alone {
		e.retask()
	}
	return ended
}

// stand keeps that wss relays stand for these. Its caller holds mu, and makes the
// tasks anew.
func (e *Engine) stand(relays []*relay) {
	if len(relays) == 0 {
		return
	}
	for _, r := range relays {
		r.twin, _ = overTLS(r.URL)
		for _, v := range e.vantages {
			v.follow.Remove(r.URL)
		}
	}
	for _, v := range e.vantages {
		v.expedite = slices.DeleteFunc(v.expedite, func(u monitor.RelayURL) bool { r := e.byURL[u]; return r != nil && r.twin != "" })
	}
	e.warmUp.first = slices.DeleteFunc(e.warmUp.first, func(r *relay) bool { return r.twin != "" })
}

// resumeTwin finds at a start that a wss relay stood for r when the last process
// ended, and still does.
func (e *Engine) resumeTwin(r *relay) {
	if t := e.standIn(r.URL); t != nil && !r.asked() && r.Verdict.State == monitor.StateUnknown && r.Verdict.Reason == ended(string(t.URL)+endTwin) {
		r.twin = t.URL
	}
}

// paired reports whether a wss relay stands for r, or does from this round on: it
// is not judged.
func (r *relay) paired(ended map[*relay]bool) bool {
	return r.twin != "" || !r.URL.TLS() && ended[r]
}
