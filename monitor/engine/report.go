package engine

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// report signs what is due for the online set as it will be after the round,
// and the monitor's own events. Between two looks at all of it the publisher is
// shown the relays without a report, which may wait for a free second (reports.md
// 8), and those of which something new is known.
func (e *Engine) report(out *round, now time.Time) {
	if len(out.decision.Withdrawn) > 0 {
		e.pub.Withdraw(out.decision.Withdrawn)
	}
	g := e.generation.Load()
	next := map[*relay]*monitor.Verdict{}
	for i := range out.changes {
		next[out.changes[i].relay] = &out.changes[i].verdict
	}
	all := now.Sub(e.lastReports) >= refreshEvery // some may be due
	var sources []monitor.ReportSource
	for _, r := range e.relays {
		if !all && r.report != nil && !r.unsaid {
			continue
		}
		v := next[r]
		if v == nil {
			v = &r.Verdict
		}
		if v.State != monitor.StateOnline {
			continue
		}
		if s, ok := r.source(v.Since, now); ok {
			sources = append(sources, s)
		}
	}
	if all || len(sources) > 0 {
		signed := e.pub.Reports(now, sources)
		e.counts.signed += uint64(len(signed))
		out.decision.Events = append(out.decision.Events, signed...)
		e.said(signed, all)
	}
	if all {
		e.lastReports = now
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

// said notes which reports say what is known. One that found no second keeps
// asking until it is signed, or was looked at with all.
func (e *Engine) said(signed []monitor.SignedEvent, all bool) {
	if all {
		for _, r := range e.relays {
			r.unsaid = false
		}
		return
	}
	for i := range signed {
		if r := e.byURL[monitor.RelayURL(signed[i].D)]; r != nil {
			r.unsaid = false
		}
	}
}

// source gathers what a report says of an online relay; false while nothing
// was measured since the start, when a stored report still stands.
func (r *relay) source(since, now time.Time) (monitor.ReportSource, bool) {
	s := monitor.ReportSource{
		URL: r.URL, Network: r.URL.Network(), Info: r.Info, AuthSeen: r.auth, PaymentSeen: r.payment, OnlineSince: since,
		RTTOpen: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTOpen }),
		RTTRead: r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTRead }),
	}
	if f := r.facts; f != nil {
		if f.Write != nil && now.Sub(f.WriteAt) <= monitor.FactsBelieved { // else it is no longer tested
			s.RTTWrite = r.median(func(v *monitor.VantageRelay) time.Duration { return v.RTTWrite })
		}
		payment, leave := f.WriteNeeds(now)
		s.PaymentSeen, s.RestrictedWrites = s.PaymentSeen || payment, leave
		s.DisprovedNIPs = f.Disproved(now)
	}
	if p := r.place; p != nil {
		s.Country, s.Geohash = p.Country, p.Geohash
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
