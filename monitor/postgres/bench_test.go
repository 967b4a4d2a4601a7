package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// BenchmarkP10Ingest stores batches of 1 000 observations: by bare COPY in a
// transaction of its own each, by Ingest, and by Ingest with the records that
// belong to them. The bar is on the second against the first.
func BenchmarkP10Ingest(b *testing.B) {
	const relays = 1000
	s, conn := openTest(b)
	ctx := context.WithoutCancel(b.Context())
	at := time.Now().UTC()
	if err := s.Enrol(ctx, monitor.Vantage{Name: "a", Enrolled: at}); err != nil {
		b.Fatal(err)
	}
	var watched []monitor.WatchedRelay
	records := map[monitor.RelayURL]monitor.VantageRelay{}
	batch := monitor.Batch{Vantage: "a"}
	for i := range relays {
		u := monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", i))
		watched = append(watched, monitor.WatchedRelay{URL: u, Source: monitor.SourceConfig, FirstSeen: at})
		batch.Observations = append(batch.Observations, typical(u, i, i, at))
		records[u] = monitor.VantageRelay{Record: monitor.Record{State: monitor.StateOnline, LastSuccess: at}, Outcome: monitor.OutcomeOK, At: at, Newest: at}
	}
	if err := s.Watch(ctx, watched); err != nil {
		b.Fatal(err)
	}
	rate := func(b *testing.B) { b.ReportMetric(float64(b.N)*relays/b.Elapsed().Seconds(), "rows/s") }

	b.Run("bare COPY", func(b *testing.B) {
		tx, err := conn.Begin(ctx)
		if err != nil {
			b.Fatal(err)
		}
		ids, err := s.relayIDs(ctx, tx, urlsOf(watched))
		if err != nil {
			b.Fatal(err)
		}
		if err := tx.Rollback(ctx); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			tx, err := conn.Begin(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := copyObservations(ctx, tx, &batch, 1, ids); err != nil {
				b.Fatal(err)
			}
			if err := tx.Commit(ctx); err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	for name, records := range map[string]map[monitor.RelayURL]monitor.VantageRelay{"Ingest": nil, "Ingest with records": records} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				batch.Seq++
				if err := s.Ingest(ctx, &monitor.Ingest{Batch: batch, Records: records}); err != nil {
					b.Fatal(err)
				}
			}
			rate(b)
		})
	}
}

// BenchmarkP10RelayDay reads one relay's day of 288 observations out of 144 000.
func BenchmarkP10RelayDay(b *testing.B) {
	s, conn := openTest(b)
	first := fill(b, s, conn, 500, 1, 288)
	for b.Loop() {
		got, err := s.Observations(context.WithoutCancel(b.Context()), monitor.ObservationQuery{
			Relay: "wss://r77.example/", From: first, To: first.AddDate(0, 0, 1), Limit: 10_000,
		})
		if err != nil || len(got) != 288 {
			b.Fatal(len(got), err)
		}
	}
}

func urlsOf(relays []monitor.WatchedRelay) []monitor.RelayURL {
	var out []monitor.RelayURL
	for _, r := range relays {
		out = append(out, r.URL)
	}
	return out
}
