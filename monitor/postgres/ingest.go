package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pharos-nostr/pharos/monitor"
)

// Ingest stores one batch, the records that it led to, new documents and facts,
// and the vantage's high-water sequence in one transaction, so that each batch is
// stored exactly once, or not at all:
//
//	ErrConflict  a batch of this sequence or a later one is stored already
//	ErrNotFound  the vantage is not enrolled, or a relay is not watched
//	ErrInvalid   the sequence is 0 or beyond 2^31-1
//
// The observations' Vantage is the batch's. KeepRaw may leave them out.
func (s *Store) Ingest(ctx context.Context, in *monitor.Ingest) error {
	b := &in.Batch
	what := fmt.Sprintf("store batch %d of vantage %s", b.Seq, b.Vantage)
	if b.Seq == 0 || b.Seq > math.MaxInt32 {
		return fmt.Errorf("%s: %w sequence", what, monitor.ErrInvalid)
	}
	now := time.Now()
	var ids map[monitor.RelayURL]int32
	err := s.write(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		vantage, err := advance(ctx, tx, in, now)
		if err != nil {
			return err
		}
		if ids, err = s.watchedIDs(ctx, tx, in); err != nil {
			return err
		}
		if !s.noRaw.Load() {
			if err := copyObservations(ctx, tx, b, vantage, ids); err != nil {
				return err
			}
		}
		if err := putRecords(ctx, tx, in.Records, vantage, ids); err != nil {
			return err
		}
		if err := putInfos(ctx, tx, in.Infos, ids, now); err != nil {
			return err
		}
		return putFacts(ctx, tx, in.Facts, ids)
	})
	if err == nil {
		s.remember(ids)
	}
	return err
}

// advance raises the vantage's high-water sequence to the batch's, with its
// health and skew, and returns the vantage's id.
func advance(ctx context.Context, tx pgx.Tx, in *monitor.Ingest, now time.Time) (int16, error) {
	b := &in.Batch
	health, err := jsonText(healthRow(b.Health))
	if err != nil {
		return 0, fmt.Errorf("encode health: %w", err)
	}
	var id int16
	err = tx.QueryRow(ctx, statement("ingest_vantage"), text(b.Vantage), int64(b.Seq), instant(now),
		stamp(b.Health.ImpairedSince), health, in.Skew.Milliseconds(), networksOf(b)).Scan(&id)
	if !errors.Is(err, pgx.ErrNoRows) {
		return id, err
	}
	var stored int64
	err = tx.QueryRow(ctx, statement("vantage_seq"), text(b.Vantage)).Scan(&stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("the vantage is not enrolled: %w", monitor.ErrNotFound)
	}
	if err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%w: stored already, up to %d", monitor.ErrConflict, stored)
}

// networksOf are the networks that the vantage says it has a way into; nil = it
// says nothing.
func networksOf(b *monitor.Batch) []string {
	if b.Health.Networks == nil {
		return nil
	}
	return networkNames(b.Health.Networks)
}

// watchedIDs returns the ids of all relays that in speaks of.
func (s *Store) watchedIDs(ctx context.Context, tx pgx.Tx, in *monitor.Ingest) (map[monitor.RelayURL]int32, error) {
	set := make(map[monitor.RelayURL]bool, len(in.Records))
	for i := range in.Batch.Observations {
		set[in.Batch.Observations[i].Relay] = true
	}
	for u := range in.Records {
		set[u] = true
	}
	for u := range in.Infos {
		set[u] = true
	}
	for u := range in.Facts {
		set[u] = true
	}
	urls := slices.Collect(maps.Keys(set))
	ids, err := s.relayIDs(ctx, tx, urls)
	if err != nil {
		return nil, err
	}
	for _, u := range urls {
		if _, ok := ids[u]; !ok {
			return nil, fmt.Errorf("relay %q is not watched: %w", u, monitor.ErrNotFound)
		}
	}
	return ids, nil
}

// copyObservations streams the rows in COPY's binary format: written by hand it
// costs a tenth of the driver's general way.
func copyObservations(ctx context.Context, tx pgx.Tx, b *monitor.Batch, vantage int16, ids map[monitor.RelayURL]int32) error {
	if len(b.Observations) == 0 {
		return nil
	}
	buf := make([]byte, 0, len(copyHeader)+len(b.Observations)*copyRow+2)
	buf = append(buf, copyHeader...)
	for i := range b.Observations {
		o := &b.Observations[i]
		buf = appendObservation(buf, o, ids[o.Relay], int32(b.Seq), vantage)
	}
	buf = binary.BigEndian.AppendUint16(buf, math.MaxUint16) // the end
	tag, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(buf), statement("ingest_observations"))
	if err != nil {
		return fmt.Errorf("copy observations: %w", err)
	}
	if n := tag.RowsAffected(); n != int64(len(b.Observations)) {
		return fmt.Errorf("copy observations: %d of %d rows arrived", n, len(b.Observations))
	}
	return nil
}

const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // signature, flags, extension
	copyColumns = 21
	copyRow     = 192 // bytes, about
)

