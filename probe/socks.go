package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// The small part of SOCKS5 that a probe needs (RFC 1928, RFC 1929). It is not
// golang.org/x/net/proxy, because the reply's code decides the cause, and the
// phase in which the exchange ended whose fault it was; there, both are text.

// The words of SOCKS5 on the wire.
const (
	socksVersion     = 5
	socksNoAuth      = 0
	socksPassword    = 2
	socksNoMethod    = 0xff
	socksConnect     = 1
	socksIPv4        = 1
	socksName        = 3
	socksIPv6        = 4
	socksAuthVersion = 1
	// maxSocksName is the longest name that a request can hold.
	maxSocksName = 255
)

// proxyError is a connection that did not come about through a proxy. The text
// goes after "our proxy" and holds neither its address nor a credential: it may
// become evidence, which is public. It wraps nothing, so that an error of our
// connection to the proxy is never taken for one of the relay's.
type proxyError struct {
	kind netError // netLocal: the proxy's fault, or ours
	text string
	// timeout: it ended because no answer came in time.
	timeout bool
}

func (e *proxyError) Error() string { return "our proxy " + e.text }

// proxyKind is what an error means that is none of the system's: a proxy's word
// where it is one.
func proxyKind(err error) netError {
	if p, ok := errors.AsType[*proxyError](err); ok {
		return p.kind
	}
	return netUnknown
}

// socksReplies are what the codes of a refusal mean.
//
// netLocal is everything that a proxy says of itself. So is general failure (1),
// whatever was asked for: Tor answers it for a circuit that collapsed, for
// exhausted resources, and where it cannot attach a stream at all; a service
// without descriptor is host unreachable, one that does not answer TTL expired.
// Were it held against relays, a Tor client without network would declare all of
// its network dead; as it is, a relay that gets nothing but this answer stays as
// it was. The same goes for network unreachable (3), which is Tor's word for its
// own network, and not allowed (2).
//
// 0xF0 to 0xF7 are Tor's, where SocksPort has ExtendedErrors.
var socksReplies = map[byte]proxyError{
	1:    {kind: netLocal, text: "reports a general failure"},
	2:    {kind: netLocal, text: "does not allow the connection"},
	3:    {kind: netLocal, text: "has no network"},
	4:    {kind: netUnreachable, text: "says that the host is unreachable"},
	5:    {kind: netRefused, text: "says that the connection was refused"},
	6:    {kind: netTimeout, text: "gave up waiting (TTL expired)"},
	7:    {kind: netLocal, text: "does not support CONNECT"},
	8:    {kind: netLocal, text: "does not support this kind of address"},
	0xf0: {kind: netUnreachable, text: "did not find the onion service's descriptor"},
	0xf1: {kind: netUnreachable, text: "found an invalid descriptor of the onion service"},
	0xf2: {kind: netUnreachable, text: "could not be introduced to the onion service"},
	0xf3: {kind: netUnreachable, text: "could not meet the onion service"},
	0xf4: {kind: netRefused, text: "says that the onion service wants a client authorization"},
	0xf5: {kind: netRefused, text: "says that the onion service declined our client authorization"},
	0xf6: {kind: netUnreachable, text: "says that the onion address is invalid"},
	0xf7: {kind: netTimeout, text: "waited in vain to be introduced to the onion service"},
}

// target is what a proxy is asked to connect to: a name, or an address.
type target struct {
	name string
	ip   netip.Addr // valid: it is asked for, and name is not
	port uint16
}

