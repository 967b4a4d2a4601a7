package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/pharos-nostr/pharos/migrations"
	"github.com/pharos-nostr/pharos/monitor"
)

// A migration may rewrite a large table; another process may be at one.
const migrateTimeout = 30 * time.Minute

// Migrate brings the schema of the database at url up to this program's and
// returns the names of the files that it ran, in order; with dryRun, of those
// that it would run, changing nothing. ErrConflict: the database is newer than
// this program. ErrUnavailable: it cannot be reached.
func Migrate(ctx context.Context, url string, dryRun bool) ([]string, error) {
	cfg, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	return migrate(ctx, cfg, dryRun)
}

func migrate(ctx context.Context, cfg *pgx.ConnConfig, dryRun bool) (names []string, err error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("prepare the migrations' lock: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}

	// goose's own question creates its table; a dry run may not.
	current, there := int64(0), false
	if err := db.QueryRowContext(ctx, statement("schema_table")).Scan(&there); err != nil {
		if away(err) {
			return nil, explainConnect(err)
		}
		return nil, fail("read the schema's version", err)
	}
	if there {
		if err := db.QueryRowContext(ctx, statement("schema_version")).Scan(&current); err != nil {
			return nil, fail("read the schema's version", err)
		}
	}
	sources := p.ListSources()
	if newest := sources[len(sources)-1].Version; current > newest {
		return nil, fmt.Errorf("%w: the database has schema version %d and this program knows only %d: run the newer Pharos that migrated it, or restore an older backup",
			monitor.ErrConflict, current, newest)
	}
	if dryRun {
		for _, s := range sources {
			if s.Version > current {
				names = append(names, s.Path)
			}
		}
		return names, nil
	}
	done, err := p.Up(ctx)
	if err != nil {
		return nil, fail("migrate the database", err)
	}
	for _, r := range done {
		names = append(names, r.Source.Path)
	}
	return names, nil
}
