package wire

import (
	"encoding/json"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// Tasks is the answer to GET /v1/vantages/{name}/tasks. Its Version is the ETag's,
// but for the rules, which an ETag must cover too.
type Tasks struct {
	Version uint64
	// Base is the version that Set and Removed change; 0 = Set is the whole list.
	Base    uint64
	Set     []monitor.Task
	Removed []monitor.RelayURL
	// LastSeq is the sequence of the newest batch that the core has stored from
	// this vantage.
	LastSeq    uint64
	Rules      Rules
	ServerTime time.Time // the core's clock
}

type tasks struct {
	Version    uint64             `json:"version"`
	Base       uint64             `json:"base,omitzero"`
	Set        []task             `json:"set"`
	Removed    []monitor.RelayURL `json:"removed,omitempty"`
	LastSeq    uint64             `json:"last_seq"`
	Rules      Rules              `json:"rules"`
	ServerTime time.Time          `json:"server_time"`
}

type task struct {
	Relay       monitor.RelayURL `json:"relay"`
	Candidate   bool             `json:"candidate,omitempty"`
	PausedUntil time.Time        `json:"paused_until,omitzero"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (t Tasks) MarshalJSON() ([]byte, error) {
	out := tasks{t.Version, t.Base, make([]task, len(t.Set)), t.Removed, t.LastSeq, t.Rules, t.ServerTime.UTC()}
	for i, s := range t.Set {
		out.Set[i] = task{s.Relay, s.Candidate, utc(s.PausedUntil)}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads and checks tasks; the error is monitor.ErrInvalid. Fields
// that it does not know are left aside.
func (t *Tasks) UnmarshalJSON(b []byte) error {
	var in tasks
	if err := unmarshal(b, &in, false); err != nil {
		return err
	}
	switch {
	case in.Version == 0:
		return named("version", invalid("numbers begin at 1"))
	case !saneTime(in.ServerTime):
		return named("server_time", invalid("the year %d is impossible", in.ServerTime.UTC().Year()))
	case in.Base == 0 && len(in.Removed) > 0:
		return named("removed", invalid("a whole list removes nothing"))
	}
	if err := in.Rules.check(); err != nil {
		return named("rules", err)
	}
	set := make([]monitor.Task, len(in.Set))
	for i, s := range in.Set {
		if err := canonical(s.Relay); err != nil {
			return named("set", err)
		}
		set[i] = monitor.Task{Relay: s.Relay, Candidate: s.Candidate, PausedUntil: utc(s.PausedUntil)}
	}
	for _, u := range in.Removed {
		if err := canonical(u); err != nil {
			return named("removed", err)
		}
	}
	*t = Tasks{in.Version, in.Base, set, in.Removed, in.LastSeq, in.Rules, in.ServerTime.UTC()}
	return nil
}

// Answer is the answer to POST /v1/vantages/{name}/observations.
type Answer struct {
	Stored   uint64             // sequence of the newest batch that is stored now
	Expedite []monitor.RelayURL // probe these now, within 60 s
	// Due names when the core's record wants relays looked at, where that may be
	// earlier than the vantage plans by its own.
	Due map[monitor.RelayURL]time.Time
}

type answer struct {
	Stored   uint64                         `json:"stored"`
	Expedite []monitor.RelayURL             `json:"expedite,omitempty"`
	Due      map[monitor.RelayURL]time.Time `json:"due,omitempty"`
}

// MarshalJSON writes what UnmarshalJSON reads.
func (a Answer) MarshalJSON() ([]byte, error) { return json.Marshal(answer(a)) }

// UnmarshalJSON reads and checks an answer; the error is monitor.ErrInvalid.
// Fields that it does not know are left aside.
func (a *Answer) UnmarshalJSON(b []byte) error {
	var in answer
	if err := unmarshal(b, &in, false); err != nil {
		return err
	}
	for _, u := range in.Expedite {
		if err := canonical(u); err != nil {
			return named("expedite", err)
		}
	}
	for u, t := range in.Due {
		if err := canonical(u); err != nil {
			return named("due", err)
		}
		if !saneTime(t) {
			return named("due", invalid("the year %d is impossible", t.UTC().Year()))
		}
		in.Due[u] = t.UTC()
	}
	*a = Answer(in)
	return nil
}
