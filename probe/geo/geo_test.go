package geo_test

import (
	"bytes"
	"compress/gzip"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/geo"
)

// record is a map of a database.
type record = mmdbtype.Map

// database makes an .mmdb with these records, by network.
func database(t testing.TB, kind string, records map[string]record) []byte {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, RecordSize: 24})
	if err != nil {
		t.Fatal(err)
	}
	for network, r := range records {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(n, r); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := tree.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// write puts data into a file of that name in a directory of the test's.
func write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replace puts another file in the place of path, as an updater does.
func replace(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.Rename(write(t, filepath.Dir(path), "new", data), path); err != nil {
		t.Fatal(err)
	}
}

// place is a record of MaxMind's City.
func place(country string, latitude, longitude float64, more ...record) record {
	r := record{
		"continent": record{"code": mmdbtype.String("EU")},
		"country":   record{"iso_code": mmdbtype.String(country), "names": record{"en": mmdbtype.String("Somewhere")}},
		"location":  record{"latitude": mmdbtype.Float64(latitude), "longitude": mmdbtype.Float64(longitude)},
	}
	for _, m := range more {
		for k, v := range m {
			r[k] = v
		}
	}
	return r
}

func system(number uint32, name string) record {
	return record{"autonomous_system_number": mmdbtype.Uint32(number), "autonomous_system_organization": mmdbtype.String(name)}
}

var (
	berlin   = monitor.Place{Country: "DE", Geohash: "u33dc", Latitude: 52.52, Longitude: 13.405, Located: true}
	aMachine = netip.MustParseAddr("81.2.69.160")
)

// with is p in another system.
func with(p monitor.Place, asn uint32, organization string) monitor.Place {
	p.ASN, p.Organization = asn, organization
	return p
}

// What each layout of a record comes to.
func TestLayouts(t *testing.T) {
	text := func(s string) mmdbtype.String { return mmdbtype.String(s) }
	at := func(latitude, longitude float64, radius uint16) record {
		return record{"location": record{
			"latitude": mmdbtype.Float64(latitude), "longitude": mmdbtype.Float64(longitude), "accuracy_radius": mmdbtype.Uint16(radius),
		}}
	}
	for name, tc := range map[string]struct {
		city, asn record
		want      monitor.Place
	}{
		"MaxMind City":          {city: place("DE", 52.52, 13.405), want: berlin},
		"MaxMind Country":       {city: record{"country": record{"iso_code": text("DE")}}, want: monitor.Place{Country: "DE"}},
		"MaxMind ASN":           {asn: system(24940, "Hetzner Online GmbH"), want: monitor.Place{ASN: 24940, Organization: "Hetzner Online GmbH"}},
		"both":                  {place("DE", 52.52, 13.405), system(24940, "Hetzner"), with(berlin, 24940, "Hetzner")},
		"MaxMind Enterprise":    {city: place("DE", 52.52, 13.405, record{"traits": record{"autonomous_system_number": mmdbtype.Uint32(24940), "autonomous_system_organization": text("Hetzner")}}), want: with(berlin, 24940, "Hetzner")},
		"DB-IP City Lite":       {city: record{"country": record{"iso_code": text("DE")}, "city": record{"names": record{"en": text("Berlin")}}, "location": record{"latitude": mmdbtype.Float32(52.5), "longitude": mmdbtype.Float32(13.5)}}, want: monitor.Place{Country: "DE", Geohash: "u33de", Latitude: 52.5, Longitude: 13.5, Located: true}},
		"IPinfo Lite":           {city: record{"asn": text("AS24940"), "as_name": text("Hetzner Online GmbH"), "as_domain": text("hetzner.com"), "country": text("Germany"), "country_code": text("DE")}, want: with(monitor.Place{Country: "DE"}, 24940, "Hetzner Online GmbH")},
		"IPinfo Lite, as ASNs":  {asn: record{"asn": text("AS24940"), "as_name": text("Hetzner Online GmbH"), "country_code": text("DE")}, want: with(monitor.Place{}, 24940, "Hetzner Online GmbH")},
		"IPinfo Country":        {city: record{"country": text("DE"), "country_name": text("Germany")}, want: monitor.Place{Country: "DE"}},
		"IPinfo Location":       {city: record{"city": text("Berlin"), "region": text("Berlin"), "country": text("DE"), "lat": text("52.52"), "lng": text("13.405")}, want: berlin},
		"IPinfo, loc":           {city: record{"city": text("Berlin"), "country": text("DE"), "loc": text("52.52,13.405")}, want: berlin},
		"IPinfo ASN":            {asn: record{"asn": text("AS24940"), "name": text("Hetzner"), "domain": text("hetzner.com"), "country": text("DE")}, want: monitor.Place{ASN: 24940, Organization: "Hetzner"}},
		"only a domain":         {asn: record{"asn": text("as24940"), "as_domain": text("hetzner.com")}, want: monitor.Place{ASN: 24940, Organization: "hetzner.com"}},
		"flat City":             {city: record{"country_code": text("de"), "latitude": mmdbtype.Float64(52.52), "longitude": mmdbtype.Float64(13.405)}, want: berlin},
		"number as a number":    {asn: record{"asn": mmdbtype.Uint32(24940)}, want: monitor.Place{ASN: 24940}},
		"whole degrees":         {city: record{"country_code": text("DE"), "latitude": mmdbtype.Uint32(52), "longitude": mmdbtype.Uint32(13)}, want: monitor.Place{Country: "DE", Geohash: "u31pz", Latitude: 52, Longitude: 13, Located: true}},
		"middle of the country": {city: place("DE", 51.2993, 9.491, at(51.2993, 9.491, 200)), want: monitor.Place{Country: "DE"}},
		"far off, but a city":   {city: place("DE", 0, 0, at(52.52, 13.405, 500), record{"city": record{"geoname_id": mmdbtype.Uint32(2950159)}}), want: berlin},
		"far off, but a region": {city: place("DE", 0, 0, at(52.52, 13.405, 500), record{"subdivisions": mmdbtype.Slice{record{"iso_code": text("BE")}}}), want: berlin},
		"near":                  {city: place("DE", 0, 0, at(52.52, 13.405, 20)), want: berlin},
		"null island":           {city: place("DE", 0, 0), want: monitor.Place{Country: "DE"}},
		"no latitude":           {city: place("DE", 91, 13), want: monitor.Place{Country: "DE"}},
		"no longitude":          {city: place("DE", 52, -180.5), want: monitor.Place{Country: "DE"}},
		"no number":             {city: place("DE", math.NaN(), 13), want: monitor.Place{Country: "DE"}},
		"no country ZZ":         {city: record{"country": record{"iso_code": text("ZZ")}}, want: monitor.Place{}},
		"no country":            {city: record{"country_code": text("  ")}, want: monitor.Place{}},
		"Kosovo":                {city: record{"country_code": text("XK")}, want: monitor.Place{Country: "XK"}},
		"odd types":             {city: record{"country": mmdbtype.Uint32(7), "location": text("here"), "traits": mmdbtype.Slice{text("x")}}, asn: record{"asn": record{"x": text("y")}}, want: monitor.Place{}},
		"empty":                 {city: record{}, asn: record{}, want: monitor.Place{}},
		"odd text":              {asn: system(24940, "Het\nzner\x00 "+strings.Repeat("x", 200)), want: monitor.Place{ASN: 24940, Organization: "Het zner  " + strings.Repeat("x", 110)}},
		"anycast, MaxMind":      {place("DE", 52.52, 13.405, record{"traits": record{"is_anycast": mmdbtype.Bool(true)}}), system(1, "Example"), monitor.Place{ASN: 1, Organization: "Example", Shared: "Example (anycast)"}},
		"anycast, IPinfo":       {city: record{"country_code": text("DE"), "is_anycast": mmdbtype.Bool(true)}, want: monitor.Place{Shared: "anycast"}},
		"anycast as a text":     {city: record{"country_code": text("DE"), "anycast": text("true")}, want: monitor.Place{Shared: "anycast"}},
		"anycast by the ASNs":   {place("DE", 52.52, 13.405), record{"asn": text("AS7"), "is_anycast": mmdbtype.Bool(true)}, monitor.Place{ASN: 7, Shared: "anycast"}},
		"not anycast":           {city: place("DE", 52.52, 13.405, record{"traits": record{"is_anycast": mmdbtype.Bool(false)}}), want: berlin},
	} {
		t.Run(name, func(t *testing.T) {
			// Beside the record stands another, so that the file is one of its kind.
			dir, c := t.TempDir(), geo.Config{}
			if tc.city != nil {
				c.CityDB = write(t, dir, "city", database(t, "City", map[string]record{"81.2.69.0/24": tc.city, "2.125.160.0/24": place("GB", 51, -1)}))
			}
			if tc.asn != nil {
				c.ASNDB = write(t, dir, "asn", database(t, "ASN", map[string]record{"81.2.69.0/24": tc.asn, "2.125.160.0/24": system(7, "x")}))
			}
			db, err := geo.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, db.Locate(aMachine)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// An address in the network of a CDN or of anycast stands nowhere, whatever the
// databases say; its neighbours do.
func TestShared(t *testing.T) {
	everywhere := map[string]record{"0.0.0.0/1": place("US", 37.4, -122.1), "128.0.0.0/2": place("US", 37.4, -122.1), "2000::/3": place("US", 37.4, -122.1)}
	dir := t.TempDir()
	city := write(t, dir, "city", database(t, "City", everywhere))
	asn := write(t, dir, "asn", database(t, "ASN", map[string]record{
		"23.32.0.0/11": system(20940, "Akamai International B.V."), "34.120.0.0/15": system(396982, "GOOGLE-CLOUD-PLATFORM"),
		"81.2.69.0/24": system(40509, "FLY"), "5.9.0.0/16": system(24940, "Hetzner"), "45.33.0.0/17": system(63949, "Akamai Connected Cloud"),
	}))
	alone, err := geo.Open(geo.Config{CityDB: city})
	if err != nil {
		t.Fatal(err)
	}
	both, err := geo.Open(geo.Config{CityDB: city, ASNDB: asn})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		db   *geo.DB
		addr string
		want string
	}{
		{alone, "104.16.0.1", "Cloudflare"},
		{alone, "104.27.255.255", "Cloudflare"},
		{alone, "104.28.0.0", ""},
		{alone, "104.15.255.255", ""},
		{alone, "::ffff:104.16.0.1", "Cloudflare"},
		{alone, "2606:4700:3030::6815:1", "Cloudflare"},
		{alone, "2606:4701::1", ""},
		{alone, "2a06:98c7:ffff::1", "Cloudflare"},
		{alone, "151.101.1.6", "Fastly"},
		{alone, "2a04:4e42::6", "Fastly"},
		{alone, "13.33.4.5", "Amazon CloudFront"},
		{alone, "2600:9000:2000::1", "Amazon CloudFront"},
		{alone, "75.2.60.5", "AWS Global Accelerator"},
		{alone, "34.117.59.81", "Google Cloud load balancing"},
		{alone, "13.107.246.40", "Azure Front Door"},
		{alone, "81.2.69.160", ""},
		{alone, "3.5.140.1", ""}, // Amazon's machines
		{both, "81.2.69.160", "Fly.io"},
		{both, "23.40.1.1", "Akamai"},
		{both, "45.33.32.156", ""}, // Linode's machines
		{both, "34.120.0.1", "Google Cloud load balancing"},
		{both, "34.121.0.1", ""}, // Google Cloud's machines
		{both, "5.9.0.1", ""},
	} {
		p := tc.db.Locate(netip.MustParseAddr(tc.addr))
		if p.Shared != tc.want {
			t.Errorf("%s: shared %q, want %q", tc.addr, p.Shared, tc.want)
		}
		placed := p.Country == "US" && p.Located && p.Geohash != "" && p.Latitude != 0
		nowhere := p.Country == "" && !p.Located && p.Geohash == "" && p.Latitude == 0 && p.Longitude == 0
		if tc.want == "" && strings.HasPrefix(tc.addr, "151") || tc.want == "" && !placed || tc.want != "" && !nowhere {
			t.Errorf("%s: %+v", tc.addr, p)
		}
	}
}

// What is not public stands nowhere, even where a database has it.
func TestNotPublic(t *testing.T) {
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "City", IncludeReservedNetworks: true, DisableIPv4Aliasing: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Insert(&net.IPNet{IP: make(net.IP, 16), Mask: make(net.IPMask, 16)}, place("DE", 52.52, 13.405)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := tree.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	db, err := geo.Open(geo.Config{CityDB: write(t, t.TempDir(), "city", b.Bytes())})
	if err != nil {
		t.Fatal(err)
	}
	if p := db.Locate(aMachine); p != berlin {
		t.Errorf("%+v", p)
	}
	for _, addr := range []netip.Addr{
		{},
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("::1"),
		netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("0.0.0.0"),
	} {
		if p := db.Locate(addr); p != (monitor.Place{}) {
			t.Errorf("%s: %+v", addr, p)
		}
	}
}

// Without databases nothing is known, and nothing breaks.
func TestNoDatabases(t *testing.T) {
	db, err := geo.Open(geo.Config{})
	if err != nil || db != nil {
		t.Fatalf("%v, %v", db, err)
	}
	changed, err := db.Reload()
	if p := db.Locate(aMachine); p != (monitor.Place{}) || changed || err != nil {
		t.Errorf("%+v, %v, %v", p, changed, err)
	}
}

// An IPv4 database is asked nothing of IPv6.
func TestOnlyIPv4(t *testing.T) {
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "City", IPVersion: 4})
	if err != nil {
		t.Fatal(err)
	}
	_, n, _ := net.ParseCIDR("81.2.69.0/24")
	if err := tree.Insert(n, place("DE", 52.52, 13.405)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := tree.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	db, err := geo.Open(geo.Config{CityDB: write(t, t.TempDir(), "city", b.Bytes())})
	if err != nil {
		t.Fatal(err)
	}
	if p := db.Locate(netip.MustParseAddr("2001:4860::1")); p != (monitor.Place{}) {
		t.Errorf("%+v", p)
	}
	if p := db.Locate(aMachine); p != berlin {
		t.Errorf("%+v", p)
	}
}

// Each file that is of no use is named with its key, and with what to do.
func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	city := database(t, "Acme-City", map[string]record{"81.2.69.0/24": place("DE", 52.52, 13.405)})
	asn := database(t, "Acme-ASN", map[string]record{"81.2.69.0/24": system(1, "x")})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(city); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		city, asn string
		want      []string
	}{
		"missing":       {city: filepath.Join(dir, "nowhere.mmdb"), want: []string{"geo.city_db", "nowhere.mmdb", "no such file"}},
		"a directory":   {city: dir, want: []string{"geo.city_db", "no regular file"}},
		"text":          {city: write(t, dir, "text", []byte("81.2.69.0/24,DE\n")), want: []string{"geo.city_db", "no .mmdb"}},
		"empty":         {asn: write(t, dir, "empty", nil), want: []string{"geo.asn_db", "no .mmdb"}},
		"cut":           {city: write(t, dir, "cut", city[:len(city)/2]), want: []string{"geo.city_db", "not all of one"}},
		"packed":        {city: write(t, dir, "gz", packed.Bytes()), want: []string{"geo.city_db", "gzip", "unpack"}},
		"domains":       {city: write(t, dir, "domains", database(t, "GeoIP2-Domain", map[string]record{"81.2.69.0/24": {"domain": mmdbtype.String("x")}})), want: []string{"neither countries nor", "GeoIP2-Domain"}},
		"no records":    {city: write(t, dir, "none", database(t, "City", nil)), want: []string{"neither countries nor"}},
		"ASNs as city":  {city: write(t, dir, "asn", asn), want: []string{"geo.city_db", "set it as geo.asn_db", "Acme-ASN"}},
		"city as ASNs":  {asn: write(t, dir, "city", city), want: []string{"geo.asn_db", "set it as geo.city_db", "Acme-City"}},
		"both missing":  {city: filepath.Join(dir, "a"), asn: filepath.Join(dir, "b"), want: []string{"geo.city_db", "geo.asn_db"}},
		"one is broken": {city: write(t, dir, "good", city), asn: filepath.Join(dir, "b"), want: []string{"geo.asn_db"}},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := geo.Open(geo.Config{CityDB: tc.city, ASNDB: tc.asn})
			if err == nil || db != nil {
				t.Fatalf("%v, %v", db, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(name, "one is") && strings.Contains(err.Error(), "city_db") {
				t.Errorf("%q", err)
			}
		})
	}
}

// A replaced file is read anew, a broken one is not taken, and what is in force
// stays so meanwhile.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	in := func(country string) []byte {
		return database(t, "City", map[string]record{"81.2.69.0/24": place(country, 52.52, 13.405)})
	}
	path := write(t, dir, "city", in("DE"))
	asnPath := write(t, dir, "asn", database(t, "ASN", map[string]record{"81.2.69.0/24": system(1, "one")}))
	db, err := geo.Open(geo.Config{CityDB: path, ASNDB: asnPath})
	if err != nil {
		t.Fatal(err)
	}
	reload := func(what string, changed bool, problem, country string, asn uint32) {
		t.Helper()
		got, err := db.Reload()
		if got != changed || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: changed %v, %v", what, got, err)
		}
		if p := db.Locate(aMachine); p.Country != country || p.ASN != asn {
			t.Errorf("%s: %+v", what, p)
		}
	}
	reload("nothing happened", false, "", "DE", 1)
	replace(t, path, in("FR"))
	reload("replaced", true, "", "FR", 1)
	reload("seen already", false, "", "FR", 1)

	// In place, to a file as large: only the time tells.
	if err := os.WriteFile(path, in("GB"), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	reload("written in place", true, "", "GB", 1)

	// A file that keeps its time and its size is told by what it is.
	replace(t, path, in("ES"))
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	reload("replaced by one of the same time", true, "", "ES", 1)

	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	reload("cut short under us", false, "not all of one", "ES", 1)
	reload("still cut", false, "not all of one", "ES", 1)
	replace(t, asnPath, database(t, "ASN", map[string]record{"81.2.69.0/24": system(2, "two")}))
	reload("the other one was replaced", true, "not all of one", "ES", 2)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	reload("gone", false, "no such file", "ES", 2)
	write(t, dir, "city", in("IT"))
	reload("mended", true, "", "IT", 2)
	replace(t, path, database(t, "ASN", map[string]record{"81.2.69.0/24": system(3, "three")}))
	reload("of another kind", false, "set it as geo.asn_db", "IT", 2)
}

