// Package api tells clients and operators over HTTP what Pharos knows, and takes
// what operators want of it: the lists of the current generation, one relay's
// verdict with its reasons, the history, this monitor's own state, and the
// commands (api.md).
//
//	Generation ─→ lists, encoded and compressed once each ─┐
//	Core ───────→ /v1/relay, /v1/relays, /v1/status ───────┼─→ http.Handler
//	History ────→ /v1/transitions, /v1/history ────────────┘        │
//	Operator ←── /v1/admin/…, /v1/relays/submit ←───────────────────┘
//
// It never decides about a relay, never fetches a URL that a caller sent, and
// never serves a short list that looks like the list: one that should not be
// trusted says so, or is a 503.
package api
