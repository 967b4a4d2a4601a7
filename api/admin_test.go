package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor"
)

// result is one of a command's results; an empty Reason is null.
type result struct {
	Input, URL string
	Done       bool
	Reason     string
}

func results(t testing.TB, w *httptest.ResponseRecorder) []result {
	t.Helper()
	var body struct{ Results []result }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK || body.Results == nil {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	return body.Results
}

// adminPaths are the commands, each with a body that it takes.
var adminPaths = map[string]string{
	"check": oneRelay, "reset": oneRelay, "relays": `{"add":["wss://a.example"]}`, "exclude": `{"add":["wss://a.example"]}`,
	"pause": `{"relays":["wss://a.example"],"for":"1h"}`, "maintenance": `{"relays":["wss://a.example"],"for":"1h"}`,
	"release": `{"all":true}`, "reload": `{}`,
}

// What each body makes of the commands that the core is given.
func TestCommands(t *testing.T) {
	a, b := monitor.RelayURL("wss://a.example/"), monitor.RelayURL("wss://b.example/")
	both := []monitor.RelayURL{a, b}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		path, body string
		want       []monitor.Command
	}{
		"check":        {"check", `{"relays":["wss://a.example","WSS://B.example:443"],"note":"now, please"}`, []monitor.Command{{Kind: monitor.CommandCheck, Relays: both, Note: "now, please"}}},
		"reset":        {"reset", oneRelay, []monitor.Command{{Kind: monitor.CommandReset, Relays: []monitor.RelayURL{a}}}},
		"add":          {"relays", `{"add":["wss://a.example","wss://b.example"]}`, []monitor.Command{{Kind: monitor.CommandAdd, Relays: both}}},
		"remove":       {"relays", `{"remove":["wss://a.example"]}`, []monitor.Command{{Kind: monitor.CommandRemove, Relays: []monitor.RelayURL{a}}}},
		"import":       {"relays", `{"import":"\ufeff# mine\n\nwss://a.example # the first\r\n  wss://b.example#x\n\t#wss://c.example"}`, []monitor.Command{{Kind: monitor.CommandAdd, Relays: both}}},
		"add, remove":  {"relays", `{"add":["wss://a.example"],"remove":["wss://b.example"]}`, []monitor.Command{{Kind: monitor.CommandRemove, Relays: []monitor.RelayURL{b}}, {Kind: monitor.CommandAdd, Relays: []monitor.RelayURL{a}}}},
		"exclude":      {"exclude", `{"add":["wss://a.example"]}`, []monitor.Command{{Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{a}}}},
		"include":      {"exclude", `{"remove":["wss://a.example"]}`, []monitor.Command{{Kind: monitor.CommandInclude, Relays: []monitor.RelayURL{a}}}},
		"pause until":  {"pause", `{"relays":["wss://a.example"],"until":"2000-01-01T03:00:00+01:00"}`, []monitor.Command{{Kind: monitor.CommandPause, Relays: []monitor.RelayURL{a}, Until: now.Add(2 * time.Hour)}}},
		"pause for":    {"pause", `{"relays":["wss://a.example"],"for":"1d12h"}`, []monitor.Command{{Kind: monitor.CommandPause, Relays: []monitor.RelayURL{a}, Until: now.Add(36 * time.Hour)}}},
		"resume":       {"pause", `{"relays":["wss://a.example"],"resume":true}`, []monitor.Command{{Kind: monitor.CommandResume, Relays: []monitor.RelayURL{a}}}},
		"maintenance":  {"maintenance", `{"relays":["wss://a.example"],"from":"2000-01-02T00:00:00Z","for":"30m","note":"disk"}`, []monitor.Command{{Kind: monitor.CommandMaintenance, Relays: []monitor.RelayURL{a}, From: now.Add(24 * time.Hour), Until: now.Add(24*time.Hour + 30*time.Minute), Note: "disk"}}},
		"from now on":  {"maintenance", `{"relays":["wss://a.example"],"until":"2000-01-02T00:00:00Z"}`, []monitor.Command{{Kind: monitor.CommandMaintenance, Relays: []monitor.RelayURL{a}, From: now, Until: now.Add(24 * time.Hour)}}},
		"release":      {"release", oneRelay, []monitor.Command{{Kind: monitor.CommandRelease, Relays: []monitor.RelayURL{a}}}},
		"release all":  {"release", `{"all":true}`, []monitor.Command{{Kind: monitor.CommandRelease}}},
		"twice":        {"check", `{"relays":["wss://a.example","wss://A.example/"]}`, []monitor.Command{{Kind: monitor.CommandCheck, Relays: []monitor.RelayURL{a, a}}}}, // which is the core's to say
		"a bad one":    {"check", `{"relays":["nonsense","wss://a.example"]}`, []monitor.Command{{Kind: monitor.CommandCheck, Relays: []monitor.RelayURL{a}}}},
		"only bad":     {"check", `{"relays":["nonsense"]}`, nil},
		"bad releases": {"release", `{"relays":["nonsense"]}`, nil}, // not all of them
	} {
		t.Run(name, func(t *testing.T) {
			runOperated(t, func(o *operated) {
				if w := o.post("/v1/admin/"+tc.path, tc.body, bearer...); w.Code != http.StatusOK {
					o.Fatalf("%d %s", w.Code, w.Body)
				}
				for i := range tc.want {
					tc.want[i].Actor = "token"
				}
				if d := cmp.Diff(tc.want, o.operator.commands(), cmpopts.EquateEmpty()); d != "" {
					o.Errorf("(-want +got):\n%s", d)
				}
			})
		})
	}
}

