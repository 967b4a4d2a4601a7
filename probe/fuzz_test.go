package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// script is a connection of which all that comes is known, in pieces of at most
// step bytes.
type script struct {
	in   []byte
	step int
	out  bytes.Buffer
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.in)
	s.in = s.in[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return nil }
func (s *script) RemoteAddr() net.Addr             { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// scripted is a wire over in.
func scripted(t *testing.T, in []byte, step byte) (*wire, *script) {
	s := &script{in: in, step: int(step) + 1}
	budget := maxBytes
	w := newWire(t.Context(), s, &budget)
	t.Cleanup(w.close)
	return w, s
}

// FuzzHead holds that no head or body crashes the reader, takes more than its
// bytes, or is read differently when it comes in other pieces.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.0 200 OK\nserver: x\n\n{}",
		"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 429 No\r\nRetry-After: 7\r\ncf-mitigated: challenge\r\n\r\n",
		"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: -1\r\n\r\n",
		": \r\n:\r\n\r\n", "HTTP/1.1 200\n\n", "\x16\x03\x01", "H", "HTTP/1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x06\x04\x00\x00\x00\x00\x00",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 0\r\n\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n\x81\x00",
	} {
		f.Add([]byte(s), byte(255))
		f.Add([]byte(s), byte(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, step byte) {
		type result struct {
			head head
			body string
			kept bool
			err  bool
		}
		read := func(step byte) (r result) {
			w, s := scripted(t, in, step)
			var err error
			if r.head, err = w.readHead(); err != nil {
				return result{err: true}
			}
			if r.head.status < 101 || r.head.status > 999 {
				t.Errorf("status %d", r.head.status)
			}
			body, kept, err := w.readBody(nil, &r.head, 1<<10)
			if len(body) > 1<<10 {
				t.Errorf("a body of %d bytes", len(body))
			}
			if s.out.Len() > 0 {
				t.Error("a reader wrote")
			}
			r.body, r.kept, r.err = string(body), kept, err != nil
			if r.err {
				r.body = ""
			}
			restriction(&r.head)
			retryAfter(r.head.retry, time.Now())
			return r
		}
		if a, b := read(step), read(255); a != b {
			t.Errorf("in pieces of %d: %+v, otherwise: %+v", int(step)+1, a, b)
		}
	})
}

// FuzzFrames holds that no bytes crash the reader of frames, and that a message
// is never longer than what came.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{
		"\x81\x0d[\"EOSE\",\"id\"]", "\x01\x02[\"\x89\x01x\x80\x01]", "\x88\x02\x03\xe8", "\x81\x7e\x00\x02{}", "\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00x",
		"\xc1\x07\xaa\x56\x4a\x4c\x4a\x06\x00", "\x88\x01\x03", "\x88\x7e\x00\xca\x03\xe8", "\x09\x01x", "\x89\x7e\x00\x7ex", "\x80\x02[]", "\x01\x00\x00\x00\x80\x00",
		"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "\xf5\x5a\x93", "\x8a\x00\x89\x00\x82\x00", "\x81\x80\x00\x00\x00\x00",
	} {
		f.Add([]byte(s), byte(255))
		f.Add([]byte(s), byte(0))
	}
	f.Fuzz(func(t *testing.T, in []byte, step byte) {
		w, s := scripted(t, in, step)
		fr := frames{w: w, pongLen: -1}
		total := 0
		for {
			op, msg, err := fr.next()
			if err != nil {
				break
			}
			if op != opText && op != opBinary {
				t.Fatalf("a message of opcode %d", op)
			}
			total += len(msg)
			parseMessage(msg, "id")
		}
		if total > len(in) {
			t.Errorf("%d bytes of messages from %d", total, len(in))
		}
		if s.out.Len() > 8*len(in) {
			t.Errorf("%d bytes of pongs to %d", s.out.Len(), len(in))
		}
	})
}

// FuzzFrameRoundTrip holds that a server reads what a probe writes.
func FuzzFrameRoundTrip(f *testing.F) {
	f.Add([]byte("hello"))
	f.Add(bytes.Repeat([]byte("x"), 126))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 0xffff {
			return
		}
		out := appendFrame(nil, opText, payload)
		head := 2
		if len(payload) >= 126 {
			head = 4
		}
		mask, data := out[head:head+4], out[head+4:]
		for i := range data {
			data[i] ^= mask[i&3]
		}
		if out[0] != 0x81 || out[1]&0x80 == 0 || !bytes.Equal(data, payload) {
			t.Errorf("%q became %q", payload, out)
		}
	})
}

