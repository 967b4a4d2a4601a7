package publisher_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher"
)

var (
	start = time.Unix(1_800_000_000, 0).UTC()
	key   = mustKey("0000000000000000000000000000000000000000000000000000000000000003")
	other = mustKey("0000000000000000000000000000000000000000000000000000000000000005")
)

func mustKey(s string) nostr.Key {
	k, err := nostr.ParseKey(s)
	if err != nil {
		panic(err)
	}
	return k
}

func config() publisher.Config {
	return publisher.Config{
		Name: "Pharos", PublicURL: "wss://pharos.example.com/", Frequency: time.Hour, Expiration: 6 * time.Hour,
		Timeout: 12 * time.Second, Checks: []string{"open", "read", "nip11", "dns"}, Networks: []monitor.Network{monitor.Clearnet},
	}
}

type fataler interface {
	Helper()
	Fatal(...any)
}

func newPublisher(t fataler, stored ...monitor.SignedEvent) *publisher.Publisher {
	t.Helper()
	p, err := publisher.New(config(), key, stored)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func url(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://relay%05d.example.com/", i))
}

func source(i int, checked time.Time) monitor.ReportSource {
	return monitor.ReportSource{URL: url(i), Network: monitor.Clearnet, RTTOpen: 50, RTTRead: 30, OnlineSince: checked}
}

func sources(n int, checked time.Time) []monitor.ReportSource {
	var out []monitor.ReportSource
	for i := range n {
		out = append(out, source(i, checked))
	}
	return out
}

func TestNew(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*publisher.Config)
		says   string
	}{
		"no frequency":     {func(c *publisher.Config) { c.Frequency = 0 }, "frequency is 0s"},
		"broken seconds":   {func(c *publisher.Config) { c.Frequency = 1500 * time.Millisecond }, "whole seconds"},
		"short expiration": {func(c *publisher.Config) { c.Expiration = 2*time.Hour - 1 }, "twice the frequency"},
		"an unknown check": {func(c *publisher.Config) { c.Checks = []string{"open", "ssl"} }, `"ssl" is no check`},
	} {
		c := config()
		tc.change(&c)
		if _, err := publisher.New(c, key, nil); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := publisher.New(config(), nostr.Key{}, nil); !errors.Is(err, nostr.ErrBadKey) {
		t.Errorf("no key: %v", err)
	}
}

func TestAnotherKeysEvents(t *testing.T) {
	foreign, err := publisher.New(config(), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := foreign.Reports(start, sources(1, start))
	if _, err := publisher.New(config(), key, stored); !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "--new-key") {
		t.Errorf("got %v", err)
	}
}

