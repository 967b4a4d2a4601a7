package postgres_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// A row per change: what is confirmed stays one row, what changes is told with
// what was before, and of changes without end the newest are kept.
func TestFactsAreARowPerChange(t *testing.T) {
	t.Parallel()
	url := postgres.TestDatabase(t)
	s := open(t, url)
	at := noon()
	relay := prepare(t, s, 2)[0]
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer conn.Close(t.Context())
	seq := uint64(0)
	store := func(f monitor.Facts) {
		t.Helper()
		seq++
		in := batch(seq, at)
		in.Facts = map[monitor.RelayURL]monitor.Facts{relay: f}
		check(t, s.Ingest(t.Context(), in))
	}
	rows := func(kind string) (n int) {
		t.Helper()
		check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM relay_document WHERE kind = $1", kind).Scan(&n))
		return n
	}
	loaded := func() monitor.Facts {
		t.Helper()
		got, err := s.Load(t.Context())
		check(t, err)
		return got.Facts[relay]
	}
	depth := func(hours int, sample string, auth monitor.Finding) monitor.Facts {
		return monitor.Facts{Capabilities: &monitor.Capabilities{Auth: auth, Sample: sample}, CapabilitiesAt: at.Add(time.Duration(hours) * time.Hour)}
	}
	equal := cmpopts.EquateComparable(netip.Addr{})

	store(depth(0, "aa", monitor.FindingConfirmed))
	store(depth(24, "bb", monitor.FindingConfirmed)) // of another day
	if n := rows("capabilities"); n != 1 {
		t.Errorf("confirmed: %d rows, want 1", n)
	}
	if d := cmp.Diff(depth(24, "bb", monitor.FindingConfirmed), loaded(), equal); d != "" {
		t.Errorf("confirmed (-want +got):\n%s", d)
	}
	store(depth(12, "bb", monitor.FindingConfirmed)) // late: it is not seen earlier for that
	if got := loaded().CapabilitiesAt; !got.Equal(at.Add(24 * time.Hour)) {
		t.Errorf("a late one moved the time to %s", got)
	}
	store(depth(36, "bb", monitor.FindingDisproved))
	if d := cmp.Diff(depth(36, "bb", monitor.FindingDisproved), loaded(), equal); d != "" || rows("capabilities") != 2 {
		t.Errorf("changed: %d rows (-want +got):\n%s", rows("capabilities"), d)
	}
	// A change at the very time of the newest row, or before it, is the newest all the same.
	store(depth(36, "bb", monitor.FindingUnknown))
	store(depth(1, "bb", monitor.FindingConfirmed))
	if got := loaded().Capabilities; got.Auth != monitor.FindingConfirmed || rows("capabilities") != 4 {
		t.Errorf("changed twice at one time: %+v in %d rows", got, rows("capabilities"))
	}

	const most = 100
	for i := range most + 5 {
		store(monitor.Facts{
			TLS: &monitor.TLSFacts{Version: "1.3", Issuer: fmt.Sprint("issuer ", i), Names: []string{"a"}, NotAfter: at}, TLSAt: at.Add(time.Duration(i) * time.Hour),
		})
	}
	if n := rows("tls"); n != most {
		t.Errorf("%d rows of certificates, want the newest %d", n, most)
	}
	var oldest string
	check(t, conn.QueryRow(t.Context(), "SELECT fields->>'issuer' FROM relay_document WHERE kind = 'tls' ORDER BY seen_at LIMIT 1").Scan(&oldest))
	if got := loaded().TLS; got.Issuer != fmt.Sprint("issuer ", most+4) || oldest != "issuer 5" {
		t.Errorf("the newest is %q, the oldest %q", got.Issuer, oldest)
	}
	if n := rows("capabilities"); n != 4 {
		t.Errorf("%d rows of capabilities are left, want 4", n)
	}
}

// What a vantage says of its networks is what it is known to reach; one that
// says nothing, as of an older version, keeps those of its enrolment.
func TestNetworksFollowTheVantage(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	prepare(t, s, 1)
	for i, tc := range []struct{ said, want []monitor.Network }{
		{nil, []monitor.Network{monitor.Clearnet}},
		{[]monitor.Network{monitor.Clearnet, monitor.Tor}, []monitor.Network{monitor.Clearnet, monitor.Tor}},
		{nil, []monitor.Network{monitor.Clearnet, monitor.Tor}},
		{[]monitor.Network{}, []monitor.Network{}},
		{[]monitor.Network{monitor.I2P}, []monitor.Network{monitor.I2P}},
	} {
		in := batch(uint64(i+1), noon())
		in.Batch.Health.Networks = tc.said
		check(t, s.Ingest(t.Context(), in))
		got, err := s.Load(t.Context())
		check(t, err)
		if d := cmp.Diff(tc.want, got.Vantages[0].Networks); d != "" {
			t.Errorf("batch %d (-want +got):\n%s", i+1, d)
		}
		if h := got.Vantages[0].Health.Networks; (h == nil) != (tc.said == nil) {
			t.Errorf("batch %d: health says %v", i+1, h)
		}
	}
}
