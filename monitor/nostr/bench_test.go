package nostr_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// BenchmarkP9Sign compares ours with the raw library, its key cached: the bar
// is a ratio of 1.2. Both are measured in turns, so that a neighbour's load
// falls on both.
func BenchmarkP9Sign(b *testing.B) {
	raw, err := hex.DecodeString(secretHex)
	if err != nil {
		b.Fatal(err)
	}
	sk, pk := btcec.PrivKeyFromBytes(raw)
	pubkey := hex.EncodeToString(schnorr.SerializePubKey(pk))
	k, err := nostr.ParseKey(secret)
	if err != nil {
		b.Fatal(err)
	}
	ev := event()
	var ours, floor time.Duration
	for b.Loop() {
		start := time.Now()
		if err := k.Sign(&ev); err != nil {
			b.Fatal(err)
		}
		mid := time.Now()
		ev.PubKey = pubkey
		h := sha256.Sum256(ev.Serialize())
		sig, err := schnorr.Sign(sk, h[:], schnorr.FastSign())
		if err != nil {
			b.Fatal(err)
		}
		ev.ID, ev.Sig = hex.EncodeToString(h[:]), hex.EncodeToString(sig.Serialize())
		floor += time.Since(mid)
		ours += mid.Sub(start)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/sign")
	b.ReportMetric(float64(floor.Microseconds())/float64(b.N), "µs/raw")
	b.ReportMetric(float64(ours)/float64(floor), "×raw")
}
