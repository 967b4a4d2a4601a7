package probe_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// began is when the notes of tests are made that run in bubbles.
var began = time.Now()

// daily are notes of more than a day: what is asked about until has an answer.
func daily() []relaytest.Note { return relaytest.Notes(60, began, time.Hour) }

// deeply runs f with a Deep relay and a checker of it: in a bubble where no time
// passes but that which somebody waits for, at noon; over TLS on loopback.
func deeply(t *testing.T, o relaytest.DeepOptions, cfg probe.Config, f func(t *testing.T, relay *relaytest.Deep, c *probe.Checker)) {
	t.Helper()
	if o.TLS {
		f(t, relaytest.StartDeep(t, o), newChecker(t, cfg))
		return
	}
	synctest.Test(t, func(t *testing.T) {
		elapse(12 * time.Hour)
		shift := int64(time.Since(began) / time.Second)
		o.URL = piped
		o.Notes = slices.Clone(o.Notes)
		for i := range o.Notes {
			o.Notes[i].CreatedAt += shift
		}
		relay := relaytest.NewDeep(o)
		p := pipedConfig(func(p *peer) { relay.Serve(p.Conn) })
		p.Key, p.Auth, p.Timeouts = cfg.Key, cfg.Auth, cfg.Timeouts
		c, err := probe.New(p)
		if err != nil {
			t.Fatal(err)
		}
		f(t, relay, c)
	})
}

