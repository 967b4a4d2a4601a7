package engine

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// report signs what is due for the online set as it will be after the round,
// and the monitor's own events.
func (e *Engine) report(out *round, now time.Time) {
	if len(out.decision.Withdrawn) > 0 {
		e.pub.Withdraw(out.decision.Withdrawn)
	}
	g := e.generation.Load()
	next := map[*relay]*monitor.Verdict{}
	for i := range out.changes {
		next[out.changes[i].relay] = &out.changes[i].verdict
	}
	due := e.reportsDue || len(out.decision.Transitions) > 0 || now.Sub(e.lastReports) >= refreshEvery
	var sources []monitor.ReportSource
	for _, r := range e.relays {
		v := next[r]
		if v == nil {
			v = &r.Verdict
		}
		if v.State != monitor.StateOnline {
			continue
		}
		if s, ok := r.source(v.Since); ok {
			sources = append(sources, s)
			due = due || r.report == nil // it waits for a free second (reports.md 8)
		}
	}
	if due {
		e.reportsDue, e.lastReports = false, now
		signed := e.pub.Reports(now, sources)
		e.counts.signed += uint64(len(signed))
		out.decision.Events = append(out.decision.Events, signed...)
	}
	if g.Usable() && len(g.Online) > 0 {
		urls := make([]monitor.RelayURL, len(g.Online))
		for i := range g.Online {
			urls[i] = g.Online[i].URL
		}
		if s := e.pub.Snapshot(now, g.Number, g.NewestCheck, urls); s != nil && (e.snapshot == nil || e.snapshot.ID != s.ID) {
			out.decision.Events = append(out.decision.Events, *s)
		}
	}
	out.decision.Events = append(out.decision.Events, e.pub.Announcements(now)...)
}

// source gathers what a report says of an online relay; false while nothing
// was measured since the start, when a stored report still stands.
func (r *relay) source(since time.Time) (monitor.ReportSource, bool) {
	s := monitor.ReportSource{
		URL: r.URL, Network: r.URL.Network(), Info: r.Info, AuthSeen: r.auth, PaymentSeen: r.payment, OnlineSince: since,
		RTTOpen:  r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTOpen }),
		RTTRead:  r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTRead }),
		RTTWrite: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTWrite }),
	}
	measured := slices.ContainsFunc(r.seen, func(v monitor.VantageRelay) bool { return v.Outcome.Measured() })
	return s, measured
}

// median returns the median in whole milliseconds over the vantages to which
// the relay is online; where it is so to none, as right after a start, over
// what they measured last. 0 = never measured.
func (r *relay) median(of func(*monitor.VantageRelay) time.Duration) int {
	var buf [16]time.Duration
	times := buf[:0]
	for _, online := range []bool{true, false} {
		for i := range r.seen {
			if v := &r.seen[i]; of(v) > 0 && (v.Record.State == monitor.StateOnline || !online) {
				times = append(times, of(v))
			}
		}
		if len(times) > 0 {
			break
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	mid := times[len(times)/2]
	if len(times)%2 == 0 {
		mid = (times[len(times)/2-1] + mid) / 2
	}
	return max(1, int(mid.Milliseconds()))
}
