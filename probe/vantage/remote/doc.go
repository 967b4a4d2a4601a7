// Package remote is a core on another machine: a vantage.Core over HTTPS, signed
// with the vantage's key, and a spool on disk for what the core has not taken.
//
//	vantage ── Deliver ──► spool (fsync) ──► Run ── POST observations ──► core
//	   ▲                                      │
//	   └───── Answer: expedite, due ◄─────────┘
//	   └───── Tasks ◄── GET tasks (ETag, deltas) ─────────────────────────── core
//
// It owns the spool, the order and the fate of every batch in it, the back-off,
// and what is told of a core that is away, of a clock that is wrong and of a
// vantage that was revoked. A batch is on the disk before Deliver returns, and
// leaves it only when the core has it, has refused it for good, or when the spool
// is full: then the oldest go and are counted. It decides nothing about relays.
package remote
