//go:build unix

package probe_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// BenchmarkP2Sweep probes 1000 healthy relays and 430 that answer no connection
// attempt, all at once, each stage with 3 s (performance.md P2). x-limit is the
// ratio of the whole to those 3 s; the bar is 1.15.
func BenchmarkP2Sweep(b *testing.B) {
	const limit = 3 * time.Second
	p := relaytest.StartProcess(b, relaytest.ProcessOptions{Plain: 1000, BlackHoles: 430})
	took, _ := benchmarkP2(b, p, p.Plain, "ws", 2000, 0, probe.Timeouts{
		DNS: limit, TCP: limit, TLS: limit, Upgrade: limit, Read: limit, Info: limit, Overall: 4 * limit,
	})
	b.ReportMetric(took.Seconds()/limit.Seconds(), "x-limit")
}

// BenchmarkP2TLS probes 10 000 TLS relays that are 80 ms away, 3000 of which
// answer no connection attempt, 4000 at a time (performance.md P2): the bar is
// 20 s and 192 MiB. The relays share the machine, so 1000 probes start in a
// second, as the pace of a vantage would have it at the most, and what is not
// the connection has wide limits: P3 is about the pace itself.
func BenchmarkP2TLS(b *testing.B) {
	const wide = 15 * time.Second
	p := relaytest.StartProcess(b, relaytest.ProcessOptions{TLS: 7000, BlackHoles: 3000, RTT: 80 * time.Millisecond})
	_, resident := benchmarkP2(b, p, p.TLS, "wss", 4000, 1000, probe.Timeouts{
		DNS: wide, TCP: 3 * time.Second, TLS: wide, Upgrade: wide, Read: wide, Info: wide, Overall: 4 * wide,
	})
	b.ReportMetric(float64(resident)/(1<<20), "peak-MiB")
}

// benchmarkP2 sweeps once an iteration over the relays and the black holes of p,
// mixed evenly, atOnce of them in flight and rate starting in a second (0 = no
// bound). wrong are healthy relays that are called failed, and dead ones that are
// called anything but failed or unclear: on a machine that is busy with other
// things there are some, since no vantage watches its own lag here. It returns how
// long the last iteration took and the most memory that was resident meanwhile.
func benchmarkP2(b *testing.B, p *relaytest.Process, healthy []monitor.RelayURL, scheme string, atOnce int, rate float64, limits probe.Timeouts) (took time.Duration, resident int64) {
	b.Helper()
	type target struct {
		relay monitor.RelayURL
		dead  bool
	}
	targets := make([]target, len(healthy)+len(p.BlackHoles))
	for i := range targets {
		// The dead ones are spread by Bresenham's rule.
		if n := len(p.BlackHoles); (i+1)*n/len(targets) > i*n/len(targets) {
			targets[i] = target{monitor.RelayURL(scheme + "://" + p.BlackHoles[i*n/len(targets)].String() + "/"), true}
		} else {
			targets[i] = target{relay: healthy[i-i*n/len(targets)]}
		}
	}
	for b.Loop() {
		debug.FreeOSMemory()
		c := newChecker(b, probe.Config{Roots: p.Roots, Timeouts: limits}) // remembers no failure
		var unclear, wrong, next atomic.Int64
		ctx, cancel := context.WithCancel(b.Context())
		var watch sync.WaitGroup
		watch.Go(func() { resident = peakRSS(ctx) })
		start := time.Now()
		var wg sync.WaitGroup
		for range atOnce {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(targets); i = int(next.Add(1)) - 1 {
					if rate > 0 {
						<-time.After(time.Until(start.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
					}
					t := targets[i]
					o := c.Check(ctx, probe.Request{Relay: t.relay, Info: true, LastOutcome: monitor.OutcomeOK})
					good := o.Outcome == monitor.OutcomeOK && o.Info != nil && o.Info.Problem == ""
					if t.dead {
						good = class(o) == "failed/tcp/timeout"
					}
					switch {
					case good:
					case o.Outcome == monitor.OutcomeUnclear:
						unclear.Add(1)
					case wrong.Add(1) <= 3:
						b.Log(failure{o})
					}
				}
			})
		}
		wg.Wait()
		took = time.Since(start)
		cancel()
		watch.Wait()
		b.ReportMetric(took.Seconds(), "s/sweep")
		b.ReportMetric(float64(len(targets))/took.Seconds(), "probes/s")
		b.ReportMetric(float64(wrong.Load()), "wrong")
		b.ReportMetric(float64(unclear.Load()), "unclear")
	}
	b.ReportMetric(0, "ns/op") // s/sweep says it
	return took, resident
}

