package vantage

import "time"

// How the pace answers to load. A relay's stage limits are seconds, so a lag of
// 10 ms is only imprecise, while at some tenths of a second a probe that waits
// for its turn several times begins to eat into its limits (performance.md, Too
// much concurrency lies).
const (
	minRate      = 10.0 // starts a second, so that a short list is not drawn out
	slowStart    = 100.0
	headroom     = 1.25 // above what the schedule needs
	burstWindow  = 20 * time.Millisecond
	mildLag      = 10 * time.Millisecond
	calmLag      = 5 * time.Millisecond
	severeLag    = 100 * time.Millisecond
	severeLate   = 500 * time.Millisecond
	holdLate     = 100 * time.Millisecond // no start at all while a tick is this late
	busyCPU      = 0.85                   // of the cores that we may use
	idleCPU      = 0.75
	expediteCut  = 0.05             // of the budget (corroboration.md, Suspicion asks)
	expediteHold = 10 * time.Second // of either may be saved up
	deepCut      = 0.05             // of the present pace: probes that test capabilities
)

// bucket is a token bucket. A clock that goes backwards gives no tokens, one
// that leaps forwards no more than depth.
type bucket struct {
	rate   float64 // tokens a second
	depth  float64
	tokens float64
	last   time.Time
}

func (b *bucket) set(rate, depth float64, now time.Time) {
	b.refill(now)
	b.rate, b.depth = rate, max(1, depth)
	b.tokens = min(b.tokens, b.depth)
}

func (b *bucket) refill(now time.Time) {
	if d := now.Sub(b.last); d > 0 && !b.last.IsZero() {
		b.tokens = min(b.depth, b.tokens+d.Seconds()*b.rate)
	}
	b.last = now
}

// ready reports whether a token is there.
func (b *bucket) ready(now time.Time) bool {
	b.refill(now)
	return b.tokens >= 1
}

// take takes one token; only after ready said yes.
func (b *bucket) take() { b.tokens-- }

// next is when a token will be there.
func (b *bucket) next(now time.Time) time.Time {
	b.refill(now)
	if b.tokens >= 1 {
		return now
	}
	// The microsecond makes up for rounding, so that the token is there then.
	return now.Add(time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + time.Microsecond)
}

// load is what our own process felt since the last look.
type load struct {
	lag  time.Duration // how long a goroutine typically waited for its turn
	late time.Duration // the worst of it
	cpu  float64       // share of the cores that we used, 0 = not known
	slow slowness      // of everything that we probe
}

// pacer says when a probe may start. Its full rate is what the schedule needs
// with some headroom, or the rate that was configured. Under load the rate falls
// multiplicatively: when we are only a little late no further than to what the
// schedule needs, when we are very late almost to a standstill. It begins low
// and rises by small steps, only while all is calm and probes wait for it: a
// rate that was never used has shown nothing.
type pacer struct {
	fixed  float64 // configured rate, 0 = by the schedule
	need   float64 // what the schedule needs, starts a second
	full   float64
	rate   float64 // at present
	wanted bool    // a probe waited for the pace since the last look
	starts bucket
	urgent bucket // the part of the budget that expedited probes may have
	deep   bucket // and those that test capabilities, each of which takes longer
}

func newPacer(fixed float64, now time.Time) *pacer {
	p := &pacer{fixed: fixed}
	p.starts.last, p.urgent.last, p.deep.last = now, now, now
	p.demand(0, 0, now)
	p.starts.tokens, p.urgent.tokens = 1, p.urgent.depth
	return p
}

// set changes the configured rate; demand makes it count.
func (p *pacer) set(fixed float64) { p.fixed = fixed }

// demand tells how many starts a second the schedule needs, and how many relays
// are due already and wait: these are caught up with within a minute.
func (p *pacer) demand(need float64, backlog int, now time.Time) {
	held := p.rate < p.full
	p.need = need
	p.full = max(minRate, headroom*(need+float64(backlog)/60))
	if p.fixed > 0 {
		p.full = p.fixed
	}
	if !held {
		p.rate = max(p.rate, slowStart)
	}
	p.rate = min(p.rate, p.full)
	p.apply(now)
}

// ready reports whether a probe may start now; if not, it remembers that one
// wanted to.
func (p *pacer) ready(now time.Time) bool {
	ok := p.starts.ready(now)
	p.wanted = p.wanted || !ok
	return ok
}

// adapt answers to what the process felt since the last call. Call it about
// four times a second.
func (p *pacer) adapt(l load, now time.Time) {
	need := max(p.need, minRate)
	calm := l.lag < calmLag && l.cpu < idleCPU
	switch {
	case l.lag >= severeLag || l.late >= severeLate || l.slow == verySlow:
		p.rate = max(p.rate/2, min(p.rate, p.least()))
	case l.slow == slow || l.lag >= mildLag && p.rate > need || l.cpu >= busyCPU && p.rate > need:
		p.rate = max(p.rate*0.8, min(p.rate, need))
	case l.slow == steady && p.wanted && (calm || p.rate < need):
		// A machine that is a little late all the time, by its other users,
		// still does what the schedule needs.
		up := min(p.full, p.rate*1.05+0.5)
		if !calm {
			up = min(up, max(p.rate, need))
		}
		p.rate = up
	}
	p.wanted = false
	p.apply(now)
}

// least is where the pace stops to fall.
func (p *pacer) least() float64 { return min(p.full, max(1, p.need/20)) }

// lowest reports whether the pace has fallen as far as it does.
func (p *pacer) lowest() bool { return p.rate <= p.least() }

func (p *pacer) apply(now time.Time) {
	p.starts.set(p.rate, p.rate*burstWindow.Seconds(), now)
	u := p.full * expediteCut
	if p.fixed > 0 { // which may be far more than there is to do
		u = min(p.full, max(minRate, headroom*p.need)) * expediteCut
	}
	p.urgent.set(u, u*expediteHold.Seconds(), now)
	d := min(u, p.rate*deepCut)
	p.deep.set(d, d*expediteHold.Seconds(), now)
}
