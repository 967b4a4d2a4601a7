package engine_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// enrol invites a vantage and has a machine with that key take it up.
func (w *world) enrol(name, group, key string) *watcher {
	w.t.Helper()
	token := monitor.HashToken(name + key)
	now := time.Now()
	if _, err := w.engine.Invite(w.t.Context(), monitor.Invitation{Name: name, Group: group, Token: token, Created: now, Expires: now.Add(monitor.InvitationLife)}); err != nil {
		w.t.Fatal(err)
	}
	v, err := w.engine.Enrol(w.t.Context(), monitor.Enrolment{Token: token, Pubkey: key, Networks: []monitor.Network{monitor.Clearnet}, At: now})
	if err != nil {
		w.t.Fatal(err)
	}
	if v.Name != name || v.Pubkey != key {
		w.t.Fatalf("enrolled %+v, want %s with key %s", v, name, key)
	}
	watcher := w.newWatcher(name)
	w.vantages = append(w.vantages, watcher)
	return watcher
}

// leave ends the schedule of a vantage.
func (w *world) leave(name string) {
	w.vantages = slices.DeleteFunc(w.vantages, func(v *watcher) bool { return v.name == name })
}

// ballots are those on a relay, by vantage.
func (w *world) ballots(u monitor.RelayURL) map[string]monitor.Ballot {
	out := map[string]monitor.Ballot{}
	for _, b := range w.engine.RelayView(u).Ballots {
		out[b.Vantage] = b
	}
	return out
}

func (w *world) vantage(name string) monitor.Vantage {
	w.t.Helper()
	for _, v := range w.engine.Status().Vantages {
		if v.Name == name {
			return v
		}
	}
	w.t.Fatalf("there is no vantage %s", name)
	return monitor.Vantage{}
}

func TestVantagesComeAndGo(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(7))
		w.run(3 * time.Minute)
		before := map[monitor.RelayURL]monitor.Ballot{}
		for _, u := range urls(40) {
			before[u] = w.ballots(u)["a"]
		}
		same := func(when string) {
			t.Helper()
			for _, u := range urls(40) {
				if d := cmp.Diff(before[u], w.ballots(u)["a"]); d != "" {
					t.Fatalf("%s a's ballot on %s is another one (-want +got):\n%s", when, u, d)
				}
			}
		}
		b := w.enrol("b", "", "key-b")
		c := w.enrol("c", "b", "key-c")
		same("after two were enrolled")
		b.sees, c.sees = w.vantages[0].sees, up
		w.run(3 * time.Minute)
		for name, want := range map[string]monitor.Vote{"a": monitor.VoteDown, "b": monitor.VoteDown, "c": monitor.VoteUp} {
			if got := w.ballots(url(7))[name]; got.Vote != want || !got.Eligible {
				t.Errorf("%s votes %s on relay 7, want %s, and eligible", name, got.Vote, want)
			}
		}
		if g := w.ballots(url(7))["b"].Group; g != "b" || w.ballots(url(7))["c"].Group != "b" {
			t.Error("b and c are not of one group")
		}
		if n := w.engine.Generation().Vantages; n != 3 {
			t.Errorf("the generation tells of %d vantages, want 3", n)
		}
		w.wantLive(urls(40)...) // one group of two keeps it

		// Revoked in the middle of the list: nothing that it said counts from now on.
		for _, u := range urls(40) {
			before[u] = w.ballots(u)["a"]
		}
		third := w.ballots(url(3))["c"]
		if err := w.engine.Revoke(t.Context(), "b", "token"); err != nil {
			t.Fatal(err)
		}
		same("after b was revoked")
		if _, there := w.ballots(url(7))["b"]; there {
			t.Error("b is still heard")
		}
		if d := cmp.Diff(third, w.ballots(url(3))["c"]); d != "" {
			t.Errorf("c's ballot is another one (-want +got):\n%s", d)
		}
		if _, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: 1000, SentAt: time.Now()}); !errors.Is(err, monitor.ErrNotFound) {
			t.Errorf("a batch of b: %v, want ErrNotFound", err)
		}
		if _, err := w.engine.Tasks(t.Context(), "b", 0); !errors.Is(err, monitor.ErrNotFound) {
			t.Errorf("tasks for b: %v, want ErrNotFound", err)
		}
		if v := w.vantage("b"); !v.Revoked || v.Eligible || v.Pubkey != "key-b" {
			t.Errorf("b is shown as %+v", v)
		}
		if v, err := w.engine.Vantage("b"); err != nil || !v.Revoked {
			t.Errorf("b: %+v, %v: want it known as revoked", v, err)
		}
		if g := w.engine.Generation(); g.Vantages != 2 {
			t.Errorf("the generation tells of %d vantages, want 2", g.Vantages)
		}
		if err := w.engine.Revoke(t.Context(), "b", "token"); err != nil {
			t.Errorf("once more: %v", err)
		}
		w.leave("b")
		w.run(2 * time.Minute)
		if got := w.ballots(url(7)); len(got) != 2 || got["c"].Vote != monitor.VoteUp || got["a"].Vote != monitor.VoteDown {
			t.Errorf("the votes in the end: %+v", got)
		}
	})
}

