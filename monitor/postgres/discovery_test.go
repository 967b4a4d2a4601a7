package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// sweepOf is a part of a sweep that ended at at.
func sweepOf(at time.Time, relays ...monitor.NamedRelay) *monitor.Decision {
	return &monitor.Decision{At: at, Generation: 1, Named: &monitor.Named{At: at, Relays: relays}}
}

func foundRelay(u monitor.RelayURL, authors int, kinds ...int) monitor.FoundRelay {
	return monitor.FoundRelay{URL: u, Authors: authors, Kinds: kinds}
}

// Where relays were named comes back after a restart, for those that are watched.
func TestWhereRelaysWereNamedIsKept(t *testing.T) {
	t.Parallel()
	url := postgres.TestDatabase(t)
	s := open(t, url)
	empty, err := s.Load(t.Context())
	check(t, err)
	if empty.Found != 0 || empty.Waiting != 0 || len(empty.Provenance) != 0 {
		t.Errorf("of an empty database: %d found, %d waiting, %v", empty.Found, empty.Waiting, empty.Provenance)
	}
	urls := prepare(t, s, 3)
	first := time.Now().Add(-time.Hour).Truncate(time.Microsecond).UTC()
	second := first.Add(time.Hour)
	const wild, odd = monitor.RelayURL("wss://wild.example/"), monitor.RelayURL("wss://odd.example/{a},\"b\"\x00")
	one := sweepOf(first,
		monitor.NamedRelay{FoundRelay: foundRelay(urls[0], 7, 3, 10002)},
		monitor.NamedRelay{FoundRelay: foundRelay(urls[1], 1)}, // of no kind at all
		monitor.NamedRelay{FoundRelay: foundRelay(wild, 2, 3), Waiting: true},
		monitor.NamedRelay{FoundRelay: foundRelay(odd, 2, 3), Waiting: true})
	check(t, s.Commit(t.Context(), one))
	check(t, s.Commit(t.Context(), one)) // again, as after a lost answer
	got, err := s.Load(t.Context())
	check(t, err)
	if got.Found != 4 || got.Waiting != 2 {
		t.Errorf("%d found, %d waiting; want 4, 2", got.Found, got.Waiting)
	}
	// A relay twice in one part, one that comes in with it, and one that is watched now.
	watched := monitor.WatchedRelay{URL: wild, Source: monitor.SourceDiscovery, FirstSeen: second, Candidate: true}
	two := sweepOf(second,
		monitor.NamedRelay{FoundRelay: foundRelay(urls[0], 1, 3)},
		monitor.NamedRelay{FoundRelay: foundRelay(urls[0], 8, 10050)},
		monitor.NamedRelay{FoundRelay: foundRelay(wild, 3, 30002)},
		monitor.NamedRelay{FoundRelay: foundRelay("wss://new.example/", 1, 3), Waiting: true})
	two.Relays = []monitor.WatchedRelay{watched}
	check(t, s.Commit(t.Context(), two))
	var since []time.Time
	for _, r := range two.Named.Relays[1:] {
		since = append(since, r.FirstSeen)
	}
	if d := cmp.Diff([]time.Time{first, first, second}, since); d != "" {
		t.Errorf("first seen (-want +got):\n%s", d)
	}
	s.Close()

	s = open(t, url)
	got, err = s.Load(t.Context())
	check(t, err)
	if got.Found != 3 || got.Waiting != 1 {
		t.Errorf("%d found, %d waiting; want 3, 1", got.Found, got.Waiting)
	}
	if d := cmp.Diff(map[monitor.RelayURL]monitor.Provenance{
		urls[0]: {Kinds: []int{10050}, Authors: 8, FirstSeen: first, LastSeen: second},
		urls[1]: {Kinds: []int{}, Authors: 1, FirstSeen: first, LastSeen: first},
		wild:    {Kinds: []int{30002}, Authors: 3, FirstSeen: first, LastSeen: second},
	}, got.Provenance); d != "" {
		t.Errorf("provenance (-want +got):\n%s", d)
	}

	// What was not named for long is forgotten, and the relays stay.
	check(t, s.Commit(t.Context(), &monitor.Decision{At: second, Generation: 1, Named: &monitor.Named{At: second, Before: second}}))
	got, err = s.Load(t.Context())
	check(t, err)
	if len(got.Relays) != 4 || len(got.Provenance) != 2 || got.Found != 3 {
		t.Errorf("%d relays, provenance of %d, %d found; want 4, 2, 3", len(got.Relays), len(got.Provenance), got.Found)
	}
}

// Twenty thousand relays that are watched from now on, a thousand at a time.
func BenchmarkCandidates(b *testing.B) {
	const part = 1000
	s := open(b, postgres.TestDatabase(b))
	at := time.Now().Truncate(time.Microsecond)
	var longest time.Duration
	n := 0
	for b.Loop() {
		for range 20 {
			d := &monitor.Decision{At: at, Generation: 1}
			for range part {
				n++
				d.Relays = append(d.Relays, monitor.WatchedRelay{
					URL: monitor.RelayURL(fmt.Sprintf("wss://candidate%06d.example.com/", n)), Source: monitor.SourceDiscovery, FirstSeen: at, Candidate: true,
				})
			}
			began := time.Now()
			check(b, s.Commit(b.Context(), d))
			longest = max(longest, time.Since(began))
		}
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-part-ms")
}

// A hundred thousand relays, as one sweep after another stores them.
func BenchmarkNamed(b *testing.B) {
	const relays, part = 100_000, 1000
	s := open(b, postgres.TestDatabase(b))
	at := time.Now().Truncate(time.Microsecond)
	var longest time.Duration
	for b.Loop() {
		at = at.Add(time.Hour)
		for from := 0; from < relays; from += part {
			d := sweepOf(at)
			for i := from; i < from+part; i++ {
				d.Named.Relays = append(d.Named.Relays, monitor.NamedRelay{
					FoundRelay: foundRelay(monitor.RelayURL(fmt.Sprintf("wss://relay%06d.example.com/", i)), i%50, 3, 10002), Waiting: i > 20_000,
				})
			}
			began := time.Now()
			check(b, s.Commit(b.Context(), d))
			longest = max(longest, time.Since(began))
		}
	}
	b.ReportMetric(float64(longest.Milliseconds()), "longest-part-ms")
}
