package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// lateness past a limit beyond which a timeout says more about this process
// than about the relay (probe.md: dispatch lag over 1 s).
const lateness = time.Second

// attempt is one probe under way. Its methods take one stage each and report
// whether the probe goes on; when not, they have recorded how it ended.
type attempt struct {
	c       *Checker
	way     *way // to the relay's network
	req     Request
	obs     monitor.Observation
	to      endpoint
	overall time.Time // the overall limit
	stage   monitor.Stage
	limit   time.Time // of the present stage
	budget  int       // bytes that may still be read
	w       *wire     // the present connection, nil = none
	reused  bool      // w has already carried a response
	release func()
	frames  frames
	inquiry *inquiry  // what is asked beyond the read, nil = nothing so far
	scratch [512]byte // what is written
}

// endpoint is where a request goes.
type endpoint struct {
	host   string // name or address, as certificates have it
	port   uint16
	secure bool
	header string // Host header
	path   string
	found  []netip.Addr // where its name leads; nil for an address
	addrs  []netip.Addr // those of them that may be dialled
	reach  [2]reach     // by family, what dialling them came to
}

func endpointOf(u monitor.RelayURL) endpoint {
	e := endpoint{host: u.Host(), secure: u.TLS(), path: u.Path()}
	usual := ":80" // the port that browsers leave out of the header
	if e.secure {
		usual = ":443"
	}
	e.header = strings.TrimSuffix(u.HostPort(), usual)
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // of a URL that was parsed
	e.port = uint16(port)
	return e
}

func (a *attempt) begin(now time.Time) {
	a.obs.Relay, a.obs.Start = a.req.Relay, now
	a.way = a.c.wayTo(a.req.Relay.Network())
	a.overall = now.Add(a.way.overall)
	a.budget = maxBytes
}

// close gives back all that the attempt holds.
func (a *attempt) close() {
	a.drop()
	if a.release != nil {
		a.release()
		a.release = nil
	}
}

// drop closes the present connection.
func (a *attempt) drop() {
	if a.w != nil {
		a.w.close()
		a.w = nil
	}
	a.reused = false
}

// run takes the stages in order.
func (a *attempt) run(ctx context.Context) {
	if !a.way.open {
		a.finish(monitor.OutcomeSkipped, monitor.StageNone, monitor.CauseNoProxy, fmt.Sprintf("there is no proxy for %s relays here", a.req.Relay.Network()))
		return
	}
	a.to = endpointOf(a.req.Relay)
	if !a.resolve(ctx) || !a.admit(ctx) || !a.open(ctx) {
		return
	}
	if limit := a.infoFirst(); limit > 0 {
		if !a.infoOver(ctx, limit) && !a.open(ctx) {
			return
		}
	}
	if !a.upgrade(ctx) {
		return
	}
	a.read(ctx)
	// A relay that has used up its bytes is asked nothing more.
	if a.infoFollows() && a.budget > 0 && ctx.Err() == nil {
		a.infoApart(ctx)
	}
}

// enter begins a stage: what it waits for ends at its limit, widened as the
// relay's network demands, at the latest at the overall one.
func (a *attempt) enter(s monitor.Stage, limit time.Duration) time.Time {
	return a.enterFor(s, a.way.widened(s, limit))
}

// enterFor is enter with a limit that is not widened.
func (a *attempt) enterFor(s monitor.Stage, limit time.Duration) time.Time {
	now := time.Now()
	a.stage, a.limit = s, now.Add(limit)
	if a.limit.After(a.overall) {
		a.limit = a.overall
	}
	return now
}

// leave records how long the present stage took.
func (a *attempt) leave(start time.Time) { a.obs.Times[a.stage] = max(time.Since(start), 1) }

// finish records how the probe ended. It returns false, as a stage does then.
func (a *attempt) finish(o monitor.Outcome, s monitor.Stage, c monitor.Cause, evidence string) bool {
	a.obs.Outcome, a.obs.Stage, a.obs.Cause, a.obs.Evidence = o, s, c, evidence
	return false
}

