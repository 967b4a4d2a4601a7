package engine

import (
	"net/netip"
	"slices"

	"github.com/pharos-nostr/pharos/monitor"
)

// located is where an observation says that its relay answers, in a form that a
// place can be told of: not of an overlay network's, nor of a private one.
func located(o *monitor.Observation) netip.Addr {
	a := o.Address.Addr().WithZone("").Unmap()
	if o.Relay.Network() != monitor.Clearnet || !monitor.PublicAddress(a) {
		return netip.Addr{}
	}
	return a
}

// place works out where a relay stands, by all addresses at which vantages
// reached it. Its caller holds mu.
func (e *Engine) place(r *relay, locate func(netip.Addr) monitor.Place) {
	var room [8]netip.Addr
	addrs := room[:0]
	for i := range r.seen {
		if a := r.seen[i].Address; a.IsValid() && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return // what was known stays until it is reached again
	}
	var buf [8]monitor.Place
	places := buf[:0]
	for _, a := range addrs {
		places = append(places, locate(a))
	}
	next := common(places)
	old := r.whereabouts()
	if next == old {
		return
	}
	if next.Country != old.Country || next.Geohash != old.Geohash {
		r.unsaid = true
	}
	r.place = nil
	if next != (monitor.Place{}) {
		r.place = e.places[next]
		if r.place == nil {
			r.place = &next
			e.places[next] = r.place
		}
	}
}

// whereabouts is where the relay stands, as far as it is known.
func (r *relay) whereabouts() monitor.Place {
	if r.place == nil {
		return monitor.Place{}
	}
	return *r.place
}

// common is what holds for all addresses of one relay. That one is not known
// contradicts nothing; in two countries it is in none.
func common(places []monitor.Place) monitor.Place {
	out := places[0]
	apart, scattered := false, false
	for _, p := range places[1:] {
		if p.ASN != out.ASN {
			out.ASN, out.Organization = 0, ""
		}
		if out.Shared == "" {
			out.Shared = p.Shared
		}
		apart = apart || out.Country != "" && p.Country != "" && out.Country != p.Country
		if out.Country == "" {
			out.Country = p.Country
		}
		switch {
		case !out.Located:
			out.Located, out.Latitude, out.Longitude, out.Geohash = p.Located, p.Latitude, p.Longitude, p.Geohash
		case p.Located && (p.Latitude != out.Latitude || p.Longitude != out.Longitude):
			scattered = true
		}
	}
	switch {
	case apart || out.Shared != "":
		return nowhere(out)
	case scattered:
		out.Located, out.Latitude, out.Longitude, out.Geohash = false, 0, 0, ""
	}
	return out
}

// nowhere is p without a place on the map.
func nowhere(p monitor.Place) monitor.Place {
	return monitor.Place{ASN: p.ASN, Organization: p.Organization, Shared: p.Shared}
}

// Relocate works out anew where every relay stands: the databases behind
// Config.Locate have changed. Readers see it with the next generation.
func (e *Engine) Relocate() {
	e.mu.RLock()
	locate := e.cfg.Locate
	known := map[netip.Addr]monitor.Place{}
	for _, r := range e.relays {
		for i := range r.seen {
			if a := r.seen[i].Address; a.IsValid() {
				known[a] = monitor.Place{}
			}
		}
	}
	e.mu.RUnlock()
	if locate == nil {
		return
	}
	for a := range known { // without the lock: there may be many
		known[a] = locate(a)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.places)
	for _, r := range e.relays {
		e.place(r, func(a netip.Addr) monitor.Place {
			p, ok := known[a]
			if !ok {
				p = locate(a)
			}
			return p
		})
	}
	e.log.Info("places worked out anew", "addresses", len(known))
}
