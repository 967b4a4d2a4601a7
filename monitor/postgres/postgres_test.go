package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noon is a fixed time of today, so that today's partition is there.
func noon() time.Time { return time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour) }

func relayURL(i int) monitor.RelayURL {
	return monitor.RelayURL(fmt.Sprintf("wss://relay%d.example/", i))
}

// prepare enrols vantage "a" and watches n relays.
func prepare(t testing.TB, s *postgres.Store, n int) []monitor.RelayURL {
	t.Helper()
	check(t, s.Enrol(t.Context(), monitor.Vantage{Name: "a", Networks: []monitor.Network{monitor.Clearnet}, Enrolled: noon()}))
	var urls []monitor.RelayURL
	var watched []monitor.WatchedRelay
	for i := range n {
		urls = append(urls, relayURL(i))
		watched = append(watched, monitor.WatchedRelay{URL: relayURL(i), Source: monitor.SourceConfig, FirstSeen: noon()})
	}
	check(t, s.Watch(t.Context(), watched))
	return urls
}

// batch has one good observation of each relay.
func batch(seq uint64, at time.Time, urls ...monitor.RelayURL) *monitor.Ingest {
	in := &monitor.Ingest{
		Batch:   monitor.Batch{Vantage: "a", Seq: seq, SentAt: at},
		Records: map[monitor.RelayURL]monitor.VantageRelay{},
	}
	for _, u := range urls {
		in.Batch.Observations = append(in.Batch.Observations, okObservation(u, at))
		in.Records[u] = monitor.VantageRelay{
			Record:  monitor.Record{State: monitor.StateOnline, LastSuccess: at},
			Outcome: monitor.OutcomeOK, Stage: monitor.StageRead, At: at, NextDue: at.Add(5 * time.Minute), Newest: at,
			RTTOpen: 83 * time.Millisecond, RTTRead: 41 * time.Millisecond,
		}
	}
	return in
}

func okObservation(u monitor.RelayURL, at time.Time) monitor.Observation {
	o := monitor.Observation{
		Relay: u, Vantage: "a", Start: at.Add(-200 * time.Millisecond), At: at,
		Outcome: monitor.OutcomeOK, Stage: monitor.StageRead,
		RTTOpen: 83 * time.Millisecond, RTTRead: 41 * time.Millisecond, HTTPStatus: 101, Lag: 7 * time.Millisecond,
	}
	o.Times[monitor.StageDNS] = 3 * time.Millisecond
	o.Times[monitor.StageTCP] = 20 * time.Millisecond
	o.Times[monitor.StageTLS] = 40 * time.Millisecond
	o.Times[monitor.StageUpgrade] = 23 * time.Millisecond
	o.Times[monitor.StageRead] = 60 * time.Millisecond
	return o
}
