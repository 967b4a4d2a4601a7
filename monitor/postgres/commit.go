package postgres

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// Commit stores one round of decisions in one transaction on the connection
// that holds the leader's lock, and gives d.Transitions their ids and d.Named when
// its relays were first seen.
//
// After ErrUnavailable it is not known whether the round was stored when the
// connection was lost at the very end: committing the same round again, with
// the same times, is safe, its transitions are not stored twice. An event that
// is older than the stored one of its address is left out.
func (s *Store) Commit(ctx context.Context, d *monitor.Decision) error {
	return s.write(ctx, "store decisions", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("commit_core"), int64(min(d.Generation, math.MaxInt64)), d.Served); err != nil {
			return fmt.Errorf("generation: %w", err)
		}
		if err := putVerdicts(ctx, tx, d.Relays); err != nil {
			return fmt.Errorf("verdicts: %w", err)
		}
		if err := putTransitions(ctx, tx, d.Transitions); err != nil {
			return fmt.Errorf("transitions: %w", err)
		}
		if err := withdraw(ctx, tx, d.Withdrawn); err != nil {
			return fmt.Errorf("withdrawn reports: %w", err)
		}
		if err := forget(ctx, tx, d.Forgotten); err != nil {
			return fmt.Errorf("forgotten records: %w", err)
		}
		if err := putMaintenance(ctx, tx, d.Maintenance); err != nil {
			return fmt.Errorf("maintenance: %w", err)
		}
		if err := putAudit(ctx, tx, d.Audit); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if err := putNamed(ctx, tx, d.Named); err != nil {
			return fmt.Errorf("discovered relays: %w", err)
		}
		if err := putEvents(ctx, tx, d.Events); err != nil {
			return fmt.Errorf("signed events: %w", err)
		}
		return nil
	})
}

func putVerdicts(ctx context.Context, tx pgx.Tx, relays []monitor.WatchedRelay) error {
	if len(relays) == 0 {
		return nil
	}
	relays = lastPer(relays, func(r monitor.WatchedRelay) string { return string(r.URL) })
	if err := insertRelays(ctx, tx, relays); err != nil {
		return err
	}
	var (
		urls, sources, states, marks, reasons, causes, evidence, changes []string
		candidates, excluded                                             []bool
		quorumFor, quorumOf                                              []int32
		paused, since, lastSuccess, majorityDown, held                   []pgtype.Timestamptz
	)
	for _, r := range relays {
		v := &r.Verdict
		urls = append(urls, text(string(r.URL)))
		sources = append(sources, text(string(r.Source)))
		candidates, excluded = append(candidates, r.Candidate), append(excluded, r.Excluded)
		paused = append(paused, stamp(r.PausedUntil))
		states = append(states, v.State.String())
		since = append(since, stamp(v.Since))
		marks = append(marks, arrayLiteral(v.Marks.Strings()))
		quorumFor, quorumOf = append(quorumFor, count(v.Quorum.For)), append(quorumOf, count(v.Quorum.Of))
		reasons = append(reasons, text(v.Reason))
		causes = append(causes, v.Cause.String())
		evidence = append(evidence, text(v.Evidence))
		lastSuccess = append(lastSuccess, stamp(v.LastSuccess))
		majorityDown = append(majorityDown, stamp(v.MajorityDownSince))
		held = append(held, stamp(v.HeldSince))
		words := make([]string, len(v.Changes))
		for i, t := range v.Changes {
			words[i] = strconv.Quote(clamp(t).UTC().Format(time.RFC3339Nano))
		}
		changes = append(changes, arrayLiteral(words))
	}
	_, err := tx.Exec(ctx, statement("relay_verdict"), urls, sources, candidates, excluded, paused, states, since, marks,
		quorumFor, quorumOf, reasons, causes, evidence, lastSuccess, majorityDown, changes, held)
	return err
}

func putTransitions(ctx context.Context, tx pgx.Tx, transitions []monitor.Transition) error {
	if len(transitions) == 0 {
		return nil
	}
	var (
		urls, from, to, causes, evidence, ballots []string
		at                                        []pgtype.Timestamptz
		quorumFor, quorumOf, rules                []int32
	)
	type key struct {
		url string
		at  int64 // µs, as the database keeps it
	}
	place := make(map[key]int, len(transitions))
	for i, t := range transitions {
		b, err := jsonText(ballotRows(t.Ballots))
		if err != nil {
			return fmt.Errorf("encode ballots: %w", err)
		}
		url := text(string(t.Relay))
		micros := clamp(t.At).Truncate(time.Microsecond)
		place[key{url, micros.UnixMicro()}] = i
		urls = append(urls, url)
		at = append(at, instant(micros))
		from, to = append(from, t.From.String()), append(to, t.To.String())
		quorumFor, quorumOf = append(quorumFor, count(t.Quorum.For)), append(quorumOf, count(t.Quorum.Of))
		causes = append(causes, t.Cause.String())
		evidence = append(evidence, text(t.Evidence))
		ballots = append(ballots, b)
		rules = append(rules, count(t.Rules))
	}
	rows, err := tx.Query(ctx, statement("commit_transitions"), urls, at, from, to, quorumFor, quorumOf, causes, evidence, ballots, rules)
	if err != nil {
		return err
	}
	var id int64
	var url string
	var stored time.Time
	tag, err := pgx.ForEachRow(rows, []any{&id, &url, &stored}, func() error {
		transitions[place[key{url, stored.UnixMicro()}]].ID = id
		return nil
	})
	if err != nil {
		return err
	}
	if n := tag.RowsAffected(); n != int64(len(transitions)) {
		return fmt.Errorf("a relay is not watched, %d of %d could be stored: %w", n, len(transitions), monitor.ErrNotFound)
	}
	return nil
}

func withdraw(ctx context.Context, tx pgx.Tx, urls []monitor.RelayURL) error {
	if len(urls) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statement("commit_withdraw"), texts(urls))
	return err
}

func putEvents(ctx context.Context, tx pgx.Tx, events []monitor.SignedEvent) error {
	if len(events) == 0 {
		return nil
	}
	events = lastPer(events, func(e monitor.SignedEvent) string {
		return strconv.Itoa(e.Kind) + " " + e.Pubkey + " " + e.D
	})
	var kinds []int32
	var pubkeys, ds, ids, bodies []string
	var created, expires []pgtype.Timestamptz
	for _, e := range events {
		kinds = append(kinds, count(e.Kind))
		pubkeys, ds, ids = append(pubkeys, e.Pubkey), append(ds, e.D), append(ids, e.ID)
		created, expires = append(created, instant(e.CreatedAt)), append(expires, stamp(e.Expires))
		bodies = append(bodies, string(e.JSON)) // signed: stored to the byte or not at all
	}
	_, err := tx.Exec(ctx, statement("commit_reports"), kinds, pubkeys, ds, ids, created, expires, bodies)
	return err
}
