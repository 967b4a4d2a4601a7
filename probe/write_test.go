package probe_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func newKey(t *testing.T) nostr.Key {
	t.Helper()
	k, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestWrite holds what the write test comes to, and that it changes nothing
// else.
func TestWrite(t *testing.T) {
	t.Parallel()
	replies := func(texts ...string) relaytest.DeepOptions {
		return relaytest.DeepOptions{Notes: daily(), Replies: map[string][]string{"EVENT": texts}}
	}
	long := strings.Repeat("é", 300)
	key := newKey(t)
	for name, tt := range map[string]struct {
		o        relaytest.DeepOptions
		auth     bool
		want     *monitor.WriteFacts
		unheard  bool   // no OK came
		received string // EVENT and AUTH, in order
	}{
		"accepted":             {o: relaytest.DeepOptions{Notes: daily()}, want: &monitor.WriteFacts{Result: monitor.WriteAccepted}, received: "EVENT"},
		"accepted, TLS":        {o: relaytest.DeepOptions{TLS: true}, want: &monitor.WriteFacts{Result: monitor.WriteAccepted}, received: "EVENT"},
		"nobody listens":       {o: replies(`["OK","$ID",false,"mute: no one was listening for this"]`), want: &monitor.WriteFacts{Result: monitor.WriteAccepted, Reason: "mute: no one was listening for this"}, received: "EVENT"},
		"refused":              {o: replies(`["OK","$ID",false,"blocked: you are\nbanned"]`), want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "blocked: you are banned"}, received: "EVENT"},
		"refused at length":    {o: replies(`["OK","$ID",false,"` + long + `"]`), want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: strings.Repeat("é", 98) + "…"}, received: "EVENT"},
		"the first OK counts":  {o: replies(`["OK","$ID",true]`, `["OK","$ID",false,"error: x"]`), want: &monitor.WriteFacts{Result: monitor.WriteAccepted}, received: "EVENT"},
		"silence":              {o: replies(), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"OK of another":        {o: replies(`["OK","` + strings.Repeat("0", 64) + `",true,""]`), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"OK without a bool":    {o: replies(`["OK","$ID","true",""]`, `["OK","$ID",null,""]`, `["OK","$ID"]`, `["OK"]`), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"closes":               {o: replies(relaytest.CloseConnection), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"garbage":              {o: replies("<html>"), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"a notice":             {o: replies(`["NOTICE","thanks"]`), want: &monitor.WriteFacts{Result: monitor.WriteUnknown}, unheard: true, received: "EVENT"},
		"needs authentication": {o: relaytest.DeepOptions{AuthTo: []string{"EVENT"}, Greet: true}, want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "auth-required: members only"}, received: "EVENT"},
		"authenticates":        {o: relaytest.DeepOptions{AuthTo: []string{"EVENT"}, Greet: true}, auth: true, want: &monitor.WriteFacts{Result: monitor.WriteAccepted}, received: "EVENT AUTH EVENT"},
		"challenged late":      {o: relaytest.DeepOptions{AuthTo: []string{"EVENT"}, Late: true}, auth: true, want: &monitor.WriteFacts{Result: monitor.WriteAccepted}, received: "EVENT AUTH EVENT"},
		"not challenged":       {o: relaytest.DeepOptions{AuthTo: []string{"EVENT"}, NoChallenge: true}, auth: true, want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "auth-required: members only"}, received: "EVENT"},
		"refused all the same": {
			o: relaytest.DeepOptions{Greet: true, Replies: map[string][]string{"EVENT": {`["OK","$ID",false,"auth-required: again"]`}}}, auth: true,
			want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "auth-required: again"}, received: "EVENT AUTH EVENT",
		},
		"authenticated to read": { // and never a second time
			o: relaytest.DeepOptions{AuthTo: []string{"REQ"}, Greet: true, Replies: map[string][]string{"EVENT": {`["OK","$ID",false,"auth-required: again"]`}}}, auth: true,
			want: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "auth-required: again"}, received: "AUTH EVENT",
		},
		"REQ needs authentication": {o: relaytest.DeepOptions{AuthTo: []string{"REQ"}, Greet: true}},
		"REQ is rate-limited":      {o: relaytest.DeepOptions{Replies: map[string][]string{"REQ": {`["CLOSED","$ID","rate-limited: x"]`}}}},
	} {
		for _, capabilities := range []bool{false, true} {
			suffix := ""
			if capabilities {
				suffix = ", after capabilities"
			}
			t.Run(name+suffix, func(t *testing.T) {
				deeply(t, tt.o, probe.Config{Key: key, Auth: tt.auth}, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
					req := probe.Request{Relay: relay.URL(), Info: true, LastOutcome: monitor.OutcomeOK}
					plain := c.Check(t.Context(), req)
					before := len(relay.Received())
					req.Write, req.Capabilities = true, capabilities
					o := c.Check(t.Context(), req)
					if class(o) != class(plain) || o.Evidence != plain.Evidence {
						t.Errorf("got %s (%s), without the test %s (%s)", class(o), o.Evidence, class(plain), plain.Evidence)
					}
					checkObservation(t, o)
					if diff := cmp.Diff(tt.want, o.Write); diff != "" {
						t.Errorf("write (-want +got):\n%s", diff)
					}
					if o.Write != nil && (len(o.Write.Reason) > 200 || !utf8.ValidString(o.Write.Reason)) {
						t.Errorf("the reason has %d bytes", len(o.Write.Reason))
					}
					if heard := o.Write != nil && !tt.unheard; heard != (o.RTTWrite >= time.Millisecond) || o.RTTWrite%time.Millisecond != 0 {
						t.Errorf("rtt write is %s", o.RTTWrite)
					}
					if (o.Write != nil) != (o.Times[monitor.StageWrite] > 0) {
						t.Errorf("the write took %s", o.Times[monitor.StageWrite])
					}
					if got := own(relay.Received()[before:]); got != tt.received {
						t.Errorf("the relay got %s, want %s", got, tt.received)
					}
					if f := relay.Faults(); len(f) > 0 {
						t.Errorf("the probe was at fault: %q", f)
					}
					for _, m := range relay.Received()[before:] {
						if strings.HasPrefix(m, `["EVENT"`) && (!strings.Contains(m, `"kind":20166`) || !strings.Contains(m, key.Pubkey())) {
							t.Errorf("the event is %s", m)
						}
					}
				})
			})
		}
	}
}

