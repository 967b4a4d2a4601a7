package wire

import (
	"math"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// header is the first line of a batch.
type header struct {
	Version    int        `json:"version"`
	Vantage    string     `json:"vantage"`
	Seq        uint64     `json:"seq"`
	SentAt     time.Time  `json:"sent_at"`
	Count      int        `json:"count"` // of observations
	Health     health     `json:"health"`
	Recoveries []recovery `json:"recoveries,omitempty"`
}

type health struct {
	Impairments   []monitor.Impairment `json:"impairments,omitempty"`
	ImpairedSince time.Time            `json:"impaired_since,omitzero"`
	Lag           millis               `json:"lag_ms,omitzero"`
	CanarySuccess time.Time            `json:"canary_success,omitzero"`
	InFlight      int                  `json:"in_flight"`
	Watched       int                  `json:"watched"`
	Networks      []monitor.Network    `json:"networks,omitzero"` // none is not the same as nothing said
	Down          []monitor.Network    `json:"down,omitempty"`
}

type recovery struct {
	Impairment monitor.Impairment `json:"impairment"`
	Since      time.Time          `json:"since,omitzero"`
	At         time.Time          `json:"at"`
}

// newHeader is the header of b.
func newHeader(b *monitor.Batch) header {
	h := header{
		Version: Version, Vantage: b.Vantage, Seq: b.Seq, SentAt: b.SentAt.UTC(), Count: len(b.Observations),
		Health: health{
			Impairments: b.Health.Impairments, ImpairedSince: utc(b.Health.ImpairedSince),
			Lag: millis(min(b.Health.Lag, maxDuration)), CanarySuccess: utc(b.Health.CanarySuccess),
			InFlight: b.Health.InFlight, Watched: b.Health.Watched, Networks: b.Health.Networks, Down: b.Health.Down,
		},
	}
	for _, r := range b.Recoveries {
		h.Recoveries = append(h.Recoveries, recovery{r.Impairment, utc(r.Since), r.At.UTC()})
	}
	return h
}

// batch is what the header tells of a batch.
func (h *header) batch() *monitor.Batch {
	b := &monitor.Batch{
		Vantage: h.Vantage, Seq: h.Seq, SentAt: h.SentAt.UTC(),
		Health: monitor.Health{
			Impairments: h.Health.Impairments, ImpairedSince: utc(h.Health.ImpairedSince),
			Lag: time.Duration(h.Health.Lag), CanarySuccess: utc(h.Health.CanarySuccess),
			InFlight: h.Health.InFlight, Watched: h.Health.Watched, Networks: h.Health.Networks, Down: h.Health.Down,
		},
	}
	for _, r := range h.Recoveries {
		b.Recoveries = append(b.Recoveries, monitor.Recovery{Impairment: r.Impairment, Since: utc(r.Since), At: r.At.UTC()})
	}
	return b
}

// utc keeps the zero time, whatever its zone, the zero time.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// check holds for headers that are written and that are read.
func (h *header) check() error {
	if err := checkVersion(h.Version); err != nil {
		return err
	}
	switch {
	case h.Vantage == "":
		return named("vantage", invalid("there is none"))
	case h.Seq == 0:
		return named("seq", invalid("numbers begin at 1"))
	case h.Seq > math.MaxInt64: // databases hold no more
		return named("seq", invalid("%d is too large", h.Seq))
	case h.Count < 0 || h.Count > MaxObservations:
		return named("count", invalid("%d is not from 0 to %d", h.Count, MaxObservations))
	case !saneTime(h.SentAt):
		return named("sent_at", invalid("the year %d is impossible", h.SentAt.UTC().Year()))
	case len(h.Recoveries) > maxRecoveries:
		return named("recoveries", invalid("there are more than %d", maxRecoveries))
	}
	if err := text(h.Vantage, maxText); err != nil {
		return named("vantage", err)
	}
	if err := h.Health.check(); err != nil {
		return err
	}
	for _, r := range h.Recoveries {
		if err := r.check(); err != nil {
			return named("recoveries", err)
		}
	}
	return nil
}

func (h *health) check() error {
	switch {
	case len(h.Impairments) > len(known):
		return named("health.impairments", invalid("there are more than %d", len(known)))
	case !h.ImpairedSince.IsZero() && !saneTime(h.ImpairedSince):
		return named("health.impaired_since", invalid("the year %d is impossible", h.ImpairedSince.UTC().Year()))
	case !h.CanarySuccess.IsZero() && !saneTime(h.CanarySuccess):
		return named("health.canary_success", invalid("the year %d is impossible", h.CanarySuccess.UTC().Year()))
	case h.Lag < 0 || h.Lag > millis(maxDuration):
		return named("health.lag_ms", errMeasured)
	case h.InFlight < 0:
		return named("health.in_flight", invalid("it is negative"))
	case h.Watched < 0:
		return named("health.watched", invalid("it is negative"))
	}
	if err := checkNetworks(h.Networks); err != nil {
		return named("health.networks", err)
	}
	if err := checkNetworks(h.Down); err != nil {
		return named("health.down", err)
	}
	for _, n := range h.Down {
		if h.Networks != nil && !slices.Contains(h.Networks, n) {
			return named("health.down", invalid("there is no way into %s that could be down", n))
		}
	}
	for _, i := range h.Impairments {
		if err := checkImpairment(i, known); err != nil {
			return named("health.impairments", err)
		}
	}
	return nil
}

func (r *recovery) check() error {
	switch {
	case !saneTime(r.At):
		return invalid("the year %d of at is impossible", r.At.UTC().Year())
	case !r.Since.IsZero() && !saneTime(r.Since):
		return invalid("the year %d of since is impossible", r.Since.UTC().Year())
	case r.Since.After(r.At):
		return invalid("it was over before it began")
	}
	return checkImpairment(r.Impairment, ending)
}
