package vantage

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// againAfter is how long a question waits that a probe had room for and brought
// no answer to: the interval alone would ask a relay that does not know it three
// hundred times a day.
const againAfter = time.Hour

// extra is something that is asked now and then beside what every probe asks.
type extra struct {
	last time.Time // when it was last answered, zero = never
	from time.Time // it is not asked before
}

// extras says what the probe of w that starts now asks beside the usual. Nothing
// is asked of which the answer would probably be dropped before the core had it,
// nor while this vantage's network is away.
func (l *loop) extras(req *probe.Request, w *watched, now time.Time) {
	if l.self.canary.down || l.v.outbox.crowded() {
		return
	}
	c, name := &l.set.cfg.Cadence, l.v.name
	req.Info = c.InfoDue(w.relay, name, w.infoRead, now)
	// A network with names of its own has no address families.
	req.Facts = w.lane.network == monitor.Clearnet && !now.Before(w.facts.from) && c.FactsDue(w.relay, name, w.facts.last, now)
	if !l.depthDue(w, now) || !l.pace.deep.ready(now) {
		return
	}
	l.pace.deep.take()
	l.deep++
	req.Capabilities, req.Write, req.Document = true, l.set.cfg.Write, w.document.info()
}

// depthDue: w has just answered, did not ask for less, and nobody waits for its
// probe.
func (l *loop) depthDue(w *watched, now time.Time) bool {
	return w.outcome.Success() && w.cause != monitor.CauseRateLimited && !w.urgent &&
		!now.Before(w.depth.from) && l.set.cfg.Cadence.DepthDue(w.relay, l.v.name, w.depth.last, now)
}

// learn takes in what a probe brought beside its outcome.
func (l *loop) learn(w *watched, r *result, now time.Time) {
	o := &r.obs
	if o.Info != nil {
		w.infoRead = now
		w.document.keep(o.Info)
	}
	switch {
	case o.DNS != nil:
		w.facts = extra{last: now}
	case r.facts && o.Outcome.Success():
		w.facts.from = now.Add(againAfter)
	}
	switch {
	case o.Capabilities != nil || o.Write != nil:
		w.depth = extra{last: now}
		// A relay that was new may have its own slot soon: that one is done.
		if own := l.set.cfg.Cadence.FirstDepth(w.relay, l.v.name, false, now); own.Sub(now) < l.set.cfg.Cadence.DepthEvery/2 {
			w.depth.last = own
		}
	case r.deep && o.Outcome.Measured():
		w.depth.from = now.Add(againAfter)
	}
}

// lose lets be asked again what observations had brought that the core will not
// get.
func (l *loop) lose(losses []loss) {
	for _, x := range losses {
		w := l.relays[x.relay]
		if w == nil {
			continue
		}
		if x.info {
			w.infoRead = time.Time{}
		}
		if x.facts {
			w.facts = extra{}
		}
		if x.depth {
			w.depth = extra{}
		}
	}
}

// document is what a relay's NIP-11 document says about writing, which is all
// that a probe needs of the last one.
type document struct{ known, payment, writes bool }

// keep remembers i; where it could not be read, the one before stays.
func (d *document) keep(i *monitor.Info) {
	if i.Problem != "" {
		return
	}
	yes := func(b *bool) bool { return b != nil && *b }
	*d = document{known: true, payment: yes(i.PaymentRequired), writes: yes(i.RestrictedWrites)}
}

// info is what was kept, nil = no document was read.
func (d document) info() *monitor.Info {
	if !d.known {
		return nil
	}
	return &monitor.Info{PaymentRequired: &d.payment, RestrictedWrites: &d.writes}
}
