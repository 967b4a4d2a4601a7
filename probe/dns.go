package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// dnsAttempt is how long one server is waited for at most before the next is
	// asked (or the same again, for a lost packet).
	dnsAttempt = time.Second
	// dnsPayload is the size of UDP answers that is asked for and fits any path
	// (DNS flag day 2020).
	dnsPayload = 1232
	// maxAnswers are the addresses that are kept of one name.
	maxAnswers = 16
)

// typesAsked are asked for together, over one socket.
var typesAsked = [...]dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeA}

// directResolver asks given servers, in turn.
type directResolver struct {
	servers []netip.AddrPort
	// permitted is the dial guard's word; nil = every address is as good as
	// another.
	permitted func(netip.Addr) bool
}

// newDirectResolver takes the servers as ip:port.
func newDirectResolver(servers []string) (*directResolver, error) {
	r := &directResolver{}
	for _, s := range servers {
		a, err := netip.ParseAddrPort(s)
		if err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("%w resolver %q: write it as IP:PORT, such as 9.9.9.9:53 or [2620:fe::fe]:53", monitor.ErrInvalid, s)
		}
		r.servers = append(r.servers, a)
	}
	return r, nil
}

// resolve asks the servers in turn until one knows an address of the name. That
// it does not exist, or has no address, or only such as may not be dialled,
// needs two of them, where there are two: one that lies, or filters (some do it
// with 0.0.0.0), or lags behind, is no proof. A server that answers
// with a failure is not asked again. Each gets its share of the time that is
// left, so that the last one is asked too where the others are silent.
func (r *directResolver) resolve(ctx context.Context, name string) answer {
	qname, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return answer{err: fmt.Errorf("name %q: %w", name, err)}
	}
	if len(r.servers) == 0 {
		return answer{err: errors.New("there is no name server")}
	}
	done := make([]bool, len(r.servers))
	agree := min(2, len(r.servers))
	denials, empty, private, last := 0, 0, 0, error(nil)
	for left := len(r.servers); left > 0; {
		turn := left // how many are still to be asked in this round
		for i, server := range r.servers {
			if done[i] {
				continue
			}
			if ctx.Err() != nil {
				if last == nil {
					last = ctx.Err()
				}
				return answer{err: last}
			}
			limit := time.Now().Add(dnsAttempt)
			if d, ok := ctx.Deadline(); ok {
				limit = time.Now().Add(min(dnsAttempt, time.Until(d)/time.Duration(turn)))
			}
			turn--
			a := ask(ctx, server, qname, limit)
			var timeout net.Error
			switch {
			case a.err == nil && len(a.addrs) > 0:
				if r.permitted == nil || slices.ContainsFunc(a.addrs, r.permitted) {
					return a
				}
				if private++; private >= agree {
					return a
				}
				last = errors.New("one server says that the name leads to addresses that are not public, no other does")
			case a.err == nil:
				if a.exists {
					empty++
				} else {
					denials++
				}
				switch {
				case denials >= agree:
					return answer{}
				case denials+empty >= agree:
					return answer{exists: true}
				}
				last = errors.New("one server says that the name has no address, no other does")
			case errors.As(a.err, &timeout) && timeout.Timeout():
				last = a.err
				continue
			default:
				last = a.err
			}
			done[i] = true
			left--
		}
	}
	return answer{err: last}
}

// ask asks one server once for both families, until limit.
func ask(ctx context.Context, server netip.AddrPort, name dnsmessage.Name, limit time.Time) answer {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", server.String())
	if err != nil {
		return answer{err: fmt.Errorf("ask %s: %w", server, err)}
	}
	defer conn.Close()
	_ = conn.SetDeadline(limit)
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })()

	var ids [len(typesAsked)]uint16
	var got [len(typesAsked)]*reply
	for i, t := range typesAsked {
		packet, id := query(name, t)
		ids[i] = id
		if _, err := conn.Write(packet); err != nil {
			return answer{err: fmt.Errorf("ask %s: %w", server, err)}
		}
	}
	buf := make([]byte, dnsPayload)
	for missing := len(typesAsked); missing > 0; {
		n, err := conn.Read(buf)
		if err != nil {
			// One family is enough where it has addresses. NXDOMAIN is said of the
			// whole name, but servers that know no IPv6 say it of names which have
			// IPv4 addresses (RFC 4074, 4.2): of AAAA alone it is no proof.
			if a := merge(got[:], server); len(a.addrs) > 0 || !a.exists && a.err == nil && got[len(got)-1] != nil {
				return a
			}
			return answer{err: fmt.Errorf("ask %s: %w", server, err)}
		}
		for i, t := range typesAsked {
			if got[i] != nil {
				continue
			}
			p, ok := readReply(buf[:n], ids[i], name, t)
			if !ok {
				continue // not an answer to this question, or forged
			}
			if p.truncated {
				if whole, err := askTCP(ctx, server, name, t, limit); err == nil {
					p = whole
				} else if len(p.addrs) == 0 {
					p.code = dnsmessage.RCodeServerFailure
				}
			}
			got[i] = p
			missing--
		}
	}
	return merge(got[:], server)
}

