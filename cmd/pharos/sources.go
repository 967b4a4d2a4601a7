package main

import "github.com/pharos-nostr/pharos/monitor"

// defaultSources are asked where discovery.sources says default: relays of
// different operators that many people keep their relay lists on, and two on
// which other monitors publish.
var defaultSources = []string{
	"wss://purplepag.es/",
	"wss://relay.damus.io/",
	"wss://nos.lol/",
	"wss://relay.primal.net/",
	"wss://relay.nostr.band/",
	"wss://nostr.wine/",
	"wss://relay.nostr.watch/",
	"wss://relaypag.es/",
}

// sources are the relays that discovery asks.
func (c *Config) sources() []monitor.RelayURL {
	texts := c.Discovery.Sources.List
	if c.Discovery.Sources.Default {
		texts = defaultSources
	}
	var out []monitor.RelayURL
	for _, s := range texts {
		if u, err := monitor.ParseRelayURL(s, c.Probe.AllowNetworks...); err == nil { // validated
			out = append(out, u)
		}
	}
	return out
}
