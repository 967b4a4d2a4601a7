package world_test

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// sight is what a probe can come to, and how long that takes.
type sight struct {
	outcome monitor.Outcome
	stage   monitor.Stage
	cause   monitor.Cause
	takes   time.Duration
}

// sights are the words of the scenarios' timelines (probe.md, Outcome).
var sights = map[string]sight{
	"ok":        {monitor.OutcomeOK, monitor.StageRead, monitor.CauseNone, 100 * time.Millisecond},
	"auth":      {monitor.OutcomeRefused, monitor.StageRead, monitor.CauseAuthRequired, 100 * time.Millisecond},
	"timeout":   {monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout, 4 * time.Second},
	"refused":   {monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseConnRefused, 50 * time.Millisecond},
	"nxdomain":  {monitor.OutcomeFailed, monitor.StageDNS, monitor.CauseNXDomain, 50 * time.Millisecond},
	"silent":    {monitor.OutcomeFailed, monitor.StageRead, monitor.CauseSilent, 6 * time.Second},
	"502":       {monitor.OutcomeFailed, monitor.StageUpgrade, monitor.CauseHTTP5xx, 100 * time.Millisecond},
	"403":       {monitor.OutcomeRestricted, monitor.StageUpgrade, monitor.CauseHTTP403, 100 * time.Millisecond},
	"challenge": {monitor.OutcomeRestricted, monitor.StageUpgrade, monitor.CauseChallenge, 100 * time.Millisecond},
	"resolver":  {monitor.OutcomeUnclear, monitor.StageDNS, monitor.CauseResolver, 3 * time.Second},
	"noroute":   {monitor.OutcomeUnclear, monitor.StageTCP, monitor.CauseLocalNetwork, 10 * time.Millisecond},
}

// sight returns what a probe of r that v begins at t comes to.
func (s *scenario) sight(v *vantageSpec, r *relaySpec, t time.Duration) sight {
	switch {
	case v.network.is("lost", t):
		return sights["timeout"]
	case v.resolver.is("lost", t):
		return sights["resolver"]
	case r.ipv6 && v.noIPv6:
		return sights["noroute"]
	}
	for _, key := range []string{v.name + " " + r.name, v.name + " *"} {
		if m := s.sights[key].at(t); m != nil && m.word != "as" {
			return m.sight(t)
		}
	}
	if m := s.truth[r.name].at(t); m != nil {
		return m.sight(t)
	}
	return sights["ok"]
}

// sight is what the moment's word says, where it holds at t; "flaps 4m 6m" is
// down for 4 minutes, then up for 6, and so on.
func (m *moment) sight(t time.Duration) sight {
	if m.word != "flaps" {
		return sights[m.word]
	}
	down, _ := time.ParseDuration(m.rest[0])
	up, _ := time.ParseDuration(m.rest[1])
	if (t-m.at)%(down+up) < down {
		return sights["refused"]
	}
	return sights["ok"]
}
