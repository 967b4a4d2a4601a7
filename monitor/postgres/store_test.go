package postgres_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

func TestLoadEmpty(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	got, err := s.Load(t.Context())
	check(t, err)
	want := &monitor.Stored{Seen: map[string]map[monitor.RelayURL]monitor.VantageRelay{}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	check(t, s.Ping(t.Context()))
}

// Everything that a core hands over comes back after a restart, except what
// belongs to the process.
func TestRestartRestores(t *testing.T) {
	t.Parallel()
	url := postgres.TestDatabase(t)
	s := open(t, url)
	at := noon().Add(123456 * time.Microsecond)
	yes, pow := true, 12

	vantage := monitor.Vantage{
		Name: "a", Group: "hoster", Pubkey: strings.Repeat("ab", 32), Networks: []monitor.Network{monitor.Clearnet, monitor.Tor},
		Enrolled: at.Add(-time.Hour), Skew: 1500 * time.Millisecond,
	}
	check(t, s.Enrol(t.Context(), vantage))
	verdict := monitor.Verdict{
		State: monitor.StateOffline, Since: at, Marks: monitor.MarkFlapping | monitor.MarkHeld, Quorum: monitor.Quorum{For: 3, Of: 4},
		Reason: "3 of 4 groups say down", Cause: monitor.CauseTimeout, Evidence: "no answer", LastSuccess: at.Add(-time.Hour),
		MajorityDownSince: at.Add(-time.Minute), Changes: []time.Time{at.Add(-2 * time.Hour), at}, HeldSince: at.Add(-time.Second),
	}
	down := monitor.WatchedRelay{URL: "wss://down.example/", Source: monitor.SourceFile, FirstSeen: at.Add(-48 * time.Hour), Verdict: verdict}
	onion := monitor.WatchedRelay{URL: "ws://" + monitor.RelayURL(strings.Repeat("a", 56)) + ".onion/", Source: monitor.SourceDiscovery, FirstSeen: at, Candidate: true}
	check(t, s.Watch(t.Context(), []monitor.WatchedRelay{down, onion}))

	record := monitor.VantageRelay{
		Record: monitor.Record{
			State: monitor.StateOffline, FailureCount: 3, FirstFailure: at.Add(-3 * time.Minute), LastFailure: at,
			LastSuccess: at.Add(-time.Hour), BackoffUntil: at.Add(2 * time.Minute), Corroborated: true,
			SessionSuccess: at, OnlineSince: at,
		},
		Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout, Evidence: "no answer", At: at,
		NextDue: at.Add(5 * time.Minute), Newest: at.Add(time.Second),
		RTTOpen: 80 * time.Millisecond, RTTRead: 40 * time.Millisecond, RTTWrite: 9 * time.Millisecond, Expedited: at,
	}
	info := &monitor.Info{
		Raw: []byte(`{"name":"x",  "limitation":{"a":1},"b":"\u0000"}`), Name: "x", NIPs: []int{1, 11},
		PaymentRequired: &yes, MinPow: &pow, Countries: []string{"DE"},
	}
	health := monitor.Health{
		Impairments: []monitor.Impairment{monitor.ImpairedSpike}, ImpairedSince: at.Add(-time.Minute),
		Lag: 12 * time.Millisecond, CanarySuccess: at, InFlight: 5, Watched: 2,
		Networks: []monitor.Network{monitor.Clearnet, monitor.I2P}, Down: []monitor.Network{monitor.I2P},
	}
	facts := monitor.Facts{
		TLS: &monitor.TLSFacts{Version: "1.3", Issuer: "R11\u0000", Names: []string{"down.example"}, NotAfter: at.AddDate(0, 2, 0)}, TLSAt: at,
		DNS:   &monitor.DNSFacts{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, IPv4: monitor.ReachFails, IPv6: monitor.ReachAnswers},
		DNSAt: at.Add(-time.Hour),
		Capabilities: &monitor.Capabilities{
			Auth: monitor.FindingConfirmed, Search: monitor.FindingDisproved, Limit: monitor.FindingDisproved, Sample: "ab12",
		},
		CapabilitiesAt: at.Add(-2 * time.Hour),
		Write:          &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "blocked: no"}, WriteAt: at.Add(-3 * time.Hour),
	}
	check(t, s.Ingest(t.Context(), &monitor.Ingest{
		Skew:    1500 * time.Millisecond,
		Batch:   monitor.Batch{Vantage: "a", Seq: 7, SentAt: at, Health: health},
		Records: map[monitor.RelayURL]monitor.VantageRelay{down.URL: record},
		Infos:   map[monitor.RelayURL]*monitor.Info{down.URL: info},
		Facts:   map[monitor.RelayURL]monitor.Facts{down.URL: facts},
	}))
	facts.TLS = &monitor.TLSFacts{Version: "1.3", Issuer: "R11", Names: []string{"down.example"}, NotAfter: at.AddDate(0, 2, 0)}
	fresh := time.Now().Truncate(time.Second).UTC()
	report := monitor.SignedEvent{
		ID: "01", Kind: 30166, Pubkey: "key", D: "wss://down.example/", CreatedAt: fresh, Expires: fresh.Add(time.Hour), JSON: []byte(`{"id":"01", "x":1}`),
	}
	profile := monitor.SignedEvent{ID: "02", Kind: 0, Pubkey: "key", CreatedAt: fresh, JSON: []byte(`{}`)}
	expired := monitor.SignedEvent{ID: "03", Kind: 30166, Pubkey: "key", D: "wss://old.example/", CreatedAt: fresh.Add(-2 * time.Hour), Expires: fresh.Add(-time.Hour), JSON: []byte(`{}`)}
	check(t, s.Commit(t.Context(), &monitor.Decision{
		At: at, Generation: 812, Served: true, Relays: []monitor.WatchedRelay{down}, Events: []monitor.SignedEvent{report, profile, expired},
	}))
	s.Close()

	began := time.Now()
	s = open(t, url)
	got, err := s.Load(t.Context())
	check(t, err)
	down.Info = info
	record.Record.SessionSuccess, record.Record.OnlineSince, record.Expedited = time.Time{}, time.Time{}, time.Time{}
	record.Outcome, record.Stage, record.Cause, record.Evidence, record.At = 0, 0, 0, "", time.Time{}
	vantage.LastSeq, vantage.Health, vantage.Networks = 7, health, health.Networks
	if len(got.Vantages) == 1 {
		if seen := got.Vantages[0].LastSeen; seen.IsZero() || seen.After(began) {
			t.Errorf("vantage last seen at %s", seen)
		}
		vantage.LastSeen = got.Vantages[0].LastSeen
	}
	want := &monitor.Stored{
		Relays:     []monitor.WatchedRelay{onion, down},
		Vantages:   []monitor.Vantage{vantage},
		Seen:       map[string]map[monitor.RelayURL]monitor.VantageRelay{"a": {down.URL: record}},
		Events:     []monitor.SignedEvent{profile, report},
		Generation: 812, Served: true,
		Facts: map[monitor.RelayURL]monitor.Facts{down.URL: facts},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Error(d)
	}
}

