package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
)

// nothing is a store that is always there and keeps the vantages alone.
type nothing struct{ *store }

func (nothing) Ingest(context.Context, *monitor.Ingest) error { return nil }

// BenchmarkDeliver is one batch of 1 000 observations, of 20 000 relays that ten
// vantages watch, without the store: less than 5 ms.
func BenchmarkDeliver(b *testing.B) {
	const relays, vantages, batch = 20_000, 10, 1_000
	cfg := engine.Config{
		Liveness: monitor.DefaultLiveness(), Corroboration: monitor.DefaultCorroboration(), Cadence: monitor.DefaultCadence(),
		Pubkey: "us", Log: slog.New(slog.DiscardHandler),
	}
	all := make([]monitor.RelayURL, relays)
	for i := range all {
		all[i] = monitor.RelayURL(fmt.Sprintf("wss://relay%05d.example.com/", i))
		cfg.Relays = append(cfg.Relays, monitor.WatchedRelay{URL: all[i], Source: monitor.SourceConfig})
	}
	for i := range vantages {
		cfg.Vantages = append(cfg.Vantages, monitor.Vantage{Name: fmt.Sprint("v", i), Networks: []monitor.Network{monitor.Clearnet}})
	}
	e, err := engine.New(b.Context(), cfg, nothing{newStore()}, func([]monitor.SignedEvent) (engine.Publisher, error) {
		return &publisher{at: map[monitor.RelayURL]time.Time{}}, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	seq := uint64(0)
	obs := make([]monitor.Observation, batch)
	for b.Loop() {
		now := time.Now()
		for i := range obs {
			o := monitor.Observation{Relay: all[(int(seq)*batch+i)%relays], Vantage: "v3", Start: now, At: now, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead}
			if i%4 == 0 {
				o.Outcome, o.Stage, o.Cause = monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout
			}
			obs[i] = o
		}
		seq++
		if _, err := e.Deliver(b.Context(), monitor.Batch{Vantage: "v3", Seq: seq, SentAt: now, Observations: obs}); err != nil {
			b.Fatal(err)
		}
	}
}
