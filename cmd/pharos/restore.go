package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/pharos-nostr/pharos/monitor/postgres"
)

type restoreCmd struct {
	File string `arg:"" help:"A file that pharos backup wrote, or a daily one."`
}

// Run puts a backup's key and database in place. Everything is checked, and the
// new database is built beside the old one, before anything that is there is
// touched; then the old ones are moved aside, never deleted.
func (r *restoreCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	ctx, done := c.untilSignal(ctx)
	defer done()
	job := &restoreJob{cfg: &cfg.Config, dir: cfg.dataDir(os.Getuid()), log: c.log}
	if file, provided := cfg.keyPlace(job.dir, c.environ); provided {
		c.log.Warn("the service manager provides the service key, and the restored one is not used while it does", "file", file)
	}
	if err := job.restore(ctx, r.File); err != nil {
		return interruptedOr(err, "the restore was interrupted: nothing was changed")
	}
	return job.report(c.stdout, r.File)
}

// restoreJob restores one backup.
type restoreJob struct {
	cfg *Config
	dir string
	log *slog.Logger

	// What it came to.
	backup  *backupFile
	content postgres.Content
	oldData string // where they were moved, "" = there were none
	oldKey  string
}

func (j *restoreJob) restore(ctx context.Context, file string) (err error) {
	f, err := openRegular(file, math.MaxInt64)
	if err != nil {
		return exitf(exitStart, "the backup %s cannot be read: %s", file, reason(err))
	}
	defer func() { _ = f.Close() }()
	var none errNoBackup
	switch j.backup, err = readBackup(ctx, f); {
	case errors.As(err, &none):
		return exitf(exitStart, "%s cannot be restored: %s", file, none)
	case errors.Is(err, errInterrupted):
		return err
	case err != nil:
		return exitf(exitStart, "the backup %s cannot be read: %s", file, reason(err))
	}
	newest, err := postgres.SchemaVersion()
	if err != nil {
		return err
	}
	if j.backup.Schema > newest {
		return exitf(exitStart, "%s cannot be restored: its database has schema version %d and this Pharos knows only %d; restore it with the newer Pharos that wrote it (%s)", file, j.backup.Schema, newest, j.backup.Pharos)
	}
	if err := postgres.CheckDump(ctx, j.cfg.Database.PgBin, j.backup.dump); err != nil {
		return err
	}

	if err := makeDataDir(j.dir); err != nil {
		return err
	}
	lock, err := lockDataDir(j.dir)
	if err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	defer func() { err = errors.Join(err, j.handOver(), lock.release()) }()
	key, err := prepareKey(j.cfg.keyFile(j.dir), j.backup.key, j.backup.Pubkey)
	if err != nil {
		return err
	}
	defer key.discard()
	if j.cfg.Database.URL.Reveal() != "" {
		return j.toServer(ctx, key)
	}
	return j.toCluster(ctx, key)
}

func (j *restoreJob) toCluster(ctx context.Context, key *keyRestore) (err error) {
	r, err := postgres.RestoreCluster(ctx, postgres.ClusterConfig{
		DataDir: j.dir, PgBin: j.cfg.Database.PgBin, MaxConns: j.cfg.Database.MaxConns, Log: j.log,
	}, j.backup.dump)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	now := time.Now()
	old, err := r.Place(now)
	if err != nil {
		return err
	}
	oldKey, err := key.place(now)
	if err != nil {
		return errors.Join(err, r.Undo())
	}
	j.content, j.oldData, j.oldKey = r.Content, old, oldKey
	return nil
}

func (j *restoreJob) toServer(ctx context.Context, key *keyRestore) (err error) {
	target := postgres.Target{URL: j.cfg.Database.URL.Reveal(), PgBin: j.cfg.Database.PgBin}
	if j.content, err = postgres.RestoreServer(ctx, target, j.backup.dump); err != nil {
		return causeOf(ctx, err)
	}
	if j.oldKey, err = key.place(time.Now()); err != nil {
		return fmt.Errorf("the database is restored and the service key is not: %w", err)
	}
	return nil
}

// handOver gives what root made to the user whose the data directory is, who
// could not use it otherwise.
func (j *restoreJob) handOver() error {
	owner := ownerOfFile(j.dir)
	if os.Geteuid() != 0 || owner <= 0 {
		return nil
	}
	for _, name := range []string{"pharos.lock", "pg.lock", "postgres.log"} {
		if err := os.Lchown(filepath.Join(j.dir, name), owner, -1); err != nil && !errors.Is(err, os.ErrNotExist) {
			return exitf(exitStart, "%s cannot be given to the owner of the data directory: %s", filepath.Join(j.dir, name), reason(err))
		}
	}
	return nil
}

// report says what was done.
func (j *restoreJob) report(w io.Writer, file string) error {
	b := j.backup
	where := "the database of database.url"
	if j.cfg.Database.URL.Reveal() == "" {
		where = filepath.Join(j.dir, "pg")
	}
	text := fmt.Sprintf("restored %s from %s, made %s by pharos %s\n", b.identity(), file, b.Time.Format("2006-01-02 15:04:05 UTC"), b.Pharos)
	text += fmt.Sprintf("%s, %s: %s (PostgreSQL %d)\n", counted(int(j.content.Relays), "relay", "relays"),
		counted(int(j.content.Transitions), "transition", "transitions"), where, j.content.Server)
	text += fmt.Sprintf("key: %s\n", j.cfg.keyFile(j.dir))
	if j.oldData != "" {
		text += fmt.Sprintf("the database that was there is kept: %s\n", j.oldData)
	}
	if j.oldKey != "" {
		text += fmt.Sprintf("the key that was there is kept: %s\n", j.oldKey)
	}
	_, err := io.WriteString(w, text+"start Pharos with \"pharos serve\"\n")
	return err
}
