package api_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// How many days a certificate has left, and what is warned of.
func TestCertificateDays(t *testing.T) {
	const day = 24 * time.Hour
	for left, want := range map[time.Duration]int{
		60 * day: 60, 14 * day: 14, 14*day - time.Second: 13, day - time.Second: 0, 0: 0, -time.Second: -1, -day: -1, -day - time.Second: -2,
	} {
		run(t, func(b *bench) {
			v := relayView("wss://a.example/", b.now)
			v.Facts = monitor.Facts{TLS: &monitor.TLSFacts{NotAfter: b.now.Add(left)}}
			b.core.view = func(monitor.RelayURL) monitor.RelayView { return v }
			var got struct {
				TLS struct {
					DaysLeft *int `json:"days_left"`
				}
				Warnings []string
			}
			if err := json.Unmarshal(b.get("/v1/relay?url=wss://a.example").Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			if got.TLS.DaysLeft == nil || *got.TLS.DaysLeft != want || (len(got.Warnings) == 1) != (left < 14*day) {
				b.Errorf("%s: %v, %q", left, got.TLS.DaysLeft, got.Warnings)
			}
		})
	}
}

// A place is told as far as it is known: a country without coordinates has
// none, and a relay of which nothing is known has no place at all.
func TestRelayPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		place monitor.Place
		want  map[string]any
	}{
		"unknown": {monitor.Place{}, nil},
		"country": {monitor.Place{Country: "DE"}, map[string]any{"country": "DE"}},
		"equator": {monitor.Place{Country: "EC", Located: true, Longitude: -78}, map[string]any{"country": "EC", "latitude": 0.0, "longitude": -78.0}},
		"shared":  {monitor.Place{ASN: 13335, Shared: "Cloudflare"}, map[string]any{"asn": 13335.0, "shared": "Cloudflare"}},
	} {
		run(t, func(b *bench) {
			b.fixtures()
			v := relayView("wss://a.example/", b.now)
			v.Place = tc.place
			b.core.view = func(monitor.RelayURL) monitor.RelayView { return v }
			var got struct{ Geo map[string]any }
			if err := json.Unmarshal(b.get("/v1/relay?url=wss://a.example").Body.Bytes(), &got); err != nil {
				b.Fatal(err)
			}
			if tc.want != nil {
				for _, field := range []string{"country", "geohash", "latitude", "longitude", "asn", "organization", "shared"} {
					if _, ok := tc.want[field]; !ok {
						tc.want[field] = nil
					}
				}
				tc.want["attribution"] = "IP geolocation by Example"
			}
			if d := cmp.Diff(tc.want, got.Geo); d != "" {
				b.Errorf("%s (-want +got):\n%s", name, d)
			}
		})
	}
}
