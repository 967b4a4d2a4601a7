package relaytest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Options says how a relay is to be. The zero value is a healthy ws relay on
// 127.0.0.1 and a free port.
type Options struct {
	Behaviour Behaviour // 0 = Healthy
	TLS       bool      // wss, with a certificate of CA
	// Addr is where it listens, within 127.0.0.0/8; "" = 127.0.0.1:0.
	Addr string
	// Slow is the delay of Slow and SlowEOSE; 0 = 2 s. Drip is the time
	// between the bytes of Drip; 0 = 200 ms.
	Slow, Drip time.Duration
	// RTT is how far away the relay plays to be: it waits that long after accept,
	// before its TLS flight and before each reply. So a ws relay opens in 2 × RTT,
	// a wss one in 3 ×, and answers a REQ in 1 ×.
	RTT time.Duration
	// Info is the NIP-11 document; "" = InfoDocument.
	Info string
	// RedirectTo is the Location of Redirect and InfoMoved.
	RedirectTo string
	// Script, when set, is all that happens on a connection, after the TLS
	// handshake; the connection is closed when it returns.
	Script func(net.Conn)
}

// fill puts in what zero values stand for.
func (o *Options) fill() {
	if o.Behaviour == 0 {
		o.Behaviour = Healthy
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Slow == 0 {
		o.Slow = 2 * time.Second
	}
	if o.Drip == 0 {
		o.Drip = 200 * time.Millisecond
	}
	if o.Info == "" {
		o.Info = InfoDocument
	}
}

// Counters count since the relay was made.
type Counters struct {
	Connections int64 // accepted
	Upgrades    int64 // answered with 101
	Infos       int64 // NIP-11 requests
	Requests    int64 // REQ messages
	Closes      int64 // CLOSE messages
	Pongs       int64 // pong frames
	Written     int64 // bytes that the relay could write, before TLS
}

// Relay is one relay. It is safe for concurrent use.
type Relay struct {
	opt       Options
	addr      netip.AddrPort
	behaviour atomic.Uint32
	cutOff    atomic.Pointer[netip.Addr]

	connections, upgrades, infos, requests, closes, pongs, written atomic.Int64

	mu       sync.Mutex
	listener net.Listener
	done     chan struct{} // closed by Stop
	conns    map[net.Conn]struct{}
	wg       *sync.WaitGroup
}

// New starts a relay; the caller stops it.
func New(o Options) (*Relay, error) {
	o.fill()
	addr, err := netip.ParseAddrPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("relay at %q: %w", o.Addr, err)
	}
	if !addr.Addr().Is4() || !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("relay at %s: it must be within 127.0.0.0/8", addr)
	}
	r := &Relay{opt: o, addr: addr}
	r.Behave(o.Behaviour)
	return r, r.Restart()
}

// Start starts a relay that stops with the test.
func Start(tb testing.TB, o Options) *Relay {
	tb.Helper()
	r, err := New(o)
	if err != nil {
		tb.Fatalf("start a relay: %v", err)
	}
	tb.Cleanup(r.Stop)
	return r
}

// given counts the addresses that StartMany gave out.
var given atomic.Uint32

// StartMany starts n relays alike on n addresses, one after the other from
// o.Addr (port 0 = a free one each); "" = addresses that no other call of this
// process got.
func StartMany(tb testing.TB, n int, o Options) []*Relay {
	tb.Helper()
	first := netip.MustParseAddrPort("127.64.0.1:0")
	skip := uint32(0)
	if o.Addr == "" {
		skip = given.Add(uint32(n)) - uint32(n)
	} else {
		first = netip.MustParseAddrPort(o.Addr)
	}
	relays := make([]*Relay, n)
	for i := range relays {
		o.Addr = netip.AddrPortFrom(offset(first.Addr(), skip+uint32(i)), first.Port()).String()
		relays[i] = Start(tb, o)
	}
	return relays
}

