package postgres

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// CheckDump has pg_restore read the table of contents of a dump that Dump
// wrote. ErrInvalid: it is none, or of a newer PostgreSQL than the programs
// found.
func CheckDump(ctx context.Context, pgBin string, dump *io.SectionReader) error {
	p, err := findProgram(ctx, "pg_restore", Target{PgBin: pgBin}, 0)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	said, err := p.run(ctx, whole(dump), &list, "--list")
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("read the dump: %w", context.Cause(ctx))
	case strings.Contains(said, "unsupported version"):
		return fmt.Errorf("%w: the dump was written by a newer PostgreSQL than the programs here (version %d) can read: install a newer PostgreSQL, or name its directory in database.pg_bin", monitor.ErrInvalid, p.major)
	case err != nil:
		return fmt.Errorf("%w: the dump cannot be read: pg_restore said %q (%w)", monitor.ErrInvalid, complaint(said), err)
	case !ourTable.Match(list.Bytes()):
		return fmt.Errorf("%w: the dump holds no database of Pharos's", monitor.ErrInvalid)
	}
	return nil
}

// ourTable is a line of pg_restore's about a table that every database of ours
// has had.
var ourTable = regexp.MustCompile(`(?m) TABLE DATA \S+ core `)

// RestoreServer reads a dump into the empty database of an operator's server,
// all of it or nothing. Meanwhile no core can lead on it, and no second restore
// begin. ErrConflict: it is not empty, or in use.
func RestoreServer(ctx context.Context, t Target, dump *io.SectionReader) (Content, error) {
	cfg, err := parseURL(t.URL)
	if err != nil {
		return Content{}, err
	}
	l := newLeader(cfg, slog.New(slog.DiscardHandler))
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return Content{}, explainConnect(err)
	}
	defer closeConn(conn)
	server, err := checkServer(ctx, conn)
	if err != nil {
		return Content{}, err
	}
	if err := l.lock(ctx, conn, 0); err != nil {
		return Content{}, err
	}
	var table string
	rows, err := conn.Query(ctx, statement("foreign_tables"))
	if err != nil {
		return Content{}, fail("look whether the database is empty", err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&table}, func() error { return nil }); err != nil {
		return Content{}, fail("look whether the database is empty", err)
	}
	if table != "" {
		return Content{}, fmt.Errorf("%w: the database of database.url is not empty (it has the table %s): make a new one (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0) and name that in database.url",
			monitor.ErrConflict, table)
	}
	if err := restoreDump(ctx, t, server, dump); err != nil {
		return Content{}, err
	}
	return verify(ctx, conn)
}

// restoreDump runs pg_restore in one transaction.
func restoreDump(ctx context.Context, t Target, server int, dump *io.SectionReader) error {
	p, err := findProgram(ctx, "pg_restore", t, server)
	if err != nil {
		return err
	}
	said, err := p.run(ctx, whole(dump), io.Discard,
		"--dbname="+p.conninfo, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", "--no-password")
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("restore the database: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("the database could not be restored: pg_restore said %q (%w)", complaint(said), err)
	}
	return nil
}

// verify reads what was restored. A signal comes too late for it: the rows are
// there, and only what they hold is still to be told.
func verify(ctx context.Context, conn *pgx.Conn) (Content, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	c, err := describe(ctx, conn)
	if err != nil {
		return c, fmt.Errorf("look at what was restored: %w", err)
	}
	newest, err := SchemaVersion()
	if err != nil {
		return c, err
	}
	if c.Schema > newest {
		return c, fmt.Errorf("%w: the dump has schema version %d and this program knows only %d: restore it with the newer Pharos that wrote it", monitor.ErrConflict, c.Schema, newest)
	}
	// Without figures about the tables the first plans are bad, until autovacuum
	// gathers them: no reason to throw the restored rows away.
	_, _ = conn.Exec(ctx, "ANALYZE")
	return c, nil
}

func whole(dump *io.SectionReader) io.Reader { return io.NewSectionReader(dump, 0, dump.Size()) }
