// Package vantage runs one vantage point: it decides when each relay is probed
// and how many at a time, watches itself, and hands what it saw to the core.
//
//	Core.Tasks ─► schedule (due-heap) ─► ready ─► permits ─► pacer ─► Checker.Check
//	                   ▲                  ▲                               │
//	                   │ due, Answer.Due  │ Answer.Expedite               ▼
//	                   └──── own record (monitor.Liveness) ◄──────── Observation
//	                                                                      │
//	     canaries, proxies, lag, clock, descriptors, spike ─► Health ─► outbox ─► Core.Deliver
//
// Each network has a lane of its own: room, a share of the pace, and a proxy
// whose word every failure there waits for.
//
// It owns the schedule, the permits, the pace, the vantage's own health and the
// queue of observations that the core has not taken yet. It keeps a liveness
// record per relay only to know when to come back: it never decides what a
// relay is. It never writes to disk and keeps nothing global, so that a process
// may run several vantages, each with a Checker that has a source address of
// its own.
//
// Its configuration and Checker may be replaced while it runs (Configure). The
// loop is the only one that knows the schedule, so it takes the new ones over
// itself; what is in flight ends under the old ones.
package vantage
