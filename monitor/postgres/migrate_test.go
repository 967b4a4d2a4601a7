package postgres

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pharos-nostr/pharos/migrations"
	"github.com/pharos-nostr/pharos/monitor"
)

// emptyDatabase returns the URL of a database without a schema.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	url := TestDatabase(t)
	conn := connectTest(t, url)
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		t.Fatal(err)
	}
	return url
}

func TestMigrateEmpty(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	conn := connectTest(t, url)
	tables := func() int64 {
		return query[int64](t, conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")[0]
	}
	would, err := Migrate(t.Context(), url, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(would) == 0 || would[0] != "00001_initial.sql" {
		t.Errorf("a dry run would run %v", would)
	}
	if n := tables(); n != 0 {
		t.Errorf("a dry run made %d tables", n)
	}
	did, err := Migrate(t.Context(), url, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(would, did); d != "" {
		t.Error(d)
	}
	for _, dry := range []bool{true, false} {
		if again, err := Migrate(t.Context(), url, dry); err != nil || len(again) != 0 {
			t.Errorf("once more: %v, %v", again, err)
		}
	}
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A database of the first version, with rows in it, goes on.
func TestMigrateFromTheFirstVersion(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	cfg, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	conn := connectTest(t, url)
	at := time.Now().UTC().Truncate(time.Second)
	for _, sql := range []string{
		`INSERT INTO relay (url, network, source, first_seen, candidate, verdict, since, last_success)
		 VALUES ('wss://a.example/', 'clearnet', 'config', $1, false, 'online', $1, $1)`,
		`INSERT INTO vantage (name, group_name, enrolled) VALUES ('v', 'v', $1)`,
		`INSERT INTO vantage_relay (vantage_id, relay_id, state, failure_count, corroborated, last_success, evidence, rtt_open_ms, rtt_read_ms, rtt_write_ms)
		 SELECT v.id, r.id, 'online', 0, false, $1, '', 80, 40, 0 FROM vantage v, relay r`,
		`INSERT INTO transition (relay_id, at, from_state, to_state, quorum_for, quorum_of, evidence, ballots, rules)
		 SELECT id, $1, 'unknown', 'online', 1, 1, '', '[]', 1 FROM relay`,
	} {
		if _, err := conn.Exec(t.Context(), sql, at); err != nil {
			t.Fatal(err)
		}
	}
	done, err := Migrate(t.Context(), url, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(done) == 0 || done[0] != "00002_operators.sql" {
		t.Errorf("migrated by %v", done)
	}
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []monitor.WatchedRelay{{
		URL: "wss://a.example/", Source: monitor.SourceConfig, FirstSeen: at,
		Verdict: monitor.Verdict{State: monitor.StateOnline, Since: at, LastSuccess: at},
	}}
	if d := cmp.Diff(want, got.Relays); d != "" {
		t.Error(d)
	}
	if r := got.Seen["v"]["wss://a.example/"]; r.Record.State != monitor.StateOnline || r.RTTOpen != 80*time.Millisecond {
		t.Errorf("the record after the migration: %+v", r)
	}
	log, err := s.Transitions(t.Context(), monitor.TransitionQuery{Limit: 9})
	if err != nil || len(log) != 1 {
		t.Errorf("%d transitions after the migration, %v", len(log), err)
	}
}

func TestOpenMigrates(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Load(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewerDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	url := TestDatabase(t)
	conn := connectTest(t, url)
	if _, err := conn.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)"); err != nil {
		t.Fatal(err)
	}
	_, opened := Open(t.Context(), Config{URL: url})
	_, migrated := Migrate(t.Context(), url, false)
	_, dry := Migrate(t.Context(), url, true)
	for what, err := range map[string]error{"open": opened, "migrate": migrated, "dry run": dry} {
		if !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "99999") || !strings.Contains(err.Error(), "newer Pharos") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpenRefusals(t *testing.T) {
	t.Parallel()
	good := TestDatabase(t)
	latin := TestDatabase(t)
	name := latin[strings.LastIndex(latin[:strings.Index(latin, "?")], "/")+1 : strings.Index(latin, "?")]
	admin := connectTest(t, strings.Replace(latin, name, "postgres", 1))
	for _, sql := range []string{"DROP DATABASE " + name, "CREATE DATABASE " + name + " ENCODING 'SQL_ASCII' TEMPLATE template0"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		url  string
		kind error
		says string
	}{
		"no URL":        {"postgres://u:s3cret@h:port/db", monitor.ErrInvalid, "database.url"},
		"nobody there":  {"postgres://u:s3cret@127.0.0.1:1/db", monitor.ErrUnavailable, "nothing answers at 127.0.0.1:1 (connection refused): is it running"},
		"at sign":       {"postgres://u:pa@s3cret@127.0.0.1:1/db", monitor.ErrInvalid, "%-encoded"},
		"no database":   {strings.Replace(good, "/test_", "/absent_", 1), monitor.ErrInvalid, "CREATE DATABASE"},
		"not UTF-8":     {latin, monitor.ErrInvalid, "UTF8"},
		"pool settings": {good + "&pool_max_conns=many", monitor.ErrInvalid, "pool_"},
	} {
		_, err := Open(t.Context(), Config{URL: c.url})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