// TestCapabilities holds what each way to be right or wrong comes to.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	const u, c, d = monitor.FindingUnknown, monitor.FindingConfirmed, monitor.FindingDisproved
	right := monitor.Capabilities{Count: c, Search: c, Negentropy: c, EOSE: c, Filters: c, Limit: c, Until: c}
	but := func(change func(*monitor.Capabilities)) monitor.Capabilities {
		f := right
		change(&f)
		return f
	}
	replies := func(label string, texts ...string) relaytest.DeepOptions {
		return relaytest.DeepOptions{Notes: daily(), Replies: map[string][]string{label: texts}}
	}
	silent := func(labels ...string) relaytest.DeepOptions {
		o := relaytest.DeepOptions{Notes: daily(), Replies: map[string][]string{}}
		for _, l := range labels {
			o.Replies[l] = []string{}
		}
		return o
	}
	for name, tt := range map[string]struct {
		o      relaytest.DeepOptions
		want   monitor.Capabilities
		sample bool
		asked  string // the labels of what came, in order
	}{
		"right in everything": {
			o: relaytest.DeepOptions{Notes: daily()}, want: right, sample: true,
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT NEG-OPEN NEG-CLOSE REQ CLOSE",
		},
		"right in everything, TLS": {o: relaytest.DeepOptions{Notes: daily(), TLS: true}, want: right, sample: true},
		"empty": { // it is no fake, and what needs events stays unknown
			want: monitor.Capabilities{Count: c, Negentropy: c, EOSE: c},
		},
		"greets with AUTH": {
			o: relaytest.DeepOptions{Notes: daily(), Greet: true}, sample: true,
			want: but(func(f *monitor.Capabilities) { f.Auth = c }),
		},
		"nothing older than today": {
			o:     relaytest.DeepOptions{Notes: relaytest.Notes(5, began, time.Second)},
			want:  but(func(f *monitor.Capabilities) { f.Until = u }),
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT NEG-OPEN NEG-CLOSE REQ CLOSE REQ CLOSE",
		},
		"ignores limit": {
			// The read's REQ has a limit too.
			o: relaytest.DeepOptions{Notes: daily(), IgnoreLimit: true}, want: but(func(f *monitor.Capabilities) { f.Limit, f.Until = d, u }),
		},
		"ignores the first limit": {
			o: replies("REQ", `["EVENT","$ID",{}]`, `["EVENT","$ID",{}]`, `["EOSE","$ID"]`), want: but(func(f *monitor.Capabilities) { f.Limit = d }), sample: true,
		},
		"ignores until": {
			o: relaytest.DeepOptions{Notes: daily(), IgnoreUntil: true}, want: but(func(f *monitor.Capabilities) { f.Until = d }),
		},
		"ignores search": {
			o: relaytest.DeepOptions{Notes: daily(), IgnoreSearch: true}, want: but(func(f *monitor.Capabilities) { f.Search = d }), sample: true,
		},
		"finds the word itself": {
			o: replies("REQ search", `["EVENT","$ID",$MESSAGE]`, `["EOSE","$ID"]`), want: but(func(f *monitor.Capabilities) { f.Search = u }), sample: true,
		},
		"refuses search": {
			o: replies("REQ search", `["CLOSED","$ID","unsupported: no search here"]`), want: but(func(f *monitor.Capabilities) { f.Search = d }), sample: true,
		},
		"knows no search": {
			o: replies("REQ search", `["NOTICE","ERROR: bad req: unrecognised filter item"]`), want: but(func(f *monitor.Capabilities) { f.Search = d }), sample: true,
		},
		"sells search": {
			o: replies("REQ search", `["CLOSED","$ID","restricted: search is for members"]`), want: but(func(f *monitor.Capabilities) { f.Search = u }), sample: true,
		},
		"COUNT is unsupported": {
			o: replies("COUNT", `["CLOSED","$ID","unsupported: COUNT"]`), want: but(func(f *monitor.Capabilities) { f.Count = d }), sample: true,
		},
		"COUNT is an unknown command": {
			o: replies("COUNT", `["NOTICE","welcome"]`, `["NOTICE","ERROR: bad msg: unknown cmd"]`), want: but(func(f *monitor.Capabilities) { f.Count = d }), sample: true,
		},
		"COUNT is taken for a REQ": {
			o: replies("COUNT", `["EOSE","$ID"]`), want: but(func(f *monitor.Capabilities) { f.Count = d }), sample: true,
		},
		"COUNT is for members": {
			o: replies("COUNT", `["CLOSED","$ID","restricted: unknown member"]`), want: but(func(f *monitor.Capabilities) { f.Count = u }), sample: true,
		},
		"COUNT fails": {
			o: replies("COUNT", `["CLOSED","$ID","error: the database is busy"]`), want: but(func(f *monitor.Capabilities) { f.Count = u }), sample: true,
		},
		"COUNT without a number": {
			o: replies("COUNT", `["COUNT","$ID",{"count":"many"}]`, `["COUNT","$ID",{"approximate":true}]`, `["COUNT","$ID"]`, `["COUNT","other",{"count":1}]`), want: but(func(f *monitor.Capabilities) { f.Count = d }), sample: true,
		},
		"approximate COUNT": {
			o: replies("COUNT", `["COUNT","$ID",{"count":93412452,"approximate":true}]`), want: right, sample: true,
		},
		"passes over COUNT": {
			o: silent("COUNT"), want: but(func(f *monitor.Capabilities) { f.Count = d }), sample: true,
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT NEG-OPEN NEG-CLOSE REQ CLOSE REQ CLOSE",
		},
		"passes over both": {
			o: silent("COUNT", "NEG-OPEN"), want: but(func(f *monitor.Capabilities) { f.Count, f.Negentropy = d, d }), sample: true,
		},
		"falls silent": { // it proves nothing that it never answers again
			o: silent("COUNT", "NEG-OPEN", "REQ search", "REQ limit"), want: but(func(f *monitor.Capabilities) { f.Count, f.Negentropy, f.Search = u, u, u }), sample: true,
		},
		"wants authentication at COUNT": { // nothing more is asked
			o: replies("COUNT", `["CLOSED","$ID","auth-required: members only"]`), sample: true,
			want:  but(func(f *monitor.Capabilities) { f.Count, f.Negentropy, f.Search = u, u, u }),
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT",
		},
		"wants fewer requests": {
			o: replies("COUNT", `["NOTICE","too many requests"]`), sample: true,
			want:  but(func(f *monitor.Capabilities) { f.Count, f.Negentropy, f.Search = u, u, u }),
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT",
		},
		"ends negentropy": {
			o: replies("NEG-OPEN", `["NEG-ERR","$ID","blocked: this query is too big"]`), want: right, sample: true,
		},
		"has no negentropy": {
			o: replies("NEG-OPEN", `["NEG-ERR","$ID","error: negentropy disabled"]`), want: but(func(f *monitor.Capabilities) { f.Negentropy = d }), sample: true,
		},
		"negentropy is an unknown command": {
			o: replies("NEG-OPEN", `["NOTICE","ERROR: bad msg: negentropy disabled"]`), want: but(func(f *monitor.Capabilities) { f.Negentropy = d }), sample: true,
		},
		"NEG-MSG of nothing": {
			o: replies("NEG-OPEN", `["NEG-MSG","$ID","xyz"]`, `["NEG-MSG","$ID",""]`, `["CLOSED","$ID","invalid: x"]`), want: but(func(f *monitor.Capabilities) { f.Negentropy = d }), sample: true,
		},
		"no EOSE": {
			o: relaytest.DeepOptions{Notes: daily(), NoEOSE: true}, want: monitor.Capabilities{Count: c, Negentropy: c, EOSE: d},
		},
		"closes at COUNT": {
			o: replies("COUNT", relaytest.CloseConnection), sample: true,
			want:  but(func(f *monitor.Capabilities) { f.Count, f.Negentropy, f.Search = u, u, u }),
			asked: "REQ CLOSE REQ CLOSE REQ CLOSE COUNT",
		},
		"garbage at COUNT": {
			o: replies("COUNT", "<html>"), sample: true,
			want: but(func(f *monitor.Capabilities) { f.Count, f.Negentropy, f.Search = u, u, u }),
		},
		"unreadable events": {
			o:    replies("REQ until", `["EVENT","$ID",{"id":"x","created_at":1}]`, `["EVENT","$ID"]`, `["EOSE","$ID"]`),
			want: but(func(f *monitor.Capabilities) { f.Until = u }),
		},
		"a time that is none": {
			o:    replies("REQ until", `["EVENT","$ID",{"id":"`+strings.Repeat("0", 64)+`","created_at":"1"}]`, `["EOSE","$ID"]`),
			want: but(func(f *monitor.Capabilities) { f.Until = u }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			deeply(t, tt.o, probe.Config{}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
				l := &transcript{t: t}
				o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Capabilities: true, Trace: l.trace})
				if got := class(o); got != "ok/read/-" || o.NoEOSE != tt.o.NoEOSE {
					t.Errorf("got %s (%s), no EOSE %t", got, o.Evidence, o.NoEOSE)
				}
				checkObservation(t, o)
				if o.Capabilities == nil {
					t.Fatal("there are no capabilities")
				}
				got := *o.Capabilities
				if tt.sample != (got.Sample != "") {
					t.Errorf("the sample is %q", got.Sample)
				}
				got.Sample = ""
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("capabilities (-want +got):\n%s", diff)
				}
				if f := relay.Faults(); len(f) > 0 {
					t.Errorf("the probe was at fault: %q", f)
				}
				if asked := labels(relay.Received()); tt.asked != "" && asked != tt.asked {
					t.Errorf("asked %s, want %s", asked, tt.asked)
				}
				if o.Write != nil || o.RTTWrite != 0 || o.Times[monitor.StageWrite] != 0 {
					t.Errorf("a write nobody asked for: %+v", o.Write)
				}
				if t.Failed() {
					t.Log(strings.Join(l.lines, "\n"))
				}
			})
		})
	}
}