// peakRSS looks at this process's resident memory, in bytes, until ctx ends, and
// returns the most that it saw; 0 where the system does not tell.
func peakRSS(ctx context.Context) (peak int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile("/proc/self/statm")
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			peak = max(peak, pages*int64(os.Getpagesize()))
		}
		select {
		case <-ctx.Done():
			return peak
		case <-tick.C:
		}
	}
}

// BenchmarkP4Memory holds 2000 probes in the read stage, by relays that opened
// the WebSocket and say nothing, and reports what each costs (performance.md P4):
// KiB/probe is objects of the heap and stacks; the bar is 24 for one over TLS.
// span-KiB/probe counts the heap's half-empty spans too, which handshakes before
// and after share.
func BenchmarkP4Memory(b *testing.B) {
	const n = 2000
	for _, bb := range []struct {
		name   string
		o      relaytest.ProcessOptions
		writes int64 // up to REQ
	}{
		{"Plain", relaytest.ProcessOptions{Plain: n, Behaviour: relaytest.Mute}, 2},
		{"TLS", relaytest.ProcessOptions{TLS: n, Behaviour: relaytest.Mute}, 4},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := relaytest.StartProcess(b, bb.o)
			for b.Loop() {
				holdProbes(b, p, append(p.Plain, p.TLS...), bb.writes)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// holdProbes holds one probe of each relay in the read stage, and reports what
// they take.
func holdProbes(b *testing.B, p *relaytest.Process, relays []monitor.RelayURL, writes int64) {
	b.Helper()
	const patience = time.Minute
	var asked atomic.Int64
	var d net.Dialer
	all := make(chan struct{})
	// As a vantage paces its starts, few are in their handshake at one time.
	opening := make(chan struct{}, 50)
	c := newChecker(b, probe.Config{
		Roots:    p.Roots,
		Timeouts: probe.Timeouts{TCP: patience, TLS: patience, Upgrade: patience, Read: patience, Overall: patience},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &asking{TCPConn: conn.(*net.TCPConn), left: writes, asked: func() {
				<-opening
				if asked.Add(1) == int64(len(relays)) {
					close(all)
				}
			}}, nil
		},
	})
	before, spansBefore := inUse()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	late := time.After(patience)
	for _, u := range relays {
		select {
		case opening <- struct{}{}:
		case <-late:
			b.Fatalf("%d of %d probes wait for an answer", asked.Load(), len(relays))
		}
		wg.Go(func() { c.Check(ctx, probe.Request{Relay: u}) })
	}
	select {
	case <-all:
	case <-late:
		b.Fatalf("%d of %d probes wait for an answer", asked.Load(), len(relays))
	}
	after, spansAfter := inUse()
	b.ReportMetric(float64(after-before)/float64(len(relays))/1024, "KiB/probe")
	b.ReportMetric(float64(spansAfter-spansBefore)/float64(len(relays))/1024, "span-KiB/probe")
	cancel()
	wg.Wait()
}

// inUse is what the objects on this process's heap and its stacks take now, and
// what the spans do that hold them.
func inUse() (objects, spans int64) {
	for range 5 { // each halves the stacks that are larger than they need be
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), int64(m.HeapInuse + m.StackInuse)
}

// asking tells when the last of so many writes was done.
type asking struct {
	*net.TCPConn
	left  int64
	asked func()
}

func (c *asking) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if c.left--; c.left == 0 {
		c.asked()
	}
	return n, err
}
