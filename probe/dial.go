package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// attemptDelay is after how long the next address is tried beside one that
	// has not answered (RFC 8305, 5).
	attemptDelay = 250 * time.Millisecond
	// maxAddresses are tried of one name.
	maxAddresses = 4
)

// errBlocked is what the dial guard answers.
var errBlocked = errors.New("the address is not public")

// guard refuses addresses that are not public (relay-url.md). It is the
// dialer's Control: nothing can change between it and connect.
func (c *Checker) guard(_, address string, raw syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address to dial: %w", err)
	}
	if !c.permitted(a.Addr()) {
		return errBlocked
	}
	if c.dialer.LocalAddr != nil {
		return lateBind(raw)
	}
	return nil
}

func (c *Checker) permitted(a netip.Addr) bool {
	return monitor.PublicAddress(a, c.cfg.AllowNetworks...)
}

// usable returns those of the addresses that may be dialled, the families in
// turn, IPv6 first, at most maxAddresses of them. When there is none, why says
// which way the last one was lost.
func (c *Checker) usable(addrs []netip.Addr) (out []netip.Addr, why error) {
	var families [2][]netip.Addr
	why = errBlocked
	for _, a := range addrs {
		a = a.Unmap()
		if !c.permitted(a) {
			continue
		}
		if s := c.cfg.SourceAddress; s.IsValid() && c.cfg.Proxy == nil && s.Unmap().Is4() != a.Is4() {
			why = errFamily
			continue
		}
		i := 0
		if a.Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	for i := 0; len(out) < maxAddresses && (i < len(families[0]) || i < len(families[1])); i++ {
		for _, f := range families {
			if i < len(f) && len(out) < maxAddresses {
				out = append(out, f[i])
			}
		}
	}
	return out, why
}

var errFamily = errors.New("the source address is of the other family")

// dialled is one attempt to connect.
type dialled struct {
	conn net.Conn
	addr netip.AddrPort
	err  error
	took time.Duration
}

// dialStep is what there is to tell of an attempt to connect.
type dialStep uint8

const (
	dialBegins dialStep = iota
	dialEnds
	dialTooLate // another has succeeded before
)

// connect opens a TCP connection to the first of the addresses that answers
// before the deadline (happy eyeballs). When none does, all the attempts are
// returned, in the order in which they ended. report, when not nil, is told of
// each.
func (c *Checker) connect(ctx context.Context, addrs []netip.AddrPort, deadline time.Time, report func(dialled, dialStep)) (dialled, []dialled) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if len(addrs) == 1 {
		if report != nil {
			report(dialled{addr: addrs[0]}, dialBegins)
		}
		d := c.dial(ctx, addrs[0])
		if report != nil {
			report(d, dialEnds)
		}
		if d.err != nil {
			return dialled{}, []dialled{d}
		}
		return d, nil
	}
	results := make(chan dialled, len(addrs))
	next := 0
	start := func() {
		addr := addrs[next]
		next++
		if report != nil {
			report(dialled{addr: addr}, dialBegins)
		}
		go func() { results <- c.dial(ctx, addr) }()
	}
	start()
	timer := time.NewTimer(attemptDelay)
	defer timer.Stop()
	var failed []dialled
	for len(failed) < next {
		select {
		case <-timer.C:
			if next < len(addrs) {
				start()
				timer.Reset(attemptDelay)
			}
		case d := <-results:
			if report != nil {
				report(d, dialEnds)
			}
			if d.err != nil {
				failed = append(failed, d)
				if next < len(addrs) && ctx.Err() == nil {
					start()
					timer.Reset(attemptDelay)
				}
				continue
			}
			cancel()
			for i := len(failed) + 1; i < next; i++ { // the losers, which end now
				late := <-results
				if late.conn != nil {
					late.conn.Close()
				}
				if report != nil {
					report(late, dialTooLate)
				}
			}
			return d, nil
		}
	}
	return dialled{}, failed
}

func (c *Checker) dial(ctx context.Context, addr netip.AddrPort) dialled {
	start := time.Now()
	d := dialled{addr: addr}
	switch {
	case !c.permitted(addr.Addr()):
		d.err = errBlocked
	case c.cfg.Proxy != nil:
		d.conn, d.err = c.through(ctx, c.cfg.Proxy, target{ip: addr.Addr(), port: addr.Port()})
	case c.cfg.Dial != nil:
		d.conn, d.err = c.cfg.Dial(ctx, "tcp", addr.String())
	default:
		d.conn, d.err = c.dialer.DialContext(ctx, "tcp", addr.String())
	}
	d.took = time.Since(start)
	return d
}

// netError is what an error of the network means.
type netError uint8

const (
	netUnknown netError = iota
	netLocal            // ours: says nothing about the peer
	netUnreachable
	netTimeout
	netRefused
	netClosed // in order, but too early
	netReset
	netBlocked
	netOversized
)

// readNetError tells what an error of a dial, read or write means.
func readNetError(err error) netError {
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.Is(err, errBlocked):
		return netBlocked
	case errors.Is(err, errBudget), errors.Is(err, errHead), errors.Is(err, errBody), errors.Is(err, errTooLarge):
		return netOversized
	case isClosed(err):
		return netClosed
	case errors.As(err, &errno):
		switch errno {
		case syscall.ECONNREFUSED:
			return netRefused
		case syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED:
			return netReset
		case syscall.ETIMEDOUT:
			return netTimeout
		case syscall.EHOSTUNREACH, syscall.EHOSTDOWN:
			return netUnreachable
		default: // descriptors, ports, memory, routes, permissions: all ours
			return netLocal
		}
	case errors.As(err, &timeout) && timeout.Timeout():
		return netTimeout
	}
	return proxyKind(err)
}
