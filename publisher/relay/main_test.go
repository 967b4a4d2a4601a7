package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// patience bounds every wait of these tests; none of them needs a hundredth of
// it on an idle machine.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if kind, n, ok := strings.Cut(os.Getenv(benchServer), " "); ok {
		stored, err := strconv.Atoi(n)
		if err == nil {
			err = runBenchServer(kind, stored)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if url, how, ok := strings.Cut(os.Getenv(goNostrClient), " "); ok {
		if err := runGoNostr(url, how == assumeValid); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m,
		// khatru starts it once per relay and never ends it.
		goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// served is a relay on a real socket.
type served struct {
	*relay.Relay
	url string // ws://…
}

func serve(t testing.TB, o relay.Options) *served {
	t.Helper()
	r, err := relay.New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.Wants(req) {
			http.NotFound(w, req)
			return
		}
		r.ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return &served{r, "ws" + strings.TrimPrefix(srv.URL, "http")}
}

// client speaks Nostr to a served relay.
type client struct {
	t    testing.TB
	ctx  context.Context
	sock *websocket.Conn
	// asked counts queries. A CLOSE is not answered, so an event pushed to an
	// earlier query may still be under way: it is read past.
	asked int
	// decoded holds each event that was read before, by its JSON: the whole
	// list is read many times.
	decoded map[string]*nostr.Event
}

func (s *served) dial(t testing.TB) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sock, _, err := websocket.Dial(ctx, s.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, sock)
}

func newClient(t testing.TB, sock *websocket.Conn) *client {
	sock.SetReadLimit(-1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		_ = sock.CloseNow()
		cancel()
	})
	return &client{t: t, ctx: ctx, sock: sock, decoded: map[string]*nostr.Event{}}
}

func (c *client) send(format string, a ...any) {
	c.t.Helper()
	if err := c.sock.Write(c.ctx, websocket.MessageText, fmt.Appendf(nil, format, a...)); err != nil {
		c.t.Fatal(err)
	}
}

// message is one that the relay sent.
type message struct {
	label string
	parts []json.RawMessage
	text  string
}

func (m message) str(i int) string {
	var s string
	_ = json.Unmarshal(m.parts[i], &s)
	return s
}

func (c *client) next() message {
	c.t.Helper()
	for {
		m, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		var n int
		if m.label == "EVENT" {
			if _, err := fmt.Sscanf(m.str(1), "query%d", &n); err == nil && n < c.asked {
				continue
			}
		}
		return m
	}
}

func (c *client) read() (message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	_, b, err := c.sock.Read(ctx)
	if err != nil {
		return message{}, err
	}
	m := message{text: string(b)}
	// An EVENT without looking into the event, which decode does.
	if rest, ok := bytes.CutPrefix(b, []byte(`["EVENT",`)); ok {
		if i := bytes.Index(rest, []byte(`",{`)); i > 0 && b[len(b)-1] == ']' {
			m.label = "EVENT"
			m.parts = []json.RawMessage{[]byte(`"EVENT"`), rest[:i+1], rest[i+2 : len(rest)-1]}
			return m, nil
		}
	}
	if err := json.Unmarshal(b, &m.parts); err != nil {
		return m, fmt.Errorf("%q: %w", b, err)
	}
	m.label = m.str(0)
	return m, nil
}

func (c *client) decode(m message) *nostr.Event {
	c.t.Helper()
	if ev := c.decoded[string(m.parts[2])]; ev != nil {
		return ev
	}
	ev, err := nostr.Decode(m.parts[2])
	if err != nil {
		c.t.Fatalf("%s: %v", m.text, err)
	}
	c.decoded[string(m.parts[2])] = ev
	return ev
}

// query sends a REQ of these filters and returns the events up to its EOSE,
// then closes it.
func (c *client) query(filters ...string) []*nostr.Event {
	c.t.Helper()
	id := fmt.Sprintf("query%d", c.asked)
	c.send(`["REQ",%q,%s]`, id, strings.Join(filters, ","))
	out := c.untilEOSE(id)
	c.send(`["CLOSE",%q]`, id)
	c.asked++
	return out
}

func (c *client) untilEOSE(id string) []*nostr.Event {
	c.t.Helper()
	out := []*nostr.Event{}
	for {
		m := c.next()
		switch {
		case m.label == "EVENT" && m.str(1) == id:
			out = append(out, c.decode(m))
		case m.label == "EOSE" && m.str(1) == id:
			return out
		default:
			c.t.Fatalf("in the answer to %q: %s", id, m.text)
		}
	}
}

