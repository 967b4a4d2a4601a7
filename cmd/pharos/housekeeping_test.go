package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// fakePartitions records what housekeeping asks for, and fails as told.
type fakePartitions struct {
	mu      sync.Mutex
	made    []time.Time
	dropped []time.Time
	fail    func(call int) error
}

func (f *fakePartitions) EnsurePartitions(_ context.Context, now time.Time) error {
	f.mu.Lock()
	f.made = append(f.made, now)
	call := len(f.made)
	f.mu.Unlock()
	return f.fail(call)
}

func (f *fakePartitions) DropPartitions(_ context.Context, olderThan time.Time) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = append(f.dropped, olderThan)
	return 1, nil
}

// calls returns what was asked for so far.
func (f *fakePartitions) calls() (made, dropped []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.made), slices.Clone(f.dropped)
}

// Housekeeping runs at once and then every hour, whatever one run came to: an
// error, or a panic.
func TestHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Default()
		a := &App{log: slog.New(slog.DiscardHandler)}
		a.cfg.Store(&c)
		store := &fakePartitions{fail: func(call int) error {
			switch call {
			case 1:
				return errors.Join(errors.New("make partitions"), monitor.ErrUnavailable)
			case 2:
				panic("broken")
			}
			return nil
		}}
		begun := time.Now()
		if err := a.startHousekeeping(store, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		made, dropped := store.calls()
		if len(made) != 1 || len(dropped) != 1 || !dropped[0].Equal(begun.Add(-c.Retention.Raw.D())) {
			t.Errorf("at the start: made %v, dropped before %v", made, dropped)
		}
		<-time.After(4 * time.Hour)
		synctest.Wait()
		made, dropped = store.calls()
		if len(made) != 5 || len(dropped) != 4 { // the second broke off in between
			t.Errorf("after four hours: made %v, dropped before %v", made, dropped)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(4 * time.Hour)
		if made, _ = store.calls(); len(made) != 5 {
			t.Errorf("after the stop it ran again: %v", made)
		}
	})
}