// Readers see one database or the other, whole, while it is replaced again and
// again under them.
func TestReadersWhileReloading(t *testing.T) {
	countries := []string{"DE", "FR"}
	files := make([][]byte, len(countries))
	for i, c := range countries {
		files[i] = database(t, "City", map[string]record{"81.2.69.0/24": place(c, 52.52, 13.405)})
	}
	path := write(t, t.TempDir(), "city", files[0])
	db, err := geo.Open(geo.Config{CityDB: path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if p := db.Locate(aMachine); p.Country != "DE" && p.Country != "FR" || p.Geohash != berlin.Geohash {
					t.Errorf("%+v", p)
					return
				}
			}
		})
	}
	for i := range 50 {
		replace(t, path, files[(i+1)%2])
		if changed, err := db.Reload(); !changed || err != nil {
			t.Errorf("%v, %v", changed, err)
		}
	}
	close(done)
	readers.Wait()
}

// Whatever a file holds, it is refused or answers; nothing breaks, and nothing
// takes for ever.
func FuzzDatabase(f *testing.F) {
	city := database(f, "City", map[string]record{"81.2.69.0/24": place("DE", 52.52, 13.405), "2a00::/16": place("FR", 48, 2)})
	f.Add(city)
	f.Add(database(f, "ASN", map[string]record{"81.2.69.0/24": system(24940, "Hetzner")}))
	f.Add(city[:len(city)/2])
	for i := 0; i < len(city); i += 97 {
		bad := bytes.Clone(city)
		bad[i] ^= 0xff
		f.Add(bad)
	}
	f.Add([]byte("\xab\xcd\xefMaxMind.com"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		db, err := geo.Open(geo.Config{CityDB: write(t, dir, "city", data)})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x00\r") {
				t.Errorf("%q", err)
			}
			return
		}
		for _, addr := range []string{"81.2.69.160", "1.1.1.1", "223.255.255.255", "2a00::1", "2000::", "3ffe:ffff::1"} {
			p := db.Locate(netip.MustParseAddr(addr))
			if p.Country != "" && len(p.Country) != 2 || p.Located != (p.Geohash != "") || p.Located && !(math.Abs(p.Latitude) <= 90 && math.Abs(p.Longitude) <= 180) {
				t.Errorf("%s: %+v", addr, p)
			}
		}
	})
}

// BenchmarkLocate is one look into both databases.
func BenchmarkLocate(b *testing.B) {
	dir := b.TempDir()
	db, err := geo.Open(geo.Config{
		CityDB: write(b, dir, "city", database(b, "City", map[string]record{"81.2.69.0/24": place("DE", 52.52, 13.405)})),
		ASNDB:  write(b, dir, "asn", database(b, "ASN", map[string]record{"81.2.69.0/24": system(24940, "Hetzner")})),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		db.Locate(aMachine)
	}
}