func TestWatchTouchesNoVerdict(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	at := noon()
	relay := monitor.WatchedRelay{
		URL: "wss://a.example/", Source: monitor.SourceDiscovery, FirstSeen: at,
		Verdict: monitor.Verdict{State: monitor.StateOnline, Since: at, LastSuccess: at},
	}
	check(t, s.Commit(t.Context(), &monitor.Decision{At: at, Relays: []monitor.WatchedRelay{relay}}))
	check(t, s.Watch(t.Context(), []monitor.WatchedRelay{
		{URL: relay.URL, Source: monitor.SourceFile, FirstSeen: at.Add(time.Hour), Candidate: true},
		{URL: "wss://b.example/", Source: monitor.SourceFile, FirstSeen: at, Candidate: true},
		{URL: "wss://b.example/", Source: monitor.SourceConfig, FirstSeen: at.Add(-time.Hour), Candidate: true},
	}))
	check(t, s.Watch(t.Context(), nil))
	relay.Source = monitor.SourceFile
	want := []monitor.WatchedRelay{relay, {URL: "wss://b.example/", Source: monitor.SourceConfig, FirstSeen: at.Add(-time.Hour), Candidate: true}}
	got, err := s.Load(t.Context())
	check(t, err)
	if d := cmp.Diff(want, got.Relays); d != "" {
		t.Error(d)
	}
	// The candidacy ends, and only once.
	want[1].Candidate = false
	check(t, s.Watch(t.Context(), want[1:]))
	got, err = s.Load(t.Context())
	check(t, err)
	if d := cmp.Diff(want, got.Relays); d != "" {
		t.Error(d)
	}
}

