package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

const (
	// maxReconnects follow a connection that a source ends, within a sweep.
	maxReconnects = 2
	// maxRest is the longest that a source can ask to be left alone (probe.md).
	maxRest = time.Hour
	// maxForged wrong signatures are too many, where they are also more than
	// the right ones.
	maxForged = 100
	// maxQueue events wait for their signature to be checked; the source waits
	// when it is full.
	maxQueue = 64
)

// source is what is remembered of a source from one sweep to the next.
type source struct {
	url monitor.RelayURL
	// good is when its last good sweep began; zero = there was none.
	good time.Time
	// known: it told all that it has, when it was last read from its beginning.
	known bool
	// rest: it is not asked before.
	rest time.Time
}

// reading is one source in one sweep.
type reading struct {
	cfg    *Config
	lists  *lists
	source *source
	round  uint32
	now    time.Time     // when the sweep began
	checks chan struct{} // full = as many signatures are being checked as may be
	reader reader

	whole  bool  // from the beginning
	since  int64 // otherwise, seconds
	result monitor.DiscoverySource
	// cut: it ended by a limit of ours.
	cut   bool
	queue chan candidate

	pages    pager
	messages int
	bytes    int64

	mu       sync.Mutex // what follows is the verifier's too
	ignored  map[string]int
	refusals map[string]int
	believed int
	forged   int
}

func newReading(cfg *Config, ls *lists, src *source, round uint32, now time.Time, checks chan struct{}) *reading {
	return &reading{
		cfg: cfg, lists: ls, source: src, round: round, now: now, checks: checks,
		reader:  reader{kinds: cfg.Kinds, self: cfg.Self, now: now, lists: ls},
		result:  monitor.DiscoverySource{URL: src.url},
		queue:   make(chan candidate, maxQueue),
		ignored: map[string]int{}, refusals: map[string]int{},
	}
}

// read asks the source for everything that is new, and remembers how that went.
func (r *reading) read(parent context.Context) {
	src := r.source
	if time.Now().Before(src.rest) {
		r.result.RestUntil = src.rest
		r.result.Problem = "it asked not to be asked again before " + src.rest.UTC().Format("15:04 UTC")
		return
	}
	if !r.whole {
		r.since = src.good.Add(-overlap).Unix()
	}
	r.pages.until = r.now.Add(future).Unix()

	var verifier sync.WaitGroup
	verifier.Go(func() { r.verify(parent) })
	ctx, cancel := context.WithTimeoutCause(parent, r.cfg.SourceLimit, errTime)
	err := r.follow(ctx)
	cancel()
	close(r.queue)
	verifier.Wait()

	r.result.Events = r.believed
	r.conclude(err)
	if parent.Err() != nil {
		return
	}
	good := err == nil || r.cut && r.whole && r.result.Pages > 0
	if good {
		src.good = r.now
	}
	if good && r.whole {
		src.known = r.result.Whole
	}
}

// The ends of a reading. A problem is said in its text.
var (
	errTime   = errors.New("the time for it was over")
	errSilent = errors.New("it answered nothing")
)

// problem is why a source did not tell all, as a sentence for a person.
type problem struct {
	text string
	cut  bool // a limit of ours
}

func (p *problem) Error() string { return p.text }

func problemf(format string, args ...any) error {
	return &problem{text: fmt.Sprintf(format, args...)}
}

// conclude says in the result how the reading ended.
func (r *reading) conclude(err error) {
	var p *problem
	switch {
	case err == nil && r.pages.beyond > 0:
		r.result.Problem = "it sent events of other times than those that it was asked for"
	case err == nil && r.pages.skipped:
		r.result.Problem = "it has more events in one second than it gives at once"
	case err == nil:
		r.result.Whole = true
	case errors.Is(err, errTime):
		r.cut = true
		r.result.Problem = fmt.Sprintf("it was not done after %s", r.cfg.SourceLimit)
	case errors.Is(err, errSilent):
		r.result.Problem = fmt.Sprintf("it said nothing for %s, and not that there is no more", r.cfg.IdleLimit)
	case errors.As(err, &p):
		r.cut = p.cut
		r.result.Problem = p.text
	default:
		r.result.Problem = "the sweep was ended"
	}
}

// follow reads page after page, over a new connection where the source ends one.
// The error is why it did not come to the end.
func (r *reading) follow(ctx context.Context) error {
	s := newSession(r)
	defer s.subs.Close()
	s.turn()
	for tries := 0; ; tries++ {
		if tries > 0 && !wait(ctx, ratelimit.Backoff(tries, rand.Float64())) {
			return context.Cause(ctx)
		}
		err := s.connection(ctx)
		if lost := (*lostError)(nil); !errors.As(err, &lost) {
			return err
		} else if tries >= maxReconnects || lost.never && tries == 0 {
			return problemf("%s", lost.text)
		}
	}
}

// verify checks the signatures of what was queued, and takes over what is right.
func (r *reading) verify(ctx context.Context) {
	for c := range r.queue {
		if ctx.Err() != nil {
			continue
		}
		r.checks <- struct{}{} // whoever has one gives it back after one check
		err := nostr.Verify(c.event)
		<-r.checks
		ignored := ignoredSignature
		if err == nil {
			if texts := relaysOf(c.event); len(texts) > maxRelays {
				ignored = ignoredTooLong
			} else {
				ignored = r.lists.put(&c.head, r.round, texts, r.cfg.AllowNetworks)
			}
		}
		r.count(ignored)
	}
}

// count notes what became of an event; "" = it is believed.
func (r *reading) count(ignored string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch ignored {
	case "":
		r.believed++
		return
	case ignoredSignature:
		r.forged++
	}
	r.ignored[ignored]++
}

// event takes an EVENT of the page that is being read.
func (r *reading) event(ctx context.Context, body []byte) error {
	c, ignored := r.reader.read(body)
	if c.event != nil && ignored != ignoredFuture {
		switch ofTime, again := r.pages.event(c.event.ID, c.head.created, r.since); {
		case again:
			return nil // counted with the page before
		case !ofTime && ignored == "":
			ignored = ignoredNotAsked
		}
	}
	if ignored != "" {
		r.count(ignored)
		return nil
	}
	switch r.lists.standing(&c.head, r.round) {
	case same:
		r.count("")
		return nil
	case older:
		r.count(ignoredOlder)
		return nil
	case noRoom:
		r.count(ignoredAuthors)
		return nil
	}
	select {
	case r.queue <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forged > maxForged && r.forged > r.believed {
		return problemf("most of what it sent had wrong signatures")
	}
	return nil
}

// spend counts a message, and reports when it is one too many.
func (r *reading) spend(bytes int64) error {
	r.messages++
	r.bytes += bytes
	switch {
	case r.messages > r.cfg.MaxEvents:
		return &problem{fmt.Sprintf("it has more than the %d messages that are read at a time", r.cfg.MaxEvents), true}
	case r.bytes > r.cfg.MaxBytes:
		return &problem{fmt.Sprintf("it has more than the %d bytes that are read at a time", r.cfg.MaxBytes), true}
	}
	return nil
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
