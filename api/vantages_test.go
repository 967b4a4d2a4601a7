package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// fakeRoster keeps vantages and invitations in memory.
type fakeRoster struct {
	vantages map[string]monitor.Vantage
	invited  map[monitor.TokenHash]monitor.Invitation
	enrolled int
	fail     error // of every call that changes something
}

func newRoster(vantages ...monitor.Vantage) *fakeRoster {
	f := &fakeRoster{vantages: map[string]monitor.Vantage{}, invited: map[monitor.TokenHash]monitor.Invitation{}}
	for _, v := range vantages {
		f.vantages[v.Name] = v
	}
	return f
}

func (f *fakeRoster) Vantage(name string) (monitor.Vantage, error) {
	v, ok := f.vantages[name]
	if !ok {
		return v, fmt.Errorf("%w: no %s", monitor.ErrNotFound, name)
	}
	return v, nil
}

func (f *fakeRoster) Invite(_ context.Context, inv monitor.Invitation) (monitor.Invitation, error) {
	if f.fail != nil {
		return inv, f.fail
	}
	if err := monitor.CheckVantageName(inv.Name); err != nil {
		return inv, fmt.Errorf("invite: %w name: %w", monitor.ErrInvalid, err)
	}
	if inv.Name == "local" {
		return inv, fmt.Errorf("invite: %w: local is a vantage of this process", monitor.ErrConflict)
	}
	if inv.Group == "" {
		inv.Group = inv.Name
	}
	f.invited[inv.Token] = inv
	return inv, nil
}

func (f *fakeRoster) Invitations(context.Context) ([]monitor.Invitation, error) {
	return slices.Collect(maps.Values(f.invited)), f.fail
}

func (f *fakeRoster) Enrol(_ context.Context, in monitor.Enrolment) (monitor.Vantage, error) {
	inv, ok := f.invited[in.Token]
	old := f.vantages[inv.Name]
	switch {
	case f.fail != nil:
		return monitor.Vantage{}, f.fail
	case !ok:
		return monitor.Vantage{}, fmt.Errorf("%w: no such token", monitor.ErrNotFound)
	case old.Pubkey != "" && old.Pubkey != in.Pubkey:
		return monitor.Vantage{}, fmt.Errorf("%w: the invitation was taken up already", monitor.ErrConflict)
	case old.Pubkey == "":
		f.enrolled++
	}
	v := monitor.Vantage{Name: inv.Name, Group: inv.Group, Pubkey: in.Pubkey, Networks: in.Networks}
	f.vantages[v.Name] = v
	return v, nil
}

func (f *fakeRoster) Revoke(_ context.Context, name, _ string) error {
	v, ok := f.vantages[name]
	switch {
	case f.fail != nil:
		return f.fail
	case !ok:
		return fmt.Errorf("revoke vantage %s: %w: no vantage on another machine has this name", name, monitor.ErrNotFound)
	}
	v.Revoked = true
	f.vantages[name] = v
	return nil
}

// fakeIntake takes every batch once.
type fakeIntake struct {
	changes monitor.TaskChanges
	last    uint64
	batches []monitor.Batch
	answer  monitor.Answer
	skews   map[string]time.Duration
	fail    error
	panics  bool
	gate    chan struct{} // not nil: a batch waits for it
}

func (f *fakeIntake) TaskChanges(_ string, since uint64) (monitor.TaskChanges, error) {
	if f.panics {
		panic("tasks")
	}
	c := f.changes
	if since == c.Version-1 {
		c.Base, c.Set, c.Removed = since, c.Set[:1], []monitor.RelayURL{"wss://gone.example/"}
	}
	return c, f.fail
}

func (f *fakeIntake) Deliver(_ context.Context, b monitor.Batch) (monitor.Answer, error) {
	switch {
	case f.fail != nil:
		return monitor.Answer{}, f.fail
	case f.gate != nil:
		<-f.gate
	}
	if b.Seq <= f.last {
		return monitor.Answer{}, &monitor.SequenceError{Vantage: b.Vantage, Seq: b.Seq, Last: f.last}
	}
	f.last = b.Seq
	f.batches = append(f.batches, b)
	return f.answer, nil
}

func (f *fakeIntake) Skewed(name string, skew time.Duration) { f.skews[name] = skew }

// desked is a bench whose API receives vantages on other machines: ber, which is
// enrolled with key.
type desked struct {
	*bench
	roster   *fakeRoster
	intake   *fakeIntake
	settings api.Settings
	key      nostr.Key
	log      bytes.Buffer
	registry *prometheus.Registry
}

const deskURL = "https://pharos.example"

