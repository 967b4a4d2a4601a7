package postgres

import (
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// healthJSON is monitor.Health in vantage.health; impaired_since is a column.
type healthJSON struct {
	Impairments   []monitor.Impairment `json:"impairments,omitempty"`
	LagMS         int64                `json:"lag_ms"`
	CanarySuccess time.Time            `json:"canary_success,omitzero"`
	InFlight      int                  `json:"in_flight"`
	Watched       int                  `json:"watched"`
	Networks      []monitor.Network    `json:"networks,omitzero"`
	Down          []monitor.Network    `json:"down,omitempty"`
}

func healthRow(h monitor.Health) healthJSON {
	return healthJSON{h.Impairments, h.Lag.Milliseconds(), clampStored(h.CanarySuccess), h.InFlight, h.Watched, h.Networks, h.Down}
}

func (h healthJSON) health(impairedSince time.Time) monitor.Health {
	return monitor.Health{
		Impairments: h.Impairments, ImpairedSince: impairedSince, Lag: duration(h.LagMS),
		CanarySuccess: h.CanarySuccess, InFlight: h.InFlight, Watched: h.Watched,
		Networks: h.Networks, Down: h.Down,
	}
}

// ballotJSON is monitor.Ballot in transition.ballots.
type ballotJSON struct {
	Vantage      string          `json:"vantage"`
	Group        string          `json:"group"`
	Vote         monitor.Vote    `json:"vote"`
	Eligible     bool            `json:"eligible"`
	Able         bool            `json:"able"`
	Unconfirmed  bool            `json:"unconfirmed,omitempty"`
	Outcome      monitor.Outcome `json:"outcome,omitempty"`
	Stage        monitor.Stage   `json:"stage,omitempty"`
	Cause        monitor.Cause   `json:"cause,omitempty"`
	Evidence     string          `json:"evidence,omitempty"`
	At           time.Time       `json:"at,omitzero"`
	FailureCount int             `json:"failure_count"`
	LastFailure  time.Time       `json:"last_failure,omitzero"`
	LastSuccess  time.Time       `json:"last_success,omitzero"`
	OnlineSince  time.Time       `json:"online_since,omitzero"`
	BackoffUntil time.Time       `json:"backoff_until,omitzero"`
	RTTOpenMS    int64           `json:"rtt_open_ms,omitempty"`
	RTTReadMS    int64           `json:"rtt_read_ms,omitempty"`
}

func ballotRows(ballots []monitor.Ballot) []ballotJSON {
	out := make([]ballotJSON, 0, len(ballots))
	for _, b := range ballots {
		out = append(out, ballotJSON{
			Vantage: b.Vantage, Group: b.Group, Vote: b.Vote, Eligible: b.Eligible, Able: b.Able,
			Unconfirmed: b.Unconfirmed, Outcome: b.Outcome, Stage: b.Stage, Cause: b.Cause, Evidence: b.Evidence,
			At: clampStored(b.At), FailureCount: b.FailureCount, LastFailure: clampStored(b.LastFailure),
			LastSuccess: clampStored(b.LastSuccess), OnlineSince: clampStored(b.OnlineSince),
			BackoffUntil: clampStored(b.BackoffUntil), RTTOpenMS: ms(b.RTTOpen), RTTReadMS: ms(b.RTTRead),
		})
	}
	return out
}

func ballots(rows []ballotJSON) []monitor.Ballot {
	out := make([]monitor.Ballot, 0, len(rows))
	for _, b := range rows {
		out = append(out, monitor.Ballot{
			Vantage: b.Vantage, Group: b.Group, Vote: b.Vote, Eligible: b.Eligible, Able: b.Able,
			Unconfirmed: b.Unconfirmed, Outcome: b.Outcome, Stage: b.Stage, Cause: b.Cause, Evidence: b.Evidence,
			At: b.At, FailureCount: b.FailureCount, LastFailure: b.LastFailure, LastSuccess: b.LastSuccess,
			OnlineSince: b.OnlineSince, BackoffUntil: b.BackoffUntil,
			RTTOpen: duration(b.RTTOpenMS), RTTRead: duration(b.RTTReadMS),
		})
	}
	return out
}

// clampStored is t in UTC as JSON can hold it; zero stays zero.
func clampStored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return clamp(t).UTC()
}