// What a revoked liar alone kept up leaves, and what it alone took down returns.
func TestARevokedVantageStopsCountingAtOnce(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		b, c := w.enrol("b", "", "key-b"), w.enrol("c", "", "key-c")
		w.run(3 * time.Minute)
		w.vantages[0].sees = but(monitor.OutcomeFailed, url(0))
		b.sees = but(monitor.OutcomeFailed, url(0), url(1))
		c.sees = but(monitor.OutcomeFailed, url(1))
		w.run(3 * time.Minute)
		w.wantLive(urls(40)...) // c keeps 0, a keeps 1
		if err := w.engine.Revoke(t.Context(), "c", ""); err != nil {
			t.Fatal(err)
		}
		w.leave("c")
		elapse(1500 * time.Millisecond)
		w.wantLive(urls(40)[1:]...)
	})
}

func TestARestartFindsTheEnrolledVantages(t *testing.T) {
	inWorld(t, 40, []string{"a", "gone"}, func(t *testing.T, w *world) {
		b, c := w.enrol("b", "", "key-b"), w.enrol("c", "", "key-c")
		w.run(3 * time.Minute)
		if err := w.engine.Revoke(t.Context(), "c", ""); err != nil {
			t.Fatal(err)
		}
		_ = c
		w.cfg.Vantages = w.cfg.Vantages[:1]
		seq := w.store.seq["b"]
		w.restart()
		b.seq = w.store.seq["b"]
		w.vantages = append(w.vantages, b)
		if got := w.engine.Status().Vantages; len(got) != 3 || got[0].Name != "a" || got[1].Name != "b" || got[1].Group != "b" || got[1].Pubkey != "key-b" || !got[2].Revoked {
			t.Fatalf("after a restart: %+v", got)
		}
		if v := w.vantage("b"); v.LastSeq != seq {
			t.Errorf("b's sequence is %d, want %d", v.LastSeq, seq)
		}
		if last := w.ballots(url(3))["b"].LastSuccess; last.IsZero() {
			t.Error("b's records were not restored")
		}
		w.run(3 * time.Minute)
		got := w.ballots(url(3))
		if len(got) != 2 || got["a"].Vote != monitor.VoteUp || got["b"].Vote != monitor.VoteUp {
			t.Errorf("votes after a restart: %+v", got)
		}
		// The configuration took the name c, which was revoked.
		w.cfg.Vantages = append(w.cfg.Vantages, monitor.Vantage{Name: "c", Group: "c", Networks: []monitor.Network{monitor.Clearnet}})
		w.restart()
		if v := w.vantage("c"); v.Revoked || v.Remote() || len(w.engine.Status().Vantages) != 3 {
			t.Errorf("c, which is the configuration's now: %+v", w.engine.Status().Vantages)
		}
	})
}

