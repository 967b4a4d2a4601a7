package probe_test

import (
	"net/netip"
	"testing"

	"github.com/pharos-nostr/pharos/probe"
)

func TestSubnet(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.77":             "192.0.2.0/24",
		"::ffff:192.0.2.77":      "192.0.2.0/24",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1::/48",
		"fe80::1%eth0":           "fe80::/48",
		"2001:db8:ffff:ffff::99": "2001:db8:ffff::/48",
	} {
		if got := probe.Subnet(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s is in %s, want %s", addr, got, want)
		}
	}
}
