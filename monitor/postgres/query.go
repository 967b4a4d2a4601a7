package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// Transitions returns what q selects, newest first, at most q.Limit (0 = none);
// zero From and To are open. An unknown relay has none.
func (s *Store) Transitions(ctx context.Context, q monitor.TransitionQuery) ([]monitor.Transition, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	from, to := span(q.From, q.To)
	before, state := q.Before, ""
	if before <= 0 {
		before = math.MaxInt64
	}
	if q.State != nil {
		state = q.State.String()
	}
	name, args := "transitions", []any{from, to, before, state, max(0, q.Limit)}
	if q.Relay != "" {
		name, args = "transitions_of_relay", append(args, text(string(q.Relay)))
	}
	rows, err := s.pool.Query(ctx, statement(name), args...)
	if err != nil {
		return nil, fail("read transitions", err)
	}
	out, err := pgx.CollectRows(rows, scanTransition)
	if err != nil {
		return nil, fail("read transitions", err)
	}
	return out, nil
}

func scanTransition(row pgx.CollectableRow) (t monitor.Transition, err error) {
	var from, to, cause, stored string
	if err := row.Scan(&t.ID, &t.Relay, &from, &to, &t.At, &t.Quorum.For, &t.Quorum.Of, &cause, &t.Evidence, &stored, &t.Rules); err != nil {
		return t, err
	}
	if err := t.From.UnmarshalText([]byte(from)); err != nil {
		return t, fmt.Errorf("transition %d: %w", t.ID, err)
	}
	if err := t.To.UnmarshalText([]byte(to)); err != nil {
		return t, fmt.Errorf("transition %d: %w", t.ID, err)
	}
	if err := t.Cause.UnmarshalText([]byte(cause)); err != nil {
		return t, fmt.Errorf("transition %d: %w", t.ID, err)
	}
	var votes []ballotJSON
	if err := json.Unmarshal([]byte(stored), &votes); err != nil {
		return t, fmt.Errorf("transition %d: read ballots: %w", t.ID, err)
	}
	t.At, t.Ballots = t.At.UTC(), ballots(votes)
	return t, nil
}

// Observations returns what q selects, oldest first, at most q.Limit (0 =
// none); zero From and To are open. Times are whole milliseconds, of at most
// 32.767 s; evidence, address, start and what the relay told of itself are not
// kept with an observation (Start = At). An unknown relay or vantage has none.
func (s *Store) Observations(ctx context.Context, q monitor.ObservationQuery) ([]monitor.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	from, to := span(q.From, q.To)
	rows, err := s.pool.Query(ctx, statement("observations"), text(string(q.Relay)), from, to, text(q.Vantage), max(0, q.Limit))
	if err != nil {
		return nil, fail("read observations", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (monitor.Observation, error) {
		o, err := scanObservation(row)
		o.Relay = q.Relay
		return o, err
	})
	if err != nil {
		return nil, fail("read observations", err)
	}
	return out, nil
}

func scanObservation(row pgx.CollectableRow) (o monitor.Observation, err error) {
	var outcome, stage, cause string
	var status, lag, open, read, write int16
	var stages [monitor.NumStages]int16
	if err := row.Scan(&o.At, &o.Vantage, &outcome, &stage, &cause, &o.NoEOSE, &o.AuthSeen, &status, &lag,
		&stages[monitor.StageDNS], &stages[monitor.StageTCP], &stages[monitor.StageTLS], &stages[monitor.StageUpgrade],
		&stages[monitor.StageRead], &stages[monitor.StageWrite], &stages[monitor.StageInfo], &open, &read, &write); err != nil {
		return o, err
	}
	if err := errors.Join(o.Outcome.UnmarshalText([]byte(outcome)), o.Stage.UnmarshalText([]byte(stage)), o.Cause.UnmarshalText([]byte(cause))); err != nil {
		return o, err
	}
	o.At = o.At.UTC()
	o.Start = o.At
	o.HTTPStatus, o.Lag = int(status), duration(lag)
	for i, t := range stages {
		o.Times[i] = duration(t)
	}
	o.RTTOpen, o.RTTRead, o.RTTWrite = duration(open), duration(read), duration(write)
	return o, nil
}

// span makes the ends of an open range explicit.
func span(from, to time.Time) (time.Time, time.Time) {
	if from.IsZero() {
		from = earliest
	}
	if to.IsZero() {
		to = latest.AddDate(1, 0, 0)
	}
	return from, to
}

// ForgetOtherKeys deletes the stored events that another key than pubkey
// signed, and returns their number: what an operator who changed the key on
// purpose asks for.
func (s *Store) ForgetOtherKeys(ctx context.Context, pubkey string) (int, error) {
	var n int64
	err := s.write(ctx, "delete reports of another key", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, statement("other_keys_forget"), text(pubkey))
		n = tag.RowsAffected()
		return err
	})
	return int(n), err
}
