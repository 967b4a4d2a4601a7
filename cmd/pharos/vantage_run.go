package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
	"github.com/pharos-nostr/pharos/probe/vantage"
	"github.com/pharos-nostr/pharos/probe/vantage/remote"
)

// reportEvery is how often a vantage says in its log how it fares: it has no port
// to be asked at.
const reportEvery = 10 * time.Minute

// outpost is the one vantage of a process without a core.
type outpost struct {
	name string
	key  nostr.Key
	log  *slog.Logger

	mu      sync.Mutex
	cfg     *Config
	rules   *wire.Rules      // the core's, nil = not told yet
	vantage *vantage.Vantage // nil = not made yet
}

// run probes until ctx ends: then it hands the core what is left, and what that
// does not take stays on the disk.
func (o *outpost) run(ctx context.Context, c *command, hangups <-chan os.Signal, rc remote.Config) error {
	core, err := remote.New(rc)
	if err != nil {
		return exitWith(exitStart, err)
	}
	defer func() { _ = core.Close() }()
	p, err := o.plan()
	if err != nil {
		return exitWith(exitUsage, err)
	}
	v, err := vantage.New(p.cfg, p.checker, core, o.log)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	o.mu.Lock()
	o.vantage = v
	o.mu.Unlock()
	if _, warning := descriptorRoom(o.cfg.Probe.Concurrency); warning != "" {
		o.log.Warn(warning)
	}

	begun := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var side sync.WaitGroup
	side.Go(func() { o.reloadOn(ctx, c, hangups) })
	side.Go(func() { o.report(ctx, core) })
	sending, stopSending := context.WithCancel(begun) // which ends after the last batch
	defer stopSending()
	sent := make(chan error, 1)
	go func() {
		err := core.Run(sending)
		if err != nil {
			cancel()
		}
		sent <- err
	}()
	failure := v.Run(ctx)
	stopSending()
	failure = errors.Join(failure, <-sent)
	cancel()
	side.Wait()
	o.say("stopped", core)
	switch {
	case errors.Is(failure, remote.ErrRevoked):
		return exitf(exitBad, "%s; what it still had stays in %s. To enrol this machine again, move vantage.json there away and start with the token of a new invitation", remote.ErrRevoked, rc.Dir)
	case failure != nil:
		return exitWith(exitStart, failure)
	}
	return nil
}

// plan is how the vantage is to work by the present configuration and the core's
// rules.
func (o *outpost) plan() (plan, error) {
	room, _ := descriptorRoom(o.cfg.Probe.Concurrency)
	var key nostr.Key
	if o.cfg.needsKey() {
		key = o.key
	}
	p, err := newPlan(o.cfg, o.cfg.vantage(o.name), room, key, o.log)
	if err != nil {
		return plan{}, err
	}
	if o.rules != nil { // until then nothing is watched
		p.cfg.Cadence, p.cfg.Liveness = o.rules.Cadence, o.rules.Liveness
	}
	return p, nil
}

// vantage is the entry of vantages with this name, or one without anything of
// its own.
func (c *Config) vantage(name string) *Vantage {
	if i := slices.IndexFunc(c.Vantages, func(v Vantage) bool { return v.Name == name }); i >= 0 {
		return &c.Vantages[i]
	}
	return &Vantage{Name: name}
}

// rule takes over what the core decides by.
func (o *outpost) rule(r wire.Rules) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.rules
	o.rules = &r
	if err := o.follow(); err != nil {
		o.rules = before
		o.log.Error("the core's rules are not followed", "error", err)
		return
	}
	o.log.Info("following the core's rules", "interval", r.Cadence.Interval.String())
}

// follow makes the vantage work by a new plan. Its caller holds mu.
func (o *outpost) follow() error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	return o.vantage.Configure(p.cfg, p.checker)
}

// reloadOn takes over the configuration's probe and self_check sections at each
// signal until ctx ends.
func (o *outpost) reloadOn(ctx context.Context, c *command, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
		case <-ctx.Done():
			return
		}
		if err := o.reload(c); err != nil {
			o.log.Error("configuration not reloaded: nothing changed", "error", err)
			continue
		}
		o.log.Info("configuration reloaded")
	}
}

func (o *outpost) reload(c *command) error {
	next, err := c.reread()
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.cfg
	o.cfg = next
	if err := o.follow(); err != nil {
		o.cfg = before
		return err
	}
	return nil
}

// report says how the vantage fares until ctx ends.
func (o *outpost) report(ctx context.Context, core *remote.Core) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.say("report", core)
		case <-ctx.Done():
			return
		}
	}
}

func (o *outpost) say(what string, core *remote.Core) {
	s, v := core.Stats(), o.vantage.Stats()
	o.log.Info(what, "core_reached", s.Reached, "problem", s.Problem, "skew", s.Skew.Round(time.Millisecond).String(),
		"batches_sent", s.Sent, "batches_spooled", s.Batches, "observations_spooled", s.Observations, "bytes_spooled", s.Bytes,
		"in_memory", v.Queued, "failures", s.Failures,
		"dropped", s.DroppedObservations+v.Dropped, "broken", s.Broken, "refused", s.Refused, "foreign", s.Foreign,
		"unsendable", s.Unsendable, "infos_dropped", s.InfosDropped+v.InfosDropped)
}
