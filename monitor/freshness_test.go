package monitor_test

import (
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestFreshnessJudge(t *testing.T) {
	good := monitor.ListState{Online: 1000, Fresh: 1000, Newest: day0}
	with := func(change func(*monitor.ListState)) monitor.ListState {
		s := good
		change(&s)
		return s
	}
	for _, tc := range []struct {
		name string
		s    monitor.ListState
		want monitor.Fallback
	}{
		{"good", good, monitor.FallbackNone},
		{"warming up goes first", with(func(s *monitor.ListState) { *s = monitor.ListState{WarmingUp: true, ClockWrong: true} }), monitor.FallbackWarmingUp},
		{"then the clock", with(func(s *monitor.ListState) { *s = monitor.ListState{ClockWrong: true} }), monitor.FallbackClock},
		{"80 % fresh", with(func(s *monitor.ListState) { s.Fresh = 800 }), monitor.FallbackNone},
		{"less fresh", with(func(s *monitor.ListState) { s.Fresh = 799 }), monitor.FallbackStale},
		{"newest four hours old", with(func(s *monitor.ListState) { s.Newest = day0.Add(-4 * time.Hour) }), monitor.FallbackNone},
		{"newest older", with(func(s *monitor.ListState) { s.Newest = day0.Add(-4*time.Hour - 1) }), monitor.FallbackStale},
		{"stale and small", monitor.ListState{Online: 3, Fresh: 1, Newest: day0}, monitor.FallbackStale},
		{"100 relays", monitor.ListState{Online: 100, Fresh: 100, Newest: day0}, monitor.FallbackNone},
		{"99 relays", monitor.ListState{Online: 99, Fresh: 99, Newest: day0}, monitor.FallbackTooFew},
		{"empty", monitor.ListState{}, monitor.FallbackTooFew},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := monitor.DefaultFreshness().Judge(tc.s, day0); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := (monitor.Freshness{MaxAge: time.Hour}).Judge(monitor.ListState{}, day0); got != monitor.FallbackTooFew {
		t.Errorf("an empty list without a lower limit: %q", got)
	}
	f := monitor.DefaultFreshness()
	for ago, want := range map[time.Duration]bool{-time.Second: true, 0: true, f.MaxAge: true, f.MaxAge + 1: false} {
		if f.Fresh(day0.Add(-ago), day0) != want {
			t.Errorf("%s ago: fresh is not %v", ago, want)
		}
	}
	if f.Fresh(time.Time{}, day0) {
		t.Error("no success is fresh")
	}
}
