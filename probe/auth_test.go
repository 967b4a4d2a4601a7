package probe_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// TestAuth holds how a refusal for want of authentication is answered, where
// the vantage may, and that it is not where it may not.
func TestAuth(t *testing.T) {
	t.Parallel()
	members := func(change func(*relaytest.DeepOptions)) relaytest.DeepOptions {
		o := relaytest.DeepOptions{Notes: daily(), AuthTo: []string{"REQ", "COUNT", "EVENT"}, Greet: true}
		if change != nil {
			change(&o)
		}
		return o
	}
	replies := func(label string, texts ...string) relaytest.DeepOptions {
		return members(func(o *relaytest.DeepOptions) { o.Replies = map[string][]string{label: texts} })
	}
	key := newKey(t)
	for name, tt := range map[string]struct {
		o        relaytest.DeepOptions
		want     string
		evidence string
		received string // where it may authenticate
	}{
		"taken":                {members(nil), "ok/read/-", "answered the subscription", "REQ AUTH REQ CLOSE"},
		"taken, TLS":           {members(func(o *relaytest.DeepOptions) { o.TLS = true }), "ok/read/-", "answered", "REQ AUTH REQ CLOSE"},
		"challenged on demand": {members(func(o *relaytest.DeepOptions) { o.Greet = false }), "ok/read/-", "answered", "REQ AUTH REQ CLOSE"},
		"challenged after it":  {members(func(o *relaytest.DeepOptions) { o.Greet, o.Late = false, true }), "ok/read/-", "answered", "REQ AUTH REQ CLOSE"},
		"never challenged": {
			members(func(o *relaytest.DeepOptions) { o.Greet, o.NoChallenge = false, true }),
			"refused/read/auth_required", "sent no challenge", "REQ",
		},
		"refused": {replies("AUTH", `["OK","$ID",false,"restricted: who are you?"]`), "refused/read/restricted", "refused our authentication: “restricted: who are you?”", "REQ AUTH"},
		"refused without a word": {
			replies("AUTH", `["OK","$ID",false]`), "refused/read/auth_required", "refused our authentication", "REQ AUTH",
		},
		"mute":          {replies("AUTH"), "refused/read/auth_required", "did not answer ours", "REQ AUTH"},
		"closes":        {replies("AUTH", relaytest.CloseConnection), "refused/read/auth_required", "did not answer ours", "REQ AUTH"},
		"garbage":       {replies("AUTH", "<html>"), "refused/read/auth_required", "did not answer ours", "REQ AUTH"},
		"an echo of it": {replies("AUTH", "$MESSAGE"), "refused/read/auth_required", "did not answer ours", "REQ AUTH"},
		"OK of another": {replies("AUTH", `["OK","x",true,""]`), "refused/read/auth_required", "did not answer ours", "REQ AUTH"},
		"expelled": {
			members(func(o *relaytest.DeepOptions) { o.Expelled = "restricted: not a member" }),
			"refused/read/restricted", "took our authentication and closed the subscription all the same", "REQ AUTH REQ",
		},
		"asks again": {
			members(func(o *relaytest.DeepOptions) { o.Expelled = "auth-required: again" }),
			"refused/read/auth_required", "all the same: “auth-required: again”", "REQ AUTH REQ",
		},
		"an empty challenge": {
			relaytest.DeepOptions{Replies: map[string][]string{"REQ": {`["AUTH",""]`, `["AUTH"]`, `["AUTH",7]`, `["CLOSED","$ID","auth-required: x"]`}}},
			"refused/read/auth_required", "sent no challenge", "REQ",
		},
		"a huge challenge": {
			relaytest.DeepOptions{Replies: map[string][]string{"REQ": {`["AUTH","` + strings.Repeat("x", 70_000) + `"]`, `["CLOSED","$ID","auth-required: x"]`}}},
			"refused/read/auth_required", "sent no challenge", "REQ",
		},
		"only greets": {relaytest.DeepOptions{Greet: true}, "ok/read/-", "answered", "REQ CLOSE"},
		"refuses for another reason": {
			relaytest.DeepOptions{Greet: true, Replies: map[string][]string{"REQ": {`["CLOSED","$ID","restricted: x"]`}}},
			"refused/read/restricted", "closed the subscription", "REQ",
		},
		"refuses after an event": {
			relaytest.DeepOptions{Greet: true, Replies: map[string][]string{"REQ": {`["EVENT","$ID",{}]`, `["CLOSED","$ID","auth-required: x"]`}}},
			"ok/read/-", "never said", "REQ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			deeply(t, tt.o, probe.Config{Key: key, Auth: true}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
				o := c.Check(t.Context(), probe.Request{Relay: relay.URL()})
				if got := class(o); got != tt.want || !strings.Contains(o.Evidence, tt.evidence) {
					t.Errorf("got %s (%s), want %s (%s)", got, o.Evidence, tt.want, tt.evidence)
				}
				checkObservation(t, o)
				if got := labels(relay.Received()); got != tt.received {
					t.Errorf("the relay got %s, want %s", got, tt.received)
				}
				if o.RTTRead != time.Millisecond && !tt.o.TLS {
					t.Errorf("rtt read is %s, that of the first reply is none", o.RTTRead)
				}
				if o.Times[monitor.StageRead] > probe.DefaultTimeouts().Read {
					t.Errorf("the read took %s", o.Times[monitor.StageRead])
				}
				if f := relay.Faults(); len(f) > 0 {
					t.Errorf("the probe was at fault: %q", f)
				}
			})
			// Whatever happens, nothing is said of us where that is not wanted.
			for what, cfg := range map[string]probe.Config{"no leave": {Key: key}, "no key": {Auth: true}} {
				deeply(t, tt.o, cfg, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
					o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Write: true, Capabilities: true, Document: &monitor.Info{}})
					got := labels(relay.Received())
					if strings.Contains(got, "AUTH") {
						t.Errorf("%s: the relay got %s", what, got)
					}
					if o.Cause == monitor.CauseAuthRequired && (got != "REQ" || o.Capabilities != nil || o.Write != nil) {
						t.Errorf("%s: after the refusal the relay got %s", what, got)
					}
				})
			}
		})
	}
}

