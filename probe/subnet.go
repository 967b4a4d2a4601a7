package probe

import "net/netip"

// Subnet returns the network around addr that counts as one neighbour: its /24
// or /48 (probe.md, Being a good guest). IPv4 in IPv6 form is IPv4, and a zone
// makes no difference.
func Subnet(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 24
	if addr.Is6() {
		bits = 48
	}
	p, _ := addr.Prefix(bits) // fails for a zone or too many bits alone
	return p
}
