package ratelimit

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// maxRepeats of a REQ follow its refusals: 6 REQs in all (S66).
	maxRepeats = 5
	// batch REQs go out at once after a reconnect, then a pause (S75).
	batch      = 8
	batchPause = 50 * time.Millisecond
	// spread is over what time those whom the gate lets go send (S69).
	spread = 500 * time.Millisecond
	// overlap is what is asked for again after a reconnect, seconds (S77).
	overlap = 5
)

// ErrClosed: the Subscriptions were shut down.
var ErrClosed = errors.New("subscriptions are closed")

// Config is what Subscriptions need of the session that they belong to.
type Config struct {
	// Send writes the REQ of a subscription. since is what the since of each of
	// its filters must be at least, in seconds since 1970; 0 = the filters as
	// they are (S77). It must return soon after ctx, which ends with the
	// connection, and must not call Subscriptions. Only one Send runs at a time.
	// An error means that the connection is over: the session is expected to
	// call Disconnected.
	Send func(ctx context.Context, id string, since int64) error
	// Authenticate answers the newest challenge of the connection and returns
	// when the relay has accepted it (NIP-42). It may run for several
	// subscriptions at a time, and must return soon after ctx. nil = we have no
	// key, so that auth-required is surfaced at once.
	Authenticate func(ctx context.Context) error
	// Surface tells the owner that a subscription has ended by a refusal, once.
	// It may call Subscriptions, but not Close.
	Surface func(id string, r Refusal)
	// Gate of the connection; nil = one of its own.
	Gate *Gate
	// Rand draws from [0,1); nil = from the system's randomness.
	Rand func() float64
}

// Subscriptions are those of one session: they outlive its connections. They
// know when a REQ is sent, sent again and given up (S64 to S77), and nothing of
// filters or sockets. All methods are safe for concurrent use.
type Subscriptions struct {
	cfg     Config
	gate    *Gate
	repeats int // at most, of one subscription

	// sending is full while one REQ is judged and sent, so that none follows its
	// end. It is taken before mu.
	sending chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	subs   map[string]*subscription
	order  []string // as they were registered
	epoch  uint64   // of the newest connection
	ctx    context.Context
	cancel context.CancelFunc // of the connection; nil = there is none
	closed bool
	counts map[string]int
}

// subscription is one that is registered.
type subscription struct {
	id       string
	priority bool
	sent     uint64 // the epoch of the latest REQ
	refused  int    // times in a row, with a repeat each
	authed   bool   // the one repeat after authenticating is spent (S71)
	// disarm ends the repeat that is due; nil = none is (S65).
	disarm   context.CancelFunc
	ended    bool  // had an EOSE once (S77)
	lastSeen int64 // created_at of the newest event, not after it came
}

