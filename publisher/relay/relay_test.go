package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// TestLive: rule 15's pushes.
func TestLive(t *testing.T) {
	now := time.Now()
	g := generation(t, 40, now.Add(-time.Minute), signed)
	s := serve(t, relay.Options{})
	s.Update(g)
	all, tagged, later, none := s.dial(t), s.dial(t), s.dial(t), s.dial(t)
	all.send(`["REQ","a",{"kinds":[30166]}]`)
	wantURLs(t, "stored", all.untilEOSE("a"), listed(g))
	tagged.send(`["REQ","b",{"#N":["42"]},{"kinds":[0]}]`)
	tagged.untilEOSE("b")
	later.send(`["REQ","c",{"kinds":[30166],"limit":0}]`)
	if n := len(later.untilEOSE("c")); n != 0 {
		t.Fatalf("limit 0 gave %d stored events", n)
	}
	none.send(`["REQ","d",{"kinds":[30166],"limit":0}]`)
	none.untilEOSE("d")
	none.send(`["CLOSE","d"]`)
	none.send(`["COUNT","sync",{}]`)
	none.next()

	g2 := with(g, func(g *monitor.Generation) {
		g.Online[3].Report = signed(t, report(3, now))
		g.Online[4].Report = signed(t, report(4, now))
		g.Online = slices.Delete(g.Online, 10, 11)
		g.Online = append(g.Online, monitor.OnlineRelay{URL: urlOf(45), Report: signed(t, report(45, now))})
	})
	s.Update(g2)
	fresh := []string{string(urlOf(3)), string(urlOf(4)), string(urlOf(45))}
	wantURLs(t, "all", []*nostr.Event{all.event("a"), all.event("a"), all.event("a")}, fresh)
	wantURLs(t, "limit 0", []*nostr.Event{later.event("c"), later.event("c"), later.event("c")}, fresh)
	wantURLs(t, "#N", []*nostr.Event{tagged.event("b"), tagged.event("b")}, []string{fresh[0], fresh[2]})

	// The same generation again, a withdrawal and a renumbered one push
	// nothing: the next message is the answer to the next request.
	s.Update(g2)
	s.Update(with(g2, func(g *monitor.Generation) { g.Online = g.Online[1:] }))
	for _, c := range []*client{all, later, tagged, none} {
		c.send(`["COUNT","sync",{"kinds":[30166]}]`)
		if m := c.next(); m.text != `["COUNT","sync",{"count":39}]` {
			t.Errorf("got %s", m.text)
		}
	}
	// A request that is refused ends what ran under its id.
	later.send(`["REQ","c",{"kinds":"x"}]`)
	if m := later.next(); !strings.HasPrefix(m.text, `["CLOSED","c","invalid: `) {
		t.Errorf("got %s", m.text)
	}
	// A subscription of the same id replaces the open one.
	all.send(`["REQ","a",{"kinds":[0],"limit":0}]`)
	all.untilEOSE("a")
	s.Update(with(g2, func(g *monitor.Generation) {
		g.Online[3].Report = signed(t, report(3, now.Add(time.Second)))
		g.Service = append(g.Service, signed(t, nostr.Event{Kind: 0, CreatedAt: nostr.Timestamp(now.Unix()), Content: "{}"}))
	}))
	if e := all.event("a"); e.Kind != 0 {
		t.Errorf("the replaced subscription still speaks: kind %d", e.Kind)
	}
	later.send(`["COUNT","sync",{"kinds":[0]}]`)
	if m := later.next(); m.text != `["COUNT","sync",{"count":1}]` {
		t.Errorf("the closed subscription still speaks: %s", m.text)
	}
}

// TestAppearing: who subscribed while the list was hidden is sent it when it
// is served; who had it already is sent only what is new.
func TestAppearing(t *testing.T) {
	now := time.Now()
	g := generation(t, 40, now.Add(-time.Minute), signed)
	hide := func(g *monitor.Generation) { g.Fallback = monitor.FallbackStale }
	s := serve(t, relay.Options{})
	early := s.dial(t)
	early.send(`["REQ","e",{"kinds":[30166]}]`)
	if n := len(early.untilEOSE("e")); n != 0 {
		t.Fatalf("%d events before the first generation", n)
	}
	s.Update(with(g, func(g *monitor.Generation) { g.Fallback = monitor.FallbackWarmingUp }))
	s.Update(g)
	var got []*nostr.Event
	for range g.Online {
		got = append(got, early.event("e"))
	}
	wantURLs(t, "after warming up", got, listed(g))

	s.Update(with(g, hide))
	blank := s.dial(t)
	blank.send(`["REQ","b",{"kinds":[30166]}]`)
	if n := len(blank.untilEOSE("b")); n != 0 {
		t.Fatalf("%d events while stale", n)
	}
	g2 := with(g, func(g *monitor.Generation) { g.Online[5].Report = signed(t, report(5, now)) })
	s.Update(with(g2, hide))
	s.Update(g2)
	got = nil
	for range g2.Online {
		got = append(got, blank.event("b"))
	}
	wantURLs(t, "who saw none of it", got, listed(g2))
	wantURLs(t, "who had it", []*nostr.Event{early.event("e")}, []string{string(urlOf(5))})
	for _, c := range []*client{early, blank} {
		c.send(`["COUNT","sync",{"kinds":[30166]}]`)
		if m := c.next(); m.label != "COUNT" {
			t.Errorf("one event too many: %s", m.text)
		}
	}
}

// TestExpiry: rule 21, with no new generation in between. An answer that holds
// the event was asked for before its second; one that lacks it came after.
func TestExpiry(t *testing.T) {
	end := time.Now().Add(2 * time.Second).Unix()
	ev := report(1, time.Now())
	ev.Tags[len(ev.Tags)-1] = nostr.Tag{"t", "x"}
	ev.Tags = append(ev.Tags, nostr.Tag{"expiration", fmt.Sprint(end)})
	g := &monitor.Generation{Online: []monitor.OnlineRelay{{URL: urlOf(1), Report: signed(t, ev)}}}
	s := serve(t, relay.Options{})
	s.Update(g)
	c := s.dial(t)
	seen := false
	eventually(t, "the event expires", func() bool {
		before := time.Now().Unix()
		n := len(c.query(`{"kinds":[30166]}`))
		after := time.Now().Unix()
		if n == 1 && before >= end {
			t.Errorf("served at %d, expired at %d", before, end)
		}
		if n == 0 && after < end {
			t.Errorf("gone at %d, expires at %d", after, end)
		}
		seen = seen || n == 1
		return n == 0
	})
	if !seen {
		t.Log("the machine was too slow to see it before its end")
	}
	c.send(`["COUNT","n",{"kinds":[30166]}]`)
	if m := c.next(); m.text != `["COUNT","n",{"count":0}]` {
		t.Error(m.text)
	}
}
