// Package wire is what a vantage and its core say to each other over HTTPS, in
// JSON: enrolment, tasks, batches of observations and the answers to them.
//
//	vantage ── Enrolment ──► core     once, with a token
//	        ◄─ Enrolled ───
//	        ◄─ Tasks ──────           the whole list, or what changed
//	        ── batch ──────►          gzip: a header line, then a line per observation
//	        ◄─ Answer ─────
//
// It owns the format and what may be believed of its shape: whatever it decodes
// has known words, sane times, canonical relay URLs and bounded texts, and
// whatever it encodes can be decoded again. It never sends anything, and knows
// nothing of signatures or storage.
//
// Durations are milliseconds, whole or with a fraction; times are RFC 3339. A
// field that is absent has its zero value.
package wire
