package probe_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// piped is a relay in memory, for tests under testing/synctest: no time passes
// but that which somebody waits for.
const piped = monitor.RelayURL("ws://192.0.2.1/")

// pipedConfig is that of a checker for piped, with the default limits. Each
// dial hands the other end to serve, which must return when it is closed.
func pipedConfig(serve func(*peer)) probe.Config {
	n := 0
	return probe.Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			n++
			p := &peer{Conn: server, br: bufio.NewReader(server), dial: n}
			go func() {
				defer server.Close()
				serve(p)
			}()
			return client, nil
		},
	}
}

// peer is the relay's end of a connection.
type peer struct {
	net.Conn
	br   *bufio.Reader
	dial int // which dial it belongs to, from 1
	key  string
}

// request reads one request's head; the path is "" when there was none.
func (p *peer) request() (path string) {
	line, err := p.br.ReadString('\n')
	if err != nil {
		return ""
	}
	path = strings.Fields(line)[1]
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			return ""
		}
		if strings.TrimSpace(line) == "" {
			return path
		}
		if name, value, _ := strings.Cut(line, ":"); name == "Sec-WebSocket-Key" {
			p.key = strings.TrimSpace(value)
		}
	}
}

// send writes, and reports whether that worked.
func (p *peer) send(s string) bool {
	_, err := io.WriteString(p, s)
	return err == nil
}

// switching answers the upgrade; extra goes into its head.
func (p *peer) switching(extra string) {
	sum := sha1.Sum([]byte(p.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	p.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" + extra +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
}

// message reads one client frame; op 0 = the connection is over.
func (p *peer) message() (op byte, text string) {
	var h [2]byte
	if _, err := io.ReadFull(p.br, h[:]); err != nil {
		return 0, ""
	}
	n := int(h[1] & 127)
	if n == 126 {
		var size [2]byte
		io.ReadFull(p.br, size[:])
		n = int(binary.BigEndian.Uint16(size[:]))
	}
	var mask [4]byte
	io.ReadFull(p.br, mask[:])
	b := make([]byte, n)
	if _, err := io.ReadFull(p.br, b); err != nil || h[1]&0x80 == 0 {
		return 0, ""
	}
	for i := range b {
		b[i] ^= mask[i&3]
	}
	return h[0] & 15, string(b)
}

// upgraded takes a connection up to its REQ and returns the subscription's id.
func (p *peer) upgraded() string {
	if p.request() == "" {
		return ""
	}
	p.switching("")
	_, req := p.message()
	parts := strings.Split(req, `"`)
	if len(parts) < 4 {
		return ""
	}
	return parts[3]
}

// wait reads until the connection is over.
func (p *peer) wait() { io.Copy(io.Discard, p.br) }

// text is a server's text frame.
func text(s string) string { return frame(0x81, s) }

// frame is a server's frame.
func frame(first byte, payload string) string {
	var b bytes.Buffer
	b.WriteByte(first)
	switch n := len(payload); {
	case n < 126:
		b.WriteByte(byte(n))
	case n < 1<<16:
		b.Write([]byte{126, byte(n >> 8), byte(n)})
	default:
		b.WriteByte(127)
		binary.Write(&b, binary.BigEndian, uint64(n))
	}
	return b.String() + payload
}

// check probes piped and returns how long it took.
func check(t *testing.T, cfg probe.Config, req probe.Request) (monitor.Observation, time.Duration) {
	t.Helper()
	c, err := probe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if req.Relay == "" {
		req.Relay = piped
	}
	start := time.Now()
	o := c.Check(t.Context(), req)
	return o, time.Since(start)
}
