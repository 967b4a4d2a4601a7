package engine

import (
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// factsPace is the least time between two rows of one kind of facts of one
	// relay: behind many addresses a certificate may change with every probe.
	factsPace = time.Hour
	// factsConfirm is the age at which unchanged facts are confirmed in the store,
	// so that their age survives a restart.
	factsConfirm = 24 * time.Hour
)

// The kinds of facts.
const (
	factTLS = iota
	factDNS
	factCapabilities
	factWrite
	numFacts
)

// facts is all that is known of one relay besides whether it answers. It is not
// changed once a relay has it: a batch steps a copy.
type facts struct {
	monitor.Facts
	tested  *monitor.Tested // nil = never
	reachAt [2]time.Time    // when each family of DNS was tried last, IPv4 first
	stored  [numFacts]time.Time
	changed [numFacts]bool // since it was stored
}

// restored are facts as the store has them.
func restored(in monitor.Facts) *facts {
	f := &facts{Facts: in, reachAt: [2]time.Time{in.DNSAt, in.DNSAt}}
	f.stored = [numFacts]time.Time{in.TLSAt, in.DNSAt, in.CapabilitiesAt, in.WriteAt}
	if c := in.Capabilities; c != nil {
		f.tested = new(monitor.Tested)
		f.tested.Add(*c, "", in.CapabilitiesAt)
	}
	return f
}

// known is what f holds; f may be nil.
func (f *facts) known() *monitor.Facts {
	if f == nil {
		return nil
	}
	return &f.Facts
}

// learn takes what an observation tells besides, also one that is history only:
// what is newer counts. Times are those of the vantage's clock, but never ahead
// of ours.
func (e *Engine) learn(s *staged, r *relay, o *monitor.Observation, now time.Time) {
	if o.TLS == nil && o.DNS == nil && o.Capabilities == nil && o.Write == nil {
		return
	}
	at := o.At
	if at.After(now) {
		if at.Sub(now) > e.cfg.Corroboration.MaxClockSkew {
			return
		}
		at = now
	}
	f := s.facts[r.URL]
	if f == nil {
		f = new(facts)
		if r.facts != nil {
			*f = *r.facts
		}
		s.facts[r.URL] = f
	}
	f.takeTLS(o.TLS, at)
	f.takeDNS(o.DNS, at)
	f.takeCapabilities(o.Capabilities, o.Vantage, at)
	f.takeWrite(o.Write, at)
	if due := f.due(now); due != (monitor.Facts{}) {
		was := s.in.Facts[r.URL] // another observation of this batch
		s.in.Facts[r.URL] = together(was, due)
	}
}

// together is was with what due holds in its place.
func together(was, due monitor.Facts) monitor.Facts {
	if due.TLS != nil {
		was.TLS, was.TLSAt = due.TLS, due.TLSAt
	}
	if due.DNS != nil {
		was.DNS, was.DNSAt = due.DNS, due.DNSAt
	}
	if due.Capabilities != nil {
		was.Capabilities, was.CapabilitiesAt = due.Capabilities, due.CapabilitiesAt
	}
	if due.Write != nil {
		was.Write, was.WriteAt = due.Write, due.WriteAt
	}
	return was
}

func (f *facts) takeTLS(t *monitor.TLSFacts, at time.Time) {
	if t == nil || at.Before(f.TLSAt) {
		return
	}
	f.TLSAt = at
	if old := f.TLS; old == nil || t.Version != old.Version || t.Issuer != old.Issuer || !t.NotAfter.Equal(old.NotAfter) || !slices.Equal(t.Names, old.Names) {
		f.TLS, f.changed[factTLS] = t, true
	}
}

// takeDNS keeps what is known of a family that was not tried now: a vantage may
// have only one.
func (f *facts) takeDNS(d *monitor.DNSFacts, at time.Time) {
	if d == nil || at.Before(f.DNSAt) || len(d.Addresses) == 0 && d.IPv4 == monitor.ReachUnknown && d.IPv6 == monitor.ReachUnknown {
		return
	}
	next := *d
	if old := f.DNS; old != nil {
		for i, family := range [...]struct{ next, old *monitor.Reach }{{&next.IPv4, &old.IPv4}, {&next.IPv6, &old.IPv6}} {
			if *family.next == monitor.ReachUnknown && at.Sub(f.reachAt[i]) < monitor.FindingKept {
				*family.next = *family.old
			}
		}
	}
	for i, tried := range [...]monitor.Reach{d.IPv4, d.IPv6} {
		if tried != monitor.ReachUnknown {
			f.reachAt[i] = at
		}
	}
	f.DNSAt = at
	if old := f.DNS; old == nil || next.IPv4 != old.IPv4 || next.IPv6 != old.IPv6 || !slices.Equal(next.Addresses, old.Addresses) {
		f.DNS, f.changed[factDNS] = &next, true
	}
}

func (f *facts) takeCapabilities(c *monitor.Capabilities, vantage string, at time.Time) {
	if c == nil {
		return
	}
	tested := new(monitor.Tested)
	if f.tested != nil {
		*tested = *f.tested
	}
	if !tested.Add(*c, vantage, at) {
		return
	}
	f.tested = tested
	next, when := tested.Capabilities()
	f.CapabilitiesAt = when
	if old := f.Capabilities; old == nil || *next != *old {
		f.Capabilities, f.changed[factCapabilities] = next, true
	}
}

// takeWrite keeps an answer for a while against silence.
func (f *facts) takeWrite(w *monitor.WriteFacts, at time.Time) {
	switch {
	case w == nil || w.Result == monitor.WriteNone || at.Before(f.WriteAt):
		return
	case w.Result == monitor.WriteUnknown && f.Write != nil && at.Sub(f.WriteAt) < monitor.FindingKept:
		return
	}
	f.WriteAt = at
	if old := f.Write; old == nil || *w != *old {
		f.Write, f.changed[factWrite] = w, true
	}
}

// due returns what is to be stored now, and notes that it is.
func (f *facts) due(now time.Time) monitor.Facts {
	var out monitor.Facts
	is := func(kind int) bool {
		age := now.Sub(f.stored[kind])
		if age < factsPace || age < factsConfirm && !f.changed[kind] {
			return false
		}
		f.stored[kind], f.changed[kind] = now, false
		return true
	}
	if f.TLS != nil && is(factTLS) {
		out.TLS, out.TLSAt = f.TLS, f.TLSAt
	}
	if f.DNS != nil && is(factDNS) {
		out.DNS, out.DNSAt = f.DNS, f.DNSAt
	}
	if f.Capabilities != nil && is(factCapabilities) {
		out.Capabilities, out.CapabilitiesAt = f.Capabilities, f.CapabilitiesAt
	}
	if f.Write != nil && is(factWrite) {
		out.Write, out.WriteAt = f.Write, f.WriteAt
	}
	return out
}

// learned keeps a batch's facts. Its caller holds mu.
func (e *Engine) learned(s *staged, now time.Time) {
	for url, next := range s.facts {
		r := e.byURL[url]
		old := r.facts
		r.facts = next
		if old != nil && old.Capabilities == next.Capabilities && old.Write == next.Write {
			continue
		}
		oldPayment, oldLeave := old.known().WriteNeeds(now)
		payment, leave := next.WriteNeeds(now)
		if payment != oldPayment || leave != oldLeave || !slices.Equal(old.known().Disproved(now), next.Disproved(now)) {
			r.unsaid = true
		}
		e.aliases.stale = true
	}
}
