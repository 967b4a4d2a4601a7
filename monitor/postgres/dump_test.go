package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// dumpTest returns a dump of a database with one relay and two observations,
// and what it holds.
func dumpTest(t *testing.T) (*io.SectionReader, Content) {
	t.Helper()
	url := TestDatabase(t)
	s := openURL(t, url)
	if err := errors.Join(ingestTest(s, 1), ingestTest(s, 2)); err != nil {
		t.Fatal(err)
	}
	return dumpOf(t, Target{URL: url})
}

func dumpOf(t *testing.T, target Target) (*io.SectionReader, Content) {
	t.Helper()
	content, err := Describe(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Dump(t.Context(), target, content.Server, &b); err != nil {
		t.Fatal(err)
	}
	return io.NewSectionReader(bytes.NewReader(b.Bytes()), 0, int64(b.Len())), content
}

func TestDumpCarriesErrors(t *testing.T) {
	t.Parallel()
	url := TestDatabase(t)
	openURL(t, url)
	full := errors.New("the disk is full")
	if err := Dump(t.Context(), Target{URL: url}, 0, failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &hookWriter{hook: func() { cancel(interrupted) }}
	if err := Dump(ctx, Target{URL: url}, 0, w); !errors.Is(err, interrupted) {
		t.Errorf("interrupted: %v", err)
	}
	if err := Dump(t.Context(), Target{URL: url}, 99, io.Discard); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "install PostgreSQL 99's programs") {
		t.Errorf("a newer server: %v", err)
	}
	if err := Dump(t.Context(), Target{URL: url, PgBin: t.TempDir()}, 15, io.Discard); !errors.Is(err, monitor.ErrNotFound) || !strings.Contains(err.Error(), "no program pg_dump in it") {
		t.Errorf("no programs: %v", err)
	}
	if err := Dump(t.Context(), Target{URL: url + "x"}, 0, io.Discard); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no database: %v", err)
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// hookWriter calls hook at the first write and then waits for nothing more.
type hookWriter struct{ hook func() }

func (h *hookWriter) Write(p []byte) (int, error) {
	h.hook()
	return len(p), nil
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	url := TestDatabase(t)
	conn := connectTest(t, url)
	if _, err := Describe(t.Context(), Target{URL: url}); err != nil {
		t.Errorf("a fresh database: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "DELETE FROM core"); err != nil {
		t.Fatal(err)
	}
	if _, err := Describe(t.Context(), Target{URL: url}); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("without its row: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA public CASCADE"); err != nil {
		t.Fatal(err)
	}
	if _, err := Describe(t.Context(), Target{URL: url}); !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("an empty one: %v", err)
	}
}

// Nothing secret is in the arguments, and nothing of the rest is lost.
func TestConnInfo(t *testing.T) {
	t.Setenv("PGPASSFILE", filepath.Join(t.TempDir(), "none"))
	for text, want := range map[string]string{
		"postgres://u:hunter2@db.example:5433/d?sslmode=require&options=-c%20search_path%3Dours&pool_max_conns=3": "host='db.example' port='5433' user='u' dbname='d' connect_timeout=10 sslmode='require' options='-c search_path=ours'",
		"postgres://u:hunter2@one:1,two:2/d?sslmode=disable&target_session_attrs=read-write":                      "host='one,two' port='1,2' user='u' dbname='d' connect_timeout=10 sslmode='disable' target_session_attrs='read-write'",
		`host=db user = 'o\'brien' password='hunter2' dbname=d\ b sslmode=prefer`:                                 `host='db' port='5432' user='o\'brien' dbname='d b' connect_timeout=10 sslmode='prefer'`,
	} {
		got, password, err := connInfo(text)
		if err != nil || password != "hunter2" {
			t.Errorf("%s: password %q, %v", text, password, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
	_, _, err := connInfo("postgres://u@db/d?sslmode=require&sslpassword=hunter2")
	if !errors.Is(err, monitor.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("sslpassword: %v", err)
	}
}

// The password reaches the program by its environment alone.
func TestProgramSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'pg_dump (PostgreSQL) 15.1'; exit; }\necho \"password $PGPASSWORD\"\necho \"arguments $0 $*\"\n"
	if err := os.WriteFile(filepath.Join(dir, "pg_dump"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Dump(t.Context(), Target{URL: "postgres://u:hunter2@db.example/d", PgBin: dir}, 15, &out); err != nil {
		t.Fatal(err)
	}
	password, arguments, _ := strings.Cut(out.String(), "\n")
	if password != "password hunter2" || strings.Contains(arguments, "hunter2") || !strings.Contains(arguments, "host='db.example'") {
		t.Errorf("it got %s", out.String())
	}
}

func TestFindNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var dirs []string
	for _, v := range []string{"17", "14", "16"} {
		dir := filepath.Join(root, v)
		dirs = append(dirs, dir)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pg_dump"), []byte("#!/bin/sh\necho 'pg_dump (PostgreSQL) "+v+".2'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for server, want := range map[int]int{0: 17, 14: 14, 15: 17, 16: 16, 18: 17} {
		p, err := findNewest(t.Context(), "pg_dump", "", "", dirs, server)
		if err != nil || p.major != want {
			t.Errorf("server %d: %+v, %v; want %d", server, p, err, want)
		}
	}
	// Who interrupts us is not told that PostgreSQL is broken.
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("told to end")
	cancel(told)
	if _, err := findNewest(ctx, "pg_dump", "", "", dirs, 0); !errors.Is(err, told) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestDailyBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := time.Date(2026, 11, 29, 3, 43, 7, 0, time.UTC)
	ours := []string{DailyName(made), DailyName(made.AddDate(0, 0, 1))}
	for _, name := range append(slices.Clone(ours), "pharos-daily-20261129T034307Z.tar.partial", "pharos-daily-mine.tar", "pharos-daily-20269929T034307Z.tar", "backup.tar") {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := DailyBackups(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []DailyBackup{{filepath.Join(dir, ours[1]), made.AddDate(0, 0, 1), 1}, {filepath.Join(dir, ours[0]), made, 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, err := DailyBackups(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("no directory: %v, %v", got, err)
	}
}
