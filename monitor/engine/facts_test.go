package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/monitor"
)

func certificate(issuer string) *monitor.TLSFacts {
	return &monitor.TLSFacts{Version: "1.3", Issuer: issuer, Names: []string{"a"}, NotAfter: time.Now().Truncate(24*time.Hour).AddDate(0, 3, 0)}
}

func claims(nips ...int) *monitor.Info {
	return &monitor.Info{Raw: fmt.Appendf(nil, `{"supported_nips":%v}`, nips), NIPs: nips}
}

// What a probe tells besides is shown, stored, and there again after a restart;
// what it disproves leaves the report at once.
func TestFactsAreLearned(t *testing.T) {
	inWorld(t, 3, []string{"a", "b"}, func(t *testing.T, w *world) {
		found := monitor.FindingConfirmed
		tested := &monitor.WriteFacts{Result: monitor.WriteAccepted}
		dns := &monitor.DNSFacts{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, IPv4: monitor.ReachAnswers, IPv6: monitor.ReachFails}
		cert := certificate("R11")
		w.vantages[0].tells = func(o *monitor.Observation) {
			if o.Relay == url(1) {
				o.TLS, o.DNS, o.Info, o.Write, o.RTTWrite = cert, dns, claims(1, 45, 50), tested, 90*time.Millisecond
				o.Capabilities = &monitor.Capabilities{Count: found, Search: monitor.FindingConfirmed, Sample: "ab"}
			}
		}
		w.run(time.Minute)
		// b has no IPv6: what a found stays.
		w.vantages[1].tells = func(o *monitor.Observation) {
			if o.Relay == url(1) {
				o.DNS = &monitor.DNSFacts{Addresses: dns.Addresses, IPv4: monitor.ReachAnswers}
			}
		}
		w.run(time.Minute)
		want := monitor.Facts{
			TLS: cert, DNS: dns, Write: tested,
			Capabilities: &monitor.Capabilities{Count: monitor.FindingConfirmed, Search: monitor.FindingConfirmed, Sample: "ab"},
		}
		look := func(when string) {
			t.Helper()
			got := w.engine.RelayView(url(1)).Facts
			for _, at := range []time.Time{got.TLSAt, got.DNSAt, got.CapabilitiesAt, got.WriteAt} {
				if age := time.Since(at); age < 0 || age > 3*time.Minute {
					t.Errorf("%s something is %s old", when, age)
				}
			}
			got.TLSAt, got.DNSAt, got.CapabilitiesAt, got.WriteAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
			if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
				t.Errorf("%s (-want +got)\n%s", when, d)
			}
		}
		look("after two minutes")
		if f := w.engine.RelayView(url(2)).Facts; f != (monitor.Facts{}) {
			t.Errorf("of another relay: %+v", f)
		}
		if s, _ := w.pub.last(url(1)); len(s.DisprovedNIPs) != 0 || s.RestrictedWrites || s.RTTWrite != 90 {
			t.Errorf("reported: %+v", s)
		}
		online := func() monitor.OnlineRelay { return w.engine.Generation().Online[1] }
		if o := online(); !slices.Equal(o.NIPs, []int{1, 45, 50}) || o.Writes || o.Payment {
			t.Errorf("listed: %+v", o)
		}
		w.run(41 * time.Second) // not in step with the looks at all reports

		found, tested = monitor.FindingDisproved, &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "restricted: members only"}
		want.Capabilities.Count, want.Write = found, tested
		_, before := w.pub.last(url(1))
		for range 10 { // until its next probe
			w.run(3 * time.Second)
			if w.engine.RelayView(url(1)).Facts.Write == tested {
				break
			}
		}
		w.run(time.Second)
		if s, calls := w.pub.last(url(1)); !slices.Equal(s.DisprovedNIPs, []int{45}) || !s.RestrictedWrites || s.PaymentSeen {
			t.Errorf("reported after a change, in %d calls: %+v", calls-before, s)
		}
		w.run(time.Minute)
		if o := online(); !slices.Equal(o.NIPs, []int{1, 50}) || !o.Writes || o.Payment {
			t.Errorf("listed after a change: %+v", o)
		}
		look("after a change")

		w.stop()
		w.pub = newPublisher()
		w.start() // as after a crash: what was not stored within the hour is not there
		want.Capabilities.Count, want.Write = monitor.FindingConfirmed, &monitor.WriteFacts{Result: monitor.WriteAccepted}
		got := w.engine.RelayView(url(1)).Facts
		got.TLSAt, got.DNSAt, got.CapabilitiesAt, got.WriteAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("after a restart (-want +got)\n%s", d)
		}
	})
}

// A certificate that changes with every probe makes a row an hour, one that does
// not is confirmed once a day.
func TestFactsAreStoredAtTheirPace(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes bool
		want    int // rows within 25 hours
	}{{"always another", true, 26}, {"always the same", false, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, 1, []string{"a"}, func(t *testing.T, w *world) {
				n := 0
				start := time.Now()
				w.vantages[0].tells = func(o *monitor.Observation) {
					if tc.changes {
						n++
					}
					o.TLS = &monitor.TLSFacts{Issuer: fmt.Sprint(n), NotAfter: start.AddDate(0, 3, 0)}
				}
				w.run(25*time.Hour + time.Minute)
				if got := len(w.store.learned); got < tc.want-1 || got > tc.want {
					t.Errorf("%d rows, want about %d", got, tc.want)
				}
				if age := time.Since(w.engine.RelayView(url(0)).Facts.TLSAt); age > time.Minute {
					t.Errorf("what is shown is %s old", age)
				}
			})
		})
	}
}