// FuzzMessage holds that no message crashes the parser, and that what it makes
// of it can be said to a person.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`["EOSE","id"]`, `["EVENT","id",` + relaytest.Event + `]`, `["CLOSED","id","auth-required: x"]`, `["NOTICE","too many"]`, `["AUTH","c"]`,
		`["CLOSED","id"]`, `[]`, `[[["EOSE"]]]`, `["EOSE\u0000","id"]`, " [\t\"EOSE\" , \"id\"]\n", `["NOTICE",{"a":"` + "\xff" + `"}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		kind, reason := parseMessage(bytes.Clone(msg), "id")
		if kind == messageNone && reason != "" {
			t.Errorf("no message, but the reason %q", reason)
		}
		if c := closedCause(reason); c < monitor.CauseAuthRequired || c > monitor.CauseDeclined {
			t.Errorf("CLOSED with %q became %s", reason, c)
		}
		if c := noticeCause(reason); c != monitor.CauseDeclined && c != monitor.CauseRateLimited {
			t.Errorf("NOTICE with %q became %s", reason, c)
		}
		if s := quoted(reason); !utf8.ValidString(s) || len(s) > maxText+20 || bytes.ContainsAny([]byte(s), "\r\n\x00\x1b") {
			t.Errorf("evidence %q", s)
		}
	})
}

// FuzzInfo holds that no document crashes the parser, and that what is kept can
// be stored.
func FuzzInfo(f *testing.F) {
	for _, s := range []string{
		relaytest.InfoDocument, `{}`, `{"name":"a\u0000\ud800"}`, `{"supported_nips":[1,"2"],"limitation":{"auth_required":1}}`,
		"\uFEFF{\"name\":\"\xff\"}", `{"a":[[[[]]]]}`, `{"name":"\\\u0000","name":2}`, `{"pubkey":"npub1"}`, `{"\ud800":"\udc00\ud800\\ud800"}`,
		`{"a":{},"b":[],"name":"{\"[","limitation":{"auth_required":true,"x":[{}]},"tags":["a",1,[],{"b":","},"c"],"name":"last","n\u0061me":"escaped"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxInfo {
			return
		}
		info := parseInfo(bytes.Clone(body))
		if (info.Problem == "") != (info.Raw != nil) {
			t.Errorf("problem %q with %d bytes of document", info.Problem, len(info.Raw))
		}
		checkRaw(t, info.Raw)
		checkFields(t, info)
		for _, s := range append([]string{info.Name, info.Description, info.Contact, info.Software, info.Version}, info.Tags...) {
			if !utf8.ValidString(s) {
				t.Errorf("%q is not UTF-8", s)
			}
		}
	})
}

// checkFields holds that the fields are those which encoding/json sees.
func checkFields(t *testing.T, info *monitor.Info) {
	t.Helper()
	if info.Raw == nil {
		return
	}
	var fields map[string]any
	if err := json.Unmarshal(info.Raw, &fields); err != nil {
		t.Fatal(err)
	}
	str := func(v any) string { s, _ := v.(string); return s }
	for name, got := range map[string]string{
		"name": info.Name, "description": info.Description, "contact": info.Contact, "software": info.Software, "version": info.Version,
	} {
		if want := str(fields[name]); got != want {
			t.Errorf("%s is %q, want %q in %s", name, got, want, info.Raw)
		}
	}
	var tags []string
	list, _ := fields["tags"].([]any)
	for _, v := range list {
		if s := str(v); s != "" && len(tags) < maxItems {
			tags = append(tags, s)
		}
	}
	if !slices.Equal(tags, info.Tags) {
		t.Errorf("tags are %q, want %q in %s", info.Tags, tags, info.Raw)
	}
	limits, _ := fields["limitation"].(map[string]any)
	want, ok := limits["auth_required"].(bool)
	if got := info.AuthRequired; (got != nil) != ok || ok && *got != want {
		t.Errorf("auth required is %v, want %t %t in %s", got, want, ok, info.Raw)
	}
}

