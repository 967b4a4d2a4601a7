package relay

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

// closeGrace is how long Shutdown waits for clients to answer the close frame.
const closeGrace = 2 * time.Second

// connectAgain is what a client with too many connections is told to wait: by
// then one that fell silent is found out (idleTime).
const connectAgain = 75 * time.Second

// Relay serves the newest generation given to Update. It is an http.Handler
// for the requests that Wants picks out.
type Relay struct {
	khatru          *khatru.Relay
	pubkey, version string
	log             *slog.Logger
	settings        atomic.Pointer[settings]
	limits          *limiter
	index           *index

	updating sync.Mutex // one Update at a time

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing bool
	running sync.WaitGroup // connections and their flushes

	sent, slow, limited, refused atomic.Uint64
}

// New returns a relay that serves nothing until the first Update. Wrong options
// are a monitor.ErrInvalid.
func New(o Options) (*Relay, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		khatru:  khatru.NewRelay(),
		pubkey:  o.Pubkey,
		version: o.Version,
		log:     o.Log,
		limits:  newLimiter(),
		index:   newIndex(),
		conns:   map[*conn]struct{}{},
	}
	r.settings.Store(s)
	// Before the first connection, so that no goroutine sees it change.
	r.khatru.Log = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	// No message reaches khatru (see conn); were one to, these would still
	// keep it from storing or answering anything.
	r.khatru.RejectEvent = append(r.khatru.RejectEvent, func(context.Context, *nostr.Event) (bool, string) { return true, noEvents })
	r.khatru.RejectFilter = append(r.khatru.RejectFilter, func(context.Context, nostr.Filter) (bool, string) { return true, noNegentropy })
	return r, nil
}

// Configure makes the name, the contact and the limits of o hold from now on,
// also for requests on open connections; what is open stays open. Wrong options
// are a monitor.ErrInvalid, and nothing changes. Of o, Pubkey, Version and Log
// are ignored.
func (r *Relay) Configure(o Options) error {
	o.Pubkey, o.Version = r.pubkey, r.version
	s, err := o.settings()
	if err != nil {
		return err
	}
	r.settings.Store(s)
	return nil
}

// Update makes the relay serve g and sends its new events to those subscribed
// to them. It does not wait for any client. While g is warming up or stale
// none of the list is served (reports.md 13).
func (r *Relay) Update(g *monitor.Generation) {
	r.updating.Lock()
	defer r.updating.Unlock()
	c, errs := r.index.update(g)
	for _, err := range errs {
		r.log.Error("an event of the generation cannot be served", "generation", g.Number, "error", err)
	}
	switch {
	case c.appeared:
		all := r.index.all()
		for _, k := range r.connections() {
			k.pushAll(all, c.added, c.version)
		}
	case len(c.added) > 0:
		for _, k := range r.connections() {
			k.push(c.added, c.version)
		}
	}
}

func unlisted(evs []*event) []*event {
	var out []*event
	for _, e := range evs {
		if !e.listed {
			out = append(out, e)
		}
	}
	return out
}

func (r *Relay) connections() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*conn, 0, len(r.conns))
	for c := range r.conns {
		out = append(out, c)
	}
	return out
}

// Wants reports whether the request is the relay's: an upgrade to WebSocket,
// in any case, or one whose Accept names application/nostr+json with q > 0.
func (r *Relay) Wants(req *http.Request) bool {
	return wantsSocket(req) || wantsInfo(req)
}

func wantsSocket(req *http.Request) bool {
	for _, line := range req.Header.Values("Upgrade") {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(word), "websocket") {
				return true
			}
		}
	}
	return false
}