// labels are the first words of messages.
func labels(messages []string) string {
	var out []string
	for _, m := range messages {
		out = append(out, strings.Split(m, `"`)[1])
	}
	return strings.Join(out, " ")
}

// TestSample holds what the fingerprint is made of: the time, and the ids in
// order; so that it tells relays apart, and is the same for the same.
func TestSample(t *testing.T) {
	t.Parallel()
	of := func(change func([]relaytest.Note) []relaytest.Note) (got, want string) {
		notes := change(daily())
		deeply(t, relaytest.DeepOptions{Notes: notes}, probe.Config{}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
			o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Capabilities: true})
			if o.Capabilities == nil {
				t.Fatalf("%s: %s", class(o), o.Evidence)
			}
			got = o.Capabilities.Sample
			midnight := time.Now().UTC().Truncate(24 * time.Hour)
			h := sha256.New()
			var at [8]byte
			binary.BigEndian.PutUint64(at[:], uint64(midnight.Unix()))
			h.Write(at[:])
			shift, n := int64(time.Since(began)/time.Second), 0
			for _, note := range notes {
				if note.CreatedAt+shift <= midnight.Unix() && n < 3 {
					id, _ := hex.DecodeString(note.ID)
					h.Write(id)
					n++
				}
			}
			want = hex.EncodeToString(h.Sum(nil)[:16])
		})
		return got, want
	}
	first, want := of(func(n []relaytest.Note) []relaytest.Note { return n })
	if first != want {
		t.Errorf("the sample is %s, want %s", first, want)
	}
	// What came today changes nothing, an event of yesterday does.
	if got, _ := of(func(n []relaytest.Note) []relaytest.Note {
		return append([]relaytest.Note{{ID: strings.Repeat("f", 64), Kind: 1, CreatedAt: began.Unix()}}, n...)
	}); got != first {
		t.Errorf("with one more of today the sample is %s, want %s", got, first)
	}
	if got, want := of(func(n []relaytest.Note) []relaytest.Note { return n[14:] }); got != want || got == first || got == "" {
		t.Errorf("without one of yesterday the sample is %s, want %s", got, want)
	}
}

