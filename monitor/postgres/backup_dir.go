package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The names of daily backups; nothing that is called otherwise is theirs.
const dailyName = "pharos-daily-20060102T150405Z.tar"

// DailyName is the name of the daily backup made at t.
func DailyName(t time.Time) string { return t.UTC().Format(dailyName) }

// DefaultBackupDir is where daily backups of the cluster in dataDir are kept.
func DefaultBackupDir(dataDir string) string { return filepath.Join(dataDir, "backups") }

// DailyBackup is one file of DailyBackups.
type DailyBackup struct {
	Path string
	Made time.Time // UTC, by its name
	Size int64     // bytes
}

// DailyBackups returns the daily backups in dir, newest first; none when there
// is no such directory.
func DailyBackups(dir string) ([]DailyBackup, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for backups: %w", err)
	}
	var all []DailyBackup
	for _, e := range entries {
		made, err := time.Parse(dailyName, e.Name())
		if err != nil || DailyName(made) != e.Name() || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it went in this moment
		}
		all = append(all, DailyBackup{Path: filepath.Join(dir, e.Name()), Made: made, Size: info.Size()})
	}
	slices.SortFunc(all, func(a, b DailyBackup) int { return b.Made.Compare(a.Made) })
	return all, nil
}

// explainVersion says what to do about data of another major version.
func (c *Cluster) explainVersion(err error) error {
	var other *otherMajorError
	if !errors.As(err, &other) {
		return err
	}
	dir := c.cfg.BackupDir
	if dir == "" {
		dir = DefaultBackupDir(c.dataDir)
	}
	backups, listErr := DailyBackups(dir)
	if listErr != nil || len(backups) == 0 {
		return fmt.Errorf("%w: the database in %s was made by PostgreSQL %d and only version %d is here: install PostgreSQL %d beside it and start Pharos again; to change to version %d, write a backup with the old programs, \"PHAROS_DATABASE_PG_BIN=DIRECTORY pharos backup FILE\" with the directory that holds PostgreSQL %d's initdb, and then run \"pharos restore FILE\", which keeps the old database beside the new one",
			other.Unwrap(), c.pgDir, other.data, other.here, other.data, other.here, other.data)
	}
	return fmt.Errorf("%w: the database in %s was made by PostgreSQL %d and only version %d is here: run \"pharos restore %s\", which builds a new database from that backup of %s and keeps the old one beside it, or install PostgreSQL %d beside version %d",
		other.Unwrap(), c.pgDir, other.data, other.here, backups[0].Path, backups[0].Made.Format("2006-01-02 15:04 UTC"), other.data, other.here)
}
