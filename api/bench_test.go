package api_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// cpu is the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// caller asks over one connection that is kept, as cheaply as it can be done,
// so that what is measured is the server.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
}

// ask sends request and returns status and header ETag.
func (c *caller) ask(b *testing.B, request []byte) (status int, etag string) {
	if _, err := c.conn.Write(request); err != nil {
		b.Fatal(err)
	}
	length := 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		s := strings.TrimRight(string(line), "\r\n")
		switch {
		case first:
			status, _ = strconv.Atoi(s[9:12])
			continue
		case strings.HasPrefix(s, "Content-Length: "):
			length, _ = strconv.Atoi(s[16:])
			continue
		case strings.HasPrefix(s, "Etag: "):
			etag = s[6:]
			continue
		case s != "":
			continue
		}
		if _, err := c.in.Discard(length); err != nil {
			b.Fatal(err)
		}
		return status, etag
	}
}

// BenchmarkP8 compares what a reader of /v1/live costs (performance.md P8): a
// 304, a 200 from the kept bodies, and the floor that everybody else pays,
// encoding (and compressing) for each request; and the same for a filtered view.
// The ways take turns within one run, so that a busy machine slows all of them.
func BenchmarkP8(b *testing.B) {
	now := time.Now()
	g := generation(now)
	g.Online = nil
	for i := range 3000 {
		g.Online = append(g.Online, monitor.OnlineRelay{
			URL: monitor.RelayURL(fmt.Sprintf("wss://relay-%05d.example%d.org/", i, i*7919%1000)), Since: now.Add(-time.Duration(i*i) * time.Second),
			LastSuccess: now.Add(-time.Duration(i*37%300) * time.Second), RTTOpenMS: 20 + i*31%400, RTTReadMS: 10 + i*17%200,
			Network: monitor.Clearnet, VantagesUp: 3, VantagesTotal: 3, NIPs: []int{1, 2, 4, 9, 11, 12, 15, 16, 20, 22, 28, 33, 40}[:1+i%13], Country: "DE",
		})
	}
	core := &fakeCore{generation: func() *monitor.Generation { return g }}
	handler := newAPI(core, &fakeHistory{})

	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/live", nil))
	whole := decodeLive(b, rec.Body.Bytes()) // what a plain handler would hold and encode
	const filtered = "/v1/live?nip=11&network=clearnet&max_rtt_open_ms=300&sort=rtt_open"
	rec = httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, filtered, nil))
	if got, want := decodeLive(b, rec.Body.Bytes()), whole.filtered(); !reflect.DeepEqual(got.Relays, want.Relays) || want.Count < 1000 {
		b.Fatalf("the filtered view has %d relays, want %d", got.Count, want.Count)
	}
	floor := http.NewServeMux()
	floor.HandleFunc("GET /encode", func(w http.ResponseWriter, _ *http.Request) {
		data, err := json.Marshal(whole)
		if err != nil {
			b.Error(err)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	})
	floor.HandleFunc("GET /filtered", func(w http.ResponseWriter, _ *http.Request) {
		data, err := json.Marshal(whole.filtered())
		if err != nil {
			b.Error(err)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data)
	})
	floor.HandleFunc("GET /gzip", func(w http.ResponseWriter, _ *http.Request) {
		var out strings.Builder
		z := gzip.NewWriter(&out)
		if err := json.NewEncoder(z).Encode(whole); err != nil {
			b.Error(err)
		}
		_ = z.Close()
		w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
		_, _ = io.WriteString(w, out.String())
	})

	dial := func(h http.Handler) *caller {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		return &caller{conn, bufio.NewReaderSize(conn, 64<<10)}
	}
	ours, plain := dial(handler), dial(floor)
	request := func(path string, headers ...string) []byte {
		return []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n")
	}
	_, etag := ours.ask(b, request("/v1/live", "Accept-Encoding: zstd"))
	_, filteredTag := ours.ask(b, request(filtered, "Accept-Encoding: zstd"))
	ways := []*struct {
		name    string
		caller  *caller
		request []byte
		n       int // in one turn
		status  int
		asked   int
		spent   time.Duration
	}{
		{name: "304", caller: ours, request: request("/v1/live", "Accept-Encoding: zstd", "If-None-Match: "+etag), n: 1000, status: 304},
		{name: "zstd", caller: ours, request: request("/v1/live", "Accept-Encoding: zstd"), n: 1000, status: 200},
		{name: "gzip", caller: ours, request: request("/v1/live", "Accept-Encoding: gzip"), n: 1000, status: 200},
		{name: "identity", caller: ours, request: request("/v1/live"), n: 100, status: 200},
		{name: "filtered-304", caller: ours, request: request(filtered, "Accept-Encoding: zstd", "If-None-Match: "+filteredTag), n: 1000, status: 304},
		{name: "filtered-zstd", caller: ours, request: request(filtered, "Accept-Encoding: zstd"), n: 1000, status: 200},
		{name: "filtered-encode", caller: plain, request: request("/filtered"), n: 20, status: 200},
		{name: "encode", caller: plain, request: request("/encode"), n: 20, status: 200},
		{name: "encode+gzip", caller: plain, request: request("/gzip"), n: 10, status: 200},
	}
	for _, way := range ways { // warm up
		way.caller.ask(b, way.request)
	}
	for b.Loop() {
		for _, way := range ways {
			runtime.GC() // what one way leaves behind is not for the next one to clear
			before := cpu(b)
			for range way.n {
				if status, _ := way.caller.ask(b, way.request); status != way.status {
					b.Fatalf("%s: %d", way.name, status)
				}
			}
			way.spent += cpu(b) - before
			way.asked += way.n
		}
	}
	per := map[string]float64{}
	for _, way := range ways {
		per[way.name] = float64(way.spent.Nanoseconds()) / 1000 / float64(way.asked)
		b.ReportMetric(per[way.name], "cpu-µs/"+way.name)
	}
	b.ReportMetric(per["zstd"]/per["304"], "zstd/304")
	b.ReportMetric(per["gzip"]/per["304"], "gzip/304")
	b.ReportMetric(per["encode"]/per["zstd"], "encode/zstd")
	b.ReportMetric(per["filtered-zstd"]/per["filtered-304"], "filtered-zstd/filtered-304")
	b.ReportMetric(per["filtered-encode"]/per["filtered-zstd"], "filtered-encode/filtered-zstd")
	b.ReportMetric(per["encode+gzip"]/per["gzip"], "encode+gzip/gzip")
	b.ReportMetric(0, "ns/op")
}

