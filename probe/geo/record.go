package geo

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"github.com/oschwald/maxminddb-golang/v2"
)

// record is what a database has on an address. Each field is looked for where
// the databases that we know keep it, and one of another type than expected is
// as good as none: so every layout can be asked everything.
type record struct{ maxminddb.Result }

// lookup finds the record of an address; r may be nil.
func lookup(r *maxminddb.Reader, addr netip.Addr) record {
	if r == nil {
		return record{}
	}
	return record{r.Lookup(addr)}
}

// The places of each field. MaxMind and DB-IP nest; IPinfo and others are flat.
var (
	countryPaths  = [][]any{{"country", "iso_code"}, {"country_code"}, {"country"}}
	numberPaths   = [][]any{{"autonomous_system_number"}, {"asn"}, {"traits", "autonomous_system_number"}, {"as_number"}}
	orgPaths      = [][]any{{"autonomous_system_organization"}, {"as_name"}, {"traits", "autonomous_system_organization"}, {"organization"}, {"as_domain"}, {"name"}}
	latitudePaths = [][]any{{"location", "latitude"}, {"latitude"}, {"lat"}}
	longitudePath = [][]any{{"location", "longitude"}, {"longitude"}, {"lng"}}
	anycastPaths  = [][]any{{"traits", "is_anycast"}, {"is_anycast"}, {"anycast"}}
	radiusPaths   = [][]any{{"location", "accuracy_radius"}, {"accuracy_radius"}}
	// finerPaths hold something where more than the country is known.
	finerPaths = [][]any{{"city", "geoname_id"}, {"city", "names", "en"}, {"city"}, {"subdivisions", 0, "iso_code"}, {"subdivisions", 0, "names", "en"}, {"region"}, {"postal", "code"}}
)

// text is the first of the fields that holds some.
func (r record) text(paths [][]any) string {
	for _, path := range paths {
		var s string
		if r.Found() && r.DecodePath(&s, path...) == nil && s != "" {
			return s
		}
	}
	return ""
}

// value is the first of the fields that holds a number or a text of one.
func (r record) value(paths [][]any) (v float64, ok bool) {
	for _, path := range paths {
		var n *float64
		if r.Found() && r.DecodePath(&n, path...) == nil && n != nil {
			return *n, true
		}
		var u *uint64
		if r.Found() && r.DecodePath(&u, path...) == nil && u != nil {
			return float64(*u), true
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(r.text([][]any{path})), 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// country is ISO 3166-1 alpha-2 in capitals, "" = unknown.
func (r record) country() string {
	for _, path := range countryPaths {
		if c := strings.ToUpper(r.text([][]any{path})); isCountry(c) {
			return c
		}
	}
	return ""
}

// number is the autonomous system's, 0 = unknown.
func (r record) number() uint32 {
	for _, path := range numberPaths {
		var n uint32
		if r.Found() && r.DecodePath(&n, path...) == nil && n != 0 {
			return n
		}
		digits := r.text([][]any{path})
		if len(digits) > 2 && strings.EqualFold(digits[:2], "AS") {
			digits = digits[2:]
		}
		if v, err := strconv.ParseUint(digits, 10, 32); err == nil && v != 0 {
			return uint32(v)
		}
	}
	return 0
}

func (r record) organization() string { return printable(r.text(orgPaths)) }

func (r record) anycast() bool {
	for _, path := range anycastPaths {
		var b bool
		if r.Found() && r.DecodePath(&b, path...) == nil && b {
			return true
		}
		if strings.EqualFold(r.text([][]any{path}), "true") {
			return true
		}
	}
	return false
}

// countryRadius is from how many km of uncertainty on coordinates without a
// city or a region are the middle of the country.
const countryRadius = 100

// coordinates are in degrees; known is false where there are none, or only a
// country's.
func (r record) coordinates() (latitude, longitude float64, known bool) {
	latitude, ok := r.value(latitudePaths)
	longitude, ok2 := r.value(longitudePath)
	if !ok || !ok2 {
		lat, lng, _ := strings.Cut(r.text([][]any{{"loc"}}), ",")
		var err, err2 error
		latitude, err = strconv.ParseFloat(strings.TrimSpace(lat), 64)
		longitude, err2 = strconv.ParseFloat(strings.TrimSpace(lng), 64)
		if err != nil || err2 != nil {
			return 0, 0, false
		}
	}
	if !(math.Abs(latitude) <= 90 && math.Abs(longitude) <= 180) || latitude == 0 && longitude == 0 { // NaN is in no range
		return 0, 0, false
	}
	if radius, ok := r.value(radiusPaths); ok && radius >= countryRadius && !r.finer() {
		return 0, 0, false
	}
	return latitude, longitude, true
}

// finer reports whether the record names a part of the country.
func (r record) finer() bool {
	if r.text(finerPaths) != "" {
		return true
	}
	_, ok := r.value(finerPaths[:1])
	return ok
}

// maxShown bounds what is taken over of a text, bytes.
const maxShown = 120

// printable makes a database's text fit for one line of ours.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "")
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}