// NewSubscriptions returns Subscriptions without a connection. Close must be
// called.
func NewSubscriptions(cfg Config) *Subscriptions {
	if cfg.Gate == nil {
		cfg.Gate = new(Gate)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Subscriptions{
		cfg: cfg, gate: cfg.Gate, repeats: maxRepeats,
		sending: make(chan struct{}, 1),
		subs:    map[string]*subscription{}, counts: map[string]int{},
	}
}

// Gate is that of the connection.
func (s *Subscriptions) Gate() *Gate { return s.gate }

// Register adds a subscription, or begins it anew where the id is registered,
// and sends its REQ at once if there is a connection, whatever the gate says
// (S73). The error is that of Send, and then it stays registered for the next
// connection; or ErrClosed. A priority comes first after a reconnect (S74).
func (s *Subscriptions) Register(id string, priority bool) error {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.remove(id)
	sub := &subscription{id: id, priority: priority}
	s.subs[id] = sub
	s.order = append(s.order, id)
	ctx := s.ctx
	s.mu.Unlock()
	if ctx == nil {
		return nil
	}
	return s.send(ctx, sub)
}

// Unregister forgets a subscription. When it returns no REQ of it will be sent
// any more, so that a CLOSE may be.
func (s *Subscriptions) Unregister(id string) {
	s.mu.Lock()
	s.remove(id)
	s.mu.Unlock()
	s.sending <- struct{}{} // one that was being sent is out
	<-s.sending
}

// Registered reports whether id is a subscription: whether an EVENT of it was
// asked for.
func (s *Subscriptions) Registered(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[id] != nil
}

// Ready begins a connection, and an epoch: every subscription repeats its REQ
// once in it, priorities first, in batches that the gate lets through (S74,
// S75). It returns at once.
func (s *Subscriptions) Ready() {
	s.over()
	s.sending <- struct{}{} // what was sent to the old connection has returned
	defer func() { <-s.sending }()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.endEpoch() // of a Ready beside this one
	s.epoch++
	s.ctx, s.cancel = context.WithCancel(context.Background())
	ctx, ids := s.ctx, s.byPriority()
	s.running.Go(func() { s.replay(ctx, ids) })
}

// Disconnected ends the connection: repeats that were due are dropped, and the
// gate opens, since the budget was that connection's (S56, S70).
func (s *Subscriptions) Disconnected() { s.over() }

// over ends the connection, if there is one.
func (s *Subscriptions) over() {
	s.mu.Lock()
	s.endEpoch()
	s.mu.Unlock()
	s.gate.Reset()
}

// Close ends everything, without a word to the owners, and waits for what was
// being sent.
func (s *Subscriptions) Close() {
	s.mu.Lock()
	s.closed = true
	s.endEpoch()
	clear(s.subs)
	s.order = nil
	s.mu.Unlock()
	s.gate.Reset()
	s.running.Wait()
}

// Event notes an EVENT of a subscription, and reports whether it was asked for.
// createdAt counts for S77 only up to the present, so that an event from the
// future does not keep others out.
func (s *Subscriptions) Event(id string, createdAt int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[id]
	if sub == nil {
		return false
	}
	sub.lastSeen = max(sub.lastSeen, min(createdAt, time.Now().Unix()))
	return true
}

// EOSE notes the end of what a subscription had stored, and reports whether it
// was asked for. The count of its refusals begins anew (S70, S71).
func (s *Subscriptions) EOSE(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[id]
	if sub == nil {
		return false
	}
	sub.clear()
	sub.ended = true
	return true
}

// Closed takes a CLOSED: it feeds the gate, then repeats, authenticates or
// surfaces (S64 to S72). It returns what the reason means.
func (s *Subscriptions) Closed(id, reason string) Refusal {
	r := Classify(reason)
	s.feed(r)
	s.mu.Lock()
	sub := s.subs[id]
	// Not registered, not asked for on this connection, or a repeat is due.
	if sub == nil || s.ctx == nil || sub.sent != s.epoch || sub.disarm != nil {
		s.mu.Unlock()
		return r
	}
	switch {
	case r.Action == Retry && sub.refused < s.repeats:
		sub.refused++
		wait := Backoff(sub.refused, s.cfg.Rand())
		s.arm(sub, func(ctx context.Context) { s.repeat(ctx, sub, wait) })
	case r.Action == Authenticate && !sub.authed && s.cfg.Authenticate != nil:
		sub.authed = true
		s.arm(sub, func(ctx context.Context) { s.authenticate(ctx, sub, r) })
	default:
		s.surface(sub, r)
		return r
	}
	s.mu.Unlock()
	return r
}

// Notice takes a NOTICE: one that says rate-limited feeds the gate (S63). It
// returns what ClassifyNotice says of it. Which subscription was meant is not
// known; a session that has only one open may hand the text to Closed.
func (s *Subscriptions) Notice(text string) (r Refusal, refused bool) {
	r, refused = ClassifyNotice(text)
	if refused {
		s.feed(r)
	}
	return r, refused
}

// Surfaced is how many refusals were surfaced, by Refusal.Label.
func (s *Subscriptions) Surfaced() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

func (s *Subscriptions) feed(r Refusal) {
	if r.RateLimited() {
		s.gate.Activate(Hint(r.Text))
	}
}

// surface removes sub and tells its owner; s.mu is held, and is released.
func (s *Subscriptions) surface(sub *subscription, r Refusal) {
	s.remove(sub.id)
	s.counts[r.Label()]++
	s.mu.Unlock()
	s.cfg.Surface(sub.id, r)
}

// arm starts what ends with a REQ of sub; s.mu is held.
func (s *Subscriptions) arm(sub *subscription, run func(context.Context)) {
	ctx, cancel := context.WithCancel(s.ctx)
	sub.disarm = cancel
	s.running.Go(func() {
		defer cancel()
		run(ctx)
	})
}

// repeat sends sub again after the longer of its own wait and the gate's window
// (S67).
func (s *Subscriptions) repeat(ctx context.Context, sub *subscription, wait time.Duration) {
	if !sleep(ctx, wait) {
		return
	}
	for s.gate.Active() {
		if s.gate.Wait(ctx) != nil || !sleep(ctx, time.Duration(s.cfg.Rand()*float64(spread))) {
			return
		}
	}
	s.again(ctx, sub)
}

// authenticate sends sub again at once when the relay knows us (S71).
func (s *Subscriptions) authenticate(ctx context.Context, sub *subscription, r Refusal) {
	err := s.cfg.Authenticate(ctx)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		s.again(ctx, sub)
	default:
		s.mu.Lock()
		if ctx.Err() != nil || s.subs[sub.id] != sub {
			s.mu.Unlock()
			return
		}
		s.surface(sub, r)
	}
}

