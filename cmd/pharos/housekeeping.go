package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

// partitions is what housekeeping does to the store.
type partitions interface {
	EnsurePartitions(ctx context.Context, now time.Time) error
	DropPartitions(ctx context.Context, olderThan time.Time) (int, error)
}

// Housekeeping runs hourly, off the hour, when every other machine is busy; a
// missed run is made good by the next, as partitions are made days ahead.
const (
	housekeepingSpec  = "17 * * * *"
	housekeepingLimit = 10 * time.Minute
)

// startHousekeeping makes and drops the days of raw observations: once now,
// then hourly. It makes the daily backups too, unless backups is nil.
func (a *App) startHousekeeping(store partitions, backups *dailyBackup) error {
	ctx, cancel := context.WithCancel(context.Background())
	logger := cronLogger{a.log}
	// Recover stands inside: a panic must not leave the job marked as running.
	jobs := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	hourly, err := jobs.AddFunc(housekeepingSpec, func() { a.keepHouse(ctx, store) })
	if err != nil {
		cancel()
		return fmt.Errorf("schedule housekeeping: %w", err)
	}
	var first sync.WaitGroup
	if backups != nil {
		daily, err := jobs.AddFunc(dailyBackupSpec, func() { backups.run(ctx) })
		if err != nil {
			cancel()
			return fmt.Errorf("schedule the daily backup: %w", err)
		}
		first.Go(func() { backups.makeGood(ctx, jobs.Entry(daily).WrappedJob.Run) })
	}
	first.Go(func() { jobs.Entry(hourly).WrappedJob.Run() })
	jobs.Start()
	a.onStop("housekeeping", func(stop context.Context) error {
		cancel()
		running := jobs.Stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			first.Wait()
			<-running.Done()
		}()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return stop.Err()
		}
	})
	return nil
}

func (a *App) keepHouse(ctx context.Context, store partitions) {
	ctx, cancel := context.WithTimeout(ctx, housekeepingLimit)
	defer cancel()
	now := time.Now()
	if err := store.EnsurePartitions(ctx, now); err != nil && ctx.Err() == nil {
		a.log.Warn("partitions could not be made; the next hour tries again", "error", err)
	}
	dropped, err := store.DropPartitions(ctx, now.Add(-a.config().Retention.Raw.D()))
	if err != nil && ctx.Err() == nil {
		a.log.Warn("old observations could not be dropped; the next hour tries again", "error", err)
	}
	if dropped > 0 {
		a.log.Info("old observations dropped", "days", dropped)
	}
}

// cronLogger passes on what cron reports; its routine is nobody's business.
type cronLogger struct{ log *slog.Logger }

func (l cronLogger) Info(msg string, kv ...any) { l.log.Debug("cron", append(kv, "what", msg)...) }

func (l cronLogger) Error(err error, msg string, kv ...any) {
	l.log.Error("a scheduled job failed", append(kv, "what", msg, "error", err)...)
}
