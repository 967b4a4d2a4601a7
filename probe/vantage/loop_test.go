package vantage

import (
	"log/slog"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// A relay that was woken for a permit and is taken off the list before it could
// use it must not leave the others asleep.
func TestUnusedPermitIsPassedOn(t *testing.T) {
	v, err := New(Config{Name: "here", PerIP: 1}, instant{}, nowhere{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(v, t.Context())
	now := wall()
	tasks := []monitor.Task{{Relay: "ws://20.0.0.1:1/"}, {Relay: "ws://20.0.0.1:2/"}, {Relay: "ws://20.0.0.1:3/"}}
	l.setTasks(tasks, now)
	for i, task := range tasks {
		l.plan(l.relays[task.Relay], now.Add(time.Duration(i)*time.Millisecond))
	}
	now = now.Add(time.Second)
	v.lag.start(time.Now())
	l.dispatch(now)
	if l.flying != 1 || l.permits.waiting != 2 {
		t.Fatalf("%d in flight, %d wait for a permit, want 1 and 2", l.flying, l.permits.waiting)
	}
	l.finish(<-l.results)
	l.pace.starts.tokens = 0
	v.lag.start(time.Now())
	l.dispatch(now)
	if ready, _ := l.backlog(); ready != 1 || l.flying != 0 {
		t.Fatalf("%d woken, %d in flight, want one that waits for the pace", ready, l.flying)
	}
	l.setTasks([]monitor.Task{tasks[0], tasks[2]}, now)
	if ready, _ := l.backlog(); ready != 1 || l.permits.waiting != 0 {
		t.Errorf("%d woken, %d wait, want the last one woken", ready, l.permits.waiting)
	}
}

func TestShiftMovesTheSchedule(t *testing.T) {
	v, err := New(Config{Name: "here", PerIP: 1}, instant{}, nowhere{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(v, t.Context())
	now := wall()
	l.setTasks([]monitor.Task{{Relay: "ws://20.0.0.1/"}}, now)
	w := l.relays["ws://20.0.0.1/"]
	due := now.Add(time.Minute)
	l.plan(w, due)
	w.record = monitor.Record{State: monitor.StateOnline, LastSuccess: now, SessionSuccess: now}
	l.shift(-time.Hour)
	if at, ok := l.heap.At(w.relay); !ok || !at.Equal(due.Add(-time.Hour)) || !w.due.Equal(at) {
		t.Errorf("due at %s on the heap, %s in the relay, want an hour before %s", at, w.due, due)
	}
	// Otherwise failures would be older than the last success for an hour (S22).
	if want := now.Add(-time.Hour); !w.record.SessionSuccess.Equal(want) || !w.record.BackoffUntil.IsZero() {
		t.Errorf("record %+v, want its times an hour earlier and none where there was none", w.record)
	}
}
