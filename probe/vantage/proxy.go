package vantage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	proxyLimit = 5 * time.Second // for one proxy's answer
	// proxyEvery: failures wait for the next round, so rounds are never far apart.
	proxyEvery = 15 * time.Second
)

// proxyRound is what asking all proxies once came to.
type proxyRound struct {
	of    *setup
	began time.Time // with its monotonic part
	// problems holds what each of them said; a nil error = it answers.
	problems map[monitor.Network]error
}

// proxyChecks are asked every SelfCheckEvery, and every proxyEvery at least.
var proxyChecks = checks[proxyRound]{
	every: func(s *setup) time.Duration {
		for _, n := range s.cfg.reached() {
			if s.cfg.Proxies[n] != nil {
				return min(s.cfg.SelfCheckEvery, proxyEvery)
			}
		}
		return 0
	},
	ask: func(ctx context.Context, s *setup) proxyRound { return s.askProxies(ctx) },
}

// askProxies asks all proxies at once and returns within proxyLimit, or when ctx
// ends.
func (s *setup) askProxies(ctx context.Context) proxyRound {
	round := proxyRound{of: s, began: time.Now(), problems: map[monitor.Network]error{}}
	ctx, cancel := context.WithTimeout(ctx, proxyLimit)
	defer cancel()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, n := range s.cfg.reached() {
		ask := s.cfg.Proxies[n]
		if ask == nil {
			continue
		}
		wg.Go(func() {
			err := ask(ctx)
			mu.Lock()
			defer mu.Unlock()
			round.problems[n] = err
		})
	}
	wg.Wait()
	return round
}

// proxyRound follows what the proxies said. One failure is enough: what a proxy
// that is going away does to probes must not count.
func (l *loop) proxyRound(r proxyRound, now time.Time) {
	for _, n := range l.networks {
		err, asked := r.problems[n.network]
		switch {
		case !asked:
		case err != nil:
			l.proxyFailed(n, err, now)
		default:
			l.proxyAnswered(n, r.began, now)
		}
	}
	l.publish()
}

// proxyFailed: the network is out of reach, and has been since some moment after
// its proxy last answered.
func (l *loop) proxyFailed(n *lane, problem error, now time.Time) {
	n.failedAt = time.Now()
	held := n.held
	n.held = nil
	for _, r := range held {
		r.obs = unvouched(r.obs, n)
		l.conclude(r, now)
	}
	if n.down {
		return
	}
	n.down, n.downSince = true, n.failedAt
	l.v.log.Warn("proxy does not answer", "network", string(n.network), "error", problem)
	for _, w := range l.relays {
		if w.lane != n || w.phase != waiting {
			continue
		}
		l.unqueue(w)
		l.skipDown(w, now)
		if w.urgent {
			l.notStarted++
			l.plan(w, w.plan)
			continue
		}
		l.planDown(w, now)
	}
}

// proxyAnswered: failures that had ended by the time at which it was asked are
// the relays' own.
func (l *loop) proxyAnswered(n *lane, asked, now time.Time) {
	if n.down {
		l.v.log.Info("proxy answers again", "network", string(n.network), "away", time.Since(n.downSince).Round(time.Second))
		n.down = false
	}
	held := n.held
	n.held = nil
	for _, r := range held {
		if r.ended.After(asked) {
			n.held = append(n.held, r)
			continue
		}
		l.conclude(r, now)
	}
}

// noProxy: nobody asks the proxy of n any more, and what waited for its word is
// not believed.
func (l *loop) noProxy(n *lane, now time.Time) {
	held := n.held
	n.held, n.down = nil, false
	for _, r := range held {
		r.obs = unvouched(r.obs, n)
		l.conclude(r, now)
	}
}

func unvouched(o monitor.Observation, n *lane) monitor.Observation {
	return unclear(o, monitor.CauseLocalNetwork, fmt.Sprintf("the proxy of this vantage for %s was not seen to work afterwards", n.network))
}

// skipDown reports that w was not measured for want of its proxy.
func (l *loop) skipDown(w *watched, now time.Time) {
	l.proxySkips++
	l.skip(w, monitor.CauseImpaired, fmt.Sprintf("the proxy of this vantage for %s relays does not answer", w.lane.network), now)
}

// planDown plans w anew while its network is out of reach. There is no vote there
// that could lapse, so a dead relay keeps its distance: else all of them would
// come at once when the proxy is back.
func (l *loop) planDown(w *watched, now time.Time) {
	w.basis = basis{at: now, before: w.record, outcome: monitor.OutcomeSkipped}
	if w.record.State == monitor.StateDead {
		w.basis.outcome = monitor.OutcomeFailed
	}
	l.plan(w, l.next(w, 0, now))
}
