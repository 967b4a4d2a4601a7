package engine_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

var (
	berlin  = monitor.Place{Country: "DE", Geohash: "u33", Latitude: 52.5, Longitude: 13.4, Located: true, ASN: 1, Organization: "One"}
	hamburg = monitor.Place{Country: "DE", Geohash: "u1x", Latitude: 53.5, Longitude: 10, Located: true, ASN: 1, Organization: "One"}
	paris   = monitor.Place{Country: "FR", Geohash: "u09", Latitude: 48.8, Longitude: 2.3, Located: true, ASN: 1, Organization: "One"}
	lyon    = monitor.Place{Country: "FR", ASN: 2, Organization: "Two"}
	cdn     = monitor.Place{ASN: 3, Organization: "Three", Shared: "Three"}
)

// Public addresses, by their last number.
func ip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{8, 8, 8, n}) }

func at(places map[netip.Addr]monitor.Place) func(netip.Addr) monitor.Place {
	return func(a netip.Addr) monitor.Place { return places[a] }
}

func TestPlaces(t *testing.T) {
	places := map[netip.Addr]monitor.Place{ip(1): berlin, ip(2): hamburg, ip(3): paris, ip(4): lyon, ip(5): cdn, netip.MustParseAddr("10.0.0.1"): berlin}
	for _, tc := range []struct {
		name  string
		addrs []string // that each vantage used
		want  monitor.Place
	}{
		{"one address", []string{"8.8.8.1"}, berlin},
		{"the same from all", []string{"8.8.8.1", "8.8.8.1", "8.8.8.1"}, berlin},
		{"an IPv4 address in IPv6", []string{"::ffff:8.8.8.1"}, berlin},
		{"two cities", []string{"8.8.8.1", "8.8.8.2"}, monitor.Place{Country: "DE", ASN: 1, Organization: "One"}},
		{"two countries", []string{"8.8.8.1", "8.8.8.3"}, monitor.Place{ASN: 1, Organization: "One"}},
		{"two countries, and once more the first", []string{"8.8.8.1", "8.8.8.3", "8.8.8.2"}, monitor.Place{ASN: 1, Organization: "One"}},
		{"two countries and networks", []string{"8.8.8.1", "8.8.8.4"}, monitor.Place{}},
		{"two networks of a country", []string{"8.8.8.3", "8.8.8.4"}, monitor.Place{Country: "FR", Geohash: "u09", Latitude: 48.8, Longitude: 2.3, Located: true}},
		{"one that is not known", []string{"8.8.8.9", "8.8.8.1"}, monitor.Place{Country: "DE", Geohash: "u33", Latitude: 52.5, Longitude: 13.4, Located: true}},
		{"a CDN", []string{"8.8.8.5"}, cdn},
		{"a CDN for some", []string{"8.8.8.1", "8.8.8.5"}, monitor.Place{Shared: "Three"}},
		{"private", []string{"10.0.0.1"}, monitor.Place{}},
		{"none", []string{""}, monitor.Place{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := []string{"a", "b", "c"}[:len(tc.addrs)]
			inWorld(t, 2, names, func(t *testing.T, w *world) {
				w.cfg.Locate = at(places)
				w.restart()
				for i, a := range tc.addrs {
					if a == "" {
						continue
					}
					w.vantages[i].tells = func(o *monitor.Observation) {
						if o.Relay == url(0) {
							o.Address = netip.AddrPortFrom(netip.MustParseAddr(a), 443)
						}
					}
				}
				w.run(3 * time.Minute)
				if d := cmp.Diff(tc.want, w.engine.RelayView(url(0)).Place); d != "" {
					t.Errorf("-want +got\n%s", d)
				}
				if p := w.engine.RelayView(url(1)).Place; p != (monitor.Place{}) {
					t.Errorf("another relay stands at %+v", p)
				}
				o := w.engine.Generation().Online[0]
				if o.Country != tc.want.Country || o.Located != tc.want.Located || o.Latitude != tc.want.Latitude || o.Longitude != tc.want.Longitude {
					t.Errorf("listed at %q %v %v", o.Country, o.Latitude, o.Longitude)
				}
				if s := w.pub.shown[url(0)]; s.Country != tc.want.Country || s.Geohash != tc.want.Geohash {
					t.Errorf("reported at %q %q", s.Country, s.Geohash)
				}
			})
		})
	}
}

