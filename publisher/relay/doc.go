// Package relay is the Nostr relay that serves our signed events: read-only,
// from an in-memory index of the current generation (reports.md 12–21).
//
// khatru is embedded: it accepts the WebSocket, keeps it alive and closes it.
// What its v0.19.1 does with messages is not fit for strangers: a tag ["d"] or
// a NEG-OPEN ends the process, one goroutine starts per message so that a CLOSE
// may overtake its REQ, subscriptions pile up under one id, a stalled reader
// blocks every broadcast, and events are encoded anew for each reader. So conn
// stands between khatru and the socket and answers messages itself:
//
//	socket ── conn ── control frames, handshake ── khatru
//	            └──── messages ── session ── index (stored) / queue (live)
//
//	Generation ── Update ── diff ── index
//	                          └──── new events ── queue of each subscriber
//
// A filter is answered from whichever is cheapest: the events of the ids or of
// the d tags that it names, those that have the rarest of the other tags that it
// asks for, or a walk from the newest back. What an address may ask for in a
// minute, and how many connections it may hold, is counted by limiter.
//
// A message is answered on the goroutine that read it, in order; its writes
// have a deadline, so a client can keep nobody but itself waiting. New events
// reach subscribers through a bounded queue per connection; the connection of
// one that does not keep up is closed.
//
// The package never decides what is online, never stores and never verifies:
// it serves what a generation holds and forgets what it no longer holds.
package relay
