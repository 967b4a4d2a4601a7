package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
)

// BenchmarkDiscover takes a sweep that found 20 000 relays, and one that found
// 100 000, into an engine of 5 000 whose store takes no time. longest-wait-ms is the
// longest that a batch waited meanwhile: the bar is 100 ms.
func BenchmarkDiscover(b *testing.B) {
	for _, found := range []int{20_000, 100_000} {
		b.Run(fmt.Sprint(found), func(b *testing.B) {
			var longest time.Duration
			for b.Loop() {
				b.StopTimer()
				cfg := engine.Config{
					Liveness: monitor.DefaultLiveness(), Corroboration: monitor.DefaultCorroboration(), Cadence: monitor.DefaultCadence(),
					Freshness: monitor.DefaultFreshness(), Pubkey: "us", Log: slog.New(slog.DiscardHandler), MaxRelays: 20_000, MaxPerHost: 20,
					Vantages: []monitor.Vantage{{Name: "a", Networks: []monitor.Network{monitor.Clearnet}}},
				}
				for i := range 5000 {
					cfg.Relays = append(cfg.Relays, monitor.WatchedRelay{URL: monitor.RelayURL(fmt.Sprintf("wss://relay%05d.example.com/", i)), Source: monitor.SourceConfig})
				}
				e, err := engine.New(b.Context(), cfg, &forgetful{}, func([]monitor.SignedEvent) (engine.Publisher, error) {
					return &publisher{at: map[monitor.RelayURL]time.Time{}}, nil
				})
				if err != nil {
					b.Fatal(err)
				}
				s := &monitor.Sweep{At: time.Now(), Whole: true}
				for i := range found {
					s.Found = append(s.Found, monitor.FoundRelay{URL: monitor.RelayURL(fmt.Sprintf("wss://host%05d.example.net/%d", i/25, i)), Kinds: []int{3}, Authors: i % 100})
				}
				var over atomic.Bool
				waited := make(chan time.Duration)
				go func() { waited <- waits(b.Context(), e, &over) }()
				b.StartTimer()
				if _, err := e.Discover(b.Context(), s); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				over.Store(true)
				longest = max(longest, <-waited)
				b.StartTimer()
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-wait-ms")
		})
	}
}

// waits hands over empty batches, one after the other, until it is over, and returns
// the longest that one took.
func waits(ctx context.Context, e *engine.Engine, over *atomic.Bool) (longest time.Duration) {
	for seq := uint64(1); !over.Load(); seq++ {
		began := time.Now()
		if _, err := e.Deliver(ctx, monitor.Batch{Vantage: "a", Seq: seq, SentAt: began}); err != nil {
			return time.Hour // told as it is: nothing came through
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}