var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func appendObservation(buf []byte, o *monitor.Observation, relay, seq int32, vantage int16) []byte {
	be := binary.BigEndian
	buf = be.AppendUint16(buf, copyColumns)
	buf = be.AppendUint32(buf, 8)
	buf = be.AppendUint64(buf, uint64(clamp(o.At).UnixMicro()-postgresEpoch.UnixMicro()))
	for _, v := range [...]int32{relay, seq} {
		buf = be.AppendUint32(buf, 4)
		buf = be.AppendUint32(buf, uint32(v))
	}
	for _, word := range [...]string{o.Outcome.String(), o.Stage.String(), o.Cause.String()} {
		if word == "" {
			buf = be.AppendUint32(buf, copyNull)
			continue
		}
		buf = be.AppendUint32(buf, uint32(len(word)))
		buf = append(buf, word...)
	}
	for _, v := range [...]int16{vantage, ms16(o.Lag)} {
		buf = be.AppendUint32(buf, 2)
		buf = be.AppendUint16(buf, uint16(v))
	}
	for _, v := range [...]int16{
		int16(max(0, min(o.HTTPStatus, math.MaxInt16))),
		ms16(o.Times[monitor.StageDNS]), ms16(o.Times[monitor.StageTCP]), ms16(o.Times[monitor.StageTLS]), ms16(o.Times[monitor.StageUpgrade]),
		ms16(o.Times[monitor.StageRead]), ms16(o.Times[monitor.StageWrite]), ms16(o.Times[monitor.StageInfo]),
		ms16(o.RTTOpen), ms16(o.RTTRead), ms16(o.RTTWrite),
	} {
		if v == 0 {
			buf = be.AppendUint32(buf, copyNull)
			continue
		}
		buf = be.AppendUint32(buf, 2)
		buf = be.AppendUint16(buf, uint16(v))
	}
	for _, yes := range [...]bool{o.NoEOSE, o.AuthSeen} {
		buf = be.AppendUint32(buf, 1)
		if yes {
			buf = append(buf, 1)
		} else {
			buf = append(buf, 0)
		}
	}
	return buf
}

const copyNull = math.MaxUint32 // length −1

func putRecords(ctx context.Context, tx pgx.Tx, records map[monitor.RelayURL]monitor.VantageRelay, vantage int16, ids map[monitor.RelayURL]int32) error {
	if len(records) == 0 {
		return nil
	}
	// In the order of the primary key, for the pages' sake.
	urls := slices.Collect(maps.Keys(records))
	slices.SortFunc(urls, func(a, b monitor.RelayURL) int { return int(ids[a]) - int(ids[b]) })
	n := len(urls)
	var (
		relay, failures, rttOpen, rttRead, rttWrite = make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, n)
		state, outcome, stage, cause, evidence      = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		corroborated                                = make([]bool, n)
		stamps                                      [7][]pgtype.Timestamptz
	)
	for i := range stamps {
		stamps[i] = make([]pgtype.Timestamptz, n)
	}
	for i, u := range urls {
		r := records[u]
		relay[i], failures[i] = ids[u], count(r.Record.FailureCount)
		rttOpen[i], rttRead[i], rttWrite[i] = ms32(r.RTTOpen), ms32(r.RTTRead), ms32(r.RTTWrite)
		state[i], outcome[i], stage[i], cause[i] = r.Record.State.String(), r.Outcome.String(), r.Stage.String(), r.Cause.String()
		evidence[i] = text(r.Evidence)
		corroborated[i] = r.Record.Corroborated
		for j, t := range [...]time.Time{
			r.Record.FirstFailure, r.Record.LastFailure, r.Record.LastSuccess, r.Record.BackoffUntil, r.NextDue, r.Newest, r.At,
		} {
			stamps[j][i] = stamp(t)
		}
	}
	_, err := tx.Exec(ctx, statement("ingest_records"), vantage, relay, state, failures, corroborated,
		stamps[0], stamps[1], stamps[2], stamps[3], stamps[4], stamps[5],
		outcome, stage, cause, stamps[6], evidence, rttOpen, rttRead, rttWrite)
	if err != nil {
		return fmt.Errorf("store records: %w", err)
	}
	return nil
}

func putInfos(ctx context.Context, tx pgx.Tx, infos map[monitor.RelayURL]*monitor.Info, ids map[monitor.RelayURL]int32, now time.Time) error {
	var relay []int32
	var fields []string
	var raw []*string
	for u, info := range infos {
		if info == nil {
			continue
		}
		f, err := jsonText(info)
		if err != nil {
			return fmt.Errorf("encode NIP-11 document of %s: %w", u, err)
		}
		var r *string
		if info.Raw != nil {
			t := text(string(info.Raw))
			r = &t
		}
		relay, fields, raw = append(relay, ids[u]), append(fields, f), append(raw, r)
	}
	if len(relay) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("ingest_documents"), instant(now), relay, fields, raw); err != nil {
		return fmt.Errorf("store NIP-11 documents: %w", err)
	}
	return nil
}
