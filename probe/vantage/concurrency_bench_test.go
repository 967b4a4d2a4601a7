package vantage_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
	"github.com/pharos-nostr/pharos/probe/vantage"
)

// BenchmarkP3TooMuchConcurrency lets a vantage with ten times the shipped
// concurrency, no other limit and no patience at all loose on 4000 healthy TLS
// relays on the same machine: not one may be called failed (performance.md P3).
func BenchmarkP3TooMuchConcurrency(b *testing.B) {
	const relays = 4000
	p := relaytest.StartProcess(b, relaytest.ProcessOptions{TLS: relays})
	for b.Loop() {
		c := &core{}
		var ts []monitor.Task
		for _, u := range p.TLS {
			ts = append(ts, monitor.Task{Relay: u})
		}
		c.watch(ts...)
		checker, err := probe.New(probe.Config{Roots: p.Roots, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		if err != nil {
			b.Fatal(err)
		}
		cadence := monitor.DefaultCadence()
		cadence.Interval, cadence.FirstWithin = 10*time.Second, time.Second
		v, err := vantage.New(vantage.Config{
			Name: "here", Cadence: cadence, Rate: 100_000, BatchEvery: 100 * time.Millisecond,
			Networks: map[monitor.Network]int{monitor.Clearnet: 10_240}, PerIP: 10_240, PerSubnet: 10_240,
		}, checker, c, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		if err := v.Run(ctx); err != nil {
			b.Fatal(err)
		}
		cancel()
		took := time.Since(began)

		count := map[monitor.Outcome]int{}
		var open []time.Duration
		for _, o := range c.observations() {
			count[o.Outcome]++
			if o.Outcome == monitor.OutcomeOK {
				open = append(open, o.RTTOpen)
			}
		}
		if n := count[monitor.OutcomeFailed]; n > 0 {
			b.Errorf("%d healthy relays are called failed", n)
		}
		if len(open) == 0 {
			b.Fatal("no relay answered")
		}
		slices.Sort(open)
		b.ReportMetric(float64(count[monitor.OutcomeFailed]), "failed")
		b.ReportMetric(float64(count[monitor.OutcomeUnclear]), "unclear")
		b.ReportMetric(float64(count[monitor.OutcomeSkipped]), "skipped")
		b.ReportMetric(float64(count[monitor.OutcomeOK])/took.Seconds(), "ok/s")
		b.ReportMetric(float64(open[len(open)/2].Milliseconds()), "open-p50-ms")
		b.ReportMetric(float64(open[len(open)*99/100].Milliseconds()), "open-p99-ms")
	}
	b.ReportMetric(0, "ns/op") // the time is fixed
}
