package engine_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// registry is the part of a store that keeps vantages on other machines.
type registry struct {
	invited  map[monitor.TokenHash]monitor.Invitation
	usedBy   map[monitor.TokenHash]string
	enrolled map[string]monitor.Vantage // by name, revoked ones too
}

func (s *store) Invite(_ context.Context, inv monitor.Invitation) error {
	if s.away.Load() {
		return fmt.Errorf("%w: no database", monitor.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.invited == nil {
		s.invited, s.usedBy, s.enrolled = map[monitor.TokenHash]monitor.Invitation{}, map[monitor.TokenHash]string{}, map[string]monitor.Vantage{}
	}
	s.invited[inv.Token] = inv
	return nil
}

func (s *store) Invitations(context.Context, time.Time) ([]monitor.Invitation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []monitor.Invitation
	for hash, inv := range s.invited {
		if s.usedBy[hash] == "" {
			out = append(out, inv)
		}
	}
	return out, nil
}

func (s *store) Redeem(_ context.Context, in monitor.Enrolment) (monitor.Enrolled, error) {
	if s.away.Load() {
		return monitor.Enrolled{}, fmt.Errorf("%w: no database", monitor.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	inv, ok := s.invited[in.Token]
	switch by := s.usedBy[in.Token]; {
	case !ok:
		return monitor.Enrolled{}, fmt.Errorf("%w: no such token", monitor.ErrNotFound)
	case slices.Contains(in.Reserved, inv.Name):
		return monitor.Enrolled{}, fmt.Errorf("%w: reserved", monitor.ErrConflict)
	case by != "" && by != in.Pubkey:
		return monitor.Enrolled{}, fmt.Errorf("%w: used", monitor.ErrConflict)
	case by == "":
		s.usedBy[in.Token] = in.Pubkey
		if s.enrolled[inv.Name].Pubkey != in.Pubkey {
			s.seq[inv.Name] = 0
		}
		s.enrolled[inv.Name] = monitor.Vantage{Name: inv.Name, Group: inv.Group, Pubkey: in.Pubkey, Networks: in.Networks, Enrolled: in.At}
	}
	v := s.enrolled[inv.Name]
	v.LastSeq = s.seq[inv.Name]
	return monitor.Enrolled{Vantage: v, Seen: s.restored(inv.Name)}, nil
}

func (s *store) Revoke(_ context.Context, name, _ string, _ time.Time) error {
	if s.away.Load() {
		return fmt.Errorf("%w: no database", monitor.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.enrolled[name]
	if !ok {
		return fmt.Errorf("%w: no vantage %s", monitor.ErrNotFound, name)
	}
	v.Revoked = true
	s.enrolled[name] = v
	return nil
}
