package interop_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

const geohash = "u33db"

var testKey = func() nostr.Key {
	k, err := nostr.ParseKey("0000000000000000000000000000000000000000000000000000000000000003")
	if err != nil {
		panic(err)
	}
	return k
}()

// parsed is one report as a client understands it.
type parsed struct {
	URL          string   `json:"url"`
	RTTOpen      int      `json:"rttOpen"`
	RTTRead      int      `json:"rttRead"` // 0 = none
	Network      string   `json:"network"`
	NIPs         []string `json:"nips"`
	Requirements []string `json:"requirements"`
	Geohash      string   `json:"geohash"`
	Name         string   `json:"name"` // of the NIP-11 document in content
}

// served is a relay that serves n reports, and what each of them says.
type served struct {
	url     string // ws://…/
	reports []parsed
}

// serve signs n reports as the monitor does and serves them on loopback.
func serve(t *testing.T, n int) served {
	t.Helper()
	r, err := relay.New(relay.Options{Name: "Pharos", Pubkey: testKey.Pubkey(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.Wants(req) {
			http.NotFound(w, req)
			return
		}
		r.ServeHTTP(w, req)
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	s := served{url: "ws" + strings.TrimPrefix(srv.URL, "http") + "/"}
	now := time.Now()
	pub, err := publisher.New(publisher.Config{
		Name: "Pharos", Contact: "mailto:ops@example.org", ListenURL: s.url,
		Frequency: time.Hour, Expiration: 6 * time.Hour, Timeout: 12 * time.Second,
		Checks: []string{"open", "read", "nip11", "dns"}, Networks: []monitor.Network{monitor.Clearnet}, Geohash: geohash,
	}, testKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &monitor.Generation{Number: 1, GeneratedAt: now, NewestCheck: now, OldestCheck: now, Monitored: n, Vantages: 1}
	var sources []monitor.ReportSource
	for i := range n {
		src, says := report(i, now)
		sources, s.reports = append(sources, src), append(s.reports, says)
	}
	signed := pub.Reports(now, sources)
	if len(signed) != n {
		t.Fatalf("%d reports signed, want %d", len(signed), n)
	}
	byURL := map[string]*monitor.SignedEvent{}
	for i := range signed {
		byURL[signed[i].D] = &signed[i]
	}
	for i := range sources {
		g.Online = append(g.Online, monitor.OnlineRelay{URL: sources[i].URL, Since: now, LastSuccess: now, Report: byURL[string(sources[i].URL)]})
	}
	service := pub.Announcements(now)
	for i := range service {
		g.Service = append(g.Service, &service[i])
	}
	r.Update(g)
	return s
}

// report is relay i, with variety in all that clients read, and what a client
// must make of it.
func report(i int, now time.Time) (monitor.ReportSource, parsed) {
	url := fmt.Sprintf("wss://relay%05d.example.com/", i)
	if i%7 == 0 {
		url += "path/Of" + strconv.Itoa(i)
	}
	src := monitor.ReportSource{URL: monitor.RelayURL(url), Network: monitor.Clearnet, RTTOpen: 20 + i%400, OnlineSince: now.Add(-10 * time.Minute)}
	says := parsed{URL: url, RTTOpen: src.RTTOpen, Network: "clearnet", NIPs: []string{}, Requirements: []string{"!auth", "!payment", "!pow", "!writes"}}
	if i%4 != 0 {
		src.RTTRead = 5 + i%100
		says.RTTRead = src.RTTRead
	}
	if i%5 == 0 {
		src.AuthSeen = true
		says.Requirements[0] = "auth"
	}
	if i%3 != 0 {
		nips := []int{1, 11}
		if i%2 == 0 {
			nips = append(nips, 50)
		}
		for _, nip := range nips {
			says.NIPs = append(says.NIPs, strconv.Itoa(nip))
		}
		says.Name = fmt.Sprintf("relay %d “ünïcode” \\ \"quoted\" 🗼", i)
		src.Info = &monitor.Info{
			Name: says.Name, NIPs: nips, Languages: []string{"de", "en-GB"}, Tags: []string{"Art", "nostr"},
			Raw: fmt.Appendf(nil, `{"name":%s,"supported_nips":[%s]}`, jsonText(says.Name), strings.Join(says.NIPs, ",")),
		}
	}
	if i%6 == 0 {
		src.Country, src.Geohash, says.Geohash = "DE", geohash, geohash
	}
	return src, says
}

func (s served) where(holds func(parsed) bool) []parsed {
	return slices.DeleteFunc(slices.Clone(s.reports), func(p parsed) bool { return !holds(p) })
}

func urls(list []parsed) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		out = append(out, p.URL)
	}
	slices.Sort(out)
	return out
}
