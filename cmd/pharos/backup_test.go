package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// on are the arguments of a command on a data directory.
func on(dir string, args ...string) []string {
	return append([]string{"--config", "testdata/config/good/minimal.yaml", "--data-dir", dir}, args...)
}

// names are the files of a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func readAll(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// serverPID is the first line of what a database server writes of itself.
func serverPID(t *testing.T, dir string) string {
	t.Helper()
	pid, _, _ := strings.Cut(readAll(t, filepath.Join(dir, "pg", "postmaster.pid")), "\n")
	return pid
}

type transitions struct {
	Transitions []struct {
		At string `json:"at"`
	} `json:"transitions"`
}

// A backup of a running core, the loss of everything, and the same monitor with
// the same history again.
func TestBackupAndRestore(t *testing.T) {
	relays := relaytest.StartMany(t, 2, relaytest.Options{})
	dir, out := dataDir(t), t.TempDir()
	file := filepath.Join(out, "pharos.tar")
	s := start(t, fastConfig(t, relays...), dir)
	pubkey := s.waitFor(t, urlsOf(relays...)).Monitor.Pubkey
	var before, after transitions
	get(t, s.URL()+"/v1/transitions", &before)
	pid := serverPID(t, dir)

	got := pharos(t, "", nil, on(dir, "backup", file)...)
	if got.status != 0 || !strings.Contains(got.stdout, "backed up npub1") || !strings.Contains(got.stdout, ": 2 relays, 2 transitions, ") || got.stderr != "" {
		t.Fatalf("backup: %+v", got)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", st, err)
	}
	s.waitFor(t, urlsOf(relays...))
	if serverPID(t, dir) != pid {
		t.Error("the core's database was started anew")
	}
	first, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	replaced := func() bool {
		now, err := os.Stat(file)
		return err != nil || !os.SameFile(first, now)
	}
	if got := pharos(t, "", nil, on(dir, "backup", file)...); got.status != 3 || !strings.Contains(got.stderr, "is there already and is not replaced") || replaced() {
		t.Errorf("over an existing file: %+v", got)
	}
	if got := pharos(t, "", nil, on(dir, "backup", "--force", file)...); got.status != 0 || !replaced() {
		t.Errorf("over an existing file by force: %+v", got)
	}
	if got := pharos(t, "", nil, on(dir, "restore", file)...); got.status != 3 || !strings.Contains(got.stderr, "nothing was restored: process ") || !strings.Contains(got.stderr, "stop it") {
		t.Errorf("restore under a core: %+v", got)
	}
	s.stop(t)
	key := readAll(t, filepath.Join(dir, "service.key"))

	// Without a core the database is started for it, and stopped.
	if got := pharos(t, "", nil, on(dir, "backup", filepath.Join(dir, "inside.tar"))...); got.status != 0 || !strings.Contains(got.stderr, "lost with it") {
		t.Errorf("backup without a core: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "pg", "postmaster.pid")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the database is not stopped: %v", err)
	}
	if d := cmp.Diff([]string{"pharos.tar"}, names(t, out)); d != "" {
		t.Errorf("beside the backup (-want +got): %s", d)
	}

	for _, name := range names(t, dir) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := pharos(t, "", nil, on(dir, "restore", file)...); got.status != 0 || !strings.Contains(got.stdout, "restored npub1") ||
		!strings.Contains(got.stdout, "2 relays, 2 transitions: "+filepath.Join(dir, "pg")) || strings.Contains(got.stdout, "kept") {
		t.Fatalf("restore: %+v", got)
	}
	if st, err := os.Stat(filepath.Join(dir, "service.key")); err != nil || st.Mode().Perm() != 0o600 || readAll(t, filepath.Join(dir, "service.key")) != key {
		t.Errorf("the key: %v, %v", st, err)
	}
	s = start(t, fastConfig(t, relays...), dir)
	if l := s.waitFor(t, urlsOf(relays...)); l.Monitor.Pubkey != pubkey {
		t.Errorf("it is %s, was %s", l.Monitor.Pubkey, pubkey)
	}
	get(t, s.URL()+"/v1/transitions", &after)
	if d := cmp.Diff(before, after); d != "" || len(before.Transitions) != 2 {
		t.Errorf("history (-before +after): %s", d)
	}
}

