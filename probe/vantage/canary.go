package vantage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// canaryLimit bounds one canary's answer.
const canaryLimit = 5 * time.Second

// DefaultCanaries are endpoints of different operators that are made to be
// asked by anybody; a relay among them would get a probe every 15 s from every
// vantage there is. Names and literal addresses of both families: neither a
// resolver nor one family alone decides.
func DefaultCanaries() []string {
	return []string{
		"tcp://one.one.one.one:443",        // Cloudflare
		"tcp://9.9.9.9:443",                // Quad9
		"tcp://[2001:4860:4860::8888]:443", // Google
		"dns://www.iana.org", "dns://wikipedia.org",
	}
}

// Canary is an endpoint that answers whenever this vantage's own network works.
type Canary struct {
	text string
	kind string // "relay", "tcp" or "dns"
	at   string // URL, host:port or name
}

// ParseCanary reads ws:// or wss:// (a relay), tcp://host:port or dns://name.
// allow opens address ranges for relays, as for ParseRelayURL. The error is
// monitor.ErrInvalid and says what is wrong.
func ParseCanary(s string, allow ...netip.Prefix) (Canary, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Canary{}, fmt.Errorf("%w canary %q: write ws://…, wss://…, tcp://host:port or dns://name", monitor.ErrInvalid, s)
	}
	switch strings.ToLower(scheme) {
	case "ws", "wss":
		u, err := monitor.ParseRelayURL(s, allow...)
		if err != nil {
			return Canary{}, fmt.Errorf("canary: %w", err)
		}
		return Canary{text: string(u), kind: "relay", at: string(u)}, nil
	case "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil || host == "" || port == "" {
			return Canary{}, fmt.Errorf("%w canary %q: write tcp://host:port", monitor.ErrInvalid, s)
		}
		return Canary{text: s, kind: "tcp", at: rest}, nil
	case "dns":
		if rest == "" || strings.ContainsAny(rest, "/: \t") {
			return Canary{}, fmt.Errorf("%w canary %q: write dns://name", monitor.ErrInvalid, s)
		}
		return Canary{text: s, kind: "dns", at: rest}, nil
	}
	return Canary{}, fmt.Errorf("%w canary %q: its scheme must be ws, wss, tcp or dns", monitor.ErrInvalid, s)
}

func (c Canary) String() string { return c.text }

// canaryRound is what asking all canaries once came to.
type canaryRound struct {
	of    *setup
	began time.Time
	// succeeded is when the first of them answered; zero = none did.
	succeeded time.Time
	problem   string // one canary's, for the log
}

// canaryChecks are asked every SelfCheckEvery.
var canaryChecks = checks[canaryRound]{
	every: func(s *setup) time.Duration {
		if len(s.cfg.Canaries) == 0 {
			return 0
		}
		return s.cfg.SelfCheckEvery
	},
	ask: func(ctx context.Context, s *setup) canaryRound { return s.askCanaries(ctx) },
}

// askCanaries asks all canaries at once and returns within canaryLimit, or when
// ctx ends.
func (s *setup) askCanaries(ctx context.Context) canaryRound {
	round := canaryRound{of: s, began: time.Now().Round(0)}
	ctx, cancel := context.WithTimeout(ctx, canaryLimit)
	defer cancel()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, c := range s.cfg.Canaries {
		wg.Go(func() {
			err := s.askCanary(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				round.problem = fmt.Sprintf("%s: %v", c, err)
			case round.succeeded.IsZero():
				round.succeeded = time.Now().Round(0)
			}
		})
	}
	wg.Wait()
	return round
}

func (s *setup) askCanary(ctx context.Context, c Canary) error {
	switch c.kind {
	case "tcp":
		conn, err := s.cfg.Dial(ctx, "tcp", c.at)
		if err != nil {
			return err
		}
		return conn.Close()
	case "dns":
		addrs, err := s.cfg.Resolve(ctx, c.at)
		if err == nil && len(addrs) == 0 {
			err = errors.New("no addresses")
		}
		return err
	}
	o := s.checker.Check(ctx, probe.Request{Relay: monitor.RelayURL(c.at)})
	// Whatever answered, our network carried it.
	if o.Outcome.Success() || o.Outcome == monitor.OutcomeRestricted ||
		(o.Outcome == monitor.OutcomeFailed && o.Stage >= monitor.StageUpgrade && o.HTTPStatus != 0) {
		return nil
	}
	return fmt.Errorf("%s %s: %s", o.Outcome, o.Cause, o.Evidence)
}

// canaryWatch turns rounds into whether the network is available.
type canaryWatch struct {
	down        bool
	lastSuccess time.Time // newest success of any canary
	since       time.Time // when the network was last known to work, while down
}

// round takes one round; it reports whether the availability changed.
func (w *canaryWatch) round(r canaryRound) (changed bool) {
	down := r.succeeded.IsZero()
	if down && !w.down {
		// It went away at some time after it was last seen to work.
		w.since = r.began
		if !w.lastSuccess.IsZero() && w.lastSuccess.Before(r.began) {
			w.since = w.lastSuccess
		}
	}
	if !down {
		w.lastSuccess = r.succeeded
	}
	changed = down != w.down
	w.down = down
	return changed
}

// shift moves its times along with a clock that was set.
func (w *canaryWatch) shift(d time.Duration) {
	for _, t := range []*time.Time{&w.lastSuccess, &w.since} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
}
