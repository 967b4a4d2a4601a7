package world_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher"
)

// stage is where a scenario is played: the real engine and publisher on a store
// in memory, and a machine for each vantage.
type stage struct {
	*scenario
	t        *testing.T
	zero     time.Time // of the scenario's times
	cfg      engine.Config
	key      nostr.Key
	store    *store
	machines []*machine
	engine   atomic.Pointer[engine.Engine] // nil while the core is away
	stopCore func()
	log      *slog.Logger
	lines    logLines
}

// logLines keeps the newest lines of a log.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(l.b.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// elapse lets virtual time pass; it belongs into a synctest bubble.
func elapse(d time.Duration) { <-time.After(d) }

// now is the scenario's time.
func (st *stage) now() time.Duration { return time.Since(st.zero) }

// play runs a scenario from the first start to the last expectation, and
// returns what is left.
func play(t *testing.T, s *scenario) *stage {
	t.Helper()
	st := &stage{scenario: s, t: t, zero: time.Now().Add(s.settle), store: newStore()}
	st.log = slog.New(slog.NewTextHandler(&st.lines, nil))
	var err error
	if st.key, err = nostr.ParseKey(strings.Repeat("01", 32)); err != nil {
		t.Fatal(err)
	}
	st.configure()
	if err := st.startCore(); err != nil {
		t.Fatal(err)
	}
	defer st.stopAll()
	for _, v := range s.vantages {
		m := &machine{vantageSpec: v, stage: st}
		st.machines = append(st.machines, m)
		if !v.local && !v.late {
			if err := st.enrol(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
	}
	st.follow()
	if t.Failed() {
		t.Logf("%s\nthe end of the log:\n%s", s.about, st.lines.last(30))
	}
	return st
}

// configure sets everything up as "pharos serve" does by default, but for what
// the scenario says, and a list of one relay is long enough.
func (st *stage) configure() {
	c := monitor.DefaultCorroboration()
	c.Interval, c.LiveMaxAge = st.interval, st.maxAge
	cadence := monitor.DefaultCadence()
	cadence.Interval = st.interval
	f := monitor.DefaultFreshness()
	f.MaxAge, f.MinCount = st.maxAge, 1
	st.cfg = engine.Config{Liveness: monitor.DefaultLiveness(), Corroboration: c, Cadence: cadence, Freshness: f, Pubkey: st.key.Pubkey(), Registry: st.store, Log: st.log}
	for _, v := range st.vantages {
		if v.local {
			st.cfg.Vantages = append(st.cfg.Vantages, monitor.Vantage{Name: v.name, Group: v.group, Networks: v.networks})
		}
	}
	for _, r := range st.relays {
		w := monitor.WatchedRelay{URL: r.url, Source: monitor.SourceConfig, FirstSeen: time.Now()}
		if r.candidate {
			w.Source, w.Candidate = monitor.SourceDiscovery, true
		}
		st.cfg.Relays = append(st.cfg.Relays, w)
	}
}

func (st *stage) startCore() error {
	networks := []monitor.Network{monitor.Clearnet}
	e, err := engine.New(context.Background(), st.cfg, st.store, func(stored []monitor.SignedEvent) (engine.Publisher, error) {
		return publisher.New(publisher.Config{
			Name: "scenario", ListenURL: "ws://127.0.0.1:4869/", Frequency: time.Hour, Expiration: 6 * time.Hour, SnapshotLife: st.maxAge,
			Timeout: 15 * time.Second, Checks: []string{"open", "read"}, Networks: networks, Log: st.log,
		}, st.key, stored)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	st.engine.Store(e)
	st.stopCore = func() {
		st.engine.Store(nil)
		cancel()
		if err := <-done; err != nil {
			st.t.Errorf("engine: %v", err)
		}
		st.stopCore = nil
	}
	return nil
}

func (st *stage) stopAll() {
	for _, m := range st.machines {
		if m.stop != nil {
			m.stop()
		}
	}
	if st.stopCore != nil {
		st.stopCore()
	}
}

// enrol makes a machine elsewhere a vantage of the core.
func (st *stage) enrol(m *machine) error {
	e, token := st.engine.Load(), monitor.HashToken(m.name)
	now := time.Now()
	inv := monitor.Invitation{Name: m.name, Group: m.group, Token: token, Created: now, Expires: now.Add(monitor.InvitationLife), Actor: "token"}
	if _, err := e.Invite(context.Background(), inv); err != nil {
		return err
	}
	_, err := e.Enrol(context.Background(), monitor.Enrolment{Token: token, Pubkey: "key of " + m.name, Networks: m.networks, At: now})
	return err
}

// coreClock is how far the core's clock is off.
func (st *stage) coreClock() time.Duration {
	d := time.Duration(0)
	for _, m := range st.core {
		if m.word == "clock" && m.at <= st.now() {
			d, _ = time.ParseDuration(m.rest[0])
		}
	}
	return d
}

// follow lets time pass, does what happens to the core, and looks at each
// expectation in its time.
func (st *stage) follow() {
	events := slices.Clone(st.core)
	open := slices.Clone(st.expectations)
	for len(events)+len(open) > 0 {
		next := time.Duration(1<<63 - 1)
		if len(events) > 0 {
			next = events[0].at
		}
		for _, e := range open {
			next = min(next, e.next(st.now()))
		}
		elapse(next - st.now())
		synctest.Wait()
		now := st.now()
		for len(events) > 0 && events[0].at <= now {
			if err := st.do(events[0]); err != nil {
				st.t.Error(events[0].errorf("%v", err))
			}
			events = events[1:]
			synctest.Wait()
		}
		open = slices.DeleteFunc(open, func(e *expectation) bool { return e.from <= now && e.look(st, now) })
	}
}

// do lets one thing happen to the core.
func (st *stage) do(m moment) error {
	switch m.word {
	case "clock":
		return nil // the machines see to it
	case "stops": // and the vantages of its process with it
		for _, v := range st.machines {
			if v.local {
				v.stop()
			}
		}
		st.stopCore()
		return nil
	case "starts":
		if err := st.startCore(); err != nil {
			return err
		}
		for _, v := range st.machines {
			if v.local {
				if err := v.start(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if m.word == "enrol" || m.word == "revoke" {
		i := slices.IndexFunc(st.machines, func(v *machine) bool { return v.name == m.rest[0] })
		if m.word == "enrol" {
			return st.enrol(st.machines[i])
		}
		return st.engine.Load().Revoke(context.Background(), m.rest[0], "token")
	}
	c := monitor.Command{Kind: monitor.CommandKind(m.word), Actor: "token"}
	for i, w := range m.rest {
		switch {
		case i == 0:
			relays, err := st.named(m.line, w)
			if err != nil {
				return err
			}
			for _, r := range relays {
				c.Relays = append(c.Relays, r.url)
			}
		case w == "for":
			d, err := time.ParseDuration(m.rest[i+1])
			if err != nil {
				return err
			}
			c.Until = time.Now().Add(d)
		}
	}
	results, err := st.engine.Load().Administer(context.Background(), c)
	for _, r := range results {
		if !r.Done {
			return fmt.Errorf("%s %s", r.Relay, r.Why)
		}
	}
	return err
}
