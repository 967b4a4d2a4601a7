package relaytest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// hugeInfo is the size of HugeInfo's document, hugeFrame what HugeFrame
// announces.
const (
	hugeInfo  = 50 << 20
	hugeFrame = 1 << 30
)

// Event is the event that the relays have, of kind 1, signed by the key 3.
const Event = `{"kind":1,"id":"d19686e4cc2d5c152988300808f8c60f03744b98f356c243fd9db0961fd15ca1","pubkey":"f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9","created_at":1750000000,"tags":[["t","test"],["p","f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"]],"content":"A note of ordinary length, as relays have them by the million: what was for breakfast, how the weather is, and what somebody else said about it yesterday.","sig":"2053a583bb081f3b8a5d60927472f09a44fec0951770c8ffc4049cae07b11eb5d467808fe254695215d9098a2fe9ce1234e23e39d8fdea60622796d01278a751"}`

// InfoDocument is the NIP-11 document of relays that were given no other.
const InfoDocument = `{"name":"test relay","description":"A relay on loopback, for tests and benchmarks of what watches relays. Its document is about as long as those of public relays.","pubkey":"f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9","contact":"mailto:relay@example.com","supported_nips":[1,2,4,9,11,12,16,20,22,28,33,40,42,45,50,59,65,70,77],"software":"https://example.com/relay.git","version":"1.0.4","limitation":{"max_message_length":131072,"max_subscriptions":20,"max_filters":10,"max_limit":500,"max_subid_length":100,"max_event_tags":2000,"max_content_length":70000,"min_pow_difficulty":0,"auth_required":false,"payment_required":false,"restricted_writes":false,"created_at_lower_limit":94608000,"created_at_upper_limit":900},"retention":[{"kinds":[[0,1],[5,7],[40,49]],"time":3600},{"kinds":[[40000,49999]],"time":100},{"kinds":[[30000,39999]],"count":1000}],"relay_countries":["DE","EU"],"language_tags":["en","de"],"tags":["sfw-only"],"posting_policy":"https://example.com/policy.html","icon":"https://example.com/icon.png"}`

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// link is one connection that is served.
type link struct {
	*session
	conn net.Conn
	tcp  net.Conn // what conn is over
	br   *bufio.Reader
	b    Behaviour
	h    hostility
	odd  bool // every other connection
	// reset: the connection is to end with one.
	reset bool
}

// resetAtEnd lets the end of the connection be a reset.
func resetAtEnd(tcp net.Conn) {
	if c, ok := tcp.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
}

func (s *session) serve(tcp net.Conn) {
	b := Behaviour(s.r.behaviour.Load())
	if cut := s.r.cutOff.Load(); cut != nil && *cut == tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr() {
		b = Reset
	}
	switch b {
	case Reset:
		resetAtEnd(tcp)
		return
	case Silent:
		_, _ = io.Copy(io.Discard, tcp)
		return
	default:
	}
	h := hostile[b]
	if h.raw != nil {
		h.raw(s, tcp)
		return
	}
	if !s.trip() {
		return
	}
	conn := tcp
	if s.tls != nil {
		switch b {
		case TLSStall:
			_, _ = io.Copy(io.Discard, tcp)
			return
		case TLSAlert:
			_, _ = tcp.Read(make([]byte, 4<<10))
			_, _ = tcp.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // fatal handshake_failure
			return
		default:
		}
		if !s.trip() {
			return
		}
		under := tcp
		if h.under != nil {
			under = h.under(s, tcp)
		}
		secure := tls.Server(under, s.tls)
		if secure.HandshakeContext(context.Background()) != nil {
			return
		}
		conn = secure
	}
	if s.r.opt.Script != nil {
		s.r.opt.Script(conn)
		return
	}
	l := &link{session: s, conn: conn, tcp: tcp, b: b, h: h, br: readers.Get().(*bufio.Reader), odd: s.r.connections.Load()%2 == 1}
	l.br.Reset(conn)
	defer func() {
		l.br.Reset(nil)
		readers.Put(l.br)
	}()
	for l.request() {
	}
	if b == ResetLater || l.reset {
		resetAtEnd(tcp)
	}
}

// write sends p and reports whether that worked.
func (l *link) write(p []byte) bool {
	n, err := l.conn.Write(p)
	l.r.written.Add(int64(n))
	return err == nil
}

// http sends an HTTP response, slowly where that is the behaviour.
func (l *link) http(p []byte) bool {
	if l.b != Drip {
		return l.write(p)
	}
	for i := range p {
		if !l.write(p[i:i+1]) || !l.pause(l.r.opt.Drip) {
			return false
		}
	}
	return true
}

