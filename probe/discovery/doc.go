// Package discovery reads what relays other people's lists name: contact lists
// (kind 3), relay lists (10002, 10050), relay sets (30002) and other monitors'
// reports (30166), from a few sources, relays themselves.
//
//	source → pages → size, kind, time → newest of its author → signature → URLs
//	                                                            → lists in memory → Sweep
//
// It says which relays are named and by how many authors; whether they are
// watched is the engine's to say. It keeps the newest list of every author in
// memory, so that a list that its author has replaced no longer counts, and
// nothing else: after a restart the first sweep reads everything again.
//
// A source may be anything: whatever it sends is bounded in time, bytes and
// messages, its refusals are obeyed (rate-limit.md), and none holds up another.
package discovery
