package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor/postgres"
)

const (
	// dailyBackupSpec is in the night of most, at a minute of our own.
	dailyBackupSpec = "43 3 * * *"
	// A start after the hour of the backup makes it good, once the first pass
	// is through.
	dailyBackupDelay = 2 * time.Minute
	dailyBackupAge   = 24 * time.Hour
	dailyBackupsKept = 3
	dailyBackupLimit = 3 * time.Hour
)

// dailyBackup makes the private cluster's backups. What fails is logged, shown
// by Warning, and tried again the next day; nothing else depends on it.
type dailyBackup struct {
	dir     string         // where they are kept
	minFree func() float64 // share of that disk that must stay free
	log     *slog.Logger
	write   func(ctx context.Context, to string) (size int64, err error)
	free    func(dir string) (free, size uint64, err error)

	mu      sync.Mutex
	success time.Time
	failure error // of the last attempt, nil = it went well or there was none
}

// dailyBackup returns nil where there are none: switched off, or the database
// is not ours.
func (a *App) dailyBackup(environ []string) *dailyBackup {
	c := a.config()
	if c.Database.Backup == "off" || c.Database.URL.Reveal() != "" {
		return nil
	}
	job := &backupJob{cfg: c, dir: a.dir, environ: environ, log: a.log}
	b := &dailyBackup{dir: c.backupDir(a.dir), minFree: func() float64 { return a.config().Retention.MinFreeDisk }, log: a.log, free: diskFree}
	b.write = func(ctx context.Context, to string) (int64, error) {
		_, size, err := job.write(ctx, to, false)
		return size, err
	}
	if made, err := postgres.DailyBackups(b.dir); err == nil && len(made) > 0 {
		b.success = made[0].Made
	}
	return b
}

// backupDir is where daily backups are kept.
func (c *Config) backupDir(dataDir string) string {
	if c.Database.BackupDir != "" {
		return c.Database.BackupDir
	}
	return postgres.DefaultBackupDir(dataDir)
}

// LastSuccess is when the newest daily backup was made, zero when there is
// none.
func (b *dailyBackup) LastSuccess() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.success
}

// Warning says what an operator should know of the daily backup, "" when all is
// well.
func (b *dailyBackup) Warning() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		return ""
	}
	last := "there is none yet"
	if !b.success.IsZero() {
		last = "the newest is of " + b.success.UTC().Format("2006-01-02 15:04 UTC")
	}
	return fmt.Sprintf("the daily backup failed (%s): %s", last, sentence(b.failure))
}

// run makes one backup and removes those that are too many.
func (b *dailyBackup) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dailyBackupLimit)
	defer cancel()
	begun := time.Now()
	to, size, err := b.attempt(ctx, begun)
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return // the process ends: nobody failed
	}
	b.mu.Lock()
	b.failure = err
	if err == nil {
		b.success = begun
	}
	b.mu.Unlock()
	if err != nil {
		b.log.Warn("the daily backup failed; the next night tries again", "error", sentence(err))
		return
	}
	b.log.Info("daily backup made", "file", to, "size", sizeText(size), "took", time.Since(begun).Round(time.Millisecond).String())
	if err := b.rotate(); err != nil {
		b.log.Warn("old daily backups could not be removed", "error", err)
	}
}

func (b *dailyBackup) attempt(ctx context.Context, now time.Time) (to string, size int64, err error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", 0, fmt.Errorf("the directory %s cannot be made: %s: mend that, or choose another with database.backup_dir", b.dir, reason(err))
	}
	b.sweep()
	made, err := postgres.DailyBackups(b.dir)
	if err != nil {
		return "", 0, err
	}
	if err := b.room(made); err != nil {
		return "", 0, err
	}
	to = filepath.Join(b.dir, postgres.DailyName(now))
	size, err = b.write(ctx, to)
	return to, size, err
}

// room refuses to fill the disk: the database needs it more.
func (b *dailyBackup) room(made []postgres.DailyBackup) error {
	free, whole, err := b.free(b.dir)
	if err != nil {
		return fmt.Errorf("ask how much of the disk that holds %s is free: %w", b.dir, err)
	}
	if len(made) > 0 && free < 2*uint64(made[0].Size) {
		return fmt.Errorf("the disk that holds %s has %s left and the last backup took %s: make room, or choose another with database.backup_dir",
			b.dir, sizeText(int64(free)), sizeText(made[0].Size))
	}
	if float64(free) < b.minFree()*float64(whole) {
		return fmt.Errorf("the disk that holds %s has %s left, less than retention.min_free_disk allows: make room, or choose another with database.backup_dir", b.dir, sizeText(int64(free)))
	}
	return nil
}

// sweep removes what a backup left behind that was killed; only this process
// makes daily ones.
func (b *dailyBackup) sweep() {
	left, err := filepath.Glob(filepath.Join(b.dir, ".pharos-daily-*"+partSuffix))
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name) // one that stays takes room and does no other harm
	}
}

func (b *dailyBackup) rotate() error {
	made, err := postgres.DailyBackups(b.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, old := range made[min(dailyBackupsKept, len(made)):] {
		errs = append(errs, os.Remove(old.Path))
	}
	return errors.Join(errs...)
}

// makeGood makes a backup soon after the start when the newest is older than a
// day.
func (b *dailyBackup) makeGood(ctx context.Context, run func()) {
	if time.Since(b.LastSuccess()) <= dailyBackupAge {
		return
	}
	select {
	case <-time.After(dailyBackupDelay):
		run()
	case <-ctx.Done():
	}
}
