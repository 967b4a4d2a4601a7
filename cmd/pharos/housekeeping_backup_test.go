package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// fakeBackups writes what is no backup, as often as it is asked to.
type fakeBackups struct {
	*dailyBackup
	made []time.Time
	fail error
	room uint64
}

func newFakeBackups(t *testing.T) *fakeBackups {
	t.Helper()
	f := &fakeBackups{room: 1 << 30}
	f.dailyBackup = &dailyBackup{
		dir: filepath.Join(t.TempDir(), "backups"), minFree: func() float64 { return 0.05 }, log: slog.New(slog.DiscardHandler),
		free: func(string) (uint64, uint64, error) { return f.room, 1 << 31, nil },
		write: func(_ context.Context, to string) (int64, error) {
			f.made = append(f.made, time.Now().UTC())
			if f.fail != nil {
				return 0, f.fail
			}
			return 1000, os.WriteFile(to, make([]byte, 1000), 0o600)
		},
	}
	return f
}

// One soon after the start, then every night; three are kept, and what is not
// ours stays.
func TestDailyBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Default()
		a := &App{log: slog.New(slog.DiscardHandler)}
		a.cfg.Store(&c)
		f := newFakeBackups(t)
		if err := os.Mkdir(f.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"by-hand.tar", "pharos-daily-notes.txt", ".pharos-daily-20260101T034300Z.tar.1" + partSuffix} {
			if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now().UTC() // midnight
		if err := a.startHousekeeping(&fakePartitions{fail: func(int) error { return nil }}, f.dailyBackup); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * 24 * time.Hour)
		synctest.Wait()
		want := []time.Time{begun.Add(dailyBackupDelay)}
		for day := range 5 {
			want = append(want, begun.AddDate(0, 0, day).Add(3*time.Hour+43*time.Minute))
		}
		if d := cmp.Diff(want, f.made); d != "" {
			t.Errorf("made (-want +got): %s", d)
		}
		kept := []string{"by-hand.tar", postgres.DailyName(want[3]), postgres.DailyName(want[4]), postgres.DailyName(want[5]), "pharos-daily-notes.txt"}
		if d := cmp.Diff(kept, names(t, f.dir)); d != "" {
			t.Errorf("kept (-want +got): %s", d)
		}
		if !f.LastSuccess().Equal(want[5]) || f.Warning() != "" {
			t.Errorf("last success %s, warning %q", f.LastSuccess(), f.Warning())
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(24 * time.Hour)
		if len(f.made) != 6 {
			t.Errorf("after the stop it went on: %v", f.made)
		}
	})
}

// A start within a day of the newest backup waits for the night.
func TestDailyBackupIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeBackups(t)
		f.success = time.Now().Add(-23 * time.Hour)
		f.makeGood(t.Context(), func() { t.Error("it is made again") })
		f.success = time.Now().Add(-25 * time.Hour)
		ran := false
		f.makeGood(t.Context(), func() { ran = true })
		if !ran {
			t.Error("one of yesterday is not made good")
		}
	})
}

// What fails is a warning until the next success, and costs no backup that is
// there.
func TestDailyBackupFails(t *testing.T) {
	f := newFakeBackups(t)
	ctx := t.Context()
	f.run(ctx)
	good := names(t, f.dir)
	if len(good) != 1 || f.Warning() != "" {
		t.Fatalf("%v, %q", good, f.Warning())
	}
	for name, c := range map[string]struct {
		fail error
		room uint64
		says string
	}{
		"the dump":              {errors.New("pg_dump said no"), 1 << 30, "pg_dump said no"},
		"less than twice":       {nil, 1999, "the last backup took 1000 bytes: make room"},
		"less than must remain": {nil, 100 << 20, "retention.min_free_disk"},
	} {
		f.fail, f.room = c.fail, c.room
		f.run(ctx)
		if w := f.Warning(); !strings.Contains(w, "the daily backup failed (the newest is of ") || !strings.Contains(w, c.says) {
			t.Errorf("%s: %q", name, w)
		}
		if d := cmp.Diff(good, names(t, f.dir)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	f.failure, f.fail = nil, context.Canceled
	f.room = 1 << 30
	f.run(stopped)
	if w := f.Warning(); w != "" {
		t.Errorf("the end of the process is a failure: %q", w)
	}
}

// The app makes them for its private cluster alone, and only when asked to.
func TestDailyBackupOfApp(t *testing.T) {
	c := Default()
	a := &App{log: slog.New(slog.DiscardHandler), dir: "/data"}
	a.cfg.Store(&c)
	if b := a.dailyBackup(nil); b == nil || b.dir != "/data/backups" {
		t.Errorf("by default: %+v", b)
	}
	c.Database.BackupDir = "/mnt"
	if b := a.dailyBackup(nil); b == nil || b.dir != "/mnt" {
		t.Errorf("elsewhere: %+v", b)
	}
	c.Database.URL = "postgres://db/d"
	if b := a.dailyBackup(nil); b != nil {
		t.Errorf("of a server: %+v", b)
	}
	c.Database.URL, c.Database.Backup = "", "off"
	if b := a.dailyBackup(nil); b != nil {
		t.Errorf("switched off: %+v", b)
	}
}
