package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fakeCore is a core made of functions; nil ones answer with the fixtures.
type fakeCore struct {
	generation func() *monitor.Generation
	view       func(monitor.RelayURL) monitor.RelayView
	status     func() monitor.Status
	ready      func() (bool, string)
	relays     func(monitor.RelayQuery) []monitor.RelayEntry
}

func (c *fakeCore) Generation() *monitor.Generation { return c.generation() }
func (c *fakeCore) RelayView(u monitor.RelayURL) monitor.RelayView {
	if c.view == nil {
		return monitor.RelayView{}
	}
	return c.view(u)
}

func (c *fakeCore) Status() monitor.Status {
	if c.status == nil {
		return monitor.Status{}
	}
	return c.status()
}

func (c *fakeCore) Ready() (bool, string) {
	if c.ready == nil {
		return true, ""
	}
	return c.ready()
}

func (c *fakeCore) Relays(q monitor.RelayQuery) []monitor.RelayEntry {
	if c.relays == nil {
		return nil
	}
	return c.relays(q)
}

// fakeHistory is a store made of functions; nil ones find nothing.
type fakeHistory struct {
	transitions  func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error)
	observations func(context.Context, monitor.ObservationQuery) ([]monitor.Observation, error)
	ping         func(context.Context) error
}

func (h *fakeHistory) Transitions(ctx context.Context, q monitor.TransitionQuery) ([]monitor.Transition, error) {
	if h.transitions == nil {
		return nil, nil
	}
	return h.transitions(ctx, q)
}

func (h *fakeHistory) Observations(ctx context.Context, q monitor.ObservationQuery) ([]monitor.Observation, error) {
	if h.observations == nil {
		return nil, nil
	}
	return h.observations(ctx, q)
}

func (h *fakeHistory) Ping(ctx context.Context) error {
	if h.ping == nil {
		return nil
	}
	return h.ping(ctx)
}

// bench is an API on fakes, at a fixed time.
type bench struct {
	*testing.T
	now  time.Time
	core *fakeCore
	hist *fakeHistory
	api  *api.API
}

// run gives f an API at midnight of 2000-01-01 UTC, where a synctest bubble
// begins.
func run(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, now: time.Now().UTC(), core: &fakeCore{}, hist: &fakeHistory{}}
		g := generation(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		b.api = newAPI(b.core, b.hist)
		f(b)
	})
}

