package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	maxMessage = 512 << 10 // bytes of one message of a client
	// messageTime bounds one message, from its first byte to its last.
	messageTime = 30 * time.Second
	// idleTime is how long a connection may be silent; khatru pings every 30 s.
	idleTime = 75 * time.Second
	// writeTime bounds each write of at most about chunk bytes.
	writeTime = 10 * time.Second
	chunk     = 64 << 10
	// maxQueue is how many live events may wait for one connection; each takes
	// two words, its bytes are shared. It has room for the whole set appearing
	// at once, twice over (15 000 reports, and half a minute of writing them).
	maxQueue = 32768
)

var (
	errClosing = errors.New("connection is closing")
	errTooBig  = errors.New("message is too large")
)

// conn is one client's connection as khatru sees it. Its Read keeps the
// messages for itself, answering them, and hands on control frames only; its
// Write takes turns with what the relay sends by itself.
type conn struct {
	net.Conn
	relay   *Relay
	addr    netip.Addr // of the client
	visitor *visitor   // the same, for its limits

	// Reading: only khatru's reading goroutine.
	in        *bufio.Reader
	leftover  []byte    // what the HTTP server had read ahead
	control   []byte    // a control frame on its way to khatru
	message   []byte    // the message so far
	began     time.Time // when it began; zero = no message under way
	fragments bool      // between the frames of one message

	// turn is held while a frame, or an answer of several, is written.
	turn   chan struct{}
	closed bool // a close frame was sent; guarded by turn

	mu       sync.Mutex
	subs     map[string]*subscription
	queue    []live
	flushing bool
	dropped  bool // the queue overflowed
	gone     bool
}

// subscription is one open REQ.
type subscription struct {
	prefix  []byte // ["EVENT","id",
	filters []filter
	version uint64 // of the index that it was answered from
	blank   bool   // answered while the list was hidden; guarded by conn.mu
	over    atomic.Bool
}

// live is an event that waits for its turn.
type live struct {
	sub *subscription
	ev  *event
}

func newConn(c net.Conn, ahead []byte, r *Relay, addr netip.Addr, v *visitor) *conn {
	out := &conn{Conn: c, relay: r, addr: addr, visitor: v, leftover: ahead, turn: make(chan struct{}, 1), subs: map[string]*subscription{}}
	out.in = bufio.NewReaderSize(rawReader{out}, 2048)
	return out
}

// khatru's deadlines are not taken over: it sets none for writes, and its read
// deadline would end a client that takes long to read one answer.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// rawReader reads from the socket, each time with a deadline.
type rawReader struct{ c *conn }

func (r rawReader) Read(p []byte) (int, error) {
	c := r.c
	if len(c.leftover) > 0 {
		n := copy(p, c.leftover)
		if c.leftover = c.leftover[n:]; len(c.leftover) == 0 {
			c.leftover = nil
		}
		return n, nil
	}
	deadline := time.Now().Add(idleTime)
	if !c.began.IsZero() {
		deadline = c.began.Add(messageTime)
	}
	if err := c.Conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Read gives khatru control frames as they came, and answers everything else
// on the way. A panic while answering ends this connection only.
func (c *conn) Read(p []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.relay.log.Error("answering a client panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			n, err = 0, c.fail(closeOurFailure, "internal error", errors.New("panic"))
		}
	}()
	for len(c.control) == 0 {
		if err := c.frame(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.control)
	c.control = c.control[n:]
	return n, nil
}

// frame reads one frame, and answers the message that it completes.
func (c *conn) frame() error {
	var head [14]byte
	if _, err := io.ReadFull(c.in, head[:2]); err != nil {
		return err
	}
	if c.began.IsZero() {
		c.began = time.Now()
	}
	fin, opcode, n := head[0]&finBit != 0, head[0]&0x0f, uint64(head[1]&0x7f)
	if head[0]&0x70 != 0 {
		return c.fail(closeProtocol, "reserved bits are set", errors.New("reserved bits"))
	}
	if head[1]&maskBit == 0 {
		return c.fail(closeProtocol, "frames of a client must be masked", errors.New("unmasked frame"))
	}
	size := 2
	switch n {
	case 126:
		size = 4
	case 127:
		size = 10
	}
	if _, err := io.ReadFull(c.in, head[2:size+4]); err != nil {
		return err
	}
	switch size {
	case 4:
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 10:
		n = binary.BigEndian.Uint64(head[2:])
	}
	if opcode >= opClose {
		if !fin || n > 125 || opcode > opPong {
			return c.fail(closeProtocol, "bad control frame", errors.New("bad control frame"))
		}
		frame := make([]byte, size+4+int(n))
		copy(frame, head[:size+4])
		if _, err := io.ReadFull(c.in, frame[size+4:]); err != nil {
			return err
		}
		c.control = frame
		if !c.fragments {
			c.began = time.Time{}
		}
		return nil
	}
	if opcode > opBinary || (opcode == opContinuation) != c.fragments {
		return c.fail(closeProtocol, "unexpected frame", errors.New("unexpected frame"))
	}
	if n > maxMessage || uint64(len(c.message))+n > maxMessage {
		return c.fail(closeTooBig, fmt.Sprintf("messages are at most %d bytes", maxMessage), errTooBig)
	}
	if err := c.payload(int(n), [4]byte(head[size:size+4])); err != nil {
		return err
	}
	c.fragments = !fin
	if !fin {
		return nil
	}
	message := c.message
	c.began = time.Time{}
	if c.message = c.message[:0]; cap(c.message) > 8<<10 {
		c.message = nil // an idle connection keeps no large buffer
	}
	if !utf8.Valid(message) {
		return c.fail(closeBadText, "text must be UTF-8", errors.New("invalid UTF-8"))
	}
	if err := c.answer(message); !errors.Is(err, errClosing) {
		return err
	}
	return nil // what comes after our close frame is not answered
}

// payload appends n bytes to the message. Memory grows with what arrives, not
// with what a header promises.
func (c *conn) payload(n int, key [4]byte) error {
	for pos := 0; pos < n; {
		start := len(c.message)
		step := min(n-pos, max(4<<10, start))
		c.message = append(c.message, make([]byte, step)...)
		if _, err := io.ReadFull(c.in, c.message[start:]); err != nil {
			return err
		}
		unmask(c.message[start:], key, pos)
		pos += step
	}
	return nil
}

// fail says why the connection ends and returns the error that ends it.
func (c *conn) fail(code int, reason string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.sayClose(ctx, code, reason)
	return err
}

// take waits for the turn to write, at most until ctx ends.
func (c *conn) take(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) release() { <-c.turn }

// Write is khatru's: the handshake, pings, pongs and its close frame.
func (c *conn) Write(p []byte) (int, error) {
	c.turn <- struct{}{} // each holder's writes have a deadline
	defer c.release()
	if c.closed {
		return len(p), nil // our close frame was the last word
	}
	c.closed = len(p) > 0 && p[0] == finBit|opClose
	if err := c.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// write sends p; the caller has the turn. What could not be sent in time ends
// the connection: half a frame cannot be taken back.
func (c *conn) write(p []byte) error {
	err := c.Conn.SetWriteDeadline(time.Now().Add(writeTime))
	if err == nil {
		_, err = c.Conn.Write(p)
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.relay.slow.Add(1)
		}
		_ = c.Close()
	}
	return err
}

// sayClose sends a close frame unless one was sent.
func (c *conn) sayClose(ctx context.Context, code int, reason string) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.release()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.write(appendClose(nil, code, reason))
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, chunk+8<<10); return &b }}

