package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/engine"
)

const interval = 30 * time.Second

// store is a database in memory that can be taken away.
type store struct {
	mu     sync.Mutex
	away   atomic.Bool
	ousted atomic.Bool
	// awayForCommits: batches are stored, decisions are not.
	awayForCommits atomic.Bool
	relays         map[monitor.RelayURL]monitor.WatchedRelay
	seen           map[string]map[monitor.RelayURL]monitor.VantageRelay
	seq            map[string]uint64
	events         map[string]monitor.SignedEvent
	batches        []monitor.Batch
	log            []monitor.Transition
	number         uint64
	served         bool
	windows        map[monitor.RelayURL][]monitor.Maintenance
	audit          []monitor.AuditEntry
	named          map[monitor.RelayURL]named
	lostNext       atomic.Bool // the next batch is stored and its answer lost
	refuses        bool        // every batch, for what it is
	// lostCommit: the same of the next decision.
	lostCommit atomic.Bool
	gate       chan struct{} // not nil: a batch waits for it
	registry
	facts    map[monitor.RelayURL]monitor.Facts
	learned  []monitor.Facts // each row of facts, in order
	commits  int
	ingested int // observations
}

func newStore() *store {
	return &store{
		relays: map[monitor.RelayURL]monitor.WatchedRelay{}, seen: map[string]map[monitor.RelayURL]monitor.VantageRelay{},
		seq: map[string]uint64{}, events: map[string]monitor.SignedEvent{}, windows: map[monitor.RelayURL][]monitor.Maintenance{},
		facts: map[monitor.RelayURL]monitor.Facts{},
		named: map[monitor.RelayURL]named{},
	}
}

func (s *store) Load(context.Context) (*monitor.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &monitor.Stored{Facts: maps.Clone(s.facts), Maintenance: s.windows, Seen: map[string]map[monitor.RelayURL]monitor.VantageRelay{}, Generation: s.number, Served: s.served, Relays: slices.Collect(maps.Values(s.relays)), Events: slices.Collect(maps.Values(s.events))}
	s.loadNamed(out)
	for name := range s.seen {
		out.Seen[name] = s.restored(name)
	}
	for name, seq := range s.seq {
		if _, remote := s.enrolled[name]; !remote {
			out.Vantages = append(out.Vantages, monitor.Vantage{Name: name, LastSeq: seq})
		}
	}
	for _, v := range s.enrolled {
		v.LastSeq = s.seq[v.Name]
		out.Vantages = append(out.Vantages, v)
	}
	return out, nil
}

// named is where a relay was named, as it is stored.
type named struct {
	monitor.Provenance
	waiting bool
}

// name stores a part of a sweep.
func (s *store) name(n *monitor.Named) {
	for i := range n.Relays {
		r := &n.Relays[i]
		p := monitor.Provenance{Kinds: r.Kinds, Authors: r.Authors, FirstSeen: n.At, LastSeen: n.At}
		if old, ok := s.named[r.URL]; ok {
			p.FirstSeen = old.FirstSeen
		}
		r.FirstSeen = p.FirstSeen
		s.named[r.URL] = named{p, r.Waiting}
	}
	maps.DeleteFunc(s.named, func(_ monitor.RelayURL, p named) bool { return p.LastSeen.Before(n.Before) })
}

// loadNamed puts what is stored of sweeps into out.
func (s *store) loadNamed(out *monitor.Stored) {
	newest := time.Time{}
	for _, p := range s.named {
		if p.LastSeen.After(newest) {
			newest = p.LastSeen
		}
	}
	out.Provenance = map[monitor.RelayURL]monitor.Provenance{}
	for u, p := range s.named {
		if _, ok := s.relays[u]; ok {
			out.Provenance[u] = p.Provenance
		}
		if p.LastSeen.Equal(newest) {
			out.Found++
			if p.waiting {
				out.Waiting++
			}
		}
	}
}

// restored is what the store still knows of a vantage's records: nothing that
// belongs to a process.
func (s *store) restored(name string) map[monitor.RelayURL]monitor.VantageRelay {
	out := maps.Clone(s.seen[name])
	for u, v := range out {
		v.Address = netip.Addr{}
		v.Outcome, v.Stage, v.Cause, v.Evidence, v.At, v.Expedited = monitor.OutcomeNone, monitor.StageNone, monitor.CauseNone, "", time.Time{}, time.Time{}
		v.Record.SessionSuccess, v.Record.OnlineSince = time.Time{}, time.Time{}
		out[u] = v
	}
	return out
}