// Each URL has its result, in the order of the request, and a bad one fails
// itself alone. No password comes back.
func TestResults(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.settings.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.api.Configure(o.settings)
		o.operator.administer = func(_ context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
			var out []monitor.CommandResult
			for _, u := range c.Relays {
				r := monitor.CommandResult{Relay: u, Done: true}
				switch {
				case u == "wss://b.example/":
					r.Done, r.Why = false, "is watched already"
				case slices.ContainsFunc(out, func(before monitor.CommandResult) bool { return before.Relay == u }):
					r.Done, r.Why = false, "is named twice"
				}
				out = append(out, r)
			}
			return out, nil
		}
		got := results(t, o.post("/v1/admin/relays", `{"add":["wss://A.example","wss://user:hunter2@c.example","wss://b.example#x",
			"wss://a.example/","ws://127.0.0.1:4848","ws://10.0.0.1","","wss://d.example/?k=hunter2"],"remove":["wss://e.example"],"import":"wss://f.example#x # y"}`, bearer...))
		want := []result{
			{"wss://e.example", "wss://e.example/", true, ""},
			{"wss://A.example", "wss://a.example/", true, ""},
			{"wss://…@c.example", "", false, "userinfo: it contains a user name or password; leave out everything up to the @"},
			{"wss://b.example…", "wss://b.example/", false, "is watched already"},
			{"wss://a.example/", "wss://a.example/", false, "is named twice"},
			{"ws://127.0.0.1:4848", "ws://127.0.0.1:4848/", true, ""},
			{"ws://10.0.0.1", "", false, "private: its address is not public"},
			{"", "", false, "empty: there is no URL"},
			{"wss://d.example/…", "", false, "query: it contains a query; relays are watched without one"},
			{"wss://f.example…", "wss://f.example/", true, ""},
		}
		if d := cmp.Diff(want, got); d != "" {
			o.Errorf("(-want +got):\n%s", d)
		}
		if strings.Contains(o.log.String(), "hunter2") {
			o.Errorf("the log has a password: %s", o.log.String())
		}
	})
}

// A release of all tells each relay that it let go.
func TestReleaseAll(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.operator.administer = func(context.Context, monitor.Command) ([]monitor.CommandResult, error) {
			return []monitor.CommandResult{{Relay: "wss://a.example/", Done: true}, {Relay: "wss://b.example/", Why: "is released already"}}, nil
		}
		want := []result{{"wss://a.example/", "wss://a.example/", true, ""}, {"wss://b.example/", "wss://b.example/", false, "is released already"}}
		if d := cmp.Diff(want, results(t, o.post("/v1/admin/release", `{"all":true}`, bearer...))); d != "" {
			o.Errorf("(-want +got):\n%s", d)
		}
		o.operator.administer = func(context.Context, monitor.Command) ([]monitor.CommandResult, error) { return nil, nil }
		if got := results(t, o.post("/v1/admin/release", `{"all":true}`, bearer...)); len(got) != 0 {
			o.Errorf("%+v", got)
		}
	})
}

