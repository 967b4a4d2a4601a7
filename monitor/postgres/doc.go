// Package postgres keeps what Pharos must not forget: watched relays and their
// verdicts, vantages, records, observations, transitions and signed events
// (history.md, Store). It owns the SQL, the migrations' runner, the leader's
// lock and the private cluster that is run when no database.url is set.
//
//	StartCluster ─ URL ─┐
//	database.url ───────┴→ Open: migrate → leader's lock → Store
//	                          writes (Watch, Ingest, Commit): the leader's connection
//	                          reads  (Load, Transitions, Observations): the pool
//
// It never decides anything, never steps a record and never reads a clock to
// judge one. Whatever relays sent is made valid text here once more before it
// reaches the database.
package postgres