func (s *store) Watch(_ context.Context, relays []monitor.WatchedRelay) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range relays {
		if old, ok := s.relays[r.URL]; ok {
			old.Source, old.Candidate = r.Source, old.Candidate && r.Candidate
			r = old
		}
		s.relays[r.URL] = r
	}
	return nil
}

func (s *store) Ingest(_ context.Context, in *monitor.Ingest) error {
	if s.away.Load() {
		return fmt.Errorf("%w: no database", monitor.ErrUnavailable)
	}
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := in.Batch
	switch {
	case s.refuses:
		return fmt.Errorf("store batch: %w", monitor.ErrInvalid)
	case b.Seq <= s.seq[b.Vantage]:
		return monitor.ErrConflict
	}
	s.seq[b.Vantage] = b.Seq
	s.batches = append(s.batches, b)
	s.ingested += len(b.Observations)
	if s.seen[b.Vantage] == nil {
		s.seen[b.Vantage] = map[monitor.RelayURL]monitor.VantageRelay{}
	}
	maps.Copy(s.seen[b.Vantage], in.Records)
	for u, f := range in.Facts {
		s.learned = append(s.learned, f)
		old := s.facts[u]
		if f.TLS != nil {
			old.TLS, old.TLSAt = f.TLS, f.TLSAt
		}
		if f.DNS != nil {
			old.DNS, old.DNSAt = f.DNS, f.DNSAt
		}
		if f.Capabilities != nil {
			old.Capabilities, old.CapabilitiesAt = f.Capabilities, f.CapabilitiesAt
		}
		if f.Write != nil {
			old.Write, old.WriteAt = f.Write, f.WriteAt
		}
		s.facts[u] = old
	}
	if s.lostNext.Swap(false) {
		return fmt.Errorf("%w: the connection was lost", monitor.ErrUnavailable)
	}
	return nil
}

func (s *store) Commit(_ context.Context, d *monitor.Decision) error {
	if s.away.Load() || s.awayForCommits.Load() {
		return fmt.Errorf("%w: no database", monitor.ErrUnavailable)
	}
	if s.ousted.Load() {
		return fmt.Errorf("%w: another core leads", monitor.ErrConflict)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	s.number, s.served = d.Generation, s.served || d.Served
	for _, r := range d.Relays {
		s.relays[r.URL] = r
	}
	s.log = append(s.log, d.Transitions...)
	for _, u := range d.Withdrawn {
		delete(s.events, string(u))
	}
	for _, e := range d.Events {
		s.events[e.D] = e
	}
	for _, u := range d.Forgotten {
		for _, seen := range s.seen {
			delete(seen, u)
		}
	}
	for u, m := range d.Maintenance {
		s.windows[u] = append(s.windows[u], m)
		slices.SortFunc(s.windows[u], func(a, b monitor.Maintenance) int { return a.From.Compare(b.From) })
	}
	if d.Audit != nil {
		s.audit = append(s.audit, *d.Audit)
	}
	if d.Named != nil {
		s.name(d.Named)
	}
	if s.lostCommit.Swap(false) {
		return fmt.Errorf("%w: the connection was lost", monitor.ErrUnavailable)
	}
	return nil
}

// What is stored, while the engine runs.

func (s *store) relay(u monitor.RelayURL) monitor.WatchedRelay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relays[u]
}

func (s *store) reported(u monitor.RelayURL) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.events[string(u)]
	return ok
}

func (s *store) recorded(vantage string, u monitor.RelayURL) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.seen[vantage][u]
	return ok
}

func (s *store) transitions() []monitor.Transition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *store) audited() []monitor.AuditEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.audit)
}

// publisher signs nothing: an event is its address and time.
type publisher struct {
	mu        sync.Mutex // held by Reports; tests that look meanwhile take it too
	at        map[monitor.RelayURL]time.Time
	perRound  int // most new reports a call, 0 = no limit
	withdrawn []monitor.RelayURL
	// shown holds how each relay was last shown, calls how many each time.
	shown map[monitor.RelayURL]monitor.ReportSource
	calls []int
}

func newPublisher() *publisher {
	return &publisher{at: map[monitor.RelayURL]time.Time{}, shown: map[monitor.RelayURL]monitor.ReportSource{}}
}

// last is how a relay was last shown, and how many calls there were.
func (p *publisher) last(u monitor.RelayURL) (monitor.ReportSource, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown[u], len(p.calls)
}

// limit sets how many new reports there are in a call.
func (p *publisher) limit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.perRound = n
}

// since are the sizes of the calls after the first n.
func (p *publisher) since(n int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls[n:])
}