func TestFirstReport(t *testing.T) {
	p := newPublisher(t)
	list := sources(1, start.Add(-time.Minute))
	got := p.Reports(start, list)
	if len(got) != 1 {
		t.Fatalf("%d reports", len(got))
	}
	r := got[0]
	ev, err := nostr.Decode(r.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if err := nostr.Verify(ev); err != nil {
		t.Error(err)
	}
	if r.Kind != 30166 || r.D != string(url(0)) || r.Pubkey != key.Pubkey() || !r.CreatedAt.Equal(start) || !r.Expires.Equal(start.Add(6*time.Hour)) {
		t.Errorf("%+v", r)
	}
	if v := ev.Tags.Find("expiration"); v == nil || v[1] != strconv.FormatInt(start.Add(6*time.Hour).Unix(), 10) {
		t.Errorf("expiration %v", v)
	}
	if c := p.Report(url(0), start); c == nil || c.ID != r.ID {
		t.Errorf("current: %v", c)
	}
	if c := p.Report(url(0), start.Add(6*time.Hour)); c != nil {
		t.Error("it is current at the second at which it expires")
	}
	if c := p.Report(url(1), start); c != nil {
		t.Error("a report on nothing")
	}
	if got := p.Reports(start.Add(time.Second), list); len(got) != 0 {
		t.Errorf("signed again: %d", len(got))
	}
}

func TestNoReportWithoutOpenTime(t *testing.T) {
	p := newPublisher(t)
	s := source(0, start)
	s.RTTOpen = 0
	if got := p.Reports(start, []monitor.ReportSource{s}); len(got) != 0 {
		t.Errorf("signed %d", len(got))
	}
}

// TestChanges: rule 10, what is signed at once and what is not.
func TestChanges(t *testing.T) {
	yes := true
	info := &monitor.Info{Raw: []byte(`{"name":"x"}`)}
	same := &monitor.Info{Raw: []byte(`{"name":"x"}`)}
	base := source(0, start)
	base.Info = info
	for _, tc := range []struct {
		name   string
		change func(*monitor.ReportSource)
		want   int
	}{
		{"nothing", func(*monitor.ReportSource) {}, 0},
		{"measured times", func(s *monitor.ReportSource) { s.RTTOpen, s.RTTRead, s.RTTWrite = 900, 0, 7 }, 0},
		{"the same document read again", func(s *monitor.ReportSource) { s.Info = same }, 0},
		{"another document", func(s *monitor.ReportSource) { s.Info = &monitor.Info{Raw: []byte(`{"name":"y"}`)} }, 1},
		{"another requirement in it", func(s *monitor.ReportSource) {
			s.Info = &monitor.Info{Raw: []byte(`{"name":"x"}`), PaymentRequired: &yes}
		}, 1},
		{"another NIP in it", func(s *monitor.ReportSource) {
			s.Info = &monitor.Info{Raw: []byte(`{"name":"x"}`), NIPs: []int{1}}
		}, 1},
		{"the document is gone", func(s *monitor.ReportSource) { s.Info = &monitor.Info{Problem: "http_404"} }, 1},
		{"a requirement seen", func(s *monitor.ReportSource) { s.AuthSeen = true }, 1},
		{"a country", func(s *monitor.ReportSource) { s.Country = "DE" }, 1},
		{"a return", func(s *monitor.ReportSource) { s.OnlineSince = s.OnlineSince.Add(time.Minute) }, 1},
		{"online since is not known", func(s *monitor.ReportSource) { s.OnlineSince = time.Time{} }, 0},
	} {
		p := newPublisher(t)
		first := p.Reports(start, []monitor.ReportSource{base})
		now := start.Add(10 * time.Second)
		src := base
		tc.change(&src)
		got := p.Reports(now, []monitor.ReportSource{src})
		if len(got) != tc.want {
			t.Errorf("%s: %d signed, want %d", tc.name, len(got), tc.want)
		}
		if tc.want == 1 && len(got) == 1 && !got[0].CreatedAt.After(first[0].CreatedAt) {
			t.Errorf("%s: dated %v after %v", tc.name, got[0].CreatedAt, first[0].CreatedAt)
		}
		if again := p.Reports(now.Add(time.Second), []monitor.ReportSource{src}); len(again) != 0 {
			t.Errorf("%s: signed again", tc.name)
		}
	}
}

// TestRenewal: rule 10, each report before 0.75 of the frequency, spread.
func TestRenewal(t *testing.T) {
	const n = 200
	p := newPublisher(t)
	list := sources(n, start.Add(-5*time.Minute))
	born := map[string]time.Time{}
	for _, r := range p.Reports(start, list) {
		born[r.D] = r.CreatedAt
	}
	if len(born) != n {
		t.Fatalf("%d of %d signed at first", len(born), n)
	}
	var ages []time.Duration
	for now := start; now.Before(start.Add(time.Hour)) && len(ages) < n; now = now.Add(10 * time.Second) {
		for _, r := range p.Reports(now, list) {
			ages = append(ages, r.CreatedAt.Sub(born[r.D]))
		}
	}
	if len(ages) != n {
		t.Fatalf("%d of %d renewed within the frequency", len(ages), n)
	}
	slices.Sort(ages)
	if ages[n-1] >= 45*time.Minute {
		t.Errorf("the last was renewed after %s, want before 45m", ages[n-1])
	}
	if ages[0] < 35*time.Minute {
		t.Errorf("the first was renewed after %s already", ages[0])
	}
	if spread := ages[n-5] - ages[5]; spread < 6*time.Minute {
		t.Errorf("they are spread over %s only", spread)
	}
}

// TestRestart: what the store holds is gone on with.
func TestRestart(t *testing.T) {
	info := &monitor.Info{Raw: []byte(`{"name":"x","supported_nips":[1]}`), NIPs: []int{1}, Tags: []string{"a\nb"}}
	list := sources(30, start)
	list[0].Info = info
	p := newPublisher(t)
	stored := p.Reports(start, list[:19])
	stored = append(stored, p.Announcements(start)...)
	snap := p.Snapshot(start, 7, start, []monitor.RelayURL{url(0), url(1)})
	stored = append(stored, *snap)
	broken := stored[1]
	broken.JSON = bytes.Replace(broken.JSON, []byte(`"sig":"`), []byte(`"sig":"0`), 1)
	stored[1] = broken

	now := start.Add(time.Second)
	p = newPublisher(t, stored...)
	for i := range list { // a new process: nothing is remembered of the runs
		list[i].OnlineSince = now
		list[i].Info = nil
		list[i].RTTOpen = 77
	}
	list[0].Info = &monitor.Info{Raw: info.Raw, NIPs: info.NIPs, Tags: info.Tags}
	if c := p.Report(url(0), now); c == nil || c.ID != stored[0].ID {
		t.Errorf("the stored report is not current: %v", c)
	}
	if c := p.Report(url(1), now); c != nil {
		t.Error("a broken one is current")
	}
	got := p.Reports(start, list)
	if len(got) != 1 || got[0].D != string(url(1)) {
		t.Errorf("%d signed in a second that has room for one: 18 were loaded", len(got))
	}
	got = p.Reports(now, list)
	var names []string
	for _, r := range got {
		names = append(names, r.D)
		if !r.CreatedAt.Equal(now) {
			t.Errorf("%s dated %v", r.D, r.CreatedAt)
		}
	}
	var want []string
	for i := 19; i < 30; i++ {
		want = append(want, string(url(i)))
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("signed after the restart: %s", d)
	}
	if got := p.Announcements(now); len(got) != 0 {
		t.Errorf("%d announcements signed again", len(got))
	}
	if got := p.Service(); len(got) != 3 {
		t.Errorf("%d of our own events", len(got))
	}
	if s := p.Snapshot(now, 8, now, []monitor.RelayURL{url(1), url(0)}); s.ID != snap.ID {
		t.Error("the snapshot was signed again")
	}
}

// TestCollision: rule 1.
func TestCollision(t *testing.T) {
	src := func(u monitor.RelayURL) monitor.ReportSource {
		s := source(0, start)
		s.URL = u
		return s
	}
	names := func(evs []monitor.SignedEvent) []string {
		out := []string{}
		for _, e := range evs {
			out = append(out, e.D)
		}
		return out
	}
	a, b, c := src("wss://h.example.com/x"), src("wss://h.example.com/x/"), src("ws://h.example.com/x")
	p := newPublisher(t)
	if d := cmp.Diff([]string{string(c.URL), string(a.URL)}, names(p.Reports(start, []monitor.ReportSource{b, c, a}))); d != "" {
		t.Error(d)
	}
	// The other has it, once it was withdrawn, and keeps it.
	p.Withdraw([]monitor.RelayURL{a.URL})
	now := start.Add(10 * time.Second)
	if d := cmp.Diff([]string{string(b.URL)}, names(p.Reports(now, []monitor.ReportSource{b, c}))); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{}, names(p.Reports(now.Add(time.Second), []monitor.ReportSource{a, b, c}))); d != "" {
		t.Error(d)
	}
	if p.Report(a.URL, now) != nil || p.Report(b.URL, now) == nil {
		t.Error("the wrong one is current")
	}
	p.Withdraw([]monitor.RelayURL{a.URL}) // not the holder: changes nothing
	if p.Report(b.URL, now) == nil {
		t.Error("withdrawing the one took the other's")
	}
	// A report that has expired holds no place.
	late := now.Add(7 * time.Hour)
	if d := cmp.Diff([]string{string(a.URL)}, names(p.Reports(late, []monitor.ReportSource{a, b}))); d != "" {
		t.Error(d)
	}
}