// What cannot be carried out as it stands is refused whole, by name.
func TestCommandFaults(t *testing.T) {
	many := `"wss://a.example"` + strings.Repeat(`,"wss://a.example"`, 2500)
	for name, tc := range map[string]struct{ path, body, at, says string }{
		"no list":          {"relays", `{}`, "body", "give remove or add or import"},
		"empty import":     {"relays", `{"import":"# nothing\n"}`, "body", "names no relay"},
		"no exclusion":     {"exclude", `{}`, "body", "names no relay"},
		"in two lists":     {"relays", `{"add":["wss://a.example"],"remove":["wss://A.example/"]}`, "body.add[0]", "names a relay that remove names too"},
		"too many in all":  {"relays", `{"add":[` + many + `],"remove":[` + many + `]}`, "body", "at most 5000"},
		"too many lines":   {"relays", `{"import":"` + strings.Repeat(`x\n`, 5001) + `"}`, "body", "at most 5000"},
		"pause of no time": {"pause", oneRelay, "body.until", "is missing"},
		"both ends":        {"pause", `{"relays":["wss://a.example"],"until":"2000-01-02T00:00:00Z","for":"1h"}`, "body.for", "excludes until"},
		"resume until":     {"pause", `{"relays":["wss://a.example"],"until":"2000-01-02T00:00:00Z","resume":true}`, "body.resume", "excludes"},
		"no time":          {"pause", `{"relays":["wss://a.example"],"until":"tomorrow"}`, "body.until", "RFC 3339"},
		"no duration":      {"pause", `{"relays":["wss://a.example"],"for":"soon"}`, "body.for", "no duration"},
		"nothing long":     {"pause", `{"relays":["wss://a.example"],"for":"0s"}`, "body.for", "no duration"},
		"negative":         {"pause", `{"relays":["wss://a.example"],"for":"-1h"}`, "body.for", "no duration"},
		"negative days":    {"pause", `{"relays":["wss://a.example"],"for":"-1d"}`, "body.for", "no duration"},
		"negative rest":    {"pause", `{"relays":["wss://a.example"],"for":"2d-1h"}`, "body.for", "no duration"},
		"too many days":    {"pause", `{"relays":["wss://a.example"],"for":"99999999999999999999d"}`, "body.for", "no duration"},
		"too many hours":   {"pause", `{"relays":["wss://a.example"],"for":"65535d2000000h"}`, "body.for", "no duration"},
		"long past":        {"pause", `{"relays":["wss://a.example"],"until":"1999-12-31T23:59:59Z"}`, "", "must lie in the future"},
		"for ever":         {"pause", `{"relays":["wss://a.example"],"until":"9999-12-31T23:59:59Z"}`, "", "at most"},
		"window of none":   {"maintenance", `{"relays":["wss://a.example"],"from":"2000-01-02T00:00:00Z"}`, "body.until", "is missing"},
		"odd begin":        {"maintenance", `{"relays":["wss://a.example"],"from":"x","for":"1h"}`, "body.from", "RFC 3339"},
		"window reversed":  {"maintenance", `{"relays":["wss://a.example"],"from":"2000-01-02T00:00:00Z","until":"2000-01-01T12:00:00Z"}`, "", "until must be after from"},
		"release of none":  {"release", `{}`, "body", "either relays or all"},
		"release of both":  {"release", `{"relays":["wss://a.example"],"all":true}`, "body", "either relays or all"},
		"release of []":    {"release", `{"relays":[]}`, "body", "either relays or all"},
		"reload of a file": {"reload", `{"config":"/etc/passwd"}`, "body.config", "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			runOperated(t, func(o *operated) {
				o.operator.reload = func(context.Context) (api.Reloaded, error) {
					o.Error("reloaded")
					return api.Reloaded{}, nil
				}
				p := o.problem(o.post("/v1/admin/"+tc.path, tc.body, bearer...), http.StatusUnprocessableEntity)
				switch {
				case tc.at == "": // the domain's word
					if len(p.Errors) > 0 || !strings.Contains(p.Detail, tc.says) {
						o.Errorf("%+v", p)
					}
				case len(p.Errors) != 1 || p.Errors[0].Location != tc.at || !strings.Contains(p.Errors[0].Message, tc.says):
					o.Errorf("%+v", p)
				case len(o.operator.commands()) > 0:
					o.Errorf("carried out: %+v", o.operator.commands())
				}
			})
		})
	}
}

