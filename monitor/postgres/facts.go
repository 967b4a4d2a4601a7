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

// maxFactRows of one kind are kept of a relay: the newest, and what was before.
const maxFactRows = 100

// The words of relay_document.kind besides nip11.
const (
	kindTLS          = "tls"
	kindDNS          = "dns"
	kindCapabilities = "capabilities"
	kindWrite        = "write"
)

// putFacts stores what is known of relays besides whether they answer: a row
// where it differs from the newest of its kind, which is confirmed else.
func putFacts(ctx context.Context, tx pgx.Tx, facts map[monitor.RelayURL]monitor.Facts, ids map[monitor.RelayURL]int32) error {
	var relay []int32
	var kinds, fields []string
	var at []pgtype.Timestamptz
	for u, f := range facts {
		add := func(kind string, there bool, when time.Time, v any) error {
			if !there {
				return nil
			}
			text, err := jsonText(v)
			if err != nil {
				return fmt.Errorf("encode %s facts of %s: %w", kind, u, err)
			}
			relay, kinds, at, fields = append(relay, ids[u]), append(kinds, kind), append(at, instant(when.Truncate(time.Microsecond))), append(fields, text)
			return nil
		}
		for _, err := range []error{
			add(kindTLS, f.TLS != nil, f.TLSAt, f.TLS),
			add(kindDNS, f.DNS != nil, f.DNSAt, f.DNS),
			add(kindCapabilities, f.Capabilities != nil, f.CapabilitiesAt, f.Capabilities),
			add(kindWrite, f.Write != nil, f.WriteAt, f.Write),
		} {
			if err != nil {
				return err
			}
		}
	}
	if len(relay) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("ingest_facts"), relay, kinds, at, fields, maxFactRows-2); err != nil {
		return fmt.Errorf("store facts: %w", err)
	}
	return nil
}

func (l *loader) facts(ctx context.Context) error {
	rows, err := l.tx.Query(ctx, statement("load_facts"))
	if err != nil {
		return fmt.Errorf("read facts: %w", err)
	}
	var id int32
	var kind, fields string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &kind, &at, &fields}, func() error {
		i, ok := l.index[id]
		if !ok {
			return nil
		}
		if l.out.Facts == nil {
			l.out.Facts = map[monitor.RelayURL]monitor.Facts{}
		}
		url := l.out.Relays[i].URL
		f := l.out.Facts[url]
		if err := readFact(&f, kind, at.UTC(), fields); err != nil {
			return fmt.Errorf("relay %s, %s: %w", url, kind, err)
		}
		l.out.Facts[url] = f
		return nil
	})
	if err != nil {
		return fmt.Errorf("read facts: %w", err)
	}
	return nil
}

// readFact puts one row into f.
func readFact(f *monitor.Facts, kind string, at time.Time, fields string) error {
	switch kind {
	case kindTLS:
		f.TLS, f.TLSAt = new(monitor.TLSFacts), at
		return json.Unmarshal([]byte(fields), f.TLS)
	case kindDNS:
		f.DNS, f.DNSAt = new(monitor.DNSFacts), at
		return json.Unmarshal([]byte(fields), f.DNS)
	case kindCapabilities:
		f.Capabilities, f.CapabilitiesAt = new(monitor.Capabilities), at
		return json.Unmarshal([]byte(fields), f.Capabilities)
	case kindWrite:
		f.Write, f.WriteAt = new(monitor.WriteFacts), at
		return json.Unmarshal([]byte(fields), f.Write)
	}
	return nil
}
