package main

import (
	"cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// livenessRules are the options of the liveness step.
func (c *Config) livenessRules() monitor.Liveness {
	l := c.Liveness
	return monitor.Liveness{
		MaxFailuresBeforeDead: l.MaxFailuresBeforeDead,
		MinFailureDuration:    l.MinFailureDuration.D(),
		ConnectivityWindow:    l.ConnectivityWindow.D(),
		FailureWindow:         l.FailureWindow.D(),
		BackoffBaseDelay:      l.BackoffBaseDelay.D(),
		BackoffMaxDelay:       l.BackoffMaxDelay.D(),
		DeadRetryDelay:        l.DeadRetryDelay.D(),
		RecoveryGracePeriod:   l.RecoveryGracePeriod.D(),
	}
}

// freshness guards the list as a whole.
func (c *Config) freshness() monitor.Freshness {
	return monitor.Freshness{MaxAge: c.Live.MaxAge.D(), MinFresh: c.Live.MinFresh, MinCount: c.Live.MinCount}
}

// cadence is the cadence table with the configured interval. With an interval
// shorter than a minute nothing new waits longer than one.
func (c *Config) cadence() monitor.Cadence {
	k := monitor.DefaultCadence()
	k.Interval = c.Probe.Interval.D()
	k.FirstWithin = min(k.FirstWithin, k.Interval)
	k.CandidateWithin = min(k.CandidateWithin, 2*k.Interval)
	k.SecondLook = min(k.SecondLook, k.Interval)
	k.DeadRetry = c.Liveness.DeadRetryDelay.D()
	k.FailureWindow = c.Liveness.FailureWindow.D()
	return k
}

// corroboration are the options by which votes become verdicts.
func (c *Config) corroboration() monitor.Corroboration {
	return monitor.Corroboration{
		Interval:        c.Probe.Interval.D(),
		ConfirmFailures: c.Corroboration.ConfirmFailures,
		HoldFraction:    c.Corroboration.HoldFraction,
		HoldMin:         c.Corroboration.HoldMin,
		MaxClockSkew:    c.Corroboration.MaxClockSkew.D(),
		LiveMaxAge:      c.Live.MaxAge.D(),
		MinFresh:        c.Live.MinFresh,
	}
}

// excluded are the relays that must never be probed.
func (c *Config) excluded() []monitor.RelayURL {
	var out []monitor.RelayURL
	for _, s := range c.Exclude {
		if u, err := monitor.Canonical(s); err == nil { // validated
			out = append(out, u)
		}
	}
	return out
}

// networks are those that there is a way into, clearnet first.
func (c *Config) networks() []monitor.Network {
	out := []monitor.Network{monitor.Clearnet}
	for _, n := range []struct {
		network monitor.Network
		proxy   DSN
	}{{monitor.Tor, c.Networks.Tor.Proxy}, {monitor.I2P, c.Networks.I2P.Proxy}, {monitor.Loki, c.Networks.Loki.Proxy}} {
		if n.proxy != "" {
			out = append(out, n.network)
		}
	}
	return out
}

// enrolled are the vantages of this process as the core knows them.
func (c *Config) enrolled() []monitor.Vantage {
	out := make([]monitor.Vantage, len(c.Vantages))
	for i, v := range c.Vantages {
		out[i] = monitor.Vantage{Name: v.Name, Group: cmp.Or(v.Group, v.Name), Networks: c.networks()}
	}
	return out
}