// event reads one EVENT of subscription id.
func (c *client) event(id string) *nostr.Event {
	c.t.Helper()
	m := c.next()
	if m.label != "EVENT" || m.str(1) != id {
		c.t.Fatalf("got %s, want an EVENT of %q", m.text, id)
	}
	return c.decode(m)
}

var key = func() nostr.Key {
	k, err := nostr.ParseKey("0000000000000000000000000000000000000000000000000000000000000003")
	if err != nil {
		panic(err)
	}
	return k
}()

func urlOf(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://relay%05d.example.com/", i))
}

// report is a report as Pharos words it, dated at, with some variety in what
// filters ask about.
func report(i int, at time.Time) nostr.Event {
	ev := nostr.Event{
		Kind: nostr.KindReport, CreatedAt: nostr.Timestamp(at.Unix()),
		Content: fmt.Sprintf(`{"name":"relay %d","description":"said \"so\"","supported_nips":[1,11,42]}`, i),
		Tags: nostr.Tags{
			{"d", string(urlOf(i))},
			{"n", "clearnet"},
			{"rtt-open", fmt.Sprint(20 + i%200)},
			{"L", "nip66.status"},
			{"l", "online", "nip66.status"},
			{"R", "!auth"},
			{"R", "!payment"},
			{"R", "!pow"},
			{"R", "!writes"},
			{"N", "1"},
			{"N", "11"},
			{"expiration", fmt.Sprint(at.Add(6 * time.Hour).Unix())},
		},
	}
	if i%3 == 0 {
		ev.Tags = append(ev.Tags, nostr.Tag{"N", "42"})
	}
	if i%5 == 0 {
		ev.Tags = append(ev.Tags, nostr.Tag{"t", "Art"})
	}
	if i%7 == 0 {
		ev.Tags = append(ev.Tags, nostr.Tag{"T", "PrivateInbox"}, nostr.Tag{"W", "16"}, nostr.Tag{"k", "!4"})
	}
	if i%11 == 0 {
		ev.Tags = append(ev.Tags, nostr.Tag{"L", "ISO-3166-1"}, nostr.Tag{"l", "DE", "ISO-3166-1"}, nostr.Tag{"g", "u33d"})
	}
	if i%1000 == 29 {
		ev.Tags = append(ev.Tags, nostr.Tag{"p", strings.Repeat("5", 64)})
	}
	return ev
}

func signed(t testing.TB, ev nostr.Event) *monitor.SignedEvent {
	t.Helper()
	if err := key.Sign(&ev); err != nil {
		t.Fatal(err)
	}
	return encoded(t, &ev)
}

// unsigned is as good as a signed one to the relay, which verifies nothing,
// and cheap to make in thousands.
func unsigned(t testing.TB, ev nostr.Event) *monitor.SignedEvent {
	t.Helper()
	ev.PubKey = key.Pubkey()
	ev.ID = ev.GetID()
	ev.Sig = strings.Repeat("0", 128)
	return encoded(t, &ev)
}

func encoded(t testing.TB, ev *nostr.Event) *monitor.SignedEvent {
	t.Helper()
	s, err := nostr.Encode(ev)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// generation holds n reports, 19 a second, the newest dated now.
func generation(t testing.TB, n int, now time.Time, sign func(testing.TB, nostr.Event) *monitor.SignedEvent) *monitor.Generation {
	t.Helper()
	g := &monitor.Generation{Number: 1, GeneratedAt: now, NewestCheck: now}
	for i := range n {
		at := now.Add(-time.Duration((i*7919%n)/19) * time.Second)
		g.Online = append(g.Online, monitor.OnlineRelay{URL: urlOf(i), Report: sign(t, report(i, at))})
	}
	return g
}

// with returns a copy of g whose list was changed by f.
func with(g *monitor.Generation, f func(*monitor.Generation)) *monitor.Generation {
	c := *g
	c.Number++
	c.Online = append([]monitor.OnlineRelay(nil), g.Online...)
	c.Service = append([]*monitor.SignedEvent(nil), g.Service...)
	f(&c)
	return &c
}

// eventually waits until cond holds, asking again after a pause.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	give := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-give:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}