// again sends the repeat that was armed.
func (s *Subscriptions) again(ctx context.Context, sub *subscription) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	s.mu.Lock()
	if ctx.Err() != nil || s.subs[sub.id] != sub { // S68
		s.mu.Unlock()
		return
	}
	sub.disarm = nil
	ctx = s.ctx
	s.mu.Unlock()
	_ = s.send(ctx, sub) // the session learns of it too, from its connection
}

// replay sends every subscription that was not yet in this epoch.
func (s *Subscriptions) replay(ctx context.Context, ids []string) {
	for len(ids) > 0 {
		if s.gate.Wait(ctx) != nil {
			return
		}
		for sent := 0; sent < batch && len(ids) > 0; ids = ids[1:] {
			switch did, err := s.once(ctx, ids[0]); {
			case err != nil:
				return
			case did:
				sent++
			}
		}
		if len(ids) > 0 && !sleep(ctx, batchPause) {
			return
		}
	}
}

// once sends the subscription unless it was in this epoch.
func (s *Subscriptions) once(ctx context.Context, id string) (did bool, err error) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	s.mu.Lock()
	sub := s.subs[id]
	if err := ctx.Err(); err != nil || sub == nil || sub.sent == s.epoch {
		s.mu.Unlock()
		return false, err
	}
	s.mu.Unlock()
	return true, s.send(ctx, sub)
}

// send writes the REQ; s.sending is held.
func (s *Subscriptions) send(ctx context.Context, sub *subscription) error {
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return nil // the next connection sends it
	}
	sub.sent = s.epoch
	since := int64(0)
	if sub.ended && sub.lastSeen > overlap {
		since = sub.lastSeen - overlap
	}
	s.mu.Unlock()
	return s.cfg.Send(ctx, sub.id, since)
}

// byPriority lists what is registered, the priorities first; s.mu is held.
func (s *Subscriptions) byPriority() []string {
	ids := slices.Clone(s.order)
	slices.SortStableFunc(ids, func(a, b string) int {
		switch pa, pb := s.subs[a].priority, s.subs[b].priority; {
		case pa == pb:
			return 0
		case pa:
			return -1
		}
		return 1
	})
	return ids
}

// endEpoch ends the connection's context and all that was due on it; s.mu is
// held.
func (s *Subscriptions) endEpoch() {
	if s.cancel != nil {
		s.cancel()
		s.ctx, s.cancel = nil, nil
	}
	for _, sub := range s.subs {
		sub.clear()
	}
}

// remove forgets id; s.mu is held.
func (s *Subscriptions) remove(id string) {
	if sub := s.subs[id]; sub != nil {
		sub.clear()
		delete(s.subs, id)
		s.order = slices.DeleteFunc(s.order, func(o string) bool { return o == id })
	}
}

// clear drops the repeat that is due and begins the counts anew (S70, S71).
func (sub *subscription) clear() {
	if sub.disarm != nil {
		sub.disarm()
		sub.disarm = nil
	}
	sub.refused, sub.authed = 0, false
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
