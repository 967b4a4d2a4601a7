package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// Load reads all that a core needs to go on where it left off, in one
// snapshot. What belongs to the process that stored it is left zero: a
// record's SessionSuccess and OnlineSince, and the last measured outcome with
// its evidence. Signed events that have expired, and maintenance that is over,
// are left out.
func (s *Store) Load(ctx context.Context) (*monitor.Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var out *monitor.Stored
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		l := loader{tx: tx, out: &monitor.Stored{Seen: map[string]map[monitor.RelayURL]monitor.VantageRelay{}}}
		for _, step := range []func(context.Context) error{l.core, l.relays, l.documents, l.facts, l.vantages, l.records, l.events, l.maintenance, l.named} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		ids := make(map[monitor.RelayURL]int32, len(l.index))
		for id, i := range l.index {
			ids[l.out.Relays[i].URL] = id
		}
		s.remember(ids)
		out = l.out
		return nil
	})
	if err != nil {
		return nil, fail("load the stored state", err)
	}
	return out, nil
}

// loader holds what the parts of one Load share.
type loader struct {
	tx    pgx.Tx
	out   *monitor.Stored
	index map[int32]int    // relay id → place in out.Relays
	names map[int16]string // vantage id → name
}

func (l *loader) core(ctx context.Context) error {
	var generation int64
	if err := l.tx.QueryRow(ctx, statement("load_core")).Scan(&generation, &l.out.Served); err != nil {
		return fmt.Errorf("read the generation: %w", err)
	}
	l.out.Generation = uint64(generation)
	return nil
}

func (l *loader) relays(ctx context.Context) error {
	l.index = map[int32]int{}
	rows, err := l.tx.Query(ctx, statement("load_relays"))
	if err != nil {
		return fmt.Errorf("read relays: %w", err)
	}
	for rows.Next() {
		var (
			id                                      int32
			r                                       monitor.WatchedRelay
			state, cause                            string
			marks                                   []string
			changes                                 []time.Time
			since, lastSuccess, majorityDown, heldT pgtype.Timestamptz
			paused                                  pgtype.Timestamptz
		)
		v := &r.Verdict
		err := rows.Scan(&id, &r.URL, &r.Source, &r.FirstSeen, &r.Candidate, &r.Excluded, &paused, &state, &since, &marks, &v.Quorum.For, &v.Quorum.Of,
			&v.Reason, &cause, &v.Evidence, &lastSuccess, &majorityDown, &changes, &heldT)
		if err != nil {
			return fmt.Errorf("read relays: %w", err)
		}
		if err := v.State.UnmarshalText([]byte(state)); err != nil {
			return fmt.Errorf("relay %s: %w", r.URL, err)
		}
		if err := v.Cause.UnmarshalText([]byte(cause)); err != nil {
			return fmt.Errorf("relay %s: %w", r.URL, err)
		}
		if v.Marks, err = monitor.ParseMarks(marks); err != nil {
			return fmt.Errorf("relay %s: %w", r.URL, err)
		}
		r.FirstSeen, r.PausedUntil = r.FirstSeen.UTC(), when(paused)
		v.Since, v.LastSuccess, v.MajorityDownSince, v.HeldSince = when(since), when(lastSuccess), when(majorityDown), when(heldT)
		for _, t := range changes {
			v.Changes = append(v.Changes, t.UTC())
		}
		l.index[id] = len(l.out.Relays)
		l.out.Relays = append(l.out.Relays, r)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read relays: %w", err)
	}
	return nil
}

func (l *loader) documents(ctx context.Context) error {
	rows, err := l.tx.Query(ctx, statement("load_documents"))
	if err != nil {
		return fmt.Errorf("read documents: %w", err)
	}
	var id int32
	var fields string
	var raw *string
	_, err = pgx.ForEachRow(rows, []any{&id, &fields, &raw}, func() error {
		i, ok := l.index[id]
		if !ok {
			return nil
		}
		info := new(monitor.Info)
		if err := json.Unmarshal([]byte(fields), info); err != nil {
			return fmt.Errorf("relay %s: %w", l.out.Relays[i].URL, err)
		}
		if raw != nil {
			info.Raw = []byte(*raw)
		}
		l.out.Relays[i].Info = info
		return nil
	})
	if err != nil {
		return fmt.Errorf("read documents: %w", err)
	}
	return nil
}

