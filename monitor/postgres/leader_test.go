package postgres

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// cut ends the leader's session from the server's side.
func cut(t *testing.T, url string) {
	t.Helper()
	conn := connectTest(t, url)
	n := query[int64](t, conn, `SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'pharos leader%'`)[0]
	if n != 1 {
		t.Fatalf("%d leaders", n)
	}
}

func tryUntil(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, monitor.ErrUnavailable) {
			t.Fatalf("not ErrUnavailable: %v", err)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

func TestOneLeader(t *testing.T) {
	t.Parallel()
	url := TestDatabase(t)
	first, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{URL: url, LockWait: time.Millisecond})
	if !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("a second leader: %v", err)
	}
	first.Close()
	second, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestLeaderComesBack(t *testing.T) {
	t.Parallel()
	url := TestDatabase(t)
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := time.Now()
	for generation := uint64(1); generation <= 3; generation++ {
		d := &monitor.Decision{At: at, Generation: generation}
		cut(t, url)
		if err := s.Commit(t.Context(), d); !errors.Is(err, monitor.ErrUnavailable) {
			t.Errorf("commit on a lost connection: %v", err)
		}
		tryUntil(t, func() error { return s.Commit(t.Context(), d) })
	}
	got, err := s.Load(t.Context())
	if err != nil || got.Generation != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Open(t.Context(), Config{URL: url, LockWait: time.Millisecond}); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("the lock was not taken again: %v", err)
	}
}

// A core that lost its lock to another knows less than the database: it writes
// nothing any more, whether the other still leads or has gone.
func TestOustedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"the other still leads": false, "the other has gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := TestDatabase(t)
			old, err := Open(t.Context(), Config{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			cut(t, url)
			other, err := Open(t.Context(), Config{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if gone {
				other.Close()
			}
			d := &monitor.Decision{Generation: 5}
			if err := old.Commit(t.Context(), d); !errors.Is(err, monitor.ErrUnavailable) {
				t.Errorf("the first commit after: %v", err)
			}
			for range 2 {
				if err := old.Commit(t.Context(), d); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "anew") {
					t.Errorf("later: %v", err)
				}
			}
			if got := query[int64](t, connectTest(t, url), "SELECT generation FROM core")[0]; got != 0 {
				t.Errorf("generation %d was stored", got)
			}
		})
	}
}
