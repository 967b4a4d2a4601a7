package api

import (
	"math"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

type dnsFacts struct {
	Addresses []string `json:"addresses" nullable:"false"`
	IPv4      string   `json:"ipv4" enum:"unknown,none,answers,fails" doc:"none: the name has no address of that family. fails: no connection stood. unknown: not tried."`
	IPv6      string   `json:"ipv6" enum:"unknown,none,answers,fails"`
	LookedAt  *string  `json:"looked_at" format:"date-time"`
}

type capabilities struct {
	Auth       string  `json:"auth" enum:"unknown,confirmed,disproved" doc:"NIP-42: it sends a challenge."`
	Count      string  `json:"count" enum:"unknown,confirmed,disproved" doc:"NIP-45: it answers COUNT."`
	Search     string  `json:"search" enum:"unknown,confirmed,disproved" doc:"NIP-50: it honours or refuses a search."`
	Negentropy string  `json:"negentropy" enum:"unknown,confirmed,disproved" doc:"NIP-77: it answers NEG-OPEN."`
	EOSE       string  `json:"eose" enum:"unknown,confirmed,disproved" doc:"It ends what is stored with EOSE."`
	Filters    string  `json:"filters" enum:"unknown,confirmed,disproved" doc:"It sends nothing that was not asked for; what does may be no relay at all."`
	Limit      string  `json:"limit" enum:"unknown,confirmed,disproved" doc:"It sends no more than limit."`
	Until      string  `json:"until" enum:"unknown,confirmed,disproved" doc:"It sends nothing newer than until."`
	TestedAt   *string `json:"tested_at" format:"date-time"`
}

type writeTest struct {
	Result   string  `json:"result" enum:"accepted,refused,unknown" doc:"unknown: it did not answer."`
	Reason   *string `json:"reason" doc:"The relay's own."`
	TestedAt *string `json:"tested_at" format:"date-time"`
}

type geoFacts struct {
	Country      *string  `json:"country" doc:"ISO 3166-1 alpha-2." example:"DE"`
	Geohash      *string  `json:"geohash"`
	Latitude     *float64 `json:"latitude"`
	Longitude    *float64 `json:"longitude"`
	ASN          *uint32  `json:"asn" doc:"Number of the autonomous system."`
	Organization *string  `json:"organization" doc:"Whose that is."`
	Shared       *string  `json:"shared" doc:"Whose network it is, where the address stands for many places at once: a CDN's, or an anycast one's. There is no country then."`
	Attribution  *string  `json:"attribution" doc:"What the databases ask to be said."`
}

type provenance struct {
	Kinds     []int   `json:"kinds" nullable:"false" doc:"Of the events that name it."`
	Authors   int     `json:"authors" doc:"Distinct ones of them."`
	FirstSeen *string `json:"first_seen" format:"date-time" doc:"When discovery first found it named."`
	LastSeen  *string `json:"last_seen" format:"date-time"`
}

// tellFacts fills in what is known of a relay beside whether it answers.
func (b *relayBody) tellFacts(v *monitor.RelayView, now time.Time) {
	f := &v.Facts
	if t := f.TLS; t != nil {
		b.TLS = &tlsFacts{
			Version: t.Version, Issuer: t.Issuer, Names: append([]string{}, t.Names...), NotAfter: utcOrNull(t.NotAfter), LookedAt: utcOrNull(f.TLSAt),
		}
		if !t.NotAfter.IsZero() {
			days := int(math.Floor(t.NotAfter.Sub(now).Hours() / 24))
			b.TLS.DaysLeft = &days
		}
	}
	if d := f.DNS; d != nil {
		b.DNS = &dnsFacts{Addresses: make([]string, len(d.Addresses)), IPv4: d.IPv4.String(), IPv6: d.IPv6.String(), LookedAt: utcOrNull(f.DNSAt)}
		for i, addr := range d.Addresses {
			b.DNS.Addresses[i] = addr.String()
		}
	}
	if c := f.Capabilities; c != nil {
		b.Capabilities = &capabilities{
			Auth: c.Auth.String(), Count: c.Count.String(), Search: c.Search.String(), Negentropy: c.Negentropy.String(),
			EOSE: c.EOSE.String(), Filters: c.Filters.String(), Limit: c.Limit.String(), Until: c.Until.String(), TestedAt: utcOrNull(f.CapabilitiesAt),
		}
	}
	b.NIPsConfirmed = append(b.NIPsConfirmed, f.Capabilities.NIPs(monitor.FindingConfirmed)...)
	b.NIPsDisproved = append(b.NIPsDisproved, f.Capabilities.NIPs(monitor.FindingDisproved)...)
	if w := f.Write; w != nil && w.Result != monitor.WriteNone {
		b.Write = &writeTest{Result: w.Result.String(), Reason: orNull(w.Reason), TestedAt: utcOrNull(f.WriteAt)}
	}
	b.Warnings = append(b.Warnings, f.Warnings(v.Info, now)...)
}

// tellRelatives fills in where a relay was named, and which other URLs are it.
func (b *relayBody) tellRelatives(v *monitor.RelayView) {
	if p := v.Provenance; p != nil {
		b.Provenance = &provenance{Kinds: append([]int{}, p.Kinds...), Authors: p.Authors, FirstSeen: utcOrNull(p.FirstSeen), LastSeen: utcOrNull(p.LastSeen)}
	}
	for _, u := range slices.Sorted(slices.Values(v.Aliases)) {
		b.Aliases = append(b.Aliases, string(u))
	}
	b.AliasOf, b.Twin = orNull(string(v.AliasOf)), orNull(string(v.Twin))
}

// newGeoFacts is nil where nothing is known.
func newGeoFacts(p *monitor.Place, attribution string) *geoFacts {
	if *p == (monitor.Place{}) {
		return nil
	}
	g := &geoFacts{
		Country: orNull(p.Country), Geohash: orNull(p.Geohash), ASN: orNull(p.ASN), Organization: orNull(p.Organization),
		Shared: orNull(p.Shared), Attribution: orNull(attribution),
	}
	if p.Located {
		g.Latitude, g.Longitude = &p.Latitude, &p.Longitude
	}
	return g
}
