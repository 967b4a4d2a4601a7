package vantage

import (
	"fmt"

	"github.com/pharos-nostr/pharos/monitor"
)

// setup is one configuration with its Checker. What is begun under a setup ends
// under it.
type setup struct {
	cfg     Config
	checker Checker
	// replaced is closed when another setup takes its place.
	replaced chan struct{}
}

func newSetup(cfg Config, checker Checker) *setup {
	return &setup{cfg: cfg, checker: checker, replaced: make(chan struct{})}
}

// Configure replaces all of the configuration and the Checker, but for the
// vantage's name, DrainLimit and FlushLimit: these stay as New got them.
//
// It may be called at any time, before Run too, and does not wait: what is
// planned moves to the new cadence at once, each relay to its own slot, while
// probes in flight end under the old Checker. Records, expedited probes that
// wait and the times for which relays asked to be left alone stay. Relays of a
// network that is new are looked at as at the start; those of one that is gone
// are skipped with no_proxy. Of several calls in a row the last one counts.
//
// An error is monitor.ErrInvalid and names every setting that is wrong, or
// monitor.ErrConflict when Run has ended; nothing has changed then.
func (v *Vantage) Configure(cfg Config, checker Checker) error {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	if checker == nil {
		return fmt.Errorf("%w vantage %s: it needs a checker", monitor.ErrInvalid, v.name)
	}
	cfg.Name, cfg.DrainLimit, cfg.FlushLimit = v.name, v.drainLimit, v.flushLimit
	cfg.own()
	if err := cfg.fill(); err != nil {
		return err
	}
	if v.ended {
		return fmt.Errorf("%w: vantage %s has stopped", monitor.ErrConflict, v.name)
	}
	old := v.setup
	v.setup = newSetup(cfg, checker)
	v.outbox.bound(cfg.QueueSize)
	close(old.replaced)
	return nil
}

// present is the setup to begin by.
func (v *Vantage) present() *setup {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	return v.setup
}

// end refuses every further setup.
func (v *Vantage) end() {
	v.setupMu.Lock()
	defer v.setupMu.Unlock()
	v.ended = true
}
