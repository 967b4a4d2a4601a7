package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const submitPath = "/v1/relays/submit"

// What becomes of a submission, and what the core is asked.
func TestSubmit(t *testing.T) {
	runOperated(t, func(o *operated) {
		watched := monitor.RelayView{}
		o.core.view = func(monitor.RelayURL) monitor.RelayView { return watched }
		body := func(status int) (b struct {
			URL, State string
			Candidate  bool
		},
		) {
			o.Helper()
			w := o.post(submitPath, `{"url":"wss://A.example"}`)
			if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != status || b.URL != "wss://a.example/" {
				o.Fatalf("%d, want %d: %v, %s", w.Code, status, err, w.Body)
			}
			return b
		}
		if b := body(http.StatusAccepted); b.State != "unknown" || !b.Candidate {
			o.Errorf("%+v", b)
		}
		c := o.operator.commands()
		if len(c) != 1 || c[0].Kind != monitor.CommandSubmit || c[0].Actor != "" || len(c[0].Relays) != 1 || c[0].Relays[0] != "wss://a.example/" {
			o.Errorf("%+v", c)
		}

		why := "is watched already"
		o.operator.administer = func(_ context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
			return []monitor.CommandResult{{Relay: c.Relays[0], Why: why}}, nil
		}
		watched.Monitored, watched.Verdict.State = true, monitor.StateOnline
		if b := body(http.StatusOK); b.State != "online" || b.Candidate {
			o.Errorf("%+v", b)
		}
		watched.Monitored, why = false, "is not to be watched here"
		if p := o.problem(o.post(submitPath, `{"url":"wss://a.example"}`), http.StatusConflict); !strings.Contains(p.Detail, why) {
			o.Errorf("%s", p.Detail)
		}
		for status, err := range map[int]error{503: monitor.ErrUnavailable, 500: errors.New("hunter2"), 409: monitor.ErrConflict} {
			o.operator.administer = func(context.Context, monitor.Command) ([]monitor.CommandResult, error) { return nil, err }
			w := o.post(submitPath, `{"url":"wss://a.example"}`)
			if o.problem(w, status); strings.Contains(w.Body.String(), "hunter2") {
				o.Errorf("%s", w.Body)
			}
		}
	})
}

// What is no submission is refused before the core hears of it.
func TestSubmitFaults(t *testing.T) {
	runOperated(t, func(o *operated) {
		for i, tc := range []struct {
			body   string
			header string
			status int
			says   string
		}{
			{`{"url":"http://a.example"}`, "", 422, "scheme: it must begin"},
			{`{"url":"wss://user:hunter2@a.example"}`, "", 422, "userinfo: "},
			{`{"url":"wss://10.0.0.1"}`, "", 422, "private: "},
			{`{"url":"wss://127.0.0.1"}`, "", 422, "private: "},
			{`{"url":"wss://169.254.169.254"}`, "", 422, "private: "},
			{`{"url":"wss://localhost"}`, "", 422, "reserved: "},
			{`{"url":""}`, "", 422, "empty: "},
			{`{"url":1}`, "", 422, "expected string"},
			{`{"url":"wss://a.example","note":"hunter2"}`, "", 422, "unexpected"},
			{`{"relays":["wss://a.example"]}`, "", 422, "required"},
			{`{"url":"wss://a.example","url":"wss://b.example"}`, "", 400, "twice"},
			{"{\"url\":\"wss://a.example/\xff\"}", "", 400, ""},
			{`url=wss://a.example`, "application/x-www-form-urlencoded", 415, ""},
			{`{"url":"wss://a.example"}`, "text/plain", 415, ""},
			{`{"url":"wss://a.example/` + strings.Repeat("a", 8<<10) + `"}`, "", 413, ""},
			{"", "", 400, ""},
		} {
			r := post(submitPath, tc.body, "Content-Type", "application/json")
			if tc.header != "" {
				r.Header.Set("Content-Type", tc.header)
			}
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
			w := o.send(r)
			p := o.problem(w, tc.status)
			if tc.says != "" && (len(p.Errors) == 0 || !strings.Contains(p.Errors[0].Message, tc.says)) || strings.Contains(w.Body.String(), "hunter2") {
				o.Errorf("%.60s: %+v", tc.body, p)
			}
		}
		slow := post(submitPath, `{"url":"wss://a.example"}`)
		slow.Body = failingBody{timeout{}}
		o.problem(o.send(slow), 408)
		if c := o.operator.commands(); len(c) > 0 {
			o.Errorf("submitted: %+v", c)
		}
	})
}

// An address may propose ten in a minute, right or wrong, and no network is
// exempt; operators' commands do not count.
func TestSubmissionsAreLimited(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.settings.Exempt = everybody
		o.api.Configure(o.settings)
		for range 10 {
			o.problem(o.post(submitPath, `{"url":"x"}`), http.StatusUnprocessableEntity)
		}
		w := o.post(submitPath, `{"url":"wss://a.example"}`)
		o.problem(w, http.StatusTooManyRequests)
		if w := o.post("/v1/admin/relays", `{"add":["wss://a.example"]}`, bearer...); w.Code != http.StatusOK {
			o.Errorf("an operator: %d", w.Code)
		}
		wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
		if err != nil {
			o.Fatal(err)
		}
		elapse(wait)
		if w := o.post(submitPath, `{"url":"wss://a.example"}`); w.Code != http.StatusAccepted {
			o.Errorf("after %s: %d %s", wait, w.Code, w.Body)
		}
		if m := o.get("/metrics").Body.String(); !strings.Contains(m, `pharos_http_limited_total{limit="submissions"} 1`+"\n") {
			o.Error("not counted")
		}
	})
}

// A page of any origin may propose a relay, and only that.
func TestSubmitFromOtherOrigins(t *testing.T) {
	runOperated(t, func(o *operated) {
		for path, want := range map[string]string{submitPath: "POST", "/v1/live": ""} {
			w := o.do(http.MethodOptions, path, "Origin", "https://client.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
			if w.Header().Get("Access-Control-Allow-Methods") != want {
				o.Errorf("%s: %v", path, w.Header())
			}
		}
		w := o.post(submitPath, `{"url":"wss://a.example"}`, "Origin", "https://client.example")
		if w.Code != http.StatusAccepted || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			o.Errorf("%d %v", w.Code, w.Header())
		}
	})
}