func TestAVantageIsInvitedAnew(t *testing.T) {
	inWorld(t, 20, []string{"a"}, func(t *testing.T, w *world) {
		w.enrol("b", "hoster", "key-1")
		w.run(3 * time.Minute)
		last := w.ballots(url(3))["b"].LastSuccess
		w.leave("b")
		invite := func(name, group string) error {
			_, err := w.engine.Invite(t.Context(), monitor.Invitation{Name: name, Group: group})
			return err
		}
		for name, tc := range map[string]struct {
			err  error
			kind error
		}{
			"own name":      {invite("a", ""), monitor.ErrConflict},
			"another group": {invite("b", "elsewhere"), monitor.ErrConflict},
			"bad name":      {invite("B b", ""), monitor.ErrInvalid},
			"bad group":     {invite("d", "a/b"), monitor.ErrInvalid},
		} {
			if !errors.Is(tc.err, tc.kind) {
				t.Errorf("%s: %v, want %v", name, tc.err, tc.kind)
			}
		}
		if err := w.engine.Revoke(t.Context(), "a", ""); !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("revoke one of this process: %v, want ErrConflict", err)
		}
		// A new machine, and the group of before without saying so.
		b := w.enrol("b", "", "key-2")
		if v := w.vantage("b"); v.Group != "hoster" || v.Pubkey != "key-2" || v.LastSeq != 0 {
			t.Errorf("after the second enrolment %+v, want the group hoster, the new key, sequence 0", v)
		}
		if n := len(w.engine.Status().Vantages); n != 2 {
			t.Fatalf("%d vantages, want 2", n)
		}
		got := w.ballots(url(3))["b"]
		if got.Vote != monitor.VoteNone || got.Eligible || !got.LastSuccess.Equal(last) {
			t.Errorf("before its first probe it has %+v, want no vote and the success of %s", got, last)
		}
		// The same machine asks again, since it did not hear the answer.
		again, err := w.engine.Enrol(t.Context(), monitor.Enrolment{Token: monitor.HashToken("bkey-2"), Pubkey: "key-2", Networks: []monitor.Network{monitor.Clearnet}, At: time.Now()})
		if err != nil || again.Name != "b" {
			t.Errorf("again: %+v, %v", again, err)
		}
		if b.seq != 0 {
			t.Fatalf("the new machine begins at %d", b.seq)
		}
		w.run(2 * time.Minute)
		if v := w.ballots(url(3))["b"]; v.Vote != monitor.VoteUp {
			t.Errorf("after two minutes %s", v.Vote)
		}
		// A name that the configuration took after the invitation.
		late := monitor.HashToken("late")
		invited := w.store.Invite(t.Context(), monitor.Invitation{Name: "a", Token: late})
		if _, err := w.engine.Enrol(t.Context(), monitor.Enrolment{Token: late, Pubkey: "key-9"}); invited != nil || !errors.Is(err, monitor.ErrConflict) {
			t.Errorf("enrolled under a name of this process: %v, want ErrConflict", err)
		}
		if v := w.vantage("a"); v.Remote() {
			t.Errorf("a is %+v", v)
		}
		// Revoked and back, within the same process.
		if err := w.engine.Revoke(t.Context(), "b", ""); err != nil {
			t.Fatal(err)
		}
		w.leave("b")
		w.enrol("b", "hoster", "key-3")
		if v := w.vantage("b"); v.Revoked || len(w.engine.Status().Vantages) != 2 || w.ballots(url(3))["b"].LastSuccess.IsZero() {
			t.Errorf("back: %+v", v)
		}
	})
}

func TestNobodyIsEnrolledWithoutTheStore(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.enrol("b", "", "key-b")
		w.store.away.Store(true)
		_, invite := w.engine.Invite(t.Context(), monitor.Invitation{Name: "c"})
		_, enrol := w.engine.Enrol(t.Context(), monitor.Enrolment{Token: monitor.HashToken("bkey-b"), Pubkey: "key-b"})
		revoke := w.engine.Revoke(t.Context(), "b", "")
		for _, err := range []error{invite, enrol, revoke} {
			if !errors.Is(err, monitor.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		}
		w.store.away.Store(false)
		if v := w.vantage("b"); v.Revoked {
			t.Error("b is revoked although the store was away")
		}
	})
}

