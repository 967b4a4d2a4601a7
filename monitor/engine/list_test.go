package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestTheListOfAllRelays(t *testing.T) {
	inWorld(t, 6, []string{"a", "b"}, func(t *testing.T, w *world) {
		w.want(w.do(monitor.CommandAdd, onion), "")
		w.want(w.give(monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{stranger}}), "")
		w.want(w.do(monitor.CommandExclude, url(5)), "")
		for _, v := range w.vantages {
			v.sees = but(monitor.OutcomeFailed, url(1), url(2), stranger)
		}
		w.run(4 * time.Minute)
		w.want(w.give(pause(time.Hour, url(0))), "")
		yes, no, offline, unknown := true, false, monitor.StateOffline, monitor.StateUnknown
		for name, c := range map[string]struct {
			q    monitor.RelayQuery
			want []monitor.RelayURL
		}{
			"all":           {monitor.RelayQuery{}, []monitor.RelayURL{onion, url(0), url(1), url(2), url(3), url(4), stranger}},
			"first page":    {monitor.RelayQuery{Limit: 2}, []monitor.RelayURL{onion, url(0)}},
			"next page":     {monitor.RelayQuery{After: url(0), Limit: 2}, []monitor.RelayURL{url(1), url(2)}},
			"after a gap":   {monitor.RelayQuery{After: "wss://relay003.example.com/0"}, []monitor.RelayURL{url(4), stranger}},
			"after the end": {monitor.RelayQuery{After: "wss://zz/"}, nil},
			"offline":       {monitor.RelayQuery{State: &offline, Candidate: &no}, []monitor.RelayURL{url(1), url(2)}},
			"unknown":       {monitor.RelayQuery{State: &unknown, Candidate: &no}, []monitor.RelayURL{onion}},
			"network":       {monitor.RelayQuery{Network: monitor.Tor}, []monitor.RelayURL{onion}},
			"source":        {monitor.RelayQuery{Source: monitor.SourceOperator}, []monitor.RelayURL{onion}},
			"candidates":    {monitor.RelayQuery{Candidate: &yes}, []monitor.RelayURL{stranger}},
			"paused":        {monitor.RelayQuery{Paused: &yes}, []monitor.RelayURL{url(0)}},
			"not paused":    {monitor.RelayQuery{Paused: &no, Contains: "y00", Limit: 2}, []monitor.RelayURL{url(1), url(2)}},
			"marks":         {monitor.RelayQuery{Marks: monitor.MarkStale}, []monitor.RelayURL{onion}},
			"contains":      {monitor.RelayQuery{Contains: "stranger"}, []monitor.RelayURL{stranger}},
			"excluded":      {monitor.RelayQuery{Excluded: true}, []monitor.RelayURL{url(5)}},
			"excluded page": {monitor.RelayQuery{Excluded: true, After: url(5)}, nil},
		} {
			var got []monitor.RelayURL
			for _, r := range w.engine.Relays(c.q) {
				got = append(got, r.URL)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
		got := w.engine.Relays(monitor.RelayQuery{After: url(0), Limit: 3})
		if r := got[0]; r.Eligible || r.VantagesUp != 0 || r.VantagesTotal != 2 {
			t.Errorf("an offline relay in its cooldown: %+v", r)
		}
		if r := got[2]; !r.Eligible || r.RTTOpenMS != 80 || r.VantagesUp != 2 || r.VantagesTotal != 2 || r.Source != monitor.SourceConfig {
			t.Errorf("an online relay: %+v", r)
		}
	})
}

// Those that operators exclude and those that the configuration does are one
// list.
func TestExcludedRelaysAreListedInOrder(t *testing.T) {
	inWorld(t, 40, []string{"a"}, func(t *testing.T, w *world) {
		w.do(monitor.CommandExclude, urls(20)...)
		w.cfg.Exclude = urls(30)[10:]
		w.restart()
		var got []monitor.RelayURL
		for _, r := range w.engine.Relays(monitor.RelayQuery{Excluded: true}) {
			got = append(got, r.URL)
		}
		if d := cmp.Diff(urls(30), got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}