func TestIngestExactlyOnce(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 3)
	at := noon()
	check(t, s.Ingest(t.Context(), batch(5, at, urls...)))
	before, err := s.Load(t.Context())
	check(t, err)

	for _, seq := range []uint64{5, 4, 1} {
		again := batch(seq, at.Add(time.Minute), urls...)
		again.Batch.Health.Watched = 99
		again.Infos = map[monitor.RelayURL]*monitor.Info{urls[0]: {Name: "later"}}
		if err := s.Ingest(t.Context(), again); !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("sequence %d again: %v", seq, err)
		}
	}
	for name, bad := range map[string]struct {
		in   *monitor.Ingest
		want error
	}{
		"sequence 0":        {batch(0, at, urls...), monitor.ErrInvalid},
		"sequence too high": {batch(1<<31, at, urls...), monitor.ErrInvalid},
		"unknown relay":     {batch(6, at, urls[0], "wss://stranger.example/"), monitor.ErrNotFound},
		"unknown vantage":   {&monitor.Ingest{Batch: monitor.Batch{Vantage: "nobody", Seq: 6}}, monitor.ErrNotFound},
	} {
		if err := s.Ingest(t.Context(), bad.in); !errors.Is(err, bad.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, err := s.Load(t.Context())
	check(t, err)
	if d := cmp.Diff(before, after, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Error(d)
	}
	if n := len(observations(t, s, urls[0])); n != 1 {
		t.Errorf("%d observations of the first relay", n)
	}
	check(t, s.Ingest(t.Context(), batch(6, at, urls...)))
	check(t, s.Ingest(t.Context(), batch(9, at)))
}

func observations(t testing.TB, s *postgres.Store, u monitor.RelayURL) []monitor.Observation {
	t.Helper()
	got, err := s.Observations(t.Context(), monitor.ObservationQuery{Relay: u, Limit: 1000})
	check(t, err)
	return got
}

var addresses = cmpopts.EquateComparable(netip.AddrPort{})

func TestObservations(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 2)
	check(t, s.Enrol(t.Context(), monitor.Vantage{Name: "b", Enrolled: noon()}))
	at := noon()

	fast := okObservation(urls[0], at.Add(time.Minute)) // over loopback
	fast.RTTOpen, fast.RTTRead = time.Millisecond, time.Millisecond
	for i := range fast.Times {
		fast.Times[i] = 200 * time.Microsecond
	}
	failed := monitor.Observation{
		Relay: urls[0], At: at.Add(2 * time.Minute), Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout,
		Evidence: "no answer", Lag: time.Hour, NoEOSE: true, AuthSeen: true,
	}
	failed.Times[monitor.StageTCP] = 4 * time.Second
	lagging := monitor.Observation{Relay: urls[0], At: at.Add(3 * time.Minute), Outcome: monitor.OutcomeUnclear, Cause: monitor.CauseLag}
	first := okObservation(urls[0], at)
	// A day without partition, and times of broken clocks, are kept all the same.
	early := monitor.Observation{Relay: urls[0], At: at.AddDate(0, 0, -9), Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload}
	late := monitor.Observation{Relay: urls[0], At: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), Outcome: monitor.OutcomeSkipped, Cause: monitor.CausePaused}

	in := batch(1, at)
	in.Batch.Observations = []monitor.Observation{first, fast, failed, lagging, early, late, okObservation(urls[1], at)}
	check(t, s.Ingest(t.Context(), in))
	other := batch(1, at, urls[0])
	other.Batch.Vantage = "b"
	check(t, s.Ingest(t.Context(), other))

	failed.Evidence, failed.Lag = "", 32767*time.Millisecond
	for i := range fast.Times {
		fast.Times[i] = time.Millisecond
	}
	fast.Times[monitor.StageNone] = 0
	late.At = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	want := []monitor.Observation{early, first, okObservation(urls[0], at), fast, failed, lagging, late}
	for i := range want {
		want[i].Vantage, want[i].Start = "a", want[i].At
	}
	want[2].Vantage = "b"
	if d := cmp.Diff(want, observations(t, s, urls[0]), addresses); d != "" {
		t.Error(d)
	}

	for name, c := range map[string]struct {
		q    monitor.ObservationQuery
		want []monitor.Observation
	}{
		"range":           {monitor.ObservationQuery{Relay: urls[0], From: at.Add(time.Minute), To: at.Add(3 * time.Minute), Limit: 9}, want[3:5]},
		"limit":           {monitor.ObservationQuery{Relay: urls[0], From: at, Limit: 3}, want[1:4]},
		"vantage":         {monitor.ObservationQuery{Relay: urls[0], Vantage: "b", Limit: 9}, want[2:3]},
		"no limit":        {monitor.ObservationQuery{Relay: urls[0]}, []monitor.Observation{}},
		"unknown relay":   {monitor.ObservationQuery{Relay: "wss://x.example/\x00\xff", Limit: 9}, []monitor.Observation{}},
		"unknown vantage": {monitor.ObservationQuery{Relay: urls[0], Vantage: "c", Limit: 9}, []monitor.Observation{}},
	} {
		got, err := s.Observations(t.Context(), c.q)
		check(t, err)
		if d := cmp.Diff(c.want, got, addresses); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 2)
	at := noon()
	step := func(i int, u monitor.RelayURL, from, to monitor.State) monitor.Transition {
		return monitor.Transition{
			Relay: u, From: from, To: to, At: at.Add(time.Duration(i) * time.Second), Quorum: monitor.Quorum{For: 1, Of: 1},
			Cause: monitor.CauseReset, Evidence: "reset", Rules: monitor.RulesVersion,
			Ballots: []monitor.Ballot{{
				Vantage: "a", Group: "g", Vote: monitor.VoteDown, Eligible: true, Able: true, Outcome: monitor.OutcomeFailed,
				Stage: monitor.StageTLS, Cause: monitor.CauseReset, Evidence: "reset", At: at, FailureCount: 3, LastFailure: at,
				LastSuccess: at.Add(-time.Hour), RTTOpen: 4 * time.Millisecond,
			}},
		}
	}
	d := &monitor.Decision{At: at, Generation: 3, Transitions: []monitor.Transition{
		step(0, urls[0], monitor.StateUnknown, monitor.StateOnline),
		step(0, urls[1], monitor.StateUnknown, monitor.StateOnline),
		step(1, urls[0], monitor.StateOnline, monitor.StateOffline),
		step(2, urls[0], monitor.StateOffline, monitor.StateOnline),
	}}
	check(t, s.Commit(t.Context(), d))
	all := d.Transitions
	for i := range all {
		if all[i].ID == 0 || i > 0 && all[i].ID <= all[i-1].ID {
			t.Fatalf("ids %d then %d", all[max(0, i-1)].ID, all[i].ID)
		}
	}
	// The same round once more, as after a lost answer.
	again := &monitor.Decision{At: at, Generation: 3, Transitions: append([]monitor.Transition(nil), all...)}
	for i := range again.Transitions {
		again.Transitions[i].ID = 0
	}
	check(t, s.Commit(t.Context(), again))
	if d := cmp.Diff(all, again.Transitions); d != "" {
		t.Error(d)
	}

	online := monitor.StateOnline
	for name, c := range map[string]struct {
		q    monitor.TransitionQuery
		want []monitor.Transition
	}{
		"all":          {monitor.TransitionQuery{Limit: 9}, []monitor.Transition{all[3], all[2], all[1], all[0]}},
		"first page":   {monitor.TransitionQuery{Limit: 2}, []monitor.Transition{all[3], all[2]}},
		"next page":    {monitor.TransitionQuery{Limit: 2, Before: all[2].ID}, []monitor.Transition{all[1], all[0]}},
		"relay":        {monitor.TransitionQuery{Relay: urls[0], Limit: 9}, []monitor.Transition{all[3], all[2], all[0]}},
		"relay, page":  {monitor.TransitionQuery{Relay: urls[0], Limit: 9, Before: all[2].ID}, []monitor.Transition{all[0]}},
		"state":        {monitor.TransitionQuery{State: &online, Limit: 9}, []monitor.Transition{all[3], all[1], all[0]}},
		"relay, state": {monitor.TransitionQuery{Relay: urls[1], State: &online, Limit: 9}, []monitor.Transition{all[1]}},
		"range":        {monitor.TransitionQuery{From: at.Add(time.Second), To: at.Add(2 * time.Second), Limit: 9}, []monitor.Transition{all[2]}},
		"no limit":     {monitor.TransitionQuery{}, []monitor.Transition{}},
		"unknown":      {monitor.TransitionQuery{Relay: "wss://nowhere.example/", Limit: 9}, []monitor.Transition{}},
	} {
		got, err := s.Transitions(t.Context(), c.q)
		check(t, err)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}

	// All or nothing: one transition of an unknown relay stops the whole round.
	bad := &monitor.Decision{At: at, Generation: 9, Transitions: []monitor.Transition{
		step(5, urls[0], monitor.StateOnline, monitor.StateOffline), step(5, "wss://nowhere.example/", monitor.StateUnknown, monitor.StateOnline),
	}}
	if err := s.Commit(t.Context(), bad); !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("unknown relay: %v", err)
	}
	got, err := s.Load(t.Context())
	check(t, err)
	if got.Generation != 3 {
		t.Errorf("generation %d", got.Generation)
	}
}