func runDesk(t *testing.T, f func(d *desked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		elapse(30 * 365 * 24 * time.Hour) // into years that a vantage's clock may show
		key, err := nostr.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{T: t, now: time.Now().UTC(), core: &fakeCore{}, hist: &fakeHistory{}}
		g := generation(b.now)
		b.core.generation = func() *monitor.Generation { return g }
		d := &desked{
			bench: b, key: key,
			roster: newRoster(monitor.Vantage{Name: "ber", Group: "hetzner", Pubkey: key.Pubkey()}),
			intake: &fakeIntake{
				skews:  map[string]time.Duration{},
				answer: monitor.Answer{Expedite: []monitor.RelayURL{"wss://a.example/"}, Due: map[monitor.RelayURL]time.Time{"wss://b.example/": b.now}},
				changes: monitor.TaskChanges{
					Version: 812, LastSeq: 6, Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness(),
					Set: []monitor.Task{{Relay: "wss://a.example/"}, {Relay: "wss://b.example/", Candidate: true, PausedUntil: b.now.Add(time.Hour)}},
				},
			},
			settings: api.Settings{Name: "Pharos", PublicURL: "wss://pharos.example", PerMinute: 60},
		}
		d.make()
		f(d)
	})
}

func (d *desked) make() {
	d.registry = prometheus.NewRegistry()
	d.api = api.New(api.Options{
		Core: d.core, History: d.hist, Operator: &fakeOperator{}, Roster: d.roster, Intake: d.intake,
		AdminToken: adminToken, Settings: d.settings, Registry: d.registry, Log: slog.New(slog.NewTextHandler(&d.log, nil)),
	})
}

// batch is one observation of a.example under that sequence.
func (d *desked) batch(seq uint64) *monitor.Batch {
	now := time.Now().UTC()
	return &monitor.Batch{Vantage: "ber", Seq: seq, SentAt: now, Observations: []monitor.Observation{
		{Relay: "wss://a.example/", Vantage: "ber", Start: now, At: now, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead},
	}}
}

func (d *desked) encoded(b *monitor.Batch) string {
	d.Helper()
	var out bytes.Buffer
	if err := wire.EncodeBatch(&out, b); err != nil {
		d.Fatal(err)
	}
	return out.String()
}

func zipped(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return out.String()
}

// signature is the header Authorization of a request, at a time.
func (d *desked) signature(key nostr.Key, method, path, body string, at time.Time) string {
	d.Helper()
	header, err := key.HTTPAuth(method, deskURL+path, []byte(body), at)
	if err != nil {
		d.Fatal(err)
	}
	return header
}

const (
	berTasks   = "/v1/vantages/ber/tasks"
	berBatches = "/v1/vantages/ber/observations"
)

// deliver is a request with a batch's body.
func deliver(path, body, auth string) *http.Request {
	return post(path, body, "Authorization", auth, "Content-Type", "application/x-ndjson", "Content-Encoding", "gzip")
}

