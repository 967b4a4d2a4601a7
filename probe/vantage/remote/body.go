package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// encode writes a batch as it goes over the wire. What the core would refuse the
// whole batch for is left out and counted: an observation from a time before this
// machine's clock was set, and NIP-11 documents that are too many for one batch.
func (c *Core) encode(b *monitor.Batch) ([]byte, error) {
	fit := func(o monitor.Observation) bool { return wire.CheckObservation(&o) != nil }
	if n := len(b.Observations); slices.ContainsFunc(b.Observations, fit) {
		b.Observations = slices.DeleteFunc(slices.Clone(b.Observations), fit)
		c.count(func(s *Stats) { s.Unsendable += uint64(n - len(b.Observations)) })
		c.cfg.Log.Warn("observations left out of a batch: they cannot be true", "count", n-len(b.Observations))
	}
	b.Vantage = c.cfg.Name
	c.boundInfos(b)
	var body bytes.Buffer
	err := wire.EncodeBatch(&body, b)
	if errors.Is(err, monitor.ErrInvalid) { // of what is left, only the health
		c.cfg.Log.Warn("health left out of a batch: it cannot be true", "error", err)
		b.Health, b.Recoveries, b.SentAt = monitor.Health{}, nil, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		body.Reset()
		err = wire.EncodeBatch(&body, b)
	}
	if err != nil {
		return nil, fmt.Errorf("deliver batch %d: %w", b.Seq, err)
	}
	return body.Bytes(), nil
}

// maxInfos bounds the NIP-11 documents of one batch, bytes. They are sent as they
// are and as what was read of them, so that even without any compression a batch
// is within wire.MaxBody.
const maxInfos = 3 << 20

// boundInfos leaves out the documents that are too many for one batch.
func (c *Core) boundInfos(b *monitor.Batch) {
	left, over := maxInfos, uint64(0)
	for i := range b.Observations {
		info := b.Observations[i].Info
		if info == nil || len(info.Raw) == 0 {
			continue
		}
		if left -= len(info.Raw); left >= 0 {
			continue
		}
		if over == 0 { // the caller's list stays as it is
			b.Observations = slices.Clone(b.Observations)
		}
		b.Observations[i].Info = nil
		over++
	}
	if over > 0 {
		c.count(func(s *Stats) { s.InfosDropped += over })
	}
}

// read reads a batch from the disk. One that an earlier process left is checked
// whole.
func (c *Core) read(b *batch) ([]byte, error) {
	body, err := c.readFile(c.spool.path(b))
	if err != nil {
		return nil, err
	}
	if b.found && !b.tried {
		whole, err := wire.DecodeBatch(bytes.NewReader(body), c.cfg.Name)
		if err != nil {
			return nil, err
		}
		if whole.Seq != b.seq || len(whole.Observations) != b.count {
			return nil, errors.New("its name is another batch's")
		}
	}
	return body, nil
}

// post sends a batch, stamped with the present time, and takes in what becomes of
// it: gate, log, answer. The error is that of do.
func (c *Core) post(ctx context.Context, seq uint64, body []byte) error {
	body, err := wire.Restamp(body, time.Now())
	if err != nil {
		// The clock shows an impossible year; the core would not take the
		// signature either.
		c.sending.failed(time.Now(), 0)
		return fmt.Errorf("stamp batch %d: %w", seq, err)
	}
	r, err := c.cfg.do(ctx, request{
		http.MethodPost, c.base + "/observations", body,
		map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"},
	})
	var a wire.Answer
	if err == nil {
		err = c.understood(r, &a)
	}
	var no *refusal
	if errors.As(err, &no) && no.status == http.StatusConflict && (!no.hasLastSeq || no.lastSeq < seq) {
		// Not for its number: another core may be the leader.
		err = &busyError{no.Error(), no.retryAfter}
	}
	if err != nil {
		c.heard(&c.sending, err)
		return err
	}
	c.heard(&c.sending, nil)
	c.keepAnswer(a)
	c.count(func(s *Stats) { s.Sent++ })
	return nil
}

// understood reads an answer.
func (c *Core) understood(r *reply, v any) error {
	if r.status != http.StatusOK {
		return fmt.Errorf("%w: the core answers with HTTP status %d, which was not asked for", monitor.ErrUnavailable, r.status)
	}
	if err := json.Unmarshal(r.body, v); err != nil {
		return fmt.Errorf("%w: the core's answer cannot be read: %w", monitor.ErrUnavailable, err)
	}
	return nil
}

func (c *Core) count(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}
