package main

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// One monitor's reports are another one's source: what they name is watched,
// first as a candidate, and the answer tells who named it.
func TestDiscoversWhatAnotherMonitorReports(t *testing.T) {
	relays := relaytest.StartMany(t, 4, relaytest.Options{})
	first := start(t, fastConfig(t, relays[:3]...), dataDir(t))
	first.waitFor(t, urlsOf(relays[:3]...))

	c := fastConfig(t, relays[3])
	c.Discovery.Enabled = true
	c.Discovery.Sources = Builtin{List: []string{first.relayURL()}}
	c.Discovery.Kinds = []int{30166} // it has a relay list too, which names itself
	c.Discovery.Interval = Duration(time.Minute)
	second := start(t, c, dataDir(t))
	second.waitFor(t, urlsOf(relays...))

	var relay struct {
		Source     string `json:"source"`
		Candidate  bool   `json:"candidate"`
		Provenance struct {
			Kinds   []int `json:"kinds"`
			Authors int   `json:"authors"`
		} `json:"provenance"`
	}
	get(t, second.URL()+"/v1/relay?url="+string(relays[0].URL()), &relay)
	if p := relay.Provenance; relay.Source != "discovery" || relay.Candidate || !slices.Equal(p.Kinds, []int{30166}) || p.Authors != 1 {
		t.Errorf("what is told of a discovered relay: %+v", relay)
	}
	var status struct {
		Discovery struct {
			Found, Watched, Waiting int
			Sources                 []struct {
				URL     string  `json:"url"`
				Events  int     `json:"events"`
				Problem *string `json:"problem"`
			} `json:"sources"`
		} `json:"discovery"`
	}
	if code := get(t, second.URL()+"/v1/status", &status); code != http.StatusOK {
		t.Fatal(code)
	}
	d := status.Discovery
	if d.Found != 3 || d.Watched != 3 || d.Waiting != 0 || len(d.Sources) != 1 || d.Sources[0].Events != 3 || d.Sources[0].Problem != nil {
		t.Errorf("the sweep: %+v", d)
	}
}
