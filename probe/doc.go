// Package probe asks one relay, from one place, whether it speaks Nostr, and
// reports what it saw (probe.md). It has no opinion on whether the relay is
// alive.
//
//	dns → tcp → tls → upgrade → read → (questions) → (write), and info (NIP-11)
//
// The package owns its dial, with the guard against private addresses, and the
// small part of HTTP/1.1 and WebSocket that a probe needs: the other side may
// be anything, so every read has a deadline and a byte limit, and whatever the
// relay sends is data to be classified, never an error of ours.
//
// What follows the read is asked for apart: questions that tell what the relay
// can do, and whether it heeds what it is asked; and the write, one event.
// Nothing that happens there changes the outcome.
//
// It never retries later, keeps no schedule and stores nothing; the one thing
// that it remembers is a dead ip:port, for half a minute, so that many names
// of one dead host cost one timeout.
//
// Relays of Tor, I2P and Lokinet are reached through a SOCKS5 proxy each, which
// alone resolves their names; where there is none they are skipped (no_proxy).
// What a proxy does wrong is never held against a relay.
package probe
