package world_test

import "time"

// event is something due in a simulated world.
type event struct {
	at   time.Duration
	kind eventKind
	r, v int32
	// token must still be that of the relay at the vantage: a probe that was
	// planned anew leaves its old event behind.
	token uint32
}

type eventKind uint8

const (
	evWake    eventKind = iota // something will fail to see relay r
	evProbe                    // v probes r
	evResult                   // a failed probe has ended
	evVantage                  // something begins or ends at v
	evBatch                    // v hands over what it has
	evRound                    // the core decides
)

func (e *event) before(f *event) bool {
	switch {
	case e.at != f.at:
		return e.at < f.at
	case e.kind != f.kind:
		return e.kind < f.kind
	case e.r != f.r:
		return e.r < f.r
	}
	return e.v < f.v
}

// queue is a heap of events, the earliest first.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	*q = h
	return top
}