// What the core says of a command it cannot carry out becomes a status, for
// every command; a core that breaks costs one answer.
func TestCommandsThatFail(t *testing.T) {
	for status, err := range map[int]error{
		http.StatusUnprocessableEntity: fmt.Errorf("%w: no such window", monitor.ErrInvalid),
		http.StatusConflict:            fmt.Errorf("%w: another core leads", monitor.ErrConflict),
		http.StatusServiceUnavailable:  fmt.Errorf("commit: %w", monitor.ErrUnavailable),
		http.StatusInternalServerError: errors.New("hunter2"),
	} {
		runOperated(t, func(o *operated) {
			o.operator.administer = func(context.Context, monitor.Command) ([]monitor.CommandResult, error) { return nil, err }
			o.operator.reload = func(context.Context) (api.Reloaded, error) { return api.Reloaded{}, err }
			for path, body := range adminPaths {
				w := o.post("/v1/admin/"+path, body, bearer...)
				o.problem(w, status)
				if strings.Contains(w.Body.String(), "hunter2") {
					o.Errorf("%s tells what broke inside: %s", path, w.Body)
				}
			}
			if strings.Contains(o.log.String(), `msg="operator's command"`) {
				o.Errorf("logged as done: %s", o.log.String())
			}
		})
	}
	runOperated(t, func(o *operated) {
		o.operator.administer = func(context.Context, monitor.Command) ([]monitor.CommandResult, error) { panic("boom") }
		o.problem(o.post("/v1/admin/check", oneRelay, bearer...), http.StatusInternalServerError)
	})
}

// Every command refuses who and what TestStrangersAreRefused and TestBodies try
// at one.
func TestEveryCommandIsGuarded(t *testing.T) {
	runOperated(t, func(o *operated) {
		stranger := o.key
		o.settings.Operators = nil
		o.api.Configure(o.settings)
		for path, body := range adminPaths {
			target := "/v1/admin/" + path
			send := func(status int, body string, headers ...string) {
				o.problem(o.post(target, body, headers...), status)
			}
			slow := post(target, body, bearer...)
			slow.Body = failingBody{timeout{}}
			send(400, "{", bearer...)
			o.problem(o.send(slow), 408)
			send(413, strings.Repeat(" ", 2<<20+1), bearer...)
			send(415, body, append([]string{"Content-Type", "text/plain"}, bearer...)...)
			send(422, `{"x":1}`, bearer...)
			send(401, body)
			send(403, body, o.sign(stranger, "https://pharos.example"+target, body, nil)...)
			elapse(2 * time.Minute)
		}
		if c := o.operator.commands(); len(c) > 0 {
			o.Errorf("carried out: %+v", c)
		}
	})
}

// timeout is the error of a deadline, as a connection has it.
type timeout struct{}

func (timeout) Error() string     { return "i/o timeout" }
func (timeout) Is(err error) bool { return strings.Contains(err.Error(), "i/o timeout") }

// An earlier part of a request that is done does not look undone because a
// later one fails.
func TestCommandsDoneInPart(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.operator.administer = func(_ context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
			if c.Kind == monitor.CommandAdd {
				return nil, monitor.ErrUnavailable
			}
			return []monitor.CommandResult{{Relay: c.Relays[0], Done: true}}, nil
		}
		got := results(t, o.post("/v1/admin/relays", `{"add":["wss://a.example","x"],"remove":["wss://b.example"]}`, bearer...))
		want := []result{
			{"wss://b.example", "wss://b.example/", true, ""},
			{"wss://a.example", "wss://a.example/", false, "the store does not answer now; try again"},
			{"x", "", false, "scheme: it must begin with wss:// or ws://"},
		}
		if d := cmp.Diff(want, got); d != "" {
			o.Errorf("(-want +got):\n%s", d)
		}
	})
}

