package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// putNamed stores where relays were named, and gives n.Relays when they first
// were.
func putNamed(ctx context.Context, tx pgx.Tx, n *monitor.Named) error {
	if n == nil {
		return nil
	}
	if len(n.Relays) > 0 {
		if err := upsertNamed(ctx, tx, n); err != nil {
			return err
		}
	}
	if n.Before.IsZero() {
		return nil
	}
	_, err := tx.Exec(ctx, statement("named_forget"), instant(n.Before))
	return err
}

func upsertNamed(ctx context.Context, tx pgx.Tx, n *monitor.Named) error {
	place := make(map[string]int, len(n.Relays))
	for i := range n.Relays { // one statement can touch a row only once
		place[text(string(n.Relays[i].URL))] = i
	}
	urls, kinds := make([]string, 0, len(place)), make([]string, 0, len(place))
	authors, waiting := make([]int32, 0, len(place)), make([]bool, 0, len(place))
	for i := range n.Relays {
		r := &n.Relays[i]
		url := text(string(r.URL))
		if place[url] != i {
			continue
		}
		words := make([]string, len(r.Kinds))
		for j, k := range r.Kinds {
			words[j] = strconv.Itoa(int(count(k)))
		}
		urls, kinds = append(urls, url), append(kinds, arrayLiteral(words))
		authors, waiting = append(authors, count(r.Authors)), append(waiting, r.Waiting)
	}
	rows, err := tx.Query(ctx, statement("named"), instant(n.At), urls, kinds, authors, waiting)
	if err != nil {
		return err
	}
	var url string
	var firstSeen time.Time
	_, err = pgx.ForEachRow(rows, []any{&url, &firstSeen}, func() error {
		n.Relays[place[url]].FirstSeen = firstSeen.UTC()
		return nil
	})
	return err
}

// named reads where the relays were named that are stored, and how many the
// newest sweep found.
func (l *loader) named(ctx context.Context) error {
	if err := l.tx.QueryRow(ctx, statement("load_named")).Scan(&l.out.Found, &l.out.Waiting); err != nil {
		return fmt.Errorf("count the relays that were found: %w", err)
	}
	rows, err := l.tx.Query(ctx, statement("load_provenance"))
	if err != nil {
		return fmt.Errorf("read where relays were named: %w", err)
	}
	for rows.Next() {
		var url monitor.RelayURL
		var p monitor.Provenance
		if err := rows.Scan(&url, &p.Kinds, &p.Authors, &p.FirstSeen, &p.LastSeen); err != nil {
			return fmt.Errorf("read where relays were named: %w", err)
		}
		p.FirstSeen, p.LastSeen = p.FirstSeen.UTC(), p.LastSeen.UTC()
		if l.out.Provenance == nil {
			l.out.Provenance = map[monitor.RelayURL]monitor.Provenance{}
		}
		l.out.Provenance[url] = p
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read where relays were named: %w", err)
	}
	return nil
}
