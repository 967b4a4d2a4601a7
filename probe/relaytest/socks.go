package relaytest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// SOCKSBehaviour is how a SOCKS5 proxy misbehaves; the zero value does not.
type SOCKSBehaviour uint8

// The behaviours.
const (
	SOCKSHealthy         SOCKSBehaviour = iota
	SOCKSCloses                         // as soon as a connection stands
	SOCKSResets                         // with a RST, as soon as it stands
	SOCKSStalls                         // never answers the greeting
	SOCKSGarbage                        // answers the greeting in HTTP
	SOCKSHalfGreeting                   // one byte of the answer, then silence
	SOCKSNoMethod                       // accepts none of the methods
	SOCKSOddMethod                      // chooses one that was not offered
	SOCKSStallsAuth                     // never answers user and password
	SOCKSClosesAuth                     // closes instead of that answer
	SOCKSRejects                        // declines every user
	SOCKSStallsReply                    // never answers the request
	SOCKSClosesReply                    // closes instead of that answer
	SOCKSResetsReply                    // resets instead of it
	SOCKSGarbageReply                   // answers the request in HTTP
	SOCKSHalfReply                      // success without the bound address, then silence
	SOCKSHalfReplyCloses                // the same, then closes
	SOCKSOddReply                       // success with an unknown kind of address
	SOCKSBoundName                      // success with a name of 255 bytes as bound address
	SOCKSBoundIPv6                      // success with an IPv6 address as that
	SOCKSDrips                          // every answer byte by byte
)

// SOCKSOptions says how a proxy is to be.
type SOCKSOptions struct {
	Behaviour SOCKSBehaviour
	// Code is the reply to every request; 0 = success where the target can be
	// reached.
	Code byte
	// User and Password are demanded where User is set.
	User, Password string
	// Names are where names lead, in lower case; the port asked for does not
	// matter. Others are answered with host unreachable.
	Names map[string]netip.AddrPort
}

// SOCKSCounters count since the proxy was started.
type SOCKSCounters struct {
	Connections int64 // accepted
	Greetings   int64 // read
	Logins      int64 // users and passwords that were right
	Requests    int64 // for a connection
	Relayed     int64 // connections to a target that stood
}

// SOCKS is a SOCKS5 proxy on 127.0.0.1 for CONNECT. It connects within loopback
// alone. It is safe for concurrent use.
type SOCKS struct {
	opt       SOCKSOptions
	addr      netip.AddrPort
	behaviour atomic.Uint32
	code      atomic.Uint32

	connections, greetings, logins, requests, relayed atomic.Int64

	mu       sync.Mutex
	asked    []string
	listener net.Listener
	conns    map[net.Conn]struct{}
	wg       *sync.WaitGroup
}

// StartSOCKS starts a proxy that stops with the test.
func StartSOCKS(tb testing.TB, o SOCKSOptions) *SOCKS {
	tb.Helper()
	s := &SOCKS{opt: o, addr: netip.MustParseAddrPort("127.0.0.1:0")}
	s.Behave(o.Behaviour)
	s.Answer(o.Code)
	if err := s.Restart(); err != nil {
		tb.Fatalf("start a SOCKS5 proxy: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Addr is where the proxy listens, or did before Stop.
func (s *SOCKS) Addr() netip.AddrPort { return s.addr }

// Behave switches the behaviour of connections that come from now on.
func (s *SOCKS) Behave(b SOCKSBehaviour) { s.behaviour.Store(uint32(b)) }

// Answer switches the code of replies from now on, as SOCKSOptions.Code.
func (s *SOCKS) Answer(code byte) { s.code.Store(uint32(code)) }

// Asked are the targets that were asked for, in order, as "name x.onion:80" or
// "ip 127.0.0.1:80".
func (s *SOCKS) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// Counters returns what was counted so far.
func (s *SOCKS) Counters() SOCKSCounters {
	return SOCKSCounters{
		Connections: s.connections.Load(), Greetings: s.greetings.Load(), Logins: s.logins.Load(),
		Requests: s.requests.Load(), Relayed: s.relayed.Load(),
	}
}

// Stop closes the port and all connections, those to targets too, and waits
// until they have ended. The port is then closed.
func (s *SOCKS) Stop() {
	s.mu.Lock()
	if s.listener == nil {
		s.mu.Unlock()
		return
	}
	_ = s.listener.Close()
	s.listener = nil
	for c := range s.conns {
		c.Close()
	}
	wg := s.wg
	s.mu.Unlock()
	wg.Wait()
}

// Restart listens again on the same port after Stop.
func (s *SOCKS) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return errors.New("the proxy runs already")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp4", s.addr.String())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.addr = l.Addr().(*net.TCPAddr).AddrPort()
	s.listener, s.conns, s.wg = l, make(map[net.Conn]struct{}), new(sync.WaitGroup)
	wg := s.wg
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed by Stop; nothing else ends it on loopback
			}
			s.connections.Add(1)
			if !s.keep(l, c) {
				return
			}
			wg.Go(func() {
				defer s.drop(c)
				s.serve(l, c.(*net.TCPConn))
			})
		}
	})
	return nil
}

