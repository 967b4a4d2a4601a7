// Package engine is the core's loop. It owns every relay's records and
// verdict in memory, and is the only writer of them:
//
//	Deliver: batch → check → step on copies → store → apply → expedite
//	round:   ballots → verdict → brake → reports → commit → apply → generation
//	command: settings → ended verdicts → commit → apply → generation
//	sweep:   what leaves, what comes, where it was named, part by part → commit → apply
//
// A step of a record is kept only after the store has it, a verdict only after
// its transaction, a report only after it was stored: what readers see is never
// ahead of what a restart would find. While the store is away no batch is
// taken, no verdict changes and no command is carried out.
//
// Rounds, operators' commands, new configurations and the parts of a sweep take
// turns; a batch waits for a command, since it may take away the records that the
// batch would step.
// Relays that are stored but not watched (excluded, removed, no longer
// configured) stand aside: they are in no task, no count and no generation. A ws
// relay that its wss twin stands for is watched, but in no task either.
//
// The engine decides nothing by itself: the rules are package monitor's, it
// only keeps the state that they need and calls them in order.
package engine