func newAPI(core api.Core, hist api.History) *api.API {
	return api.New(api.Options{
		Core: core, History: hist, Operator: &fakeOperator{}, Roster: newRoster(), Intake: &fakeIntake{}, AdminToken: adminToken,
		Pubkey: strings.Repeat("ab", 32), Version: "1.2.3",
		Settings: settings(),
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// settings are those of a bench.
func settings() api.Settings {
	return api.Settings{
		Name: "Pharos", RelayURL: "wss://pharos.example/", Frequency: time.Hour,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// do sends one request; headers are name, value, name, value. The answer is
// held against the OpenAPI document (record_test.go).
func (b *bench) do(method, target string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	return b.send(request(method, target, headers...))
}

// request makes one without a body.
func request(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "/", nil)
	path, query, _ := strings.Cut(target, "?")
	r.URL.Path, r.URL.RawQuery = path, query // as a server takes them, however odd
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func (b *bench) get(target string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	return b.do(http.MethodGet, target, headers...)
}

// problem checks that w is a well-formed problem of that status.
func (b *bench) problem(w *httptest.ResponseRecorder, status int) (p struct {
	Type, Title, Detail string
	Status              int
	Errors              []struct{ Location, Message string }
},
) {
	b.Helper()
	if w.Code != status {
		b.Fatalf("status %d, want %d: %.300s", w.Code, status, w.Body)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		b.Errorf("Content-Type %q", ct)
	}
	if cc := w.Header().Get("Cache-Control"); cc != "no-store" {
		b.Errorf("Cache-Control %q of a problem", cc)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		b.Fatalf("%v in %.300s", err, w.Body)
	}
	if p.Type == "" || p.Title == "" || p.Detail == "" || p.Status != status {
		b.Errorf("incomplete problem: %s", w.Body)
	}
	if (status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests) != (w.Header().Get("Retry-After") != "") {
		b.Errorf("Retry-After %q at %d", w.Header().Get("Retry-After"), status)
	}
	return p
}

// golden compares text with a file; JSON is indented first, and else as sent.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var indented bytes.Buffer
	if json.Indent(&indented, got, "", "  ") == nil {
		got = indented.Bytes()
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run the test with -update to make it)", err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, d)
	}
}

// generation is a small usable one.
func generation(now time.Time) *monitor.Generation {
	return &monitor.Generation{
		Number:      812,
		GeneratedAt: now.Add(-2 * time.Second),
		NewestCheck: now.Add(-5 * time.Second),
		OldestCheck: now.Add(-6 * time.Minute),
		Held:        1,
		Monitored:   2750,
		Vantages:    3,
		Online: []monitor.OnlineRelay{
			{
				URL: "wss://a.example/", Since: now.Add(-24 * time.Hour), LastSuccess: now.Add(-5 * time.Second),
				RTTOpenMS: 83, RTTReadMS: 41, Network: monitor.Clearnet, VantagesUp: 3, VantagesTotal: 3,
				NIPs: []int{1, 11, 42}, Country: "DE", Latitude: 52.52, Longitude: 13.405, Located: true,
			},
			{
				URL: "wss://b.example/x&y", Since: now.Add(-time.Hour), LastSuccess: now.Add(-6 * time.Minute),
				RTTOpenMS: 120, Network: monitor.Clearnet, VantagesUp: 1, VantagesTotal: 3,
				Marks: monitor.MarkPartial | monitor.MarkHeld, Auth: true, Payment: true, Writes: true,
			},
		},
		Down: []monitor.DownRelay{
			{URL: "wss://c.example/", State: monitor.StateOffline, Since: now.Add(-10 * time.Minute), Cause: monitor.CauseTimeout},
			{URL: "wss://d.example/", State: monitor.StateDead, Since: now.Add(-48 * time.Hour), Cause: monitor.CauseNXDomain},
		},
		Snapshot: &monitor.SignedEvent{
			ID: strings.Repeat("01", 32), Kind: 30002, Pubkey: strings.Repeat("ab", 32), D: "nip66-online",
			JSON: []byte(`{"id":"` + strings.Repeat("01", 32) + `","pubkey":"` + strings.Repeat("ab", 32) + `","created_at":946684798,"kind":30002,` +
				`"tags":[["d","nip66-online"],["relay","wss://a.example/"],["relay","wss://b.example/x&y"],["count","2"]],"content":"","sig":"` + strings.Repeat("cd", 64) + `"}`),
		},
	}
}

// unusable is a copy of g that must not be used.
func unusable(g *monitor.Generation, f monitor.Fallback) *monitor.Generation {
	c := *g
	c.Fallback, c.Snapshot = f, nil
	c.Number++
	return &c
}

// relayView is a relay of which everything is known.
func relayView(u monitor.RelayURL, now time.Time) monitor.RelayView {
	yes := true
	return monitor.RelayView{
		WatchedRelay: monitor.WatchedRelay{
			URL: u, Source: monitor.SourceFile, FirstSeen: now.Add(-72 * time.Hour),
			Verdict: monitor.Verdict{
				State: monitor.StateOnline, Since: now.Add(-24 * time.Hour), Marks: monitor.MarkPartial,
				Quorum: monitor.Quorum{For: 1, Of: 2}, Reason: "online: ber is up; nyc says down",
				Cause: monitor.CauseTimeout, Evidence: "no answer within 4 s", LastSuccess: now.Add(-time.Minute),
				HeldSince: now.Add(-30 * time.Second),
			},
			Info: &monitor.Info{
				Raw: []byte(`{"name":"A","supported_nips":[1,11,50],"x":{"y":[1]}}`), Name: "A", NIPs: []int{1, 11, 50}, AuthRequired: &yes,
			},
		},
		Monitored: true, Eligible: true, RTTOpenMS: 83, RTTReadMS: 41,
		Ballots: []monitor.Ballot{
			{
				Vantage: "ber", Group: "hetzner", Vote: monitor.VoteUp, Eligible: true, Able: true,
				Outcome: monitor.OutcomeOK, Stage: monitor.StageRead, At: now.Add(-time.Minute),
				LastSuccess: now.Add(-time.Minute), OnlineSince: now.Add(-24 * time.Hour),
				RTTOpen: 83 * time.Millisecond, RTTRead: 41 * time.Millisecond,
			},
			{
				Vantage: "nyc", Group: "nyc", Vote: monitor.VoteDown, Eligible: true, Able: true,
				Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout,
				Evidence: "no answer within 4 s", At: now.Add(-20 * time.Second), FailureCount: 3,
				LastFailure: now.Add(-20 * time.Second), LastSuccess: now.Add(-10 * time.Minute),
				BackoffUntil: now.Add(100 * time.Second),
			},
		},
		Facts: monitor.Facts{
			TLS:   &monitor.TLSFacts{Version: "1.3", Issuer: "Example CA", Names: []string{"a.example"}, NotAfter: now.Add(10*24*time.Hour + time.Hour)},
			TLSAt: now.Add(-time.Minute),
			DNS: &monitor.DNSFacts{
				Addresses: []netip.Addr{netip.MustParseAddr("81.2.69.160"), netip.MustParseAddr("2a01:4f8::1")}, IPv4: monitor.ReachAnswers, IPv6: monitor.ReachFails,
			},
			DNSAt: now.Add(-2 * time.Hour),
			Capabilities: &monitor.Capabilities{
				Auth: monitor.FindingConfirmed, Count: monitor.FindingConfirmed, Search: monitor.FindingDisproved,
				EOSE: monitor.FindingConfirmed, Limit: monitor.FindingConfirmed, Until: monitor.FindingDisproved, Sample: "0123456789abcdef",
			},
			CapabilitiesAt: now.Add(-3 * time.Hour),
			Write:          &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "blocked: not on the list"},
			WriteAt:        now.Add(-4 * time.Hour),
		},
		Place: monitor.Place{
			Country: "DE", Geohash: "u33dc", Latitude: 52.52, Longitude: 13.405, Located: true, ASN: 24940, Organization: "Hetzner Online GmbH",
		},
		Provenance: &monitor.Provenance{Kinds: []int{10002, 30166}, Authors: 12, FirstSeen: now.Add(-72 * time.Hour), LastSeen: now.Add(-time.Hour)},
		Aliases:    []monitor.RelayURL{"wss://b.example/", "wss://a.example/inbox"},
		Report:     &monitor.SignedEvent{ID: strings.Repeat("02", 32)},
		Maintenance: []monitor.Maintenance{
			{From: now.Add(-time.Hour), Until: now.Add(time.Hour), Note: "new disks"},
			{From: now.Add(24 * time.Hour), Until: now.Add(25 * time.Hour)},
		},
	}
}

// status is a busy monitor's.
func status(now time.Time) monitor.Status {
	s := monitor.Status{
		Started: now.Add(-time.Hour), Leader: true, Generation: 812,
		States:     map[monitor.State]int{monitor.StateOnline: 2, monitor.StateOffline: 1, monitor.StateDead: 1},
		Candidates: 7, Held: 1, Engaged: true, ClockSkew: 1500 * time.Millisecond,
		Vantages: []monitor.Vantage{
			{
				Name: "ber", Group: "hetzner", Networks: []monitor.Network{monitor.Clearnet, monitor.Tor},
				Enrolled: now.Add(-48 * time.Hour), LastSeen: now.Add(-3 * time.Second), Skew: -20 * time.Millisecond,
				Eligible: true, Disagreement: 0.0125, Judged: 800,
				Health: monitor.Health{Lag: 30 * time.Millisecond, CanarySuccess: now.Add(-9 * time.Second), InFlight: 12, Watched: 2750, Down: []monitor.Network{monitor.Tor}},
			},
			{
				Name: "nyc", Group: "nyc", Pubkey: strings.Repeat("cd", 32), Networks: []monitor.Network{monitor.Clearnet}, Enrolled: now.Add(-24 * time.Hour),
				Health: monitor.Health{Impairments: []monitor.Impairment{monitor.ImpairedSpike, monitor.ImpairedLag}, ImpairedSince: now.Add(-time.Minute)},
			},
			{Name: "old", Group: "old", Revoked: true},
		},
		Observations: map[monitor.Outcome]uint64{monitor.OutcomeOK: 100, monitor.OutcomeFailed: 20},
		Transitions:  map[monitor.State]uint64{monitor.StateOffline: 3},
		Ingested:     55, Refused: 2, ReportsSigned: 9,
		Warnings: []string{"only 900 MB are free on the disk of the data directory"},
		Discovery: &monitor.DiscoveryStatus{
			Sweep: &monitor.Sweep{
				Start: now.Add(-10 * time.Minute), At: now.Add(-8 * time.Minute), Authors: 321,
				Sources: []monitor.DiscoverySource{
					{URL: "wss://source.example/", Events: 500, Pages: 2, Whole: true},
					{URL: "wss://busy.example/", Events: 20, Pages: 1, Problem: "it asked us to wait", RestUntil: now.Add(time.Hour)},
				},
				Rejected: map[string]int{"scheme": 4, "private": 2, "wss://sneaky.example": 1},
				Ignored:  map[string]int{"signature": 3},
				Refusals: map[string]int{"rate-limited": 1, "none": 2, "go away, wss://sneaky.example": 5, "and you": 1},
			},
			Found: 900, Watched: 880, Waiting: 20, Held: "the sweep would drop 600 of 900 relays",
		},
		Aliases: 3, Twins: 5, Expiring: 2, GeoAttribution: "IP geolocation by Example",
	}
	s.WarmUp.Measured, s.WarmUp.Due, s.WarmUp.Done = 4, 4, true
	return s
}
