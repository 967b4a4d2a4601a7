package relaytest

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Piped is a relay without a port: its connections are in memory, with the
// buffers, ends and resets that TCP has. Under testing/synctest no time passes
// but that which somebody waits for, so that limits can be held to the
// microsecond.
type Piped struct {
	r        *Relay
	s        *session
	received atomic.Int64
}

// Pipe makes a piped relay that ends with the test; under synctest, with the
// bubble in which it must be made and dialled. Options.Addr is the address that
// its certificates are for; it need not be loopback.
func Pipe(tb testing.TB, o Options) *Piped {
	tb.Helper()
	o.fill()
	addr, err := netip.ParseAddrPort(o.Addr)
	if err != nil {
		tb.Fatalf("piped relay at %q: %v", o.Addr, err)
	}
	r := &Relay{opt: o, addr: addr, done: make(chan struct{}), conns: make(map[net.Conn]struct{}), wg: new(sync.WaitGroup)}
	r.Behave(o.Behaviour)
	p := &Piped{r: r, s: &session{r: r, done: r.done}}
	if o.TLS {
		p.s.tls = serverConfig(r)
	}
	tb.Cleanup(func() {
		close(r.done)
		r.mu.Lock()
		for c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return p
}

// Dial opens a connection; its arguments say nothing. It fits probe.Config.
func (p *Piped) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := connect(p.r.addr, &p.received)
	p.r.connections.Add(1)
	p.r.mu.Lock()
	p.r.conns[server] = struct{}{}
	p.r.mu.Unlock()
	p.r.wg.Go(func() {
		p.s.serve(server)
		server.Close()
		p.r.mu.Lock()
		delete(p.r.conns, server)
		p.r.mu.Unlock()
	})
	return client, nil
}

// Counters returns what was counted so far.
func (p *Piped) Counters() Counters { return p.r.Counters() }

// Received is how many bytes the dialling side has read of the relay, TLS
// included.
func (p *Piped) Received() int64 { return p.received.Load() }

// window is how much one side can write before the other reads.
const window = 64 << 10

// pipe is a connection in memory.
type pipe struct {
	mu     sync.Mutex
	change sync.Cond // broadcast when anything below changes, or a deadline passes
	ends   [2]pipeEnd
}

// pipeEnd is one side of a pipe.
type pipeEnd struct {
	p        *pipe
	peer     *pipeEnd
	addr     net.Addr
	received *atomic.Int64 // by Read; nil = not counted

	// The pipe's mu guards what follows.
	in          []byte // not yet read
	closed      bool
	ended       bool // by the peer, in order
	reset       bool // by the peer
	linger      bool // closing resets the peer
	read, write deadline
}

// deadline is one that wakes who waits.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(at time.Time, wake func()) {
	d.stop()
	if d.at = at; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), wake)
	}
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) over() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// connect makes a pipe.
func connect(addr netip.AddrPort, received *atomic.Int64) (client, server *pipeEnd) {
	p := new(pipe)
	p.change.L = &p.mu
	client, server = &p.ends[0], &p.ends[1]
	*client = pipeEnd{p: p, peer: server, addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)), received: received}
	*server = pipeEnd{p: p, peer: client, addr: net.TCPAddrFromAddrPort(addr)}
	return client, server
}

func (e *pipeEnd) wake() {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.change.Broadcast()
}

func (e *pipeEnd) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "pipe", Source: e.addr, Addr: e.peer.addr, Err: err}
}

// Read returns what came before the peer's end or reset first, as Linux does.
func (e *pipeEnd) Read(b []byte) (int, error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	for {
		switch {
		case e.closed:
			return 0, e.fail("read", net.ErrClosed)
		case e.read.over():
			return 0, e.fail("read", os.ErrDeadlineExceeded)
		case len(e.in) > 0:
			n := copy(b, e.in)
			e.in = e.in[n:]
			if e.received != nil {
				e.received.Add(int64(n))
			}
			e.p.change.Broadcast()
			return n, nil
		case e.ended: // even where a write has brought a reset since
			return 0, io.EOF
		case e.reset:
			return 0, e.fail("read", os.NewSyscallError("read", syscall.ECONNRESET))
		}
		e.p.change.Wait()
	}
}

// Write waits for room at the peer. What a closed peer is sent resets the
// connection.
func (e *pipeEnd) Write(b []byte) (n int, err error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	for {
		switch {
		case e.closed:
			return n, e.fail("write", net.ErrClosed)
		case e.write.over():
			return n, e.fail("write", os.ErrDeadlineExceeded)
		case e.reset:
			return n, e.fail("write", os.NewSyscallError("write", syscall.EPIPE))
		case e.peer.closed:
			e.reset = true
			e.p.change.Broadcast()
			return len(b), nil
		case len(b) == n:
			return n, nil
		case len(e.peer.in) < window:
			k := min(len(b)-n, window-len(e.peer.in))
			e.peer.in = append(e.peer.in, b[n:n+k]...)
			n += k
			e.p.change.Broadcast()
			continue
		}
		e.p.change.Wait()
	}
}

// Close ends the connection; with SetLinger(0), or where something was not read,
// it resets it.
func (e *pipeEnd) Close() error {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.closed {
		return e.fail("close", net.ErrClosed)
	}
	e.closed = true
	if e.linger || len(e.in) > 0 {
		e.peer.reset = true
	} else {
		e.peer.ended = true
	}
	e.in = nil
	e.read.stop()
	e.write.stop()
	e.p.change.Broadcast()
	return nil
}

// SetLinger is net.TCPConn's.
func (e *pipeEnd) SetLinger(sec int) error {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.linger = sec == 0
	return nil
}

func (e *pipeEnd) LocalAddr() net.Addr  { return e.addr }
func (e *pipeEnd) RemoteAddr() net.Addr { return e.peer.addr }

func (e *pipeEnd) SetDeadline(t time.Time) error { return e.deadlines(t, &e.read, &e.write) }

func (e *pipeEnd) SetReadDeadline(t time.Time) error { return e.deadlines(t, &e.read) }

func (e *pipeEnd) SetWriteDeadline(t time.Time) error { return e.deadlines(t, &e.write) }

func (e *pipeEnd) deadlines(t time.Time, ds ...*deadline) error {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.closed {
		return e.fail("set", net.ErrClosed)
	}
	for _, d := range ds {
		d.set(t, e.wake)
	}
	e.p.change.Broadcast()
	return nil
}
