package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	optOutPath = "/v1/relays/opt-out"
	optOutURL  = "https://pharos.example" + optOutPath
	optOutBody = `{"url":"wss://A.example"}`
)

// optOut sends what the key signed, from an address of its own.
func (o *operated) optOut(k nostr.Key, body, from string, change func(*nostr.Event)) *httptest.ResponseRecorder {
	o.Helper()
	r := post(optOutPath, body, o.sign(k, optOutURL, body, change)...)
	r.RemoteAddr = from + ":1"
	return o.send(r)
}

// What the core is asked, and what each of its answers comes to.
func TestOptOut(t *testing.T) {
	owner, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	watched := func(info *monitor.Info) monitor.RelayView {
		return monitor.RelayView{WatchedRelay: monitor.WatchedRelay{URL: "wss://a.example/", Info: info}, Monitored: true}
	}
	owned := watched(&monitor.Info{Pubkey: owner.Pubkey()})
	for name, tc := range map[string]struct {
		view   monitor.RelayView
		err    error
		why    string // "" = it was done
		status int
		says   string
	}{
		"done":               {view: owned, status: 200},
		"already":            {monitor.RelayView{WatchedRelay: monitor.WatchedRelay{Excluded: true}}, nil, "is excluded already", 200, ""},
		"another key":        {watched(&monitor.Info{Pubkey: strings.Repeat("ab", 32)}), nil, "names another key", 403, "not by the relay's key: names another key"},
		"no key":             {watched(&monitor.Info{}), nil, "names none", 403, "key: names none"},
		"no document":        {watched(nil), nil, "was never read", 403, "key: was never read"},
		"not watched":        {monitor.RelayView{}, nil, "is not watched", 404, "the relay is not watched"},
		"not done":           {owned, nil, "the cat sat on it", 409, "the cat sat on it"},
		"no leader":          {owned, fmt.Errorf("opt out: %w: another core decides", monitor.ErrConflict), "", 409, "another core decides"},
		"no such relay":      {owned, monitor.ErrNotFound, "", 404, ""},
		"refused altogether": {owned, fmt.Errorf("%w command", monitor.ErrInvalid), "", 422, ""},
		"store away":         {owned, monitor.ErrUnavailable, "", 503, ""},
		"broken":             {owned, errors.New("hunter2"), "", 500, "it is in the log"},
	} {
		t.Run(name, func(t *testing.T) {
			runOperated(t, func(o *operated) {
				o.core.view = func(monitor.RelayURL) monitor.RelayView { return tc.view }
				o.operator.administer = func(_ context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
					if tc.err != nil {
						return nil, tc.err
					}
					return []monitor.CommandResult{{Relay: c.Relays[0], Done: tc.why == "", Why: tc.why}}, nil
				}
				w := o.optOut(owner, optOutBody, "192.0.2.1", nil)
				want := []monitor.Command{{Kind: monitor.CommandOptOut, Actor: owner.Pubkey(), Relays: []monitor.RelayURL{"wss://a.example/"}}}
				if d := cmp.Diff(want, o.operator.commands()); d != "" {
					o.Errorf("(-want +got):\n%s", d)
				}
				if tc.status != 200 {
					if p := o.problem(w, tc.status); !strings.Contains(p.Detail, tc.says) || strings.Contains(w.Body.String(), "hunter2") {
						o.Errorf("%s", w.Body)
					}
					return
				}
				var b struct {
					URL            string
					Excluded, Done bool
					Reason         *string
				}
				if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != 200 || b.URL != "wss://a.example/" || !b.Excluded || b.Done != (tc.why == "") || (b.Reason == nil) != b.Done {
					o.Errorf("%d %v %s", w.Code, err, w.Body)
				}
			})
		})
	}
}

