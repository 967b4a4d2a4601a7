package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

const (
	// checkConcurrency bounds the probes in flight: far below where too much
	// concurrency on one small machine would slow the answers it measures.
	checkConcurrency = 64
	// watchPace is how far apart the probes of a further round begin at the most.
	watchPace = 100 * time.Millisecond
)

// checkRun probes a list of relays, once or again and again.
type checkRun struct {
	checker *probe.Checker
	guest   *guest
	relays  []*checked
	// write and deep ask for the further checks of a probe; the write test is
	// made once for each relay.
	write, deep bool
	// begin, when set, is told of each probe and returns what follows its steps.
	begin func(monitor.RelayURL) func(probe.TraceEvent)
}

// checked is what is known of one relay from the rounds before.
type checked struct {
	url      monitor.RelayURL
	last     *monitor.Observation // nil = none yet
	measured monitor.Outcome      // the last one that was
	info     *monitor.Info        // its NIP-11 document as it was last seen
	infoAt   time.Time            // when NIP-11 was last asked for
	written  bool                 // the write test was made
	quiet    time.Time            // it asked to be left alone until then
}

func newCheckRun(checker *probe.Checker, g *guest, relays []monitor.RelayURL) *checkRun {
	r := &checkRun{checker: checker, guest: g}
	for _, u := range relays {
		r.relays = append(r.relays, &checked{url: u})
	}
	return r
}

// bad counts the relays that were not ok or refused when last probed, or never
// were.
func (r *checkRun) bad() (n int) {
	for _, c := range r.relays {
		if c.last == nil || !c.last.Outcome.Success() {
			n++
		}
	}
	return n
}

// done counts the relays that were probed.
func (r *checkRun) done() (n int) {
	for _, c := range r.relays {
		if c.last != nil {
			n++
		}
	}
	return n
}

// round probes all relays, their starts spread over a time, and hands over each
// observation, one at a time, as it comes; changed says whether it is of another
// class than that of the round before. It returns when all have ended, or ctx
// has; what was cut short by ctx is not handed over.
func (r *checkRun) round(ctx context.Context, over time.Duration, each func(o *monitor.Observation, changed bool)) {
	type result struct {
		of *checked
		o  monitor.Observation
	}
	next := make(chan *checked)
	results := make(chan result)
	var workers sync.WaitGroup
	for range min(checkConcurrency, len(r.relays)) {
		workers.Go(func() {
			for c := range next {
				o := r.probe(ctx, c)
				if ctx.Err() == nil {
					results <- result{c, o}
				}
			}
		})
	}
	go func() {
		defer close(results)
		defer workers.Wait()
		defer close(next)
		pace := time.NewTicker(max(1, over/time.Duration(len(r.relays))))
		defer pace.Stop()
		for i, c := range r.relays {
			if i > 0 && over > 0 {
				select {
				case <-pace.C:
				case <-ctx.Done():
					return
				}
			}
			select {
			case next <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	for res := range results {
		each(&res.o, res.of.take(&res.o))
	}
}

// probe probes one relay, unless that wants to be left alone.
func (r *checkRun) probe(ctx context.Context, c *checked) monitor.Observation {
	now := time.Now()
	if now.Before(c.quiet) {
		return monitor.Observation{
			Relay: c.url, Start: now, At: now, Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseRateLimited,
			Evidence: fmt.Sprintf("the relay asked not to be asked before %s", c.quiet.UTC().Format(time.RFC3339)),
		}
	}
	req := probe.Request{
		Relay: c.url, LastOutcome: c.measured, Admit: r.guest.admit,
		Info:  c.infoAt.IsZero() || now.Sub(c.infoAt) >= monitor.DefaultCadence().InfoEvery,
		Facts: r.deep, Capabilities: r.deep, Write: r.write && !c.written, Document: c.info,
	}
	if r.write && c.measured == monitor.OutcomeNone {
		// The write test needs NIP-11 before the upgrade, as after an ok.
		req.LastOutcome = monitor.OutcomeOK
	}
	if r.begin != nil {
		req.Trace = r.begin(c.url)
	}
	return r.checker.Check(ctx, req)
}

// take remembers an observation, and reports whether it is another than the last.
func (c *checked) take(o *monitor.Observation) (changed bool) {
	changed = c.last == nil || c.last.Outcome != o.Outcome || c.last.Stage != o.Stage || c.last.Cause != o.Cause
	c.last = o
	if o.Outcome.Measured() {
		c.measured = o.Outcome
	}
	if o.Info != nil {
		c.info, c.infoAt = o.Info, o.At
	}
	c.written = c.written || o.Write != nil
	if o.RetryAfter > 0 {
		c.quiet = o.At.Add(o.RetryAfter)
	}
	return changed
}

// watch makes a round every interval until ctx ends or nothing can be written any
// more.
func (r *checkRun) watch(ctx context.Context, interval time.Duration, out *checkPrinter) {
	// All at once the first time; later there is no hurry.
	spread := min(interval/2, time.Duration(len(r.relays))*watchPace)
	wait := time.NewTicker(interval)
	defer wait.Stop()
	for round := 1; ; round++ {
		over := spread
		if round == 1 {
			over = 0
		}
		out.beginRound()
		r.round(ctx, over, out.print)
		if ctx.Err() != nil || out.err != nil {
			out.clearProgress()
			return
		}
		out.endRound(round)
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
	}
}
