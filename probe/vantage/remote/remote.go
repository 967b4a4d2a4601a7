package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// ErrRevoked: the core wants no more of this vantage.
var ErrRevoked = errors.New("this vantage was revoked on the core")

// Core is a core on another machine. Run sends what Deliver spools; without it,
// batches only gather. Its methods are safe for concurrent use.
type Core struct {
	cfg   Config
	base  string // of the vantage's own addresses
	spool *spool

	tasks   taskList // of its own lock
	sending line
	asking  line

	more    chan struct{} // a batch came; holds one
	running atomic.Bool
	// readFile is os.ReadFile.
	readFile func(name string) ([]byte, error)
	revoked  chan struct{} // closed when the core has revoked us
	once     sync.Once

	mu      sync.Mutex
	stats   Stats
	pending monitor.Answer // of batches that nobody waited for
	asked   map[monitor.RelayURL]bool
	stored  uint64 // highest number that the core is known to have
	doubt   uint64 // number of a batch that was sent past the spool, with no answer
	told    told
}

// told is what was said in the log and need not be said again.
type told struct{ skew, full bool }

// line is one kind of request: when it may be made again, and whether it fails.
type line struct {
	gate
	what    string // that is asked
	problem string // why it fails, "" = it does not; guarded by Core.mu
}

// New opens the spool and prepares requests; nothing is sent before Run or Tasks.
// The error is monitor.ErrInvalid for a wrong setting, or says what is wrong with
// the spool.
func New(cfg Config) (*Core, error) {
	own := cfg.HTTP == nil
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s, err := openSpool(filepath.Join(cfg.Dir, "spool"), cfg.MaxSpool, cfg.Log)
	if err != nil {
		if own {
			cfg.HTTP.CloseIdleConnections()
		}
		return nil, err
	}
	c := &Core{
		cfg: cfg, base: cfg.URL + "/v1/vantages/" + url.PathEscape(cfg.Name), spool: s,
		sending: line{what: "observations"}, asking: line{what: "tasks"},
		readFile: os.ReadFile, more: make(chan struct{}, 1), revoked: make(chan struct{}), asked: map[monitor.RelayURL]bool{},
	}
	if batches, observations, bytes, lost := s.size(); batches > 0 || lost != (losses{}) {
		cfg.Log.Info("spool found", "batches", batches, "observations", observations, "bytes", bytes, "dropped", lost.dropped, "broken", lost.broken)
	}
	return c, nil
}

// Close lets go of the spool, which stays on the disk, and of idle connections.
// Run must have ended.
func (c *Core) Close() error {
	c.cfg.HTTP.CloseIdleConnections()
	return c.spool.close()
}

// Deliver keeps a batch on the disk, under its number, which must be above all
// before: else monitor.ErrConflict. If the core can take it at once, Deliver waits
// for that, within ctx, and the answer is the core's; otherwise it returns when
// the batch is on the disk, with what the core has asked meanwhile. Where the disk
// takes nothing the batch goes straight to the core, and an error means that it
// may or may not be stored there.
func (c *Core) Deliver(ctx context.Context, b monitor.Batch) (monitor.Answer, error) {
	select {
	case <-c.revoked:
		return monitor.Answer{}, ErrRevoked
	default:
	}
	if newest := max(c.spool.newest(), c.newestStored()); b.Seq <= newest {
		return monitor.Answer{}, fmt.Errorf("%w: batch %d: %d is used already", monitor.ErrConflict, b.Seq, newest)
	}
	body, err := c.encode(&b)
	if err != nil {
		return monitor.Answer{}, err
	}
	waiting := c.spool.waiting()
	kept, err := c.spool.add(b.Seq, len(b.Observations), body, c.doubted(b.Seq))
	if err != nil {
		return c.past(ctx, b.Seq, body, err)
	}
	c.sayDisk(nil)
	select {
	case c.more <- struct{}{}:
	default: // told already
	}
	if !waiting && c.running.Load() && c.sending.wait(time.Now()) == 0 {
		select {
		case <-kept.ended:
		case <-ctx.Done():
		case <-c.revoked:
		}
	}
	return c.takeAnswer(), nil
}