// offset is the n-th address after a, leaving out those that end in 0 or 255.
func offset(a netip.Addr, n uint32) netip.Addr {
	b := a.As4()
	i := uint32(b[1])<<16 | uint32(b[2])<<8
	last := uint32(b[3]) - 1 + n
	i += last / 254 << 8
	return netip.AddrFrom4([4]byte{127, byte(i >> 16), byte(i >> 8), byte(last%254 + 1)})
}

// Addr is where the relay listens, or did before Stop.
func (r *Relay) Addr() netip.AddrPort { return r.addr }

// URL is the relay's URL.
func (r *Relay) URL() monitor.RelayURL {
	scheme := "ws"
	if r.opt.TLS {
		scheme = "wss"
	}
	return monitor.RelayURL(scheme + "://" + r.addr.String() + "/")
}

// Behave switches the behaviour of connections that come from now on.
func (r *Relay) Behave(b Behaviour) { r.behaviour.Store(uint32(b)) }

// CutOff cuts one client address off: its connections are reset as soon as
// they stand, as by a firewall between them. The zero Addr cuts nobody off.
func (r *Relay) CutOff(client netip.Addr) { r.cutOff.Store(&client) }

// Counters returns what was counted so far.
func (r *Relay) Counters() Counters {
	return Counters{
		Connections: r.connections.Load(), Upgrades: r.upgrades.Load(), Infos: r.infos.Load(), Requests: r.requests.Load(),
		Closes: r.closes.Load(), Pongs: r.pongs.Load(), Written: r.written.Load(),
	}
}

// Stop closes the port and all connections, and waits until they have ended.
// The port is then closed: it refuses connections.
func (r *Relay) Stop() {
	r.mu.Lock()
	if r.listener == nil {
		r.mu.Unlock()
		return
	}
	close(r.done)
	_ = r.listener.Close()
	r.listener = nil
	for c := range r.conns {
		c.Close()
	}
	wg := r.wg
	r.mu.Unlock()
	wg.Wait()
}

// Restart listens again on the same port after Stop.
func (r *Relay) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener != nil {
		return errors.New("the relay runs already")
	}
	lc := net.ListenConfig{KeepAlive: -1}
	l, err := lc.Listen(context.Background(), "tcp4", r.addr.String())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	r.addr = l.Addr().(*net.TCPAddr).AddrPort()
	r.listener, r.done, r.conns, r.wg = l, make(chan struct{}), make(map[net.Conn]struct{}), new(sync.WaitGroup)
	s := &session{r: r, done: r.done}
	if r.opt.TLS {
		s.tls = serverConfig(r)
	}
	wg := r.wg
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed by Stop; nothing else ends it on loopback
			}
			r.connections.Add(1)
			r.mu.Lock()
			if r.done != s.done || r.listener == nil {
				r.mu.Unlock()
				c.Close()
				return
			}
			conns := r.conns
			conns[c] = struct{}{}
			wg.Go(func() {
				s.serve(c)
				c.Close()
				r.mu.Lock()
				delete(conns, c)
				r.mu.Unlock()
			})
			r.mu.Unlock()
		}
	})
	return nil
}

// session is one run of a relay, from Restart to Stop.
type session struct {
	r    *Relay
	done <-chan struct{}
	tls  *tls.Config
}

// pause waits, and reports false when the relay was stopped meanwhile.
func (s *session) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

// trip takes one round trip.
func (s *session) trip() bool { return s.r.opt.RTT == 0 || s.pause(s.r.opt.RTT) }

// BlackHole returns an address that answers no connection attempt: its accept
// queue is full, so the kernel drops further ones.
func BlackHole(tb testing.TB) netip.AddrPort {
	tb.Helper()
	addr, stop, err := blackHole()
	if err != nil {
		tb.Fatalf("open a black hole: %v", err)
	}
	tb.Cleanup(stop)
	return addr
}

// ClosedPort returns an address that refuses connections.
func ClosedPort(tb testing.TB) netip.AddrPort {
	tb.Helper()
	r := Start(tb, Options{})
	r.Stop()
	return r.Addr()
}