// TestAuthTrace holds that a transcript tells of authentication and writing,
// but never a signature, not even where the relay says it.
func TestAuthTrace(t *testing.T) {
	t.Parallel()
	relay := relaytest.StartDeep(t, relaytest.DeepOptions{
		Notes: daily(), AuthTo: []string{"REQ"}, Greet: true, Replies: map[string][]string{"EVENT": {`$MESSAGE`, `["NOTICE","$SIG"]`, `["OK","$ID",false,"pow: 28 bits"]`}},
	})
	l := &transcript{t: t}
	key := newKey(t)
	o := newChecker(t, probe.Config{Key: key, Auth: true}).Check(t.Context(), probe.Request{
		Relay: relay.URL(), Write: true, Capabilities: true, Document: &monitor.Info{}, Trace: l.trace,
	})
	if o.Write == nil || o.Write.Result != monitor.WriteRefused || o.Capabilities == nil || o.Capabilities.Auth != monitor.FindingConfirmed {
		t.Fatalf("%s: %+v, %+v", class(o), o.Write, o.Capabilities)
	}
	for _, pattern := range []string{
		`^read - authenticate as ` + key.Npub() + `$`, `^read > text, \d+ bytes: \["AUTH",`, `^read - ask for an event that does not exist$`,
		`^read > text, \d+ bytes: \["COUNT","`, `^read > text, \d+ bytes: \["NEG-OPEN","`,
		`^read - auth confirmed, COUNT confirmed, search confirmed, negentropy confirmed, EOSE confirmed, filters confirmed, limit confirmed, until confirmed, sample "[0-9a-f]{32}"$`,
		`^write > text, \d+ bytes: \["EVENT",`, `^write < text, \d+ bytes: \["OK","`, `^write - the event was refused: “pow: 28 bits”$`,
		`^read > close 1000$`,
	} {
		if !l.has(pattern) {
			t.Errorf("nothing matches %s in\n%s", pattern, strings.Join(l.lines, "\n"))
		}
	}
	sig := regexp.MustCompile(`"sig":"([0-9a-f]{128})"`)
	n := 0
	for _, m := range relay.Received() {
		if s := sig.FindStringSubmatch(m); s != nil {
			n++
			if strings.Contains(strings.Join(l.lines, "\n"), s[1]) {
				t.Error("a signature is told")
			}
		}
	}
	if n != 2 {
		t.Errorf("%d signed messages, want 2", n)
	}

	// Nor where authentication fails.
	spy := relaytest.StartDeep(t, relaytest.DeepOptions{Replies: map[string][]string{
		"REQ": {`["AUTH","x"]`, `["CLOSED","$ID","auth-required: x"]`}, "AUTH": {`["NOTICE","$SIG"]`},
	}})
	l = &transcript{t: t}
	newChecker(t, probe.Config{Key: key, Auth: true}).Check(t.Context(), probe.Request{Relay: spy.URL(), Trace: l.trace})
	if !l.has(`^read > text, \d+ bytes: \["AUTH",`) || l.has(`[0-9a-f]{128}`) {
		t.Errorf("the transcript:\n%s", strings.Join(l.lines, "\n"))
	}
}
