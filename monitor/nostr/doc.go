// Package nostr is the leaf of the domain that knows go-nostr: events and how
// they are signed, encoded and verified, and the keys that sign them.
//
// It opens no connection and never lets a secret key out: a Key prints masked
// wherever it is formatted, logged or marshalled, and no error of this package
// contains one.
package nostr
