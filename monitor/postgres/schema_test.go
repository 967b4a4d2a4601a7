package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// openTest opens a database of the test's own, and a second connection to it.
func openTest(t testing.TB) (*Store, *pgx.Conn) {
	t.Helper()
	url := TestDatabase(t)
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, connectTest(t, url)
}

func connectTest(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(conn) })
	return conn
}

func query[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// words returns the names of a Go enumeration, the empty one left out.
func words[T interface {
	~uint8
	fmt.Stringer
}]() []string {
	var out []string
	for v := T(0); ; v++ {
		switch w := v.String(); {
		case strings.HasPrefix(w, "invalid("):
			return out
		case w != "":
			out = append(out, w)
		}
	}
}

// The same words in Go and SQL: one that is new in Go needs a migration.
func TestEnumWords(t *testing.T) {
	t.Parallel()
	_, conn := openTest(t)
	for name, want := range map[string][]string{
		"outcome": words[monitor.Outcome](), "stage": words[monitor.Stage](),
		"cause": words[monitor.Cause](), "state": words[monitor.State](),
	} {
		got := query[[]string](t, conn, "SELECT enum_range(NULL::"+name+")::text[]")[0]
		slices.Sort(want)
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-Go +SQL): %s", name, d)
		}
	}
}

// Every combination of words comes back as it went in, and an operator's SQL
// tells the same.
func TestObservationWords(t *testing.T) {
	t.Parallel()
	s, conn := openTest(t)
	ctx := t.Context()
	const relay = monitor.RelayURL("wss://a.example/")
	at := time.Now().UTC().Truncate(24 * time.Hour)
	if err := s.Enrol(ctx, monitor.Vantage{Name: "a", Enrolled: at}); err != nil {
		t.Fatal(err)
	}
	if err := s.Watch(ctx, []monitor.WatchedRelay{{URL: relay, Source: monitor.SourceConfig, FirstSeen: at}}); err != nil {
		t.Fatal(err)
	}
	in := &monitor.Ingest{Batch: monitor.Batch{Vantage: "a", Seq: 1}}
	for o := range monitor.Outcome(len(words[monitor.Outcome]()) + 1) {
		for st := range monitor.Stage(monitor.NumStages) {
			for c := range monitor.Cause(len(words[monitor.Cause]()) + 1) {
				n := len(in.Batch.Observations)
				in.Batch.Observations = append(in.Batch.Observations, monitor.Observation{
					Relay: relay, At: at.Add(time.Duration(n) * time.Millisecond), Outcome: o, Stage: st, Cause: c, NoEOSE: n%2 == 0, AuthSeen: n%3 == 0,
				})
			}
		}
	}
	if err := s.Ingest(ctx, in); err != nil {
		t.Fatal(err)
	}
	stored, err := s.Observations(ctx, monitor.ObservationQuery{Relay: relay, Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	line := func(o monitor.Observation) string {
		return fmt.Sprint(o.Outcome, "/", o.Stage, "/", o.Cause, " ", o.NoEOSE, " ", o.AuthSeen)
	}
	var want, got []string
	for _, o := range in.Batch.Observations {
		want = append(want, line(o))
	}
	for _, o := range stored {
		got = append(got, line(o))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	told := query[string](t, conn, `SELECT concat(outcome, '/', stage, '/', cause, ' ', no_eose::text, ' ', auth_seen::text) FROM observation ORDER BY time`)
	if d := cmp.Diff(want, told); d != "" {
		t.Error(d)
	}
}

func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	_, conn := openTest(t)
	if len(statements) < 30 {
		t.Fatalf("only %d statements are embedded", len(statements))
	}
	for name, sql := range statements {
		if strings.HasPrefix(sql, "COPY ") { // has no plan; TestObservations runs it
			continue
		}
		if _, err := conn.Prepare(t.Context(), name, sql); err != nil {
			t.Errorf("%s.sql: %v", name, err)
		}
	}
}

// typical is what most probes see: a TLS relay that answers, its NIP-11 once in
// a dozen rounds, and one relay in five that does not answer at all.
func typical(u monitor.RelayURL, i, round int, at time.Time) monitor.Observation {
	o := monitor.Observation{Relay: u, At: at, Lag: 3 * time.Millisecond}
	o.Times[monitor.StageDNS] = 2 * time.Millisecond
	if i%5 == 0 {
		o.Outcome, o.Stage, o.Cause = monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout
		o.Times[monitor.StageTCP] = 4 * time.Second
		return o
	}
	o.Outcome, o.Stage, o.HTTPStatus = monitor.OutcomeOK, monitor.StageRead, 101
	o.RTTOpen, o.RTTRead = 83*time.Millisecond, 41*time.Millisecond
	o.Times[monitor.StageTCP], o.Times[monitor.StageTLS] = 20*time.Millisecond, 40*time.Millisecond
	o.Times[monitor.StageUpgrade], o.Times[monitor.StageRead] = 23*time.Millisecond, 60*time.Millisecond
	if round%12 == 0 {
		o.Times[monitor.StageInfo] = 30 * time.Millisecond
	}
	return o
}

// fill stores days × perDay observations of each of n relays through the Store,
// in the order of time, and analyses.
func fill(t testing.TB, s *Store, conn *pgx.Conn, n, days, perDay int) (first time.Time) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	first = time.Now().UTC().Truncate(24 * time.Hour)
	if err := s.Enrol(ctx, monitor.Vantage{Name: "a", Enrolled: first}); err != nil {
		t.Fatal(err)
	}
	var watched []monitor.WatchedRelay
	for i := range n {
		watched = append(watched, monitor.WatchedRelay{URL: monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", i)), Source: monitor.SourceConfig, FirstSeen: first})
	}
	if err := s.Watch(ctx, watched); err != nil {
		t.Fatal(err)
	}
	gap := 24 * time.Hour / time.Duration(perDay)
	seq := uint64(0)
	for round := range days * perDay {
		for from := 0; from < n; from += 1000 {
			seq++
			in := &monitor.Ingest{Batch: monitor.Batch{Vantage: "a", Seq: seq}}
			for i := from; i < min(n, from+1000); i++ {
				in.Batch.Observations = append(in.Batch.Observations, typical(watched[i].URL, i, round, first.Add(time.Duration(round)*gap+time.Duration(i)*gap/time.Duration(n))))
			}
			if err := s.Ingest(ctx, in); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE observation"); err != nil {
		t.Fatal(err)
	}
	return first
}

// 105 bytes a row with its indexes, in the order in which rows come
// (P10; the measure is of pages, so it is the same everywhere).
func TestObservationRowSize(t *testing.T) {
	t.Parallel()
	s, conn := openTest(t)
	first := fill(t, s, conn, 500, 1, 288)
	size := query[int64](t, conn, "SELECT pg_total_relation_size($1::regclass)", first.Format(partitionName))[0]
	rows := query[int64](t, conn, "SELECT count(*) FROM observation")[0]
	if per := float64(size) / float64(rows); rows != 500*288 || per > 105 {
		t.Errorf("%.1f bytes a row over %d rows", per, rows)
	} else {
		t.Logf("%.1f bytes a row over %d rows", per, rows)
	}
}

type plan struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Plans    []plan `json:"Plans"`
}

func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, sub := range p.Plans {
		sub.walk(visit)
	}
}

func explain(t testing.TB, conn *pgx.Conn, name string, args ...any) plan {
	t.Helper()
	text := query[string](t, conn, "EXPLAIN (FORMAT JSON) "+statement(name), args...)[0]
	var plans []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan
}

// The heavy reads find their rows by an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	s, conn := openTest(t)
	first := fill(t, s, conn, 400, 2, 48)
	day := first.Format(partitionName)
	used := false
	explain(t, conn, "observations", "wss://r7.example/", first, first.AddDate(0, 0, 1), "", 1000).walk(func(p plan) {
		switch {
		case p.Relation == day && p.Type == "Seq Scan":
			t.Errorf("one relay's day reads all of %s", day)
		case p.Index == day+"_relay_id_idx":
			used = true
		case strings.HasPrefix(p.Relation, "observation_2") && p.Relation != day:
			t.Errorf("one relay's day looks into %s", p.Relation)
		}
	})
	if !used {
		t.Error("one relay's day does not use the index on the relay")
	}

	for i := range 40 {
		d := &monitor.Decision{At: first}
		for r := range 400 {
			d.Transitions = append(d.Transitions, monitor.Transition{
				Relay: monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", r)), At: first.Add(time.Duration(i) * time.Minute), To: monitor.StateOnline,
			})
		}
		if err := s.Commit(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "ANALYZE transition"); err != nil {
		t.Fatal(err)
	}
	from, to := span(time.Time{}, time.Time{})
	for name, args := range map[string][]any{
		"transitions":          {from, to, int64(1 << 62), "", 50},
		"transitions_of_relay": {from, to, int64(1 << 62), "", 50, "wss://r7.example/"},
	} {
		explain(t, conn, name, args...).walk(func(p plan) {
			if p.Type == "Seq Scan" && p.Relation == "transition" {
				t.Errorf("%s reads the whole table", name)
			}
		})
	}
}
