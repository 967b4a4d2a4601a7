package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// forget deletes the records of these relays at every vantage; their history
// stays.
func forget(ctx context.Context, tx pgx.Tx, urls []monitor.RelayURL) error {
	if len(urls) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, statement("commit_forget"), texts(urls))
	return err
}

func putMaintenance(ctx context.Context, tx pgx.Tx, windows map[monitor.RelayURL]monitor.Maintenance) error {
	if len(windows) == 0 {
		return nil
	}
	var urls, notes, actors []string
	var from, until []pgtype.Timestamptz
	for u, m := range windows {
		urls = append(urls, text(string(u)))
		from, until = append(from, instant(m.From)), append(until, instant(m.Until))
		notes, actors = append(notes, text(m.Note)), append(actors, text(m.Actor))
	}
	tag, err := tx.Exec(ctx, statement("commit_maintenance"), urls, from, until, notes, actors)
	if err != nil {
		return err
	}
	if n := tag.RowsAffected(); n != int64(len(windows)) {
		return fmt.Errorf("a relay is not watched, %d of %d windows could be stored: %w", n, len(windows), monitor.ErrNotFound)
	}
	return nil
}

func putAudit(ctx context.Context, tx pgx.Tx, a *monitor.AuditEntry) error {
	if a == nil {
		return nil
	}
	_, err := tx.Exec(ctx, statement("commit_audit"), instant(a.At), text(a.Actor), text(string(a.Kind)), texts(a.Relays), text(a.Note))
	return err
}

// texts are URLs for a text[] parameter; never nil.
func texts(urls []monitor.RelayURL) []string {
	words := make([]string, len(urls))
	for i, u := range urls {
		words[i] = text(string(u))
	}
	return words
}