// What cannot be believed is not learned: from the future, while the vantage had
// lost its network, while nobody was to look; nor is a late one, in place of a
// newer.
func TestFactsThatDoNotCount(t *testing.T) {
	inWorld(t, 2, []string{"a"}, func(t *testing.T, w *world) {
		w.run(time.Minute)
		v := w.vantages[0]
		give := func(at time.Time, issuer string, h monitor.Health) {
			t.Helper()
			v.seq++
			_, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: time.Now(), Health: h, Observations: []monitor.Observation{{
				Relay: url(0), Vantage: "a", Start: at, At: at, Outcome: monitor.OutcomeOK, TLS: certificate(issuer),
			}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		issuer := func() string {
			if c := w.engine.RelayView(url(0)).Facts.TLS; c != nil {
				return c.Issuer
			}
			return ""
		}
		down := monitor.Health{Impairments: []monitor.Impairment{monitor.ImpairedNetwork}, ImpairedSince: time.Now().Add(-time.Minute)}
		give(time.Now().Add(time.Hour), "future", monitor.Health{})
		give(time.Now(), "no network", down)
		if got := issuer(); got != "" {
			t.Errorf("learned %q", got)
		}
		give(time.Now(), "good", monitor.Health{})
		give(time.Now().Add(-time.Hour), "spooled", monitor.Health{})
		if got := issuer(); got != "good" {
			t.Errorf("learned %q", got)
		}
		w.give(monitor.Command{Kind: monitor.CommandPause, Relays: urls(1), Until: time.Now().Add(time.Hour)})
		give(time.Now(), "paused", monitor.Health{})
		if got := issuer(); got != "good" {
			t.Errorf("learned %q", got)
		}
		// Silence is no answer.
		for _, result := range []monitor.WriteResult{monitor.WriteAccepted, monitor.WriteUnknown, monitor.WriteNone} {
			v.seq++
			if _, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "a", Seq: v.seq, SentAt: time.Now(), Observations: []monitor.Observation{{
				Relay: url(1), Vantage: "a", Start: time.Now(), At: time.Now(), Outcome: monitor.OutcomeOK, Write: &monitor.WriteFacts{Result: result},
			}}}); err != nil {
				t.Fatal(err)
			}
			if f := w.engine.RelayView(url(1)).Facts.Write; f == nil || f.Result != monitor.WriteAccepted {
				t.Errorf("after %q it is %+v", result, f)
			}
		}
	})
}

// A batch that was not stored has told nothing.
func TestFactsAreKeptOnceStored(t *testing.T) {
	inWorld(t, 1, []string{"a"}, func(t *testing.T, w *world) {
		w.run(time.Minute)
		w.vantages[0].tells = func(o *monitor.Observation) { o.TLS = certificate("R11") }
		w.store.away.Store(true)
		w.run(2 * time.Minute)
		if f := w.engine.RelayView(url(0)).Facts; f.TLS != nil {
			t.Errorf("known although it is not stored: %+v", f)
		}
		w.store.away.Store(false)
		w.run(10 * time.Second)
		if f := w.engine.RelayView(url(0)).Facts; f.TLS == nil || len(w.store.learned) != 1 {
			t.Errorf("not known although it is stored: %+v, %d rows", f, len(w.store.learned))
		}
	})
}

// Certificates that are about to expire are counted, of relays that are online.
func TestExpiringIsCounted(t *testing.T) {
	inWorld(t, 4, []string{"a"}, func(t *testing.T, w *world) {
		w.vantages[0].tells = func(o *monitor.Observation) {
			days := map[monitor.RelayURL]int{url(0): 3, url(1): 20, url(2): 5}[o.Relay]
			if days > 0 {
				o.TLS = &monitor.TLSFacts{NotAfter: time.Now().AddDate(0, 0, days)}
			}
		}
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(2))
		w.run(5 * time.Minute)
		if got := w.engine.Status().Expiring; got != 1 {
			t.Errorf("%d expiring, want that of %s alone", got, url(0))
		}
	})
}

// Between the looks at all reports, once a minute, the publisher is shown only
// what waits or is new.
func TestReportsAreShownWhereNeeded(t *testing.T) {
	inWorld(t, 30, []string{"a"}, func(t *testing.T, w *world) {
		w.run(3 * time.Minute)
		_, n := w.pub.last(url(7))
		w.run(10 * time.Minute)
		if quiet := w.pub.since(n); len(quiet) < 9 || len(quiet) > 11 || slices.Max(quiet) != 30 || slices.Min(quiet) != 30 {
			t.Errorf("in ten quiet minutes it was shown %v relays, want all 30 once a minute", quiet)
		}
		_, n = w.pub.last(url(7))
		w.pub.limit(1)
		w.vantages[0].tells = func(o *monitor.Observation) {
			if o.Relay == url(7) {
				o.Info = claims(1, 2)
			}
		}
		w.run(40 * time.Second)
		if got, _ := w.pub.last(url(7)); got.Info == nil {
			t.Errorf("it was shown %v relays, and never the one that changed", w.pub.since(n))
		}
	})
}
