// Package geo says where an address stands, by databases of the operator's
// choice (config geo.*): .mmdb files of MaxMind, DB-IP, IPinfo and others of
// those layouts. None is shipped, and nothing is asked of the network.
//
//	address ─→ public? ─→ network of a CDN or anycast? ─→ country, coordinates
//
// It gives no country where an address stands for many places at once: a wrong
// one is worse than none (reports.md 6).
package geo