// keep notes a connection for Stop, and closes it where that was called.
func (s *SOCKS) keep(l net.Listener, c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != l {
		c.Close()
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *SOCKS) drop(c net.Conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// serve takes one connection from its greeting to its end.
func (s *SOCKS) serve(l net.Listener, c *net.TCPConn) {
	b := SOCKSBehaviour(s.behaviour.Load())
	hang := func() { _, _ = io.Copy(io.Discard, c) }
	reset := func() { _ = c.SetLinger(0) }
	write := func(p ...byte) {
		if b != SOCKSDrips {
			_, _ = c.Write(p)
			return
		}
		for i := range p {
			_, _ = c.Write(p[i : i+1])
		}
	}
	switch b {
	case SOCKSCloses:
		return
	case SOCKSResets:
		reset()
		return
	default:
	}
	methods, ok := greeting(c)
	if !ok {
		return
	}
	s.greetings.Add(1)
	method := byte(0)
	if s.opt.User != "" {
		method = 2
	}
	switch {
	case b == SOCKSStalls:
		hang()
		return
	case b == SOCKSGarbage:
		write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...)
		return
	case b == SOCKSHalfGreeting:
		write(5)
		hang()
		return
	case b == SOCKSOddMethod:
		method = 1
	case b == SOCKSNoMethod || !strings.Contains(string(methods), string(rune(method))):
		write(5, 0xff)
		return
	}
	write(5, method)
	if method == 2 && !s.login(c, b, write, hang) {
		return
	}
	to, ok := s.request(c)
	if !ok {
		return
	}
	s.requests.Add(1)
	switch b {
	case SOCKSStallsReply:
		hang()
		return
	case SOCKSClosesReply:
		return
	case SOCKSResetsReply:
		reset()
		return
	case SOCKSGarbageReply:
		write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")...)
		return
	default:
	}
	bound := []byte{1, 0, 0, 0, 0, 0, 0}
	code := byte(s.code.Load())
	var out net.Conn
	if code == 0 {
		out, code = dialTarget(to)
	}
	if code != 0 {
		write(append([]byte{5, code, 0}, bound...)...)
		return
	}
	defer s.drop(out)
	if !s.keep(l, out) {
		return
	}
	s.relayed.Add(1)
	switch b {
	case SOCKSHalfReply:
		write(5, 0, 0, 1)
		hang()
		return
	case SOCKSHalfReplyCloses:
		write(5, 0, 0, 1)
		return
	case SOCKSOddReply:
		bound[0] = 9
	case SOCKSBoundName:
		bound = append([]byte{3, 255}, strings.Repeat("x", 255)+"\x00\x50"...)
	case SOCKSBoundIPv6:
		bound = append([]byte{4}, make([]byte, 18)...)
	default:
	}
	write(append([]byte{5, 0, 0}, bound...)...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, c)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, out)
	_ = c.CloseWrite()
	<-done
}

// greeting reads the methods that are offered.
func greeting(c net.Conn) ([]byte, bool) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != 5 {
		return nil, false
	}
	methods := make([]byte, head[1])
	_, err := io.ReadFull(c, methods)
	return methods, err == nil
}

// login reads user and password and answers.
func (s *SOCKS) login(c net.Conn, b SOCKSBehaviour, write func(...byte), hang func()) bool {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != 1 {
		return false
	}
	user := make([]byte, int(head[1])+1)
	if _, err := io.ReadFull(c, user); err != nil {
		return false
	}
	password := make([]byte, user[len(user)-1])
	if _, err := io.ReadFull(c, password); err != nil {
		return false
	}
	switch {
	case b == SOCKSStallsAuth:
		hang()
		return false
	case b == SOCKSClosesAuth:
		return false
	case b == SOCKSRejects || string(user[:len(user)-1]) != s.opt.User || string(password) != s.opt.Password:
		write(1, 1)
		return false
	}
	s.logins.Add(1)
	write(1, 0)
	return true
}

// request reads what is asked for; the zero AddrPort is nothing that is known.
func (s *SOCKS) request(c net.Conn) (to netip.AddrPort, ok bool) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != 5 || head[1] != 1 || head[2] != 0 {
		return to, false
	}
	size := 4
	switch head[3] {
	case 1:
	case 3:
		var n [1]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return to, false
		}
		size = int(n[0])
	case 4:
		size = 16
	default:
		return to, false
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(c, rest); err != nil {
		return to, false
	}
	port := binary.BigEndian.Uint16(rest[size:])
	var asked string
	if head[3] == 3 {
		name := string(rest[:size])
		to = s.opt.Names[strings.ToLower(name)]
		asked = "name " + name + ":" + strconv.Itoa(int(port))
	} else {
		ip, _ := netip.AddrFromSlice(rest[:size])
		to = netip.AddrPortFrom(ip, port)
		asked = "ip " + to.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
	return to, true
}

// dialTarget connects within loopback, or says why not in a reply's code.
func dialTarget(to netip.AddrPort) (net.Conn, byte) {
	if !to.IsValid() {
		return nil, 4
	}
	if !to.Addr().IsLoopback() {
		return nil, 2
	}
	var d net.Dialer
	c, err := d.DialContext(context.Background(), "tcp", to.String())
	if err != nil {
		return nil, 5
	}
	return c, 0
}
