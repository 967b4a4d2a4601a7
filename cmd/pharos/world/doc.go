// Package world shows what the rules of corroboration come to, in virtual time:
//
//   - scenarios: a file of testdata tells what each vantage and each relay goes
//     through, and which votes, verdicts, marks and reports are to follow. It
//     runs through the real vantages, engine and publisher.
//   - the simulated world: thousands of relays that fail in the usual ways, and
//     vantages that do so too, over weeks; it counts what is wrongly called
//     offline or dead, what is missed, and how long it takes to notice, and the
//     same for simpler policies. "make world" prints its table.
//
// It holds nothing but tests, and no other package may import it.
package world