// refused is how many requests were refused for a reason.
func (d *desked) refused(reason string) float64 {
	d.Helper()
	families, err := d.registry.Gather()
	if err != nil {
		d.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "pharos_vantage_requests_refused_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	d.Fatalf("there is no reason %s", reason)
	return 0
}

func TestVantagesWork(t *testing.T) {
	runDesk(t, func(d *desked) {
		ask := func(query string, headers ...string) *httptest.ResponseRecorder {
			d.Helper()
			return d.get(berTasks+query, append(headers, "Authorization", d.signature(d.key, "GET", berTasks+query, "", time.Now()))...)
		}
		w := ask("")
		var tasks wire.Tasks
		if err := json.Unmarshal(w.Body.Bytes(), &tasks); w.Code != http.StatusOK || err != nil {
			d.Fatalf("tasks: %d %s %v", w.Code, w.Body, err)
		}
		want := wire.Tasks{
			Version: 812, Set: d.intake.changes.Set, LastSeq: 6, ServerTime: time.Now().UTC(),
			Rules: wire.Rules{Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness()},
		}
		if diff := cmp.Diff(want, tasks); diff != "" {
			d.Errorf("tasks (-want +got):\n%s", diff)
		}
		tag := w.Header().Get("ETag")
		if cc := w.Header().Get("Cache-Control"); cc != "no-store" {
			d.Errorf("Cache-Control %q", cc)
		}
		if w := ask("?since=811"); !strings.Contains(w.Body.String(), `"base":811`) || !strings.Contains(w.Body.String(), "wss://gone.example/") || w.Header().Get("ETag") != tag {
			d.Errorf("since 811: %s", w.Body)
		}
		if w := ask("?since=812", "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
			d.Errorf("with If-None-Match: %d %s", w.Code, w.Body)
		}
		d.intake.changes.Cadence.Interval = time.Minute
		if w := ask("?since=812", "If-None-Match", tag); w.Code != http.StatusOK {
			d.Errorf("other rules under the same tag: %d", w.Code)
		}
		for i := range 200 {
			d.intake.changes.Set = append(d.intake.changes.Set, monitor.Task{Relay: monitor.RelayURL(fmt.Sprintf("wss://relay%03d.example/", i))})
		}
		if w := ask("", "Accept-Encoding", "gzip"); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > 4000 {
			d.Errorf("a long list: Content-Encoding %q, %d bytes", w.Header().Get("Content-Encoding"), w.Body.Len())
		}

		body := d.encoded(d.batch(7))
		w = d.send(deliver(berBatches, body, d.signature(d.key, "POST", berBatches, body, time.Now())))
		var answer wire.Answer
		if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != http.StatusOK || err != nil {
			d.Fatalf("batch: %d %s %v", w.Code, w.Body, err)
		}
		if diff := cmp.Diff(wire.Answer{Stored: 7, Expedite: d.intake.answer.Expedite, Due: d.intake.answer.Due}, answer); diff != "" {
			d.Errorf("answer (-want +got):\n%s", diff)
		}
		if len(d.intake.batches) != 1 || len(d.intake.batches[0].Observations) != 1 || d.intake.batches[0].Vantage != "ber" {
			d.Errorf("taken in: %+v", d.intake.batches)
		}
		// Stored already: the newest sequence is told, and nothing is stored again.
		body = d.encoded(d.batch(5))
		w = d.send(deliver(berBatches, body, d.signature(d.key, "POST", berBatches, body, time.Now())))
		var p struct {
			Status  int
			Detail  string
			LastSeq uint64 `json:"last_seq"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); w.Code != http.StatusConflict || err != nil || p.LastSeq != 7 || p.Status != 409 || !strings.Contains(p.Detail, "nothing was stored again") {
			d.Errorf("an old sequence: %d %s", w.Code, w.Body)
		}
		if len(d.intake.batches) != 1 || d.refused("sequence") != 1 {
			d.Errorf("%d batches, %v refused", len(d.intake.batches), d.refused("sequence"))
		}
		// No page of another site may ask.
		for _, path := range []string{berTasks, berBatches, "/v1/vantages/enrol"} {
			for _, method := range []string{"GET", "POST"} {
				w := d.unrecorded(request(http.MethodOptions, path, "Origin", "https://evil.example", "Access-Control-Request-Method", method))
				if h := w.Header().Get("Access-Control-Allow-Origin"); h != "" {
					d.Errorf("%s of %s is allowed to the origin %q", method, path, h)
				}
			}
		}
	})
}

// Whatever is wrong with a request is told, counted, and changes nothing.
func TestBadBatchesAreRefused(t *testing.T) {
	runDesk(t, func(d *desked) {
		stranger, err := nostr.NewKey()
		if err != nil {
			d.Fatal(err)
		}
		d.roster.vantages["old"] = monitor.Vantage{Name: "old", Pubkey: d.key.Pubkey(), Revoked: true}
		good := d.encoded(d.batch(7))
		now := time.Now()
		signed := func(path, body string) *http.Request {
			return deliver(path, body, d.signature(d.key, "POST", path, body, now))
		}
		auth := func(header string) *http.Request { return deliver(berBatches, good, header) }
		with := func(r *http.Request, name, value string) *http.Request {
			r.Header.Set(name, value)
			return r
		}
		lines := func(change func(header, observation map[string]any)) *http.Request {
			d.Helper()
			z, err := gzip.NewReader(strings.NewReader(good))
			if err != nil {
				d.Fatal(err)
			}
			dec := json.NewDecoder(z)
			var header, observation map[string]any
			if err := errors.Join(dec.Decode(&header), dec.Decode(&observation)); err != nil {
				d.Fatal(err)
			}
			change(header, observation)
			h, _ := json.Marshal(header)
			o, _ := json.Marshal(observation)
			return signed(berBatches, zipped(string(h)+"\n"+string(o)+"\n"))
		}
		bomb := zipped(strings.Repeat("a", 80<<20))
		huge := signed(berBatches, good)
		huge.ContentLength = 100 << 20
		endless := signed(berBatches, good)
		endless.Body, endless.ContentLength = io.NopCloser(io.LimitReader(zeros{}, 100<<20)), -1
		slow := signed(berBatches, good)
		slow.Body = failingBody{timeout{}}
		broken := signed(berBatches, good)
		broken.Body = io.NopCloser(io.MultiReader(strings.NewReader(good[:10]), failing{}))
		type fault struct {
			r      *http.Request
			status int
			says   string
			reason string
		}
		faults := map[string]fault{
			"unsigned": {auth(""), 401, "this is for vantages", "missing"},
			"a token":  {auth("Bearer " + adminToken), 401, "not Nostr", "malformed"},
			"two signatures": {func() *http.Request {
				r := signed(berBatches, good)
				r.Header.Add("Authorization", "Nostr x")
				return r
			}(), 401, "more than one", "malformed"},
			"no event":            {auth("Nostr bm90IGFuIGV2ZW50"), 401, "no Nostr event", "event"},
			"another key":         {auth(d.signature(stranger, "POST", berBatches, good, now)), 403, "its key is not the one", "key"},
			"of another path":     {auth(d.signature(d.key, "POST", "/v1/vantages/nyc/observations", good, now)), 401, "the tag u", "event"},
			"another body":        {auth(d.signature(d.key, "POST", berBatches, good+"x", now)), 401, "not the SHA-256 of this body", "payload"},
			"no payload":          {auth(d.signature(d.key, "POST", berBatches, "", now)), 401, "payload is missing", "payload"},
			"signed before start": {auth(d.signature(d.key, "POST", berBatches, good, now.Add(-30*time.Second))), 401, "before Pharos was started", "event"},
			"unknown vantage":     {signed("/v1/vantages/nobody/observations", good), 404, "no vantage of this name", "unknown"},
			"revoked":             {signed("/v1/vantages/old/observations", good), 403, "was revoked", "revoked"},
			"JSON":                {with(signed(berBatches, good), "Content-Type", "application/json"), 415, "application/x-ndjson", "body"},
			"not compressed":      {with(signed(berBatches, good), "Content-Encoding", ""), 415, "gzip", "body"},
			"100 MB, announced":   {huge, 413, "larger than", "body"},
			"100 MB, unannounced": {endless, 413, "larger than", "body"},
			"cut connection":      {broken, 400, "could not be read", "body"},
			"gzip bomb":           {signed(berBatches, bomb), 422, "longer than", "invalid"},
			"no gzip":             {signed(berBatches, strings.Repeat("hello", 9)), 422, "not gzip", "invalid"},
			"far too short":       {signed(berBatches, "hello"), 422, "not gzip", "invalid"},
			"a list for a text":   {lines(func(_, o map[string]any) { o["relay"] = []string{"x"} }), 422, "field relay: it is an array", "invalid"},
			"too slow":            {slow, 408, "within 30 s", "body"},
			"empty":               {signed(berBatches, zipped("")), 422, "empty", "invalid"},
			"half-written":        {signed(berBatches, good[:len(good)-10]), 422, "cut off", "invalid"},
			"too few lines":       {lines(func(h, _ map[string]any) { h["count"] = 2 }), 422, "half-written", "invalid"},
			"another's batch":     {lines(func(h, _ map[string]any) { h["vantage"] = "nyc" }), 422, "nyc", "invalid"},
			"another version":     {lines(func(h, _ map[string]any) { h["version"] = 3 }), 422, "version 3", "invalid"},
			"no sequence":         {lines(func(h, _ map[string]any) { h["seq"] = 0 }), 422, "seq", "invalid"},
			"impossible time":     {lines(func(_, o map[string]any) { o["at"] = "0001-01-01T00:00:00Z" }), 422, "impossible", "invalid"},
			"tomorrow's":          {lines(func(_, o map[string]any) { o["start"], o["at"] = now.Add(25*time.Hour), now.Add(25*time.Hour) }), 422, "in the future (line 2)", "invalid"},
			"sent tomorrow":       {lines(func(h, _ map[string]any) { h["sent_at"] = now.Add(25 * time.Hour) }), 422, "sent_at is 25h0m0s in the future", "invalid"},
			"ended tomorrow": {lines(func(h, _ map[string]any) {
				h["recoveries"] = []any{map[string]any{"impairment": "network", "since": now, "at": now.Add(25 * time.Hour)}}
			}), 422, "recovery is 25h0m0s in the future", "invalid"},
			"impaired tomorrow": {lines(func(h, _ map[string]any) {
				h["health"].(map[string]any)["impaired_since"] = now.Add(25 * time.Hour)
			}), 422, "impaired_since is 25h0m0s in the future", "invalid"},
			"canary tomorrow": {lines(func(h, _ map[string]any) {
				h["health"].(map[string]any)["canary_success"] = now.Add(25 * time.Hour)
			}), 422, "canary_success is 25h0m0s in the future", "invalid"},
			"no relay":  {lines(func(_, o map[string]any) { o["relay"] = "https://a.example/" }), 422, "relay", "invalid"},
			"bad query": {signed(berBatches+"?x=1", good), 422, "problem", ""},
		}
		for name, f := range faults {
			d.make() // with full limits
			before := 0.0
			if f.reason != "" {
				before = d.refused(f.reason)
			}
			p := d.problem(d.send(f.r), f.status)
			if !strings.Contains(p.Detail, f.says) {
				d.Errorf("%s: %q does not say %q", name, p.Detail, f.says)
			}
			if f.reason != "" && d.refused(f.reason) != before+1 {
				d.Errorf("%s was not counted as %s", name, f.reason)
			}
		}
		if len(d.intake.batches) > 0 || len(d.intake.skews) > 0 {
			d.Errorf("something changed: %d batches, skews %v", len(d.intake.batches), d.intake.skews)
		}
		d.make()
		// What is right is taken once; the same request again is not.
		r := d.signature(d.key, "POST", berBatches, good, now)
		if w := d.send(deliver(berBatches, good, r)); w.Code != http.StatusOK {
			d.Fatalf("the good one: %d %s", w.Code, w.Body)
		}
		if p := d.problem(d.send(deliver(berBatches, good, r)), 401); !strings.Contains(p.Detail, "used before") {
			d.Errorf("replayed: %s", p.Detail)
		}
		if len(d.intake.batches) != 1 || d.refused("replay") != 1 {
			d.Errorf("%d batches, %v replays", len(d.intake.batches), d.refused("replay"))
		}
		if strings.Contains(d.log.String(), adminToken) || strings.Contains(d.log.String(), "Nostr ey") {
			d.Error("the log repeats credentials")
		}
	})
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// A vantage with a wrong clock is told so, and it is noted; a request that
// somebody kept is not taken for it while the vantage is heard.
func TestAWrongClockIsTold(t *testing.T) {
	runDesk(t, func(d *desked) {
		elapse(time.Hour)
		ask := func(key nostr.Key, off time.Duration) *httptest.ResponseRecorder {
			d.Helper()
			return d.get(berTasks, "Authorization", d.signature(key, "GET", berTasks, "", time.Now().Add(off)))
		}
		w := ask(d.key, 10*time.Minute)
		if p := d.problem(w, 401); !strings.Contains(p.Detail, "ahead of our clock") {
			d.Errorf("ahead: %s", p.Detail)
		}
		if at, err := time.Parse(time.RFC3339Nano, w.Header().Get("X-Pharos-Time")); err != nil || !at.Equal(time.Now()) {
			d.Errorf("our time is told as %q", w.Header().Get("X-Pharos-Time"))
		}
		if got := d.intake.skews["ber"].Round(time.Second); got != 10*time.Minute {
			d.Errorf("noted a skew of %s", got)
		}
		stranger, err := nostr.NewKey()
		if err != nil {
			d.Fatal(err)
		}
		delete(d.intake.skews, "ber")
		d.problem(ask(stranger, 10*time.Minute), 403)
		if w := ask(d.key, 0); w.Code != http.StatusOK {
			d.Fatalf("with the right time: %d", w.Code)
		}
		d.problem(ask(d.key, -10*time.Minute), 401)
		if len(d.intake.skews) > 0 {
			d.Errorf("noted %v", d.intake.skews)
		}
		elapse(2 * time.Minute)
		d.problem(ask(d.key, -10*time.Minute), 401)
		if got := d.intake.skews["ber"].Round(time.Second); got != -10*time.Minute {
			d.Errorf("noted a skew of %s", got)
		}
		if d.refused("clock") != 3 {
			d.Errorf("%v refused for their clock", d.refused("clock"))
		}
	})
}

func TestTheCoreCannotTakeABatch(t *testing.T) {
	runDesk(t, func(d *desked) {
		for name, tc := range map[string]struct {
			err    error
			status int
			reason string
		}{
			"store away":        {fmt.Errorf("%w: no database", monitor.ErrUnavailable), 503, "store"},
			"another core":      {fmt.Errorf("%w: another core leads", monitor.ErrConflict), 503, "store"},
			"revoked meanwhile": {fmt.Errorf("%w: no vantage", monitor.ErrNotFound), 403, "revoked"},
			"invalid":           {fmt.Errorf("%w sequence", monitor.ErrInvalid), 422, "invalid"},
			"a bug":             {errors.New("boom"), 500, ""},
		} {
			d.intake.fail = tc.err
			body := d.encoded(d.batch(9))
			p := d.problem(d.send(deliver(berBatches, body, d.signature(d.key, "POST", berBatches, body, time.Now()))), tc.status)
			if tc.reason != "" && d.refused(tc.reason) < 1 || strings.Contains(p.Detail, "boom") {
				d.Errorf("%s: %s", name, p.Detail)
			}
			path := berTasks
			if w := d.get(path, "Authorization", d.signature(d.key, "GET", path, "", time.Now())); w.Code != tc.status {
				d.Errorf("%s: tasks answer %d", name, w.Code)
			}
		}
		d.intake.fail = nil
		for _, bad := range []string{"?since=x", "?sinse=1"} {
			d.problem(d.get(berTasks+bad, "Authorization", d.signature(d.key, "GET", berTasks+bad, "", time.Now())), 422)
		}
		path := "/v1/vantages/nobody/tasks"
		d.problem(d.get(path, "Authorization", d.signature(d.key, "GET", path, "", time.Now())), 404)
		d.problem(d.get(berTasks), 401)
	})
}

// slow is a body whose end does not come in time.
type slow struct{}

func (slow) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestASlowBodyIsGivenUp(t *testing.T) {
	runDesk(t, func(d *desked) {
		r := deliver(berBatches, "x", d.signature(d.key, "POST", berBatches, "x", time.Now()))
		r.Body, r.ContentLength = io.NopCloser(slow{}), -1
		d.problem(d.send(r), 408)
		r = post("/v1/vantages/enrol", "x", "Authorization", d.signature(d.key, "POST", "/v1/vantages/enrol", "x", time.Now()))
		r.Body, r.ContentLength = io.NopCloser(slow{}), -1
		d.problem(d.send(r), 408)
	})
}

// joined is a body that does something before its end comes.
type joined struct {
	*strings.Reader
	first func()
}

func (j *joined) Read(p []byte) (int, error) {
	if j.first != nil {
		j.first()
		j.first = nil
	}
	return j.Reader.Read(p)
}

// A vantage that loses its key, or is revoked, while its batch arrives has no part
// in what comes after.
func TestABatchOfAFormerKeyIsRefused(t *testing.T) {
	for name, change := range map[string]func(v *monitor.Vantage){
		"another key": func(v *monitor.Vantage) { v.Pubkey = strings.Repeat("a", 64) },
		"revoked":     func(v *monitor.Vantage) { v.Revoked = true },
	} {
		runDesk(t, func(d *desked) {
			body := d.encoded(d.batch(7))
			r := deliver(berBatches, body, d.signature(d.key, "POST", berBatches, body, time.Now()))
			r.Body, r.ContentLength = io.NopCloser(&joined{strings.NewReader(body), func() {
				v := d.roster.vantages["ber"]
				change(&v)
				d.roster.vantages["ber"] = v
			}}), -1
			d.problem(d.send(r), 403)
			if len(d.intake.batches) > 0 {
				d.Errorf("%s: the batch was taken", name)
			}
		})
	}
}

// One batch of a vantage at a time; another waits a while.
func TestBatchesTakeTurns(t *testing.T) {
	runDesk(t, func(d *desked) {
		d.intake.gate = make(chan struct{})
		send := func(seq uint64) chan *httptest.ResponseRecorder {
			body := d.encoded(d.batch(seq))
			r := deliver(berBatches, body, d.signature(d.key, "POST", berBatches, body, time.Now()))
			out := make(chan *httptest.ResponseRecorder, 1)
			go func() { out <- d.unrecorded(r) }()
			synctest.Wait()
			return out
		}
		first, second := send(7), send(8)
		w := <-second // after five seconds
		exercised.check(d.T, d.api, deliver(berBatches, "", ""), w)
		if p := d.problem(w, 429); !strings.Contains(p.Detail, "still being taken") || d.refused("busy") != 1 {
			d.Errorf("the second: %s", p.Detail)
		}
		third := send(9)
		close(d.intake.gate)
		if a, b := <-first, <-third; a.Code != http.StatusOK || b.Code != http.StatusOK {
			d.Errorf("the first %d, the third %d", a.Code, b.Code)
		}
	})
}

// Strangers come up against a limit; a vantage behind the same address does not.
func TestAFloodDoesNotStarveAVantage(t *testing.T) {
	runDesk(t, func(d *desked) {
		stranger, err := nostr.NewKey()
		if err != nil {
			d.Fatal(err)
		}
		limited := 0
		for range 200 {
			w := d.get(berTasks, "Authorization", d.signature(stranger, "GET", berTasks, "", time.Now()))
			if w.Code == http.StatusTooManyRequests {
				limited++
			}
			body := "x"
			if w := d.send(deliver(berBatches, body, "")); w.Code == http.StatusTooManyRequests {
				limited++
			}
		}
		if limited != 400-30 {
			d.Errorf("%d of 400 were limited, want all but 30", limited)
		}
		for range 200 { // more than an address has in a minute
			if w := d.get(berTasks, "Authorization", d.signature(d.key, "GET", berTasks, "", time.Now())); w.Code != http.StatusOK {
				d.Fatalf("the vantage hears %d %s", w.Code, w.Body)
			}
		}
		for range 100 {
			d.send(post("/v1/vantages/enrol", "{}"))
		}
		d.problem(d.send(post("/v1/vantages/enrol", "{}")), 429)
		if w := d.get(berTasks, "Authorization", d.signature(d.key, "GET", berTasks, "", time.Now())); w.Code != http.StatusOK {
			d.Errorf("after a flood of enrolments the vantage hears %d", w.Code)
		}
		// A revoked one is told so, or it would come again and again.
		d.roster.vantages["old"] = monitor.Vantage{Name: "old", Pubkey: d.key.Pubkey(), Revoked: true}
		const oldTasks = "/v1/vantages/old/tasks"
		for range 3 {
			p := d.problem(d.get(oldTasks, "Authorization", d.signature(d.key, "GET", oldTasks, "", time.Now())), 403)
			if !strings.Contains(p.Detail, "was revoked") {
				d.Errorf("%s", p.Detail)
			}
		}
		d.problem(d.get(oldTasks, "Authorization", d.signature(stranger, "GET", oldTasks, "", time.Now())), 429)
		// A vantage that is mad is stopped by itself alone.
		busy := 0
		for range 10_000 {
			if w := d.unrecorded(request(http.MethodGet, berTasks, "Authorization", d.signature(d.key, "GET", berTasks, "", time.Now()))); w.Code == http.StatusTooManyRequests {
				busy++
			}
		}
		if busy == 0 {
			d.Error("ten thousand requests at once were answered")
		}
		d.problem(d.get(berTasks, "Authorization", d.signature(d.key, "GET", berTasks, "", time.Now())), 429)
	})
}

func TestEnrolment(t *testing.T) {
	runDesk(t, func(d *desked) {
		const path = "/v1/vantages/enrol"
		w := d.send(post("/v1/admin/vantages", `{"invite":{"name":"nyc"}}`, bearer...))
		var invited struct{ Name, Group, Token, Command, Expires string }
		if err := json.Unmarshal(w.Body.Bytes(), &invited); w.Code != http.StatusOK || err != nil {
			d.Fatalf("invite: %d %s", w.Code, w.Body)
		}
		if invited.Name != "nyc" || invited.Group != "nyc" || invited.Command != "pharos vantage --core https://pharos.example --token "+invited.Token || len(invited.Token) < 40 ||
			invited.Expires != time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339) {
			d.Errorf("invited: %+v", invited)
		}
		body := func(token string) string {
			b, err := json.Marshal(wire.Enrolment{Version: 1, Token: token, Networks: []monitor.Network{monitor.Clearnet}, Software: "pharos/1"})
			if err != nil {
				d.Fatal(err)
			}
			return string(b)
		}
		machine, err := nostr.NewKey()
		if err != nil {
			d.Fatal(err)
		}
		enrol := func(key nostr.Key, body string) *http.Request {
			return post(path, body, "Authorization", d.signature(key, "POST", path, body, time.Now()))
		}
		good := body(invited.Token)
		large := `{"token":"` + strings.Repeat("x", 9000) + `"}`
		unsigned := post(path, good)
		broken := enrol(machine, good)
		broken.Body = io.NopCloser(failing{})
		form := enrol(machine, good)
		form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		other := post(path, good, "Authorization", d.signature(machine, "POST", path, "{}", time.Now()))
		for name, f := range map[string]struct {
			r      *http.Request
			status int
			says   string
		}{
			"unsigned":        {unsigned, 401, "this is for vantages"},
			"another body":    {other, 401, "SHA-256"},
			"unknown token":   {enrol(machine, body("nonsense")), 403, "no open invitation"},
			"no JSON":         {enrol(machine, "{"), 400, "no JSON"},
			"cut":             {broken, 400, "could not be read"},
			"a form":          {form, 415, "application/json"},
			"large":           {enrol(machine, large), 413, "larger"},
			"another version": {enrol(machine, `{"version":3,"token":"x","networks":["clearnet"]}`), 422, "version 3"},
			"an array":        {enrol(machine, `[]`), 422, "invalid"},
			"no network":      {enrol(machine, `{"version":1,"token":"x","networks":[]}`), 422, "networks"},
			"unknown network": {enrol(machine, `{"version":1,"token":"x","networks":["moon"]}`), 422, "moon"},
		} {
			if p := d.problem(d.send(f.r), f.status); !strings.Contains(p.Detail, f.says) {
				d.Errorf("%s: %q does not say %q", name, p.Detail, f.says)
			}
		}
		if d.roster.enrolled != 0 {
			d.Fatal("somebody was enrolled")
		}
		first := enrol(machine, good)
		again := post(path, good, "Authorization", first.Header.Get("Authorization"))
		if w := d.send(first); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"name":"nyc","group":"nyc"}` {
			d.Fatalf("enrolled: %d %s", w.Code, w.Body)
		}
		if w := d.send(enrol(machine, good)); w.Code != http.StatusOK {
			d.Errorf("asked again: %d %s", w.Code, w.Body)
		}
		if p := d.problem(d.send(again), 401); !strings.Contains(p.Detail, "used before") {
			d.Errorf("the same signature: %s", p.Detail)
		}
		if p := d.problem(d.send(enrol(d.key, good)), 409); !strings.Contains(p.Detail, "taken up already") {
			d.Errorf("another machine: %s", p.Detail)
		}
		if d.roster.enrolled != 1 {
			d.Errorf("%d were enrolled", d.roster.enrolled)
		}
		d.roster.fail = fmt.Errorf("%w: away", monitor.ErrUnavailable)
		d.problem(d.send(enrol(machine, good)), 503)
		d.roster.fail = errors.New("boom")
		d.problem(d.send(enrol(machine, good)), 500)
		if strings.Contains(d.log.String(), invited.Token) {
			d.Error("the token is in the log")
		}
	})
}

func TestOperatorsInviteAndRevoke(t *testing.T) {
	runDesk(t, func(d *desked) {
		s := status(d.now)
		d.core.status = func() monitor.Status { return s }
		do := func(body string) *httptest.ResponseRecorder {
			d.Helper()
			return d.send(post("/v1/admin/vantages", body, bearer...))
		}
		for body, says := range map[string]string{
			`{}`: "either invite or revoke", `{"invite":{"name":"a"},"revoke":"b"}`: "either invite or revoke",
		} {
			if p := d.problem(do(body), 422); !strings.Contains(p.Errors[0].Message, says) {
				d.Errorf("%s: %+v", body, p)
			}
		}
		if p := d.problem(do(`{"invite":{"name":"B b"}}`), 422); !strings.Contains(p.Detail, "small letters") {
			d.Errorf("a bad name: %s", p.Detail)
		}
		d.problem(do(`{"invite":{"name":"local"}}`), 409)
		d.problem(do(`{"revoke":"nobody"}`), 404)
		w := do(`{"revoke":"ber"}`)
		if w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"name":"ber","revoked":true}` || !d.roster.vantages["ber"].Revoked {
			d.Errorf("revoke: %d %s", w.Code, w.Body)
		}
		if p := d.problem(d.get(berTasks, "Authorization", d.signature(d.key, "GET", berTasks, "", time.Now())), 403); !strings.Contains(p.Detail, "revoked") {
			d.Errorf("a revoked vantage hears %s", p.Detail)
		}
		w = do(`{"invite":{"name":"nyc","group":"ovh"}}`)
		var invited struct{ Token string }
		if err := json.Unmarshal(w.Body.Bytes(), &invited); err != nil || invited.Token == "" {
			d.Fatalf("invite: %d %s", w.Code, w.Body)
		}
		w = d.get("/v1/admin/vantages", bearer...)
		var list struct {
			Vantages []struct {
				Name     string
				Pubkey   *string
				Remote   bool
				Eligible bool
				Ratio    *float64 `json:"disagreement_ratio"`
			}
			Invitations []struct{ Name, Group, Expires string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &list); w.Code != http.StatusOK || err != nil {
			d.Fatalf("list: %d %s", w.Code, w.Body)
		}
		if len(list.Vantages) != 3 || list.Vantages[0].Pubkey != nil || list.Vantages[0].Ratio == nil || *list.Vantages[0].Ratio != 0.0125 || !list.Vantages[0].Eligible ||
			!list.Vantages[1].Remote || *list.Vantages[1].Pubkey != strings.Repeat("cd", 32) || list.Vantages[1].Ratio != nil {
			d.Errorf("list: %s", w.Body)
		}
		if len(list.Invitations) != 1 || list.Invitations[0].Name != "nyc" || list.Invitations[0].Group != "ovh" || strings.Contains(w.Body.String(), invited.Token) {
			d.Errorf("invitations: %+v", list.Invitations)
		}
		for body, want := range map[string]int{"": 401, "Bearer wrong": 401} {
			d.problem(d.get("/v1/admin/vantages", "Authorization", body), want)
		}
		d.problem(d.get("/v1/admin/vantages?x=1", bearer...), 422)
		const path = "/v1/admin/vantages"
		late := post(path, "{", bearer...)
		late.Body = io.NopCloser(slow{})
		form := post(path, "a=b", append(slices.Clone(bearer), "Content-Type", "application/x-www-form-urlencoded")...)
		for status, r := range map[int]*http.Request{
			400: post(path, "{", bearer...),
			401: post(path, "{}"),
			403: post(path, "{}", "Authorization", d.signature(d.key, "POST", path, "{}", time.Now())), // a vantage's key is no operator's
			408: late,
			413: post(path, strings.Repeat(" ", 3<<20), bearer...),
			415: form,
		} {
			d.problem(d.send(r), status)
		}
		d.problem(d.get(path, "Authorization", d.signature(d.key, "GET", path, "", time.Now())), 403)
		d.roster.fail = fmt.Errorf("%w: away", monitor.ErrUnavailable)
		d.problem(d.get("/v1/admin/vantages", bearer...), 503)
		d.problem(do(`{"invite":{"name":"x"}}`), 503)
		d.problem(do(`{"revoke":"ber"}`), 503)
		d.roster.fail = errors.New("boom")
		d.problem(d.get("/v1/admin/vantages", bearer...), 500)
		d.problem(do(`{"invite":{"name":"x"}}`), 500)

		// Without a public_url the command names where the operator asked.
		d.roster.fail, d.settings.PublicURL = nil, ""
		d.make()
		r := post("/v1/admin/vantages", `{"invite":{"name":"x"}}`, bearer...)
		r.Host = "10.0.0.5:7766"
		if w := d.send(r); !strings.Contains(w.Body.String(), "pharos vantage --core http://10.0.0.5:7766 --token ") {
			d.Errorf("command: %s", w.Body)
		}
	})
}