// TestFakes holds that what answers anything alike is told, that nothing else is
// asked of it, and that a relay is no fake.
func TestFakes(t *testing.T) {
	t.Parallel()
	const canned = `["EVENT","$ID",` + relaytest.Event + `]`
	always := func(texts ...string) relaytest.DeepOptions {
		o := relaytest.DeepOptions{Replies: map[string][]string{}}
		for _, shape := range []string{"REQ", "REQ ids", "REQ until", "REQ search", "REQ limit", "COUNT", "NEG-OPEN", "EVENT"} {
			o.Replies[shape] = texts
		}
		return o
	}
	toIDs := func(texts ...string) relaytest.DeepOptions {
		return relaytest.DeepOptions{Notes: daily(), Replies: map[string][]string{"REQ ids": texts}}
	}
	const unknown, confirmed, disproved = monitor.FindingUnknown, monitor.FindingConfirmed, monitor.FindingDisproved
	for name, tt := range map[string]struct {
		o        relaytest.DeepOptions
		want     string
		evidence string
		filters  monitor.Finding
	}{
		"a relay":                   {relaytest.DeepOptions{Notes: daily()}, "ok/read/-", "answered the subscription", confirmed},
		"an empty relay":            {relaytest.DeepOptions{}, "ok/read/-", "answered the subscription", unknown},
		"ignores ids":               {relaytest.DeepOptions{Notes: daily(), IgnoreIDs: true}, "ok/read/-", "answered the subscription", disproved},
		"one event to any REQ":      {always(canned, `["EOSE","$ID"]`), "ok/read/-", "answered the subscription", disproved},
		"the same without EOSE":     {always(canned), "ok/read/-", "never said", disproved},
		"refuses ids":               {toIDs(`["CLOSED","$ID","blocked: no ids"]`), "ok/read/-", "answered the subscription", unknown},
		"notices ids":               {toIDs(`["NOTICE","ERROR: bad req"]`), "ok/read/-", "answered the subscription", unknown},
		"wants auth for ids":        {toIDs(`["AUTH","x"]`, `["CLOSED","$ID","auth-required: x"]`), "ok/read/-", "answered the subscription", unknown},
		"events of another REQ":     {toIDs(`["EVENT","other",`+relaytest.Event+`]`, `["EOSE","$ID"]`), "ok/read/-", "answered the subscription", confirmed},
		"closes at ids":             {toIDs(relaytest.CloseConnection), "ok/read/-", "answered the subscription", unknown},
		"garbage at ids":            {toIDs("<html>"), "ok/read/-", "answered the subscription", unknown},
		"silent at ids":             {toIDs(), "ok/read/-", "answered the subscription", unknown},
		"an echo":                   {always(`$MESSAGE`), "failed/read/not_nostr", "it is an echo, not a relay", unknown},
		"a subscription of its own": {always(`["EVENT","sub1",`+relaytest.Event+`]`, `["EOSE","sub1"]`), "failed/read/silent", "answered another subscription than ours", unknown},
	} {
		t.Run(name, func(t *testing.T) {
			deeply(t, tt.o, probe.Config{}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
				o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Capabilities: true})
				if got := class(o); got != tt.want || !strings.Contains(o.Evidence, tt.evidence) {
					t.Errorf("got %s (%s), want %s (%s)", got, o.Evidence, tt.want, tt.evidence)
				}
				checkObservation(t, o)
				if o.Outcome == monitor.OutcomeFailed {
					if o.Capabilities != nil {
						t.Errorf("what failed has the capabilities %+v", o.Capabilities)
					}
					return
				}
				if o.Capabilities == nil || o.Capabilities.Filters != tt.filters {
					t.Fatalf("capabilities are %+v, want filters %s", o.Capabilities, tt.filters)
				}
				if tt.filters != disproved {
					return
				}
				if n := strings.Count(labels(relay.Received()), "REQ"); n != 3 {
					t.Errorf("%d REQs, want that of the read and two", n)
				}
				rest := *o.Capabilities
				if rest.EOSE, rest.Filters = unknown, unknown; rest != (monitor.Capabilities{}) {
					t.Errorf("its answers count: %+v", rest)
				}
			})
		})
	}
}

// TestNothingMore holds that a plain probe asks what it always did, with a key
// and the leave to use it too.
func TestNothingMore(t *testing.T) {
	t.Parallel()
	deeply(t, relaytest.DeepOptions{Notes: daily(), Greet: true}, probe.Config{Key: newKey(t), Auth: true}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
		o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Info: true, LastOutcome: monitor.OutcomeOK})
		if got := class(o); got != "ok/read/-" || !o.AuthSeen || o.Capabilities != nil || o.Write != nil {
			t.Errorf("got %s (%s), AUTH seen %t, %+v, %+v", got, o.Evidence, o.AuthSeen, o.Capabilities, o.Write)
		}
		if asked := labels(relay.Received()); asked != "REQ CLOSE" {
			t.Errorf("asked %s", asked)
		}
	})
}