func (a *attempt) fail(c monitor.Cause, format string, args ...any) bool {
	return a.finish(monitor.OutcomeFailed, a.stage, c, fmt.Sprintf(format, args...))
}

func (a *attempt) unclear(c monitor.Cause, format string, args ...any) bool {
	return a.finish(monitor.OutcomeUnclear, a.stage, c, fmt.Sprintf(format, args...))
}

// broken ends the probe after an error of the network during what the present
// stage does.
func (a *attempt) broken(ctx context.Context, err error, what string) bool {
	if ctx.Err() != nil {
		return a.cancelled()
	}
	host := a.to.host
	switch readNetError(err) {
	case netTimeout:
		if a.late() {
			return false
		}
		return a.fail(monitor.CauseTimeout, "%s did not complete %s within %s", host, what, a.waited())
	case netRefused:
		return a.fail(monitor.CauseConnRefused, "%s refused the connection", host)
	case netReset:
		return a.fail(monitor.CauseReset, "%s reset the connection during %s", host, what)
	case netClosed:
		return a.fail(monitor.CauseClosedEarly, "%s closed the connection during %s", host, what)
	case netUnreachable:
		return a.fail(monitor.CauseUnreachable, "%s cannot be reached any more: no route to that host", host)
	case netOversized:
		return a.fail(monitor.CauseOversized, "%s sent far too much during %s", host, what)
	case netBlocked:
		return a.fail(monitor.CauseBlockedAddress, "%s is at an address that is not public", host)
	case netUnknown:
		if a.secured() { // it speaks of TLS then, such as a late alert
			return a.fail(monitor.CauseTLSHandshake, "%s broke TLS off during %s: %s", host, what, clean(err.Error()))
		}
	case netLocal:
	}
	return a.unclear(monitor.CauseLocalNetwork, "our own network failed during %s: %s", what, clean(err.Error()))
}

// secured reports whether the present connection is past its TLS handshake.
func (a *attempt) secured() bool { return a.w != nil && a.w.conn != a.w.raw }

// cancelled ends the probe because its context did.
func (a *attempt) cancelled() bool {
	return a.unclear(monitor.CauseLocalNetwork, "the probe was cancelled")
}

// over reports whether ctx has ended, or is about to: a dial that has its
// deadline may notice a moment before it does.
func over(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(d)
}

// late ends the probe as unclear when this process, not the relay, missed the
// stage's limit: it noticed the limit much too late, or the answer is there and
// nobody had the time to read it.
func (a *attempt) late() bool {
	switch d := time.Since(a.limit); {
	case d > lateness:
		a.unclear(monitor.CauseLag, "this machine was too busy to tell: it noticed the limit %s late", limitText(d))
	case a.w != nil && pending(a.w.raw):
		a.unclear(monitor.CauseLag, "this machine was too busy to tell: the answer came within the limit, but was not read")
	default:
		return false
	}
	return true
}

// waited is the limit of the present stage for a person.
func (a *attempt) waited() string {
	t := a.c.cfg.Timeouts
	if a.limit.Equal(a.overall) {
		return "the " + limitText(a.way.overall) + " of the whole probe"
	}
	return limitText(a.way.widened(a.stage, [monitor.NumStages]time.Duration{
		monitor.StageDNS: t.DNS, monitor.StageTCP: t.TCP, monitor.StageTLS: t.TLS,
		monitor.StageUpgrade: t.Upgrade, monitor.StageRead: t.Read, monitor.StageInfo: t.Info,
	}[a.stage]))
}

