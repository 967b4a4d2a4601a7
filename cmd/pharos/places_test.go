package main

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/pharos-nostr/pharos/api"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// placesIn is a database in which everything is in that country.
func placesIn(t *testing.T, country string) string {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "Country", RecordSize: 24})
	if err != nil {
		t.Fatal(err)
	}
	_, n, err := net.ParseCIDR("45.33.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(country)}}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := tree.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A reload with a database that is of no use changes nothing, and works once the
// file is mended; one that is broken while it is in use stops no reload of
// anything else.
func TestReloadOfPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.mmdb")
	writeFile(t, file, "junk", 0o600)
	c := fastConfig(t, relaytest.Start(t, relaytest.Options{}))
	c.Database.URL = DSN(postgres.TestDatabase(t))
	s, reload := reloadable(t, c)
	country := func() string { return s.places.locate(netip.MustParseAddr("45.33.0.1")).Country }

	reread, named := s.reread, c
	named.Name, named.Geo.CityDB = "Other", file
	s.reread = func() (*Config, error) { next := named; return &next, nil }
	var refused *api.ReloadError
	if out, err := s.Reload(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "geo.city_db "+file) {
		t.Errorf("a reload with a broken database: %+v, %v", out, err)
	}
	if got := s.config(); got.Name != c.Name || got.Geo.CityDB != "" {
		t.Errorf("after a reload that failed the name is %q and the database %q", got.Name, got.Geo.CityDB)
	}

	writeFile(t, file, placesIn(t, "DE"), 0o600)
	out, err := s.Reload(t.Context())
	if err != nil || !slices.Equal(out.Changed, []string{"name", "geo.city_db"}) || country() != "DE" {
		t.Errorf("the next reload: %+v, %v; the country is %q", out, err, country())
	}

	writeFile(t, file, "junk", 0o600)
	s.reread = reread
	reload(func(c *Config) { c.Name = "Third" })
	if country() != "DE" {
		t.Errorf("another reload lost the places: the country is %q", country())
	}
	reload(func(c *Config) { c.Geo.CityDB = "" })
	if country() != "" {
		t.Errorf("without a database the country is %q", country())
	}
}

// What serve would refuse, config check tells.
func TestConfigCheckOfPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "places.mmdb")
	writeFile(t, file, "junk", 0o600)
	env := []string{"PHAROS_GEO_CITY_DB=" + file}
	if got := pharos(t, "", env, "config", "check"); got.status != exitUsage || got.stdout != "" || !strings.Contains(got.stderr, "geo.city_db "+file+": it is no .mmdb database") {
		t.Errorf("a broken database: %+v", got)
	}
	writeFile(t, file, placesIn(t, "DE"), 0o600)
	if got := pharos(t, "", env, "config", "check"); got.status != exitFine {
		t.Errorf("a whole one: %+v", got)
	}
}
