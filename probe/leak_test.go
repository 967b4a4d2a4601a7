package probe_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// left is what this process holds.
type left struct {
	goroutines, descriptors int
	heap, objects           uint64
}

// held counts what this process holds; descriptors where the system tells them.
func held() left {
	var l left
	l.goroutines = runtime.NumGoroutine()
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.descriptors = len(fds)
	}
	return l
}

// awaited waits until cond holds, at most 10 s, and reports whether it does.
func awaited(t *testing.T, cond func() bool) bool {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !cond(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// tracked counts connections that are not closed.
type tracked struct {
	*net.TCPConn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *tracked) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.TCPConn.Close()
}

// TestNothingLeft makes 10 000 probes of relays of all kinds, many at once, and
// holds that no goroutine and no socket is left after any of 20 sweeps, and that
// the heap is no larger after the last ones than after the first. A timer that
// is never stopped, or a watch over a context that is never ended, is an object
// of the heap too.
//
// It is not parallel: it counts what the whole process holds.
func TestNothingLeft(t *testing.T) {
	const (
		sweeps, warm = 20, 3
		each, atOnce = 500, 250
	)
	options := relaytest.Options{Slow: 30 * time.Millisecond, Drip: 10 * time.Millisecond}
	var started []*relaytest.Relay
	start := func(b relaytest.Behaviour, secure bool) *relaytest.Relay {
		o := options
		o.Behaviour, o.TLS, o.RedirectTo = b, secure, "http://127.0.0.1:1/"
		r := relaytest.Start(t, o)
		started = append(started, r)
		return r
	}
	var relays []monitor.RelayURL
	for b := relaytest.Healthy; b <= relaytest.Mute; b++ {
		relays = append(relays, start(b, b >= relaytest.TLSExpired && b <= relaytest.TLSSoonExpired).URL())
	}
	for _, tt := range hostileRelays {
		relays = append(relays, start(tt.b, tt.scheme == "wss").URL())
	}
	for _, tt := range hostileInfos {
		relays = append(relays, start(tt.b, false).URL())
	}
	healthy := start(relaytest.Healthy, true)
	names := relaytest.StartDNS(t, map[string]relaytest.Name{
		"good.example":   {Addrs: []netip.Addr{healthy.Addr().Addr(), netip.MustParseAddr("127.0.0.2")}},
		"silent.example": {Silent: true},
	})
	for _, name := range []string{"good", "silent", "missing"} {
		relays = append(relays, monitor.RelayURL(fmt.Sprintf("wss://%s.example:%d/", name, healthy.Addr().Port())))
	}
	relays = append(relays, "ws://"+monitor.RelayURL(relaytest.BlackHole(t).String())+"/", "ws://"+monitor.RelayURL(relaytest.ClosedPort(t).String())+"/")

	tiny := 40 * time.Millisecond
	cfg := probe.Config{
		Resolvers: []string{names.Addr().String()},
		Timeouts:  probe.Timeouts{DNS: tiny, TCP: tiny, TLS: tiny, Upgrade: tiny, Read: tiny, Info: tiny, Overall: 4 * tiny},
	}
	// Every other probe dials by the checker's own dialer, whose lost sockets the
	// garbage collector would close: the others are counted.
	var permits, open atomic.Int64
	checkers := []*probe.Checker{newChecker(t, cfg), nil}
	var d net.Dialer
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &tracked{TCPConn: conn.(*net.TCPConn), open: &open}, nil
	}
	checkers[1] = newChecker(t, cfg)
	var outcomes [monitor.OutcomeUnclear + 1]atomic.Int64
	next := 0
	sweep := func() {
		var wg sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		for range each {
			req := orders[next/len(relays)%len(orders)]
			req.Relay = relays[next%len(relays)]
			req.Admit = func(context.Context, netip.Addr) (func(), bool) {
				permits.Add(1)
				return func() { permits.Add(-1) }, true
			}
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if next%10 == 9 {
				ctx, cancel = context.WithTimeout(ctx, tiny/4)
			}
			c := checkers[next/3%2]
			next++
			slots <- struct{}{}
			wg.Go(func() {
				outcomes[c.Check(ctx, req).Outcome].Add(1)
				cancel()
				<-slots
			})
		}
		wg.Wait()
	}

	before := goleak.IgnoreCurrent()
	base := held()
	seen := make([]left, 0, sweeps)
	for i := range warm + sweeps {
		sweep()
		if n := open.Load(); n != 0 {
			t.Fatalf("sweep %d left %d connections open", i, n)
		}
		// The relays need a moment to see that they are alone; one whose reset was
		// lost, as a kernel that has too much to do loses some, must be told.
		now := base
		settled := func() bool {
			now = held()
			return now.goroutines <= base.goroutines && now.descriptors <= base.descriptors
		}
		if !awaited(t, settled) {
			for _, r := range started {
				r.Stop()
				if err := r.Restart(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !awaited(t, settled) {
			t.Fatalf("sweep %d left %d goroutines and %d descriptors; there were %d and %d before: %v", i, now.goroutines, now.descriptors, base.goroutines, base.descriptors, goleak.Find(before))
		}
		runtime.GC() // twice: pools are emptied by the second
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now.heap, now.objects = m.HeapInuse, m.HeapObjects
		if i >= warm {
			seen = append(seen, now)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	if n := permits.Load(); n != 0 {
		t.Errorf("%d permits were not given back", n)
	}
	for _, o := range []monitor.Outcome{monitor.OutcomeOK, monitor.OutcomeRefused, monitor.OutcomeRestricted, monitor.OutcomeFailed, monitor.OutcomeUnclear} {
		if outcomes[o].Load() == 0 {
			t.Errorf("no probe ended as %s", o)
		}
	}
	mean := func(of []left) (heap, objects uint64) {
		for _, l := range of {
			heap += l.heap / uint64(len(of))
			objects += l.objects / uint64(len(of))
		}
		return heap, objects
	}
	heap, objects := mean(seen[:5])
	lastHeap, lastObjects := mean(seen[sweeps-5:])
	// One object of each probe between would be 7 500.
	if lastObjects > objects+2500 || lastHeap > heap+1<<20 {
		t.Errorf("the heap grew from %d KiB in %d objects to %d KiB in %d", heap>>10, objects, lastHeap>>10, lastObjects)
	}
	t.Logf("%d probes: heap %d KiB in %d objects, at the end %d KiB in %d", next, heap>>10, objects, lastHeap>>10, lastObjects)
}
