//go:build unix

package probe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip11"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// The benchmarks of performance.md P1: CPU time of this process per probe of a
// healthy relay, all checks, beside the floor of the same run. The relays run
// in a process of their own. x-floor is the ratio to the two-connection floor:
// the bar is 1.5 plain and 0.75 TLS. GoNostr is what a program that uses go-nostr
// as its README shows does for the same: connect, query, fetch NIP-11.

func BenchmarkP1Plain(b *testing.B) {
	p := relaytest.StartProcess(b, relaytest.ProcessOptions{Plain: 200})
	benchmarkP1(b, p, p.Plain, relaytest.Floor{Timeout: 10 * time.Second})
}

func BenchmarkP1TLS(b *testing.B) {
	p := relaytest.StartProcess(b, relaytest.ProcessOptions{TLS: 200})
	benchmarkP1(b, p, p.TLS, relaytest.Floor{TLS: true, Timeout: 10 * time.Second})
}

func benchmarkP1(b *testing.B, p *relaytest.Process, relays []monitor.RelayURL, floor relaytest.Floor) {
	classical := floor
	classical.Curves = []tls.CurveID{tls.X25519}
	c := newChecker(b, probe.Config{Roots: p.Roots, Timeouts: probe.DefaultTimeouts()})
	check := func(req probe.Request) error {
		if o := c.Check(b.Context(), req); o.Outcome != monitor.OutcomeOK || req.Info && (o.Info == nil || o.Info.Problem != "") {
			return failure{o}
		}
		return nil
	}
	var base float64
	for _, bb := range []struct {
		name string
		run  func(monitor.RelayURL) error
	}{
		{"Floor2", func(u monitor.RelayURL) error { return floor.Two(u.HostPort()) }},
		{"Floor1", func(u monitor.RelayURL) error { return classical.One(u.HostPort()) }},
		{"Probe", func(u monitor.RelayURL) error {
			return check(probe.Request{Relay: u, Info: true, LastOutcome: monitor.OutcomeOK})
		}},
		{"ProbeFirst", func(u monitor.RelayURL) error { return check(probe.Request{Relay: u, Info: true}) }},
		{"GoNostr", goNostr(b, p.Roots)},
		{"ProbeNoInfo", func(u monitor.RelayURL) error { return check(probe.Request{Relay: u}) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for _, u := range relays { // certificates are made, pools are filled
				if err := bb.run(u); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			start := cpu(b)
			var next atomic.Int64
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := bb.run(relays[i%int64(len(relays))]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			perOp := (cpu(b) - start).Seconds() * 1e6 / float64(b.N)
			b.ReportMetric(perOp, "cpu-us/op")
			if bb.name == "Floor2" {
				base = perOp
			}
			b.ReportMetric(perOp/base, "x-floor")
		})
	}
}

// goNostr returns a naive probe by go-nostr.
func goNostr(b *testing.B, roots *x509.CertPool) func(monitor.RelayURL) error {
	// It goes over the standard library's default transport, which keeps
	// connections: they are closed in the end.
	transport := http.DefaultTransport.(*http.Transport)
	saved := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	gonostr.InfoLogger.SetOutput(io.Discard)
	b.Cleanup(func() {
		transport.CloseIdleConnections()
		transport.TLSClientConfig = saved
	})
	return func(u monitor.RelayURL) error {
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		r, err := gonostr.RelayConnect(ctx, string(u))
		if err != nil {
			return err
		}
		events, err := r.QuerySync(ctx, gonostr.Filter{Kinds: []int{1}, Limit: 1})
		r.Close()
		if err != nil {
			return err
		}
		if len(events) != 1 {
			return fmt.Errorf("%s: %d events", u, len(events))
		}
		_, err = nip11.Fetch(ctx, string(u))
		return err
	}
}

// failure is an observation that should have been ok.
type failure struct{ o monitor.Observation }

func (f failure) Error() string { return string(f.o.Relay) + ": " + class(f.o) + ": " + f.o.Evidence }

// cpu is the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
