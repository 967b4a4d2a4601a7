package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// vantageKeys is the directory, within the data directory, of the keys of this
// process's vantages: they sign what a probe sends to relays (probe.write,
// probe.auth), and never a report.
const vantageKeys = "vantages"

// needsKey reports whether probes sign anything.
func (c *Config) needsKey() bool { return c.Probe.Write || c.Probe.Auth }

// vantageKey reads the key of a vantage of this process, or makes it at first
// need.
func (a *App) vantageKey(name string) (nostr.Key, error) {
	dir := filepath.Join(a.dir, vantageKeys)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nostr.Key{}, exitf(exitStart, "%s cannot be made: %s", dir, reason(err))
	}
	return loadOrCreateKey(filepath.Join(dir, name+".key"))
}

// openVantageKey reads the own key of a vantage without a core in its process,
// or makes it at the first start.
func openVantageKey(dir string) (nostr.Key, error) {
	return loadOrCreateKey(filepath.Join(dir, "vantage.key"))
}

func loadOrCreateKey(file string) (nostr.Key, error) {
	key, err := nostr.LoadKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = nostr.CreateKey(file)
	}
	if err != nil {
		return nostr.Key{}, keyError(file, err)
	}
	return key, nil
}