func TestCommitReports(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	now := time.Now().Truncate(time.Second).UTC()
	event := func(d, id, key string, age time.Duration) monitor.SignedEvent {
		return monitor.SignedEvent{ID: id, Kind: 30166, Pubkey: key, D: d, CreatedAt: now.Add(-age), Expires: now.Add(time.Hour), JSON: []byte(`{"id":"` + id + `"}`)}
	}
	commit := func(g uint64, withdrawn []monitor.RelayURL, events ...monitor.SignedEvent) {
		t.Helper()
		check(t, s.Commit(t.Context(), &monitor.Decision{At: now, Generation: g, Events: events, Withdrawn: withdrawn}))
	}
	events := func() (ids []string, generation uint64) {
		t.Helper()
		got, err := s.Load(t.Context())
		check(t, err)
		for _, e := range got.Events {
			ids = append(ids, e.ID)
		}
		return ids, got.Generation
	}
	commit(10, nil, event("wss://a/", "1", "k", 30*time.Second), event("wss://b/", "2", "k", 0), event("wss://c/", "3", "k", 0))
	commit(9, nil, event("wss://a/", "4", "k", 20*time.Second), event("wss://a/", "5", "k", 10*time.Second)) // one address twice
	commit(9, nil, event("wss://a/", "6", "k", time.Minute))                                                 // never backwards
	commit(11, []monitor.RelayURL{"wss://b/", "wss://c/"}, event("wss://c/", "7", "k", 0))                   // withdrawn, and back at once
	ids, generation := events()
	if d := cmp.Diff([]string{"5", "7"}, ids); d != "" || generation != 11 {
		t.Errorf("generation %d, %s", generation, d)
	}

	commit(12, nil, event("wss://d/", "8", "other", 0))
	if n, err := s.ForgetOtherKeys(t.Context(), "other"); err != nil || n != 2 {
		t.Errorf("forgot %d, %v", n, err)
	}
	if ids, _ := events(); !cmp.Equal(ids, []string{"8"}) {
		t.Errorf("left: %v", ids)
	}
}

