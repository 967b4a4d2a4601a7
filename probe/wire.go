package probe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// maxBytes is what is read of one relay in one probe, over all connections
// (performance.md, P4).
const maxBytes = 256 << 10

// errBudget is returned by reads after maxBytes.
var errBudget = errors.New("the relay sent more than a probe reads")

// readers holds the read buffers: 2 KiB, so that a probe in flight stays small
// (performance.md, P4).
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 2<<10) }}

// wire is one open connection to a relay: buffered for reading, counted
// against the probe's byte budget, ended by deadlines only.
type wire struct {
	raw    net.Conn // the TCP connection
	conn   net.Conn // raw, or TLS over it
	br     *bufio.Reader
	budget *int
	stop   func() bool // ends the watch over the context
	// head, when not nil, is told each line of a response's head and its length.
	head func(line []byte, n int)
}

// newWire watches ctx: when it is cancelled, all reads and writes end.
func newWire(ctx context.Context, conn net.Conn, budget *int) *wire {
	w := &wire{raw: conn, conn: conn, budget: budget}
	w.br = readers.Get().(*bufio.Reader)
	w.br.Reset(w)
	w.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	return w
}

var longAgo = time.Unix(1, 0)

// limit sets the deadline of all that follows.
func (w *wire) limit(ctx context.Context, t time.Time) {
	_ = w.raw.SetDeadline(t)
	if ctx.Err() != nil { // the watch may have fired just before
		_ = w.raw.SetDeadline(longAgo)
	}
}

// Read is for br only. Over TLS the bytes below it are those that count: a
// record for each byte is twenty times the message.
func (w *wire) Read(p []byte) (int, error) {
	if w.conn != w.raw {
		return w.conn.Read(p)
	}
	return metered{w.raw, w.budget}.Read(p)
}

// metered counts what is read of a connection against a probe's byte budget.
type metered struct {
	net.Conn
	budget *int
}

func (m metered) Read(p []byte) (int, error) {
	if *m.budget <= 0 {
		return 0, errBudget
	}
	n, err := m.Conn.Read(p[:min(len(p), *m.budget)])
	*m.budget -= n
	return n, err
}

func (w *wire) write(p []byte) error {
	_, err := w.conn.Write(p)
	return err
}

// line reads one line of an HTTP head without its end; one longer than the
// buffer is skipped, and nil. It returns the number of bytes taken from the
// connection; the line is valid until the next read.
func (w *wire) line() (line []byte, n int, err error) {
	line, err = w.br.ReadSlice('\n')
	n = len(line)
	if errors.Is(err, bufio.ErrBufferFull) {
		// Too long to be of interest, but legal.
		for errors.Is(err, bufio.ErrBufferFull) && n < maxHead {
			var more []byte
			more, err = w.br.ReadSlice('\n')
			n += len(more)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errHead
		}
		return nil, n, err
	}
	if err != nil {
		return nil, n, err
	}
	line = line[:n-1]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return line, n, nil
}

// close ends the connection without waiting for anything: a TLS farewell could
// block on a peer that does not read.
func (w *wire) close() {
	if w.br == nil {
		return
	}
	w.stop()
	w.raw.Close()
	w.br.Reset(nil)
	readers.Put(w.br)
	w.br = nil
}

// part ends the connection in good manners: it waits until the peer has closed
// its side too, or until t.
func (w *wire) part(ctx context.Context, t time.Time) {
	w.limit(ctx, t)
	for {
		_, err := w.br.Discard(1 << 10)
		if err != nil && !errors.Is(err, io.ErrNoProgress) {
			return
		}
	}
}
