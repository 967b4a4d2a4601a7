package monitor

import "net/netip"

// globalV6 is the only part of IPv6 from which global unicast addresses are
// given out; everything outside it is refused, a NAT64 form apart.
var globalV6 = netip.MustParsePrefix("2000::/3")

// nat64 is the well-known prefix of RFC 6052, sixToFour that of RFC 3056: both
// carry an IPv4 address, which decides.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// notGlobal are the ranges of the IANA special-purpose registries that are not
// reachable from everywhere and that netip does not know itself.
var notGlobal = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// PublicAddress reports whether a relay may be reached at a: it is global
// unicast, or within one of allow (relay-url.md 7). An IPv4-mapped address is
// the IPv4 address that it maps; a NAT64 or 6to4 form is judged by what it
// carries, and only a range of IPv6 in allow opens it. The dial guard asks it
// for every resolved address.
func PublicAddress(a netip.Addr, allow ...netip.Prefix) bool {
	if !a.IsValid() {
		return false
	}
	a = a.WithZone("").Unmap()
	for _, p := range allow {
		if p.Contains(a) {
			return true
		}
	}
	switch {
	case nat64.Contains(a):
		b := a.As16()
		return PublicAddress(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		b := a.As16()
		return PublicAddress(netip.AddrFrom4([4]byte(b[2:6])))
	case a.Is6() && !globalV6.Contains(a):
		return false
	case !a.IsGlobalUnicast() || a.IsPrivate():
		return false
	}
	for _, p := range notGlobal {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