// own are the labels of what is signed.
func own(messages []string) string {
	var out []string
	for _, l := range strings.Fields(labels(messages)) {
		if l == "EVENT" || l == "AUTH" {
			out = append(out, l)
		}
	}
	return strings.Join(out, " ")
}

// TestWriteAllowed holds that nothing is written where NIP-11 speaks against
// it, or is not known.
func TestWriteAllowed(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	paid := strings.Replace(relaytest.InfoDocument, `"payment_required":false`, `"payment_required":true`, 1)
	closed := strings.Replace(relaytest.InfoDocument, `"restricted_writes":false`, `"restricted_writes":true`, 1)
	for name, tt := range map[string]struct {
		info     string // of the relay
		ask      bool   // for NIP-11, first
		last     monitor.Outcome
		document *monitor.Info
		noKey    bool
		want     bool
	}{
		"open":                      {ask: true, last: monitor.OutcomeOK, want: true},
		"payment":                   {info: paid, ask: true, last: monitor.OutcomeOK},
		"payment since":             {info: paid, ask: true, last: monitor.OutcomeOK, document: &monitor.Info{PaymentRequired: &no}},
		"payment no more":           {ask: true, last: monitor.OutcomeOK, document: &monitor.Info{PaymentRequired: &yes}, want: true},
		"restricted":                {info: closed, ask: true, last: monitor.OutcomeOK},
		"none":                      {info: relaytest.NoInfoDocument, ask: true, last: monitor.OutcomeOK, want: true},
		"broken":                    {info: `{"limitation":`, ask: true, last: monitor.OutcomeOK, want: true},
		"not known":                 {},
		"asked for too late":        {ask: true},
		"known":                     {document: &monitor.Info{PaymentRequired: &no}, want: true},
		"known, nothing said":       {document: &monitor.Info{}, want: true},
		"known, payment":            {document: &monitor.Info{PaymentRequired: &yes}},
		"known, restricted":         {document: &monitor.Info{RestrictedWrites: &yes}},
		"known to have none":        {document: &monitor.Info{Problem: "http_404"}, want: true},
		"known to have timed out":   {document: &monitor.Info{Problem: "timeout"}},
		"known to be too large":     {document: &monitor.Info{Problem: "oversized"}},
		"known to be for payment":   {document: &monitor.Info{Problem: "payment"}},
		"no key":                    {ask: true, last: monitor.OutcomeOK, noKey: true},
		"known, asked for too late": {ask: true, document: &monitor.Info{}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := probe.Config{}
			if !tt.noKey {
				cfg.Key = newKey(t)
			}
			deeply(t, relaytest.DeepOptions{Info: tt.info}, cfg, func(t *testing.T, relay *relaytest.Deep, c *probe.Checker) {
				o := c.Check(t.Context(), probe.Request{
					Relay: relay.URL(), Info: tt.ask, LastOutcome: tt.last, Document: tt.document, Write: true,
				})
				if got := class(o); got != "ok/read/-" {
					t.Errorf("got %s (%s)", got, o.Evidence)
				}
				if wrote := strings.Contains(labels(relay.Received()), "EVENT"); wrote != tt.want || (o.Write != nil) != tt.want {
					t.Errorf("the relay got %s, the test says %+v", labels(relay.Received()), o.Write)
				}
				if tt.ask && (o.Info == nil || tt.info == "" && o.Info.Problem != "") {
					t.Errorf("NIP-11 is %+v", o.Info)
				}
			})
		})
	}
}

// TestWriteBehaviours holds what farm-behaviours.tsv says of the write test.
func TestWriteBehaviours(t *testing.T) {
	t.Parallel()
	c := newChecker(t, probe.Config{Key: newKey(t)})
	for b, want := range map[relaytest.Behaviour]*monitor.WriteFacts{
		relaytest.Healthy:      {Result: monitor.WriteAccepted},
		relaytest.WriteBlocked: {Result: monitor.WriteRefused, Reason: "blocked: you are banned"},
		relaytest.PaymentInfo:  nil,
		relaytest.AuthRequired: nil,
		relaytest.Flood:        nil,
	} {
		relay := relaytest.Start(t, relaytest.Options{Behaviour: b})
		o := c.Check(t.Context(), probe.Request{Relay: relay.URL(), Info: true, LastOutcome: monitor.OutcomeOK, Write: true})
		if diff := cmp.Diff(want, o.Write); diff != "" {
			t.Errorf("behaviour %d, %s (-want +got):\n%s", b, class(o), diff)
		}
	}
}
