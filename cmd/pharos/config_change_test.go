package main

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChangedKeys(t *testing.T) {
	a, b := Default(), Default()
	// The same, written otherwise.
	a.Relays, b.Relays = nil, []string{}
	a.SelfCheck.Canaries, b.SelfCheck.Canaries = Builtin{}, Builtin{List: []string{}}
	if got := a.changedKeys(&b); got != nil {
		t.Errorf("nothing changed, but %v", got)
	}
	b.Listen = "127.0.0.1:1"
	b.Database.URL = "postgres://u:hunter2@h/d"
	b.Relays = []string{"wss://relay.example.com"}
	b.Probe.Timeouts.Read = Duration(time.Second)
	b.Probe.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	b.Networks.Tor.Concurrency = 1
	b.SelfCheck.Canaries = Builtin{Default: true}
	b.Vantages = []Vantage{{Name: "local", SourceAddress: netip.MustParseAddr("192.0.2.1")}}
	b.Retention.MinFreeDisk = 0
	want := []string{
		"listen", "database.url", "relays", "probe.timeouts.read", "probe.allow_networks", "networks.tor.concurrency",
		"self_check.canaries", "vantages", "retention.min_free_disk",
	}
	if diff := cmp.Diff(want, a.changedKeys(&b)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, b.changedKeys(&a)); diff != "" {
		t.Errorf("changed back (-want +got):\n%s", diff)
	}
	// A secret that changed is told by its key alone.
	c := b
	c.Database.URL = "postgres://u:hunter3@h/d"
	if got := b.changedKeys(&c); !slices.Equal(got, []string{"database.url"}) {
		t.Errorf("another password: %v", got)
	}
}

// A new key is in neither list until somebody says whether it can be changed
// while the process runs.
func TestEveryKeyKnowsWhetherItNeedsARestart(t *testing.T) {
	running := []string{
		"public_url", "trusted_proxies", "name", "contact", "relays", "relay_files", "exclude", "discovery", "probe", "self_check",
		"liveness", "corroboration", "live", "publish", "limits", "operators", "geo", "retention", "alerts",
	}
	sections := reflect.TypeFor[Config]()
	known := map[string]bool{}
	for i := range sections.NumField() {
		key := sections.Field(i).Tag.Get("yaml")
		known[key] = true
		if slices.Contains(running, key) == slices.Contains(restartKeys, key) {
			t.Errorf("%s is in both lists or in none", key)
		}
	}
	for _, key := range slices.Concat(running, restartKeys) {
		if !known[key] {
			t.Errorf("there is no key %s", key)
		}
	}
	for key, want := range map[string]bool{
		"data_dir": true, "database.url": true, "database.backup_dir": true, "key.file": true, "vantages": true, "networks.tor.proxy": true,
		"database_url": false, "listening": false, "probe.interval": false, "keys": false,
	} {
		if needsRestart(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}

// The example says of a key that it needs a restart, beside it or above it in
// its paragraph, exactly where that is so.
func TestExampleMarksRestarts(t *testing.T) {
	const file = "../../deploy/pharos.example.yaml"
	l, err := loadConfig(file, nil, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	leaves(reflect.ValueOf(Default()), "", func(key string, _ reflect.Value) {
		paragraph := ""
		for i := l.origins[key].line - 1; i >= 0 && lines[i] != ""; i-- {
			paragraph += lines[i] + "\n"
		}
		if marked := strings.Contains(paragraph, "[restart]"); marked != needsRestart(key) {
			t.Errorf("%s: marked %v, needs a restart %v", key, marked, needsRestart(key))
		}
	})
}
