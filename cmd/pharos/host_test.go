package main

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
)

// rawSwitch notes every change of what may be written.
type rawSwitch struct{ changes []bool }

func (r *rawSwitch) KeepRaw(on bool) { r.changes = append(r.changes, on) }

func TestHostStopsRawObservationsOnAFullDisk(t *testing.T) {
	var free uint64
	var failure error
	raw, log := &rawSwitch{}, &lockedBuffer{}
	minFree := 0.05
	h := &host{
		log: slog.New(slog.NewTextHandler(log, nil)), dir: "/data", raw: raw,
		minFree: func() float64 { return minFree },
		free:    func(string) (uint64, uint64, error) { return free << 30, 1000 << 30, failure },
	}
	for _, step := range []struct {
		name    string
		free    uint64 // of 1000
		changes int
		warned  bool
	}{
		{"plenty", 400, 0, false},
		{"just enough", 50, 0, false},
		{"too little", 49, 1, true},
		{"the border alone ends nothing", 60, 1, true},
		{"less still", 10, 1, true},
		{"half as much more", 76, 2, false},
	} {
		free = step.free
		h.look()
		if len(raw.changes) != step.changes {
			t.Fatalf("%s: raw rows were switched %d times (%v), want %d", step.name, len(raw.changes), raw.changes, step.changes)
		}
		if got := len(h.Warnings()) > 0; got != step.warned {
			t.Errorf("%s: warnings %q, want some: %v", step.name, h.Warnings(), step.warned)
		}
		if step.warned && !strings.Contains(h.Warnings()[0], "until 7.5 % of it is free (it is ") {
			t.Errorf("%s: %q does not say how much must be free", step.name, h.Warnings()[0])
		}
	}
	if raw.changes[0] || !raw.changes[1] {
		t.Errorf("raw rows were switched %v, want off and then on", raw.changes)
	}
	if n := strings.Count(log.String(), "needs attention"); n != 1 {
		t.Errorf("the full disk was logged %d times, want once:\n%s", n, log)
	}

	free = 10
	h.look()
	failure = errors.New("gone")
	h.look()
	if n := len(raw.changes); n != 3 || raw.changes[2] {
		t.Errorf("a disk that cannot be asked switched raw rows: %v", raw.changes)
	}
	failure, minFree = nil, 0
	h.look()
	if n := len(raw.changes); n != 4 || !raw.changes[3] {
		t.Errorf("without min_free_disk raw rows stay off: %v", raw.changes)
	}
}

func TestHostAsksNoDiskOfAnotherMachine(t *testing.T) {
	raw := &rawSwitch{}
	h := &host{
		log: slog.New(slog.DiscardHandler), raw: raw, minFree: func() float64 { return 0.5 },
		free: func(string) (uint64, uint64, error) {
			t.Error("a disk was asked")
			return 0, 1, nil
		},
	}
	h.look()
	if len(raw.changes) > 0 || len(h.Warnings()) > 0 {
		t.Errorf("raw rows %v, warnings %q", raw.changes, h.Warnings())
	}
}

func TestRoomForProbes(t *testing.T) {
	for _, c := range []struct {
		wanted int
		limit  uint64
		room   int
		warn   bool
	}{
		{1024, 1 << 20, 1024, false},
		{1024, 1024 + spareDescriptors, 1024, false},
		{1024, 1024, 1024 - spareDescriptors, true},
		{1024, 300, 150, true},
		{1024, 1, 1, true},
		{100, 120, 60, true},
		{10, math.MaxUint64, 10, false},
	} {
		room, warning := roomFor(c.wanted, c.limit)
		if room != c.room || (warning != "") != c.warn {
			t.Errorf("%d probes with %d descriptors: room %d, warning %q; want %d, %v", c.wanted, c.limit, room, warning, c.room, c.warn)
		}
	}
}

func TestMemoryForUs(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		whole   uint64
		cluster bool
		want    int64
	}{
		{4 * gb, false, 4 * gb * 9 / 10},
		{4 * gb, true, 4*gb*9/10 - clusterRoom},
		{gb / 4, true, gb / 8},
	} {
		if got := memoryFor(c.whole, c.cluster); got/1024 != c.want/1024 {
			t.Errorf("of %d MB (private cluster %v): %d MB, want %d", c.whole>>20, c.cluster, got>>20, c.want>>20)
		}
	}
	if got := memoryFor(math.MaxUint64, false); got <= 0 {
		t.Errorf("of everything: %d", got)
	}
}
