package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	connectTimeout = 5 * time.Second
	// cancelTimeout is how long the server may take to stop a statement whose
	// context ended.
	cancelTimeout = 2 * time.Second
	oldestServer  = 14 // PostgreSQL's major version (history.md, Store)
)

// parseURL reads database.url. The driver's text about a bad one may hold the
// password, so it is not passed on.
func parseURL(url string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err == nil && strings.Contains(cfg.Host, "@") { // of a password that was not encoded
		err = errors.New("host")
	}
	if err != nil {
		return nil, fmt.Errorf("%w database.url: write it as postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require, with special characters %%-encoded", monitor.ErrInvalid)
	}
	if cfg.ConnectTimeout == 0 || cfg.ConnectTimeout > connectTimeout {
		cfg.ConnectTimeout = connectTimeout
	}
	cfg.RuntimeParams["timezone"] = "UTC"
	// A context that ends cancels the statement first; only when the server
	// does not answer to that is the connection given up, and with it the lock.
	cfg.BuildContextWatcherHandler = cancelFirst
	return cfg, nil
}

// CheckURL judges a database.url without connecting to anything: an ErrInvalid
// says how one is written, and repeats none of it.
func CheckURL(url string) error {
	cfg, err := parseURL(url)
	if err != nil {
		return err
	}
	// A password with a slash in it, which was not encoded, ends the host.
	if _, err := pgxpool.ParseConfig(url); err != nil || strings.Contains(cfg.Database, "@") {
		return fmt.Errorf("%w database.url: write it as postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require, with special characters %%-encoded", monitor.ErrInvalid)
	}
	return nil
}

func cancelFirst(c *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelTimeout}
}

// checkServer refuses a server that this program's SQL was not written for.
func checkServer(ctx context.Context, conn *pgx.Conn) (major int, err error) {
	var version int
	var encoding string
	if err := conn.QueryRow(ctx, statement("server")).Scan(&version, &encoding); err != nil {
		return 0, fail("read the server's version", err)
	}
	major = version / 10000
	if major < oldestServer {
		return 0, fmt.Errorf("%w database: the server is PostgreSQL %d and Pharos needs %d or newer: upgrade it", monitor.ErrInvalid, major, oldestServer)
	}
	if encoding != "UTF8" {
		return 0, fmt.Errorf("%w database: its encoding is %s and must be UTF8: create it with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", monitor.ErrInvalid, encoding)
	}
	return major, nil
}