// resolve finds the addresses that may be dialled.
func (a *attempt) resolve(ctx context.Context) bool {
	if a.way.named {
		a.stage = monitor.StageTCP
		return true
	}
	var addrs []netip.Addr
	if ip, err := netip.ParseAddr(a.to.host); err == nil {
		addrs = []netip.Addr{ip}
		if a.traced() {
			a.note(monitor.StageDNS, "%s is an address: there is nothing to ask", ip)
		}
	} else {
		start := a.enter(monitor.StageDNS, a.c.cfg.Timeouts.DNS)
		if a.traced() {
			a.traceResolve()
		}
		rctx, cancel := context.WithDeadline(ctx, a.limit)
		answer := a.c.resolver.resolve(rctx, a.to.host)
		cancel()
		a.leave(start)
		if a.traced() {
			a.traceAnswer(answer)
		}
		switch {
		case ctx.Err() != nil:
			return a.cancelled()
		case len(answer.addrs) > 0:
			addrs = answer.addrs
			a.to.found = answer.addrs // not addrs, which stays on the stack
		case answer.err != nil:
			return a.unclear(monitor.CauseResolver, "the resolver could not tell the addresses of %s: %s", a.to.host, clean(answer.err.Error()))
		case answer.exists:
			return a.fail(monitor.CauseNoAddress, "the name %s has no address", a.to.host)
		default:
			return a.fail(monitor.CauseNXDomain, "the name %s does not exist", a.to.host)
		}
	}
	a.stage = monitor.StageTCP
	usable, why := a.c.usable(addrs)
	if a.traced() {
		a.traceUsable(addrs, usable)
	}
	if len(usable) == 0 {
		a.obs.Address = netip.AddrPortFrom(addrs[0].Unmap(), a.to.port)
		if errors.Is(why, errFamily) {
			return a.unclear(monitor.CauseLocalNetwork, "%s has no address of the family of the source address %s", a.to.host, a.c.cfg.SourceAddress)
		}
		return a.fail(monitor.CauseBlockedAddress, "%s is at %s, which is not a public address", a.to.host, addrs[0])
	}
	a.to.addrs = usable
	return true
}

// admit asks the caller for a permit; the wait counts for no limit.
func (a *attempt) admit(ctx context.Context) bool {
	if a.req.Admit == nil {
		return true
	}
	start := time.Now()
	var first netip.Addr
	if len(a.to.addrs) > 0 {
		first = a.to.addrs[0].WithZone("")
	}
	release, ok := a.req.Admit(ctx, first)
	a.release = release
	waited := time.Since(start)
	a.overall = a.overall.Add(waited)
	if a.traced() && waited >= time.Millisecond {
		a.note(a.stage, "waited %s for a permit", limitText(waited))
	}
	if ctx.Err() != nil {
		return a.cancelled()
	}
	if !ok {
		return a.finish(monitor.OutcomeSkipped, monitor.StageNone, monitor.CauseOverload, "there was no permit for its address in time")
	}
	return true
}

// open connects and, for wss, secures the connection.
func (a *attempt) open(ctx context.Context) bool {
	if !a.tcp(ctx) {
		return false
	}
	if !a.to.secure {
		return true
	}
	start := a.enter(monitor.StageTLS, a.c.cfg.Timeouts.TLS)
	a.w.limit(ctx, a.limit)
	if a.traced() {
		a.note(a.stage, "handshake as a client of %s, classical key exchange", a.to.host)
	}
	facts, err := a.c.handshake(a.w, a.to.host, false)
	if err != nil && isAlert(err) && ctx.Err() == nil {
		// It may insist on the hybrid key exchange: once more with Go's
		// default, all within the limit of this stage.
		limit := a.limit
		if a.traced() {
			a.note(a.stage, "alert: %s; once more with the hybrid key exchange", err)
		}
		a.drop()
		if !a.tcp(ctx) {
			return false
		}
		start = time.Now()
		a.stage, a.limit = monitor.StageTLS, limit
		a.w.limit(ctx, a.limit)
		facts, err = a.c.handshake(a.w, a.to.host, true)
	}
	a.leave(start)
	if a.traced() {
		a.traceTLS(facts, err)
	}
	if facts != nil {
		a.obs.TLS = facts
	}
	if err == nil {
		return true
	}
	defer a.drop()
	if ctx.Err() != nil {
		return a.cancelled()
	}
	cause, evidence := tlsCause(err, facts, a.to.host, time.Now())
	switch {
	case cause == monitor.CauseTLSUntrusted && !a.c.hasRoots:
		return a.unclear(monitor.CauseLocalNetwork, "this machine has no CA roots to verify TLS certificates with: install ca-certificates")
	case cause != monitor.CauseNone:
		return a.fail(cause, "%s", evidence)
	}
	return a.broken(ctx, err, "the TLS handshake")
}

