package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	partitionsAhead = 2 // days
	partitionName   = "observation_20060102"
)

// EnsurePartitions makes the partitions of observation for now's UTC day and
// the next two, and moves rows of these days out of the default partition.
// ErrUnavailable: a long reader was in the way for five seconds, ask again.
func (s *Store) EnsurePartitions(ctx context.Context, now time.Time) error {
	today := now.UTC().Truncate(24 * time.Hour)
	return s.write(ctx, "make the observations' partitions", func(ctx context.Context, tx pgx.Tx) error {
		there, err := partitions(ctx, tx)
		if err != nil {
			return err
		}
		for i := range partitionsAhead + 1 {
			day := today.AddDate(0, 0, i)
			if there[day] {
				continue
			}
			if err := makePartition(ctx, tx, day); err != nil {
				return fmt.Errorf("day %s: %w", day.Format(time.DateOnly), err)
			}
		}
		return nil
	})
}

// DropPartitions drops the partitions of which every row is older than
// olderThan, and such rows of the default partition. It returns how many
// partitions it dropped. ErrUnavailable as in EnsurePartitions.
func (s *Store) DropPartitions(ctx context.Context, olderThan time.Time) (int, error) {
	dropped := 0
	err := s.write(ctx, "drop old partitions of observations", func(ctx context.Context, tx pgx.Tx) error {
		there, err := partitions(ctx, tx)
		if err != nil {
			return err
		}
		for day := range there {
			if day.AddDate(0, 0, 1).After(olderThan) {
				continue
			}
			if _, err := tx.Exec(ctx, "DROP TABLE "+day.Format(partitionName)); err != nil {
				return fmt.Errorf("day %s: %w", day.Format(time.DateOnly), err)
			}
			dropped++
		}
		_, err = tx.Exec(ctx, statement("default_trim"), olderThan)
		return err
	})
	if err != nil {
		return 0, err
	}
	return dropped, nil
}

// partitions returns the days that have one. It bounds how long this
// transaction may wait for readers, who meanwhile hold up those behind it.
func partitions(ctx context.Context, tx pgx.Tx) (map[time.Time]bool, error) {
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, statement("partitions"))
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	days := make(map[time.Time]bool, len(names))
	for _, n := range names {
		day, err := time.Parse(partitionName, n)
		if err != nil {
			return nil, fmt.Errorf("partition %s is none of ours: %w", n, monitor.ErrConflict)
		}
		days[day] = true
	}
	return days, nil
}

// makePartition fills the table before it is attached: attaching checks that
// the default partition holds no row of that day.
func makePartition(ctx context.Context, tx pgx.Tx, day time.Time) error {
	name := day.Format(partitionName)
	from, to := day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)
	for _, q := range []string{
		"CREATE TABLE " + name + " (LIKE observation INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
		"WITH moved AS (DELETE FROM observation_default WHERE time >= '" + from + "' AND time < '" + to + "' RETURNING *)" +
			" INSERT INTO " + name + " SELECT * FROM moved",
		"ALTER TABLE observation ATTACH PARTITION " + name + " FOR VALUES FROM ('" + from + "') TO ('" + to + "')",
	} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}