func TestTaskChanges(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.enrol("b", "", "key-b")
		ask := func(since uint64) monitor.TaskChanges {
			t.Helper()
			c, err := w.engine.TaskChanges("b", since)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		whole := ask(0)
		if whole.Base != 0 || len(whole.Set) != 40 || whole.Cadence != w.cfg.Cadence || whole.Liveness != w.cfg.Liveness {
			t.Fatalf("the whole list: base %d, %d relays", whole.Base, len(whole.Set))
		}
		if c := ask(whole.Version); c.Base != whole.Version || c.Version != whole.Version || len(c.Set)+len(c.Removed) != 0 {
			t.Errorf("nothing changed: %+v", c)
		}
		// A vantage that follows the changes has the list at every time.
		follow := map[monitor.RelayURL]monitor.Task{}
		for _, s := range whole.Set {
			follow[s.Relay] = s
		}
		version := whole.Version
		for i, c := range []monitor.Command{
			{Kind: monitor.CommandAdd, Relays: []monitor.RelayURL{url(90), url(91)}},
			pause(time.Hour, url(3)),
			{Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{url(5), url(91)}},
			{Kind: monitor.CommandInclude, Relays: []monitor.RelayURL{url(5)}},
			{Kind: monitor.CommandExclude, Relays: []monitor.RelayURL{url(6)}},
		} {
			if _, err := w.engine.Administer(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				continue // two changes in one answer
			}
			got := ask(version)
			if got.Base != version || got.Version <= version || len(got.Set)+len(got.Removed) > 4 {
				t.Fatalf("since %d: base %d, version %d, %d set, %d removed", version, got.Base, got.Version, len(got.Set), len(got.Removed))
			}
			for _, u := range got.Removed {
				delete(follow, u)
			}
			for _, s := range got.Set {
				follow[s.Relay] = s
			}
			version = got.Version
		}
		got := ask(version)
		for _, u := range got.Removed {
			delete(follow, u)
		}
		want := map[monitor.RelayURL]monitor.Task{}
		for _, s := range ask(0).Set {
			want[s.Relay] = s
		}
		if d := cmp.Diff(want, follow); d != "" {
			t.Errorf("what follows from the changes (-want +got):\n%s", d)
		}
		for name, since := range map[string]uint64{"another process's": 5, "of the future": version + 100} {
			if c := ask(since); c.Base != 0 || len(c.Set) != len(want) {
				t.Errorf("%s version: base %d, %d relays, want the whole list", name, c.Base, len(c.Set))
			}
		}
		// So much changes that the whole list is shorter; and what is remembered is
		// bounded.
		if _, err := w.engine.Administer(t.Context(), pause(2*time.Hour, urls(30)...)); err != nil {
			t.Fatal(err)
		}
		if c := ask(whole.Version); c.Base != 0 {
			t.Errorf("with half of the list changed: base %d", c.Base)
		}
		old := ask(0).Version
		for i := range 1100 {
			if _, err := w.engine.Administer(t.Context(), pause(time.Hour+time.Duration(i)*time.Second, url(0))); err != nil {
				t.Fatal(err)
			}
		}
		if c := ask(old); c.Base != 0 {
			t.Errorf("1 100 versions later: base %d, want the whole list", c.Base)
		}
		if c := ask(ask(0).Version - 900); c.Base == 0 || len(c.Set) != 1 {
			t.Errorf("900 versions later: base %d, %d set", c.Base, len(c.Set))
		}
		w.restart()
		if c := ask(old); c.Base != 0 {
			t.Error("after a restart a version of before is known")
		}
	})
}

// After a restart of the core the vantage's own record of a dead relay sends it
// back in an hour: it is told that ours wants it sooner, and the verdict does not
// go stale.
func TestARestoredRecordAsksForAnEarlierLook(t *testing.T) {
	inWorld(t, 60, []string{}, func(t *testing.T, w *world) {
		b := w.enrol("b", "", "key-b")
		b.sees = but(monitor.OutcomeFailed, url(7))
		w.run(20 * time.Minute)
		if s := w.engine.RelayView(url(7)).Verdict.State; s != monitor.StateDead {
			t.Fatalf("relay 7 is %s", s)
		}
		if in := time.Until(b.due[url(7)]); in < 30*time.Minute {
			t.Fatalf("the vantage comes back in %s", in)
		}
		w.restart()
		b.seq = w.store.seq["b"]
		w.vantages = append(w.vantages, b)
		w.run(6 * time.Minute) // a restored cooldown lasts five
		got := w.ballots(url(7))["b"]
		if !got.Vote.Against() || !got.Eligible {
			t.Errorf("six minutes after the restart it votes %s on relay 7 (%+v)", got.Vote, got)
		}
		// The two records have come together: nothing is asked for any longer.
		w.run(30 * time.Minute)
		b.seq++
		a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: b.seq, SentAt: time.Now()})
		if err != nil || len(a.Due) > 0 && a.Due[url(7)].Before(b.due[url(7)]) {
			t.Errorf("half an hour later it is told %v, and plans %s (%v)", a.Due, b.due[url(7)], err)
		}
	})
}

