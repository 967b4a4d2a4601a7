package relaytest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Name is what a DNS server answers for one name.
type Name struct {
	Addrs []netip.Addr
	// Code is the answer's code; the zero value is success, without addresses
	// where Addrs has none of the family that is asked for.
	Code dnsmessage.RCode
	// Silent: there is no answer. Truncated: over UDP there is only a
	// truncated one. Forged: a wrong answer under another id goes before.
	Silent, Truncated, Forged bool
	// Unanswered, when set, is the one type of question that is not answered.
	Unanswered dnsmessage.Type
}

// DNS is a name server on UDP and TCP of one port.
type DNS struct {
	addr    netip.AddrPort
	queries atomic.Int64
	mu      sync.Mutex
	names   map[string]Name
}

// StartDNS starts a name server that ends with the test. Names that it does
// not know do not exist.
func StartDNS(tb testing.TB, names map[string]Name) *DNS {
	tb.Helper()
	var (
		d  = &DNS{names: names}
		pc net.PacketConn
		l  net.Listener
		lc net.ListenConfig
	)
	for range 100 { // until a port is free on both
		var err error
		if pc, err = lc.ListenPacket(context.Background(), "udp4", "127.0.0.1:0"); err != nil {
			tb.Fatalf("start a name server: %v", err)
		}
		if l, err = lc.Listen(context.Background(), "tcp4", pc.LocalAddr().String()); err == nil {
			break
		}
		_ = pc.Close()
	}
	if l == nil {
		tb.Fatal("start a name server: no port is free for UDP and TCP")
	}
	d.addr = pc.LocalAddr().(*net.UDPAddr).AddrPort()
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			d.queries.Add(1)
			for _, p := range d.answer(buf[:n], true) {
				_, _ = pc.WriteTo(p, from)
			}
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.queries.Add(1)
			d.serveTCP(c)
		}
	})
	tb.Cleanup(func() {
		_ = pc.Close()
		_ = l.Close()
		wg.Wait()
	})
	return d
}

// Addr is where the server listens.
func (d *DNS) Addr() netip.AddrPort { return d.addr }

// Queries is how many questions came.
func (d *DNS) Queries() int64 { return d.queries.Load() }

// Set changes what is answered for a name.
func (d *DNS) Set(name string, n Name) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name] = n
}

// serveTCP answers one question.
func (d *DNS) serveTCP(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	for _, p := range d.answer(query, false) {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...))
	}
}

// answer returns the packets to send for a query.
func (d *DNS) answer(query []byte, udp bool) [][]byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	d.mu.Lock()
	n, ok := d.names[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]
	d.mu.Unlock()
	if !ok {
		n.Code = dnsmessage.RCodeNameError
	}
	if n.Silent || n.Unanswered == q.Type {
		return nil
	}
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: n.Code}
	m.Additionals = nil
	var packets [][]byte
	header := func(t dnsmessage.Type) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: q.Name, Type: t, Class: dnsmessage.ClassINET, TTL: 60}
	}
	if n.Forged {
		forged := m
		forged.ID++
		forged.RCode = dnsmessage.RCodeNameError
		packets = append(packets, must(forged.Pack()))
	}
	if udp && n.Truncated {
		m.Truncated = true
		return append(packets, must(m.Pack()))
	}
	for _, a := range n.Addrs {
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(q.Type), Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(q.Type), Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return append(packets, must(m.Pack()))
}
