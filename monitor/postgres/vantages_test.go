package postgres_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

var clearnet = []monitor.Network{monitor.Clearnet}

func invitation(name, token string, at time.Time) monitor.Invitation {
	return monitor.Invitation{Name: name, Group: "hoster", Token: monitor.HashToken(token), Created: at, Expires: at.Add(monitor.InvitationLife), Actor: "token"}
}

// key is a pubkey in hex.
func key(digit string) string { return strings.Repeat(digit, 64) }

// One machine takes up an invitation, goes on after a revocation under another
// key, and a restart finds it as it was.
func TestVantagesOnOtherMachines(t *testing.T) {
	t.Parallel()
	url := postgres.TestDatabase(t)
	s := open(t, url)
	urls := prepare(t, s, 2)
	at := time.Now().Truncate(time.Microsecond).UTC()
	ctx := t.Context()

	check(t, s.Invite(ctx, invitation("ber", "one", at)))
	check(t, s.Invite(ctx, invitation("ber", "two", at.Add(time.Second)))) // instead of the first
	open1, err := s.Invitations(ctx, at.Add(time.Hour))
	check(t, err)
	if d := cmp.Diff([]monitor.Invitation{invitation("ber", "two", at.Add(time.Second))}, open1); d != "" {
		t.Errorf("open invitations (-want +got):\n%s", d)
	}
	if none, err := s.Invitations(ctx, at.Add(25*time.Hour)); err != nil || len(none) != 0 {
		t.Errorf("a day later %v are open (%v)", none, err)
	}
	enrolment := monitor.Enrolment{Token: monitor.HashToken("two"), Pubkey: key("a"), Networks: []monitor.Network{monitor.Clearnet, monitor.Tor}, At: at.Add(time.Minute)}
	for name, tc := range map[string]struct {
		change func(*monitor.Enrolment)
		want   error
	}{
		"unknown token":  {func(e *monitor.Enrolment) { e.Token = monitor.HashToken("three") }, monitor.ErrNotFound},
		"replaced token": {func(e *monitor.Enrolment) { e.Token = monitor.HashToken("one") }, monitor.ErrNotFound},
		"reserved name":  {func(e *monitor.Enrolment) { e.Reserved = []string{"local", "ber"} }, monitor.ErrConflict},
		"expired":        {func(e *monitor.Enrolment) { e.At = at.Add(24*time.Hour + time.Second) }, monitor.ErrConflict},
	} {
		e := enrolment
		tc.change(&e)
		if _, err := s.Redeem(ctx, e); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	ber := monitor.Vantage{Name: "ber", Group: "hoster", Pubkey: key("a"), Networks: enrolment.Networks, Enrolled: enrolment.At}
	got, err := s.Redeem(ctx, enrolment)
	check(t, err)
	if d := cmp.Diff(monitor.Enrolled{Vantage: ber, Seen: map[monitor.RelayURL]monitor.VantageRelay{}}, got); d != "" {
		t.Errorf("enrolled (-want +got):\n%s", d)
	}
	in := batch(7, at, urls...)
	in.Batch.Vantage = "ber"
	check(t, s.Ingest(ctx, in))
	if err := s.Ingest(ctx, in); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("the batch once more: %v, want ErrConflict", err)
	}
	// It did not hear the answer, and asks again; another machine is refused.
	again, err := s.Redeem(ctx, enrolment)
	check(t, err)
	if again.Vantage.LastSeq != 7 || len(again.Seen) != 2 || again.Seen[urls[1]].Record.State != monitor.StateOnline {
		t.Errorf("again: %+v", again)
	}
	stranger := enrolment
	stranger.Pubkey = key("b")
	if _, err := s.Redeem(ctx, stranger); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("with a token that was used: %v, want ErrConflict", err)
	}
	// One machine is one vantage.
	check(t, s.Invite(ctx, invitation("nyc", "four", at)))
	second := enrolment
	second.Token = monitor.HashToken("four")
	if _, err := s.Redeem(ctx, second); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "vantage ber") {
		t.Errorf("the same key for another name: %v, want ErrConflict that names ber", err)
	}
	// The configuration cannot take the name away while it is enrolled.
	if err := s.Enrol(ctx, monitor.Vantage{Name: "ber", Group: "ber", Enrolled: at}); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("a vantage of the process of that name: %v, want ErrConflict", err)
	}
	s.Close()

	s = open(t, url)
	stored, err := s.Load(ctx)
	check(t, err)
	if len(stored.Vantages) != 2 || stored.Vantages[1].Name != "ber" || stored.Vantages[1].Pubkey != key("a") || stored.Vantages[1].LastSeq != 7 || len(stored.Seen["ber"]) != 2 {
		t.Errorf("after a restart: %+v", stored.Vantages)
	}
	// Revoked: the key is free, the records are kept but do not count.
	check(t, s.Revoke(ctx, "ber", "token", at.Add(2*time.Minute)))
	check(t, s.Revoke(ctx, "ber", "token", at.Add(3*time.Minute)))
	for _, name := range []string{"a", "nobody"} {
		if err := s.Revoke(ctx, name, "token", at); !errors.Is(err, monitor.ErrNotFound) {
			t.Errorf("revoke %s: %v, want ErrNotFound", name, err)
		}
	}
	check(t, s.Revoke(ctx, "nyc", "token", at.Add(4*time.Minute))) // an invitation only
	if _, err := s.Redeem(ctx, second); !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("an invitation that was withdrawn: %v, want ErrNotFound", err)
	}
	if _, err := s.Redeem(ctx, enrolment); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("the old invitation of a revoked vantage: %v, want ErrConflict", err)
	}
	stored, err = s.Load(ctx)
	check(t, err)
	if !stored.Vantages[1].Revoked || len(stored.Seen["ber"]) != 0 {
		t.Errorf("revoked: %+v with records of %d relays", stored.Vantages[1], len(stored.Seen["ber"]))
	}
	// Back under another key: the records go on, unless it is another place; the
	// numbers begin anew, whatever the former key came to.
	check(t, s.Invite(ctx, invitation("ber", "five", at)))
	back, err := s.Redeem(ctx, monitor.Enrolment{Token: monitor.HashToken("five"), Pubkey: key("c"), Networks: clearnet, At: at})
	check(t, err)
	if back.Vantage.LastSeq != 0 || back.Vantage.Pubkey != key("c") || len(back.Seen) != 2 {
		t.Errorf("back: %+v with %d records", back.Vantage, len(back.Seen))
	}
	first := batch(1, at.Add(time.Minute), urls...)
	first.Batch.Vantage = "ber"
	check(t, s.Ingest(ctx, first))
	if err := s.Ingest(ctx, first); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("the first batch of another key once more: %v, want ErrConflict", err)
	}
	// Invited anew with the key that it has: its numbers go on.
	check(t, s.Invite(ctx, invitation("ber", "five and a half", at)))
	back, err = s.Redeem(ctx, monitor.Enrolment{Token: monitor.HashToken("five and a half"), Pubkey: key("c"), Networks: clearnet, At: at})
	check(t, err)
	if back.Vantage.LastSeq != 1 {
		t.Errorf("back with the same key: %+v", back.Vantage)
	}
	moved := invitation("ber", "six", at)
	moved.Group = "elsewhere"
	check(t, s.Invite(ctx, moved))
	back, err = s.Redeem(ctx, monitor.Enrolment{Token: monitor.HashToken("six"), Pubkey: key("d"), Networks: clearnet, At: at.Add(time.Second)})
	check(t, err)
	if back.Vantage.Group != "elsewhere" || len(back.Seen) != 0 || back.Vantage.LastSeq != 0 {
		t.Errorf("in another group: %+v with %d records", back.Vantage, len(back.Seen))
	}
	conn, err := pgx.Connect(ctx, url)
	check(t, err)
	defer func() { check(t, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, "SELECT kind || ' ' || note || ' ' || left(actor, 5) FROM audit ORDER BY id")
	check(t, err)
	audit, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check(t, err)
	if len(audit) < 8 || audit[0] != "invite vantage ber token" || audit[2] != "enrol vantage ber aaaaa" {
		t.Errorf("audit: %q", audit)
	}
	var plain int
	check(t, conn.QueryRow(ctx, "SELECT count(*) FROM invitation WHERE token::text LIKE '%' || encode('two', 'hex') || '%' OR length(token) <> 32").Scan(&plain))
	if plain != 0 {
		t.Error("a token is stored")
	}
}

// Of many machines that come with one token at the same time one is enrolled.
func TestATokenIsUsedOnce(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.TestDatabase(t))
	at := time.Now()
	check(t, s.Invite(t.Context(), invitation("ber", "one", at)))
	const machines = 16
	errs := make([]error, machines)
	var all sync.WaitGroup
	for i := range machines {
		all.Go(func() {
			_, errs[i] = s.Redeem(t.Context(), monitor.Enrolment{Token: monitor.HashToken("one"), Pubkey: strings.Repeat("0123456789abcdef"[i:i+1], 64), Networks: clearnet, At: at})
		})
	}
	all.Wait()
	in := 0
	for i, err := range errs {
		switch {
		case err == nil:
			in++
		case !errors.Is(err, monitor.ErrConflict):
			t.Errorf("machine %d: %v", i, err)
		}
	}
	if in != 1 {
		t.Errorf("%d machines were enrolled with one token", in)
	}
	stored, err := s.Load(t.Context())
	check(t, err)
	if len(stored.Vantages) != 1 {
		t.Errorf("%d vantages are stored", len(stored.Vantages))
	}
}
