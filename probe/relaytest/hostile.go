package relaytest

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"
)

// Hostile behaviours, beyond the table: what a peer may send that is broken, or
// made to hurt whoever asks. Each acts at one stage and is healthy at the
// others. “For ever” means until the connection ends; Options.Drip is the time
// between what drips.
const (
	CloseAtRequest Behaviour = 100 + iota // FIN for an answer

	// The TLS handshake; these act on wss only.
	TLSDrip          // its flight one byte a time
	TLSHelloOnly     // its hello, then silence
	TLSCertOnly      // up to its certificate, then silence
	TLSReset         // RST after the client's hello
	TLSClose         // FIN after the client's hello
	TLSHalfRecord    // FIN in the middle of a record
	TLSGarbage       // what is no record
	TLSGiantRecord   // a record longer than TLS allows
	TLSWarnings      // warning alerts for ever
	TLSGiantChain    // a chain of 1 MB
	TLSOld           // TLS 1.1 and older only
	TLSMutual12      // TLS 1.2, and wants a certificate of the client
	TLSChainExpired  // an expired certificate between the CA's and its own
	TLSForeignCA     // a chain up to a CA that nobody knows
	TLSIPOnly        // a certificate for its address, for no name
	TLSNoNames       // a certificate for nothing at all
	TLSNotYet        // a certificate of tomorrow
	TLSClientOnly    // a certificate that no server may show
	TLSPlainLater    // handshakes, then answers without TLS
	TLSTinyRecords   // endless EVENTs, a record for each byte
	TLSHelloRequests // asks for another hello for ever

	// The HTTP head.
	HalfHead         // half a head, then silence
	HalfHeadReset    // half a head, then RST
	HalfHeadClose    // half a head, then FIN
	StatusFlood      // a status line without end
	FieldFlood       // one header field without end
	InterimFlood     // 100 Continue for ever
	InterimFirst     // 100 Continue and 103 Early Hints, then 101
	BodyFlood        // 200 with a body without end
	HTTP09           // a page without a head
	HTTP2            // the settings of HTTP/2
	Banner           // what an SSH server says
	HTTP200          // a page
	HTTP401          // wants a password
	HTTP402          // wants money
	HTTP404          // has no such page
	HTTP407          // is a proxy that wants a password
	HTTP451          // for legal reasons
	HTTP500          // is broken
	Challenge        // Cloudflare's page for browsers, 403
	RetryDate        // 429, Retry-After: a date in 10 minutes
	RetryGarbage     // 429, Retry-After: soon
	RetryHuge        // 429, Retry-After: more seconds than there are
	RedirectLoop     // 301 to itself
	NoUpgradeHeader  // 101 without Upgrade
	UnaskedExtension // 101 with permessage-deflate
	UnaskedProtocol  // 101 with a subprotocol
	Pipelined        // a NOTICE in the same packet as its 101

	// What comes in answer to REQ.
	Deflated         // RSV1, as with permessage-deflate, though nobody agreed to it
	DeflateBomb      // the same, 10 MB of zeros compressed
	ReservedBits     // RSV2 and RSV3
	MaskedFrame      // masked, as only clients do
	ReservedOpcode   // opcode 3
	LooseFragment    // a continuation of nothing
	BrokenFragments  // text between fragments
	FragmentedPing   // a ping that is to go on
	LongPing         // 126 bytes
	PingDrip         // pings for ever
	PingFlood        // the same, as fast as it can
	FragmentFlood    // empty fragments for ever
	FrameDrip        // a frame one byte a time
	HalfFrameClose   // FIN in the middle of a frame
	HalfFrameReset   // RST in the middle of a frame
	ResetAtREQ       // RST
	CloseNoCode      // close without a payload
	CloseOddCode     // close 999
	CloseShort       // close with one byte
	CloseLong        // close with a reason of 200 bytes
	CloseOddText     // close with a reason that is no UTF-8
	OddText          // text that is no UTF-8
	OddEvent         // an EVENT whose content is no UTF-8, EOSE
	BinaryEOSE       // a binary message
	EmptyTexts       // empty messages for ever
	ObjectMessage    // an object
	NumberLabel      // a number for a label
	DepthBomb        // brackets, 100 000 deep
	EOSENoID         // EOSE without an id
	EOSEOther        // EOSE of another subscription
	EventOther       // EVENT of another subscription
	EventOtherFlood  // the same for ever
	ClosedNoReason   // CLOSED without a reason
	ClosedOther      // CLOSED of another subscription
	AuthThenClose    // AUTH, then close
	AuthDrip         // AUTH for ever
	NoticeFlood      // NOTICEs for ever
	NoticeHuge       // a NOTICE of 100 KB with everything that harms a terminal
	EventDrip        // EVENTs for ever, now and then
	GiantThenEOSE    // an EVENT of 200 KB, EOSE
	HugeFragments    // fragments that grow to 300 KB
	UnsignedOverflow // announces 2^64-1 bytes

	// NIP-11.
	InfoDrip      // one byte a time
	InfoBomb      // 10 MB of zeros, compressed by gzip
	InfoBadChunks // chunks that are none
	InfoShort     // less than Content-Length, then silence
	InfoShortEnd  // less than Content-Length, then FIN
	InfoLong      // more than Content-Length
	InfoVast      // Content-Length: 1 TB
	InfoLoop      // 302 to itself
	InfoDepth     // nested 10 000 deep
	InfoReset     // RST in the middle
	InfoTrailers  // a chunked document with trailers without end
	InfoUpgrades  // 101, though nobody asked

	hostileEnd
)

