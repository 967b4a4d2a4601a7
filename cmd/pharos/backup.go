package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pharos-nostr/pharos/monitor/postgres"
)

type backupCmd struct {
	File  string `arg:"" help:"The file to write. It holds the service key: keep it where nobody else reads, and not on this disk alone."`
	Force bool   `help:"Replace the file if it is there."`
}

// Run writes one file with the key, as it is stored, and a dump of the database
// (backup_file.go). A core may be running; where none is, the private cluster is
// started for it.
func (b *backupCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	ctx, done := c.untilSignal(ctx)
	defer done()
	job := backupJob{cfg: &cfg.Config, dir: cfg.dataDir(os.Getuid()), environ: c.environ, log: c.log}
	if inside(b.File, job.dir) {
		c.log.Warn("the backup is written into the data directory and will be lost with it: keep a copy elsewhere", "file", b.File, "data_dir", job.dir)
	}
	m, size, err := job.write(ctx, b.File, b.Force)
	if err != nil {
		// What was under way when the signal came says that in words of its own.
		return interruptedOr(causeOf(ctx, err), "the backup was interrupted: "+b.File+" was not written")
	}
	_, err = fmt.Fprintf(c.stdout, "backed up %s to %s: %s, %s, %s\n", m.identity(), b.File,
		counted(int(m.Relays), "relay", "relays"), counted(int(m.Transitions), "transition", "transitions"), sizeText(size))
	return err
}

// interruptedOr is err with an exit status, and text in place of it when a
// signal was the reason.
func interruptedOr(err error, text string) error {
	if errors.Is(err, errInterrupted) {
		return exitf(exitBad, "%s", text)
	}
	var e *exitError
	if errors.As(err, &e) {
		return err
	}
	return exitWith(exitStart, err)
}

// sizeText is a file's size for people.
func sizeText(bytes int64) string {
	switch {
	case bytes < 10<<10:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 10<<20:
		return fmt.Sprintf("%d KB", bytes>>10)
	case bytes < 10<<30:
		return fmt.Sprintf("%d MB", bytes>>20)
	}
	return fmt.Sprintf("%d GB", bytes>>30)
}

// openSource finds the database to be backed up. The private cluster is used
// where it runs and otherwise started, the data directory locked meanwhile, so
// that no core starts on it and loses it again; release ends that.
func (b *backupJob) openSource(ctx context.Context) (t postgres.Target, release func() error, err error) {
	t.PgBin = b.cfg.Database.PgBin
	if t.URL = b.cfg.Database.URL.Reveal(); t.URL != "" {
		return t, func() error { return nil }, nil
	}
	cluster := postgres.ClusterConfig{
		DataDir: b.dir, PgBin: b.cfg.Database.PgBin, MaxConns: b.cfg.Database.MaxConns, BackupDir: b.cfg.Database.BackupDir, Log: b.log,
	}
	t.Cluster, err = postgres.ConnectCluster(ctx, cluster)
	if err == nil {
		return t, func() error { return nil }, nil
	}
	if !isNotFound(err) {
		return t, nil, err
	}
	switch there, err := hasCluster(b.dir); {
	case err != nil:
		return t, nil, exitf(exitStart, "the database in %s cannot be read: %s; run the command as the user that runs pharos serve", b.dir, reason(err))
	case !there:
		return t, nil, exitf(exitStart, "there is no database in %s, so there is nothing to back up: name the right one with --data-dir", b.dir)
	}
	lock, err := lockDataDir(b.dir)
	if err != nil {
		return t, nil, fmt.Errorf("the database of %s does not run: %w", b.dir, err)
	}
	if t.Cluster, err = postgres.StartCluster(ctx, cluster); err != nil {
		return t, nil, errors.Join(err, lock.release())
	}
	return t, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		return errors.Join(t.Cluster.Stop(ctx), lock.release())
	}, nil
}
