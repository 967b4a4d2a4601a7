package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func checkEnviron(t *testing.T) []string {
	return []string{"PHAROS_PROBE_ALLOW_NETWORKS=127.0.0.0/8", "PHAROS_PROBE_TLS_CA_FILE=" + relaytest.CAFile(t), "PHAROS_CONFIG=testdata/config/good/empty.yaml"}
}

func TestCheckTable(t *testing.T) {
	ok := relaytest.Start(t, relaytest.Options{TLS: true})
	refused := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.AuthRequired})
	down := relaytest.Start(t, relaytest.Options{})
	down.Stop()

	got := pharos(t, string(refused.URL())+"\n", checkEnviron(t), "check", string(ok.URL()), "-")
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("ok and refused: %+v", got)
	}
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "RELAY") {
		t.Fatalf("the table is\n%s", got.stdout)
	}
	column := strings.Index(lines[0], "OUTCOME")
	for _, l := range lines[1:] {
		if word := strings.Fields(l[column:])[0]; word != "ok" && word != "refused" {
			t.Errorf("not aligned: %q", l)
		}
	}
	if !strings.Contains(got.stdout, "auth_required") {
		t.Errorf("the table lacks the cause:\n%s", got.stdout)
	}

	got = pharos(t, "", checkEnviron(t), "check", string(ok.URL()), string(down.URL()))
	if got.status != 1 || !strings.Contains(got.stderr, "1 of 2 relays are not ok") || !strings.Contains(got.stdout, "failed") {
		t.Errorf("one down: %+v", got)
	}
}

func TestCheckJSON(t *testing.T) {
	relay := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.NoEOSE})
	got := pharos(t, "", append(checkEnviron(t), "PHAROS_PROBE_TIMEOUTS_READ=500ms"), "check", "--json", string(relay.URL()))
	if got.status != 0 || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%+v", got)
	}
	var r struct {
		URL, Outcome, Stage, Cause, Evidence, Note string
		RTTOpen                                    int64            `json:"rtt_open_ms"`
		RTTRead                                    int64            `json:"rtt_read_ms"`
		Stages                                     map[string]int64 `json:"stages"`
		Info                                       map[string]any   `json:"info"`
		TLS                                        map[string]any   `json:"tls"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.URL != string(relay.URL()) || r.Outcome != "ok" || r.Stage != "read" || r.Cause != "" || r.Evidence == "" || r.Note != "no_eose" {
		t.Errorf("got %+v", r)
	}
	if r.RTTOpen < 1 || r.RTTRead < 1 || r.Stages["tcp"] < 1 || r.Stages["upgrade"] < 1 || r.TLS["not_after"] == nil || r.Info["name"] == nil {
		t.Errorf("got %+v", r)
	}
}

// What a relay says reaches no terminal as control characters.
func TestPrintable(t *testing.T) {
	if got := printable("bad\x1b[31m\u202ename\n"); got != "bad[31mname" {
		t.Errorf("got %q", got)
	}
}

// Permits bound the connections to one address and one subnet.
func TestGuest(t *testing.T) {
	a, b, other := mustAddr("192.0.2.1"), mustAddr("192.0.2.2"), mustAddr("198.51.100.1")
	g := newGuest(1, 2)
	ctx := t.Context()
	releaseA, ok := g.admit(ctx, a)
	if !ok {
		t.Fatal("the first is not admitted")
	}
	if _, ok := g.admit(ctx, b); !ok {
		t.Fatal("a second address of the subnet is not admitted")
	}
	if _, ok := g.admit(ctx, other); !ok {
		t.Fatal("another subnet is not admitted")
	}
	// Whoever is not admitted waits, here no longer than an ended context.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, ok := g.admit(ended, a); ok {
		t.Error("a second connection to one address is admitted")
	}
	if _, ok := g.admit(ended, mustAddr("192.0.2.3")); ok {
		t.Error("a third connection into one subnet is admitted")
	}
	admitted := make(chan bool, 1)
	go func() {
		_, ok := g.admit(ctx, a)
		admitted <- ok
	}()
	releaseA()
	if !<-admitted {
		t.Error("not admitted after a release")
	}
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
