package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// point is one vantage of this process.
type point struct {
	name    string
	vantage *vantage.Vantage
	checker atomic.Pointer[probe.Checker] // of its present plan
	panics  atomic.Uint64                 // of the earlier ones
}

// plan is how a vantage of this process is to work.
type plan struct {
	cfg     vantage.Config
	checker *probe.Checker
}

// newPlan is how the vantage is to work by the configuration, with at most room
// probes of clearnet in flight, signing with key where the configuration asks
// for something to sign.
func newPlan(cfg *Config, v *Vantage, room int, key nostr.Key, log *slog.Logger) (plan, error) {
	canaries, err := cfg.canaries()
	if err != nil {
		return plan{}, err
	}
	pc, err := checkerConfig(cfg, v, log.With("vantage", v.Name))
	if err != nil {
		return plan{}, err
	}
	pc.Key = key
	checker, err := probe.New(pc)
	if err != nil {
		return plan{}, err
	}
	networks := map[monitor.Network]int{monitor.Clearnet: max(1, room)}
	proxies := map[monitor.Network]func(context.Context) error{}
	for n := range pc.Proxies {
		networks[n] = cfg.Networks.Tor.Concurrency
		proxies[n] = func(ctx context.Context) error { return checker.ReachProxy(ctx, n) }
	}
	out := plan{vantage.Config{
		Name: v.Name, Networks: networks, Proxies: proxies,
		Rate: cfg.Probe.Rate, PerIP: cfg.Probe.PerIP, PerSubnet: cfg.Probe.PerSubnet,
		Cadence: cfg.cadence(), Liveness: cfg.livenessRules(), Write: cfg.Probe.Write,
		Canaries: canaries, SelfCheckEvery: cfg.SelfCheck.Interval.D(),
		SourceAddress: v.SourceAddress, Resolve: checker.Resolve,
		DrainLimit: drainLimit, FlushLimit: flushLimit,
	}, checker}
	if pc.Proxy != nil { // the network that canaries tell of is the proxy's
		out.cfg.Dial, out.cfg.Proxied = checker.DialContext, true
	}
	return out, nil
}

// plans makes a plan for each vantage of the configuration, in its order.
func (a *App) plans(cfg *Config) ([]plan, error) {
	var out []plan
	room, _ := descriptorRoom(cfg.Probe.Concurrency * len(cfg.Vantages))
	for i := range cfg.Vantages {
		v := &cfg.Vantages[i]
		var key nostr.Key
		if cfg.needsKey() {
			var err error
			if key, err = a.vantageKey(v.Name); err != nil {
				return nil, err
			}
		}
		p, err := newPlan(cfg, v, room/len(cfg.Vantages), key, a.log)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// checkSources refuses a vantage whose source address is not here: every one of
// its probes would fail, and by no relay's fault.
func (c *Config) checkSources(ctx context.Context) error {
	for _, v := range c.Vantages {
		if !v.SourceAddress.IsValid() {
			continue
		}
		p, err := new(net.ListenConfig).ListenPacket(ctx, "udp", netip.AddrPortFrom(v.SourceAddress, 0).String())
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return exitf(exitStart, "%s, the source address of the vantage %s, is no address of this machine: correct it in vantages, or take it out", v.SourceAddress, v.Name)
		}
		if err == nil {
			_ = p.Close() // nothing was sent
		}
	}
	return nil
}

// startVantages starts probing. On the way down all of them stop at once.
func (a *App) startVantages() error {
	plans, err := a.plans(a.config())
	if err != nil {
		return exitWith(exitUsage, err)
	}
	for _, p := range plans {
		v, err := vantage.New(p.cfg, p.checker, a.engine, a.log)
		if err != nil {
			return exitWith(exitUsage, err)
		}
		one := &point{name: p.cfg.Name, vantage: v}
		one.checker.Store(p.checker)
		a.points = append(a.points, one)
	}
	if err := a.metrics.Register(&collector{points: a.points, relay: a.relay, backups: a.backups, host: a.host.Load}); err != nil {
		return exitf(exitStart, "metrics: %v", err)
	}
	a.background("probing", func(ctx context.Context) error {
		errs := make([]error, len(a.points))
		var running sync.WaitGroup
		for i, p := range a.points {
			running.Go(func() { errs[i] = p.vantage.Run(ctx) })
		}
		running.Wait()
		return errors.Join(errs...)
	})
	return nil
}

// follow makes the vantages work by new plans, in the same order.
func (a *App) follow(plans []plan) error {
	var errs []error
	for i, p := range plans {
		one := a.points[i]
		if err := one.vantage.Configure(p.cfg, p.checker); err != nil {
			errs = append(errs, err)
			continue
		}
		old := one.checker.Swap(p.checker)
		one.panics.Add(old.Panics())
	}
	return errors.Join(errs...)
}

// canaries are what the vantages ask to know their own network.
func (c *Config) canaries() ([]vantage.Canary, error) {
	texts := c.SelfCheck.Canaries.List
	if c.SelfCheck.Canaries.Default {
		texts = vantage.DefaultCanaries()
	}
	out := make([]vantage.Canary, len(texts))
	for i, s := range texts {
		var err error
		if out[i], err = vantage.ParseCanary(s, c.Probe.AllowNetworks...); err != nil {
			return nil, err
		}
	}
	return out, nil
}
