package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// usedInvitationsKept is how long an invitation is remembered after it expired:
// so long a machine that asks once more hears what became of it.
const usedInvitationsKept = 30 * 24 * time.Hour

// Enrol adds a vantage, or renews group, key, networks and revocation of
// the one of that name; its enrolment, sequence and health stay as they are.
// ErrConflict: the name belongs to a vantage with another key, which is not
// revoked.
func (s *Store) Enrol(ctx context.Context, v monitor.Vantage) error {
	return s.write(ctx, "enrol vantage", func(ctx context.Context, tx pgx.Tx) error {
		var n int
		err := tx.QueryRow(ctx, statement("vantage_enrol"), text(v.Name), text(v.Group), text(v.Pubkey),
			networkNames(v.Networks), instant(v.Enrolled), v.Revoked).Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: %s is the name of a vantage on another machine: revoke that one (pharos vantages revoke %s), or choose another name", monitor.ErrConflict, v.Name, v.Name)
		}
		return err
	})
}

// Invite keeps an invitation, in place of an open one of the same name.
func (s *Store) Invite(ctx context.Context, inv monitor.Invitation) error {
	return s.write(ctx, "store an invitation", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("invitation_replace"), text(inv.Name), instant(inv.Created.Add(-usedInvitationsKept))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("invitation_add"), inv.Token[:], text(inv.Name), text(inv.Group), instant(inv.Created), instant(inv.Expires), text(inv.Actor)); err != nil {
			return err
		}
		return auditVantage(ctx, tx, inv.Created, inv.Actor, monitor.AuditInvite, inv.Name)
	})
}

// Invitations returns those that can be taken up at now, by name.
func (s *Store) Invitations(ctx context.Context, now time.Time) ([]monitor.Invitation, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, statement("invitation_open"), instant(now))
	if err != nil {
		return nil, fail("read invitations", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (inv monitor.Invitation, err error) {
		var token []byte
		err = row.Scan(&token, &inv.Name, &inv.Group, &inv.Created, &inv.Expires, &inv.Actor)
		copy(inv.Token[:], token)
		inv.Created, inv.Expires = inv.Created.UTC(), inv.Expires.UTC()
		return inv, err
	})
	return out, fail("read invitations", err)
}

// Redeem takes up an invitation, in one transaction: of two machines that come
// with the same token one becomes the vantage. The same machine may come again
// and is answered the same. A vantage of that name keeps its records, unless its
// group is another one, and its sequence, unless its key is: each key numbers its
// batches from 1, and nothing that another one signed is taken any longer.
//
//	ErrNotFound  there is no such token
//	ErrConflict  it has expired or was used with another key, or the key is
//	             that of another vantage, or the name is reserved
func (s *Store) Redeem(ctx context.Context, in monitor.Enrolment) (out monitor.Enrolled, err error) {
	err = s.write(ctx, "enrol vantage", func(ctx context.Context, tx pgx.Tx) error {
		out, err = redeem(ctx, tx, in)
		return err
	})
	if err != nil {
		return monitor.Enrolled{}, err
	}
	return out, nil
}

