package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// fleet returns n vantages in groups of their own, all of them fit to vote, and
// what they saw of one relay: up at most, down at a fifth.
func fleet(n int, now time.Time) ([]monitor.Vantage, []monitor.VantageRelay) {
	vantages := make([]monitor.Vantage, n)
	seen := make([]monitor.VantageRelay, n)
	for i := range vantages {
		vantages[i] = monitor.Vantage{
			Name: fmt.Sprintf("vantage-%02d", i), Group: fmt.Sprintf("provider-%02d", i),
			Networks: []monitor.Network{monitor.Clearnet}, LastSeen: now,
		}
		r := monitor.Record{State: monitor.StateOnline, LastSuccess: now.Add(-time.Minute), OnlineSince: now.Add(-time.Hour)}
		o, cause := monitor.OutcomeOK, monitor.CauseNone
		if i%5 == 4 {
			r = monitor.Record{
				State: monitor.StateOffline, FailureCount: 4, Corroborated: true,
				FirstFailure: now.Add(-5 * time.Minute), LastFailure: now.Add(-2 * time.Minute),
			}
			o, cause = monitor.OutcomeFailed, monitor.CauseTimeout
		}
		seen[i] = monitor.VantageRelay{Record: r, Outcome: o, Cause: cause, At: now.Add(-time.Minute), NextDue: now.Add(time.Minute)}
	}
	return vantages, seen
}

func BenchmarkBallots(b *testing.B) {
	c := monitor.DefaultCorroboration()
	vantages, seen := fleet(10, day0)
	var buf []monitor.Ballot
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendBallots(buf[:0], "wss://relay.example/", vantages, seen, day0)
	}
}

// BenchmarkDecide is one relay's share of a round: ballots, verdict, brake.
func BenchmarkDecide(b *testing.B) {
	c := monitor.DefaultCorroboration()
	brake := c.Brake()
	vantages, seen := fleet(10, day0)
	s := monitor.Situation{WatchingSince: day0.Add(-time.Hour)}
	var buf []monitor.Ballot
	v := monitor.Verdict{State: monitor.StateOnline, Since: day0.Add(-time.Hour)}
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendBallots(buf[:0], "wss://relay.example/", vantages, seen, day0)
		next := c.Decide(v, buf, s, day0)
		v = brake.Apply(v, next, monitor.Pending(v, buf), false, false, day0)
	}
}

func BenchmarkDueHeap(b *testing.B) {
	const n = 50_000
	var h monitor.DueHeap
	relays := make([]monitor.RelayURL, n)
	for i := range relays {
		relays[i] = monitor.RelayURL(fmt.Sprintf("wss://relay-%05d.example/", i))
		h.Set(relays[i], day0.Add(time.Duration(i*7919%n)*time.Millisecond))
	}
	b.Run("pop and set", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			relay, due, _ := h.Pop(day0.Add(1 << 60))
			h.Set(relay, due.Add(5*time.Minute))
		}
	})
	b.Run("set", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i = (i + 7919) % n
			h.Set(relays[i], day0.Add(time.Duration(i)*time.Second))
		}
	})
}

func BenchmarkNext(b *testing.B) {
	c := monitor.DefaultCadence()
	r := monitor.Record{State: monitor.StateOnline, LastSuccess: day0}
	b.ReportAllocs()
	for b.Loop() {
		c.Next(r, r, "wss://relay.example/", "local", monitor.Task{}, monitor.OutcomeOK, 0, day0)
	}
}
