package relay

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

func benchEvent(b *testing.B, i int, at int64, even bool) *monitor.SignedEvent {
	b.Helper()
	ev := nostr.Event{
		Kind: 30166, CreatedAt: nostr.Timestamp(at), PubKey: fmt.Sprintf("%064x", 7), ID: fmt.Sprintf("%032x%032x", at, i),
		Tags: nostr.Tags{{"d", fmt.Sprintf("wss://relay%05d.example.com/", i)}, {"n", "clearnet"}, {"rtt-open", "50"}, {"l", "online", "nip66.status"}},
	}
	for _, n := range []string{"1", "2", "4", "9", "11", "12", "16", "20", "22", "28", "33", "40", "42", "45", "50", "59", "65", "70", "77"} {
		ev.Tags = append(ev.Tags, nostr.Tag{"N", n})
	}
	auth := "!auth"
	if even {
		auth = "auth"
	}
	ev.Tags = append(ev.Tags, nostr.Tag{"R", auth})
	body, err := ev.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	return &monitor.SignedEvent{ID: ev.ID, Kind: 30166, Pubkey: ev.PubKey, D: ev.Tags.GetD(), CreatedAt: ev.CreatedAt.Time(), JSON: body}
}

// threadCPU is the CPU time of this thread: what a neighbour takes from us is
// not in it. getrusage tells the same, but only as of the last tick of the
// scheduler.
func threadCPU(b *testing.B) time.Duration {
	const threadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID; package syscall has no name for it
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		b.Fatal(errno)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkP7Replace is a replaced report at 30 000 stored; the bar is 50 µs.
// In a steady state at hourly reports a second brings 11 of them; the new
// generation is compared with the old one, once for all that it changes: that is
// part of what is measured, and told apart too. Where the tags change too, nearly always one
// of those that half of all reports have does.
func BenchmarkP7Replace(b *testing.B) {
	const stored = 30000
	for _, bc := range []struct {
		changes int
		tags    bool
	}{{1, false}, {11, false}, {11, true}} {
		name := fmt.Sprintf("%d_at_once", bc.changes)
		if bc.tags {
			name += "_with_other_tags"
		}
		b.Run(name, func(b *testing.B) {
			now := time.Now().Unix()
			g := &monitor.Generation{}
			for i := range stored {
				s := benchEvent(b, i, now-int64(i/19), i%2 == 0)
				g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(s.D), Report: s})
			}
			before := heap()
			x := newIndex()
			x.update(g)
			size := heap() - before
			runtime.LockOSThread() // CPU time is this thread's
			defer runtime.UnlockOSThread()
			var spent time.Duration
			n := 0
			for b.Loop() {
				b.StopTimer()
				now++
				for range bc.changes {
					i := (n * 7919) % stored
					g.Online[i].Report = benchEvent(b, i, now, (i%2 == 0) != (bc.tags && n/stored%2 == 0))
					n++
				}
				b.StartTimer()
				start := threadCPU(b)
				x.update(g)
				spent += threadCPU(b) - start
			}
			b.ReportMetric(float64(spent.Nanoseconds())/1000/float64(n), "cpu-µs/replace")
			start := threadCPU(b)
			for range 100 {
				x.update(g)
			}
			b.ReportMetric(float64((threadCPU(b)-start).Nanoseconds())/1e5, "cpu-µs/comparison")
			b.ReportMetric(float64(size)/1e6, "MB-index")
			if len(x.byID) != stored || len(x.byD) != stored || x.view.byKind[30166].len() != stored || len(x.tags.slots) != stored {
				b.Fatalf("%d events are left", len(x.byID))
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
