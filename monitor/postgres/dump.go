package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/pharos-nostr/pharos/migrations"
	"github.com/pharos-nostr/pharos/monitor"
)

// dumpTimeout bounds one run of pg_dump or pg_restore, of databases far larger
// than architecture.md's.
const dumpTimeout = 6 * time.Hour

// Target is a database to dump, or to restore into.
type Target struct {
	Cluster *Cluster // the private one, or nil:
	URL     string   // an operator's server
	PgBin   string   // directory of PostgreSQL's programs; "" = search
}

func (t *Target) url() string {
	if t.Cluster != nil {
		return t.Cluster.URL()
	}
	return t.URL
}

// Content is what a database of ours holds.
type Content struct {
	Server      int      // major version of the PostgreSQL that serves it
	Schema      int64    // version, as the migrations count
	Pubkeys     []string // hex, of the reports; one where all is well
	Relays      int64
	Transitions int64
}

// Describe reads what the database holds. ErrNotFound: nothing of ours.
func Describe(ctx context.Context, t Target) (Content, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	cfg, err := parseURL(t.url())
	if err != nil {
		return Content{}, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return Content{}, explainConnect(err)
	}
	defer closeConn(conn)
	return describe(ctx, conn)
}

func describe(ctx context.Context, conn *pgx.Conn) (c Content, err error) {
	if c.Server, err = checkServer(ctx, conn); err != nil {
		return c, err
	}
	var there, core bool
	if err := conn.QueryRow(ctx, statement("schema_table")).Scan(&there); err != nil {
		return c, fail("read the schema's version", err)
	}
	if there {
		if err := conn.QueryRow(ctx, statement("schema_version")).Scan(&c.Schema); err != nil {
			return c, fail("read the schema's version", err)
		}
	}
	if c.Schema == 0 {
		return c, fmt.Errorf("%w: the database holds nothing of Pharos's yet: start \"pharos serve\" on it once", monitor.ErrNotFound)
	}
	if err := conn.QueryRow(ctx, statement("content")).Scan(&c.Relays, &c.Transitions, &core, &c.Pubkeys); err != nil {
		return c, fail("read what the database holds", err)
	}
	if !core {
		return c, fmt.Errorf("%w: the database holds no row about itself (table core): it is damaged, restore a backup", monitor.ErrConflict)
	}
	return c, nil
}

// SchemaVersion is the newest version of the schema that this program knows.
func SchemaVersion() (int64, error) {
	entries, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	var newest int64
	for _, e := range entries {
		if v, err := goose.NumericComponent(e.Name()); err == nil {
			newest = max(newest, v)
		}
	}
	return newest, nil
}

// Dump writes the whole database to w in pg_dump's custom format, compressed:
// one consistent moment of it, whatever is written meanwhile. An error of w
// ends it and is wrapped; after any error what w got is worth nothing.
// ErrInvalid: the programs found are older than the server; ErrNotFound: there
// are none; ErrUnavailable: the database went away.
func Dump(ctx context.Context, t Target, server int, w io.Writer) error {
	p, err := findProgram(ctx, "pg_dump", t, server)
	if err != nil {
		return err
	}
	if p.major < server {
		return fmt.Errorf("%w: the server is PostgreSQL %d and the newest pg_dump here (%s) is version %d, which cannot read it: install PostgreSQL %d's programs, or name their directory in database.pg_bin",
			monitor.ErrInvalid, server, p.path, p.major, server)
	}
	out := &errWriter{w: w}
	said, err := p.run(ctx, nil, out,
		"--dbname="+p.conninfo, "--format=custom", "--compress=6", "--no-owner", "--no-privileges",
		"--lock-wait-timeout="+strconv.Itoa(int(lockWait.Milliseconds())), "--no-password")
	switch {
	case out.err != nil:
		return fmt.Errorf("write the dump: %w", out.err)
	case ctx.Err() != nil:
		return fmt.Errorf("dump the database: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("the database could not be dumped: pg_dump said %q (%w)", complaint(said), err)
	}
	return nil
}

// lockWait is how long pg_dump waits for a table that a migration rewrites.
const lockWait = time.Minute

// errWriter remembers why writing failed: the program only sees a closed pipe.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(p []byte) (int, error) {
	n, err := e.w.Write(p)
	if err != nil {
		e.err = errors.Join(e.err, err)
	}
	return n, err
}