func (l *loader) vantages(ctx context.Context) error {
	l.names = map[int16]string{}
	rows, err := l.tx.Query(ctx, statement("load_vantages"))
	if err != nil {
		return fmt.Errorf("read vantages: %w", err)
	}
	for rows.Next() {
		var (
			id                 int16
			v                  monitor.Vantage
			networks           []monitor.Network
			lastSeen, impaired pgtype.Timestamptz
			seq, skew          int64
			health             string
			h                  healthJSON
		)
		if err := rows.Scan(&id, &v.Name, &v.Group, &v.Pubkey, &networks, &v.Enrolled, &v.Revoked, &lastSeen, &seq, &skew, &impaired, &health); err != nil {
			return fmt.Errorf("read vantages: %w", err)
		}
		if err := json.Unmarshal([]byte(health), &h); err != nil {
			return fmt.Errorf("vantage %s: read health: %w", v.Name, err)
		}
		v.Networks, v.Enrolled, v.LastSeen = networks, v.Enrolled.UTC(), when(lastSeen)
		v.LastSeq, v.Skew, v.Health = uint64(seq), duration(skew), h.health(when(impaired))
		l.names[id] = v.Name
		l.out.Seen[v.Name] = map[monitor.RelayURL]monitor.VantageRelay{}
		l.out.Vantages = append(l.out.Vantages, v)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read vantages: %w", err)
	}
	return nil
}

func (l *loader) records(ctx context.Context) error {
	rows, err := l.tx.Query(ctx, statement("load_records"))
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	var vantage int16
	var relay int32
	var row recordRow
	_, err = pgx.ForEachRow(rows, append([]any{&vantage, &relay}, row.columns()...), func() error {
		i, known := l.index[relay]
		name, enrolled := l.names[vantage]
		if !known || !enrolled {
			return nil
		}
		url := l.out.Relays[i].URL
		seen, err := row.seen()
		if err != nil {
			return fmt.Errorf("relay %s at vantage %s: %w", url, name, err)
		}
		l.out.Seen[name][url] = seen
		return nil
	})
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	return nil
}

// recordRow is where a row of vantage_relay is read into, without its keys.
type recordRow struct {
	r                                                            monitor.VantageRelay
	state                                                        string
	firstFailure, lastFailure, lastSuccess, backoff, due, newest pgtype.Timestamptz
	open, read, write                                            int32
}

// columns are where the columns go, in the order of load_records and
// vantage_records.
func (w *recordRow) columns() []any {
	return []any{
		&w.state, &w.r.Record.FailureCount, &w.r.Record.Corroborated, &w.firstFailure, &w.lastFailure, &w.lastSuccess,
		&w.backoff, &w.due, &w.newest, &w.open, &w.read, &w.write,
	}
}

// seen is the row that was read last.
func (w *recordRow) seen() (monitor.VantageRelay, error) {
	r := &w.r
	if err := r.Record.State.UnmarshalText([]byte(w.state)); err != nil {
		return monitor.VantageRelay{}, err
	}
	r.Record.FirstFailure, r.Record.LastFailure, r.Record.LastSuccess = when(w.firstFailure), when(w.lastFailure), when(w.lastSuccess)
	r.Record.BackoffUntil, r.NextDue, r.Newest = when(w.backoff), when(w.due), when(w.newest)
	r.RTTOpen, r.RTTRead, r.RTTWrite = duration(w.open), duration(w.read), duration(w.write)
	return *r, nil
}

func (l *loader) events(ctx context.Context) error {
	rows, err := l.tx.Query(ctx, statement("load_events"), time.Now())
	if err != nil {
		return fmt.Errorf("read signed events: %w", err)
	}
	for rows.Next() {
		var e monitor.SignedEvent
		var expires pgtype.Timestamptz
		if err := rows.Scan(&e.Kind, &e.Pubkey, &e.D, &e.ID, &e.CreatedAt, &expires, &e.JSON); err != nil {
			return fmt.Errorf("read signed events: %w", err)
		}
		e.CreatedAt, e.Expires = e.CreatedAt.UTC(), when(expires)
		l.out.Events = append(l.out.Events, e)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read signed events: %w", err)
	}
	return nil
}

func (l *loader) maintenance(ctx context.Context) error {
	rows, err := l.tx.Query(ctx, statement("load_maintenance"), time.Now())
	if err != nil {
		return fmt.Errorf("read maintenance: %w", err)
	}
	var id int32
	var m monitor.Maintenance
	_, err = pgx.ForEachRow(rows, []any{&id, &m.From, &m.Until, &m.Note, &m.Actor}, func() error {
		if i, ok := l.index[id]; ok {
			url := l.out.Relays[i].URL
			m.From, m.Until = m.From.UTC(), m.Until.UTC()
			if l.out.Maintenance == nil {
				l.out.Maintenance = map[monitor.RelayURL][]monitor.Maintenance{}
			}
			l.out.Maintenance[url] = append(l.out.Maintenance[url], m)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read maintenance: %w", err)
	}
	return nil
}
