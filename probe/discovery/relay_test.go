package discovery_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe/discovery"
)

// world is a network in memory, for tests under testing/synctest: each host of
// it is a source, and no time passes but that which somebody waits for.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	sources map[string]*relay
	client  *http.Client
}

// relay is a source for tests: a store of events that answers REQs as relays do,
// unless one of its functions does otherwise.
type relay struct {
	url monitor.RelayURL

	mu     sync.Mutex
	events []*nostr.Event
	cap    int // events in an answer at most
	// upgrade answers the HTTP request; true = it has.
	upgrade func(w http.ResponseWriter, r *http.Request, dial int) bool
	// greet is called when a connection stands.
	greet func(c *conn)
	// req answers the nth REQ of all connections instead of the relay; true = it
	// has.
	req func(c *conn, n int, q query) bool
	// auth answers an AUTH.
	auth func(c *conn, ev *nostr.Event)

	dials   int
	queries []query
	closes  []string
	times   []time.Time // of the REQs
	headers []http.Header
}

type query struct {
	ID    string `json:"-"`
	Kinds []int
	Limit int
	Since *int64
	Until *int64
}

// conn is a source's end of a connection.
type conn struct {
	*websocket.Conn
	ctx  context.Context
	r    *relay
	dial int
}

// send writes a message, and reports whether that worked.
func (c *conn) send(parts ...any) bool {
	msg, err := json.Marshal(parts)
	if err != nil {
		panic(err)
	}
	return c.raw(string(msg))
}

func (c *conn) raw(msg string) bool {
	return c.Write(c.ctx, websocket.MessageText, []byte(msg)) == nil
}

// answer is what a relay in order sends.
func (c *conn) answer(q query) {
	c.r.mu.Lock()
	events := c.r.match(q)
	c.r.mu.Unlock()
	for _, ev := range events {
		if !c.send("EVENT", q.ID, ev) {
			return
		}
	}
	c.send("EOSE", q.ID)
}

// match is what there is for q, newest first; r.mu is held.
func (r *relay) match(q query) (out []*nostr.Event) {
	for _, ev := range r.events {
		at := int64(ev.CreatedAt)
		if slices.Contains(q.Kinds, ev.Kind) && (q.Since == nil || at >= *q.Since) && (q.Until == nil || at <= *q.Until) {
			out = append(out, ev)
		}
	}
	slices.SortStableFunc(out, func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	limit := q.Limit
	if r.cap > 0 {
		limit = min(limit, r.cap)
	}
	return out[:min(limit, len(out))]
}

func (r *relay) add(events ...*nostr.Event) *relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	return r
}

// dialled is how often somebody connected, asked the queries so far.
func (r *relay) dialled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

func (r *relay) asked() []query {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queries)
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.dials++
	dial := r.dials
	r.headers = append(r.headers, req.Header.Clone())
	r.mu.Unlock()
	if r.upgrade != nil && r.upgrade(w, req, dial) {
		return
	}
	ws, err := websocket.Accept(w, req, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &conn{ws, ctx, r, dial}
	if r.greet != nil {
		r.greet(c)
	}
	// Answers are sent beside the reading, as relays do.
	asked := make(chan query, 64)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(asked)
	defer cancel()
	wg.Go(func() {
		for q := range asked {
			r.mu.Lock()
			r.queries = append(r.queries, q)
			r.times = append(r.times, time.Now())
			n := len(r.queries)
			r.mu.Unlock()
			if r.req == nil || !r.req(c, n, q) {
				c.answer(q)
			}
		}
	})
	for {
		_, msg, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var parts []json.RawMessage
		if json.Unmarshal(msg, &parts) != nil || len(parts) < 2 {
			panic(fmt.Sprintf("the client sent %s", msg))
		}
		var kind, id string
		_ = json.Unmarshal(parts[0], &kind)
		_ = json.Unmarshal(parts[1], &id)
		switch kind {
		case "REQ":
			q := query{ID: id}
			if len(parts) != 3 || json.Unmarshal(parts[2], &q) != nil {
				panic(fmt.Sprintf("the client sent %s", msg))
			}
			select {
			case asked <- q:
			case <-ctx.Done():
			}
		case "CLOSE":
			r.mu.Lock()
			r.closes = append(r.closes, id)
			r.mu.Unlock()
		case "AUTH":
			ev, err := nostr.Decode(parts[1])
			if err != nil {
				panic(err)
			}
			r.auth(c, ev)
		}
	}
}

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func newWorld(t *testing.T) *world {
	w := &world{t: t, sources: map[string]*relay{}}
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: w}
	go server.Serve(p)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			client, host := net.Pipe()
			select {
			case p.conns <- host:
				return client, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	w.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return w
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	source := w.sources[r.Host]
	w.mu.Unlock()
	if source == nil {
		http.NotFound(rw, r)
		return
	}
	source.ServeHTTP(rw, r)
}

