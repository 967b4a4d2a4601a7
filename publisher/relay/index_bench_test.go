package relay

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
)

func benchEvent(b *testing.B, i int, at int64) *monitor.SignedEvent {
	b.Helper()
	ev := nostr.Event{
		Kind: 30166, CreatedAt: nostr.Timestamp(at), PubKey: fmt.Sprintf("%064x", 7), ID: fmt.Sprintf("%032x%032x", at, i),
		Tags: nostr.Tags{{"d", fmt.Sprintf("wss://relay%05d.example.com/", i)}, {"n", "clearnet"}, {"rtt-open", "50"}, {"l", "online", "nip66.status"}},
	}
	for _, n := range []string{"1", "2", "4", "9", "11", "12", "16", "20", "22", "28", "33", "40", "42", "45", "50", "59", "65", "70", "77"} {
		ev.Tags = append(ev.Tags, nostr.Tag{"N", n})
	}
	body, err := ev.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	return &monitor.SignedEvent{ID: ev.ID, Kind: 30166, Pubkey: ev.PubKey, D: ev.Tags.GetD(), CreatedAt: ev.CreatedAt.Time(), JSON: body}
}

// threadCPU is the CPU time of this thread: what a neighbour takes from us is
// not in it.
func threadCPU(b *testing.B) time.Duration {
	const rusageThread = 1 // Linux; package syscall has no name for it
	var ru syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkP7Replace is a replaced report at 30 000 stored; the bar is 50 µs.
// In a steady state at hourly reports a second brings 11 of them; the new
// generation is compared with the old one, once for all that it changes, and
// that is part of what is measured.
func BenchmarkP7Replace(b *testing.B) {
	const stored = 30000
	for _, changes := range []int{1, 11} {
		b.Run(fmt.Sprintf("%d_at_once", changes), func(b *testing.B) {
			now := time.Now().Unix()
			g := &monitor.Generation{}
			for i := range stored {
				s := benchEvent(b, i, now-int64(i/19))
				g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(s.D), Report: s})
			}
			x := newIndex()
			x.update(g)
			runtime.LockOSThread() // CPU time is this thread's
			defer runtime.UnlockOSThread()
			var spent time.Duration
			n := 0
			for b.Loop() {
				b.StopTimer()
				now++
				for range changes {
					i := (n * 7919) % stored
					g.Online[i].Report = benchEvent(b, i, now)
					n++
				}
				b.StartTimer()
				start := threadCPU(b)
				x.update(g)
				spent += threadCPU(b) - start
			}
			b.ReportMetric(float64(spent.Nanoseconds())/1000/float64(n), "cpu-µs/replace")
			if len(x.byID) != stored || len(x.byD) != stored || x.view.byKind[30166].len() != stored {
				b.Fatalf("%d events are left", len(x.byID))
			}
		})
	}
}