// tcp connects to the first address that answers.
func (a *attempt) tcp(ctx context.Context) bool {
	start := a.enter(monitor.StageTCP, a.c.cfg.Timeouts.TCP)
	if ctx.Err() != nil {
		return a.cancelled()
	}
	if a.way.named {
		return a.tcpNamed(ctx, start)
	}
	addrs := make([]netip.AddrPort, 0, maxAddresses)
	var known failure
	for _, ip := range a.to.addrs {
		addr := netip.AddrPortFrom(ip, a.to.port)
		if f, ok := a.c.failures.get(addr, a.req.Relay, start); ok {
			if known.relay == "" {
				known = f
				a.obs.Address = addr
			}
			if a.traced() {
				a.note(a.stage, "%s is not dialled: another relay found %s there %s ago", addr, f.cause, limitText(start.Sub(f.at)))
			}
			a.to.tried(ip, reachOf(f.cause))
			continue
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return a.fail(known.cause, "%s: another relay at %s found the same %s ago (%s)", a.to.host, a.obs.Address, limitText(start.Sub(known.at).Round(time.Second)), known.cause)
	}
	var report func(dialled, dialStep)
	if a.traced() {
		report = a.traceDial
	}
	d, failed := a.c.connect(ctx, addrs, a.limit, report)
	a.leave(start)
	if d.conn != nil {
		a.obs.Address = d.addr
		a.c.failures.forget(d.addr)
		a.c.worked.note(d.addr.Addr(), start)
		a.to.tried(d.addr.Addr(), reachAnswers)
		a.w = newWire(ctx, d.conn, &a.budget)
		if a.traced() {
			a.w.head = a.traceHead
		}
		return true
	}
	if over(ctx) {
		return a.cancelled()
	}
	now := time.Now()
	worst, rank := failed[0], netError(0)
	for _, d := range failed {
		e := readNetError(d.err)
		if e > rank && e != netBlocked || rank == 0 {
			worst, rank = d, e
		}
		a.remember(d, e, now)
	}
	a.obs.Address = worst.addr
	if p, ok := errors.AsType[*proxyError](worst.err); ok {
		return a.proxied(p)
	}
	switch rank {
	case netReset:
		// The connection stood and was reset: what would have come next failed.
		a.stage = monitor.StageUpgrade
		if a.to.secure {
			a.stage = monitor.StageTLS
		}
		return a.fail(monitor.CauseReset, "%s reset the connection as soon as it stood", a.to.host)
	case netTimeout:
		if a.late() {
			return false
		}
		return a.fail(monitor.CauseTimeout, "%s did not answer at %s within %s", a.to.host, worst.addr, a.waited())
	case netRefused:
		return a.fail(monitor.CauseConnRefused, "%s refused the connection at %s", a.to.host, worst.addr)
	case netUnreachable:
		return a.fail(monitor.CauseUnreachable, "%s cannot be reached at %s: no route to that host", a.to.host, worst.addr)
	default: // ours, most likely
		return a.broken(ctx, worst.err, "the connection to "+worst.addr.String())
	}
}

// remember keeps for others, and for the facts, how an attempt to connect
// failed. A wait that was cut short says nothing.
func (a *attempt) remember(d dialled, e netError, now time.Time) {
	cause := monitor.CauseNone
	switch {
	case e == netRefused:
		cause = monitor.CauseConnRefused
	case e == netUnreachable:
		cause = monitor.CauseUnreachable
	case e == netTimeout && d.took >= a.c.cfg.Timeouts.TCP*3/4 && now.Sub(a.limit) <= lateness:
		cause = monitor.CauseTimeout
	case e == netReset: // it stood
		a.c.worked.note(d.addr.Addr(), now)
		a.to.tried(d.addr.Addr(), reachAnswers)
		return
	default:
		return
	}
	if e == netRefused {
		a.c.worked.note(d.addr.Addr(), now)
	}
	a.c.failures.put(d.addr, failure{cause, now, a.req.Relay})
	a.to.tried(d.addr.Addr(), reachOf(cause))
}

// tcpNamed connects through the proxy that knows the relay's name.
func (a *attempt) tcpNamed(ctx context.Context, start time.Time) bool {
	if a.traced() {
		a.note(a.stage, "ask the proxy %s for %s, port %d", a.way.proxy.Address, a.to.host, a.to.port)
	}
	pctx, cancel := context.WithDeadline(ctx, a.limit)
	conn, err := a.c.through(pctx, a.way.proxy, target{name: a.to.host, port: a.to.port})
	cancel()
	a.leave(start)
	if a.traced() {
		if err != nil {
			a.note(a.stage, "no connection: %s", err)
		} else {
			a.note(a.stage, "connected by the proxy")
		}
	}
	if err == nil {
		a.w = newWire(ctx, conn, &a.budget)
		if a.traced() {
			a.w.head = a.traceHead
		}
		return true
	}
	if over(ctx) {
		return a.cancelled()
	}
	if p, ok := errors.AsType[*proxyError](err); ok {
		return a.proxied(p)
	}
	return a.broken(ctx, err, "the connection through our proxy")
}

// doubtProxy takes a failure back that the proxy itself may have made: one of
// silence, or of a connection that broke, where the proxy now does not accept
// us any more. One failure would be a small harm; a proxy that is restarted
// would do it to all the relays that are being probed at once.
func (a *attempt) doubtProxy(ctx context.Context) {
	if a.way.proxy == nil || a.obs.Outcome != monitor.OutcomeFailed || ctx.Err() != nil {
		return
	}
	switch a.obs.Cause {
	case monitor.CauseTimeout, monitor.CauseSilent, monitor.CauseReset, monitor.CauseClosedEarly, monitor.CauseTLSHandshake:
	default:
		return
	}
	limit := time.Now().Add(a.c.cfg.Timeouts.TCP)
	if limit.After(a.overall) {
		limit = a.overall
	}
	if time.Until(limit) < a.c.cfg.Timeouts.TCP/4 {
		return // too little for a fair answer
	}
	a.drop()
	conn, err := a.c.greet(ctx, a.way.proxy, limit)
	if err == nil {
		conn.Close()
		return
	}
	if over(ctx) {
		a.cancelled()
		return
	}
	if a.obs.Address.IsValid() {
		a.c.failures.forget(a.obs.Address) // nor was it news to others
	}
	a.finish(monitor.OutcomeUnclear, a.obs.Stage, monitor.CauseLocalNetwork, fmt.Sprintf("nothing is known of %s: it looked as if it failed (%s), but %s", a.to.host, a.obs.Cause, err))
}

// proxied ends the probe because of what a proxy said, or did not say.
func (a *attempt) proxied(p *proxyError) bool {
	if p.timeout && a.late() {
		return false
	}
	switch {
	case p.kind == netTimeout && p.timeout:
		return a.fail(monitor.CauseTimeout, "our proxy did not get through to %s within %s", a.to.host, a.waited())
	case p.kind == netTimeout:
		return a.fail(monitor.CauseTimeout, "%s did not answer: %s", a.to.host, p)
	case p.kind == netRefused:
		return a.fail(monitor.CauseConnRefused, "%s refused the connection: %s", a.to.host, p)
	case p.kind == netUnreachable:
		return a.fail(monitor.CauseUnreachable, "%s cannot be reached: %s", a.to.host, p)
	}
	return a.unclear(monitor.CauseLocalNetwork, "nothing is known of %s: %s", a.to.host, p)
}
