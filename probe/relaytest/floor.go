package relaytest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
)

// Floor is the leanest prober that does what a probe does on a healthy relay:
// it opens, reads up to EOSE and fetches NIP-11, and checks next to nothing.
// Benchmarks are measured against it in the same run (performance.md).
type Floor struct {
	TLS bool
	// Curves are the key exchanges offered; nil = Go's default, the hybrid
	// first.
	Curves  []tls.CurveID
	Timeout time.Duration // of each connection
}

var errFloor = errors.New("the floor does not understand the answer")

var floorBuffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// Two probes over two connections, as most programs do.
func (f *Floor) Two(addr string) error {
	bp := floorBuffers.Get().(*[]byte)
	defer floorBuffers.Put(bp)
	c, err := f.dial(addr)
	if err != nil {
		return err
	}
	err = f.websocket(c, addr, *bp)
	c.Close()
	if err != nil {
		return err
	}
	if c, err = f.dial(addr); err != nil {
		return err
	}
	defer c.Close()
	return f.info(c, addr, *bp)
}

// One probes over one connection: NIP-11, then the upgrade.
func (f *Floor) One(addr string) error {
	bp := floorBuffers.Get().(*[]byte)
	defer floorBuffers.Put(bp)
	c, err := f.dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := f.info(c, addr, *bp); err != nil {
		return err
	}
	return f.websocket(c, addr, *bp)
}

func (f *Floor) dial(addr string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1, Deadline: time.Now().Add(f.Timeout)}
	c, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(d.Deadline)
	if !f.TLS {
		return c, nil
	}
	// Not verified: that is what makes it the floor.
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true, CurvePreferences: f.Curves}) //nolint:gosec // loopback
	if err := t.HandshakeContext(context.Background()); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// head reads to the end of a response's head; it returns its length and the
// bytes in buf.
func (f *Floor) head(c net.Conn, buf []byte) (length, n int, err error) {
	for n < len(buf) {
		m, err := c.Read(buf[n:])
		if err != nil {
			return 0, 0, err
		}
		n += m
		if i := bytes.Index(buf[:n], []byte("\r\n\r\n")); i >= 0 {
			return i + 4, n, nil
		}
	}
	return 0, 0, errFloor
}

func (f *Floor) websocket(c net.Conn, host string, buf []byte) error {
	req := append(buf[:0], "GET / HTTP/1.1\r\nHost: "...)
	req = append(req, host...)
	req = append(req, "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"...)
	if _, err := c.Write(req); err != nil {
		return err
	}
	length, n, err := f.head(c, buf)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(buf, []byte("HTTP/1.1 101")) || !bytes.Contains(buf[:length], []byte("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")) {
		return errFloor
	}
	n = copy(buf, buf[length:n])
	const message = `["REQ","p",{"kinds":[1],"limit":1}]`
	var out [6 + len(message)]byte // masked with zeros
	out[0], out[1] = 0x81, 0x80|byte(len(message))
	copy(out[6:], message)
	if _, err := c.Write(out[:]); err != nil {
		return err
	}
	for {
		for n >= 2 {
			head, size := 2, int(buf[1]&127)
			if size == 126 {
				if n < 4 {
					break
				}
				head, size = 4, int(binary.BigEndian.Uint16(buf[2:]))
			}
			if n < head+size {
				break
			}
			if bytes.HasPrefix(buf[head:head+size], []byte(`["EOSE"`)) {
				return nil
			}
			n = copy(buf, buf[head+size:n])
		}
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
}

func (f *Floor) info(c net.Conn, host string, buf []byte) error {
	req := append(buf[:0], "GET / HTTP/1.1\r\nHost: "...)
	req = append(req, host...)
	req = append(req, "\r\nAccept: application/nostr+json\r\n\r\n"...)
	if _, err := c.Write(req); err != nil {
		return err
	}
	length, n, err := f.head(c, buf)
	if err != nil {
		return err
	}
	_, rest, ok := bytes.Cut(buf[:length], []byte("Content-Length: "))
	if !ok {
		return errFloor
	}
	digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
	size, err := strconv.Atoi(string(digits))
	if err != nil || length+size > len(buf) {
		return errFloor
	}
	for n < length+size {
		m, err := c.Read(buf[n:])
		if err != nil {
			return err
		}
		n += m
	}
	var doc struct {
		Name          string `json:"name"`
		Software      string `json:"software"`
		Version       string `json:"version"`
		SupportedNIPs []any  `json:"supported_nips"`
		Limitation    struct {
			AuthRequired    bool `json:"auth_required"`
			PaymentRequired bool `json:"payment_required"`
		} `json:"limitation"`
	}
	return json.Unmarshal(buf[length:length+size], &doc)
}
