package wire

import (
	"encoding/json"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Rules are what the core decides by and a vantage schedules by.
type Rules struct {
	Cadence  monitor.Cadence
	Liveness monitor.Liveness
}

type rules struct {
	Cadence  cadence  `json:"cadence"`
	Liveness liveness `json:"liveness"`
}

type cadence struct {
	Interval        millis `json:"interval_ms"`
	SecondLook      millis `json:"second_look_ms"`
	FirstWithin     millis `json:"first_within_ms"`
	CandidateWithin millis `json:"candidate_within_ms"`
	DeadRetry       millis `json:"dead_retry_ms"`
	DeadLong        millis `json:"dead_long_ms"`
	DeadLongAfter   millis `json:"dead_long_after_ms"`
	RetryAfterMax   millis `json:"retry_after_max_ms"`
	FailureWindow   millis `json:"failure_window_ms"`
	InfoEvery       millis `json:"info_every_ms"`
	FactsEvery      millis `json:"facts_every_ms,omitzero"`
	DepthEvery      millis `json:"depth_every_ms,omitzero"`
}

type liveness struct {
	MaxFailuresBeforeDead int    `json:"max_failures_before_dead"`
	MinFailureDuration    millis `json:"min_failure_duration_ms"`
	ConnectivityWindow    millis `json:"connectivity_window_ms"`
	FailureWindow         millis `json:"failure_window_ms"`
	BackoffBaseDelay      millis `json:"backoff_base_delay_ms"`
	BackoffMaxDelay       millis `json:"backoff_max_delay_ms"`
	DeadRetryDelay        millis `json:"dead_retry_delay_ms"`
	RecoveryGracePeriod   millis `json:"recovery_grace_period_ms"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Rules) MarshalJSON() ([]byte, error) {
	c, l := &r.Cadence, &r.Liveness
	return json.Marshal(rules{
		cadence{
			millis(c.Interval), millis(c.SecondLook), millis(c.FirstWithin), millis(c.CandidateWithin), millis(c.DeadRetry),
			millis(c.DeadLong), millis(c.DeadLongAfter), millis(c.RetryAfterMax), millis(c.FailureWindow), millis(c.InfoEvery),
			millis(c.FactsEvery), millis(c.DepthEvery),
		},
		liveness{
			l.MaxFailuresBeforeDead, millis(l.MinFailureDuration), millis(l.ConnectivityWindow), millis(l.FailureWindow),
			millis(l.BackoffBaseDelay), millis(l.BackoffMaxDelay), millis(l.DeadRetryDelay), millis(l.RecoveryGracePeriod),
		},
	})
}

// UnmarshalJSON reads rules; the error is monitor.ErrInvalid. What they say is
// checked as part of Tasks. A core of version 1 says nothing of facts_every_ms
// and depth_every_ms: they have their defaults then.
func (r *Rules) UnmarshalJSON(b []byte) error {
	var in rules
	if err := unmarshal(b, &in, false); err != nil {
		return err
	}
	c, l := &in.Cadence, &in.Liveness
	if c.FactsEvery == 0 {
		c.FactsEvery = millis(monitor.DefaultCadence().FactsEvery)
	}
	if c.DepthEvery == 0 {
		c.DepthEvery = millis(monitor.DefaultCadence().DepthEvery)
	}
	*r = Rules{
		monitor.Cadence{
			Interval: time.Duration(c.Interval), SecondLook: time.Duration(c.SecondLook),
			FirstWithin: time.Duration(c.FirstWithin), CandidateWithin: time.Duration(c.CandidateWithin),
			DeadRetry: time.Duration(c.DeadRetry), DeadLong: time.Duration(c.DeadLong), DeadLongAfter: time.Duration(c.DeadLongAfter),
			RetryAfterMax: time.Duration(c.RetryAfterMax), FailureWindow: time.Duration(c.FailureWindow), InfoEvery: time.Duration(c.InfoEvery),
			FactsEvery: time.Duration(c.FactsEvery), DepthEvery: time.Duration(c.DepthEvery),
		},
		monitor.Liveness{
			MaxFailuresBeforeDead: l.MaxFailuresBeforeDead, MinFailureDuration: time.Duration(l.MinFailureDuration),
			ConnectivityWindow: time.Duration(l.ConnectivityWindow), FailureWindow: time.Duration(l.FailureWindow),
			BackoffBaseDelay: time.Duration(l.BackoffBaseDelay), BackoffMaxDelay: time.Duration(l.BackoffMaxDelay),
			DeadRetryDelay: time.Duration(l.DeadRetryDelay), RecoveryGracePeriod: time.Duration(l.RecoveryGracePeriod),
		},
	}
	return nil
}

// minInterval keeps a core that went mad, or somebody in its place, from making
// a vantage hammer relays.
const minInterval = time.Second

func (r *Rules) check() error {
	c, l := &r.Cadence, &r.Liveness
	for _, d := range [...]struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"cadence.interval_ms", c.Interval, minInterval},
		{"cadence.second_look_ms", c.SecondLook, minInterval},
		{"cadence.first_within_ms", c.FirstWithin, 1},
		{"cadence.candidate_within_ms", c.CandidateWithin, 1},
		{"cadence.dead_retry_ms", c.DeadRetry, minInterval},
		{"cadence.dead_long_ms", c.DeadLong, minInterval},
		{"cadence.dead_long_after_ms", c.DeadLongAfter, 1},
		{"cadence.retry_after_max_ms", c.RetryAfterMax, 1},
		{"cadence.failure_window_ms", c.FailureWindow, 1},
		{"cadence.info_every_ms", c.InfoEvery, minInterval},
		{"cadence.facts_every_ms", c.FactsEvery, minInterval},
		{"cadence.depth_every_ms", c.DepthEvery, minInterval},
		{"liveness.min_failure_duration_ms", l.MinFailureDuration, 0},
		{"liveness.connectivity_window_ms", l.ConnectivityWindow, 1},
		{"liveness.failure_window_ms", l.FailureWindow, 1},
		{"liveness.backoff_base_delay_ms", l.BackoffBaseDelay, 0},
		{"liveness.backoff_max_delay_ms", l.BackoffMaxDelay, 0},
		{"liveness.dead_retry_delay_ms", l.DeadRetryDelay, 0},
		{"liveness.recovery_grace_period_ms", l.RecoveryGracePeriod, 0},
	} {
		if d.value < d.least {
			return invalid("%s %s is too short", d.name, d.value)
		}
	}
	if l.MaxFailuresBeforeDead < 1 {
		return invalid("liveness.max_failures_before_dead %d is less than 1", l.MaxFailuresBeforeDead)
	}
	return nil
}