// TestSecondsFill: rule 8 on a first fill: 19 in each second from now back to
// the check.
func TestSecondsFill(t *testing.T) {
	p := newPublisher(t)
	list := sources(300, start.Add(-9*time.Second))
	first := p.Reports(start, list)
	if len(first) != 190 {
		t.Errorf("%d signed at once, want 190", len(first))
	}
	for _, r := range first {
		if r.CreatedAt.Before(start.Add(-9*time.Second)) || r.CreatedAt.After(start) {
			t.Errorf("%s is dated %v", r.D, r.CreatedAt)
		}
	}
	if got := p.Reports(start, list); len(got) != 0 {
		t.Errorf("%d more in the same second", len(got))
	}
	if got := p.Reports(start.Add(2*time.Second), list); len(got) != 38 {
		t.Errorf("%d two seconds later, want 38", len(got))
	}
}

// TestClockBack: the seconds that were full before the clock ran ahead are
// still full when it is put back.
func TestClockBack(t *testing.T) {
	p := newPublisher(t)
	list := sources(20, start.Add(-time.Minute))
	p.Reports(start, list[:19])
	if got := p.Reports(start.Add(20*time.Minute), nil); len(got) != 0 {
		t.Fatalf("%d signed for nobody", len(got))
	}
	got := p.Reports(start, list[19:])
	if len(got) != 1 || !got[0].CreatedAt.Equal(start.Add(-time.Second)) {
		t.Errorf("got %v, want one dated a second before now", got)
	}
	// And nothing is dated at or before what it replaces.
	list[0].AuthSeen = true
	if got := p.Reports(start.Add(-time.Hour), list[:1]); len(got) != 0 {
		t.Errorf("an hour earlier: dated %v", got[0].CreatedAt)
	}
	if got := p.Reports(start.Add(time.Second), list[:1]); len(got) != 1 {
		t.Error("the change was lost")
	}
}