func response(status, contentType, extra, body string) []byte {
	return []byte("HTTP/1.1 " + status + "\r\nContent-Type: " + contentType + "\r\n" + extra + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// request serves one HTTP request, and all of a WebSocket. It reports whether
// another request may follow.
func (l *link) request() bool {
	key := ""
	for first := true; ; first = false {
		line, err := l.br.ReadSlice('\n')
		if err != nil {
			return false
		}
		if first && !bytes.HasPrefix(line, []byte("GET ")) {
			l.write(response("405 Method Not Allowed", "text/plain", "Connection: close\r\n", ""))
			return false
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		const name = "Sec-WebSocket-Key:"
		if len(line) > len(name) && strings.EqualFold(string(line[:len(name)]), name) {
			key = string(bytes.TrimSpace(line[len(name):]))
		}
	}
	if l.b == Slow && !l.pause(l.r.opt.Slow) || !l.trip() {
		return false
	}
	if l.h.http != nil {
		l.h.http(l)
		return false
	}
	const last = "Connection: close\r\n"
	switch l.b {
	case HTTP502:
		l.http(response("502 Bad Gateway", "text/html", last, "<html><body><h1>502 Bad Gateway</h1></body></html>"))
		return false
	case HTTP403:
		l.http(response("403 Forbidden", "text/html", last, "<html><body>forbidden</body></html>"))
		return false
	case HTTP429:
		l.http(response("429 Too Many Requests", "text/plain", "Retry-After: 120\r\n"+last, "slow down"))
		return false
	case Redirect:
		l.http(response("301 Moved Permanently", "text/plain", "Location: "+l.r.opt.RedirectTo+"\r\n"+last, ""))
		return false
	case HeadFlood:
		l.write([]byte("HTTP/1.1 200 OK\r\n"))
		for line := bytes.Repeat([]byte("X-Padding: "+strings.Repeat("a", 100)+"\r\n"), 100); l.write(line); {
		}
		return false
	case Flappy:
		if l.odd {
			l.http(response("502 Bad Gateway", "text/html", last, ""))
			return false
		}
	default:
	}
	if key == "" {
		return l.info()
	}
	l.r.upgrades.Add(1)
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if l.b == WrongAccept {
		sum[0] ^= 1
	}
	var buf [160]byte
	head := append(buf[:0], "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	head = base64.StdEncoding.AppendEncode(head, sum[:])
	head = append(head, "\r\n\r\n"...)
	if l.h.switching != nil {
		head = l.h.switching(head)
	}
	if l.http(head) {
		l.websocket()
	}
	return false
}

// info answers a request for NIP-11.
func (l *link) info() bool {
	l.r.infos.Add(1)
	doc := l.r.opt.Info
	if l.h.info != nil {
		return l.h.info(l)
	}
	switch l.b {
	case HugeInfo:
		if !l.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: " + nostrType + "\r\nConnection: close\r\n\r\n{\"name\":\"huge\",\"description\":\"")) {
			return false
		}
		chunk := bytes.Repeat([]byte("A"), 64<<10)
		for left := hugeInfo; left > 0; left -= len(chunk) {
			if !l.write(chunk) {
				return false
			}
		}
		l.write([]byte(`"}`))
		return false
	case EndlessInfo:
		if !l.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: " + nostrType + "\r\nTransfer-Encoding: chunked\r\n\r\n")) {
			return false
		}
		for chunk := []byte(fmt.Sprintf("%x\r\n%s\r\n", 8<<10, strings.Repeat(" ", 8<<10))); l.write(chunk); {
		}
		return false
	case NoInfo:
		return l.http(response("404 Not Found", "text/plain", "", "not found"))
	case BrokenInfo:
		return l.http(response("200 OK", nostrType, "", `{"name": "broken`))
	case HTMLInfo:
		return l.http(response("200 OK", "text/html", "", "<html><body>Use a Nostr client</body></html>"))
	case InfoMoved:
		return l.http(response("302 Found", "text/plain", "Location: "+l.r.opt.RedirectTo+"\r\n", ""))
	case MixedInfo:
		doc = strings.Replace(doc, `"kinds":[[0,1],[5,7]`, `"kinds":[0,1,[5,7]`, 1)
	case PaymentInfo:
		doc = strings.Replace(doc, `"payment_required":false,"restricted_writes":false`, `"payment_required":true,"restricted_writes":true`, 1)
	case InfoCloses:
		l.http(response("200 OK", nostrType, "Connection: close\r\n", doc))
		return false
	default:
	}
	return l.http(response("200 OK", nostrType, "Access-Control-Allow-Origin: *\r\n", doc))
}

// WebSocket opcodes.
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// frame appends one server frame.
func frame(dst []byte, op byte, parts ...string) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	dst = append(dst, 0x80|op)
	switch {
	case n < 126:
		dst = append(dst, byte(n))
	case n < 1<<16:
		dst = append(dst, 126, byte(n>>8), byte(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
	}
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// websocket serves an upgraded connection.
func (l *link) websocket() {
	switch l.b {
	case CloseAtOnce:
		l.write(frame(nil, opClose, "\x03\xf0blocked"))
		return
	case DropAtOnce, ResetLater:
		return
	case Mute:
		_, _ = io.Copy(io.Discard, l.conn)
		return
	case AuthRequired, AuthGreeting:
		if !l.write(frame(nil, opText, `["AUTH","6b1f7f6a3c0de1"]`)) {
			return
		}
	case GarbageFrame:
		if !l.write(bytes.Repeat([]byte{0xf5, 0x5a, 0x93}, 170)) {
			return
		}
	default:
	}
	var buf [4 << 10]byte
	for {
		op, msg, ok := l.frame(buf[:])
		if !ok {
			return
		}
		switch op {
		case opClose:
			l.write(frame(nil, opClose, string(msg)))
			return
		case opPing:
			ok = l.write(frame(nil, opPong, string(msg)))
		case opPong:
			l.r.pongs.Add(1)
		case opText:
			ok = l.message(msg)
		}
		if !ok {
			return
		}
	}
}

// frame reads one client frame that fits into buf.
func (l *link) frame(buf []byte) (op byte, msg []byte, ok bool) {
	var h [14]byte
	if _, err := io.ReadFull(l.br, h[:2]); err != nil {
		return 0, nil, false
	}
	n, size := int(h[1]&127), 0
	switch n {
	case 126:
		size = 2
	case 127:
		size = 8
	}
	mask := h[2+size : 6+size]
	if _, err := io.ReadFull(l.br, h[2:6+size]); err != nil || h[1]&0x80 == 0 {
		return 0, nil, false // a client must mask
	}
	switch size {
	case 2:
		n = int(binary.BigEndian.Uint16(h[2:]))
	case 8:
		n = int(binary.BigEndian.Uint64(h[2:]) & 0x7fffffff)
	}
	if n > len(buf) {
		return 0, nil, false
	}
	msg = buf[:n]
	if _, err := io.ReadFull(l.br, msg); err != nil {
		return 0, nil, false
	}
	for i := range msg {
		msg[i] ^= mask[i&3]
	}
	return h[0] & 15, msg, true
}

// message answers one message.
func (l *link) message(msg []byte) bool {
	label, id := firstStrings(msg)
	switch label {
	case "REQ":
		l.r.requests.Add(1)
		return l.req(id)
	case "CLOSE":
		l.r.closes.Add(1)
	case "EVENT":
		if l.b == WriteBlocked {
			return l.write(frame(nil, opText, `["OK","`, id, `",false,"blocked: you are banned"]`))
		}
		return l.write(frame(nil, opText, `["OK","`, id, `",true,""]`))
	}
	return true
}

// firstStrings returns the first string of a message, and the next one (that
// of the id, for EVENT).
func firstStrings(msg []byte) (label, id string) {
	parts := strings.SplitN(string(msg), `"`, 5)
	if len(parts) < 4 {
		return "", ""
	}
	label, id = parts[1], parts[3]
	if label == "EVENT" {
		id = ""
		if _, rest, ok := bytes.Cut(msg, []byte(`"id":"`)); ok {
			hex, _, _ := bytes.Cut(rest, []byte(`"`))
			id = string(hex)
		}
	}
	return label, id
}

// req answers a REQ.
func (l *link) req(id string) bool {
	if l.b == Slow && !l.pause(l.r.opt.Slow) || !l.trip() {
		return false
	}
	if l.h.req != nil {
		return l.h.req(l, id)
	}
	out := make([]byte, 0, 1<<10)
	switch l.b {
	case AuthRequired:
		return l.write(frame(out, opText, `["CLOSED","`, id, `","auth-required: we only serve members"]`))
	case RateLimited:
		return l.write(frame(out, opText, `["CLOSED","`, id, `","rate-limited: slow down"]`))
	case GarbageText:
		return l.write(frame(out, opText, `<html>not nostr</html>`))
	case NoticeOnly:
		return l.write(frame(out, opText, `["NOTICE","ERROR: bad req"]`))
	case NoEOSE:
		return l.write(eventFrame(out, id))
	case HugeFrame:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|opText, 127), hugeFrame)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for ok := l.write(out); ok; ok = l.write(chunk) {
		}
		return false
	case Flood:
		for one := eventFrame(out, id); l.write(one); {
		}
		return false
	case Pings:
		for range 50 {
			out = frame(out, opPing, "hi")
		}
	case Fragments:
		out = append(out, opText, 7)
		out = append(out, `["EOSE"`...)
		out = append(out, 0x80, byte(len(id)+4))
		return l.write(append(out, `,"`+id+`"]`...))
	case SlowEOSE:
		if !l.pause(10 * l.r.opt.Slow) {
			return false
		}
	default:
	}
	return l.write(frame(eventFrame(out, id), opText, `["EOSE","`, id, `"]`))
}
