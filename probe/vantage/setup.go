package vantage

import (
	"fmt"
	"maps"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// setup is one configuration with its Checker. What is begun under a setup ends
// under it.
type setup struct {
	cfg     Config
	checker Checker
	// replaced is closed when another setup takes its place.
	replaced chan struct{}
	users    int // guarded by Vantage.setupMu
}

// newSetup counts one user: the vantage, whose present setup it will be.
func newSetup(cfg Config, checker Checker) *setup {
	return &setup{cfg: cfg, checker: checker, replaced: make(chan struct{}), users: 1}
}

// Configure replaces all of the configuration and the Checker, but for the
// vantage's name, the set of its networks, DrainLimit and FlushLimit: these stay
// as New got them, and of Networks only the concurrency of those that were there
// is taken over.
//
// It may be called at any time, before Run too, and does not wait: what is
// planned moves to the new cadence at once, each relay to its own slot, while
// probes in flight end under the old Checker. Records, expedited probes that
// wait and the times for which relays asked to be left alone stay. Of several
// calls in a row the last one counts.
//
// The vantage closes no Checker: it calls Config.Release when the old one is
// used no more. An error is monitor.ErrInvalid and names every setting that is
// wrong, or monitor.ErrConflict when Run has ended; nothing has changed then, and
// the new Checker is the caller's.
func (v *Vantage) Configure(cfg Config, checker Checker) error {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	if checker == nil {
		return fmt.Errorf("%w vantage %s: it needs a checker", monitor.ErrInvalid, v.name)
	}
	cfg.Name, cfg.DrainLimit, cfg.FlushLimit = v.name, v.drainLimit, v.flushLimit
	cfg.Networks = maps.Clone(cfg.Networks)
	if err := cfg.fill(); err != nil {
		return err
	}
	if v.ended {
		return fmt.Errorf("%w: vantage %s has stopped", monitor.ErrConflict, v.name)
	}
	old := v.setup
	for n, limit := range old.cfg.Networks {
		if _, ok := cfg.Networks[n]; !ok {
			cfg.Networks[n] = limit
		}
	}
	v.setup = newSetup(cfg, checker)
	v.outbox.bound(cfg.QueueSize)
	close(old.replaced)
	v.leave(old)
	return nil
}

// enter counts one more user of the present setup.
func (v *Vantage) enter() *setup {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	v.setup.users++
	return v.setup
}

// share counts one more user of s, which has one.
func (v *Vantage) share(s *setup) *setup {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	s.users++
	return s
}

// done counts one user of s less.
func (v *Vantage) done(s *setup) {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	v.leave(s)
}

func (v *Vantage) leave(s *setup) {
	if s.users--; s.users == 0 && s.cfg.Release != nil {
		s.cfg.Release()
	}
}

// end gives the present setup up, when Run is over.
func (v *Vantage) end() {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	v.ended = true
	v.leave(v.setup)
}

// batchEvery is the present pace of batches.
func (v *Vantage) batchEvery() time.Duration {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	return v.setup.cfg.BatchEvery
}
