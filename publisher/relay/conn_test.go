package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

// pipe is a socket that has nothing to read and takes everything.
type pipe struct {
	net.Conn
	written bytes.Buffer
	closed  atomic.Int32
}

func (p *pipe) Read([]byte) (int, error)         { return 0, io.EOF }
func (p *pipe) Write(b []byte) (int, error)      { return p.written.Write(b) }
func (p *pipe) Close() error                     { p.closed.Add(1); return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// clientFrame masks payload as a client does.
func clientFrame(first byte, payload string) []byte {
	b := []byte{first}
	if n := len(payload); n < 126 {
		b = append(b, maskBit|byte(n))
	} else {
		b = append(b, maskBit|126, byte(n>>8), byte(n))
	}
	key := [4]byte{9, 8, 7, 6}
	b = append(b, key[:]...)
	at := len(b)
	b = append(b, payload...)
	unmask(b[at:], key, 0)
	return b
}

// testConn is a connection of a client that is not exempt.
func testConn(c net.Conn, ahead []byte, r *Relay) *conn {
	addr := netip.MustParseAddr("192.0.2.1")
	return newConn(c, ahead, r, addr, r.limits.connect(visitorKey(addr), -1, time.Now()))
}

func testRelay(t testing.TB, log io.Writer) *Relay {
	t.Helper()
	r, err := New(Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ev := nostr.Event{Kind: 30166, CreatedAt: 1_790_000_000, ID: strings.Repeat("1", 64), Tags: nostr.Tags{{"d", "wss://a.example.com/"}, {"N", "1"}}}
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	r.Update(&monitor.Generation{Online: []monitor.OnlineRelay{{
		URL:    "wss://a.example.com/",
		Report: &monitor.SignedEvent{ID: ev.ID, Kind: 30166, D: "wss://a.example.com/", CreatedAt: ev.CreatedAt.Time(), JSON: body},
	}}})
	return r
}

// FuzzFrames: whatever bytes a client sends, nothing panics, khatru is handed
// whole control frames only, and what goes out are whole JSON messages.
func FuzzFrames(f *testing.F) {
	for _, m := range []string{
		`["REQ","a",{}]`, `["REQ","a",{"kinds":[30166],"#N":["1"]},{"ids":[]}]`, `["CLOSE","a"]`, `["COUNT","a",{}]`,
		`["EVENT",{"id":"x","tags":[["d"]]}]`, `["AUTH",{}]`, `["NEG-OPEN","a",{},""]`, `[[[]]]`, `["REQ"`, "\xff",
	} {
		f.Add(clientFrame(0x81, m))
		f.Add(append(clientFrame(0x01, m[:len(m)/2]), clientFrame(0x80, m[len(m)/2:])...))
		f.Add([]byte(m))
	}
	f.Add(clientFrame(0x89, "ping"))
	f.Add(clientFrame(0x88, "\x03\xe8"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		var log bytes.Buffer
		r := testRelay(t, &log)
		p := &pipe{}
		c := testConn(p, sent, r)
		if !r.remember(c) {
			t.Fatal("closing")
		}
		control, _ := io.ReadAll(c)
		_ = c.Close()
		if log.Len() > 0 {
			t.Fatal(log.String())
		}
		for len(control) > 0 {
			if control[0]&0x0f < opClose || control[0]&finBit == 0 || control[1]&maskBit == 0 || len(control) < 6+int(control[1]&0x7f) {
				t.Fatalf("khatru is handed %x", control)
			}
			control = control[6+int(control[1]&0x7f):]
		}
		out := p.written.Bytes()
		for len(out) > 0 {
			size, n := 2, int(out[1])
			if n == 126 {
				size, n = 4, int(out[2])<<8|int(out[3])
			}
			if payload := out[size : size+n]; out[0] == finBit|opText && !json.Valid(payload) {
				t.Fatalf("sent %q", payload)
			}
			out = out[size+n:]
		}
	})
}

// TestPanic: one ends its own connection, told 1011, and nobody else's.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	r := testRelay(t, &log)
	bad, good := &pipe{}, &pipe{}
	c := testConn(bad, clientFrame(0x81, `["REQ","a",{}]`), r)
	c.relay = &Relay{log: r.log, limits: r.limits} // no index: the query panics
	c.relay.settings.Store(r.settings.Load())
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection goes on")
	}
	if got := bad.written.Bytes(); len(got) < 4 || got[0] != finBit|opClose || got[2] != 0x03 || got[3] != 0xf3 {
		t.Errorf("it was told %x", got)
	}
	if !strings.Contains(log.String(), "panicked") {
		t.Errorf("the log says %q", log.String())
	}
	if _, err := io.ReadAll(testConn(good, clientFrame(0x81, `["REQ","a",{}]`), r)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(good.written.String(), `["EOSE","a"]`) {
		t.Errorf("another gets %q", good.written.String())
	}
}

// TestKhatruRefuses: were an event or a filter to reach khatru after all, it
// would refuse it (K1, K15).
func TestKhatruRefuses(t *testing.T) {
	r := testRelay(t, io.Discard)
	ev := &nostr.Event{Kind: 30166, Tags: nostr.Tags{{"d"}, {}}}
	if _, err := r.khatru.AddEvent(context.Background(), ev); err == nil || !strings.HasPrefix(err.Error(), "restricted: ") {
		t.Errorf("got %v", err)
	}
	for _, reject := range r.khatru.RejectFilter {
		if no, _ := reject(context.Background(), nostr.Filter{}); !no {
			t.Error("a filter passes")
		}
	}
	if len(r.khatru.QueryEvents)+len(r.khatru.StoreEvent)+len(r.khatru.DeleteEvent) != 0 || r.khatru.Negentropy {
		t.Error("khatru has something to answer with")
	}
}

// TestExpiryWhileQueued: an event that expired while it waited for a slow
// reader is not sent.
func TestExpiryWhileQueued(t *testing.T) {
	r := testRelay(t, io.Discard)
	p := &pipe{}
	c := testConn(p, nil, r)
	s := &subscription{prefix: []byte(`["EVENT","a",`)}
	now := time.Now().Unix()
	err := c.send(func(w *writer) error {
		for i, expires := range []int64{0, now + 3600, now, now - 1} {
			e := &event{expires: expires, source: &monitor.SignedEvent{JSON: []byte{'0' + byte(i)}}}
			if err := w.event(s, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.written.String(); !strings.Contains(got, "a\",0]") || !strings.Contains(got, "a\",1]") || strings.Contains(got, "a\",2]") || strings.Contains(got, "a\",3]") {
		t.Errorf("sent %q", got)
	}
}

// TestPushOnce: a subscription that was answered from the index as it is after
// a change is not sent that change again.
func TestPushOnce(t *testing.T) {
	r := testRelay(t, io.Discard)
	f, err := parseFilter([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	evs := []*event{{source: &monitor.SignedEvent{JSON: []byte(`7`)}}}
	for version, want := range map[uint64]string{4: `["EVENT","a",7]`, 5: ``, 6: ``} {
		p := &pipe{}
		c := testConn(p, nil, r)
		c.subscribe("a", &subscription{prefix: []byte(`["EVENT","a",`), filters: []filter{f}, version: version})
		c.push(evs, 5)
		r.running.Wait()
		if got := p.written.String(); !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("answered from version %d, then sent %q", version, got)
		}
	}
}

// TestQueueOverflow: pushing never waits for a writer, and ends the connection
// whose queue is full.
func TestQueueOverflow(t *testing.T) {
	r := testRelay(t, io.Discard)
	f, err := parseFilter([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{}
	c := testConn(p, nil, r)
	if err := c.take(context.Background()); err != nil { // as a stalled write does
		t.Fatal(err)
	}
	c.subscribe("a", &subscription{prefix: []byte(`["EVENT","a",`), filters: []filter{f}})
	evs := slices.Repeat([]*event{{source: &monitor.SignedEvent{JSON: []byte(`7`)}}}, 1<<10)
	pushes := 0
	for ; pushes < 100 && r.Stats().Slow == 0; pushes++ {
		c.push(evs, 1)
	}
	// What the writer took before it stalled is not in the queue any more.
	if n := pushes << 10; n < maxQueue || n > 2*maxQueue+1<<10 {
		t.Errorf("dropped after %d events, want %d, and as many again at most", n, maxQueue)
	}
	c.push(evs, 1)
	if n := r.Stats().Slow; n != 1 {
		t.Errorf("counted %d times", n)
	}
	if p.closed.Load() == 0 {
		t.Error("the socket is open")
	}
	c.release()
	r.running.Wait()
}

// TestExpirySecond: at its second an event is gone, from every way to ask.
func TestExpirySecond(t *testing.T) {
	x := newIndex()
	const end = 1_790_003_600
	ev := nostr.Event{Kind: 30166, ID: "a", CreatedAt: end - 3600, Tags: nostr.Tags{{"d", "x"}}}
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	x.update(&monitor.Generation{Online: []monitor.OnlineRelay{{Report: &monitor.SignedEvent{
		ID: "a", Kind: 30166, D: "x", CreatedAt: time.Unix(end-3600, 0), Expires: time.Unix(end, 0), JSON: body,
	}}}})
	for _, raw := range []string{`{}`, `{"kinds":[30166]}`, `{"#d":["x"]}`, `{"ids":["a"]}`} {
		f, err := parseFilter([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(x.query([]filter{f}, end-1, nil)); n != 1 {
			t.Errorf("%s: %d a second before", raw, n)
		}
		if n := len(x.query([]filter{f}, end, nil)); n != 0 {
			t.Errorf("%s: %d at its second", raw, n)
		}
	}
}

// TestBadEvent: one that cannot be read is left out and said so; the others are
// served.
func TestBadEvent(t *testing.T) {
	x := newIndex()
	ev := nostr.Event{Kind: 30166, ID: "b", Tags: nostr.Tags{{"d", "y"}}}
	body, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	g := &monitor.Generation{Online: []monitor.OnlineRelay{
		{URL: "a"},
		{URL: "x", Report: &monitor.SignedEvent{ID: "a", Kind: 30166, D: "x", JSON: []byte(`{`)}},
		{URL: "y", Report: &monitor.SignedEvent{ID: "b", Kind: 30166, D: "y", JSON: body}},
	}}
	for range 2 {
		if _, errs := x.update(g); len(errs) > 1 {
			t.Errorf("%v", errs)
		}
		f, err := parseFilter([]byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := x.query([]filter{f}, 0, nil); len(got) != 1 || got[0].id != "b" {
			t.Errorf("%d events", len(got))
		}
	}
}

func TestUnmask(t *testing.T) {
	key := [4]byte{1, 2, 3, 4}
	for n := range 40 {
		for pos := range 9 {
			in := bytes.Repeat([]byte{0xaa}, n)
			want := make([]byte, n)
			for i := range want {
				want[i] = 0xaa ^ key[(pos+i)%4]
			}
			if unmask(in, key, pos); !bytes.Equal(in, want) {
				t.Fatalf("%d bytes from %d: %x, want %x", n, pos, in, want)
			}
		}
	}
}

func TestParseFilterErrors(t *testing.T) {
	for raw, want := range map[string]error{
		`{"limit":-1}`: errFilter, `[]`: errFilter, `null`: errFilter, ``: errFilter, `{"kinds":[1.5]}`: errFilter, `{"search":"x"}`: errSearch, `{"search":""}`: nil, `{}`: nil,
	} {
		if _, err := parseFilter([]byte(raw)); !errors.Is(err, want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
