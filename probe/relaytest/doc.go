// Package relaytest runs relays for tests and benchmarks: real TCP, real TLS,
// real WebSockets on loopback, healthy or misbehaving in every way that
// farm-behaviours.tsv names, and in a hundred that are broken or made to hurt
// (hostile.go). Pipe makes the same relays without sockets, for tests in virtual
// time. It also holds the floor: the leanest prober that does the same work as a
// probe, for benchmarks to be measured against.
//
// A test starts relays with Start or StartMany, switches their behaviour while
// they run, stops them and starts them again on the same port. Benchmarks that
// count CPU start them in a process of their own (StartProcess), so that only
// the prober's side is counted.
//
// Everything listens within 127.0.0.0/8, never elsewhere, and nothing needs
// root. The relays keep no events and are no relays to learn from.
package relaytest
