package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// TestRefusals: what strangers may not do, each told in NIP-01's words, with
// the connection alive after it.
func TestRefusals(t *testing.T) {
	g := generation(t, 3, time.Now(), signed)
	s := serve(t, relay.Options{MaxSubscriptions: 5})
	s.Update(g)

	event := func(kind int, tags nostr.Tags) string {
		ev := nostr.Event{Kind: kind, CreatedAt: nostr.Timestamp(time.Now().Unix()), Tags: tags}
		if err := key.Sign(&ev); err != nil {
			t.Fatal(err)
		}
		return ev.String()
	}
	const restricted = `"restricted: this relay is read-only; it serves its own reports"]`
	long := strings.Repeat("x", 65)
	for _, tc := range []struct{ name, send, prefix, suffix string }{
		{"18 an event", `["EVENT",` + event(1, nil) + `]`, `["OK","`, `",false,` + restricted},
		{"18 K1 a short d tag", `["EVENT",` + event(30166, nostr.Tags{{"d"}}) + `]`, `["OK","`, `",false,` + restricted},
		{"18 an empty tag", `["EVENT",` + event(30166, nostr.Tags{{}}) + `]`, `["OK","`, `",false,` + restricted},
		{"18 K5 a deletion of ours", `["EVENT",` + event(5, nostr.Tags{{"e", g.Online[0].Report.ID}}) + `]`, `["OK","`, `",false,` + restricted},
		{"18 a protected event", `["EVENT",` + event(1, nostr.Tags{{"-"}}) + `]`, `["OK","`, `",false,` + restricted},
		{"18 our own report", `["EVENT",` + string(g.Online[0].Report.JSON) + `]`, `["OK","` + g.Online[0].Report.ID + `",false,`, restricted},
		{"18 ephemeral", `["EVENT",` + event(20001, nil) + `]`, `["OK","`, `",false,` + restricted},
		{"18 a false signature", `["EVENT",{"id":"00","sig":"00"}]`, `["OK","00",false,`, restricted},
		{"an event that is none", `["EVENT",[[]]]`, `["OK","",false,`, restricted},
		{"17 AUTH", `["AUTH",` + event(22242, nil) + `]`, `["OK","`, `",false,"unsupported: nothing here needs AUTH"]`},
		{"K15 NEG-OPEN", `["NEG-OPEN","n",{"kinds":[30166]},"6100000200"]`, `["NEG-ERR","n","blocked: `, `"]`},
		{"K15 NEG-OPEN of nothing", `["NEG-OPEN","n"]`, `["NEG-ERR","n","blocked: `, `"]`},
		{"K15 NEG-MSG", `["NEG-MSG","n","61"]`, `["NEG-ERR","n","closed: `, `"]`},
		{"K16 an id with a quote", `["REQ","a\"b",{}]`, `["CLOSED","a\"b","invalid: `, `"]`},
		{"K16 COUNT with a backslash", `["COUNT","a\\",{}]`, `["CLOSED","a\\","invalid: `, `"]`},
		{"an id with a line break", `["REQ","a\n",{}]`, `["CLOSED","a\n","invalid: `, `"]`},
		{"no id", `["REQ","",{}]`, `["CLOSED","","invalid: `, `"]`},
		{"a long id", `["REQ","` + long + `",{}]`, `["CLOSED","` + long + `","invalid: `, `"]`},
		{"a very long id", `["REQ","` + strings.Repeat("x", 100000) + `",{}]`, `["NOTICE","invalid: `, `"]`},
		{"an id that is a number", `["REQ",7,{}]`, `["NOTICE","invalid: `, `"]`},
		{"no filter", `["REQ","a"]`, `["CLOSED","a","invalid: `, `"]`},
		{"a filter that is a list", `["REQ","a",[]]`, `["CLOSED","a","invalid: `, `"]`},
		{"a filter of wrong types", `["REQ","a",{"kinds":["x"]}]`, `["CLOSED","a","invalid: `, `"]`},
		{"a negative limit", `["REQ","a",{"limit":-1}]`, `["CLOSED","a","invalid: `, `"]`},
		{"a huge number", `["REQ","a",{"since":1e99}]`, `["CLOSED","a","invalid: `, `"]`},
		{"a search", `["REQ","a",{"search":"x"}]`, `["CLOSED","a","unsupported: `, `"]`},
		{"too many filters", `["REQ","a"` + strings.Repeat(`,{}`, 65) + `]`, `["CLOSED","a","invalid: `, `"]`},
		{"no JSON", `REQ`, `["NOTICE","invalid: `, `"]`},
		{"an empty list", `[]`, `["NOTICE","invalid: `, `"]`},
		{"an empty message", ``, `["NOTICE","invalid: `, `"]`},
		{"an unknown word", `["HELLO",1]`, `["NOTICE","invalid: `, `"]`},
		{"deep JSON", `["REQ","a",` + strings.Repeat("[", 200000) + `]`, `["NOTICE","invalid: `, `"]`},
		{"deep and whole JSON", `["EVENT",` + strings.Repeat("[", 200000) + strings.Repeat("]", 200000) + `]`, `["NOTICE","invalid: `, `"]`},
		{"deep within the parser's limit", `["REQ","a",{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"kinds":[7]}]`, `["EOSE","a"]`, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := s.dial(t)
			c.send("%s", tc.send)
			m := c.next()
			if !strings.HasPrefix(m.text, tc.prefix) || !strings.HasSuffix(m.text, tc.suffix) {
				t.Errorf("got  %.300s\nwant %s…%s", m.text, tc.prefix, tc.suffix)
			}
			if got := c.query(`{"kinds":[30166]}`); len(got) != 3 {
				t.Errorf("afterwards it serves %d", len(got))
			}
		})
	}

	t.Run("17 too many subscriptions", func(t *testing.T) {
		c := s.dial(t)
		for i := range 5 {
			c.send(`["REQ","s%d",{"kinds":[1]}]`, i)
			c.untilEOSE(fmt.Sprintf("s%d", i))
		}
		c.send(`["REQ","s5",{"kinds":[30166]}]`)
		if m := c.next(); !strings.HasPrefix(m.text, `["CLOSED","s5","rate-limited: `) {
			t.Error(m.text)
		}
		for range 20 { // K7: the same id again opens no further one
			c.send(`["REQ","s4",{"kinds":[30166]}]`)
			c.untilEOSE("s4")
		}
		// Connections of earlier cases may still be closing.
		eventually(t, "5 subscriptions are open", func() bool { return s.Stats().Subscriptions == 5 })
		c.send(`["CLOSE","s0"]`)
		c.send(`["CLOSE","never opened"]`)
		c.send(`["REQ","s5",{"kinds":[30166]}]`)
		c.untilEOSE("s5")
	})
}

