package probe

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// WebSocket opcodes (RFC 6455, 5.2).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

var (
	errNoFrame  = errors.New("what the relay sent is no WebSocket frame")
	errTooLarge = errors.New("the relay announced a message larger than 256 KB")
)

// closeError is the peer's close frame.
type closeError struct {
	code   int // 0 = none given
	reason string
}

func (e *closeError) Error() string { return "the relay closed the connection" }

// appendFrame appends one client frame of at most 65535 bytes of payload.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	dst = append(dst, 0x80|op)
	if n := len(payload); n < 126 {
		dst = append(dst, 0x80|byte(n))
	} else {
		dst = append(dst, 0x80|126, byte(n>>8), byte(n))
	}
	var mask [4]byte
	rand.Read(mask[:])
	dst = append(dst, mask[:]...)
	for i, b := range payload {
		dst = append(dst, b^mask[i&3])
	}
	return dst
}

// messages holds the buffers for messages and documents.
var messages = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// keepMessage is the largest buffer that goes back to the pool.
const keepMessage = 16 << 10

// frames reads the messages of one connection.
type frames struct {
	w   *wire
	buf *[]byte // of the pool, taken when the first message comes: most waits are for that
	msg []byte  // the message under assembly
	// pong is the payload of the newest ping that was not yet answered.
	pong    [125]byte
	pongLen int // -1 = none
	// torn: next has ended within a message; what follows cannot be read.
	torn bool
	// trace, when not nil, is told each message and control frame.
	trace func(k TraceKind, op byte, payload []byte)
}

// done gives the buffer back; the last message is gone then.
func (f *frames) done() {
	if f.buf != nil && cap(f.msg) <= keepMessage {
		*f.buf = f.msg[:0]
		messages.Put(f.buf)
	}
	f.buf, f.msg = nil, nil
}

// next returns the next text or binary message; it is valid until the next
// call. Pings are answered, at the latest before it waits; of several at once
// the newest (RFC 6455, 5.5.3). Errors: *closeError, errNoFrame, errTooLarge,
// errBudget, and those of the connection.
func (f *frames) next() (op byte, msg []byte, err error) {
	f.msg = f.msg[:0]
	started := false
	for {
		if f.w.br.Buffered() < 2 {
			if err := f.flush(); err != nil {
				return 0, nil, err
			}
		}
		b, err := f.w.br.Peek(2)
		if err != nil {
			if errors.Is(err, io.EOF) && len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		fin, code, masked, n := b[0]&0x80 != 0, b[0]&15, b[1]&0x80 != 0, uint64(b[1]&127)
		// No extension was agreed on, so reserved bits mean nothing; a server
		// never masks.
		if b[0]&0x70 != 0 || masked {
			return 0, nil, errNoFrame
		}
		control := code >= opClose
		switch {
		case control && (!fin || n > 125), code > opPong, code > opBinary && !control:
			return 0, nil, errNoFrame
		case !control && started != (code == opContinuation):
			return 0, nil, errNoFrame
		}
		_, _ = f.w.br.Discard(2)
		f.torn = true
		if n >= 126 {
			size := 2
			if n == 127 {
				size = 8
			}
			b, err := f.w.br.Peek(size)
			if err != nil {
				return 0, nil, err
			}
			if size == 2 {
				n = uint64(binary.BigEndian.Uint16(b))
			} else if n = binary.BigEndian.Uint64(b); n>>63 != 0 {
				return 0, nil, errNoFrame
			}
			_, _ = f.w.br.Discard(size)
		}
		if control {
			var payload [125]byte
			p := payload[:n]
			if _, err := io.ReadFull(f.w.br, p); err != nil {
				return 0, nil, err
			}
			if f.trace != nil {
				f.trace(TraceReceived, code, bytes.Clone(p)) // which leaves p on the stack
			}
			switch code {
			case opClose:
				e := &closeError{}
				if n >= 2 {
					e.code, e.reason = int(binary.BigEndian.Uint16(p)), string(p[2:])
				}
				return 0, nil, e
			case opPing:
				f.pongLen = copy(f.pong[:], p)
			}
			f.torn = started
			continue
		}
		if n+uint64(len(f.msg)) > maxBytes {
			return 0, nil, errTooLarge
		}
		if !started {
			op, started = code, true
		}
		if err := f.read(int(n)); err != nil {
			return 0, nil, err
		}
		if fin {
			f.torn = false
			if f.trace != nil {
				f.trace(TraceReceived, op, f.msg)
			}
			return op, f.msg, nil
		}
	}
}

// read appends n bytes of payload to the message. It grows with what arrives,
// not with what was announced.
func (f *frames) read(n int) error {
	if f.buf == nil {
		f.buf = messages.Get().(*[]byte)
		f.msg = (*f.buf)[:0]
	}
	for n > 0 {
		k := min(n, 4<<10)
		start := len(f.msg)
		if cap(f.msg)-start < k {
			f.msg = append(f.msg, make([]byte, k)...)
		} else {
			f.msg = f.msg[:start+k]
		}
		m, err := io.ReadFull(f.w.br, f.msg[start:])
		f.msg = f.msg[:start+m]
		n -= m
		if err != nil {
			return err
		}
	}
	return nil
}

// flush answers the newest ping.
func (f *frames) flush() error {
	if f.pongLen < 0 {
		return nil
	}
	var b [140]byte
	out := appendFrame(b[:0], opPong, f.pong[:f.pongLen])
	if f.trace != nil {
		f.trace(TraceSent, opPong, f.pong[:f.pongLen])
	}
	f.pongLen = -1
	return f.w.write(out)
}
