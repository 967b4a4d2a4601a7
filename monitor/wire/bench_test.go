package wire_test

import (
	"bytes"
	"testing"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// thousand is a batch as a vantage sends it under load.
func thousand() *monitor.Batch {
	b := &monitor.Batch{Vantage: "berlin", Seq: 7, SentAt: noon}
	for n := range 1000 {
		b.Observations = append(b.Observations, plainOne(n))
	}
	return b
}

func BenchmarkEncode1000(b *testing.B) {
	in := thousand()
	var out bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		if err := wire.EncodeBatch(&out, in); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(out.Len())/1000, "B/observation")
}

func BenchmarkDecode1000(b *testing.B) {
	body := encode(b, thousand())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.DecodeBatch(bytes.NewReader(body), "berlin"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRestamp(b *testing.B) {
	body := encode(b, thousand())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Restamp(body, noon); err != nil {
			b.Fatal(err)
		}
	}
}
