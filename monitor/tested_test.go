package monitor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestTestedMerges(t *testing.T) {
	const yes, no, none = monitor.FindingConfirmed, monitor.FindingDisproved, monitor.FindingUnknown
	type test struct {
		vantage string
		after   time.Duration
		found   monitor.Finding
	}
	for _, tc := range []struct {
		name  string
		tests []test
		want  monitor.Finding
	}{
		{"the first counts", []test{{"a", 0, no}}, no},
		{"the newest counts", []test{{"a", 0, no}, {"b", time.Hour, yes}}, yes},
		{"a vantage may change its mind", []test{{"a", 0, yes}, {"a", time.Hour, no}}, no},
		{"no other changes it so soon", []test{{"a", 0, yes}, {"b", 47 * time.Hour, no}}, yes},
		{"but after two days", []test{{"a", 0, yes}, {"b", 48 * time.Hour, no}}, no},
		{"counted from the newest confirmation", []test{{"a", 0, yes}, {"c", 24 * time.Hour, yes}, {"b", 48 * time.Hour, no}}, yes},
		{"nothing told changes nothing", []test{{"a", 0, no}, {"b", 71 * time.Hour, none}}, no},
		{"for three days", []test{{"a", 0, no}, {"b", 72 * time.Hour, none}}, none},
		{"each look at it renews them", []test{{"a", 0, no}, {"b", 48 * time.Hour, no}, {"a", 72 * time.Hour, none}}, no},
		{"a late one does not count", []test{{"a", time.Hour, yes}, {"a", 0, no}}, yes},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all monitor.Tested
			newest := time.Duration(0)
			for _, one := range tc.tests {
				all.Add(monitor.Capabilities{Search: one.found}, one.vantage, day0.Add(one.after))
				newest = max(newest, one.after)
			}
			got, at := all.Capabilities()
			if d := cmp.Diff(&monitor.Capabilities{Search: tc.want}, got); d != "" || !at.Equal(day0.Add(newest)) {
				t.Errorf("at %s (-want +got)\n%s", at, d)
			}
		})
	}
	if c, at := new(monitor.Tested).Capabilities(); c != nil || !at.IsZero() {
		t.Errorf("never tested: %+v at %s", c, at)
	}
}

// The sample is of the day of the newest test; that of the day before can be
// compared until it is two days old.
func TestSamplesAreOfTheirDay(t *testing.T) {
	var all monitor.Tested
	add := func(sample string, at time.Time) { all.Add(monitor.Capabilities{Sample: sample}, "a", at) }
	midnight := day0.Truncate(24 * time.Hour)
	add("aa", midnight.Add(23*time.Hour))
	add("a2", midnight.Add(23*time.Hour+time.Minute)) // the same day: in place of it
	add("bb", midnight.Add(25*time.Hour))
	add("", midnight.Add(26*time.Hour)) // it served nothing
	check := func(now time.Time, want ...string) {
		t.Helper()
		days, texts := all.Samples(now)
		for i := range texts {
			w := ""
			if i < len(want) {
				w = want[i]
			}
			if texts[i] != w || w != "" && days[i] != uint32(midnight.Unix()/86400)+1-uint32(i) {
				t.Errorf("at %s: %v of the days %v, want %v", now, texts, days, want)
			}
		}
	}
	check(midnight.Add(27*time.Hour), "bb", "a2")
	check(midnight.Add((23+48)*time.Hour+time.Minute), "bb")
	check(midnight.Add(73 * time.Hour))
	if c, _ := all.Capabilities(); c.Sample != "bb" {
		t.Errorf("sample %q, want that of the day", c.Sample)
	}
	add("", midnight.Add(49*time.Hour))
	if c, _ := all.Capabilities(); c.Sample != "" {
		t.Errorf("sample %q of another day", c.Sample)
	}
}

// Whatever vantages say, a relay's finding is one that some vantage made, it is
// disproved only where somebody disproved it, and adding a confirmation confirms.
func TestTestedInventsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all monitor.Tested
		at := day0
		said := map[monitor.Finding]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "tests") {
			at = at.Add(time.Duration(rapid.IntRange(0, 80).Draw(t, "hours")) * time.Hour)
			f := monitor.Finding(rapid.IntRange(0, 2).Draw(t, "finding"))
			said[f] = true
			if !all.Add(monitor.Capabilities{Count: f}, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "vantage"), at) {
				t.Fatal("the newest was ignored")
			}
			got, _ := all.Capabilities()
			if !said[got.Count] && got.Count != monitor.FindingUnknown || f == monitor.FindingConfirmed && got.Count != f {
				t.Fatalf("%s after %s", got.Count, f)
			}
		}
	})
}