// send lets fill add frames to a buffer, which goes out whenever it is full;
// nothing else is written between them.
func (c *conn) send(fill func(w *writer) error) error {
	c.turn <- struct{}{}
	defer c.release()
	if c.closed {
		return errClosing
	}
	p := buffers.Get().(*[]byte)
	w := &writer{c: c, b: (*p)[:0], now: time.Now().Unix()}
	err := fill(w)
	if err == nil {
		err = w.flush()
	}
	if cap(w.b) <= 4*chunk {
		*p = w.b[:0]
		buffers.Put(p)
	}
	return err
}

// writer gathers frames for one turn.
type writer struct {
	c   *conn
	b   []byte
	now int64 // when b was begun
	n   uint64
}

// event adds an event, unless it has expired by now.
func (w *writer) event(s *subscription, e *event) error {
	if e.expired(w.now) {
		return nil
	}
	w.b = appendEvent(w.b, s.prefix, e.source.JSON)
	w.n++
	if len(w.b) >= chunk {
		return w.flush()
	}
	return nil
}

func (w *writer) message(values ...any) { w.b = appendMessage(w.b, values...) }

func (w *writer) flush() error {
	if len(w.b) == 0 {
		return nil
	}
	err := w.c.write(w.b)
	w.c.relay.sent.Add(w.n)
	w.b, w.n, w.now = w.b[:0], 0, time.Now().Unix()
	return err
}

// reply sends one message.
func (c *conn) reply(values ...any) error {
	return c.send(func(w *writer) error {
		w.message(values...)
		return nil
	})
}

// push queues ev for those subscriptions that it matches and that were
// answered before version. It never waits: a full queue ends the connection
// (reports.md 19).
func (c *conn) push(evs []*event, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.dropped {
		return
	}
	for _, s := range c.subs {
		if s.version < version {
			c.enqueue(s, evs)
		}
	}
}

// pushAll queues all of the list for subscriptions answered while it was
// hidden, and the new events for the others.
func (c *conn) pushAll(all, added []*event, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.dropped {
		return
	}
	for _, s := range c.subs {
		switch {
		case s.version >= version:
		case s.blank:
			s.blank = false
			c.enqueue(s, all)
			c.enqueue(s, unlisted(added))
		default:
			c.enqueue(s, added)
		}
	}
}

// enqueue: the caller holds mu.
func (c *conn) enqueue(s *subscription, evs []*event) {
	for _, e := range evs {
		if c.dropped || !s.wants(e) {
			continue
		}
		if len(c.queue) >= maxQueue {
			c.dropped = true
			c.relay.slow.Add(1)
			_ = c.Conn.Close() // its reader and writer end it; Close would take mu
			return
		}
		c.queue = append(c.queue, live{s, e})
	}
	if len(c.queue) > 0 && !c.flushing {
		c.flushing = true
		c.relay.running.Go(c.flush)
	}
}

func (s *subscription) wants(e *event) bool {
	for i := range s.filters {
		if s.filters[i].matches(e) {
			return true
		}
	}
	return false
}

// flush writes what is queued until nothing is left.
func (c *conn) flush() {
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue = nil
		if len(batch) == 0 {
			c.flushing = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		err := c.send(func(w *writer) error {
			for _, l := range batch {
				if l.sub.over.Load() {
					continue
				}
				if err := w.event(l.sub, l.ev); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil { // the connection is ending
			c.mu.Lock()
			c.queue, c.flushing = nil, false
			c.mu.Unlock()
			return
		}
	}
}

// Close ends the connection and all that hangs on it; khatru calls it, twice.
func (c *conn) Close() error {
	c.mu.Lock()
	gone := c.gone
	c.gone = true
	for _, s := range c.subs {
		s.over.Store(true)
	}
	c.subs, c.queue = nil, nil
	c.mu.Unlock()
	if gone {
		return nil
	}
	err := c.Conn.Close()
	c.relay.forget(c)
	return err
}