// TestUrgentFirst: where seconds are short, first reports and changes find one
// before renewals.
func TestUrgentFirst(t *testing.T) {
	p := newPublisher(t)
	list := sources(19, start.Add(-time.Minute))
	p.Reports(start, list)
	now := start.Add(44 * time.Minute) // all are due, none is late
	list = append(list, sources(25, now)[19:]...)
	list[3].AuthSeen = true
	var names []string
	for _, r := range p.Reports(now, list)[:7] {
		names = append(names, r.D)
	}
	want := []string{string(url(19)), string(url(20)), string(url(21)), string(url(22)), string(url(23)), string(url(24)), string(url(3))}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

// TestSeconds: rule 8 under any clock, with restarts, withdrawals and changes.
// The reports of one second are counted over those that are served.
func TestSeconds(t *testing.T) {
	const most = 26 // relays: more than a second holds
	rapid.Check(t, func(t *rapid.T) {
		p := newPublisher(t)
		now := start
		newest := map[string]int64{} // by d, since it was last forgotten
		current := map[string]monitor.SignedEvent{}
		toggles := make([]bool, most)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.Int64Range(0, 3000), rapid.Int64Range(-400_000, 4_000_000)).Draw(t, "step")) * time.Millisecond)
			var list []monitor.ReportSource
			for i := range rapid.IntRange(0, most).Draw(t, "online") {
				if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
					toggles[i] = !toggles[i]
				}
				s := source(i, now.Add(-time.Duration(rapid.IntRange(-5, 400).Draw(t, "checked"))*time.Second))
				s.AuthSeen = toggles[i]
				list = append(list, s)
			}
			for _, r := range p.Reports(now, list) {
				at := r.CreatedAt.Unix()
				if at > now.Unix() || at < now.Unix()-300 {
					t.Fatalf("dated %d at %d", at, now.Unix())
				}
				if at <= newest[r.D] {
					t.Fatalf("%s dated %d, not after %d", r.D, at, newest[r.D])
				}
				newest[r.D] = at
				current[r.D] = r
			}
			held := map[int64]int{}
			for _, r := range current {
				if held[r.CreatedAt.Unix()]++; held[r.CreatedAt.Unix()] >= 20 {
					t.Fatalf("second %d holds 20 reports", r.CreatedAt.Unix())
				}
			}
			switch rapid.IntRange(0, 6).Draw(t, "then") {
			case 0:
				u := url(rapid.IntRange(0, most-1).Draw(t, "withdrawn"))
				p.Withdraw([]monitor.RelayURL{u})
				delete(current, string(u))
			case 1:
				var stored []monitor.SignedEvent
				for i := range most {
					if r, ok := current[string(url(i))]; ok {
						stored = append(stored, r)
					}
				}
				p = newPublisher(t, stored...)
				clear(newest) // a withdrawn one is not in the store
				for d, r := range current {
					newest[d] = r.CreatedAt.Unix()
				}
			}
		}
	})
}

