package vantage

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

type instant struct{}

func (instant) HasRoots() bool { return true }

func (instant) Check(_ context.Context, req probe.Request) monitor.Observation {
	now := time.Now()
	return monitor.Observation{Relay: req.Relay, Start: now, At: now, Outcome: monitor.OutcomeOK}
}

type nowhere struct{}

func (nowhere) Tasks(context.Context, string, uint64) (monitor.Tasks, error) {
	return monitor.Tasks{}, nil
}

func (nowhere) Deliver(context.Context, monitor.Batch) (monitor.Answer, error) {
	return monitor.Answer{}, nil
}

// BenchmarkDispatch is all that the loop does for one probe of one of 50 000
// relays: heap, permits, pace, start, result, step, next slot, outbox.
func BenchmarkDispatch(b *testing.B) {
	const relays = 50_000
	v, err := New(Config{Name: "here", Rate: 1e9, QueueSize: 1000}, instant{}, nowhere{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	l := newLoop(v, b.Context())
	tasks := make([]monitor.Task, relays)
	for i := range tasks {
		tasks[i].Relay = benchRelay(i)
	}
	l.setTasks(tasks, wall())
	later := wall().Add(24 * time.Hour)
	for _, w := range l.relays {
		l.plan(w, later) // none but the one that is measured
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w := l.relays[tasks[i%relays].Relay]
		now := wall()
		l.plan(w, now)
		v.lag.start(time.Now()) // nothing ticks here, and nothing is late
		l.pace.starts.tokens = 1
		l.dispatch(now)
		l.finish(<-l.results)
		l.plan(w, later)
		i++
	}
}

// BenchmarkReplan is what the loop does every 5 s besides.
func BenchmarkReplan(b *testing.B) {
	v, err := New(Config{Name: "here"}, instant{}, nowhere{}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	l := newLoop(v, b.Context())
	tasks := make([]monitor.Task, 50_000)
	for i := range tasks {
		tasks[i].Relay = benchRelay(i)
	}
	l.setTasks(tasks, wall())
	for b.Loop() {
		l.replan()
	}
}

// benchRelay has a network of its own.
func benchRelay(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("ws://%d.%d.%d.1/", 20+i/65536, i/256%256, i%256))
}
