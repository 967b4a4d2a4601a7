package publisher

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func ptr[T any](v T) *T { return &v }

// document is a relay's NIP-11 as the probe hands it on.
func document(raw string) *monitor.Info {
	return &monitor.Info{Raw: []byte(raw)}
}

// TestBuildGolden shows whole events, one tag a line.
func TestBuildGolden(t *testing.T) {
	at := time.Unix(1700000000, 0)
	cfg := &Config{
		Name: "Pharos", Contact: "mailto:<ops> & co@example.com", PublicURL: "wss://pharos.example.com", ListenURL: "ws://127.0.0.1:7766/",
		Frequency: time.Hour, Expiration: 6 * time.Hour, Timeout: 12 * time.Second,
		Checks: []string{"nip11", "open", "read", "dns"}, Networks: []monitor.Network{monitor.Tor, monitor.Clearnet}, Geohash: "u0yjj",
	}
	local := *cfg
	local.PublicURL, local.Contact, local.Geohash = "", "", ""
	full := document(`{"name":"A relay","supported_nips":[42,1,11,11],"retention":[{"kinds":[4,[40,41]],"time":0},{"kinds":[1],"time":3600},{"kinds":[7],"count":0},{"kinds":[7],"count":5}]}`)
	full.NIPs = []int{1, 11, 42, 50}
	full.PaymentRequired, full.AuthRequired, full.RestrictedWrites, full.MinPow = ptr(true), ptr(false), ptr(false), ptr(8)
	full.Tags = []string{"art", " sfw-only ", "art", "", "two\nlines", strings.Repeat("x", 65)}
	full.Languages = []string{"en-US", "de", "*", "EN", "zho"}
	report := func(src monitor.ReportSource) nostr.Event {
		ev, _ := buildReport(&src)
		return ev
	}
	for name, ev := range map[string]nostr.Event{
		"report_full": report(monitor.ReportSource{
			URL: "wss://relay.example.com/", Network: monitor.Clearnet, RTTOpen: 83, RTTRead: 41, RTTWrite: 70000,
			AuthSeen: true, Info: full, DisprovedNIPs: []int{50}, Country: "de", Geohash: "u0yjj6h",
		}),
		"report_bare":       report(monitor.ReportSource{URL: "ws://abc.onion/x", Network: monitor.Tor, RTTOpen: 1, Country: "Germany"}),
		"report_no_nip11":   report(monitor.ReportSource{URL: "wss://relay.example.com/", Network: monitor.Clearnet, RTTOpen: 5, RestrictedWrites: true, PaymentSeen: true, Info: &monitor.Info{Problem: "http_404"}}),
		"snapshot":          buildSnapshot([]monitor.RelayURL{"wss://a.example.com/", "wss://b.example.com/"}, 812, at, at.Add(4*time.Hour)),
		"announcement":      buildAnnouncement(cfg),
		"profile":           buildProfile(cfg),
		"relay_list":        buildRelayList(cfg),
		"profile_bare":      buildProfile(&local),
		"relay_list_local":  buildRelayList(&local),
		"announcement_bare": buildAnnouncement(&Config{Frequency: 90 * time.Second, Timeout: 1500 * time.Millisecond}),
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			fmt.Fprintf(&b, "kind %d\n", ev.Kind)
			for _, tag := range ev.Tags {
				j, err := json.Marshal(tag)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s\n", j)
			}
			fmt.Fprintf(&b, "content %s\n", ev.Content)
			golden(t, name+".golden", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// TestRequirements: exactly one polarity each; a probe wins over the document.
func TestRequirements(t *testing.T) {
	for _, tc := range []struct {
		name string
		src  monitor.ReportSource
		want string
	}{
		{"nothing known", monitor.ReportSource{}, "!auth !payment !pow !writes"},
		{"the document is silent", monitor.ReportSource{Info: &monitor.Info{}}, "!auth !payment !pow !writes"},
		{"the document denies", monitor.ReportSource{Info: &monitor.Info{AuthRequired: ptr(false), PaymentRequired: ptr(false), RestrictedWrites: ptr(false), MinPow: ptr(0)}}, "!auth !payment !pow !writes"},
		{"the document says so", monitor.ReportSource{Info: &monitor.Info{AuthRequired: ptr(true), PaymentRequired: ptr(true), RestrictedWrites: ptr(true), MinPow: ptr(1)}}, "auth payment pow writes"},
		{"a probe saw it", monitor.ReportSource{AuthSeen: true, PaymentSeen: true, RestrictedWrites: true, Info: &monitor.Info{AuthRequired: ptr(false), PaymentRequired: ptr(false), RestrictedWrites: ptr(false)}}, "auth payment !pow writes"},
		{"negative work", monitor.ReportSource{Info: &monitor.Info{MinPow: ptr(-3)}}, "!auth !payment !pow !writes"},
	} {
		var got []string
		for _, tag := range appendRequirements(nil, &tc.src) {
			got = append(got, tag[1])
		}
		if d := cmp.Diff(tc.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

func TestAcceptedKinds(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                                     "",
		``:                                       "",
		`{"retention":7}`:                        "",
		`{"retention":[{"kinds":[1,[5,7]]}]}`:    "1 5 6 7",
		`{"retention":[{"kinds":[1],"time":0}]}`: "!1",
		`{"retention":[{"kinds":[1],"time":null}]}`:                                 "1",
		`{"retention":[{"kinds":[1],"count":0},{"kinds":[1],"count":9}]}`:           "",
		`{"retention":[{"kinds":["x",[1,2,3],[0,9999],-1,70000,2]},{"kinds":5},3]}`: "2",
	} {
		if got := strings.Join(acceptedKinds([]byte(raw)), " "); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestContent(t *testing.T) {
	pad := func(n int) string { return strings.Repeat("é", n/2) }
	for _, tc := range []struct {
		name string
		info *monitor.Info
		want func(string) bool
	}{
		{"none", nil, func(s string) bool { return s == "" }},
		{"a problem", &monitor.Info{Problem: "not_json", Raw: []byte(`{}`)}, func(s string) bool { return s == "" }},
		{"no object", document(`[1]`), func(s string) bool { return s == "" }},
		{"broken", document(`{"name":`), func(s string) bool { return s == "" }},
		{"small, with fields of its own", document(`{"name":"x","mine":1}`), func(s string) bool { return s == `{"name":"x","mine":1}` }},
		{"exactly 8 KB", document(`{"mine":"` + strings.Repeat("x", 8<<10-11) + `"}`), func(s string) bool { return len(s) == 8<<10 }},
		{"a byte more: the standard fields", document(`{"mine":"` + strings.Repeat("x", 8<<10-21) + `","name":"x"}`), func(s string) bool { return s == `{"name":"x"}` }},
		{"a long description is cut, the rest stays", document(`{"description":"` + pad(20000) + `","name":"x","supported_nips":[1,2],"limitation":{"a": 1}}`), func(s string) bool {
			return strings.HasPrefix(s, `{"name":"x","supported_nips":[1,2],"limitation":{"a":1},"description":"éé`) && strings.HasSuffix(s, `…"}`) && len(s) > 4000
		}},
		{"a huge list is left out", document(`{"name":"x","fees":[` + strings.Repeat("1,", 9000) + `1]}`), func(s string) bool { return s == `{"name":"x"}` }},
	} {
		got := reportContent(tc.info)
		if !tc.want(got) {
			t.Errorf("%s: %d bytes, %.200s", tc.name, len(got), got)
		}
	}
}

// TestReportLimits: reports.md 2 and 7 hold whatever a relay says of itself.
func TestReportLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 90), func(b []byte) string { return string(b) }))
		big := rapid.SampledFrom([]int{0, 3, 300, 3000})
		list := func(label string) []string { return rapid.SliceOfN(text, 0, 60).Draw(t, label) }
		nips := make([]int, big.Draw(t, "nips"))
		for i := range nips {
			nips[i] = i * 7919 % 65536
		}
		doc := map[string]any{
			"name": text.Draw(t, "name"), "description": strings.Repeat(text.Draw(t, "description"), 1+big.Draw(t, "times")),
			"tags": list("doc tags"), "supported_nips": nips, text.Draw(t, "key"): text.Draw(t, "value"),
			"retention": []any{map[string]any{"kinds": nips}},
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		src := monitor.ReportSource{
			URL: monitor.RelayURL("wss://relay.example.com/" + strings.Repeat("a", rapid.IntRange(0, 480).Draw(t, "path"))), Network: monitor.Clearnet,
			RTTOpen: rapid.IntRange(1, 1<<30).Draw(t, "open"), RTTRead: rapid.IntRange(0, 1<<30).Draw(t, "read"), RTTWrite: 1, Country: text.Draw(t, "country"), Geohash: "u0yjj6h",
			Info: &monitor.Info{Raw: raw, NIPs: nips, Tags: list("tags"), Languages: list("languages")},
		}
		ev, _ := buildReport(&src)
		if len(ev.Tags) > 255 { // the expiration comes yet
			t.Fatalf("%d tags", len(ev.Tags))
		}
		if len(ev.Content) > 8<<10 || !utf8.ValidString(ev.Content) {
			t.Fatalf("content of %d bytes", len(ev.Content))
		}
		if ev.Content != "" {
			var back map[string]any
			if err := json.Unmarshal([]byte(ev.Content), &back); err != nil {
				t.Fatalf("content is no JSON object: %v", err)
			}
		}
		var firstL string
		for _, tag := range ev.Tags {
			for _, s := range tag {
				if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
					t.Fatalf("tag %q", tag)
				}
			}
			if tag[0] == "l" {
				if len(tag) != 3 {
					t.Fatalf("tag %q", tag)
				}
				if firstL == "" {
					firstL = tag[1]
				}
			}
		}
		if firstL != "online" {
			t.Fatalf("the first l is %q", firstL)
		}
		body, err := ev.MarshalJSON()
		if err != nil || len(body) > 32<<10 {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
	})
}

// TestReachBack: a first report may be dated five minutes back, and no more.
func TestReachBack(t *testing.T) {
	k, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	for full, want := range map[int64]int64{0: 0, 1: 1, 300: 300, 301: -1} {
		p, err := New(Config{Frequency: time.Hour, Expiration: 6 * time.Hour}, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		for back := range full {
			p.seconds[now.Unix()-back] = perSecond
		}
		got := p.Reports(now, []monitor.ReportSource{{URL: "wss://a.example.com/", RTTOpen: 1, OnlineSince: now.Add(-time.Hour)}})
		switch {
		case want < 0 && len(got) != 0:
			t.Errorf("%d full seconds: dated %v", full, got[0].CreatedAt)
		case want >= 0 && (len(got) != 1 || got[0].CreatedAt.Unix() != now.Unix()-want):
			t.Errorf("%d full seconds: %v, want %d s before now", full, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	for _, same := range [][2]monitor.RelayURL{
		{"wss://a.example.com/", "wss://A.EXAMPLE.com"},
		{"wss://a.example.com/x", "wss://a.example.com/x/"},
		{"wss://a.example.com/x//", "wss://a.Example.com/x"},
	} {
		if fold(same[0]) != fold(same[1]) {
			t.Errorf("%q and %q: %q, %q", same[0], same[1], fold(same[0]), fold(same[1]))
		}
	}
	for _, other := range [][2]monitor.RelayURL{
		{"wss://a.example.com/", "ws://a.example.com/"},
		{"wss://a.example.com/x", "wss://a.example.com/X"},
		{"wss://a.example.com/", "wss://a.example.com/x"},
	} {
		if fold(other[0]) == fold(other[1]) {
			t.Errorf("%q and %q are one: %q", other[0], other[1], fold(other[0]))
		}
	}
}

// TestHashUnit: the spread is even enough to spread republishing.
func TestHashUnit(t *testing.T) {
	var buckets [10]int
	for i := range 10000 {
		buckets[int(10*hashUnit(fmt.Sprintf("wss://relay%d.example.com/", i)))]++
	}
	for i, n := range buckets {
		if n < 850 || n > 1150 {
			t.Errorf("bucket %d holds %d of 10000", i, n)
		}
	}
}
