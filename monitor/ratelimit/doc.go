// Package ratelimit is how every connection of ours to somebody else's relay
// behaves when it is refused (rate-limit.md): what a refusal means, the gate
// that a relay closes for a while, when a subscription is repeated, and how
// subscriptions come back after a reconnect.
//
//	CLOSED, NOTICE, OK → Classify → Gate.Activate
//	                              → Subscriptions: repeat, authenticate or surface
//	ready → Subscriptions: batches of 8, each asks the Gate
//	EVENT out → Bucket
//
// It opens no connection and reads no message: a session hands it the texts that
// came, and a function that sends.
package ratelimit