func (p *publisher) Reports(now time.Time, online []monitor.ReportSource) []monitor.SignedEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []monitor.SignedEvent
	if p.shown != nil {
		p.calls = append(p.calls, len(online))
		for _, s := range online {
			p.shown[s.URL] = s
		}
	}
	for _, s := range online {
		if t, ok := p.at[s.URL]; ok && now.Sub(t) < time.Hour {
			continue
		}
		if p.perRound > 0 && len(out) == p.perRound {
			break
		}
		p.at[s.URL] = now
		out = append(out, monitor.SignedEvent{ID: fmt.Sprint(s.URL, now.UnixNano()), Kind: 30166, Pubkey: "us", D: string(s.URL), CreatedAt: now, Expires: now.Add(6 * time.Hour)})
	}
	return out
}

func (p *publisher) Withdraw(urls []monitor.RelayURL) {
	p.withdrawn = append(p.withdrawn, urls...)
	for _, u := range urls {
		delete(p.at, u)
	}
}

func (p *publisher) Snapshot(now time.Time, _ uint64, _ time.Time, urls []monitor.RelayURL) *monitor.SignedEvent {
	return &monitor.SignedEvent{ID: fmt.Sprint("set", urls), Kind: 30002, Pubkey: "us", D: "nip66-online", CreatedAt: now, Expires: now.Add(time.Hour)}
}

func (p *publisher) Announcements(time.Time) []monitor.SignedEvent { return nil }

// world drives one engine with scripted vantages in virtual time: each probes
// by the real cadence and hands over a batch every 5 s.
type world struct {
	t        *testing.T
	cfg      engine.Config
	store    *store
	pub      *publisher
	engine   *engine.Engine
	stop     func()
	ended    error // what Run returned, after stop
	log      lockedBuffer
	vantages []*watcher
}

// lockedBuffer keeps a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// watcher is one vantage's schedule.
type watcher struct {
	name     string
	observer *monitor.Observer
	due      map[monitor.RelayURL]time.Time
	record   map[monitor.RelayURL]monitor.Record
	pendings []monitor.Observation
	seq      uint64
	silent   bool
	health   monitor.Health
	recovery []monitor.Recovery
	// sees says what a probe of a relay comes to now.
	sees func(monitor.RelayURL, time.Time) monitor.Outcome
	// tells adds to an observation what else the probe found; nil = nothing.
	tells func(*monitor.Observation)
}

func up(monitor.RelayURL, time.Time) monitor.Outcome   { return monitor.OutcomeOK }
func down(monitor.RelayURL, time.Time) monitor.Outcome { return monitor.OutcomeFailed }

// but sees the named relays as o and all others up.
func but(o monitor.Outcome, urls ...monitor.RelayURL) func(monitor.RelayURL, time.Time) monitor.Outcome {
	return func(u monitor.RelayURL, _ time.Time) monitor.Outcome {
		if slices.Contains(urls, u) {
			return o
		}
		return monitor.OutcomeOK
	}
}

func url(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://relay%03d.example.com/", i))
}

func urls(n int) []monitor.RelayURL {
	out := make([]monitor.RelayURL, n)
	for i := range out {
		out[i] = url(i)
	}
	return out
}

func newWorld(t *testing.T, relays int, vantages ...string) *world {
	t.Helper()
	c := monitor.Corroboration{
		Interval: interval, ConfirmFailures: 3, HoldFraction: 0.1, HoldMin: 10, MaxClockSkew: time.Minute,
		LiveMaxAge: 4 * time.Hour, MinFresh: 0.8,
	}
	w := &world{t: t, store: newStore(), pub: newPublisher()}
	w.cfg = engine.Config{
		Liveness: monitor.DefaultLiveness(), Corroboration: c, Cadence: monitor.DefaultCadence(),
		Freshness: monitor.Freshness{MaxAge: 4 * time.Hour, MinFresh: 0.8, MinCount: 2},
		Pubkey:    "us", Registry: w.store, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	w.cfg.Cadence.Interval = interval
	for _, u := range urls(relays) {
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: u, Source: monitor.SourceConfig, FirstSeen: time.Now()})
	}
	for _, name := range vantages {
		w.cfg.Vantages = append(w.cfg.Vantages, monitor.Vantage{Name: name, Group: name, Networks: []monitor.Network{monitor.Clearnet}})
	}
	w.start()
	return w
}