// through connects to a target through a proxy, before ctx ends, which has a
// deadline. Every error is a *proxyError. Until the proxy was asked for the
// connection all is its own affair; that may take half of the time, so that the
// target has the other half at least.
func (c *Checker) through(ctx context.Context, p *Proxy, to target) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	conn, err := c.greet(ctx, p, time.Now().Add(time.Until(deadline)/2))
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	err = askSocks(conn, to)
	if !stop() && err == nil { // the watch has spoilt the deadline
		err = &proxyError{kind: netTimeout, text: "was too late", timeout: true}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// greet connects to a proxy and is accepted by it, at the latest at limit.
func (c *Checker) greet(ctx context.Context, p *Proxy, limit time.Time) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	var conn net.Conn
	var err error
	if c.cfg.Dial != nil {
		conn, err = c.cfg.Dial(ctx, "tcp", p.Address)
	} else {
		// Neither the guard nor the source address is about it: the operator
		// has named it, and it may well be on this machine.
		dialer := net.Dialer{KeepAlive: -1}
		conn, err = dialer.DialContext(ctx, "tcp", p.Address)
	}
	if err != nil {
		switch readNetError(err) {
		case netRefused:
			return nil, &proxyError{kind: netLocal, text: "refuses connections"}
		case netTimeout:
			return nil, &proxyError{kind: netLocal, text: "does not answer", timeout: true}
		default:
			return nil, &proxyError{kind: netLocal, text: "cannot be reached"}
		}
	}
	_ = conn.SetDeadline(limit)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	err = greetSocks(conn, p)
	if !stop() && err == nil {
		err = &proxyError{kind: netLocal, text: "does not answer", timeout: true}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// greetSocks offers what we can and, where it is asked for, says who we are.
func greetSocks(conn net.Conn, p *Proxy) error {
	hello := []byte{socksVersion, 1, socksNoAuth}
	if p.User != "" {
		hello = []byte{socksVersion, 2, socksNoAuth, socksPassword}
	}
	var answer [2]byte
	if err := exchange(conn, hello, answer[:], "the greeting"); err != nil {
		return err
	}
	switch {
	case answer[0] != socksVersion:
		return &proxyError{kind: netLocal, text: "does not speak SOCKS5"}
	case answer[1] == socksNoAuth:
		return nil
	case answer[1] == socksNoMethod && p.User == "":
		return &proxyError{kind: netLocal, text: "demands user and password, and has none of ours"}
	case answer[1] != socksPassword || p.User == "":
		return &proxyError{kind: netLocal, text: "wants a kind of authentication that we have not"}
	}
	who := append([]byte{socksAuthVersion, byte(len(p.User))}, p.User...)
	who = append(append(who, byte(len(p.Password))), p.Password...)
	if err := exchange(conn, who, answer[:], "the authentication"); err != nil {
		return err
	}
	if answer[1] != 0 {
		return &proxyError{kind: netLocal, text: "does not accept our user and password"}
	}
	return nil
}

// exchange writes a message and reads an answer of known length; all that goes
// wrong is the proxy's fault.
func exchange(conn net.Conn, msg, answer []byte, what string) error {
	_, err := conn.Write(msg)
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	switch {
	case err == nil:
		return nil
	case readNetError(err) == netTimeout:
		return &proxyError{kind: netLocal, text: "did not answer " + what, timeout: true}
	default:
		return &proxyError{kind: netLocal, text: "broke off during " + what}
	}
}

// askSocks asks for the connection. A proxy that stays silent is at work on it:
// that time is the target's. One that begins to answer and does not go on is
// broken.
func askSocks(conn net.Conn, to target) error {
	req := make([]byte, 0, 7+maxSocksName)
	req = append(req, socksVersion, socksConnect, 0)
	switch {
	case to.ip.Is4():
		b := to.ip.As4()
		req = append(append(req, socksIPv4), b[:]...)
	case to.ip.IsValid():
		b := to.ip.As16()
		req = append(append(req, socksIPv6), b[:]...)
	case to.name == "" || len(to.name) > maxSocksName:
		return &proxyError{kind: netUnreachable, text: "cannot be told a name that long"}
	default:
		req = append(append(req, socksName, byte(len(to.name))), to.name...)
	}
	req = append(req, byte(to.port>>8), byte(to.port))
	broken := func(err error) error {
		if readNetError(err) == netTimeout {
			return &proxyError{kind: netLocal, text: "answered half and then no more", timeout: true}
		}
		return &proxyError{kind: netLocal, text: "broke off instead of an answer"}
	}
	if _, err := conn.Write(req); err != nil {
		return broken(err)
	}
	// The longest reply: a name as the address that was bound.
	var buf [5 + maxSocksName + 2]byte
	if _, err := io.ReadFull(conn, buf[:1]); err != nil {
		if readNetError(err) == netTimeout {
			return &proxyError{kind: netTimeout, text: "had nothing to tell", timeout: true}
		}
		return broken(err)
	}
	if buf[0] != socksVersion {
		return &proxyError{kind: netLocal, text: "does not speak SOCKS5"}
	}
	if _, err := io.ReadFull(conn, buf[1:2]); err != nil {
		return broken(err)
	}
	if code := buf[1]; code != 0 {
		if e, ok := socksReplies[code]; ok {
			return &e
		}
		return &proxyError{kind: netLocal, text: fmt.Sprintf("answers with code %d, which says nothing", code)}
	}
	// What was bound is of no interest, but comes before the relay's bytes.
	if _, err := io.ReadFull(conn, buf[2:5]); err != nil {
		return broken(err)
	}
	rest := 0
	switch buf[3] {
	case socksIPv4:
		rest = 4 - 1 + 2 // one byte of the address is read
	case socksIPv6:
		rest = 16 - 1 + 2
	case socksName:
		rest = int(buf[4]) + 2
	default:
		return &proxyError{kind: netLocal, text: "does not speak SOCKS5"}
	}
	if _, err := io.ReadFull(conn, buf[5:5+rest]); err != nil {
		return broken(err)
	}
	return nil
}

// ReachProxy reports whether the proxy of a network is there and accepts us, at
// the latest at the limit of the tcp stage: nil where it does, and where the
// network needs none. Nothing is asked for through it.
func (c *Checker) ReachProxy(ctx context.Context, n monitor.Network) error {
	if networkIndex(n) < 0 {
		return fmt.Errorf("%w network %q", monitor.ErrInvalid, n)
	}
	w := c.wayTo(n)
	switch {
	case !w.open:
		return fmt.Errorf("reach %s: there is no proxy for it", n)
	case w.proxy == nil:
		return nil
	}
	conn, err := c.greet(ctx, w.proxy, time.Now().Add(c.cfg.Timeouts.TCP))
	if err != nil {
		return fmt.Errorf("reach %s through %s: %w", n, w.proxy.Address, err)
	}
	conn.Close()
	return nil
}
