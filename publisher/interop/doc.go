// Package interop holds no code but tests: the clients that people read relay
// reports with (package.json pins them) read ours from a real socket, each in
// a process of its own, and must see exactly the live set and parse every
// report (reports.md, Proof).
//
// One script (*.mjs) stands for each client. It prints what its client made of
// the reports as one JSON object; what is right is decided here, in Go.
package interop
