package probe

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// maxFactAddresses of a name are told (monitor.DNSFacts).
	maxFactAddresses = 16
	// workedAge is how long a family that worked from here is believed to.
	workedAge = time.Hour
	// workedStep is how old a note of it must be before it is renewed.
	workedStep = time.Minute
)

// reach is what dialling the addresses of one family came to, the later word
// the stronger.
type reach uint8

const (
	reachUntried reach = iota
	reachSilent        // no answer, or no route to that host
	reachRefused       // it said no
	reachAnswers       // a connection stood
)

// The families, IPv6 first, as they are dialled.
const (
	familyIPv6 = iota
	familyIPv4
)

// family is the place of an address in what is kept by family.
func family(a netip.Addr) int {
	if a.Unmap().Is4() {
		return familyIPv4
	}
	return familyIPv6
}

// reachOf is what a failure of TCP says.
func reachOf(c monitor.Cause) reach {
	switch c {
	case monitor.CauseConnRefused:
		return reachRefused
	case monitor.CauseTimeout, monitor.CauseUnreachable:
		return reachSilent
	default:
		return reachUntried
	}
}

// tried records what dialling an address came to; one that answers is enough
// for its family.
func (e *endpoint) tried(a netip.Addr, r reach) {
	i := family(a)
	e.reach[i] = max(e.reach[i], r)
}

// worked is when somebody last answered on each family, in Unix seconds. Silence
// on a family on which nobody ever answers says more about this machine's way
// out than about the relay.
type worked [2]atomic.Int64

// note records that somebody at a answered. It is cheap: every probe calls it.
func (w *worked) note(a netip.Addr, now time.Time) {
	at := &w[family(a)]
	if s := now.Unix(); s-at.Load() >= int64(workedStep/time.Second) {
		at.Store(s)
	}
}

// lately reports whether the family works from here.
func (w *worked) lately(family int, now time.Time) bool {
	return now.Unix()-w[family].Load() <= int64(workedAge/time.Second)
}

// families fills in where the relay's name leads, and on which family it
// answers. The connection of the probe itself counts for its family; the other
// one is dialled once, when the probe is over, with what is left of the overall
// limit. The outcome stands and is not touched.
func (a *attempt) families(ctx context.Context) {
	if a.way.named || !a.obs.Outcome.Measured() || ctx.Err() != nil {
		return
	}
	a.drop() // one connection at a time
	found := a.to.found
	if ip, err := netip.ParseAddr(a.to.host); err == nil {
		found = []netip.Addr{ip}
	}
	facts := monitor.DNSFacts{Addresses: factAddresses(found)}
	for i, word := range [...]*monitor.Reach{familyIPv6: &facts.IPv6, familyIPv4: &facts.IPv4} {
		of := func(ip netip.Addr) bool { return family(ip) == i }
		if !slices.ContainsFunc(facts.Addresses, of) {
			*word = monitor.ReachNone
			continue
		}
		// A tcp stage that failed has dialled all that there is to dial.
		if k := slices.IndexFunc(a.to.addrs, of); k >= 0 && a.to.reach[i] == reachUntried && (a.obs.Outcome != monitor.OutcomeFailed || a.obs.Stage != monitor.StageTCP) {
			a.dialApart(ctx, netip.AddrPortFrom(a.to.addrs[k], a.to.port))
		}
		switch r := a.to.reach[i]; {
		case r == reachAnswers:
			*word = monitor.ReachAnswers
		case r == reachRefused, r == reachSilent && a.c.worked.lately(i, time.Now()):
			*word = monitor.ReachFails
		}
	}
	if !over(ctx) {
		a.obs.DNS = &facts
	}
}

// dialApart opens and closes a connection to one address.
func (a *attempt) dialApart(ctx context.Context, addr netip.AddrPort) {
	now := time.Now()
	if f, ok := a.c.failures.get(addr, a.req.Relay, now); ok {
		if a.traced() {
			a.note(monitor.StageTCP, "%s is not dialled: another relay found %s there %s ago", addr, f.cause, limitText(now.Sub(f.at)))
		}
		a.to.tried(addr.Addr(), reachOf(f.cause))
		return
	}
	a.enter(monitor.StageTCP, a.c.cfg.Timeouts.TCP)
	if !now.Before(a.limit) {
		return // nothing is left of the overall limit
	}
	if a.traced() {
		a.note(monitor.StageTCP, "the other family, apart:")
		a.traceDial(dialled{addr: addr}, dialBegins)
	}
	dctx, cancel := context.WithDeadline(ctx, a.limit)
	d := a.c.dial(dctx, addr)
	cancel()
	if a.traced() {
		a.traceDial(d, dialEnds)
	}
	if d.conn == nil {
		if !over(ctx) {
			a.remember(d, readNetError(d.err), time.Now())
		}
		return
	}
	d.conn.Close()
	a.c.failures.forget(addr)
	a.c.worked.note(addr.Addr(), now)
	a.to.tried(addr.Addr(), reachAnswers)
}

// factAddresses puts addresses in order, each once and without a zone. Of too
// many, both families keep their share, whatever order a resolver turned them
// to.
func factAddresses(found []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(found))
	for _, ip := range found {
		out = append(out, ip.Unmap().WithZone(""))
	}
	slices.SortFunc(out, netip.Addr.Compare) // IPv4 first
	out = slices.Compact(out)
	if over := len(out) - maxFactAddresses; over > 0 {
		four := len(out)
		if i := slices.IndexFunc(out, netip.Addr.Is6); i >= 0 {
			four = i
		}
		keep := min(four, max(maxFactAddresses/2, maxFactAddresses-(len(out)-four)))
		out = append(out[:keep], out[four:][:maxFactAddresses-keep]...)
	}
	return out
}