// plainList is a list in typed values, as a handler without kept bodies would
// hold it.
type plainList struct {
	GeneratedAt string       `json:"generated_at"`
	Generation  uint64       `json:"generation"`
	Usable      bool         `json:"usable"`
	Count       int          `json:"count"`
	Relays      []plainRelay `json:"relays"`
}

type plainRelay struct {
	URL           string   `json:"url"`
	State         string   `json:"state"`
	Since         string   `json:"since"`
	LastSuccess   string   `json:"last_success"`
	RTTOpenMS     int      `json:"rtt_open_ms"`
	RTTReadMS     int      `json:"rtt_read_ms"`
	Network       string   `json:"network"`
	VantagesUp    int      `json:"vantages_up"`
	VantagesTotal int      `json:"vantages_total"`
	Marks         []string `json:"marks"`
	Auth          bool     `json:"auth"`
	Payment       bool     `json:"payment"`
	Writes        bool     `json:"writes"`
	NIPs          []int    `json:"nips"`
	Country       string   `json:"country"`
}

// filtered does what the benchmark's filtered view asks for.
func (l plainList) filtered() plainList {
	var out []plainRelay
	for i := range l.Relays {
		if r := &l.Relays[i]; r.Network == "clearnet" && r.RTTOpenMS <= 300 && slices.Contains(r.NIPs, 11) {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b plainRelay) int {
		return cmp.Or(cmp.Compare(a.RTTOpenMS, b.RTTOpenMS), cmp.Compare(a.URL, b.URL))
	})
	l.Count, l.Relays = len(out), out
	return l
}

func decodeLive(b *testing.B, data []byte) plainList {
	var v plainList
	if err := json.Unmarshal(data, &v); err != nil {
		b.Fatal(err)
	}
	return v
}
