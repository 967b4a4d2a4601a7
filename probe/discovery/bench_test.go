//go:build unix

package discovery_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/discovery"
)

// BenchmarkSweep reads the lists of 2 000 authors, 8 relays in each, over
// loopback: how many events a second of one core, the source's work included,
// and what an author takes in memory.
func BenchmarkSweep(b *testing.B) {
	const authors = 2000
	source := &relay{}
	server := httptest.NewServer(source)
	defer server.Close()
	source.url = monitor.RelayURL("ws" + strings.TrimPrefix(server.URL, "http") + "/")
	now := time.Now()
	for n := range authors {
		var names []string
		for i := range 8 {
			names = append(names, fmt.Sprintf("wss://relay-%d.example.com", (n*i)%500))
		}
		source.add(naming(b, n, 10002, now.Add(-time.Duration(n)*time.Minute), names...))
	}
	cfg := discovery.Config{Sources: []monitor.RelayURL{source.url}, Client: server.Client(), AllowNetworks: loopback}
	defer cfg.Client.CloseIdleConnections()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	var took time.Duration
	var bytes float64
	for b.Loop() {
		before := heap()
		d, err := discovery.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		start := cpu()
		s, err := d.Sweep(b.Context())
		took += cpu() - start
		if err != nil || s.Authors != authors {
			b.Fatalf("%v: %+v", err, s.Sources)
		}
		s = monitor.Sweep{}
		if after := heap(); after > before {
			bytes += float64(after - before)
		}
		runtime.KeepAlive(d)
	}
	b.ReportMetric(float64(b.N)*authors/took.Seconds(), "events/cpu-s")
	b.ReportMetric(bytes/float64(b.N)/authors, "B/author")
}
