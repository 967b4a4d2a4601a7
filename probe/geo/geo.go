package geo

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/mmcloughlin/geohash"
	"github.com/oschwald/maxminddb-golang/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// geohashLength is how exactly a place is told: five characters are a cell of
// some 5 km, which is no finer than the databases are right.
const geohashLength = 5

// Config names the databases. Either may be "": then what it would tell is not
// known, unless the other file tells it too, as IPinfo's do.
type Config struct {
	CityDB string // path of an .mmdb with countries, and coordinates where it has them
	ASNDB  string // path of an .mmdb with autonomous systems
}

// DB answers from the databases. They are held in memory, so that a file that
// is replaced or cut short under us cannot hurt: it takes as much as the files
// are large (GeoLite2 City and ASN together some 75 MB), and twice that for the
// moment of a reload. A nil DB knows nothing.
//
// It is safe for concurrent use; Locate takes no lock.
type DB struct {
	tables atomic.Pointer[tables]

	mu    sync.Mutex // held while files are read
	files [numFiles]*file
}

// tables is what Locate reads: it is replaced, never changed.
type tables [numFiles]*maxminddb.Reader

// Open reads the databases that c names; without any it returns nil. The error
// names each file that is of no use, by its key in the configuration, and says
// why.
func Open(c Config) (*DB, error) {
	if c == (Config{}) {
		return nil, nil //nolint:nilnil // a nil DB is one that knows nothing
	}
	db := &DB{files: [numFiles]*file{cityFile: {key: "geo.city_db", path: c.CityDB}, asnFile: {key: "geo.asn_db", path: c.ASNDB}}}
	if _, err := db.Reload(); err != nil {
		return nil, err
	}
	return db, nil
}

// Reload reads those files anew that were replaced or written since they were
// last read, and swaps them in together; changed reports whether it did. A file
// that is of no use leaves the one before it in force; the error says why, at
// each call until the file is mended.
func (db *DB) Reload() (changed bool, err error) {
	if db == nil {
		return false, nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	var now tables
	if old := db.tables.Load(); old != nil {
		now = *old
	}
	var errs []error
	for i, f := range db.files {
		if f == nil || f.path == "" {
			continue
		}
		r, err := f.read(kind(i))
		if err != nil {
			errs = append(errs, err)
		}
		if r != nil {
			now[i], changed = r, true
		}
	}
	if changed {
		db.tables.Store(&now)
	}
	return changed, errors.Join(errs...)
}

// Locate says where addr stands: the zero Place for an address that is not
// public, and for one that the databases do not know. The geohash and the
// coordinates are there only where more than the country is known.
func (db *DB) Locate(addr netip.Addr) monitor.Place {
	if db == nil {
		return monitor.Place{}
	}
	t := db.tables.Load()
	if t == nil || !monitor.PublicAddress(addr) {
		return monitor.Place{}
	}
	addr = addr.WithZone("").Unmap()
	city, asn := lookup(t[cityFile], addr), lookup(t[asnFile], addr)

	var p monitor.Place
	if p.ASN = asn.number(); p.ASN != 0 {
		p.Organization = asn.organization()
	} else if p.ASN = city.number(); p.ASN != 0 {
		p.Organization = city.organization()
	}
	if p.Shared = sharedNetwork(p.ASN, addr); p.Shared == "" && (city.anycast() || asn.anycast()) {
		p.Shared = "anycast"
		if p.Organization != "" {
			p.Shared = p.Organization + " (anycast)"
		}
	}
	if p.Shared != "" {
		return p
	}
	p.Country = city.country()
	if p.Latitude, p.Longitude, p.Located = city.coordinates(); p.Located {
		p.Geohash = geohash.EncodeWithPrecision(p.Latitude, p.Longitude, geohashLength)
	}
	return p
}
