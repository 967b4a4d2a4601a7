package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pharos-nostr/pharos/monitor/postgres"
)

type migrateCmd struct {
	DryRun bool `help:"Only name the migrations that would be run."`
}

// Run brings the schema up to date, or says what it would do. The private
// cluster is started for it when it does not run.
func (m *migrateCmd) Run(ctx context.Context, c *command) (err error) {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	url := cfg.Database.URL.Reveal()
	if url == "" {
		dir := cfg.dataDir(os.Getuid())
		if err := makeDataDir(dir); err != nil {
			return err
		}
		cluster, err := postgres.StartCluster(ctx, postgres.ClusterConfig{DataDir: dir, PgBin: cfg.Database.PgBin, BackupDir: cfg.Database.BackupDir, Log: c.log})
		if err != nil {
			return exitWith(exitStart, err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			err = errors.Join(err, cluster.Stop(ctx))
		}()
		url = cluster.URL()
	}
	names, err := postgres.Migrate(ctx, url, m.DryRun)
	if err != nil {
		return exitWith(exitStart, err)
	}
	if len(names) == 0 {
		_, err = fmt.Fprintln(c.stdout, "the schema is up to date")
		return err
	}
	verb := "ran"
	if m.DryRun {
		verb = "would run"
	}
	for _, n := range names {
		if _, err := fmt.Fprintln(c.stdout, verb, n); err != nil {
			return err
		}
	}
	return nil
}