// relay adds a source.
func (w *world) relay(host string, events ...*nostr.Event) *relay {
	r := &relay{url: monitor.RelayURL("ws://" + host + "/"), events: events}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[host] = r
	return r
}

// config is that of a discovery with these sources.
func (w *world) config(sources ...*relay) discovery.Config {
	cfg := discovery.Config{Client: w.client, UserAgent: "pharos-test (https://pharos.example)"}
	for _, s := range sources {
		cfg.Sources = append(cfg.Sources, s.url)
	}
	return cfg
}

func newDiscovery(t *testing.T, cfg discovery.Config) *discovery.Discovery {
	t.Helper()
	d, err := discovery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// sweep is one that must come without an error.
func sweep(t *testing.T, d *discovery.Discovery) monitor.Sweep {
	t.Helper()
	s, err := d.Sweep(t.Context())
	if err != nil {
		t.Fatalf("%v: %+v", err, s.Sources)
	}
	return s
}

// in runs f in a bubble with a world.
func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

var (
	keysMu sync.Mutex
	keys   []nostr.Key
)

// key is that of the nth author.
func key(t testing.TB, n int) nostr.Key {
	t.Helper()
	keysMu.Lock()
	defer keysMu.Unlock()
	for len(keys) <= n {
		k, err := nostr.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys[n]
}

// sign makes an event of the nth author.
func sign(t testing.TB, n, kind int, at time.Time, tags nostr.Tags, content string) *nostr.Event {
	t.Helper()
	ev := &nostr.Event{Kind: kind, CreatedAt: nostr.Timestamp(at.Unix()), Tags: tags, Content: content}
	if err := key(t, n).Sign(ev); err != nil {
		t.Fatal(err)
	}
	return ev
}

// naming is an event of the nth author that names the relays in the way of its
// kind.
func naming(t testing.TB, n, kind int, at time.Time, relays ...string) *nostr.Event {
	t.Helper()
	var tags nostr.Tags
	content := ""
	switch kind {
	case 3:
		m := map[string]any{}
		for _, r := range relays {
			m[r] = map[string]bool{"read": true, "write": true}
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		content = string(b)
	case 10002:
		for i, r := range relays {
			tags = append(tags, [...]nostr.Tag{{"r", r}, {"r", r, "read"}}[i%2])
		}
	case 30166:
		tags = nostr.Tags{{"d", relays[0]}, {"n", "clearnet"}}
	case 30002:
		tags = nostr.Tags{{"d", "set"}}
		fallthrough
	default:
		for _, r := range relays {
			tags = append(tags, nostr.Tag{"relay", r})
		}
	}
	return sign(t, n, kind, at, tags, content)
}

// urls are those that a sweep found.
func urls(s monitor.Sweep) []string {
	out := []string{}
	for _, f := range s.Found {
		out = append(out, string(f.URL))
	}
	return out
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
