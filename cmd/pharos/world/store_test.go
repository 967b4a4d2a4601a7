package world_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// store is a database in memory: it keeps what the real one keeps, and loses
// what that loses.
type store struct {
	mu        sync.Mutex
	relays    map[monitor.RelayURL]monitor.WatchedRelay
	seen      map[string]map[monitor.RelayURL]monitor.VantageRelay
	seq       map[string]uint64
	events    map[eventKey]monitor.SignedEvent
	moves     map[monitor.RelayURL][]monitor.Transition
	withdrawn map[monitor.RelayURL]int
	windows   map[monitor.RelayURL][]monitor.Maintenance
	enrolled  map[string]monitor.Vantage // on other machines
	invited   map[monitor.TokenHash]monitor.Invitation
	number    uint64
	served    bool
}

type eventKey struct {
	kind int
	d    string
}

func newStore() *store {
	return &store{
		relays:    map[monitor.RelayURL]monitor.WatchedRelay{},
		seen:      map[string]map[monitor.RelayURL]monitor.VantageRelay{},
		seq:       map[string]uint64{},
		events:    map[eventKey]monitor.SignedEvent{},
		moves:     map[monitor.RelayURL][]monitor.Transition{},
		withdrawn: map[monitor.RelayURL]int{},
		windows:   map[monitor.RelayURL][]monitor.Maintenance{},
		enrolled:  map[string]monitor.Vantage{},
		invited:   map[monitor.TokenHash]monitor.Invitation{},
	}
}

func (s *store) Load(context.Context) (*monitor.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &monitor.Stored{
		Relays: slices.Collect(maps.Values(s.relays)), Events: slices.Collect(maps.Values(s.events)), Generation: s.number, Served: s.served,
		Seen: map[string]map[monitor.RelayURL]monitor.VantageRelay{}, Maintenance: maps.Clone(s.windows),
	}
	for _, v := range s.enrolled {
		v.LastSeq = s.seq[v.Name]
		out.Vantages = append(out.Vantages, v)
	}
	for name, seq := range s.seq {
		if _, remote := s.enrolled[name]; !remote {
			out.Vantages = append(out.Vantages, monitor.Vantage{Name: name, LastSeq: seq})
		}
	}
	for name := range s.seen {
		out.Seen[name] = s.records(name)
	}
	return out, nil
}

func (s *store) records(vantage string) map[monitor.RelayURL]monitor.VantageRelay {
	out := map[monitor.RelayURL]monitor.VantageRelay{}
	for u, v := range s.seen[vantage] {
		out[u] = kept(v)
	}
	return out
}

// kept is what the database gives back of a row.
func kept(v monitor.VantageRelay) monitor.VantageRelay {
	v.Record.SessionSuccess, v.Record.OnlineSince = monitor.Record{}.SessionSuccess, monitor.Record{}.OnlineSince
	return monitor.VantageRelay{
		Record: v.Record, NextDue: v.NextDue, Newest: v.Newest,
		RTTOpen: v.RTTOpen, RTTRead: v.RTTRead, RTTWrite: v.RTTWrite,
	}
}

func (s *store) Watch(_ context.Context, relays []monitor.WatchedRelay) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range relays {
		if old, ok := s.relays[r.URL]; ok {
			old.Source, old.Candidate = r.Source, old.Candidate && r.Candidate
			r = old
		}
		s.relays[r.URL] = r
	}
	return nil
}

func (s *store) Ingest(_ context.Context, in *monitor.Ingest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &in.Batch
	if b.Seq <= s.seq[b.Vantage] {
		return fmt.Errorf("%w: batch %d", monitor.ErrConflict, b.Seq)
	}
	s.seq[b.Vantage] = b.Seq
	if s.seen[b.Vantage] == nil {
		s.seen[b.Vantage] = map[monitor.RelayURL]monitor.VantageRelay{}
	}
	maps.Copy(s.seen[b.Vantage], in.Records)
	return nil
}

func (s *store) Commit(_ context.Context, d *monitor.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number, s.served = d.Generation, s.served || d.Served
	for _, r := range d.Relays {
		s.relays[r.URL] = r
	}
	for i := range d.Transitions {
		u := d.Transitions[i].Relay
		s.moves[u] = append(s.moves[u], d.Transitions[i])
	}
	for _, u := range d.Withdrawn {
		if k := (eventKey{nostr.KindReport, string(u)}); s.events[k].ID != "" {
			delete(s.events, k)
			s.withdrawn[u]++
		}
	}
	for _, e := range d.Events {
		s.events[eventKey{e.Kind, e.D}] = e
	}
	for _, u := range d.Forgotten {
		for _, seen := range s.seen {
			delete(seen, u)
		}
	}
	for u, m := range d.Maintenance {
		s.windows[u] = append(s.windows[u], m)
	}
	return nil
}

// Invite keeps an invitation.
func (s *store) Invite(_ context.Context, inv monitor.Invitation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invited[inv.Token] = inv
	return nil
}

// Invitations returns the open ones.
func (s *store) Invitations(context.Context, time.Time) ([]monitor.Invitation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.invited)), nil
}

// Redeem enrols a vantage by its token.
func (s *store) Redeem(_ context.Context, in monitor.Enrolment) (monitor.Enrolled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inv, ok := s.invited[in.Token]
	if !ok {
		return monitor.Enrolled{}, fmt.Errorf("%w: no such invitation", monitor.ErrNotFound)
	}
	delete(s.invited, in.Token)
	v := monitor.Vantage{Name: inv.Name, Group: inv.Group, Pubkey: in.Pubkey, Networks: in.Networks, Enrolled: in.At, LastSeq: s.seq[inv.Name]}
	s.enrolled[v.Name] = v
	return monitor.Enrolled{Vantage: v, Seen: s.records(v.Name)}, nil
}

// Revoke ends an enrolment.
func (s *store) Revoke(_ context.Context, name, _ string, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.enrolled[name]
	if !ok {
		return fmt.Errorf("%w: vantage %s", monitor.ErrNotFound, name)
	}
	v.Revoked = true
	s.enrolled[name] = v
	return nil
}

// transitions of one relay, oldest first.
func (s *store) transitions(u monitor.RelayURL) []monitor.Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.moves[u])
}

func (s *store) withdrawals(u monitor.RelayURL) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withdrawn[u]
}
