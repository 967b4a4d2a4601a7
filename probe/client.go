package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// DialContext connects to host:port as a probe would, for others that ask
// strangers' hosts something: the name is resolved and every address judged by
// the dial guard, both families are tried (happy eyeballs), names of Tor, I2P
// and Lokinet go to their proxies. network is tcp, tcp4 or tcp6. It ends with
// ctx, at the latest at the limits of the dns and the tcp stage. A name that
// leads only where the guard forbids is an error, and no packet is sent.
func (c *Checker) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialHost(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return conn, nil
}

func (c *Checker) dialHost(ctx context.Context, network, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w address: write it as HOST:PORT", monitor.ErrInvalid)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("%w address: write it as HOST:PORT", monitor.ErrInvalid)
	}
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil, fmt.Errorf("%w network %q: it is tcp, tcp4 or tcp6", monitor.ErrInvalid, network)
	}
	var addrs []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{ip}
	} else {
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		n := monitor.RelayURL("ws://" + host + "/").Network()
		if w := c.wayTo(n); n != monitor.Clearnet {
			if !w.open {
				return nil, fmt.Errorf("there is no proxy for %s", n)
			}
			ctx, cancel := context.WithTimeout(ctx, w.widened(monitor.StageTCP, c.cfg.Timeouts.TCP))
			defer cancel()
			return c.through(ctx, w.proxy, target{name: host, port: uint16(port)})
		}
		rctx, cancel := context.WithTimeout(ctx, c.cfg.Timeouts.DNS)
		a := c.resolver.resolve(rctx, host)
		cancel()
		switch {
		case a.err != nil:
			return nil, a.err
		case len(a.addrs) == 0:
			return nil, errors.New("the name has no address")
		}
		addrs = a.addrs
	}
	usable, why := c.usable(addrs)
	to := make([]netip.AddrPort, 0, len(usable))
	for _, ip := range usable {
		if network == "tcp" || (network == "tcp4") == ip.Is4() {
			to = append(to, netip.AddrPortFrom(ip, uint16(port)))
		}
	}
	switch {
	case len(usable) == 0:
		return nil, why
	case len(to) == 0:
		return nil, errors.New("the name has no address of that family")
	}
	d, failed := c.connect(ctx, to, time.Now().Add(c.cfg.Timeouts.TCP), nil)
	if d.conn != nil {
		return d.conn, nil
	}
	errs := make([]error, len(failed))
	for i, f := range failed {
		errs[i] = f.err
	}
	return nil, errors.Join(errs...)
}

// HTTPClient returns a client whose connections are DialContext's: guarded,
// verified against the checker's roots, HTTP/1.1 only, so that a WebSocket can
// be opened with it. It takes no proxy from the environment, follows no
// redirect (the response is returned as it is), keeps no connection, reads no
// head larger than 64 KB, and waits for one as long as a probe would. How long
// the body may take, and how long it may be, is the caller's affair.
func (c *Checker) HTTPClient() *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            c.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: c.roots, NextProtos: http11},
		Protocols:              &protocols,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHead,
	}
	for _, w := range c.ways {
		if w.open {
			t.TLSHandshakeTimeout = max(t.TLSHandshakeTimeout, w.widened(monitor.StageTLS, c.cfg.Timeouts.TLS))
			t.ResponseHeaderTimeout = max(t.ResponseHeaderTimeout, w.widened(monitor.StageUpgrade, c.cfg.Timeouts.Upgrade))
		}
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
