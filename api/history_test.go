package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// transitions are n of them, newest first, one a minute.
func transitions(now time.Time, n int) []monitor.Transition {
	out := make([]monitor.Transition, n)
	for i := range out {
		out[i] = monitor.Transition{
			ID: int64(n - i), Relay: monitor.RelayURL(fmt.Sprintf("wss://r%d.example/", n-i)),
			From: monitor.StateOnline, To: monitor.StateOffline, At: now.Add(-time.Duration(i+1) * time.Minute),
			Quorum: monitor.Quorum{For: 2, Of: 3}, Cause: monitor.CauseNXDomain, Evidence: "no such name",
		}
	}
	return out
}

func observations(now time.Time) []monitor.Observation {
	return []monitor.Observation{
		{Relay: "wss://a.example/", Vantage: "ber", At: now.Add(-10 * time.Minute), Outcome: monitor.OutcomeOK, RTTOpen: 83 * time.Millisecond, RTTRead: 41 * time.Millisecond},
		{Relay: "wss://a.example/", Vantage: "nyc", At: now.Add(-9 * time.Minute), Outcome: monitor.OutcomeFailed, Cause: monitor.CauseTimeout},
		{Relay: "wss://a.example/", Vantage: "ber", At: now.Add(-5 * time.Minute), Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload},
	}
}

func TestHistoryBodies(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		for file, target := range map[string]string{
			"transitions.json": "/v1/transitions?limit=2",
			"history.json":     "/v1/history?url=WSS://A.example:443&resolution=raw",
		} {
			w := b.get(target)
			if w.Code != http.StatusOK {
				b.Errorf("%s: %d", target, w.Code)
			}
			golden(b.T, file, w.Body.Bytes())
		}
	})
}

// What was asked for is what the store is asked for.
func TestHistoryQueries(t *testing.T) {
	dead := monitor.StateDead
	day := func(now time.Time) (time.Time, time.Time) {
		return now.Add(time.Second - 24*time.Hour), now.Add(time.Second)
	}
	for target, want := range map[string]func(now time.Time) any{
		"/v1/transitions": func(now time.Time) any {
			from, to := day(now)
			return monitor.TransitionQuery{From: from, To: to, Limit: 101}
		},
		"/v1/transitions?url=wss://A.example&state=dead&limit=1000&cursor=77&from=946600000&to=1999-12-31T12:00:00%2B02:00": func(time.Time) any {
			return monitor.TransitionQuery{
				Relay: "wss://a.example/", State: &dead, Limit: 1001, Before: 77,
				From: time.Unix(946600000, 0).UTC(), To: time.Date(1999, 12, 31, 10, 0, 0, 0, time.UTC),
			}
		},
		"/v1/transitions?to=946600000": func(time.Time) any {
			return monitor.TransitionQuery{From: time.Unix(946600000-86400, 0).UTC(), To: time.Unix(946600000, 0).UTC(), Limit: 101}
		},
		"/v1/history?url=ws://127.0.0.1:8080/x": func(now time.Time) any {
			from, to := day(now)
			return monitor.ObservationQuery{Relay: "ws://127.0.0.1:8080/x", From: from, To: to, Limit: 20001}
		},
		"/v1/history?url=wss://a.example&vantage=ber&from=1": func(now time.Time) any {
			_, to := day(now)
			return monitor.ObservationQuery{Relay: "wss://a.example/", Vantage: "ber", From: time.Unix(1, 0).UTC(), To: to, Limit: 20001}
		},
	} {
		t.Run(target, func(t *testing.T) {
			run(t, func(b *bench) {
				var got any
				b.hist.transitions = func(_ context.Context, q monitor.TransitionQuery) ([]monitor.Transition, error) {
					got = q
					return nil, nil
				}
				b.hist.observations = func(_ context.Context, q monitor.ObservationQuery) ([]monitor.Observation, error) {
					got = q
					return nil, nil
				}
				if w := b.get(target); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
				if d := cmp.Diff(want(b.now), got); d != "" {
					b.Error(d)
				}
			})
		})
	}
}

// Following next gives every transition once, in order.
func TestTransitionPages(t *testing.T) {
	run(t, func(b *bench) {
		all := transitions(b.now, 25)
		b.hist.transitions = func(_ context.Context, q monitor.TransitionQuery) ([]monitor.Transition, error) {
			var out []monitor.Transition
			for _, tr := range all {
				if (q.Before == 0 || tr.ID < q.Before) && len(out) < q.Limit {
					out = append(out, tr)
				}
			}
			return out, nil
		}
		var seen []string
		target, pages := "/v1/transitions?limit=10", 0
		for ; target != "" && pages < 10; pages++ {
			var page struct {
				Transitions []struct{ URL string }
				Next        *string
			}
			if err := json.Unmarshal(b.get(target).Body.Bytes(), &page); err != nil {
				b.Fatal(err)
			}
			for _, tr := range page.Transitions {
				seen = append(seen, tr.URL)
			}
			target = ""
			if page.Next != nil {
				target = "/v1/transitions?limit=10&cursor=" + *page.Next
			}
		}
		var want []string
		for _, tr := range all {
			want = append(want, string(tr.Relay))
		}
		if d := cmp.Diff(want, seen); d != "" || pages != 3 {
			b.Errorf("%d pages\n%s", pages, d)
		}
	})
}