// A place follows the address, new databases and the vantages that count; a
// failure moves nothing, and an onion stands nowhere.
func TestPlacesFollow(t *testing.T) {
	onion := monitor.RelayURL("ws://" + strings.Repeat("a", 56) + ".onion/")
	inWorld(t, 2, []string{"a"}, func(t *testing.T, w *world) {
		places := map[netip.Addr]monitor.Place{ip(1): berlin, ip(3): paris}
		asked := 0
		w.cfg.Locate = func(a netip.Addr) monitor.Place { asked++; return places[a] }
		w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: onion, Source: monitor.SourceConfig, FirstSeen: time.Now()})
		w.cfg.Vantages[0].Networks = append(w.cfg.Vantages[0].Networks, monitor.Tor)
		w.restart()
		b := w.enrol("b", "b", "key-b")
		addr := ip(1)
		w.vantages[0].tells = func(o *monitor.Observation) { o.Address = netip.AddrPortFrom(addr, 443) }
		b.tells = w.vantages[0].tells
		country := func(u monitor.RelayURL) string { return w.engine.RelayView(u).Place.Country }
		w.run(2 * time.Minute)
		if country(url(0)) != "DE" || country(onion) != "" {
			t.Fatalf("in %q, the onion in %q", country(url(0)), country(onion))
		}
		n := asked
		w.run(5 * time.Minute)
		if asked != n {
			t.Errorf("asked %d times for addresses that stayed", asked-n)
		}
		w.vantages[0].sees, b.sees, addr = down, down, ip(3)
		w.run(20 * time.Second)
		if country(url(0)) != "DE" {
			t.Errorf("a failed connection moved it to %q", country(url(0)))
		}
		w.vantages[0].sees, b.sees = up, up
		w.run(2 * time.Minute)
		if country(url(0)) != "FR" {
			t.Errorf("it moved, and is in %q", country(url(0)))
		}
		// b sees another machine: in two countries it is in none, until b is gone.
		b.tells = func(o *monitor.Observation) { o.Address = netip.AddrPortFrom(ip(1), 443) }
		w.run(2 * time.Minute)
		if country(url(0)) != "" {
			t.Errorf("in two countries, and in %q", country(url(0)))
		}
		if err := w.engine.Revoke(t.Context(), "b", ""); err != nil {
			t.Fatal(err)
		}
		w.leave("b")
		if country(url(0)) != "FR" {
			t.Errorf("as the one that is left sees it, and in %q", country(url(0)))
		}
		places[ip(3)] = lyon
		w.engine.Relocate()
		w.run(2 * time.Second)
		if got := w.engine.RelayView(url(0)).Place; got != lyon || w.pub.shown[url(0)].Geohash != "" {
			t.Errorf("by the new databases %+v, reported %+v", got, w.pub.shown[url(0)])
		}
		// Twice within a minute, in which all reports are looked through but once.
		for _, p := range []monitor.Place{paris, lyon, paris} {
			places[ip(3)] = p
			w.engine.Relocate()
			w.run(2 * time.Second)
			if s, _ := w.pub.last(url(0)); s.Geohash != p.Geohash {
				t.Errorf("reported at %q, and is at %q", s.Geohash, p.Geohash)
			}
		}
		w.configure(t) // which keeps the databases
		addr = ip(1)
		w.run(2 * time.Minute)
		if country(url(0)) != "DE" {
			t.Errorf("after another configuration in %q", country(url(0)))
		}
	})
}