// raw is a client that frames its messages by hand.
type raw struct {
	net.Conn
	br *bufio.Reader
}

const handshake = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// dialRaw sends the handshake and ahead in one write.
func (s *served) dialRaw(t testing.TB, ahead []byte) *raw {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(append([]byte(handshake), ahead...)); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", resp.StatusCode)
	}
	return &raw{c, br}
}

// frame is a masked frame with these first bits; n is the length its header
// claims, -1 = the true one.
func frame(first byte, n int, payload string) []byte {
	if n < 0 {
		n = len(payload)
	}
	b := []byte{first}
	switch {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i&3])
	}
	return b
}

// next reads one frame of the relay.
func (r *raw) next(t testing.TB) (opcode byte, payload []byte) {
	t.Helper()
	opcode, payload, err := r.read()
	if err != nil {
		t.Fatal(err)
	}
	return opcode, payload
}

func (r *raw) read() (opcode byte, payload []byte, err error) {
	var h [2]byte
	if _, err := io.ReadFull(r.br, h[:]); err != nil {
		return 0, nil, err
	}
	n := uint64(h[1])
	switch n {
	case 126:
		var b [2]byte
		if _, err := io.ReadFull(r.br, b[:]); err != nil {
			return 0, nil, err
		}
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		if _, err := io.ReadFull(r.br, b[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r.br, payload); err != nil {
		return 0, nil, err
	}
	return h[0], payload, nil
}

// TestFrames: the WebSocket's own rules, broken and kept.
func TestFrames(t *testing.T) {
	s := serve(t, relay.Options{})
	s.Update(generation(t, 3, time.Now(), signed))
	bystander := s.dial(t)
	const req = `["REQ","a",{"kinds":[30166]}]`

	for _, tc := range []struct {
		name string
		send []byte
		code uint16
	}{
		{"a frame of 1 GiB", frame(0x81, 1<<30, ""), 1009},
		{"a frame of 2⁶³ bytes", append([]byte{0x81, 0xff}, bytes.Repeat([]byte{0xff}, 12)...), 1009},
		{"fragments of more than the limit", append(append(frame(0x01, -1, strings.Repeat(" ", 300<<10)), frame(0x00, -1, strings.Repeat(" ", 200<<10))...), frame(0x80, 100<<10, "")...), 1009},
		{"an unmasked frame", []byte{0x81, 0x02, '[', ']', 0, 0, 0, 0}, 1002},
		{"reserved bits", frame(0xc1, -1, "[]"), 1002},
		{"an unknown opcode", frame(0x83, -1, "[]"), 1002},
		{"an unknown control opcode", frame(0x8b, -1, ""), 1002},
		{"a fragmented ping", frame(0x09, -1, ""), 1002},
		{"a long ping", frame(0x89, -1, strings.Repeat("x", 126)), 1002},
		{"a continuation of nothing", frame(0x80, -1, "[]"), 1002},
		{"a message within a message", append(frame(0x01, -1, "["), frame(0x81, -1, "]")...), 1002},
		{"text that is no UTF-8", frame(0x81, -1, "[\"\xff\"]"), 1007},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.dialRaw(t, tc.send)
			op, payload := r.next(t)
			if op != 0x88 || len(payload) < 2 || binary.BigEndian.Uint16(payload) != tc.code {
				t.Fatalf("got %#x %q, want a close frame of %d", op, payload, tc.code)
			}
			if _, _, err := r.read(); err == nil {
				t.Error("the connection is still open")
			}
			if got := bystander.query(`{"kinds":[30166]}`); len(got) != 3 {
				t.Errorf("another connection gets %d", len(got))
			}
		})
	}

	answered := func(t *testing.T, r *raw) {
		t.Helper()
		for range 3 {
			if op, p := r.next(t); op != 0x81 || !bytes.HasPrefix(p, []byte(`["EVENT","a",{`)) {
				t.Fatalf("got %#x %.100q", op, p)
			}
		}
		if op, p := r.next(t); op != 0x81 || string(p) != `["EOSE","a"]` {
			t.Fatalf("got %#x %q", op, p)
		}
	}
	t.Run("frames sent with the handshake", func(t *testing.T) {
		// khatru would read these past us: K1 and K15 end the process there.
		ahead := slices.Concat(frame(0x81, -1, `["EVENT",{"kind":30166,"tags":[["d"]]}]`),
			frame(0x81, -1, `["NEG-OPEN","n",{},""]`), frame(0x81, -1, req))
		r := s.dialRaw(t, ahead)
		for _, want := range []string{`["OK","",false,"restricted: `, `["NEG-ERR","n","blocked: `} {
			if _, p := r.next(t); !bytes.HasPrefix(p, []byte(want)) {
				t.Errorf("got %q", p)
			}
		}
		answered(t, r)
	})
	t.Run("a message in pieces with pings between them", func(t *testing.T) {
		ahead := slices.Concat(frame(0x01, -1, req[:5]), frame(0x89, -1, "hi"), frame(0x00, -1, req[5:9]), frame(0x00, -1, ""), frame(0x8a, -1, ""), frame(0x80, -1, req[9:]))
		r := s.dialRaw(t, ahead)
		if op, p := r.next(t); op != 0x8a || string(p) != "hi" {
			t.Fatalf("got %#x %q, want the pong", op, p)
		}
		answered(t, r)
	})
	t.Run("a close is answered", func(t *testing.T) {
		r := s.dialRaw(t, frame(0x88, -1, "\x03\xe8bye"))
		if op, p := r.next(t); op != 0x88 || binary.BigEndian.Uint16(p) != 1000 {
			t.Fatalf("got %#x %q", op, p)
		}
		if _, _, err := r.read(); !errors.Is(err, io.EOF) {
			t.Errorf("then %v", err)
		}
	})
	t.Run("a message of the largest size", func(t *testing.T) {
		pad := strings.Repeat(" ", 512<<10-len(req))
		r := s.dialRaw(t, frame(0x81, -1, req+pad))
		answered(t, r)
	})
}

