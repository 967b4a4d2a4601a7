package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// own gives a relay a NIP-11 document that names a key.
func (w *world) own(u monitor.RelayURL, pubkey string) {
	w.t.Helper()
	now := time.Now()
	v := w.vantages[0]
	v.pendings = append(v.pendings, monitor.Observation{
		Relay: u, Vantage: v.name, Start: now, At: now, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead,
		Info: &monitor.Info{Raw: []byte(`{"pubkey":"` + pubkey + `"}`), Pubkey: pubkey},
	})
	w.run(5 * time.Second)
}

func TestAnOwnerOptsOut(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		owner, other := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
		optOut := func(actor string, relays ...monitor.RelayURL) []string {
			t.Helper()
			return w.give(monitor.Command{Kind: monitor.CommandOptOut, Actor: actor, Relays: relays})
		}
		const (
			nothing  = "is not watched here: there is nothing to opt out of"
			otherKey = "its NIP-11 document names another key, or none: set pubkey there and wait for it to be read (within an hour)"
			already  = "is excluded already"
		)
		w.cfg.Exclude = []monitor.RelayURL{"wss://barred.example/"}
		w.configure(t)
		w.do(monitor.CommandAdd, stranger)
		w.discover(sweep(true, namedOnce(wild(1), wild(2))))
		w.run(12 * time.Minute)
		for _, u := range []monitor.RelayURL{url(0), stranger, wild(1)} {
			w.own(u, owner)
		}
		w.own(url(1), other)
		w.run(time.Minute)
		w.wantState(url(0), monitor.StateOnline)
		w.do(monitor.CommandRemove, stranger)

		got := optOut(strings.ToUpper(owner), url(0), url(1), url(2), wild(1), stranger, wild(3), "wss://barred.example/", url(0))
		w.want(got, "", otherKey, otherKey, "", "", nothing, already, "is named twice")
		check := func(when string) {
			t.Helper()
			for u, source := range map[monitor.RelayURL]monitor.Source{url(0): monitor.SourceConfig, wild(1): monitor.SourceDiscovery, stranger: monitor.SourceNone} {
				v := w.engine.RelayView(u)
				if v.Monitored || !v.Excluded || v.Source != source || v.Verdict.State != monitor.StateUnknown || v.Verdict.Reason != "unknown: its owner opted out" {
					t.Errorf("%s: %s: monitored %v, %+v", when, u, v.Monitored, v.WatchedRelay)
				}
				if _, ok := w.tasks()[u]; ok || w.store.reported(u) || w.store.recorded("a", u) {
					t.Errorf("%s: %s: a task, a report or a record is left", when, u)
				}
			}
			if n := len(w.engine.Relays(monitor.RelayQuery{Excluded: true})); n != 4 {
				t.Errorf("%s: %d excluded relays are listed, want 4", when, n)
			}
		}
		check("at once")
		if last := w.last(url(0)); last.From != monitor.StateOnline || last.Evidence != "its owner opted out" {
			t.Errorf("the last transition is %+v", last)
		}
		w.want(optOut(owner, url(0), stranger), already, already)
		w.restart()
		check("after a restart")
		w.discover(sweep(true, namedOnce(wild(1), stranger)))
		check("after a sweep")

		// Operators are told why, and can undo it.
		why := "is excluded because its owner opted out: include it first to undo that"
		w.want(w.do(monitor.CommandAdd, stranger), why)
		w.want(w.do(monitor.CommandCheck, url(0)), why)
		w.want(w.do(monitor.CommandExclude, url(0)), already)
		w.want(w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{wild(1)}}), "is not to be watched here")
		w.want(w.do(monitor.CommandInclude, url(0)), "")
		w.run(2 * time.Minute)
		w.wantState(url(0), monitor.StateOnline)
		audit := w.store.audited()
		last := audit[len(audit)-2]
		if last.Kind != monitor.CommandOptOut || last.Actor != strings.ToUpper(owner) || len(last.Relays) != 3 {
			t.Errorf("the audit has %+v", last)
		}
		w.do(monitor.CommandExclude, url(0)) // by an operator this time
		w.want(w.do(monitor.CommandAdd, url(0)), "is excluded by an operator: include it first")
	})
}

// A relay that is left alone is so under its other URLs too, which it stood for.
func TestAnExcludedRelayTakesItsTwinsAlong(t *testing.T) {
	for _, kind := range []monitor.CommandKind{monitor.CommandOptOut, monitor.CommandExclude} {
		t.Run(string(kind), func(t *testing.T) {
			inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
				owner := strings.Repeat("ab", 32)
				named := sweep(true, namedOnce(plain, onPort, elsewhere, overTLS))
				w.discover(named)
				w.run(2 * time.Hour)
				if !w.paired(plain) {
					t.Fatal("the wss relay does not stand for it")
				}
				w.own(overTLS, owner)
				w.want(w.give(monitor.Command{Kind: kind, Actor: owner, Relays: []monitor.RelayURL{overTLS}}), "")
				check := func(when string) {
					t.Helper()
					for _, u := range []monitor.RelayURL{overTLS, plain} {
						if _, task := w.tasks()[u]; task || w.engine.RelayView(u).Monitored {
							t.Errorf("%s: %s is watched", when, u)
						}
					}
					for _, u := range []monitor.RelayURL{onPort, elsewhere} {
						if !w.engine.RelayView(u).Monitored {
							t.Errorf("%s: %s left, which is another relay", when, u)
						}
					}
				}
				check("at once")
				w.run(10 * time.Minute)
				w.discover(named)
				w.run(10 * time.Minute)
				check("after a sweep")
				w.restart()
				check("after a restart")
				w.want(w.do(monitor.CommandInclude, overTLS), "")
				w.run(10 * time.Minute)
				w.wantState(overTLS, monitor.StateOnline)
			})
		})
	}
}

// So is it with the URL that has a slash more, which stays while that without it is
// down.
func TestAnExcludedRelayTakesItsSlashTwinAlong(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		const slashed = overTLS + "/"
		w.vantages[0].sees = but(monitor.OutcomeFailed, overTLS)
		w.discover(sweep(true, namedOnce(slashed)))
		w.run(12 * time.Minute)
		named := sweep(true, namedOnce(slashed, overTLS))
		w.discover(named)
		w.run(12 * time.Minute)
		w.wantState(slashed, monitor.StateOnline)
		w.want(w.do(monitor.CommandExclude, overTLS), "")
		w.discover(named)
		w.run(time.Minute)
		if _, task := w.tasks()[slashed]; task || w.engine.RelayView(slashed).Monitored {
			t.Error("it is watched")
		}
	})
}
