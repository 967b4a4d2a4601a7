package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// What operators said comes back after a restart, stored with what it came to.
func TestOperatorsCommandsAreKept(t *testing.T) {
	t.Parallel()
	url := postgres.TestDatabase(t)
	s := open(t, url)
	urls := prepare(t, s, 3)
	check(t, s.Enrol(t.Context(), monitor.Vantage{Name: "b", Enrolled: noon()}))
	at := time.Now().Truncate(time.Microsecond).UTC()
	for _, vantage := range []string{"a", "b"} {
		in := batch(1, at, urls...)
		in.Batch.Vantage = vantage
		check(t, s.Ingest(t.Context(), in))
	}
	relay := func(i int) monitor.WatchedRelay {
		return monitor.WatchedRelay{URL: urls[i], Source: monitor.SourceConfig, FirstSeen: noon()}
	}
	excluded, paused := relay(0), relay(1)
	excluded.Excluded = true
	paused.PausedUntil, paused.Source = at.Add(time.Hour), monitor.SourceOperator
	stranger := monitor.WatchedRelay{URL: "wss://stranger.example/", Source: monitor.SourceSubmitted, FirstSeen: at, Candidate: true}
	window := monitor.Maintenance{From: at.Add(-time.Hour), Until: at.Add(time.Hour), Note: "disks, \"new\" {ones}", Actor: "token"}
	later := monitor.Maintenance{From: at.Add(2 * time.Hour), Until: at.Add(3 * time.Hour), Actor: "token"}
	over := monitor.Maintenance{From: at.Add(-2 * time.Hour), Until: at.Add(-time.Hour)}
	d := &monitor.Decision{
		At: at, Generation: 1, Relays: []monitor.WatchedRelay{excluded, paused, stranger},
		Forgotten:   []monitor.RelayURL{urls[0], stranger.URL, "wss://nobody.example/"},
		Maintenance: map[monitor.RelayURL]monitor.Maintenance{urls[1]: later, urls[2]: over},
		Audit: &monitor.AuditEntry{
			At: at, Actor: "token", Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{urls[0], "wss://a.example/{x},\"y\""}, Note: "they asked",
		},
	}
	submitted := &monitor.AuditEntry{At: at, Actor: "", Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{stranger.URL}}
	check(t, s.Commit(t.Context(), d))
	check(t, s.Commit(t.Context(), d)) // again, as after a lost answer
	check(t, s.Commit(t.Context(), &monitor.Decision{At: at, Generation: 1, Maintenance: map[monitor.RelayURL]monitor.Maintenance{urls[1]: window}, Audit: submitted}))
	s.Close()

	s = open(t, url)
	got, err := s.Load(t.Context())
	check(t, err)
	if d := cmp.Diff([]monitor.WatchedRelay{excluded, paused, relay(2), stranger}, got.Relays); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[monitor.RelayURL][]monitor.Maintenance{urls[1]: {window, later}}, got.Maintenance); d != "" {
		t.Error(d)
	}
	for _, vantage := range []string{"a", "b"} {
		if seen := got.Seen[vantage]; len(seen) != 2 || seen[urls[1]].Newest.IsZero() || seen[urls[2]].Newest.IsZero() {
			t.Errorf("vantage %s has records of %d relays, want of the two that were not forgotten", vantage, len(seen))
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer func() { check(t, conn.Close(t.Context())) }()
	rows, err := conn.Query(t.Context(), "SELECT at, actor, kind, relays, note FROM audit ORDER BY id")
	check(t, err)
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a monitor.AuditEntry, err error) {
		err = row.Scan(&a.At, &a.Actor, &a.Kind, &a.Relays, &a.Note)
		a.At = a.At.UTC()
		return a, err
	})
	check(t, err)
	if d := cmp.Diff([]monitor.AuditEntry{*d.Audit, *submitted}, entries); d != "" {
		t.Error(d)
	}

	// The pause and the exclusion end.
	excluded.Excluded, paused.PausedUntil = false, time.Time{}
	check(t, s.Commit(t.Context(), &monitor.Decision{At: at, Generation: 1, Relays: []monitor.WatchedRelay{excluded, paused}}))
	got, err = s.Load(t.Context())
	check(t, err)
	if d := cmp.Diff([]monitor.WatchedRelay{excluded, paused, relay(2), stranger}, got.Relays); d != "" {
		t.Error(d)
	}
}

// One window of a relay that is not there stops the whole command.
func TestACommandIsStoredWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 1)
	at := noon()
	excluded := monitor.WatchedRelay{URL: urls[0], Source: monitor.SourceConfig, FirstSeen: at, Excluded: true}
	err := s.Commit(t.Context(), &monitor.Decision{
		At: at, Generation: 5, Relays: []monitor.WatchedRelay{excluded}, Forgotten: urls,
		Maintenance: map[monitor.RelayURL]monitor.Maintenance{"wss://nobody.example/": {From: at, Until: at.AddDate(0, 0, 1)}},
	})
	if !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	got, err := s.Load(t.Context())
	check(t, err)
	if got.Relays[0].Excluded || got.Generation != 0 {
		t.Errorf("a part of it is stored: %+v", got.Relays[0])
	}
}

func TestWithoutRawObservationsRecordsGoOn(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	urls := prepare(t, s, 2)
	at := noon()
	s.KeepRaw(false)
	in := batch(1, at, urls...)
	in.Infos = map[monitor.RelayURL]*monitor.Info{urls[0]: {Name: "x"}}
	check(t, s.Ingest(t.Context(), in))
	if n := len(observations(t, s, urls[0])); n != 0 {
		t.Errorf("%d raw observations stored", n)
	}
	got, err := s.Load(t.Context())
	check(t, err)
	if got.Vantages[0].LastSeq != 1 || got.Seen["a"][urls[0]].Record.State != monitor.StateOnline || got.Relays[0].Info == nil {
		t.Errorf("sequence %d, record %+v, document %v: want all of them", got.Vantages[0].LastSeq, got.Seen["a"][urls[0]].Record, got.Relays[0].Info)
	}
	s.KeepRaw(true)
	check(t, s.Ingest(t.Context(), batch(2, at.Add(time.Minute), urls...)))
	if n := len(observations(t, s, urls[0])); n != 1 {
		t.Errorf("%d raw observations, want those since", n)
	}
}