// Failures that were spooled for too long step no record here. The vantage is
// told to look again, unless its clock is wrong: then nothing that it sees counts.
func TestHistoryAsksForAnotherLook(t *testing.T) {
	for name, tc := range map[string]struct {
		skew time.Duration
		want int
	}{"spool": {0, 1}, "wrong clock": {10 * time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 5, []string{}, func(t *testing.T, w *world) {
				b := w.enrol("b", "", "key-b")
				w.run(2 * time.Minute)
				old := time.Now()
				w.vantages = nil
				elapse(10 * time.Minute)
				at := old
				if tc.skew != 0 {
					at = time.Now().Add(tc.skew)
				}
				obs := monitor.Observation{Relay: url(2), Vantage: "b", Start: at, At: at, Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP, Cause: monitor.CauseTimeout}
				fine := monitor.Observation{Relay: url(3), Vantage: "b", Start: at, At: at, Outcome: monitor.OutcomeOK, Stage: monitor.StageRead}
				strange := fine
				strange.Relay = "wss://nobody.example.com/"
				a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: b.seq + 1, SentAt: time.Now().Add(tc.skew), Observations: []monitor.Observation{obs, fine, strange}})
				if err != nil {
					t.Fatal(err)
				}
				if len(a.Due) != tc.want || tc.want == 1 && !a.Due[url(2)].Equal(time.Now()) {
					t.Errorf("due %v, want %d relays", a.Due, tc.want)
				}
				if got := w.ballots(url(2))["b"]; got.FailureCount != 0 {
					t.Errorf("history stepped the record: %+v", got)
				}
				v := w.vantage("b")
				if v.Eligible != (tc.skew == 0) || v.Skew != tc.skew {
					t.Errorf("b is shown with skew %s and eligible %t", v.Skew, v.Eligible)
				}
				// It looks, and hears at once what our record wants next; a success ends it.
				tell := func(o monitor.Outcome) map[monitor.RelayURL]time.Time {
					t.Helper()
					now := time.Now()
					b.seq++
					a, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: b.seq + 1, SentAt: now.Add(tc.skew), Observations: []monitor.Observation{
						{Relay: url(2), Vantage: "b", Start: now, At: now, Outcome: o, Stage: monitor.StageTCP},
					}})
					if err != nil {
						t.Fatal(err)
					}
					return a.Due
				}
				if tc.skew == 0 {
					if due := tell(monitor.OutcomeFailed); !due[url(2)].Equal(time.Now().Add(30 * time.Second)) {
						t.Errorf("after a failure due %v, want the end of its cooldown", due)
					}
					elapse(time.Minute)
					for range 3 {
						if due := tell(monitor.OutcomeOK); len(due) > 0 {
							t.Errorf("after a success due %v", due)
						}
						elapse(2 * time.Minute)
					}
				}
				if n := w.engine.Status().Unwatched; n != 1 {
					t.Errorf("%d observations of relays that are not watched, want 1", n)
				}
			})
		})
	}
}

func TestSequenceIsTold(t *testing.T) {
	inWorld(t, 5, []string{}, func(t *testing.T, w *world) {
		w.enrol("b", "", "key-b")
		w.run(time.Minute)
		last := w.vantage("b").LastSeq
		_, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: last, SentAt: time.Now()})
		var out *monitor.SequenceError
		if !errors.As(err, &out) || out.Last != last || !errors.Is(err, monitor.ErrConflict) || !strings.Contains(err.Error(), "newest stored") {
			t.Errorf("an old batch: %v, want the newest sequence %d", err, last)
		}
	})
}

// A number far ahead would leave none for later batches: it is refused, and says
// nothing of the store.
func TestASequenceFarAheadIsRefused(t *testing.T) {
	inWorld(t, 5, []string{}, func(t *testing.T, w *world) {
		w.enrol("b", "", "key-b")
		w.run(time.Minute)
		last := w.vantage("b").LastSeq
		deliver := func(seq uint64) error {
			_, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: "b", Seq: seq, SentAt: time.Now()})
			return err
		}
		for _, seq := range []uint64{last + 1<<20 + 1, math.MaxInt32, math.MaxInt64} {
			if err := deliver(seq); !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "too far above") {
				t.Errorf("batch %d after %d: %v, want ErrInvalid", seq, last, err)
			}
		}
		if got := w.vantage("b").LastSeq; got != last {
			t.Errorf("the newest sequence is %d, want %d", got, last)
		}
		if err := deliver(last + 1<<20); err != nil {
			t.Errorf("a batch after some that were lost: %v", err)
		}
	})
}

