package monitor_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestSingledOut(t *testing.T) {
	for _, tc := range []struct {
		name, votes string
		want        string // in the reason; "" = no mark
	}{
		{"all alike", "up up up up", ""},
		{"one is not let in", "up up up restricted", "d1 alone sees it otherwise (http_403 at upgrade)"},
		{"one must sign in", "up auth up", "b1 alone sees it otherwise (auth_required at read)"},
		{"one need not sign in", "auth auth up", "c1 alone sees it otherwise (ok)"},
		{"one cannot connect", "up up down", "c1 alone sees it otherwise (timeout at tcp)"},
		{"dead is down", "up down dead", "a1 alone sees it otherwise (ok)"},
		{"two vantages of one provider", "up up restricted,down", "c1, c2 alone see it otherwise (http_403 at upgrade)"},
		{"the provider is not of one mind", "up up restricted,up", ""},
		{"two are treated so", "up up restricted restricted", ""},
		{"the others do not agree", "up auth restricted", ""},
		{"busy is up", "up busy up", ""},
		{"two groups", "up restricted", ""},
		{"many vantages of two groups", "up,up,up restricted", ""},
		{"one only suspects", "up up up suspect", ""},
		{"one only suspects, another is shut out", "up up restricted suspect", ""},
		{"one is not confirmed", "up up restricted old", ""},
		{"it was let in just now", "up up shut", ""},
		{"another was let in just now", "up restricted shut", ""},
		{"who may not vote does not count", "up up restricted none", "c1 alone sees it otherwise"},
		{"nor makes three of two", "up restricted none cut", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := monitor.DefaultCorroboration().Decide(was(online), ballots(tc.votes), watching, day0)
			if got := v.Marks.Has(monitor.MarkSingledOut); got != (tc.want != "") {
				t.Errorf("marks %q, reason %q", v.Marks, v.Reason)
			}
			if tc.want != "" && !strings.Contains(v.Reason, "; "+tc.want) || tc.want == "" && strings.Contains(v.Reason, "otherwise") {
				t.Errorf("reason %q, want it to say %q", v.Reason, tc.want)
			}
		})
	}
}

// The mark is never set where fewer than three groups vote, is a matter of what
// the ballots say and not of their order, and changes nothing but itself and the
// reason: where every refusal is made an answer like any other, all else of the
// verdict stays.
func TestSingledOutChangesNoState(t *testing.T) {
	c := monitor.DefaultCorroboration()
	words := []string{"up", "up", "up", "auth", "busy", "shut", "restricted", "down", "dead", "suspect", "old", "none"}
	thoroughly(t, func(t *rapid.T) {
		spec := rapid.SampledFrom(words)
		usual := spec.Draw(t, "usual")
		var bs []monitor.Ballot
		groups := map[string]bool{}
		for i := range rapid.IntRange(1, 8).Draw(t, "vantages") {
			word := usual
			if rapid.IntRange(0, 2).Draw(t, "other") == 0 {
				word = spec.Draw(t, "word")
			}
			group := string(rune('a' + rapid.IntRange(0, 4).Draw(t, "group")))
			b := ballot(group, group+string(rune('0'+i)), word)
			if b.Eligible {
				groups[group] = true
			}
			bs = append(bs, b)
		}
		prev, s := drawPrev(t), drawSituation(t)
		v := c.Decide(prev, bs, s, day0)
		marked := v.Marks.Has(monitor.MarkSingledOut)
		if marked && len(groups) < 3 {
			t.Fatalf("%d groups, marked", len(groups))
		}
		if other := c.Decide(prev, rapid.Permutation(bs).Draw(t, "order"), s, day0); other.Marks != v.Marks || other.State != v.State {
			t.Fatalf("in another order %s %s, want %s %s", other.State, other.Marks, v.State, v.Marks)
		}
		if !marked {
			return
		}
		for i := range bs { // an answer like any other: nobody is singled out by refusals any longer
			if bs[i].Outcome == monitor.OutcomeRefused {
				bs[i].Cause = monitor.CauseRateLimited
			}
		}
		plain := c.Decide(prev, bs, s, day0)
		if plain.State != v.State || plain.Quorum != v.Quorum || !plain.Since.Equal(v.Since) ||
			plain.Marks&^monitor.MarkSingledOut != v.Marks&^monitor.MarkSingledOut {
			t.Fatalf("without the refusals %s %s %s, with them %s %s %s", plain.State, plain.Quorum, plain.Marks, v.State, v.Quorum, v.Marks)
		}
	})
}

// A vantage without its way into a network has no vote there, and keeps it on
// the other ones; it is able all the same, so the others are not alone.
func TestLostNetworkHasNoVote(t *testing.T) {
	onion := monitor.RelayURL("ws://" + strings.Repeat("a", 56) + ".onion/")
	v := monitor.Vantage{Name: "a", Networks: []monitor.Network{monitor.Clearnet, monitor.Tor}, LastSeen: day0}
	v.Health.Networks, v.Health.Down = v.Networks, []monitor.Network{monitor.Tor}
	seen := monitor.VantageRelay{
		Outcome: monitor.OutcomeOK, NextDue: day0.Add(time.Minute), Record: monitor.Record{State: online, LastSuccess: day0},
	}
	for u, want := range map[monitor.RelayURL]bool{relayA: true, onion: false} {
		b := monitor.DefaultCorroboration().Ballots(u, []monitor.Vantage{v}, []monitor.VantageRelay{seen}, day0)[0]
		if b.Eligible != want || !b.Able {
			t.Errorf("%s: eligible %v, able %v", u, b.Eligible, b.Able)
		}
	}
}