// start makes a new engine and new vantages on the world's store.
func (w *world) start() {
	w.t.Helper()
	e, err := engine.New(w.t.Context(), w.cfg, w.store, func([]monitor.SignedEvent) (engine.Publisher, error) { return w.pub, nil })
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.ended = e.Run(ctx) }()
	w.engine, w.stop = e, func() { cancel(); <-done }
	w.vantages = nil
	for _, v := range w.cfg.Vantages {
		w.vantages = append(w.vantages, w.newWatcher(v.Name))
	}
}

func (w *world) newWatcher(name string) *watcher {
	return &watcher{
		name: name, observer: monitor.NewObserver(time.Now()), sees: up, seq: w.store.seq[name],
		due: map[monitor.RelayURL]time.Time{}, record: map[monitor.RelayURL]monitor.Record{},
	}
}

// restart stops the engine and starts another one on the same store.
func (w *world) restart() {
	w.stop()
	w.pub = newPublisher()
	w.start()
}

// run lets d of virtual time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		elapse(5 * time.Second)
		synctest.Wait()
		for _, v := range w.vantages {
			if !v.silent {
				v.probe(w)
				v.deliver(w)
			}
		}
	}
	elapse(1500 * time.Millisecond)
	synctest.Wait()
}

func (v *watcher) probe(w *world) {
	now := time.Now()
	tasks, err := w.engine.Tasks(w.t.Context(), v.name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	watched := map[monitor.RelayURL]bool{}
	for _, t := range tasks.Relays {
		watched[t.Relay] = true
	}
	gone := func(u monitor.RelayURL) bool { return !watched[u] }
	maps.DeleteFunc(v.due, func(u monitor.RelayURL, _ time.Time) bool { return gone(u) })
	maps.DeleteFunc(v.record, func(u monitor.RelayURL, _ monitor.Record) bool { return gone(u) })
	for _, t := range tasks.Relays {
		due, ok := v.due[t.Relay]
		if !ok {
			due = w.cfg.Cadence.First(t.Relay, v.name, t, now)
			v.due[t.Relay] = due
		}
		if due.After(now) {
			continue
		}
		o := monitor.Observation{Relay: t.Relay, Vantage: v.name, Start: now, At: now, Outcome: v.sees(t.Relay, now)}
		if t.PausedUntil.After(now) {
			o.Outcome, o.Cause = monitor.OutcomeSkipped, monitor.CausePaused
		}
		switch o.Outcome {
		case monitor.OutcomeOK:
			o.Stage, o.RTTOpen, o.RTTRead = monitor.StageRead, 80*time.Millisecond, 40*time.Millisecond
		case monitor.OutcomeFailed:
			o.Stage, o.Cause, o.Evidence = monitor.StageTCP, monitor.CauseTimeout, "no answer to the connection within 4 s"
		}
		if v.tells != nil {
			v.tells(&o)
		}
		prev := v.record[t.Relay]
		rec, _ := w.cfg.Liveness.Step(prev, v.observer, t.Relay, o.Outcome, now, now)
		v.record[t.Relay] = rec
		v.due[t.Relay] = w.cfg.Cadence.Next(prev, rec, t.Relay, v.name, t, o.Outcome, 0, now)
		v.pendings = append(v.pendings, o)
	}
}

func (v *watcher) deliver(w *world) {
	v.seq++
	b := monitor.Batch{Vantage: v.name, Seq: v.seq, SentAt: time.Now(), Health: v.health, Recoveries: v.recovery, Observations: v.pendings}
	a, err := w.engine.Deliver(w.t.Context(), b)
	if err != nil {
		v.seq-- // kept, and handed over again
		return
	}
	v.pendings, v.recovery = nil, nil
	for u, at := range a.Due {
		if at.Before(v.due[u]) {
			v.due[u] = at
		}
	}
	for _, u := range a.Expedite {
		v.due[u] = time.Now()
	}
}

// live is the online set of the newest generation.
func (w *world) live() []monitor.RelayURL {
	g := w.engine.Generation()
	out := make([]monitor.RelayURL, len(g.Online))
	for i := range out {
		out[i] = g.Online[i].URL
	}
	return out
}

func (w *world) wantLive(want ...monitor.RelayURL) {
	w.t.Helper()
	if got := w.live(); !slices.Equal(got, want) {
		w.t.Fatalf("the list has %d relays, want %d:\n got %v\nwant %v", len(got), len(want), got, want)
	}
}

// moves counts the transitions after the first verdicts.
func (w *world) moves(from monitor.State) int {
	n := 0
	for _, t := range w.store.log {
		if t.From == from {
			n++
		}
	}
	return n
}

// elapse lets virtual time pass; it belongs in a synctest bubble only.
func elapse(d time.Duration) { time.Sleep(d) }
