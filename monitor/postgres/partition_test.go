package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestPartitions(t *testing.T) {
	t.Parallel()
	s, conn := openTest(t)
	ctx := t.Context()
	today := time.Now().UTC().Truncate(24 * time.Hour)
	day := func(i int) string { return today.AddDate(0, 0, i).Format(partitionName) }
	expect := func(days ...int) {
		t.Helper()
		var want []string
		for _, d := range days {
			want = append(want, day(d))
		}
		if d := cmp.Diff(want, query[string](t, conn, statement("partitions"))); d != "" {
			t.Error(d)
		}
	}
	expect(0, 1, 2) // made by Open

	// Rows of days that have no partition wait in the default one.
	if err := s.Enrol(ctx, monitor.Vantage{Name: "a", Enrolled: today}); err != nil {
		t.Fatal(err)
	}
	relay := monitor.WatchedRelay{URL: "wss://a.example/", Source: monitor.SourceConfig, FirstSeen: today}
	if err := s.Watch(ctx, []monitor.WatchedRelay{relay}); err != nil {
		t.Fatal(err)
	}
	in := &monitor.Ingest{Batch: monitor.Batch{Vantage: "a", Seq: 1}}
	for _, d := range []int{-9, -1, 0, 1, 4, 5, 6} {
		in.Batch.Observations = append(in.Batch.Observations, monitor.Observation{Relay: relay.URL, At: today.AddDate(0, 0, d), Outcome: monitor.OutcomeOK})
	}
	if err := s.Ingest(ctx, in); err != nil {
		t.Fatal(err)
	}
	rows := func() map[string]int64 {
		t.Helper()
		got := map[string]int64{}
		r, err := conn.Query(ctx, "SELECT tableoid::regclass::text, count(*) FROM observation GROUP BY 1")
		if err != nil {
			t.Fatal(err)
		}
		var name string
		var n int64
		if _, err := pgx.ForEachRow(r, []any{&name, &n}, func() error { got[name] = n; return nil }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if d := cmp.Diff(map[string]int64{"observation_default": 5, day(0): 1, day(1): 1}, rows()); d != "" {
		t.Error(d)
	}

	// Their partitions fetch them; asking twice changes nothing.
	for range 2 {
		if err := s.EnsurePartitions(ctx, today.AddDate(0, 0, 4).Add(23*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	expect(0, 1, 2, 4, 5, 6)
	if d := cmp.Diff(map[string]int64{"observation_default": 2, day(0): 1, day(1): 1, day(4): 1, day(5): 1, day(6): 1}, rows()); d != "" {
		t.Error(d)
	}
	index := query[int64](t, conn, "SELECT count(*) FROM pg_indexes WHERE tablename = $1", day(5))[0]
	if index != 2 {
		t.Errorf("%d indexes on a partition", index)
	}

	// A day goes when its last moment is too old, no sooner.
	for _, c := range []struct {
		olderThan time.Time
		dropped   int
	}{
		{today.Add(24*time.Hour - time.Second), 0},
		{today.Add(24 * time.Hour), 1},
		{today.AddDate(0, 0, 5).Add(time.Hour), 3},
	} {
		n, err := s.DropPartitions(ctx, c.olderThan)
		if err != nil || n != c.dropped {
			t.Errorf("older than %s: %d dropped, %v", c.olderThan, n, err)
		}
	}
	expect(5, 6)
	if d := cmp.Diff(map[string]int64{day(5): 1, day(6): 1}, rows()); d != "" {
		t.Error(d)
	}
}
