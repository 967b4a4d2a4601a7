package main

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// Over data of another version and another key: both are kept, and the sentence
// of the start names the way.
func TestRestoreOverOtherVersion(t *testing.T) {
	file, source := backupOf(t)
	dir := dataDir(t)
	daily := filepath.Join(dir, "backups", postgres.DailyName(time.Now()))
	for name, content := range map[string]string{"pg/PG_VERSION": "14\n", "pg/known": "old data", "backups/" + filepath.Base(daily): readAll(t, file)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nostr.CreateKey(filepath.Join(dir, "service.key")); err != nil {
		t.Fatal(err)
	}
	other := readAll(t, filepath.Join(dir, "service.key"))
	got := pharos(t, "", nil, on(dir, "migrate")...)
	command := regexp.MustCompile(`"pharos restore ([^"]+)"`).FindStringSubmatch(got.stderr)
	if got.status != 3 || command == nil || command[1] != daily {
		t.Fatalf("the start: %+v", got)
	}
	got = pharos(t, "", nil, on(dir, "restore", command[1])...)
	kept := regexp.MustCompile(`(?m)^the (?:database|key) that was there is kept: (.*)$`).FindAllStringSubmatch(got.stdout, -1)
	if got.status != 0 || len(kept) != 2 {
		t.Fatalf("restore: %+v", got)
	}
	if readAll(t, filepath.Join(kept[0][1], "known")) != "old data" || readAll(t, kept[1][1]) != other {
		t.Errorf("kept is something else: %v", kept)
	}
	if readAll(t, filepath.Join(dir, "service.key")) != readAll(t, filepath.Join(source, "service.key")) {
		t.Error("the key is not the backup's")
	}
	if got := pharos(t, "", nil, on(dir, "migrate")...); got.status != 0 {
		t.Errorf("the start afterwards: %+v", got)
	}
}

// rewrite changes one entry of a backup; its sums are mended.
func rewrite(t *testing.T, file, entry string, change func(string) string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	out, err := os.Create(filepath.Join(t.TempDir(), "rewritten.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w := &backupWriter{f: out, at: time.Now().Truncate(time.Second)}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Name {
		case entry:
			b = []byte(change(string(b)))
		case sumsEntry:
			b = bytes.Clone(w.sums.Bytes())
		}
		if err := w.add(h.Name, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.write(make([]byte, 2*tarBlock)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// What cannot be restored is refused in a sentence, before anything is touched.
func TestRestoreRefusals(t *testing.T) {
	file, _ := backupOf(t)
	write := func(content string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	replace := func(old, with string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, old) {
				t.Fatalf("there is no %q in %s", old, s)
			}
			return strings.Replace(s, old, with, 1)
		}
	}
	is := func(s string) func(string) string { return func(string) string { return s } }
	for name, c := range map[string]struct{ file, says string }{
		"no file":           {file + "x", "there is no such file"},
		"a directory":       {t.TempDir(), "it is a directory"},
		"empty":             {write(""), "it is no backup of Pharos's"},
		"text":              {write(strings.Repeat("some text\n", 1000)), "it is no backup of Pharos's"},
		"a bare dump":       {write("PGDMP" + strings.Repeat("\x00", 2000)), "it is no backup of Pharos's"},
		"cut":               {write(readAll(t, file)[:20_000]), "it is not whole: it ends in database.dump"},
		"of something else": {rewrite(t, file, manifestEntry, replace(backupFormat, "photo-album")), "its manifest is of something else"},
		"a newer format":    {rewrite(t, file, manifestEntry, replace(`"version": 1`, `"version": 7`)), "it has the format 7 and this Pharos reads only 1"},
		"a newer schema":    {rewrite(t, file, manifestEntry, func(s string) string { return regexp.MustCompile(`"schema": \d+`).ReplaceAllString(s, `"schema": 999`) }), "schema version 999 and this Pharos knows only"},
		"no key":            {rewrite(t, file, keyEntry, is("hunter2")), "holds no usable service key"},
		"another key":       {rewrite(t, file, keyEntry, is(strings.Repeat("1", 64))), "not the one that its manifest names"},
		"no dump":           {rewrite(t, file, dumpEntry, is("nothing of the kind, but long enough")), "the dump cannot be read"},
	} {
		dir := dataDir(t)
		got := pharos(t, "", nil, on(dir, "restore", c.file)...)
		if got.status != 3 || !strings.Contains(got.stderr, c.says) || got.stdout != "" || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%s: %+v", name, got)
		}
		if n := strings.Join(names(t, dir), " "); n != "" && n != "pharos.lock" {
			t.Errorf("%s: there is %s", name, n)
		}
	}
	// Another restore is at it.
	dir := dataDir(t)
	lock, err := lockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := pharos(t, "", nil, on(dir, "restore", file)...); got.status != 3 || !strings.Contains(got.stderr, "nothing was restored: process ") {
		t.Errorf("two at once: %+v", got)
	}
	if err := lock.release(); err != nil {
		t.Error(err)
	}
	// The key has no place.
	if got := pharos(t, "", []string{"PHAROS_KEY_FILE=" + dir + "/none/key"}, on(dir, "restore", file)...); got.status != 3 || !strings.Contains(got.stderr, "there is no directory "+dir+"/none") {
		t.Errorf("no place for the key: %+v", got)
	}
}

// A database of the operator's is filled only when it is empty.
func TestRestoreToServer(t *testing.T) {
	file, source := backupOf(t)
	dir := dataDir(t)
	environ := []string{"PHAROS_DATABASE_URL=" + postgres.TestDatabase(t)}
	if got := pharos(t, "", environ, on(dir, "restore", file)...); got.status != 3 || !strings.Contains(got.stderr, "is not empty") {
		t.Errorf("over a database in use: %+v", got)
	}
	if n := strings.Join(names(t, dir), " "); n != "pharos.lock" {
		t.Errorf("after a refusal there is %s", n)
	}
	environ[0] = "PHAROS_DATABASE_URL=" + postgres.EmptyTestDatabase(t)
	if got := pharos(t, "", environ, on(dir, "restore", file)...); got.status != 0 || !strings.Contains(got.stdout, "the database of database.url") {
		t.Errorf("into an empty one: %+v", got)
	}
	if readAll(t, filepath.Join(dir, "service.key")) != readAll(t, filepath.Join(source, "service.key")) {
		t.Error("the key is not the backup's")
	}
	if got := pharos(t, "", environ, on(dir, "migrate", "--dry-run")...); got.status != 0 || !strings.Contains(got.stdout, "up to date") {
		t.Errorf("the schema: %+v", got)
	}
}

// When the key cannot take its place, the database gives its own back.
func TestRestoreUndone(t *testing.T) {
	file, _ := backupOf(t)
	dir := dataDir(t)
	for name, content := range map[string]string{"pg/PG_VERSION": "14\n", "pg/known": "old data", "service.key": "the old key"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cfg := Default()
	j := &restoreJob{cfg: &cfg, dir: dir, log: slog.New(slog.DiscardHandler)}
	if j.backup, err = readBackup(context.Background(), f); err != nil {
		t.Fatal(err)
	}
	key, err := prepareKey(cfg.keyFile(dir), j.backup.key, j.backup.Pubkey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(key.part.Name()); err != nil {
		t.Fatal(err)
	}
	if err := j.toCluster(t.Context(), key); err == nil {
		t.Error("a key that went is placed")
	}
	if readAll(t, filepath.Join(dir, "pg", "known")) != "old data" || readAll(t, filepath.Join(dir, "service.key")) != "the old key" {
		t.Error("the old state is not as it was")
	}
	for _, n := range names(t, dir) {
		if strings.Contains(n, ".old") || strings.Contains(n, ".new") || strings.HasSuffix(n, partSuffix) {
			t.Errorf("left behind: %s", n)
		}
	}
}

// What root restores belongs to the user whose the data directory is, as
// whom a service runs.
func TestRestoreForTheOwner(t *testing.T) {
	file, _ := backupOf(t)
	dir := dataDir(t)
	owner := os.Geteuid()
	if owner == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		if owner, err = strconv.Atoi(nobody.Uid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, owner, -1); err != nil {
			t.Fatal(err)
		}
	}
	if got := pharos(t, "", nil, on(dir, "restore", file)...); got.status != 0 {
		t.Fatalf("restore: %+v", got)
	}
	for _, name := range append(names(t, dir), "pg/PG_VERSION") {
		if got := ownerOfFile(filepath.Join(dir, name)); got != owner {
			t.Errorf("%s belongs to user %d, the directory to %d", name, got, owner)
		}
	}
}