// HostileBehaviours returns all of them.
func HostileBehaviours() []Behaviour {
	var all []Behaviour
	for b := CloseAtRequest; b < hostileEnd; b++ {
		all = append(all, b)
	}
	return all
}

// hostility is how a behaviour departs from a healthy relay; what is nil does
// not.
type hostility struct {
	// raw has the TCP connection to itself.
	raw func(s *session, tcp net.Conn)
	// under wraps the TCP connection that TLS goes over.
	under func(s *session, tcp net.Conn) net.Conn
	// config changes what the server agrees to, certificate what it shows.
	config      func(*tls.Config)
	certificate func(leaf *x509.Certificate) (*tls.Certificate, error)
	// http answers every request, switching changes the head of the 101, info
	// answers for NIP-11, req answers REQ. What they return says whether the
	// connection goes on.
	http      func(l *link)
	switching func(head []byte) []byte
	info      func(l *link) bool
	req       func(l *link, id string) bool
}

// hostile has what each hostile behaviour does.
var hostile = map[Behaviour]hostility{
	CloseAtRequest: {http: func(*link) {}},

	TLSDrip:        {under: func(s *session, tcp net.Conn) net.Conn { return dripping{tcp, s} }},
	TLSHelloOnly:   {under: func(_ *session, tcp net.Conn) net.Conn { return &silenced{Conn: tcp, records: 1} }},
	TLSCertOnly:    {under: func(_ *session, tcp net.Conn) net.Conn { return &silenced{Conn: tcp, records: 4} }},
	TLSReset:       {raw: afterHello(func(_ *session, tcp net.Conn) { resetAtEnd(tcp) })},
	TLSClose:       {raw: afterHello(func(*session, net.Conn) {})},
	TLSHalfRecord:  {raw: afterHello(func(_ *session, tcp net.Conn) { _, _ = tcp.Write([]byte{22, 3, 3, 0, 90, 2, 0, 0, 86}) })},
	TLSGarbage:     {raw: afterHello(func(_ *session, tcp net.Conn) { _, _ = tcp.Write(bytes.Repeat([]byte{0xf5, 0x5a, 0x93}, 170)) })},
	TLSGiantRecord: {raw: afterHello(func(_ *session, tcp net.Conn) { _, _ = tcp.Write([]byte{22, 3, 3, 0xff, 0xff, 2, 0}); drain(tcp) })},
	TLSWarnings: {raw: afterHello(func(_ *session, tcp net.Conn) {
		repeat(tcp, []byte{21, 3, 3, 0, 2, 1, 100}) // no_renegotiation
	})},
	TLSGiantChain: {certificate: giantChain},
	TLSOld: {config: func(c *tls.Config) {
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}},
	TLSMutual12: {config: func(c *tls.Config) {
		c.MaxVersion, c.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert
	}},
	TLSChainExpired: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) {
		now := time.Now()
		return signChain(leaf, &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "relaytest intermediate"},
			NotBefore: now.Add(-72 * time.Hour), NotAfter: now.Add(-24 * time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, ca().cert, ca().key)
	}},
	TLSForeignCA: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) {
		foreign := &x509.Certificate{
			SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "foreign CA", Organization: []string{"Example \x1b[2J"}},
			NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		return signChain(leaf, foreign, foreign, ca().leaf)
	}},
	TLSIPOnly: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) { leaf.DNSNames = nil; return signLeaf(leaf) }},
	TLSNoNames: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) {
		leaf.DNSNames, leaf.IPAddresses, leaf.Subject = nil, nil, pkix.Name{}
		return signLeaf(leaf)
	}},
	TLSNotYet: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) {
		leaf.NotBefore = time.Now().Add(24 * time.Hour)
		return signLeaf(leaf)
	}},
	TLSClientOnly: {certificate: func(leaf *x509.Certificate) (*tls.Certificate, error) {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		return signLeaf(leaf)
	}},
	TLSPlainLater: {http: func(l *link) {
		_, _ = l.tcp.Write(response("400 Bad Request", "text/plain", "", "The plain HTTP request was sent to HTTPS port"))
	}},
	TLSTinyRecords: {req: func(l *link, id string) bool {
		for event := eventFrame(nil, id); ; {
			for i := range event {
				if !l.write(event[i : i+1]) {
					return false
				}
			}
		}
	}},
	TLSHelloRequests: {raw: afterHello(func(_ *session, tcp net.Conn) { repeat(tcp, []byte{22, 3, 3, 0, 4, 0, 0, 0, 0}) })},

	HalfHead:      {http: func(l *link) { l.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgr")); drain(l.conn) }},
	HalfHeadReset: {http: func(l *link) { l.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgr")); l.reset = true }},
	HalfHeadClose: {http: func(l *link) { l.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgr")) }},
	StatusFlood:   {http: func(l *link) { l.write([]byte("HTTP/1.1 101 ")); l.repeat(bytes.Repeat([]byte("a"), 8<<10)) }},
	FieldFlood:    {http: func(l *link) { l.write([]byte("HTTP/1.1 200 OK\r\nX-A: ")); l.repeat(bytes.Repeat([]byte("a"), 8<<10)) }},
	InterimFlood:  {http: func(l *link) { l.repeat([]byte("HTTP/1.1 100 Continue\r\n\r\n")) }},
	InterimFirst: {switching: func(head []byte) []byte {
		return append([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n"), head...)
	}},
	BodyFlood: {http: func(l *link) {
		l.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"))
		l.repeat(bytes.Repeat([]byte("<p>"), 4<<10))
	}},
	HTTP09: {http: func(l *link) { l.write([]byte("<html><body>hello</body></html>\n")) }},
	HTTP2: {http: func(l *link) {
		l.write([]byte("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"))
		drain(l.conn)
	}},
	Banner:    {http: func(l *link) { l.write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")); drain(l.conn) }},
	HTTP200:   answerStatus("200 OK", "", "<html><body>Please use a Nostr client to connect.</body></html>"),
	HTTP401:   answerStatus("401 Unauthorized", "WWW-Authenticate: Basic realm=\"relay\"\r\n", ""),
	HTTP402:   answerStatus("402 Payment Required", "", "pay"),
	HTTP404:   answerStatus("404 Not Found", "", "nothing here"),
	HTTP407:   answerStatus("407 Proxy Authentication Required", "Proxy-Authenticate: Basic\r\n", ""),
	HTTP451:   answerStatus("451 Unavailable For Legal Reasons", "", ""),
	HTTP500:   answerStatus("500 Internal Server Error", "", "oops"),
	Challenge: answerStatus("403 Forbidden", "Server: cloudflare\r\nCF-Mitigated: challenge\r\n", "<!DOCTYPE html><title>Just a moment...</title>"),
	RetryDate: {http: func(l *link) {
		tooMany(l, time.Now().Add(10*time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	}},
	RetryGarbage:    {http: func(l *link) { tooMany(l, "soon") }},
	RetryHuge:       {http: func(l *link) { tooMany(l, strings.Repeat("9", 40)) }},
	RedirectLoop:    answerStatus("301 Moved Permanently", "Location: /\r\n", ""),
	NoUpgradeHeader: {switching: func(head []byte) []byte { return bytes.Replace(head, []byte("Upgrade: websocket\r\n"), nil, 1) }},
	UnaskedExtension: {switching: func(head []byte) []byte {
		return append(head[:len(head)-2], "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"...)
	}},
	UnaskedProtocol: {switching: func(head []byte) []byte {
		return append(head[:len(head)-2], "Sec-WebSocket-Protocol: nostr\r\n\r\n"...)
	}},
	Pipelined: {switching: func(head []byte) []byte { return frame(head, opText, `["NOTICE","welcome"]`) }},

	Deflated:        answerFrames("\xc1\x07\xaa\x56\x4a\x4c\x4a\x06\x00"),
	DeflateBomb:     {req: func(l *link, _ string) bool { return l.write(rsv1(zerosDeflated())) }},
	ReservedBits:    answerFrames("\xb1\x02[]"),
	MaskedFrame:     answerFrames("\x81\x82\x00\x00\x00\x00[]"),
	ReservedOpcode:  answerFrames("\x83\x02[]"),
	LooseFragment:   answerFrames("\x80\x02[]"),
	BrokenFragments: answerFrames("\x01\x01[", "\x81\x02[]"),
	FragmentedPing:  answerFrames("\x09\x01x"),
	LongPing:        answerFrames("\x89\x7e\x00\x7e" + strings.Repeat("x", 126)),
	PingDrip:        {req: func(l *link, _ string) bool { return l.drip(frame(nil, opPing, "hi")) }},
	PingFlood:       {req: func(l *link, _ string) bool { return l.repeat(frame(nil, opPing, strings.Repeat("x", 125))) }},
	FragmentFlood: {req: func(l *link, _ string) bool {
		l.write([]byte{opText, 0})
		return l.repeat(bytes.Repeat([]byte{0, 0}, 1<<10))
	}},
	FrameDrip: {req: func(l *link, id string) bool {
		for _, b := range frame(nil, opText, `["EOSE","`, id, `"]`) {
			if !l.write([]byte{b}) || !l.pause(l.r.opt.Drip) {
				return false
			}
		}
		return true
	}},
	HalfFrameClose:  {req: func(l *link, _ string) bool { l.write([]byte("\x81\x20[\"EOSE")); return false }},
	HalfFrameReset:  {req: func(l *link, _ string) bool { l.write([]byte("\x81\x20[\"EOSE")); l.reset = true; return false }},
	ResetAtREQ:      {req: func(l *link, _ string) bool { l.reset = true; return false }},
	CloseNoCode:     answerClose(""),
	CloseOddCode:    answerClose("\x03\xe7odd"),
	CloseShort:      answerClose("\x03"),
	CloseLong:       answerFrames("\x88\x7e\x00\xca\x03\xe8" + strings.Repeat("x", 200)),
	CloseOddText:    answerClose("\x03\xf0no \xff\x00\x1b[2J more"),
	OddText:         answerFrames("\x81\x05\xff\xfe\x1b[m"),
	OddEvent:        answerTexts(`["EVENT","ID",{"kind":1,"content":"`+"\xff\xfe"+`"}]`, `["EOSE","ID"]`),
	BinaryEOSE:      {req: func(l *link, id string) bool { return l.write(frame(nil, opBinary, `["EOSE","`, id, `"]`)) }},
	EmptyTexts:      {req: func(l *link, _ string) bool { return l.repeat(frame(nil, opText)) }},
	ObjectMessage:   answerTexts(`{"EOSE":"ID"}`),
	NumberLabel:     answerTexts(`[1,"ID"]`),
	DepthBomb:       answerTexts(strings.Repeat("[", 100_000)),
	EOSENoID:        answerTexts(`["EOSE"]`),
	EOSEOther:       answerTexts(`["EOSE","other"]`),
	EventOther:      answerTexts(`["EVENT","other",` + Event + `]`),
	EventOtherFlood: {req: func(l *link, _ string) bool { return l.repeat(eventFrame(nil, "other")) }},
	ClosedNoReason:  answerTexts(`["CLOSED","ID"]`),
	ClosedOther:     answerTexts(`["CLOSED","other","error: x"]`),
	AuthThenClose: {req: func(l *link, _ string) bool {
		l.write(frame(frame(nil, opText, `["AUTH","6b1f7f6a3c0de1"]`), opClose, "\x03\xe8"))
		return false
	}},
	AuthDrip: {req: func(l *link, _ string) bool { return l.drip(frame(nil, opText, `["AUTH","6b1f7f6a3c0de1"]`)) }},
	NoticeFlood: {req: func(l *link, _ string) bool {
		return l.repeat(frame(nil, opText, `["NOTICE","`, strings.Repeat("no ", 300), `"]`))
	}},
	NoticeHuge: {req: func(l *link, _ string) bool {
		l.write(frame(nil, opText, `["NOTICE","`, strings.Repeat("no\\r\\n\\u001b[31m\\u202e\\u0000"+"\xff", 3000), `"]`))
		return true
	}},
	EventDrip: {req: func(l *link, id string) bool { return l.drip(eventFrame(nil, id)) }},
	GiantThenEOSE: {req: func(l *link, id string) bool {
		return l.write(frame(frame(nil, opText, `["EVENT","`, id, `",{"content":"`, strings.Repeat("x", 200<<10), `"}]`), opText, `["EOSE","`, id, `"]`))
	}},
	HugeFragments: {req: func(l *link, _ string) bool {
		l.write([]byte{opText, 1, '['})
		f := frame(nil, 0, strings.Repeat(" ", 10<<10))
		f[0] = 0
		return l.repeat(f)
	}},
	UnsignedOverflow: answerFrames("\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff"),

	InfoDrip: {info: func(l *link) bool {
		for _, b := range response("200 OK", nostrType, "", l.r.opt.Info) {
			if !l.write([]byte{b}) || !l.pause(l.r.opt.Drip) {
				return false
			}
		}
		return true
	}},
	InfoBomb: {info: func(l *link) bool {
		return l.write(response("200 OK", nostrType, "Content-Encoding: gzip\r\n", string(zerosDeflated())))
	}},
	InfoBadChunks: answerInfo("200 OK", "Transfer-Encoding: chunked", "zz\r\n{}\r\n0\r\n\r\n"),
	InfoShort: {info: func(l *link) bool {
		l.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"name\":\"half"))
		drain(l.conn)
		return false
	}},
	InfoShortEnd: answerInfo("200 OK", "Content-Length: 900", `{"name":"half`),
	InfoLong: {info: func(l *link) bool {
		return l.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"name\":\"cut\"}\"cut\"}\r\n\r\n"))
	}},
	InfoVast: {info: func(l *link) bool {
		l.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n{"))
		return l.repeat(bytes.Repeat([]byte(" "), 8<<10))
	}},
	InfoLoop: {info: func(l *link) bool { return l.write(response("302 Found", "text/plain", "Location: /\r\n", "")) }},
	InfoDepth: {info: func(l *link) bool {
		return l.write(response("200 OK", nostrType, "", `{"a":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+"}"))
	}},
	InfoReset: {info: func(l *link) bool {
		l.write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"name\":\"half"))
		l.reset = true
		return false
	}},
	InfoTrailers: {info: func(l *link) bool {
		l.write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"name\":\"whole\"}\r\n0\r\n"))
		return l.repeat([]byte("X-Trailer: " + strings.Repeat("a", 1000) + "\r\n"))
	}},
	InfoUpgrades: answerInfo("101 Switching Protocols", "Upgrade: websocket\r\nConnection: Upgrade", ""),
}

const nostrType = "application/nostr+json"

// opBinary is the opcode of a binary message.
const opBinary = 2

// eventFrame appends an EVENT's frame.
func eventFrame(dst []byte, id string) []byte {
	return frame(dst, opText, `["EVENT","`, id, `",`, Event, `]`)
}

// answerFrames answers REQ with bytes, then waits.
func answerFrames(words ...string) hostility {
	return hostility{req: func(l *link, _ string) bool { return l.write([]byte(strings.Join(words, ""))) }}
}

// answerTexts answers REQ with messages, ID in them being the subscription's, then
// waits.
func answerTexts(words ...string) hostility {
	return hostility{req: func(l *link, id string) bool {
		for _, w := range words {
			if !l.write(frame(nil, opText, strings.ReplaceAll(w, `"ID"`, `"`+id+`"`))) {
				return false
			}
		}
		return true
	}}
}

// answerClose answers REQ with a close frame, and ends.
func answerClose(payload string) hostility {
	return hostility{req: func(l *link, _ string) bool { l.write(frame(nil, opClose, payload)); return false }}
}

// answerStatus answers every request with one status, and ends.
func answerStatus(line, fields, body string) hostility {
	return hostility{http: func(l *link) { l.write(response(line, "text/html", fields+"Connection: close\r\n", body)) }}
}

func tooMany(l *link, after string) {
	l.write(response("429 Too Many Requests", "text/plain", "Retry-After: "+after+"\r\nConnection: close\r\n", "slow down"))
}

// answerInfo answers for NIP-11 with a status, one more field and a body, and
// ends.
func answerInfo(line, field, body string) hostility {
	return hostility{info: func(l *link) bool {
		l.write([]byte("HTTP/1.1 " + line + "\r\nContent-Type: " + nostrType + "\r\n" + field + "\r\n\r\n" + body))
		return false
	}}
}

// repeat writes p until the connection ends.
func (l *link) repeat(p []byte) bool {
	for l.write(p) {
	}
	return false
}

// drip writes p each Options.Drip until the connection ends.
func (l *link) drip(p []byte) bool {
	for l.write(p) && l.pause(l.r.opt.Drip) {
	}
	return false
}

// repeat writes p until the connection ends.
func repeat(c net.Conn, p []byte) {
	for p = bytes.Repeat(p, 1<<10); ; {
		if _, err := c.Write(p); err != nil {
			return
		}
	}
}

// drain reads until the connection ends.
func drain(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// afterHello lets then have the connection once the client has said hello.
func afterHello(then func(*session, net.Conn)) func(*session, net.Conn) {
	return func(s *session, tcp net.Conn) {
		var head [5]byte
		if _, err := io.ReadFull(tcp, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, tcp, int64(binary.BigEndian.Uint16(head[3:]))); err == nil {
			then(s, tcp)
		}
	}
}

// dripping writes one byte each Options.Drip.
type dripping struct {
	net.Conn
	s *session
}

func (d dripping) Write(p []byte) (int, error) {
	for i := range p {
		if !d.s.pause(d.s.r.opt.Drip) {
			return i, net.ErrClosed
		}
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// silenced lets the first TLS records through and none after; what is written
// is whole records.
type silenced struct {
	net.Conn
	records int
}

func (s *silenced) Write(p []byte) (int, error) {
	for rest := p; len(rest) >= 5 && s.records > 0; s.records-- {
		n := min(len(rest), 5+int(binary.BigEndian.Uint16(rest[3:])))
		if _, err := s.Conn.Write(rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// zerosDeflated is what 10 MB of zeros are to gzip.
var zerosDeflated = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 10 {
		must(w.Write(zeros))
	}
	if err := w.Close(); err != nil {
		panic(fmt.Sprintf("relaytest: %v", err))
	}
	return b.Bytes()
})

// rsv1 is a text frame with the mark of permessage-deflate.
func rsv1(payload []byte) []byte {
	f := frame(nil, opText, string(payload))
	f[0] |= 0x40
	return f
}

// signLeaf is leaf, signed by the CA of this process.
func signLeaf(leaf *x509.Certificate) (*tls.Certificate, error) {
	return signChain(leaf, nil, ca().cert, ca().key)
}

// signChain is leaf, signed by the CA between, which parent has signed; without
// one, by parent itself.
func signChain(leaf, between, parent *x509.Certificate, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	a := ca()
	c := &tls.Certificate{PrivateKey: a.leaf, Certificate: [][]byte{nil}}
	if between != nil {
		der, err := x509.CreateCertificate(rand.Reader, between, parent, &a.leaf.PublicKey, key)
		if err != nil {
			return nil, fmt.Errorf("sign a CA between: %w", err)
		}
		if parent, err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("read a CA between: %w", err)
		}
		key = a.leaf
		c.Certificate = append(c.Certificate, der)
	}
	var err error
	if c.Certificate[0], err = x509.CreateCertificate(rand.Reader, leaf, parent, &a.leaf.PublicKey, key); err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return c, nil
}

// giantChain shows leaf with a chain of 1 MB behind it.
func giantChain(leaf *x509.Certificate) (*tls.Certificate, error) {
	c, err := signLeaf(leaf)
	if err != nil {
		return nil, err
	}
	for range 1 << 20 / len(c.Certificate[0]) {
		c.Certificate = append(c.Certificate, c.Certificate[0])
	}
	return c, nil
}