// FuzzReply holds that no packet crashes the reader of DNS answers.
func FuzzReply(f *testing.F) {
	name := dnsmessage.MustNewName("relay.example.")
	for _, q := range typesAsked {
		packet, _ := query(name, q)
		packet[2] |= 0x80
		f.Add(packet)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		for _, q := range typesAsked {
			var id uint16
			if len(packet) > 1 {
				id = uint16(packet[0])<<8 | uint16(packet[1])
			}
			if r, ok := readReply(packet, id, name, q); ok && len(r.addrs) > maxAnswers {
				t.Errorf("%d addresses", len(r.addrs))
			}
		}
	})
}

// answering is a relay of which all that it says is known: the documents that
// answer requests for NIP-11, and what follows the 101.
type answering struct {
	info, words []byte
	in          bytes.Buffer
	read        *int
}

func (a *answering) Write(p []byte) (int, error) {
	const name = "Sec-WebSocket-Key: "
	if _, rest, ok := bytes.Cut(p, []byte(name)); ok {
		key, _, _ := bytes.Cut(rest, []byte("\r\n"))
		a.in.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + acceptKey(key) + "\r\n\r\n")
		a.in.Write(a.words)
	} else if bytes.HasPrefix(p, []byte("GET ")) {
		a.in.Write(a.info)
	}
	return len(p), nil
}

func (a *answering) Read(p []byte) (int, error) {
	n, err := a.in.Read(p)
	*a.read += n
	return n, err
}

func (a *answering) Close() error                     { return nil }
func (a *answering) LocalAddr() net.Addr              { return nil }
func (a *answering) RemoteAddr() net.Addr             { return nil }
func (a *answering) SetDeadline(time.Time) error      { return nil }
func (a *answering) SetReadDeadline(time.Time) error  { return nil }
func (a *answering) SetWriteDeadline(time.Time) error { return nil }

// FuzzCheck holds that no relay, whatever it says, makes a whole probe panic,
// read more than its bytes, end without an outcome or say what is no sentence.
func FuzzCheck(f *testing.F) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	for _, words := range []string{"\x81\x06[\"a\"] ", "\x81\x0c[\"EOSE\",\"\"]", "\x81\x11[\"NOTICE\",\"\x1b[2J\"]\x88\x00", "\x82\x00", "\x88\x05\x03\xf0\xff\xfe\x00", "\x89\x01x\x81\x0c[\"AUTH\",\"c\"]", "\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00"} {
		f.Add([]byte(ok), []byte(words), true)
		f.Add([]byte("HTTP/1.1 302 Found\r\nLocation: //192.0.2.9:1/a?b#c\r\n\r\n"), []byte(words), false)
	}
	for _, info := range []string{"HTTP/1.1 302 Found\r\nLocation: http://[::1]:0/\r\n\r\n", "HTTP/1.1 308 X\r\nLocation: http://%zz/\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 101 X\r\n\r\n", "x"} {
		f.Add([]byte(info), []byte("\x81\x02[]"), true)
	}
	f.Fuzz(func(t *testing.T, info, words []byte, first bool) {
		read := 0
		c, err := New(Config{
			AllowNetworks: documentation, Resolvers: []string{"192.0.2.53:53"}, Timeouts: Timeouts{DNS: time.Millisecond, Overall: time.Second},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return &answering{info: info, words: words, read: &read}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		req := Request{Relay: "ws://192.0.2.1/", Info: true}
		if first {
			req.LastOutcome = monitor.OutcomeOK
		}
		o := c.Check(t.Context(), req)
		if c.Panics() > 0 {
			t.Errorf("it panicked")
		}
		if read > maxBytes {
			t.Errorf("it read %d bytes", read)
		}
		if o.Outcome == monitor.OutcomeNone || (o.Cause == monitor.CauseNone) != (o.Outcome == monitor.OutcomeOK) || o.Stage != monitor.StageRead && o.Stage != monitor.StageUpgrade {
			t.Errorf("it ended as %s/%s/%s (%s)", o.Outcome, o.Stage, o.Cause, o.Evidence)
		}
		if s := o.Evidence; s == "" || !utf8.ValidString(s) || bytes.ContainsAny([]byte(s), "\r\n\x00\x1b") {
			t.Errorf("evidence %q", s)
		}
		if o.Info != nil {
			checkRaw(t, o.Info.Raw)
		}
	})
}