// askTCP asks one server for one family over TCP.
func askTCP(ctx context.Context, server netip.AddrPort, name dnsmessage.Name, t dnsmessage.Type, limit time.Time) (*reply, error) {
	dialer := net.Dialer{Deadline: limit}
	conn, err := dialer.DialContext(ctx, "tcp", server.String())
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(limit)
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })()
	packet, id := query(name, t)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)); err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	buf := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	if p, ok := readReply(buf, id, name, t); ok {
		return p, nil
	}
	return nil, fmt.Errorf("ask %s: its answer is to another question", server)
}

// query packs one question.
func query(name dnsmessage.Name, t dnsmessage.Type) (packet []byte, id uint16) {
	var b [2]byte
	rand.Read(b[:])
	id = binary.BigEndian.Uint16(b[:])
	builder := dnsmessage.NewBuilder(make([]byte, 0, 300), dnsmessage.Header{ID: id, RecursionDesired: true})
	// Packing fails only on misuse: the name was checked by NewName.
	_ = builder.StartQuestions()
	_ = builder.Question(dnsmessage.Question{Name: name, Type: t, Class: dnsmessage.ClassINET})
	_ = builder.StartAdditionals()
	var opt dnsmessage.ResourceHeader
	_ = opt.SetEDNS0(dnsPayload, dnsmessage.RCodeSuccess, false)
	_ = builder.OPTResource(opt, dnsmessage.OPTResource{})
	packet, _ = builder.Finish()
	return packet, id
}

// reply is a server's answer to one question.
type reply struct {
	code      dnsmessage.RCode
	truncated bool
	addrs     []netip.Addr
}

// readReply reads a packet; ok is false when it is no answer to the question.
func readReply(packet []byte, id uint16, name dnsmessage.Name, t dnsmessage.Type) (r *reply, ok bool) {
	var p dnsmessage.Parser
	h, err := p.Start(packet)
	if err != nil || h.ID != id || !h.Response {
		return nil, false
	}
	q, err := p.Question()
	if err != nil || q.Type != t || q.Class != dnsmessage.ClassINET || !sameName(q.Name, name) {
		return nil, false
	}
	if p.SkipAllQuestions() != nil {
		return nil, false
	}
	r = &reply{code: h.RCode, truncated: h.Truncated}
	for len(r.addrs) < maxAnswers {
		rh, err := p.AnswerHeader()
		if err != nil {
			return r, errors.Is(err, dnsmessage.ErrSectionDone) || r.truncated
		}
		// CNAMEs are followed by the server; what it says at their end counts.
		switch {
		case rh.Type == dnsmessage.TypeA && t == dnsmessage.TypeA:
			a, err := p.AResource()
			if err != nil {
				return r, r.truncated
			}
			r.addrs = append(r.addrs, netip.AddrFrom4(a.A))
		case rh.Type == dnsmessage.TypeAAAA && t == dnsmessage.TypeAAAA:
			a, err := p.AAAAResource()
			if err != nil {
				return r, r.truncated
			}
			r.addrs = append(r.addrs, netip.AddrFrom16(a.AAAA))
		default:
			if p.SkipAnswer() != nil {
				return r, r.truncated
			}
		}
	}
	return r, true
}

// sameName compares names without regard to case.
func sameName(a, b dnsmessage.Name) bool {
	if a.Length != b.Length {
		return false
	}
	x, y := a.Data[:a.Length], b.Data[:b.Length]
	for i := range x {
		c, d := x[i], y[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if 'A' <= d && d <= 'Z' {
			d += 'a' - 'A'
		}
		if c != d {
			return false
		}
	}
	return true
}

// merge makes one answer of those for the families; nil = none came.
func merge(replies []*reply, server netip.AddrPort) answer {
	a := answer{exists: true}
	found := false
	for _, r := range replies {
		switch {
		case r == nil:
		case r.code == dnsmessage.RCodeSuccess:
			found = true
			a.addrs = append(a.addrs, r.addrs...)
		case r.code == dnsmessage.RCodeNameError:
			a.exists = false // of the whole name, whatever the type (RFC 8020)
		default:
			a.err = fmt.Errorf("%s answered with %s", server, r.code)
		}
	}
	if found { // though another type was denied
		a.exists = true
	}
	if len(a.addrs) > 0 {
		a.exists, a.err = true, nil
	}
	return a
}