func redeem(ctx context.Context, tx pgx.Tx, in monitor.Enrolment) (monitor.Enrolled, error) {
	var name, group, usedBy string
	var expires time.Time
	var used bool
	err := tx.QueryRow(ctx, statement("invitation_lock"), in.Token[:]).Scan(&name, &group, &expires, &used, &usedBy)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return monitor.Enrolled{}, fmt.Errorf("%w: there is no invitation with this token", monitor.ErrNotFound)
	case err != nil:
		return monitor.Enrolled{}, err
	}
	if slices.Contains(in.Reserved, name) {
		return monitor.Enrolled{}, fmt.Errorf("%w: %s is the name of a vantage of the core's own meanwhile: invite this one by another", monitor.ErrConflict, name)
	}
	var oldGroup, oldKey string
	var revoked bool
	err = tx.QueryRow(ctx, statement("vantage_of_name"), name).Scan(&oldGroup, &oldKey, &revoked)
	known := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return monitor.Enrolled{}, err
	}
	switch {
	case used && usedBy == in.Pubkey && oldKey == in.Pubkey && !revoked:
		return enrolled(ctx, tx, name) // it did not hear the first answer
	case used:
		return monitor.Enrolled{}, fmt.Errorf("%w: the invitation was taken up already; invite %s anew", monitor.ErrConflict, name)
	case !in.At.Before(expires):
		return monitor.Enrolled{}, fmt.Errorf("%w: the invitation has expired; invite %s anew", monitor.ErrConflict, name)
	}
	var other string
	err = tx.QueryRow(ctx, statement("vantage_of_key"), text(in.Pubkey)).Scan(&other)
	switch {
	case err == nil && other != name:
		return monitor.Enrolled{}, fmt.Errorf("%w: this key is that of the vantage %s already: one machine is one vantage, revoke that one first", monitor.ErrConflict, other)
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return monitor.Enrolled{}, err
	}
	if known && oldGroup != group { // it stands elsewhere now
		if _, err := tx.Exec(ctx, statement("vantage_forget"), name); err != nil {
			return monitor.Enrolled{}, err
		}
	}
	if _, err := tx.Exec(ctx, statement("vantage_admit"), name, group, text(in.Pubkey), networkNames(in.Networks), instant(in.At)); err != nil {
		return monitor.Enrolled{}, err
	}
	if _, err := tx.Exec(ctx, statement("invitation_use"), in.Token[:], instant(in.At), text(in.Pubkey)); err != nil {
		return monitor.Enrolled{}, err
	}
	if err := auditVantage(ctx, tx, in.At, in.Pubkey, monitor.AuditEnrol, name); err != nil {
		return monitor.Enrolled{}, err
	}
	return enrolled(ctx, tx, name)
}

// enrolled reads a vantage that is not revoked, with its records.
func enrolled(ctx context.Context, tx pgx.Tx, name string) (monitor.Enrolled, error) {
	out := monitor.Enrolled{Vantage: monitor.Vantage{Name: name}, Seen: map[monitor.RelayURL]monitor.VantageRelay{}}
	v := &out.Vantage
	var lastSeen pgtype.Timestamptz
	var seq int64
	if err := tx.QueryRow(ctx, statement("vantage_row"), name).Scan(&v.Group, &v.Pubkey, &v.Networks, &v.Enrolled, &lastSeen, &seq); err != nil {
		return out, err
	}
	v.Enrolled, v.LastSeen, v.LastSeq = v.Enrolled.UTC(), when(lastSeen), uint64(seq)
	rows, err := tx.Query(ctx, statement("vantage_records"), name)
	if err != nil {
		return out, fmt.Errorf("read records: %w", err)
	}
	var url monitor.RelayURL
	var row recordRow
	_, err = pgx.ForEachRow(rows, append([]any{&url}, row.columns()...), func() error {
		seen, err := row.seen()
		if err != nil {
			return fmt.Errorf("relay %s at vantage %s: %w", url, name, err)
		}
		out.Seen[url] = seen
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("read records: %w", err)
	}
	return out, nil
}

// Revoke ends the enrolment of a vantage on another machine, and withdraws an
// open invitation of that name. Its records and history stay. It may be done
// twice. ErrNotFound: there is neither.
func (s *Store) Revoke(ctx context.Context, name, actor string, at time.Time) error {
	return s.write(ctx, "revoke vantage "+name, func(ctx context.Context, tx pgx.Tx) error {
		revoked, err := tx.Exec(ctx, statement("vantage_revoke"), text(name))
		if err != nil {
			return err
		}
		withdrawn, err := tx.Exec(ctx, statement("invitation_withdraw"), text(name))
		if err != nil {
			return err
		}
		if revoked.RowsAffected()+withdrawn.RowsAffected() == 0 {
			return fmt.Errorf("%w: no vantage on another machine has this name, and none was invited", monitor.ErrNotFound)
		}
		return auditVantage(ctx, tx, at, actor, monitor.AuditRevoke, name)
	})
}

func auditVantage(ctx context.Context, tx pgx.Tx, at time.Time, actor string, kind monitor.CommandKind, name string) error {
	return putAudit(ctx, tx, &monitor.AuditEntry{At: at, Actor: actor, Kind: kind, Note: "vantage " + name})
}

// networkNames are networks for a text[] parameter; never nil.
func networkNames(networks []monitor.Network) []string {
	words := make([]string, len(networks))
	for i, n := range networks {
		words[i] = text(string(n))
	}
	return words
}