// backupOf makes a backup of a database of a server, with a new key; it is fast.
func backupOf(t *testing.T, environ ...string) (file, dir string) {
	t.Helper()
	dir = dataDir(t)
	environ = append(environ, "PHAROS_DATABASE_URL="+postgres.TestDatabase(t))
	if _, err := os.Stat(filepath.Join(dir, "service.key")); err != nil {
		if _, err := nostr.CreateKey(filepath.Join(dir, "service.key")); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(dir, "backup.tar")
	if got := pharos(t, "", environ, on(dir, "backup", file)...); got.status != 0 {
		t.Fatalf("backup: %+v", got)
	}
	return file, dir
}

// fakePrograms makes a directory with programs of PostgreSQL's that do as told.
func fakePrograms(t *testing.T, script string, programs ...string) string {
	t.Helper()
	dir := dataDir(t)
	for _, p := range programs {
		text := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '" + p + " (PostgreSQL) 99.1'; exit; fi\n" + script
		if err := os.WriteFile(filepath.Join(dir, p), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A signal in the middle leaves nothing behind.
func TestBackupInterrupted(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := fakePrograms(t, "echo half a dump; echo started >'"+started+"'; exec sleep 600\n", "pg_dump", "postgres", "initdb")
	dir, out := dataDir(t), t.TempDir()
	if _, err := nostr.CreateKey(filepath.Join(dir, "service.key")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(out, "pharos.tar")
	signals := make(chan os.Signal, 1)
	var errs lockedBuffer
	status := make(chan int, 1)
	environ := []string{"PHAROS_DATABASE_PG_BIN=" + bin, "PHAROS_DATABASE_URL=" + postgres.TestDatabase(t)}
	go func() {
		status <- run(context.Background(), on(dir, "backup", file), process{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, environ: environ, signals: signals,
		})
	}()
	readAll(t, started)
	if n := names(t, out); len(n) != 1 || n[0] == "pharos.tar" {
		t.Errorf("while it is written there are %v", n)
	}
	signals <- os.Interrupt
	if got := <-status; got != 1 || !strings.Contains(errs.String(), "was interrupted: "+file+" was not written") {
		t.Errorf("status %d: %s", got, errs.String())
	}
	if n := names(t, out); len(n) != 0 {
		t.Errorf("left behind: %v", n)
	}
}

// Nor does one come to nothing else that interrupts the start of the database.
func TestBackupInterruptedAtTheStart(t *testing.T) {
	dir, out := dataDir(t), t.TempDir()
	started := filepath.Join(dir, "started")
	if err := errors.Join(syscall.Mkfifo(started, 0o600), os.Chmod(started, 0o666), os.Mkdir(filepath.Join(dir, "pg"), 0o700)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "pg", "PG_VERSION"), "99\n", 0o600)
	bin := fakePrograms(t, "echo started >'"+started+"'; exec sleep 600\n", "postgres", "initdb")
	signals := make(chan os.Signal, 1)
	var errs lockedBuffer
	status := make(chan int, 1)
	go func() {
		status <- run(context.Background(), on(dir, "backup", filepath.Join(out, "a")), process{
			stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, environ: []string{"PHAROS_DATABASE_PG_BIN=" + bin}, signals: signals,
		})
	}()
	readAll(t, started)
	signals <- os.Interrupt
	if got := <-status; got != 1 || !strings.Contains(errs.String(), "the backup was interrupted: ") || strings.Contains(errs.String(), "did not answer") {
		t.Errorf("status %d: %s", got, errs.String())
	}
	if n := names(t, out); len(n) != 0 {
		t.Errorf("left behind: %v", n)
	}
}

func TestBackupRefusals(t *testing.T) {
	dir := dataDir(t)
	if _, err := nostr.CreateKey(filepath.Join(dir, "service.key")); err != nil {
		t.Fatal(err)
	}
	broken := fakePrograms(t, "echo half a dump; echo 'pg_dump: error: the table is gone' >&2; exit 1\n", "pg_dump", "postgres", "initdb")
	database := "PHAROS_DATABASE_URL=" + postgres.TestDatabase(t)
	to := filepath.Join(t.TempDir(), "to")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	unreadable := dataDir(t)
	writeFile(t, filepath.Join(unreadable, "pg"), "", 0o600)
	for name, c := range map[string]struct {
		dir, file string
		environ   []string
		says      string
	}{
		"nothing there":     {dataDir(t), to + "/a", nil, "there is no database in"},
		"not to be read":    {unreadable, to + "/a", nil, "cannot be read: not a directory; run the command as the user that runs pharos serve"},
		"no key":            {dataDir(t), to + "/a", []string{database}, "there is no service key"},
		"standard output":   {dir, "-", []string{database}, "not to the standard output: name one"},
		"a directory":       {dir, to, []string{database}, "is a directory: name a file in it"},
		"no directory":      {dir, to + "/b/a", []string{database}, "there is no directory " + to + "/b; make it"},
		"pg_dump fails":     {dir, to + "/a", []string{database, "PHAROS_DATABASE_PG_BIN=" + broken}, `pg_dump said "the table is gone"`},
		"no server answers": {dir, to + "/a", []string{"PHAROS_DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/d"}, "nothing answers at 127.0.0.1:1"},
	} {
		got := pharos(t, "", c.environ, on(c.dir, "backup", c.file)...)
		status := 3
		if c.file == "-" {
			status = 2
		}
		if got.status != status || !strings.Contains(got.stderr, c.says) || got.stdout != "" || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
		if n := names(t, to); len(n) != 0 {
			t.Errorf("%s: left behind: %v", name, n)
		}
	}
}

func TestBackupDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	m := &manifest{Format: backupFormat, Version: backupVersion, Time: time.Now().UTC().Truncate(time.Second)}
	_, err = writeBackup(full, m, nil, func(io.Writer) error { return nil })
	if err = writeError("/mnt/pharos.tar", err); err == nil || !strings.Contains(err.Error(), "the disk that holds /mnt is full") {
		t.Errorf("%v", err)
	}
}

// A dump of any size has a head of one block.
func TestTarHead(t *testing.T) {
	for _, size := range []int64{0, 1 << 33, 1 << 45} {
		b, err := tarHead(dumpEntry, size, time.Unix(1_800_000_000, 0))
		if err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(bytes.NewReader(b)).Next()
		if err != nil || h.Size != size || h.Name != dumpEntry || h.Mode != 0o600 || len(b) != tarBlock {
			t.Errorf("%d bytes: %+v, %v", size, h, err)
		}
	}
}

// A file that gets the name while we write is not replaced, on any file system.
func TestPartNeverReplaces(t *testing.T) {
	to := filepath.Join(t.TempDir(), "file")
	p, err := createPart(to)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard()
	if err := os.WriteFile(to, []byte("somebody else's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.place(false); err == nil || readAll(t, to) != "somebody else's" {
		t.Errorf("placed over another file: %v", err)
	}
}

// An encrypted key is backed up and restored as it is, without its password.
// A part holds the service key: what a killed process left is removed, what
// another one writes is not.
func TestPartsOfTheKilled(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "backup[1]")
	for _, name := range []string{".backup[1].123" + partSuffix, ".backup[1].mine" + partSuffix, ".backup1.123" + partSuffix} {
		writeFile(t, filepath.Join(dir, name), "", 0o600)
	}
	first, err := createPart(to)
	if err != nil {
		t.Fatal(err)
	}
	second, err := createPart(to)
	if err != nil {
		t.Fatal(err)
	}
	defer second.discard()
	want := []string{".backup1.123" + partSuffix, ".backup[1].mine" + partSuffix, filepath.Base(first.Name()), filepath.Base(second.Name())}
	slices.Sort(want)
	if d := cmp.Diff(want, names(t, dir)); d != "" {
		t.Errorf("(-want +got): %s", d)
	}
	if err := first.place(false); err != nil {
		t.Error(err)
	}
}

func TestBackupEncryptedKey(t *testing.T) {
	dir := dataDir(t)
	file := filepath.Join(dir, "encrypted.key")
	password := func() (string, error) { return "correct horse", nil }
	key, err := nostr.KeyFile{Path: file, Password: password}.Create()
	if err != nil {
		t.Fatal(err)
	}
	secret := readAll(t, file)
	out := filepath.Join(dir, "pharos.tar")
	environ := []string{"PHAROS_KEY_FILE=" + file, "PHAROS_DATABASE_URL=" + postgres.TestDatabase(t)}
	got := pharos(t, "", environ, on(dir, "backup", out)...)
	if got.status != 0 || !strings.Contains(got.stdout, "backed up an encrypted key") {
		t.Fatalf("without the password: %+v", got)
	}
	got = pharos(t, "", append(environ, "PHAROS_KEY_PASSWORD=correct horse"), on(dir, "backup", "--force", out)...)
	if got.status != 0 || !strings.Contains(got.stdout, "backed up "+key.Npub()) {
		t.Fatalf("with the password: %+v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	environ[1] = "PHAROS_DATABASE_URL=" + postgres.EmptyTestDatabase(t)
	if got = pharos(t, "", environ, on(dir, "restore", out)...); got.status != 0 || !strings.Contains(got.stdout, "restored "+key.Npub()) {
		t.Errorf("restore: %+v", got)
	}
	if readAll(t, file) != secret {
		t.Error("the key file is not as it was")
	}
}

// Every bit that counts is covered: a damaged or cut file is refused, or is as
// good as the whole one.
func TestDamagedBackups(t *testing.T) {
	file, _ := backupOf(t)
	b := []byte(readAll(t, file))
	read := func(b []byte) (*backupFile, error) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(t.TempDir(), "backup"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return readBackup(t.Context(), f)
	}
	whole, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	var none errNoBackup
	for n := 0; n < len(b); n += 211 {
		if _, err := read(b[:n]); !errors.As(err, &none) {
			t.Errorf("cut after %d of %d bytes: %v", n, len(b), err)
		}
	}
	for _, n := range []int{1, 512, 1023, 1024} {
		if _, err := read(b[:len(b)-n]); !errors.As(err, &none) {
			t.Errorf("without the last %d bytes: %v", n, err)
		}
	}
	for n := 5; n < len(b); n += 97 {
		damaged := bytes.Clone(b)
		damaged[n] ^= 0x10
		got, err := read(damaged)
		if err == nil && (got.manifest != whole.manifest || !bytes.Equal(got.key, whole.key)) || err != nil && !errors.As(err, &none) {
			t.Errorf("bit in byte %d: %v", n, err)
		}
		if err == nil {
			sum := func(f *backupFile) string {
				d, err := io.ReadAll(io.NewSectionReader(f.dump, 0, f.dump.Size()))
				if err != nil {
					t.Fatal(err)
				}
				return string(d)
			}
			if sum(got) != sum(whole) {
				t.Errorf("bit in byte %d of the dump is not seen", n)
			}
		}
	}
}