// Nobody looks at a relay that is paused: who says that it is down does not move
// its verdict, nor the brake.
func TestAPausedRelayIsHistoryOnly(t *testing.T) {
	inWorld(t, 40, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.run(3 * time.Minute)
		paused := urls(20)
		_, err := w.engine.Administer(t.Context(), monitor.Command{Kind: monitor.CommandPause, Relays: paused, Until: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		w.run(3 * time.Minute)
		liar := w.vantages[1]
		for range 5 {
			now := time.Now()
			b := monitor.Batch{Vantage: "b", Seq: liar.seq + 1, SentAt: now}
			for _, u := range paused {
				b.Observations = append(b.Observations, monitor.Observation{Relay: u, Vantage: "b", Start: now, At: now, Outcome: monitor.OutcomeFailed, Stage: monitor.StageTCP})
			}
			if _, err := w.engine.Deliver(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			liar.seq++
			w.run(31 * time.Second)
			if s := w.engine.Status(); s.Engaged || s.Held > 0 {
				t.Fatalf("the brake holds %d", s.Held)
			}
		}
		if got := w.ballots(paused[0])["b"]; got.FailureCount > 0 || got.Vote.Against() {
			t.Errorf("%+v", got)
		}
	})
}

// What the store finds wrong with a batch does not mean that it is away.
func TestARefusedBatchIsNoStoreAway(t *testing.T) {
	inWorld(t, 5, []string{"a"}, func(t *testing.T, w *world) {
		w.run(time.Minute)
		w.store.refuses = true
		v := w.vantages[0]
		if _, err := w.engine.Deliver(t.Context(), monitor.Batch{Vantage: v.name, Seq: v.seq + 1, SentAt: time.Now()}); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("delivered: %v, want ErrInvalid", err)
		}
		if s := w.engine.Status(); s.StoreError != "" {
			t.Errorf("the store is said to be away: %s", s.StoreError)
		}
	})
}

func TestASkewedSignatureIsShown(t *testing.T) {
	inWorld(t, 20, []string{"a"}, func(t *testing.T, w *world) {
		w.enrol("b", "", "key-b")
		w.run(2 * time.Minute)
		w.engine.Skewed("b", 10*time.Minute)
		w.engine.Skewed("a", 10*time.Minute) // of this process: by the same clock
		w.engine.Skewed("nobody", 10*time.Minute)
		if v := w.vantage("b"); v.Eligible || v.Skew != 10*time.Minute {
			t.Errorf("b is shown with skew %s, eligible %t", v.Skew, v.Eligible)
		}
		if v := w.vantage("a"); !v.Eligible || v.Skew != 0 {
			t.Errorf("a is shown with skew %s, eligible %t", v.Skew, v.Eligible)
		}
		if got := w.ballots(url(0))["b"]; got.Eligible {
			t.Error("its votes still count")
		}
		w.run(10 * time.Second) // its clock was set
		if v := w.vantage("b"); !v.Eligible || v.Skew != 0 {
			t.Errorf("after its next batch: skew %s, eligible %t", v.Skew, v.Eligible)
		}
	})
}

func TestDisagreementTellsTheLiar(t *testing.T) {
	inWorld(t, 40, []string{"a", "b", "liar"}, func(t *testing.T, w *world) {
		w.run(2 * time.Minute)
		w.vantages[2].sees = but(monitor.OutcomeFailed, urls(20)...)
		w.run(50 * time.Minute)
		for _, name := range []string{"a", "b"} {
			if v := w.vantage(name); v.Disagreement > 0.01 || v.Judged < 1000 {
				t.Errorf("%s disagrees in %.3f of %d votes", name, v.Disagreement, v.Judged)
			}
		}
		if v := w.vantage("liar"); v.Disagreement < 0.35 || v.Disagreement > 0.5 {
			t.Errorf("the liar disagrees in %.3f of %d votes, want nearly half", v.Disagreement, v.Judged)
		}
		w.vantages[2].sees = up
		w.run(90 * time.Minute)
		if v := w.vantage("liar"); v.Disagreement > 0.01 || v.Judged < 10_000 || v.Judged > 40*6*61 {
			t.Errorf("an hour and a half later it disagrees in %.3f of %d votes", v.Disagreement, v.Judged)
		}
	})
}
