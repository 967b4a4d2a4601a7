package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/pharos-nostr/pharos/probe"
)

// guest holds the permits that keep a check from crowding one host: so many
// connections per address and per /24 or /48 (probe.md, Being a good guest).
type guest struct {
	perIP, perSubnet int
	mu               sync.Mutex
	open             map[netip.Prefix]int
	freed            chan struct{} // closed and replaced when a permit comes back
}

func newGuest(perIP, perSubnet int) *guest {
	return &guest{perIP: perIP, perSubnet: perSubnet, open: map[netip.Prefix]int{}, freed: make(chan struct{})}
}

// admit waits for a permit for addr, as probe.Request.Admit has it; ctx bounds
// the wait.
func (g *guest) admit(ctx context.Context, addr netip.Addr) (release func(), ok bool) {
	host, subnet := netip.PrefixFrom(addr, addr.BitLen()), probe.Subnet(addr)
	for {
		g.mu.Lock()
		if g.open[host] < g.perIP && g.open[subnet] < g.perSubnet {
			g.open[host]++
			g.open[subnet]++
			g.mu.Unlock()
			return func() { g.release(host, subnet) }, true
		}
		freed := g.freed
		g.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (g *guest) release(prefixes ...netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range prefixes {
		if g.open[p]--; g.open[p] == 0 {
			delete(g.open, p)
		}
	}
	close(g.freed)
	g.freed = make(chan struct{})
}
