package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// Watch adds relays to those that are watched. Of one that is there already it
// renews the source, keeps the earlier FirstSeen and may end the candidacy; the
// verdict is left alone, and the Verdict and Info given here are not stored.
func (s *Store) Watch(ctx context.Context, relays []monitor.WatchedRelay) error {
	if len(relays) == 0 {
		return nil
	}
	relays = lastPer(relays, func(r monitor.WatchedRelay) string { return string(r.URL) })
	var urls, sources []string
	var firstSeen []pgtype.Timestamptz
	var candidates []bool
	for _, r := range relays {
		urls = append(urls, text(string(r.URL)))
		sources = append(sources, text(string(r.Source)))
		firstSeen = append(firstSeen, instant(r.FirstSeen))
		candidates = append(candidates, r.Candidate)
	}
	return s.write(ctx, "store watched relays", func(ctx context.Context, tx pgx.Tx) error {
		if err := insertRelays(ctx, tx, relays); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement("relay_watch"), urls, sources, firstSeen, candidates)
		return err
	})
}

// insertRelays adds the rows that are missing.
func insertRelays(ctx context.Context, tx pgx.Tx, relays []monitor.WatchedRelay) error {
	var urls, networks, sources []string
	var firstSeen []pgtype.Timestamptz
	var candidates []bool
	for _, r := range relays {
		urls = append(urls, text(string(r.URL)))
		networks = append(networks, text(string(r.URL.Network())))
		sources = append(sources, text(string(r.Source)))
		firstSeen = append(firstSeen, instant(r.FirstSeen))
		candidates = append(candidates, r.Candidate)
	}
	_, err := tx.Exec(ctx, statement("relay_insert"), urls, networks, sources, firstSeen, candidates)
	return err
}

// lastPer leaves only the last of the elements with the same key, in order:
// one statement can touch a row only once.
func lastPer[T any](all []T, key func(T) string) []T {
	seen := make(map[string]bool, len(all))
	out := make([]T, 0, len(all))
	for _, v := range slices.Backward(all) {
		if k := key(v); !seen[k] {
			seen[k] = true
			out = append(out, v)
		}
	}
	slices.Reverse(out)
	return out
}

// arrayLiteral writes words that hold no quotes, commas or braces as an array:
// unnest takes arrays of arrays apart down to their elements.
func arrayLiteral(words []string) string { return "{" + strings.Join(words, ",") + "}" }