// What relays send reaches text and jsonb columns only as PostgreSQL takes it.
func TestHostileText(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 1)
	at := noon()
	for i, evil := range []string{
		"a\x00b", "\xff\xfe", "\\u0000", `\\u0000`, `\`, "\x00", `"}'); DROP TABLE relay; --`, strings.Repeat("[", 60_000), "\ud7ff\U0010ffff\u202e", "\\ud800",
	} {
		in := batch(uint64(i+1), at, urls[0])
		r := in.Records[urls[0]]
		r.Evidence = evil
		in.Records[urls[0]] = r
		in.Batch.Health.Impairments = []monitor.Impairment{monitor.Impairment(evil)}
		in.Infos = map[monitor.RelayURL]*monitor.Info{urls[0]: {Raw: []byte(evil), Name: evil, Tags: []string{evil}}}
		check(t, s.Ingest(t.Context(), in))
		check(t, s.Commit(t.Context(), &monitor.Decision{
			At: at, Relays: []monitor.WatchedRelay{{URL: urls[0], Source: monitor.SourceConfig, Verdict: monitor.Verdict{Reason: evil, Evidence: evil}}},
			Transitions: []monitor.Transition{{Relay: urls[0], At: at.Add(time.Duration(i) * time.Second), Evidence: evil, Ballots: []monitor.Ballot{{Vantage: evil, Evidence: evil}}}},
		}))
		want := strings.ReplaceAll(strings.ToValidUTF8(evil, "\uFFFD"), "\x00", "")
		got, err := s.Load(t.Context())
		check(t, err)
		relay := got.Relays[0]
		if relay.Info.Name != want && evil != "\xff\xfe" || string(relay.Info.Raw) != want || relay.Verdict.Evidence != want {
			t.Errorf("%.20q came back as %.20q, %.20q, %.20q", evil, relay.Info.Name, relay.Info.Raw, relay.Verdict.Evidence)
		}
		if _, err := s.Transitions(t.Context(), monitor.TransitionQuery{Limit: 100}); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ingest(ctx, batch(1, noon(), urls...)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := s.Load(ctx); err == nil {
		t.Error("cancelled load succeeded")
	}
	check(t, s.Ingest(t.Context(), batch(1, noon(), urls...)))
	s.Close()
	if err := s.Ingest(t.Context(), batch(2, noon(), urls...)); !errors.Is(err, monitor.ErrUnavailable) {
		t.Errorf("closed: %v", err)
	}
}