func TestHistorySaysThatItIsCut(t *testing.T) {
	run(t, func(b *bench) {
		n := 20000
		b.hist.observations = func(_ context.Context, q monitor.ObservationQuery) ([]monitor.Observation, error) {
			return make([]monitor.Observation, min(n, q.Limit)), nil
		}
		var got struct {
			Truncated bool
			Limit     int
			Points    []any
		}
		for _, n = range []int{20000, 20001, 50000} {
			if err := json.Unmarshal(b.unrecorded(request(http.MethodGet, "/v1/history?url=wss://a.example")).Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			if len(got.Points) != 20000 || got.Limit != 20000 || got.Truncated != (n > 20000) {
				b.Errorf("of %d: %d points, truncated %v, limit %d", n, len(got.Points), got.Truncated, got.Limit)
			}
		}
	})
}

// A store that does not answer costs a reader ten seconds and a 503.
func TestStoreThatHangs(t *testing.T) {
	run(t, func(b *bench) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("query: %w", ctx.Err()) }
		b.hist.transitions = func(ctx context.Context, _ monitor.TransitionQuery) ([]monitor.Transition, error) {
			return nil, hang(ctx)
		}
		b.hist.observations = func(ctx context.Context, _ monitor.ObservationQuery) ([]monitor.Observation, error) {
			return nil, hang(ctx)
		}
		for _, target := range []string{"/v1/transitions", "/v1/history?url=wss://a.example"} {
			start := time.Now()
			b.problem(b.get(target), http.StatusServiceUnavailable)
			if d := time.Since(start); d != 10*time.Second { // of the bubble
				b.Errorf("%s: %s", target, d)
			}
		}
	})
}

// The errors of the domain, each with its status.
func TestErrorsOfTheDomain(t *testing.T) {
	for want, err := range map[int]error{
		http.StatusUnprocessableEntity: monitor.ErrInvalid,
		http.StatusNotFound:            monitor.ErrNotFound,
		http.StatusConflict:            monitor.ErrConflict,
		http.StatusServiceUnavailable:  monitor.ErrUnavailable,
		http.StatusInternalServerError: errors.New("anything else"),
	} {
		run(t, func(b *bench) {
			b.hist.transitions = func(context.Context, monitor.TransitionQuery) ([]monitor.Transition, error) {
				return nil, fmt.Errorf("read: %w", err)
			}
			b.problem(b.unrecorded(request(http.MethodGet, "/v1/transitions")), want)
		})
	}
}

// A caller who hangs up ends the read.
func TestCallerHangsUp(t *testing.T) {
	run(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		b.hist.transitions = func(ctx context.Context, _ monitor.TransitionQuery) ([]monitor.Transition, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w := httptest.NewRecorder()
		b.api.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/transitions", nil).WithContext(ctx))
		b.problem(w, http.StatusServiceUnavailable)
	})
}

func TestRelayBodies(t *testing.T) {
	run(t, func(b *bench) {
		views := map[monitor.RelayURL]monitor.RelayView{"wss://a.example/": relayView("wss://a.example/", b.now)}
		down := relayView("wss://c.example/", b.now)
		down.Verdict.State, down.Eligible, down.Facts.TLS, down.Report = monitor.StateDead, false, nil, nil
		down.Info = &monitor.Info{Problem: "http_404"}
		down.Facts = monitor.Facts{Write: &monitor.WriteFacts{}} // never tested
		down.Place = monitor.Place{ASN: 13335, Organization: "Cloudflare, Inc.", Shared: "Cloudflare"}
		down.Provenance, down.Aliases, down.AliasOf, down.Twin = nil, nil, "wss://a.example/", "wss://twin.example/"
		views["wss://c.example/"] = down
		views["wss://new.example/"] = monitor.RelayView{
			WatchedRelay: monitor.WatchedRelay{URL: "wss://new.example/", Source: monitor.SourceDiscovery, Candidate: true, FirstSeen: b.now},
			Monitored:    true, Eligible: true,
		}
		views["wss://excluded.example/"] = monitor.RelayView{WatchedRelay: monitor.WatchedRelay{URL: "wss://excluded.example/", Source: monitor.SourceNone, Excluded: true}}
		b.core.view = func(u monitor.RelayURL) monitor.RelayView { return views[u] }
		for file, target := range map[string]string{
			"relay_excluded.json":  "/v1/relay?url=wss://excluded.example",
			"relay_online.json":    "/v1/relay?url=WSS://A.Example:443",
			"relay_dead.json":      "/v1/relay?url=wss://c.example/",
			"relay_candidate.json": "/v1/relay?url=wss://new.example/",
			"relay_unknown.json":   "/v1/relay?url=wss://nobody.example/x",
		} {
			w := b.get(target)
			if w.Code != http.StatusOK {
				b.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
			golden(b.T, file, w.Body.Bytes())
		}
	})
}

// A document of a relay is passed on to the letter, or else its fields.
func TestRelayDocument(t *testing.T) {
	for name, c := range map[string]struct {
		info monitor.Info
		want string
	}{
		"as it came":       {monitor.Info{Name: "x", Raw: []byte(`{"z":123456789012345678901,"a":"<b>&"}`)}, `"nip11":{"z":123456789012345678901,"a":"<b>&"}`},
		"raw was lost":     {monitor.Info{Name: "x", NIPs: []int{1}}, `"nip11":{"name":"x","supported_nips":[1]}`},
		"raw is broken":    {monitor.Info{Name: "x", Raw: []byte(`{"a":`)}, `"nip11":{"name":"x"}`},
		"raw is no object": {monitor.Info{Name: "x", Raw: []byte(`[1]`)}, `"nip11":{"name":"x"}`},
		"none":             {monitor.Info{Problem: "timeout"}, `"nip11_problem":"timeout"`},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.core.view = func(u monitor.RelayURL) monitor.RelayView {
					v := relayView(u, b.now)
					v.Info = &c.info
					return v
				}
				w := b.get("/v1/relay?url=wss://a.example")
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), c.want) {
					b.Errorf("%d %s", w.Code, w.Body)
				}
			})
		})
	}
}