// past sends a batch that the disk does not take straight to the core. What waits
// in the spool is older and goes first.
func (c *Core) past(ctx context.Context, seq uint64, body []byte, cause error) (monitor.Answer, error) {
	c.sayDisk(cause)
	switch {
	case c.spool.waiting():
		return monitor.Answer{}, fmt.Errorf("deliver batch %d: %w: older ones wait", seq, cause)
	case c.sending.wait(time.Now()) > 0:
		return monitor.Answer{}, fmt.Errorf("deliver batch %d: %w, and the core is away", seq, cause)
	}
	err := c.post(ctx, seq, body)
	var r *refusal
	switch {
	case err == nil:
		return c.takeAnswer(), nil
	case errors.As(err, &r) && forGood(r.status):
		c.giveUp(seq, r)
		return c.takeAnswer(), nil
	case errors.As(err, &r) && r.status < http.StatusInternalServerError: // not stored, or before
	default:
		c.mu.Lock()
		c.doubt = seq
		c.mu.Unlock()
	}
	return monitor.Answer{}, fmt.Errorf("deliver batch %d: %w", seq, err)
}

// Run sends what is in the spool, oldest first, until ctx ends or the core revokes
// the vantage: that is ErrRevoked, and the only error.
func (c *Core) Run(ctx context.Context) error {
	c.running.Store(true)
	defer c.running.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.revoked:
			return ErrRevoked
		default:
		}
		if wait := c.sending.wait(time.Now()); wait > 0 {
			c.pause(ctx, wait)
			continue
		}
		b := c.spool.take()
		if b == nil {
			select {
			case <-ctx.Done():
			case <-c.revoked:
			case <-c.more:
			}
			continue
		}
		c.send(ctx, b)
	}
}

// pause waits for d, or until ctx or the vantage's time at the core is over.
func (c *Core) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-c.revoked:
	case <-t.C:
	}
}

// send makes one attempt at b, which the spool gave out.
func (c *Core) send(ctx context.Context, b *batch) {
	body, err := c.read(b)
	if mayPass(err) && b.unread < unreadMost {
		if b.unread == 0 {
			c.cfg.Log.Warn("batch in the spool cannot be read now: trying again", "seq", b.seq, "error", err)
		}
		c.sending.failed(time.Now(), 0)
		c.spool.later(b)
		return
	}
	if err != nil {
		c.cfg.Log.Warn("batch in the spool is damaged and given up", "seq", b.seq, "observations", b.count, "error", err)
		c.spool.done(b, true)
		return
	}
	err = c.post(ctx, b.seq, body)
	var r *refusal
	switch {
	case err == nil:
		c.spool.done(b, false)
	case !errors.As(err, &r):
		c.spool.again(b)
	case r.status == http.StatusConflict:
		c.settle(b)
	case forGood(r.status):
		c.giveUp(b.seq, r)
		c.spool.done(b, false)
	default:
		c.spool.again(b)
	}
}

// unreadMost is how often a batch that cannot be read is tried again: for some
// five minutes.
const unreadMost = 10

// mayPass reports whether reading a batch failed for a reason that may be over
// soon, such as that this process has no descriptor left.
func mayPass(err error) bool {
	var of *fs.PathError
	return errors.As(err, &of) && !errors.Is(err, fs.ErrNotExist)
}

// settle takes a batch out that the core has under its number already: from an
// earlier attempt, whose answer was lost. Where there was none, somebody else
// sends as this vantage.
func (c *Core) settle(b *batch) {
	if !b.found && !b.tried {
		c.cfg.Log.Error("a batch is lost: the core has another one under its number; does another machine run with a copy of this data directory?", "seq", b.seq, "observations", b.count)
		c.mu.Lock()
		c.stats.Foreign++
		c.mu.Unlock()
	} else {
		c.mu.Lock()
		c.stats.Sent++
		c.mu.Unlock()
	}
	c.spool.done(b, false)
}

// forGood reports whether a status means that the core will never take this batch.
// A 400 or 415 is of a body or a header that broke on its way.
func forGood(status int) bool {
	return status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

func (c *Core) giveUp(seq uint64, r *refusal) {
	c.cfg.Log.Error("batch refused by the core and given up", "seq", seq, "status", r.status, "why", r.detail)
	c.mu.Lock()
	c.stats.Refused++
	c.mu.Unlock()
}

func (c *Core) newestStored() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stored
}

// doubted reports whether the batch of that number was sent before with no
// answer.
func (c *Core) doubted(seq uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt == seq
}

// keepAnswer adds what an answer asks for to what the next Deliver returns.
func (c *Core) keepAnswer(a wire.Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stored = max(c.stored, a.Stored)
	for _, u := range a.Expedite {
		if !c.asked[u] {
			c.asked[u] = true
			c.pending.Expedite = append(c.pending.Expedite, u)
		}
	}
	for u, t := range a.Due {
		if c.pending.Due == nil {
			c.pending.Due = map[monitor.RelayURL]time.Time{}
		}
		c.pending.Due[u] = t
	}
}

func (c *Core) takeAnswer() monitor.Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.pending
	c.pending = monitor.Answer{}
	clear(c.asked)
	return a
}