// TestStalledSubscriber: rule 19 and P6. One that never reads is dropped when
// its queue is full; meanwhile others get everything.
func TestStalledSubscriber(t *testing.T) {
	const n, rounds = 2000, 24
	now := time.Now().Add(-time.Hour)
	g := generation(t, n, now, unsigned)
	s := serve(t, relay.Options{})
	s.Update(g)

	stalled := s.dialRaw(t, frame(0x81, -1, `["REQ","a",{"kinds":[30166],"limit":0}]`))
	if op, p := stalled.next(t); op != 0x81 || string(p) != `["EOSE","a"]` {
		t.Fatalf("got %#x %q", op, p)
	}
	reader := s.dial(t)
	reader.send(`["REQ","r",{"kinds":[30166],"limit":0}]`)
	reader.untilEOSE("r")
	// Two sets in turn: each update replaces every report.
	sets := []*monitor.Generation{g, with(g, func(g *monitor.Generation) {
		for i := range g.Online {
			g.Online[i].Report = unsigned(t, report(i, now.Add(time.Second)))
		}
	})}
	for round := range rounds {
		s.Update(sets[(round+1)%2])
		for range n {
			if _, b, err := reader.sock.Read(reader.ctx); err != nil || !bytes.HasPrefix(b, []byte(`["EVENT","r",`)) {
				t.Fatalf("the reader got %.100q, %v", b, err)
			}
		}
	}
	eventually(t, "the stalled one is dropped", func() bool {
		st := s.Stats()
		return st.Slow >= 1 && st.Connections == 1
	})
	if got := reader.query(`{"kinds":[30166],"limit":1}`); len(got) != 1 {
		t.Errorf("the reader gets %d", len(got))
	}
}

