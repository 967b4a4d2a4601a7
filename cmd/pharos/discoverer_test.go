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

// sweeps notes when it was asked, and fails as told.
type sweeps struct {
	mu    sync.Mutex
	at    []time.Duration // since the start
	start time.Time
	fail  error
	takes time.Duration // how long one lasts
}

func (s *sweeps) Sweep(ctx context.Context) (monitor.Sweep, error) {
	s.mu.Lock()
	s.at = append(s.at, time.Since(s.start))
	fail, takes := s.fail, s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return monitor.Sweep{}, ctx.Err()
	}
	return monitor.Sweep{Start: time.Now().Add(-takes), At: time.Now()}, fail
}

func (s *sweeps) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// began is when sweeps began, of those before until.
func (s *sweeps) began(until time.Duration) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.at, func(d time.Duration) bool { return d >= until })
	if i < 0 {
		i = len(s.at)
	}
	return slices.Clone(s.at[:i])
}

func TestDiscoverer(t *testing.T) {
	errNobody := errors.New("nobody answered")
	for name, c := range map[string]struct {
		every, takes time.Duration
		sweep, take  error
		change       func(s *sweeps, d *discoverer) // after two hours
		want         []time.Duration                // within four hours
	}{
		"every hour":      {every: time.Hour, want: []time.Duration{10 * time.Second, time.Hour + 10*time.Second, 2*time.Hour + 10*time.Second, 3*time.Hour + 10*time.Second}},
		"a long sweep":    {every: time.Hour, takes: 90 * time.Minute, want: []time.Duration{10 * time.Second, 90*time.Minute + 10*time.Second, 180*time.Minute + 10*time.Second}},
		"off":             {every: 0},
		"off, then on":    {every: 0, change: func(_ *sweeps, d *discoverer) { d.configure(time.Hour) }, want: []time.Duration{2*time.Hour + 10*time.Second, 3*time.Hour + 10*time.Second}},
		"on, then off":    {every: time.Hour, change: func(_ *sweeps, d *discoverer) { d.configure(0) }, want: []time.Duration{10 * time.Second, time.Hour + 10*time.Second}},
		"sooner from now": {every: 3 * time.Hour, change: func(_ *sweeps, d *discoverer) { d.configure(90 * time.Minute) }, want: []time.Duration{10 * time.Second, 2 * time.Hour, 2*time.Hour + 90*time.Minute}},
		"nobody answers, then somebody does": {
			every: time.Hour, sweep: errNobody,
			change: func(s *sweeps, _ *discoverer) { s.set(nil) },
			want: append(minutes(0, 5, 120), // every five minutes until the change
				time.Duration(120)*time.Minute+10*time.Second, 180*time.Minute+10*time.Second),
		},
		"the core is away": {every: 2 * time.Hour, take: monitor.ErrUnavailable, want: minutes(0, 5, 240)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sweeps{start: time.Now(), fail: c.sweep, takes: c.takes}
				d := &discoverer{sweeper: s, log: slog.New(slog.DiscardHandler), take: func(context.Context, *monitor.Sweep) (monitor.DiscoveryStatus, error) {
					return monitor.DiscoveryStatus{}, c.take
				}}
				d.configure(c.every)
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- d.run(ctx) }()
				<-time.After(2 * time.Hour)
				if c.change != nil {
					c.change(s, d)
				}
				<-time.After(2 * time.Hour)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if got := s.began(4 * time.Hour); !slices.Equal(got, c.want) {
					t.Errorf("sweeps began at %v, want %v", got, c.want)
				}
			})
		})
	}
}

// minutes are ten seconds behind every so many minutes.
func minutes(from, every, below int) []time.Duration {
	var out []time.Duration
	for m := from; m < below; m += every {
		out = append(out, time.Duration(m)*time.Minute+10*time.Second)
	}
	return out
}