// ServeHTTP answers NIP-11, or hands an upgrade to khatru in the one spelling
// that it understands.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !wantsSocket(req) {
		r.serveInfo(w, req)
		return
	}
	r.mu.Lock()
	closing := r.closing
	r.mu.Unlock()
	if closing {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	s := r.settings.Load()
	u := &upgrade{ResponseWriter: w, relay: r, addr: s.address(req)}
	limit := s.maxConnections
	if s.exempts(u.addr) {
		limit = -1
	}
	if u.visitor = r.limits.connect(visitorKey(u.addr), limit, time.Now()); u.visitor == nil {
		r.refused.Add(1)
		w.Header().Set("Retry-After", strconv.Itoa(int(connectAgain/time.Second)))
		http.Error(w, fmt.Sprintf("Too many connections from your address: at most %d may be open at once. Close one, or try again in %.0f seconds.", limit, connectAgain.Seconds()), http.StatusTooManyRequests)
		return
	}
	defer func() {
		if !u.taken { // no connection came of it
			r.limits.disconnect(u.visitor, time.Now())
		}
	}()
	req = req.Clone(req.Context())
	req.Header.Set("Upgrade", "websocket")
	r.khatru.HandleWebsocket(u, req)
}

// upgrade is a response whose connection, once hijacked, is a conn.
type upgrade struct {
	http.ResponseWriter
	relay   *Relay
	addr    netip.Addr
	visitor *visitor
	taken   bool // the conn gives the visitor back
}

// Hijack takes over the connection. What the client sent ahead of the
// handshake's end goes through the conn like all the rest: khatru would read
// it past us.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	var ahead []byte
	if n := rw.Reader.Buffered(); n > 0 {
		b, err := rw.Peek(n)
		if err != nil {
			_ = nc.Close()
			return nil, nil, err
		}
		ahead = append(ahead, b...)
	}
	if err := nc.SetDeadline(time.Time{}); err != nil { // the HTTP server's
		_ = nc.Close()
		return nil, nil, err
	}
	c := newConn(nc, ahead, u.relay, u.addr, u.visitor)
	if !u.relay.remember(c) {
		_ = nc.Close()
		return nil, nil, errClosing
	}
	u.taken = true
	return c, bufio.NewReadWriter(bufio.NewReaderSize(c, 16), bufio.NewWriterSize(c, 16)), nil
}

func (r *Relay) remember(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.conns[c] = struct{}{}
	r.running.Add(1)
	return true
}

func (r *Relay) forget(c *conn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	r.limits.disconnect(c.visitor, time.Now())
	r.running.Done()
}

// Shutdown refuses new connections, tells every client that we go away (close
// frame 1001), waits up to 2 s for their answers, at most until ctx ends, and
// then closes what is left. It returns ctx's error if that came first.
func (r *Relay) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()

	grace, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	var saying sync.WaitGroup
	for _, c := range r.connections() {
		saying.Go(func() {
			if err := c.sayClose(grace, closeGoingAway, "shutting down"); err != nil {
				_ = c.Close()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		r.running.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-grace.Done():
		if ctx.Err() != nil {
			err = fmt.Errorf("close the relay's connections: %w", ctx.Err())
		}
		for _, c := range r.connections() {
			_ = c.Close()
		}
		<-done // nothing waits on a closed socket
	}
	saying.Wait()
	return err
}

// Stats counts what the relay does now and has done.
type Stats struct {
	Connections, Subscriptions int
	Stored                     int    // events in the index, hidden ones too
	Sent                       uint64 // EVENT messages
	// Slow counts connections closed because their client did not read.
	Slow uint64
	// RateLimited counts REQ and COUNT messages refused with "rate-limited: …",
	// Refused connections refused because their address had too many.
	RateLimited, Refused uint64
}

// Stats is for metrics.
func (r *Relay) Stats() Stats {
	s := Stats{Sent: r.sent.Load(), Slow: r.slow.Load(), RateLimited: r.limited.Load(), Refused: r.refused.Load()}
	for _, c := range r.connections() {
		s.Connections++
		c.mu.Lock()
		s.Subscriptions += len(c.subs)
		c.mu.Unlock()
	}
	r.index.mu.RLock()
	s.Stored = len(r.index.byID)
	r.index.mu.RUnlock()
	return s
}

var _ http.Handler = (*Relay)(nil)
