package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/discovery"
)

const (
	// firstSweepAfter leaves the start to the relays that are configured.
	firstSweepAfter = 10 * time.Second
	// sweepAgainAfter is how soon a sweep that reached nobody, or that the core
	// could not take in, is made good.
	sweepAgainAfter = 5 * time.Minute
	// discoverLimit bounds the core's part of a sweep.
	discoverLimit = 2 * time.Minute
)

// sweeper finds relays on other relays; *discovery.Discovery is one.
type sweeper interface {
	Sweep(ctx context.Context) (monitor.Sweep, error)
}

// discoverer sweeps over the sources again and again and hands the core what was
// found.
type discoverer struct {
	sweeper sweeper
	take    func(context.Context, *monitor.Sweep) (monitor.DiscoveryStatus, error)
	log     *slog.Logger

	mu      sync.Mutex
	every   time.Duration // 0 = off
	changed chan struct{} // closed when every is another
}

// configure sets how often there is a sweep; 0 = never.
func (d *discoverer) configure(every time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed != nil && d.every == every {
		return
	}
	d.every = every
	if d.changed != nil {
		close(d.changed)
	}
	d.changed = make(chan struct{})
}

func (d *discoverer) pace() (every time.Duration, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.every, d.changed
}

// run sweeps until ctx ends. A new pace counts from the last sweep.
func (d *discoverer) run(ctx context.Context) error {
	var last time.Time // when the last sweep began, zero = none yet
	wait := firstSweepAfter
	for {
		every, changed := d.pace()
		due := time.NewTimer(wait)
		if every == 0 {
			due.Stop()
		}
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-changed:
			due.Stop()
			if every, _ := d.pace(); !last.IsZero() {
				wait = max(0, every-time.Since(last))
			}
			continue
		case <-due.C:
		}
		last = time.Now()
		wait = every
		if !d.sweep(ctx) {
			wait = min(every, sweepAgainAfter)
		}
		wait = max(0, wait-time.Since(last))
	}
}

// sweep makes one sweep; false = it should be made good soon.
func (d *discoverer) sweep(ctx context.Context) bool {
	s, err := d.sweeper.Sweep(ctx)
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		d.log.Warn("no source of relays could be read; discovery tries again soon", "error", err)
	}
	taking, cancel := context.WithTimeout(ctx, discoverLimit)
	defer cancel()
	status, taken := d.take(taking, &s)
	switch {
	case ctx.Err() != nil:
		return true
	case taken != nil:
		d.log.Warn("what discovery found could not be taken in; the next sweep tries again", "error", taken)
		return false
	case err != nil:
		return false
	}
	d.log.Info("relays discovered", "found", status.Found, "watched", status.Watched, "waiting", status.Waiting,
		"authors", s.Authors, "whole", s.Whole, "took", s.At.Sub(s.Start).Round(time.Second).String())
	return true
}

// sweepEvery is how often relays are discovered; 0 = never.
func (c *Config) sweepEvery() time.Duration {
	if !c.Discovery.Enabled {
		return 0
	}
	return c.Discovery.Interval.D()
}

// discoveryConfig is what package discovery needs, with a way to relays of its
// own: it answers no vantage's question, and has no vantage's address.
func (a *App) discoveryConfig(cfg *Config) (discovery.Config, error) {
	pc, err := checkerConfig(cfg, nil, a.log.With("part", "discovery"))
	if err != nil {
		return discovery.Config{}, err
	}
	checker, err := probe.New(pc)
	if err != nil {
		return discovery.Config{}, err
	}
	var key nostr.Key // for sources that want to know who asks
	if cfg.Probe.Auth {
		if key, err = a.vantageKey("discovery"); err != nil {
			return discovery.Config{}, err
		}
	}
	return discovery.Config{
		Sources: cfg.sources(), Kinds: cfg.Discovery.Kinds, Client: checker.HTTPClient(), UserAgent: cfg.userAgent(),
		AllowNetworks: cfg.Probe.AllowNetworks, Key: key, Self: a.pubkey, Log: a.log,
	}, nil
}

// startDiscovery begins to look for relays on other relays.
func (a *App) startDiscovery() error {
	cfg := a.config()
	dc, err := a.discoveryConfig(cfg)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if a.discovery, err = discovery.New(dc); err != nil {
		return exitWith(exitUsage, err)
	}
	a.discoverer = &discoverer{sweeper: a.discovery, take: a.engine.Discover, log: a.log}
	a.discoverer.configure(cfg.sweepEvery())
	a.background("discovery", a.discoverer.run)
	return nil
}

// followDiscovery takes over another configuration.
func (a *App) followDiscovery(cfg *Config) error {
	dc, err := a.discoveryConfig(cfg)
	if err != nil {
		return err
	}
	a.discoverer.configure(cfg.sweepEvery())
	return a.discovery.Configure(dc)
}