func TestWriteNeeds(t *testing.T) {
	for reason, want := range map[string][2]bool{
		"payment-required: 21 sats":    {true, false},
		"Payment: please":              {true, false},
		"restricted: members only":     {false, true},
		" blocked : not you":           {false, true},
		"auth-required: sign in first": {},
		"rate-limited: slow down":      {},
		"invalid: kind not allowed":    {},
		"restricted":                   {},
		"":                             {},
	} {
		f := monitor.Facts{Write: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: reason}, WriteAt: day0}
		if payment, leave := f.WriteNeeds(day0); [2]bool{payment, leave} != want {
			t.Errorf("%q: payment %v, leave %v", reason, payment, leave)
		}
		if payment, leave := f.WriteNeeds(day0.Add(monitor.FactsBelieved + 1)); payment || leave {
			t.Errorf("%q: believed a week later", reason)
		}
		f.Write.Result = monitor.WriteAccepted
		if payment, leave := f.WriteNeeds(day0); payment || leave {
			t.Errorf("%q: of one that was accepted", reason)
		}
	}
	if payment, leave := (*monitor.Facts)(nil).WriteNeeds(day0); payment || leave {
		t.Error("nothing known needs something")
	}
}

func TestWarnings(t *testing.T) {
	cert := func(in time.Duration) monitor.Facts {
		return monitor.Facts{TLS: &monitor.TLSFacts{NotAfter: day0.Add(in)}}
	}
	families := func(v4, v6 monitor.Reach) monitor.Facts {
		return monitor.Facts{DNS: &monitor.DNSFacts{IPv4: v4, IPv6: v6}}
	}
	const day = 24 * time.Hour
	caps := &monitor.Capabilities{Auth: monitor.FindingDisproved, Count: monitor.FindingDisproved, Search: monitor.FindingConfirmed}
	for _, tc := range []struct {
		name  string
		facts monitor.Facts
		want  []string
	}{
		{"nothing known", monitor.Facts{}, nil},
		{"a certificate", cert(14 * day), nil},
		{"soon over", cert(14*day - time.Second), []string{"its TLS certificate expires on 2026-03-15, in 13 days"}},
		{"sooner", cert(2 * day), []string{"its TLS certificate expires on 2026-03-03, in 2 days"}},
		{"tomorrow", cert(day), []string{"its TLS certificate expires on 2026-03-02, in 1 day"}},
		{"today", cert(time.Hour), []string{"its TLS certificate expires on 2026-03-01, within a day"}},
		{"over", cert(0), []string{"its TLS certificate expired on 2026-03-01"}},
		{"no date", monitor.Facts{TLS: &monitor.TLSFacts{}}, nil},
		{"both families", families(monitor.ReachAnswers, monitor.ReachAnswers), nil},
		{"one that has no other", families(monitor.ReachAnswers, monitor.ReachNone), nil},
		{"no answer on IPv6", families(monitor.ReachAnswers, monitor.ReachFails), []string{"it answers on IPv4 only: its IPv6 addresses do not"}},
		{"no answer on IPv4", families(monitor.ReachFails, monitor.ReachAnswers), []string{"it answers on IPv6 only: its IPv4 addresses do not"}},
		{"down on both is the verdict's to say", families(monitor.ReachFails, monitor.ReachFails), nil},
		{"one not tried", families(monitor.ReachUnknown, monitor.ReachFails), nil},
		{"claimed and disproved", monitor.Facts{Capabilities: caps, CapabilitiesAt: day0}, []string{"it claims NIP-42, which a test disproved"}},
		{"disproved long ago", monitor.Facts{Capabilities: caps, CapabilitiesAt: day0.Add(-8 * day)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.facts.Warnings(&monitor.Info{NIPs: []int{1, 42, 50}}, day0)
			if d := cmp.Diff(append([]string{}, tc.want...), got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if tc.facts.Expires(day0) != (len(got) > 0 && tc.facts.TLS != nil) {
				t.Errorf("expires %v", tc.facts.Expires(day0))
			}
		})
	}
	claimed := monitor.Facts{Capabilities: caps, CapabilitiesAt: day0}
	if got := claimed.Warnings(nil, day0); len(got) != 0 {
		t.Errorf("without a document nothing is claimed: %q", got)
	}
}
