package vantage

import (
	"context"
	"math"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

const (
	lagTick    = 20 * time.Millisecond
	lagSamples = int(time.Minute / lagTick)
	// lagLimit: what was measured while we were later than this says nothing
	// about a relay (probe.md, Outcome).
	lagLimit = time.Second
	// starvedFrom: shorter delays are not summed up; a shared machine has them
	// all the time and no stage limit notices.
	starvedFrom = 100 * time.Millisecond
)

// lagMeter measures how late this process runs its goroutines: it sleeps for a
// short time again and again and looks how long that really took. Safe for
// concurrent use. Its times are monotonic: a set clock is no lag.
type lagMeter struct {
	mu       sync.Mutex
	samples  [lagSamples]time.Duration // a ring; a minute when nothing is late
	n        int                       // samples ever
	expected time.Time                 // when the next tick should be
	window   []time.Duration           // since the last take
	starved  time.Duration             // sum of all delays ≥ starvedFrom
	lateAt   time.Time                 // end of the newest delay > lagLimit
}

func newLagMeter(now time.Time) *lagMeter { return &lagMeter{expected: now.Add(lagTick)} }

// start says that the ticks begin now.
func (m *lagMeter) start(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expected = now.Add(lagTick)
}

// run ticks until ctx ends.
func (m *lagMeter) run(ctx context.Context) {
	t := time.NewTimer(lagTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		m.tick(time.Now())
		t.Reset(lagTick)
	}
}

func (m *lagMeter) tick(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := max(0, now.Sub(m.expected))
	m.expected = now.Add(lagTick)
	m.samples[m.n%lagSamples] = late
	m.n++
	if len(m.window) < lagSamples {
		m.window = append(m.window, late)
	}
	if late >= starvedFrom {
		m.starved += late
	}
	if late > lagLimit {
		m.lateAt = now
	}
}

// late is how late the tick is that should be now: 0 while all is well.
func (m *lagMeter) late(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.overdue(now)
}

func (m *lagMeter) overdue(now time.Time) time.Duration { return max(0, now.Sub(m.expected)) }

// take returns the median and the worst delay since the last take.
func (m *lagMeter) take(now time.Time) (median, worst time.Duration) {
	m.mu.Lock()
	w := append(m.window, m.overdue(now))
	m.window = nil
	m.mu.Unlock()
	slices.Sort(w)
	return w[len(w)/2], w[len(w)-1]
}

// p95 of the last minute.
func (m *lagMeter) p95() time.Duration {
	m.mu.Lock()
	s := slices.Clone(m.samples[:min(m.n, lagSamples)])
	m.mu.Unlock()
	if len(s) == 0 {
		return 0
	}
	slices.Sort(s)
	return s[len(s)*95/100]
}

// mark is a point in time to ask about later.
type mark struct {
	at      time.Time // with its monotonic reading
	starved time.Duration
}

func (m *lagMeter) mark(now time.Time) mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mark{at: now, starved: m.starved}
}

// since tells what happened after the mark: whether one delay was over a
// second, and how much the longer delays add up to.
func (m *lagMeter) since(k mark, now time.Time) (over bool, starved time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.overdue(now)
	over = d > lagLimit || (!m.lateAt.IsZero() && m.lateAt.After(k.at))
	starved = m.starved - k.starved
	if d >= starvedFrom {
		starved += d
	}
	return over, starved
}

// lastOver is when the newest delay of over a second ended, zero = never.
func (m *lagMeter) lastOver() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lateAt
}

// schedLatency reads from the runtime how long goroutines waited between being
// ready and running: the 95th percentile since the last call.
type schedLatency struct {
	sample []metrics.Sample
	before []uint64
}

func newSchedLatency() *schedLatency {
	s := &schedLatency{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	s.read()
	return s
}

func (s *schedLatency) read() time.Duration {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0 // a runtime without it: the ticks alone have to do
	}
	h := s.sample[0].Value.Float64Histogram()
	if len(s.before) != len(h.Counts) {
		s.before = slices.Clone(h.Counts)
		return 0
	}
	var total, sum uint64
	for i, c := range h.Counts {
		total += c - s.before[i]
	}
	var p95 time.Duration
	for i, c := range h.Counts {
		sum += c - s.before[i]
		if total > 0 && sum*100 >= total*95 {
			// The bucket's lower edge; the last one's upper edge is infinite.
			if edge := h.Buckets[i]; !math.IsInf(edge, -1) {
				p95 = time.Duration(edge * float64(time.Second))
			}
			break
		}
	}
	copy(s.before, h.Counts)
	return p95
}