// TestLeavingInTheMiddle: P6. A thousand clients ask for the whole set and are
// gone after its first events.
func TestLeavingInTheMiddle(t *testing.T) {
	s := serve(t, relay.Options{})
	s.Update(generation(t, 3000, time.Now(), unsigned))
	before := runtime.NumGoroutine()
	for range 20 {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				r := s.dialRaw(t, frame(0x81, -1, `["REQ","a",{"kinds":[30166]}]`))
				for range i % 3 {
					if _, _, err := r.read(); err != nil {
						t.Error(err)
					}
				}
				_ = r.Close()
			})
		}
		wg.Wait()
	}
	eventually(t, "every connection is forgotten", func() bool { return s.Stats().Connections == 0 })
	eventually(t, "every goroutine has ended", func() bool { return runtime.NumGoroutine() <= before })
	if n := s.Stats().Subscriptions; n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}

// TestShutdown: K4. Readers are told 1001; one that does not read cannot hold
// it up; nobody comes in any more.
func TestShutdown(t *testing.T) {
	r, err := relay.New(relay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(r)
	defer srv.Close()
	s := &served{r, "ws" + strings.TrimPrefix(srv.URL, "http")}
	s.Update(generation(t, 3000, time.Now(), unsigned))
	polite := s.dial(t)
	polite.send(`["REQ","a",{"kinds":[30166]}]`)
	polite.untilEOSE("a")
	deaf := s.dialRaw(t, bytes.Repeat(frame(0x81, -1, `["REQ","a",{"kinds":[30166]}]`), 20))
	deaf.next(t)
	mute := s.dialRaw(t, nil) // reads the close frame and does not answer

	said := make(chan error, 1)
	go func() {
		_, _, err := polite.sock.Read(polite.ctx)
		said <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if code := websocket.CloseStatus(<-said); code != websocket.StatusGoingAway {
		t.Errorf("the polite one was told %d", code)
	}
	if op, p := mute.next(t); op != 0x88 || binary.BigEndian.Uint16(p) != 1001 {
		t.Errorf("the mute one was told %#x %q", op, p)
	}
	if n := s.Stats().Connections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if _, resp, err := websocket.Dial(ctx, s.url, nil); err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a newcomer: %v, %v", resp, err)
	}
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestShutdownWithoutTime(t *testing.T) {
	s := serve(t, relay.Options{})
	c := s.dialRaw(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for {
		if _, _, err := c.read(); err != nil {
			return // closed at once
		}
	}
}

// TestWants: K8, and that a browser's page is left alone.
func TestWants(t *testing.T) {
	s := serve(t, relay.Options{})
	for _, tc := range []struct {
		header, value string
		want          bool
	}{
		{"Upgrade", "websocket", true},
		{"Upgrade", "WebSocket", true},
		{"Upgrade", "h2c, WEBSOCKET", true},
		{"Upgrade", "h2c", false},
		{"Accept", "application/nostr+json", true},
		{"Accept", "Application/Nostr+JSON, */*", true},
		{"Accept", "text/html;q=0.9, application/nostr+json;q=0.1", true},
		{"Accept", "application/nostr+json;q=0", false},
		{"Accept", "application/nostr+json;q=0.000", false},
		{"Accept", "application/json, */*", false},
		{"Accept", "application/nostr+json+rpc", false},
		{"Accept", "", false},
	} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set(tc.header, tc.value)
		if got := s.Wants(req); got != tc.want {
			t.Errorf("%s: %q: %v", tc.header, tc.value, got)
		}
	}
	// khatru knows one spelling of each.
	for _, spelling := range []string{"websocket", "WebSocket", "WEBSOCKET"} {
		req, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(s.url, "ws"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Upgrade": {spelling}, "Connection": {"keep-alive, Upgrade"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %d", spelling, resp.StatusCode)
		}
		_ = resp.Body.Close()
	}
}

// TestInfo: rule 20.
func TestInfo(t *testing.T) {
	s := serve(t, relay.Options{Name: "Pharos", Contact: "mailto:a@example.com", Pubkey: key.Pubkey(), Version: "1.2.3", MaxSubscriptions: 9})
	got := s.info(t)
	want := map[string]any{
		"name": "Pharos", "contact": "mailto:a@example.com", "pubkey": key.Pubkey(), "version": "1.2.3",
		"description":    "Which Nostr relays are online: corroborated NIP-66 reports, read-only.",
		"software":       "https://github.com/pharos-nostr/pharos",
		"supported_nips": []any{1.0, 11.0, 40.0, 45.0, 66.0},
		"limitation": map[string]any{
			"max_message_length": 524288.0, "max_subscriptions": 9.0, "max_limit": 1e6, "default_limit": 1e6, "max_subid_length": 64.0,
			"auth_required": false, "payment_required": false, "restricted_writes": true,
		},
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// K9: nothing that we do not do, and no empty field.
	bare := serve(t, relay.Options{}).info(t)
	if v, _ := bare["version"].(string); v == "" {
		t.Errorf("version %q", v)
	}
	for name, v := range bare {
		if v == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

// TestCompression: K11. A client that offers permessage-deflate is taken, and
// spoken to without.
func TestCompression(t *testing.T) {
	s := serve(t, relay.Options{})
	s.Update(generation(t, 30, time.Now(), signed))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, mode := range []websocket.CompressionMode{websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover} {
		sock, resp, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{CompressionMode: mode, CompressionThreshold: 1})
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, sock)
		if resp.Request.Header.Get("Sec-WebSocket-Extensions") == "" {
			t.Error("the client did not offer it")
		}
		if got := resp.Header.Get("Sec-WebSocket-Extensions"); got != "" {
			t.Errorf("agreed on %q", got)
		}
		if n := len(c.query(`{"kinds":[30166]}`)); n != 30 {
			t.Errorf("%d events", n)
		}
	}
}

// TestOrder: K16. Messages are answered in the order they came in, so that a
// CLOSE ends the REQ before it and does not touch the one after it.
func TestOrder(t *testing.T) {
	g := generation(t, 3, time.Now(), signed)
	s := serve(t, relay.Options{})
	s.Update(g)
	var ahead []byte
	for _, m := range []string{
		`["CLOSE","after"]`, `["REQ","after",{"kinds":[30166],"limit":0}]`,
		`["REQ","before",{"kinds":[30166],"limit":0}]`, `["CLOSE","before"]`,
		`["COUNT","sync",{}]`,
	} {
		ahead = append(ahead, frame(0x81, -1, m)...)
	}
	r := s.dialRaw(t, ahead)
	for _, want := range []string{`["EOSE","after"]`, `["EOSE","before"]`, `["COUNT","sync",{"count":3}]`} {
		if _, p := r.next(t); string(p) != want {
			t.Fatalf("got %s, want %s", p, want)
		}
	}
	s.Update(with(g, func(g *monitor.Generation) { g.Online[0].Report = signed(t, report(0, time.Now().Add(time.Second))) }))
	if _, p := r.next(t); !bytes.HasPrefix(p, []byte(`["EVENT","after",`)) {
		t.Errorf("got %.100s", p)
	}
	if _, err := r.Write(frame(0x81, -1, `["COUNT","sync",{}]`)); err != nil {
		t.Fatal(err)
	}
	if _, p := r.next(t); string(p) != `["COUNT","sync",{"count":3}]` {
		t.Errorf("the closed subscription still speaks: %.100s", p)
	}
}