// A caller who hangs up does not leave a command half done.
func TestCommandsOutliveTheirCaller(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.operator.administer = func(ctx context.Context, c monitor.Command) ([]monitor.CommandResult, error) {
			if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
				o.Errorf("%v, bounded: %v", ctx.Err(), bounded)
			}
			return []monitor.CommandResult{{Relay: c.Relays[0], Done: true}}, nil
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if w := o.send(post("/v1/admin/check", oneRelay, bearer...).WithContext(ctx)); w.Code != http.StatusOK {
			o.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A command's line in the log has who, what and how many, and a few URLs.
func TestCommandsAreLogged(t *testing.T) {
	runOperated(t, func(o *operated) {
		var urls []string
		for i := range 9 {
			urls = append(urls, fmt.Sprintf(`"wss://r%d.example"`, i))
		}
		body := `{"relays":[` + strings.Join(urls, ",") + `],"note":"why"}`
		if w := o.post("/v1/admin/check", body, o.sign(o.key, checkURL, body, nil)...); w.Code != http.StatusOK {
			o.Fatal(w.Body)
		}
		log := o.log.String()
		for _, part := range []string{"level=INFO", "command=check", "actor=" + o.key.Pubkey(), "relays=9", "done=9", "note=why", "wss://r4.example/"} {
			if !strings.Contains(log, part) {
				o.Errorf("no %s in %s", part, log)
			}
		}
		if strings.Contains(log, "r5") || strings.Count(log, "\n") != 1 {
			o.Errorf("%s", log)
		}
	})
}

func TestReload(t *testing.T) {
	runOperated(t, func(o *operated) {
		o.operator.reload = func(context.Context) (api.Reloaded, error) {
			return api.Reloaded{Changed: []string{"probe.interval"}, NeedRestart: []string{"listen"}}, nil
		}
		w := o.post("/v1/admin/reload", "", bearer...)
		if w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"changed":["probe.interval"],"need_restart":["listen"]}` {
			o.Errorf("%d %s", w.Code, w.Body)
		}
		o.operator.reload = nil
		if w := o.post("/v1/admin/reload", "{}", bearer...); strings.TrimSpace(w.Body.String()) != `{"changed":[],"need_restart":[]}` {
			o.Errorf("nothing changed: %s", w.Body)
		}
		if strings.Contains(o.log.String(), "reload") {
			o.Errorf("a reload is the operator's to log: %s", o.log.String())
		}
		problems := []string{"pharos.yaml:3: probe.interval: is no duration", "pharos.yaml:9: relays[2]: private"}
		o.operator.reload = func(context.Context) (api.Reloaded, error) {
			return api.Reloaded{}, fmt.Errorf("reload: %w", &api.ReloadError{Problems: problems})
		}
		p := o.problem(o.post("/v1/admin/reload", "", bearer...), http.StatusUnprocessableEntity)
		if !strings.Contains(p.Detail, "nothing was changed") || len(p.Errors) != 2 || p.Errors[0].Message != problems[0] || p.Errors[1].Message != problems[1] {
			o.Errorf("%+v", p)
		}
		if !errors.Is(&api.ReloadError{}, monitor.ErrInvalid) {
			o.Error("a ReloadError is no ErrInvalid")
		}
	})
}

// The document says of each command how an operator is told.
func TestOperatorsInTheDocument(t *testing.T) {
	runOperated(t, func(o *operated) {
		doc := o.api.OpenAPI()
		for _, name := range []string{"token", "nostr", "owner"} {
			if doc.Components.SecuritySchemes[name] == nil {
				o.Errorf("no security scheme %s", name)
			}
		}
		n := 0
		for path, item := range doc.Paths {
			if !strings.HasPrefix(path, "/v1/admin/") || path == "/v1/admin/vantages" { // which is no command on relays
				continue
			}
			n++
			if item.Post == nil || len(item.Post.Security) != 2 || adminPaths[strings.TrimPrefix(path, "/v1/admin/")] == "" {
				o.Errorf("%s: %+v", path, item.Post)
			}
		}
		if n != len(adminPaths) {
			o.Errorf("%d commands, want %d", n, len(adminPaths))
		}
	})
}
