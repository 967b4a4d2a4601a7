// Package publisher signs what Pharos says on Nostr: a report (kind 30166) for
// each relay of the online set, the snapshot of that set (30002), and the
// monitor's own announcement, profile and relay list (10166, 0, 10002).
//
//	ReportSource → build (pure: tags and content) → when (due? changed? which second?) → sign → SignedEvent
//
// It owns the wording and the timing of these events (reports.md 1–11). It
// never decides whether a relay is online, never stores and never sends:
// callers store what it returns before they serve it.
package publisher
