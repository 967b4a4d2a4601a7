// Command pharos watches Nostr relays, decides which of them are online and
// tells the world. The package owns the command line, the configuration and
// the wiring of the others into one process; it holds no rule of the domain
// and speaks no protocol itself.
//
//	main → command (kong) → Config (file < environment < flags) → App (New, Start, Stop)
//
// It is the only package that sees all the others.
package main
