package main

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// remoteView is what the core tells of a relay, by vantage.
type remoteView struct {
	State    string `json:"state"`
	Quorum   string `json:"quorum"`
	Vantages []remoteVote
}

type remoteVote struct {
	Name string `json:"vantage"`
	Vote string
}

// Two vantages on other machines and a core without any of its own: from the
// invitation over a verdict of both to a restart and a revocation.
func TestVantagesOnOtherMachines(t *testing.T) {
	relays := relaytest.StartMany(t, 4, relaytest.Options{})
	c := fastConfig(t, relays...)
	c.Vantages = nil
	c.Probe.Interval = Duration(4 * time.Second) // batches come every 5 s, and count for 2.5 intervals
	dir := dataDir(t)
	s := start(t, c, dir)
	c.Listen = s.listener.Addr().String() // where it comes back
	steer := func(args ...string) result {
		t.Helper()
		return pharos(t, "", nil, append([]string{"--config", "testdata/config/good/empty.yaml", "--listen", c.Listen, "--data-dir", dir, "vantages"}, args...)...)
	}
	view := func(r *relaytest.Relay) (v remoteView) {
		get(t, s.URL()+"/v1/relay?url="+string(r.URL()), &v)
		return v
	}

	vantages := map[string]*runningVantage{}
	for name, source := range map[string]string{"one": "127.77.1.1", "two": "127.77.1.2"} {
		got := steer("invite", name, "--json")
		var invited invitedVantage
		if err := json.Unmarshal([]byte(got.stdout), &invited); got.status != 0 || err != nil || !strings.Contains(invited.Command, "pharos vantage --core "+s.URL()+" --token "+invited.Token) {
			t.Fatalf("invite: %+v", got)
		}
		command := strings.Fields(invited.Command)[1:]
		vantages[name] = startVantage(t, []string{"PHAROS_VANTAGES=[{name: " + name + ", source_address: " + source + "}]"},
			append([]string{"--data-dir", t.TempDir()}, command...)...)
	}
	s.waitFor(t, urlsOf(relays...))
	s.waitUntil(t, "both to vote on every relay", func() bool {
		return !slices.ContainsFunc(relays, func(r *relaytest.Relay) bool {
			v := view(r)
			return len(v.Vantages) != 2 || v.Vantages[0].Vote != "up" || v.Vantages[1].Vote != "up"
		})
	})

	t.Cleanup(func() {
		for name, v := range vantages {
			if t.Failed() {
				t.Logf("vantage %s:\n%s", name, v.out)
			}
		}
	})

	// One is cut off from every relay: nothing leaves.
	for _, r := range relays {
		r.CutOff(netip.MustParseAddr("127.77.1.2"))
	}
	s.waitUntil(t, "the second to see a relay down", func() bool {
		// It only suspects: nothing there corroborates it.
		return slices.Contains(view(relays[0]).Vantages, remoteVote{"two", "suspect"})
	})
	if v := view(relays[0]); v.State != "online" {
		t.Errorf("one vantage alone took a relay to %s", v.State)
	}
	for _, r := range relays {
		r.CutOff(netip.Addr{})
	}
	s.waitUntil(t, "both to agree again", func() bool { v := view(relays[0]); return v.Quorum == "2/2" })

	// A relay that is down for both goes, by both.
	relays[3].Stop()
	s.waitFor(t, urlsOf(relays[:3]...))
	if v := view(relays[3]); v.State != "offline" || v.Quorum != "2/2" {
		t.Errorf("the stopped relay is %s by %s, want offline by 2/2", v.State, v.Quorum)
	}

	// The core is away for a while: the vantages go on, and are known at once.
	s.stop(t)
	s = start(t, c, dir)
	s.waitFor(t, urlsOf(relays[:3]...))
	s.waitUntil(t, "the vantages to be back", func() bool { v := view(relays[0]); return v.Quorum == "2/2" })

	listed := steer("list")
	if listed.status != 0 || strings.Count(listed.stdout, "yes") != 2 || strings.Count(listed.stdout, "on another machine") != 2 {
		t.Errorf("list: %+v", listed)
	}
	if got := steer("revoke", "two"); got.status != 0 || got.stdout != "two: revoked\n" {
		t.Errorf("revoke: %+v", got)
	}
	if v := view(relays[0]); len(v.Vantages) != 1 || v.Vantages[0].Name != "one" {
		t.Errorf("after the revocation %+v vote", v.Vantages)
	}
	if status := vantages["two"].wait(); status != exitBad || !strings.Contains(vantages["two"].out.String(), "revoked") {
		t.Errorf("the revoked vantage ends with %d\n%s", status, vantages["two"].out)
	}
	if got := steer("revoke", "nobody"); got.status != exitBad || !strings.Contains(got.stderr, "no vantage on another machine has this name") {
		t.Errorf("revoke nobody: %+v", got)
	}
	if got := steer("list", "--json"); got.status != 0 || !strings.Contains(got.stdout, `"revoked":true`) {
		t.Errorf("list --json: %+v", got)
	}
	if got := steer("invite", "three", "--group", "hetzner"); got.status != 0 || !strings.Contains(got.stdout, "\n    pharos vantage --core "+s.URL()+" --token ") || !strings.Contains(got.stderr, "this machine alone") {
		t.Errorf("invite: %+v", got)
	}
	if got := steer("list"); !strings.Contains(got.stdout, "invited") || !strings.Contains(got.stdout, "revoked") {
		t.Errorf("list: %+v", got)
	}
	if status := vantages["one"].end(); status != exitFine {
		t.Errorf("the first vantage ends with %d\n%s", status, vantages["one"].out)
	}
}

// A name of the configuration's is not given to another machine.
func TestOwnNamesAreNotGivenAway(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{})
	c := fastConfig(t, relay)
	c.Vantages = []Vantage{{Name: "local"}}
	dir := dataDir(t)
	s := start(t, c, dir)
	listen := s.listener.Addr().String()
	got := pharos(t, "", nil, "--config", "testdata/config/good/empty.yaml", "--listen", listen, "--data-dir", dir, "vantages", "invite", "local")
	if got.status != exitBad || !strings.Contains(got.stderr, "local is the name of a vantage of this process") {
		t.Errorf("invite local: %+v", got)
	}
}