// Nobody without a signature of this very request is heard, and the core hears of
// none of them.
func TestOptOutStrangers(t *testing.T) {
	runOperated(t, func(o *operated) {
		signed := func(change func(*nostr.Event)) []string { return o.sign(o.key, optOutURL, optOutBody, change) }
		i := 0
		for name, tc := range map[string]struct {
			headers []string
			body    string
			status  int
			says    string
		}{
			"nothing":        {nil, optOutBody, 401, "this is for a relay's owner"},
			"empty":          {[]string{"Authorization", ""}, optOutBody, 401, "this is for a relay's owner"},
			"admin's token":  {bearer, optOutBody, 401, "is not Nostr"},
			"two headers":    {append(slices.Clone(bearer), signed(nil)...), optOutBody, 401, "more than one"},
			"no event":       {[]string{"Authorization", "Nostr bm8="}, optOutBody, 401, "no Nostr event"},
			"another URL":    {o.sign(o.key, checkURL, optOutBody, nil), optOutBody, 401, "tag u"},
			"another method": {signed(func(ev *nostr.Event) { ev.Tags[1][1] = "GET" }), optOutBody, 401, "tag method"},
			"another body":   {signed(nil), `{"url":"wss://b.example"}`, 401, "not the SHA-256 of this body"},
			"no payload":     {signed(func(ev *nostr.Event) { ev.Tags = ev.Tags[:2] }), optOutBody, 401, "payload is missing"},
			"old":            {signed(func(ev *nostr.Event) { ev.CreatedAt -= 61 }), optOutBody, 401, "seconds ago"},
			"before we were": {signed(func(ev *nostr.Event) { ev.CreatedAt-- }), optOutBody, 401, "before Pharos was started"},
			"no relay":       {o.sign(o.key, optOutURL, `{"url":"http://a.example"}`, nil), `{"url":"http://a.example"}`, 422, "the request has a problem"},
			"a private one":  {o.sign(o.key, optOutURL, `{"url":"ws://10.0.0.1"}`, nil), `{"url":"ws://10.0.0.1"}`, 422, "the request has a problem"},
			"too much":       {o.sign(o.key, optOutURL, `{"url":"wss://a.example","all":true}`, nil), `{"url":"wss://a.example","all":true}`, 422, "the request has a problem"},
			"twice":          {o.sign(o.key, optOutURL, `{"url":"wss://a.example","url":"wss://b.example"}`, nil), `{"url":"wss://a.example","url":"wss://b.example"}`, 400, "no JSON"},
			"huge":           {signed(nil), `{"url":"` + strings.Repeat("a", 9000) + `"}`, 413, "larger than"},
		} {
			i++
			r := post(optOutPath, tc.body, tc.headers...)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
			w := o.send(r)
			if p := o.problem(w, tc.status); !strings.Contains(p.Detail, tc.says) {
				o.Errorf("%s: %s", name, p.Detail)
			}
			if got := w.Header().Values("WWW-Authenticate"); slices.Equal(got, []string{"Nostr"}) != (tc.status == 401) {
				o.Errorf("%s: WWW-Authenticate %q", name, got)
			}
		}
		form := post(optOutPath, optOutBody, append(signed(nil), "Content-Type", "text/plain")...)
		o.problem(o.send(form), 415)
		slow := post(optOutPath, optOutBody, signed(nil)...)
		slow.Body = failingBody{os.ErrDeadlineExceeded}
		if p := o.problem(o.send(slow), 408); !strings.Contains(p.Detail, "within 10 s") {
			o.Errorf("%s", p.Detail)
		}
		if c := o.operator.commands(); len(c) > 0 {
			o.Errorf("carried out: %+v", c)
		}
	})
}

// What was signed once is done once; what was not done may be sent again, as it
// changed nothing.
func TestOptOutReplay(t *testing.T) {
	runOperated(t, func(o *operated) {
		done := false
		o.operator.administer = func(_ context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
			return []monitor.CommandResult{{Relay: c.Relays[0], Done: done, Why: "not yet"}}, nil
		}
		o.core.view = func(monitor.RelayURL) monitor.RelayView { return monitor.RelayView{} }
		headers := o.sign(o.key, optOutURL, optOutBody, nil)
		for _, want := range []int{404, 404} {
			o.problem(o.post(optOutPath, optOutBody, headers...), want)
		}
		done = true
		if w := o.post(optOutPath, optOutBody, headers...); w.Code != http.StatusOK {
			o.Fatalf("%d %s", w.Code, w.Body)
		}
		before := len(o.operator.commands())
		if p := o.problem(o.post(optOutPath, optOutBody, headers...), 401); !strings.Contains(p.Detail, "used before") || len(o.operator.commands()) != before {
			o.Errorf("%s", p.Detail)
		}
		// An operator's signature is none of these, nor the other way round.
		if w := o.post("/v1/admin/check", oneRelay, o.sign(o.key, checkURL, oneRelay, nil)...); w.Code != http.StatusOK {
			o.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// An address may ask ten times a minute, whoever signs; others are not held up.
func TestOptOutsAreLimited(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.settings.Exempt = everybody
		o.api.Configure(o.settings)
		for range 10 {
			k, err := nostr.NewKey()
			if err != nil {
				o.Fatal(err)
			}
			if w := o.optOut(k, optOutBody, "192.0.2.1", nil); w.Code != http.StatusOK {
				o.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		w := o.optOut(o.key, optOutBody, "192.0.2.1", nil)
		o.problem(w, http.StatusTooManyRequests)
		if w := o.optOut(o.key, optOutBody, "192.0.2.2", nil); w.Code != http.StatusOK {
			o.Errorf("another address: %d", w.Code)
		}
		if w := o.post(submitPath, `{"url":"wss://a.example"}`); w.Code != http.StatusAccepted {
			o.Errorf("a submission: %d", w.Code)
		}
		wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
		if err != nil {
			o.Fatal(err)
		}
		elapse(wait)
		if w := o.optOut(o.key, optOutBody, "192.0.2.1", nil); w.Code != http.StatusOK {
			o.Errorf("after %s: %d %s", wait, w.Code, w.Body)
		}
		if m := o.get("/metrics").Body.String(); !strings.Contains(m, `pharos_http_limited_total{limit="opt_outs"} 1`+"\n") {
			o.Error("not counted")
		}
	})
}

// A page of any origin may hand over what an owner signed there.
func TestOptOutFromOtherOrigins(t *testing.T) {
	runOperated(t, func(o *operated) {
		w := o.do(http.MethodOptions, optOutPath, "Origin", "https://client.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
		if h := w.Header(); h.Get("Access-Control-Allow-Methods") != "POST" || !strings.Contains(strings.ToLower(h.Get("Access-Control-Allow-Headers")), "authorization") {
			o.Errorf("%v", h)
		}
	})
}
