package remote

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// heard takes in how a request went: it opens or closes its line, and says what is
// new, once.
func (c *Core) heard(l *line, err error) {
	now := time.Now()
	var r *refusal
	said := err == nil || errors.As(err, &r)
	// The core has spoken about this one, and the next may follow at once.
	final := err == nil || r != nil && (forGood(r.status) || r.status == http.StatusConflict)
	gone := errors.Is(err, context.Canceled) // by us, which tells nothing
	switch {
	case final:
		l.succeeded()
	case !gone:
		l.failed(now, retryAfter(err))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if said {
		c.stats.Reached = now.Round(0)
	}
	if r != nil && r.hasTime {
		c.stats.Skew = r.skew
	}
	if r != nil && r.hasLastSeq {
		c.stored = max(c.stored, r.lastSeq)
	}
	switch {
	case final && l.problem == "", gone:
		return
	case final:
		l.problem = ""
		c.cfg.Log.Info("core answers again", "asked", l.what)
		return
	}
	c.stats.Failures++
	news := l.problem == ""
	l.problem = err.Error()
	skew, wrong := wrongClock(err)
	switch {
	case r != nil && r.status == http.StatusForbidden:
		c.once.Do(func() {
			c.cfg.Log.Error(ErrRevoked.Error(), "why", r.detail)
			close(c.revoked)
		})
	case wrong:
		l.problem = skewWords(skew)
		if !c.told.skew {
			c.cfg.Log.Error(l.problem)
		}
		c.told.skew = true
	case news:
		c.cfg.Log.Warn("core does not answer as it should: what it is sent waits on the disk", "asked", l.what, "error", err)
	}
}

// wrongClock reports whether the core refused a signature for our clock, and how
// far that is off.
func wrongClock(err error) (skew time.Duration, wrong bool) {
	var r *refusal
	if errors.As(err, &r) && r.status == http.StatusUnauthorized && r.hasTime && r.skew.Abs() > skewMost {
		return r.skew, true
	}
	return 0, false
}

// sayDisk says once that the disk takes nothing, and once that it does again.
func (c *Core) sayDisk(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && !c.told.full:
		c.cfg.Log.Error("the spool cannot be written: batches wait in memory", "error", err)
	case err == nil && c.told.full:
		c.cfg.Log.Info("the spool can be written again")
	}
	c.told.full = err != nil
}