func TestSnapshot(t *testing.T) {
	p := newPublisher(t)
	two := []monitor.RelayURL{url(1), url(0)}
	three := append(slices.Clone(two), url(2))
	s := p.Snapshot(start, 5, start.Add(-time.Minute), two)
	ev, err := nostr.Decode(s.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if err := nostr.Verify(ev); err != nil {
		t.Error(err)
	}
	if s.Kind != 30002 || s.D != "nip66-online" || !s.Expires.Equal(start.Add(4*time.Hour-time.Minute)) || two[0] != url(1) {
		t.Errorf("%+v", s)
	}
	var relays []string
	for _, tag := range ev.Tags {
		if tag[0] == "relay" {
			relays = append(relays, tag[1])
		}
	}
	if d := cmp.Diff([]string{string(url(0)), string(url(1))}, relays); d != "" {
		t.Error(d)
	}
	for _, step := range []struct {
		after time.Duration
		urls  []monitor.RelayURL
		fresh bool
	}{
		{0, two, false},
		{59 * time.Second, three, false},
		{60 * time.Second, three, true},
		{-time.Hour, two, false}, // the clock went back
		{119 * time.Second, two, false},
		{120 * time.Second, three, false},
		{60*time.Second + 15*time.Minute - time.Second, three, false},
		{60*time.Second + 15*time.Minute, three, true},
		{24 * time.Hour, three, true}, // the list was not usable for a day
	} {
		now := start.Add(step.after)
		got := p.Snapshot(now, 6, now, step.urls)
		if (got.ID != s.ID) != step.fresh {
			t.Errorf("after %s: fresh %v, want %v", step.after, got.ID != s.ID, step.fresh)
		}
		if step.fresh && !got.CreatedAt.Equal(now) {
			t.Errorf("after %s: dated %v", step.after, got.CreatedAt)
		}
		s = got
	}
}

func TestAnnouncements(t *testing.T) {
	p := newPublisher(t)
	got := p.Announcements(start)
	if len(got) != 3 || len(p.Service()) != 3 {
		t.Fatalf("%d signed, %d current", len(got), len(p.Service()))
	}
	for _, s := range got {
		ev, err := nostr.Decode(s.JSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := nostr.Verify(ev); err != nil {
			t.Error(err)
		}
	}
	for _, after := range []time.Duration{time.Second, 24*time.Hour - time.Second, -48 * time.Hour} {
		if n := len(p.Announcements(start.Add(after))); n != 0 {
			t.Errorf("after %s: %d signed again", after, n)
		}
	}
	if n := len(p.Announcements(start.Add(24 * time.Hour))); n != 3 {
		t.Errorf("after a day: %d signed again, want 3", n)
	}
	c := config()
	c.Frequency = 30 * time.Minute
	changed, err := publisher.New(c, key, got)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(changed.Announcements(start)); n != 0 {
		t.Errorf("a change dated no later than what it replaces: %d", n)
	}
	again := changed.Announcements(start.Add(time.Second))
	if len(again) != 1 || again[0].Kind != 10166 {
		t.Errorf("after a change of the frequency: %d signed", len(again))
	}
}

// A network is announced as long as there are reports on it, whoever looked.
func TestAnnouncedNetworks(t *testing.T) {
	p := newPublisher(t)
	onion := source(1, start)
	onion.URL, onion.Network = monitor.RelayURL("ws://"+strings.Repeat("a", 56)+".onion/"), monitor.Tor
	p.Announcements(start)
	announced := func(now time.Time) (networks []string) {
		t.Helper()
		for _, s := range p.Announcements(now) {
			ev, err := nostr.Decode(s.JSON)
			if err != nil || s.Kind != 10166 {
				t.Fatalf("kind %d, %v", s.Kind, err)
			}
			for _, tag := range ev.Tags {
				if tag[0] == "n" {
					networks = append(networks, tag[1])
				}
			}
		}
		return networks
	}
	if got := len(p.Reports(start, []monitor.ReportSource{onion, source(2, start)})); got != 2 {
		t.Fatalf("%d reports", got)
	}
	if diff := cmp.Diff([]string{"clearnet", "tor"}, announced(start.Add(time.Second))); diff != "" {
		t.Errorf("with a report on tor (-want +got):\n%s", diff)
	}
	if got := announced(start.Add(2 * time.Second)); got != nil {
		t.Errorf("nothing changed, and it was announced anew: %q", got)
	}
	p.Withdraw([]monitor.RelayURL{onion.URL})
	if diff := cmp.Diff([]string{"clearnet"}, announced(start.Add(3*time.Second))); diff != "" {
		t.Errorf("without (-want +got):\n%s", diff)
	}
}

func TestConfigure(t *testing.T) {
	p := newPublisher(t)
	list := sources(40, start.Add(-time.Hour))
	first := p.Reports(start, list)
	p.Announcements(start)
	if len(first) != 40 {
		t.Fatalf("%d reports", len(first))
	}

	bad := config()
	bad.Name, bad.Frequency = "Other", 0
	if err := p.Configure(bad); !errors.Is(err, monitor.ErrInvalid) {
		t.Errorf("a wrong one: %v", err)
	}
	if n := len(p.Announcements(start.Add(time.Minute))); n != 0 {
		t.Errorf("a wrong one made %d events change", n)
	}

	c := config()
	c.Name, c.Contact, c.PublicURL, c.Checks = "Other", "mailto:b@example.com", "wss://other.example.com/", []string{"open"}
	c.Frequency, c.Expiration = 20*time.Minute, 2*time.Hour
	if err := p.Configure(c); err != nil {
		t.Fatal(err)
	}
	c.Checks[0] = "dns" // the caller's own
	now := start.Add(2 * time.Minute)
	said := map[int]string{}
	for _, s := range p.Announcements(now) {
		said[s.Kind] = string(s.JSON)
	}
	for kind, words := range map[int][]string{
		10166: {`["frequency","1200"]`, `["c","open"]`}, 0: {"Other", "mailto:b@example.com"}, 10002: {"wss://other.example.com/"},
	} {
		for _, w := range words {
			if !strings.Contains(said[kind], w) {
				t.Errorf("kind %d does not say %s: %s", kind, w, said[kind])
			}
		}
	}
	if n := len(p.Reports(now, list)); n != 0 {
		t.Errorf("%d reports signed anew though none is due", n)
	}
	// By the new frequency all are due in 0.75 of it, and by the old one none.
	now = start.Add(15 * time.Minute)
	again := p.Reports(now, list)
	if len(again) != 40 || again[0].Expires.Sub(again[0].CreatedAt) != 2*time.Hour {
		t.Errorf("%d reports renewed, want 40 that live 2h", len(again))
	}

	// A frequency longer than the reports live: each is renewed before it
	// expires.
	c.Frequency, c.Expiration = 12*time.Hour, 24*time.Hour
	if err := p.Configure(c); err != nil {
		t.Fatal(err)
	}
	if n := len(p.Reports(now.Add(90*time.Minute), list)); n != 40 {
		t.Errorf("%d reports renewed before they expire, want 40", n)
	}
}

// TestKeyIsNotLogged: nothing that goes wrong shows the key.
func TestKeyIsNotLogged(t *testing.T) {
	var log bytes.Buffer
	c := config()
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	p, err := publisher.New(c, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + fmt.Sprintf("%v %+v", p, c)
	if strings.Contains(all, "0000000000000003") || strings.Contains(all, "[0 0 0 0 0 0 0 3]") {
		t.Error("the key shows")
	}
}

// BenchmarkReports is one decision round over a set in which nothing changed.
func BenchmarkReports(b *testing.B) {
	p := newPublisher(b)
	list := sources(15000, start.Add(-time.Hour))
	now := start
	for range 3 { // a first fill may reach back five minutes, and no more
		p.Reports(now, list)
		now = now.Add(5*time.Minute + time.Second)
	}
	b.ResetTimer()
	for b.Loop() {
		if n := len(p.Reports(now, list)); n != 0 {
			b.Fatal(n)
		}
	}
}
