package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// writeData fakes a cluster of another version, with a file to know it by.
func writeData(t *testing.T, dir, version string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "pg"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"PG_VERSION": version + "\n", "known": version} {
		if err := os.WriteFile(filepath.Join(dir, "pg", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func known(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "known"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func restoreTest(t *testing.T, dir string, dump *io.SectionReader) *ClusterRestore {
	t.Helper()
	r, err := RestoreCluster(t.Context(), ClusterConfig{DataDir: dir, disposable: true}, dump)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var restoreTime = time.Date(2026, 11, 30, 3, 43, 0, 0, time.UTC)

// A dump becomes a cluster of its own, in an empty directory and over data of
// any version, which is kept.
func TestRestoreCluster(t *testing.T) {
	t.Parallel()
	dump, content := dumpTest(t)
	if err := CheckDump(t.Context(), "", dump); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"", "9", "14", "17"} {
		t.Run("over version "+version, func(t *testing.T) {
			t.Parallel()
			dir := testDir(t)
			if version != "" {
				writeData(t, dir, version)
			}
			// What an interrupted attempt left.
			if err := os.MkdirAll(filepath.Join(dir, "pg.new", "base"), 0o700); err != nil {
				t.Fatal(err)
			}
			r := restoreTest(t, dir, dump)
			if got := known(t, filepath.Join(dir, "pg")); got != version {
				t.Errorf("before the new one is placed pg is %q", got)
			}
			old, err := r.Place(restoreTime)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			want := filepath.Join(dir, "pg.old-20261130T034300Z")
			if version == "" {
				want = ""
			}
			if old != want || version != "" && known(t, old) != version {
				t.Errorf("the old one went to %q, want %q", old, want)
			}
			if r.Content.Relays != 1 || r.Content.Schema != content.Schema {
				t.Errorf("restored %+v of %+v", r.Content, content)
			}
			c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
			if seq, rows := stored(t, c.URL()); seq != 2 || rows != 2 {
				t.Errorf("sequence %d, %d observations", seq, rows)
			}
			s := openURL(t, c.URL())
			if err := ingestTest(s, 3); err != nil {
				t.Errorf("it cannot be written: %v", err)
			}
			s.Close()
			if left, err := filepath.Glob(filepath.Join(dir, "pg.new*")); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// Whatever goes wrong, the old state is as it was.
func TestRestoreClusterUndone(t *testing.T) {
	t.Parallel()
	dump, _ := dumpTest(t)
	dir := testDir(t)
	writeData(t, dir, "14")
	untouched := func(after string) {
		t.Helper()
		entries, err := filepath.Glob(filepath.Join(dir, "pg*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 2 || known(t, filepath.Join(dir, "pg")) != "14" { // and pg.lock
			t.Errorf("after %s: %v", after, entries)
		}
	}
	damaged := make([]byte, dump.Size())
	if _, err := dump.ReadAt(damaged, 0); err != nil {
		t.Fatal(err)
	}
	short := damaged[:len(damaged)-200]
	cfg := ClusterConfig{DataDir: dir, disposable: true}
	if _, err := RestoreCluster(t.Context(), cfg, io.NewSectionReader(bytes.NewReader(short), 0, int64(len(short)))); err == nil || !strings.Contains(err.Error(), "could not be restored") {
		t.Errorf("a short dump: %v", err)
	}
	untouched("a short dump")
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	at := readerAt{dump, func() { cancel(stop) }}
	if _, err := RestoreCluster(ctx, cfg, io.NewSectionReader(at, 0, dump.Size())); !errors.Is(err, stop) {
		t.Errorf("interrupted: %v", err)
	}
	untouched("an interrupt")
	r := restoreTest(t, dir, dump)
	if _, err := r.Place(restoreTime); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(); err != nil {
		t.Error(err)
	}
	// The new one goes away with the old one, so it cannot take its place.
	inner := filepath.Join(dir, "pg", "inner")
	if err := os.Rename(filepath.Join(dir, "pg.new"), inner); err != nil {
		t.Fatal(err)
	}
	r.cluster.pgDir = inner
	if _, err := r.Place(restoreTime); err == nil {
		t.Error("a new cluster that went is placed")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	untouched("undoing, and a new cluster that went")
}

type readerAt struct {
	*io.SectionReader
	hook func()
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	r.hook()
	return r.SectionReader.ReadAt(p, off)
}

// A process that is killed between the two renames loses nothing: the next
// start finishes. A cluster that is not whole is not taken.
func TestFinishRestore(t *testing.T) {
	t.Parallel()
	dump, _ := dumpTest(t)
	dir := testDir(t)
	r := restoreTest(t, dir, dump)
	if err := writeMark(filepath.Join(dir, "pg.new", restoredMark)); err != nil {
		t.Fatal(err)
	}
	r.unlock() // as if killed here
	// Another attempt, which comes to nothing, does not take it for a leftover.
	if _, err := RestoreCluster(t.Context(), ClusterConfig{DataDir: dir, PgBin: t.TempDir()}, dump); !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("without programs: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "pg"), filepath.Join(dir, "pg.new")); err != nil {
		t.Fatal(err)
	}
	if err := writeMark(filepath.Join(dir, "pg.new", restoredMark)); err != nil {
		t.Fatal(err)
	}
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	if seq, rows := stored(t, c.URL()); seq != 2 || rows != 2 {
		t.Errorf("sequence %d, %d observations", seq, rows)
	}
	if _, err := os.Lstat(filepath.Join(dir, "pg", restoredMark)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark stays: %v", err)
	}
	if err := c.finishRestore(); err != nil || known(t, filepath.Join(dir, "pg")) != "" {
		t.Errorf("again: %v", err)
	}
}

func TestRestoreClusterRefusals(t *testing.T) {
	t.Parallel()
	dump, _ := dumpTest(t)
	dir := testDir(t)
	startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := RestoreCluster(ctx, ClusterConfig{DataDir: dir, disposable: true}, dump); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "stop the Pharos that uses it") {
		t.Errorf("under a running server: %v", err)
	}
	for name, b := range map[string][]byte{"junk": []byte("junk, and more than a header of it"), "nothing": nil, "an archive's beginning": {'P', 'G', 'D', 'M', 'P', 1, 14, 0, 4, 8, 1}} {
		if err := CheckDump(t.Context(), "", io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "pg_restore said") {
			t.Errorf("%s: %v", name, err)
		}
	}
	newer := []byte{'P', 'G', 'D', 'M', 'P', 1, 99, 0, 4, 8, 1}
	if err := CheckDump(t.Context(), "", io.NewSectionReader(bytes.NewReader(newer), 0, int64(len(newer)))); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "newer PostgreSQL") {
		t.Errorf("a newer archive: %v", err)
	}
	// A database of somebody else's.
	conn := connectTest(t, TestDatabase(t))
	if _, err := conn.Exec(t.Context(), "DROP TABLE core"); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Dump(t.Context(), Target{URL: conn.Config().ConnString()}, 0, &b); err != nil {
		t.Fatal(err)
	}
	if err := CheckDump(t.Context(), "", io.NewSectionReader(bytes.NewReader(b.Bytes()), 0, int64(b.Len()))); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "no database of Pharos's") {
		t.Errorf("a foreign database: %v", err)
	}
}

func TestRestoreServer(t *testing.T) {
	t.Parallel()
	dump, content := dumpTest(t)
	url := emptyDatabase(t)

	// A dump that ends too early leaves nothing behind.
	b := make([]byte, dump.Size()-200)
	if _, err := dump.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreServer(t.Context(), Target{URL: url}, io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))); err == nil || !strings.Contains(err.Error(), "pg_restore said") {
		t.Errorf("a short dump: %v", err)
	}
	conn := connectTest(t, url)
	if n := query[int64](t, conn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")[0]; n != 0 {
		t.Errorf("%d tables are left", n)
	}

	// Another process has the lock.
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", int64(leaderLock))); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreServer(t.Context(), Target{URL: url}, dump); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("under a leader: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil {
		t.Fatal(err)
	}

	got, err := RestoreServer(t.Context(), Target{URL: url}, dump)
	if err != nil {
		t.Fatal(err)
	}
	if got.Relays != 1 || got.Schema != content.Schema {
		t.Errorf("restored %+v of %+v", got, content)
	}
	if seq, rows := stored(t, url); seq != 2 || rows != 2 {
		t.Errorf("sequence %d, %d observations", seq, rows)
	}
	if _, err := RestoreServer(t.Context(), Target{URL: url}, dump); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "is not empty (it has the table public.") {
		t.Errorf("over a full database: %v", err)
	}
}

// Data of another version: the sentence names the newest backup.
func TestOtherVersionNamesTheBackup(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	writeData(t, dir, "14")
	elsewhere := filepath.Join(dir, "elsewhere")
	for _, d := range []string{DefaultBackupDir(dir), elsewhere} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{restoreTime, restoreTime.AddDate(0, 0, -1)} {
			if err := os.WriteFile(filepath.Join(d, DailyName(at)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, cfg := range []ClusterConfig{{DataDir: dir}, {DataDir: dir, BackupDir: elsewhere}} {
		want := filepath.Join(cfg.BackupDir, DailyName(restoreTime))
		if cfg.BackupDir == "" {
			want = filepath.Join(DefaultBackupDir(dir), DailyName(restoreTime))
		}
		_, err := StartCluster(t.Context(), cfg)
		if !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), `"pharos restore `+want+`"`) || !strings.Contains(err.Error(), "2026-11-30 03:43 UTC") {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if known(t, filepath.Join(dir, "pg")) != "14" {
		t.Error("the data were touched")
	}
}
