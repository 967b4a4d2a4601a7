package vantage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	deliverLimit = 30 * time.Second // for one call of the core
	retryFirst   = time.Second
	retryMost    = 15 * time.Second
	batchSize    = 1000 // observations in one batch at most
)

// sender hands batches to the core, one after the other, each until the core
// has it. A batch that was refused or lost its answer is sent again under the
// same number, so that the core can tell that it has it already.
type sender struct {
	v   *Vantage
	log *slog.Logger

	batch   *monitor.Batch // under way; nil = none
	tried   bool           // an earlier attempt at it may have been stored
	next    uint64         // number of the next batch, 0 = not known yet
	failing bool

	batches, failures atomic.Uint64
}

// run delivers every BatchEvery, or as soon as a whole batch waits, until
// closing is closed; then what is left, within FlushLimit. Calls of the core
// outlive ctx by FlushLimit at most.
func (s *sender) run(ctx context.Context, closing <-chan struct{}, answers chan<- monitor.Answer) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	flushed := make(chan struct{})
	watch := make(chan struct{})
	go func() { // bounds the calls under way once we are closing
		defer close(watch)
		select {
		case <-closing:
		case <-flushed:
			return
		}
		t := time.NewTimer(s.v.flushLimit)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-flushed:
		}
	}()
	s.loop(ctx, closing, answers)
	close(flushed)
	<-watch
}

func (s *sender) loop(ctx context.Context, closing <-chan struct{}, answers chan<- monitor.Answer) {
	wait := s.v.present().cfg.BatchEvery
	backoff := retryFirst
	t := time.NewTimer(wait)
	defer t.Stop()
	for last := false; ; {
		full := s.v.outbox.full
		if s.failing {
			full = nil // the back-off decides
		}
		if !last {
			select {
			case <-closing:
				last = true
			case <-full:
			case <-t.C:
			}
		}
		answer, err := s.send(ctx)
		switch {
		case err == nil:
			if s.failing {
				s.log.Info("core reached again", "queued", s.v.outbox.len())
			}
			s.failing, backoff = false, retryFirst
			wait = s.v.present().cfg.BatchEvery
			if s.v.outbox.len() >= batchSize {
				wait = 0
			}
			if len(answer.Expedite)+len(answer.Due) > 0 && !last {
				select {
				case answers <- answer:
				case <-closing:
				}
			}
			if last && s.v.outbox.empty() {
				return
			}
		default:
			s.failures.Add(1)
			if !s.failing {
				s.log.Warn("batch not delivered", "error", err, "queued", s.v.outbox.len())
			}
			s.failing = true
			wait, backoff = backoff, min(2*backoff, retryMost)
			if last {
				if ctx.Err() == nil {
					select { // a short breath, then once more
					case <-ctx.Done():
					case <-time.After(min(wait, retryFirst)):
						continue
					}
				}
				left := s.v.outbox.len()
				if s.batch != nil {
					left += len(s.batch.Observations)
				}
				if left > 0 {
					s.log.Warn("observations lost at shutdown", "count", left)
				}
				return
			}
		}
		t.Reset(wait)
	}
}

// send makes one attempt at the batch under way, or at a new one.
func (s *sender) send(ctx context.Context) (monitor.Answer, error) {
	if s.next == 0 {
		if err := s.resume(ctx); err != nil {
			return monitor.Answer{}, err
		}
	}
	if s.batch == nil {
		obs, recs := s.v.outbox.take(batchSize)
		s.batch = &monitor.Batch{Vantage: s.v.name, Seq: s.next, Observations: obs, Recoveries: recs}
		s.tried = false
	}
	b := *s.batch
	b.SentAt, b.Health = time.Now().Round(0), s.v.health()
	call, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()
	answer, err := s.v.core.Deliver(call, b)
	if errors.Is(err, monitor.ErrConflict) {
		return monitor.Answer{}, s.settle(ctx, err)
	}
	if err != nil {
		s.tried = true
		return monitor.Answer{}, fmt.Errorf("deliver batch %d: %w", b.Seq, err)
	}
	s.done()
	return answer, nil
}

func (s *sender) done() {
	s.next = s.batch.Seq + 1
	s.batch = nil
	s.batches.Add(1)
}

// resume asks the core which batch it has last.
func (s *sender) resume(ctx context.Context) error {
	last, err := s.lastSeq(ctx)
	if err == nil {
		s.next = last + 1
	}
	return err
}

func (s *sender) lastSeq(ctx context.Context) (uint64, error) {
	call, cancel := context.WithTimeout(ctx, deliverLimit)
	defer cancel()
	tasks, err := s.v.core.Tasks(call, s.v.name, s.v.version.Load())
	if err != nil {
		return 0, fmt.Errorf("ask for the last batch: %w", err)
	}
	return tasks.LastSeq, nil
}

// settle answers to a refused number. Where an earlier attempt at this very
// batch lost its answer the core has it: done. Otherwise the number was used by
// an earlier run of this vantage, or is not the next one, and the batch gets
// another number. It returns nil when there is nothing to try again.
func (s *sender) settle(ctx context.Context, refused error) error {
	last, err := s.lastSeq(ctx)
	if err != nil {
		return err
	}
	if s.tried && last >= s.batch.Seq {
		s.done()
		s.next = last + 1
		return nil
	}
	renumbered := last+1 != s.batch.Seq
	s.batch.Seq, s.next, s.tried = last+1, last+1, false
	if !renumbered {
		return fmt.Errorf("deliver batch %d: %w", s.batch.Seq, refused)
	}
	s.log.Warn("batch renumbered", "seq", s.batch.Seq)
	return fmt.Errorf("deliver batch, renumbered to %d: %w", s.batch.Seq, refused)
}
