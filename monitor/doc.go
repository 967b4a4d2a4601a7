// Package monitor is the domain of Pharos: what a relay, an observation, a
// vote, a verdict and a generation are, and every rule that turns one into the
// next.
//
//	Observation → (Liveness) Record → (Corroboration) Ballot → Verdict → (Brake) → Generation
//
// Comments cite a rule by the design document that holds it: liveness.md (S1 to
// S49), corroboration.md, probe.md, reports.md (1 to 21), api.md, history.md,
// config.md, performance.md (P1 to P11). The tests hold them.
//
// All of it is pure: functions take their time as an argument, hold no clock,
// open no socket and know no database. Packages below monitor adapt it to the
// world and never import one another.
package monitor
