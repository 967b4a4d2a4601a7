package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// Whatever is decoded encodes again, to the same; whatever is not is ErrInvalid.
func checkBatch(t *testing.T, body []byte) {
	t.Helper()
	b, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
	if err != nil {
		if !errors.Is(err, monitor.ErrInvalid) || b != nil {
			t.Fatalf("batch %v, error %v", b, err)
		}
		return
	}
	for i := range b.Observations {
		if b.Observations[i].Vantage != "berlin" {
			t.Fatalf("observation %d is of %q", i, b.Observations[i].Vantage)
		}
	}
	var again bytes.Buffer
	if err := wire.EncodeBatch(&again, b); err != nil {
		t.Fatalf("what was decoded cannot be encoded: %v", err)
	}
	c, err := wire.DecodeBatch(&again, "berlin")
	if err != nil {
		t.Fatalf("what was encoded cannot be decoded: %v", err)
	}
	if diff := cmp.Diff(b, c, comparable, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("it came out as another\n%s", diff)
	}
}

// FuzzBatchBytes mutates a body as it is sent.
func FuzzBatchBytes(f *testing.F) {
	body := encode(f, batch())
	f.Add(body)
	f.Add(body[:len(body)/2])
	f.Add(append(bytes.Clone(body), 0))
	f.Add(zip(f, ""))
	f.Fuzz(func(t *testing.T, body []byte) { checkBatch(t, body) })
}

// FuzzBatchText mutates the text below the gzip.
func FuzzBatchText(f *testing.F) {
	text := unzip(f, encode(f, batch()))
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(`{"version":1,"version":3}` + "\n")
	f.Add(strings.Replace(text, `"version":2`, `"version":1`, 1))
	f.Add(`{"version":1,"vantage":"berlin","seq":1,"seq":2,"sent_at":"2026-11-30T12:00:00Z","count":0,"health":{}}` + "\n")
	f.Fuzz(func(t *testing.T, text string) { checkBatch(t, zip(t, text)) })
}

// FuzzMessages mutates the other messages.
func FuzzMessages(f *testing.F) {
	for _, v := range []any{
		wire.Tasks{Version: 1, Rules: rules(), ServerTime: noon, Set: []monitor.Task{{Relay: "wss://relay.example.com/"}}},
		wire.Answer{Stored: 1, Expedite: []monitor.RelayURL{"wss://relay.example.com/"}},
		wire.Enrolment{Version: 1, Token: "t", Networks: []monitor.Network{monitor.Clearnet}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return // encoding/json judges these before it asks us
		}
		for _, v := range []any{new(wire.Tasks), new(wire.Answer), new(wire.Enrolment)} {
			if err := json.Unmarshal(b, v); err != nil && !errors.Is(err, monitor.ErrInvalid) {
				t.Fatalf("%T: error %v", v, err)
			}
		}
	})
}
