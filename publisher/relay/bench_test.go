package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

// The servers run in processes of their own, this test binary again, so that
// their CPU can be told from the clients'.
const benchServer = "PHAROS_BENCH_SERVER" // "kind n"

// The servers: ours; the least that could answer at all; the usual way.
const (
	ours  = "ours"
	floor = "floor"
	slice = "khatru+slicestore"
)

func benchReport(i int) nostr.Event {
	ev := report(i, time.Unix(1_790_000_000+int64(i/19), 0))
	ev.Tags = slices.DeleteFunc(ev.Tags, func(t nostr.Tag) bool { return t[0] == "expiration" })
	for len(ev.Tags) < 32 {
		ev.Tags = append(ev.Tags, nostr.Tag{"N", strconv.Itoa(len(ev.Tags))})
	}
	if i == 7 || i == 1507 { // what two have, however many are stored
		ev.Tags = append(ev.Tags, nostr.Tag{"N", "9999"}, nostr.Tag{"t", "rare"})
	}
	ev.Content = `{"name":"a relay","description":"` + strings.Repeat("words ", 100) + `"}`
	return ev
}

// runBenchServer serves until its standard input ends, and tells its CPU time
// in seconds and its resident memory in bytes for each line that it is sent.
func runBenchServer(kind string, n int) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := &monitor.Generation{}
	var evs []*gonostr.Event
	for i := range n {
		ev := benchReport(i)
		ev.PubKey, ev.Sig = key.Pubkey(), strings.Repeat("0", 128)
		ev.ID = ev.GetID()
		s, err := nostr.Encode(&ev)
		if err != nil {
			return err
		}
		evs = append(evs, &ev)
		g.Online = append(g.Online, monitor.OnlineRelay{URL: monitor.RelayURL(s.D), Report: s})
	}
	var handler http.Handler
	switch kind {
	case ours:
		r, err := relay.New(relay.Options{})
		if err != nil {
			return err
		}
		r.Update(g)
		handler = r
	case floor:
		handler = newFloor(g)
	case slice:
		db := &slicestore.SliceStore{MaxLimit: 1 << 20}
		if err := db.Init(); err != nil {
			return err
		}
		for _, ev := range evs {
			if err := db.SaveEvent(context.Background(), ev); err != nil {
				return err
			}
		}
		r := khatru.NewRelay()
		r.QueryEvents = append(r.QueryEvents, db.QueryEvents)
		handler = r
	}
	go func() { _ = (&http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}).Serve(ln) }()
	fmt.Println(ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var ru syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			return err
		}
		rss, err := residentBytes()
		if err != nil {
			return err
		}
		fmt.Println(float64(ru.Utime.Nano()+ru.Stime.Nano())/1e9, rss)
	}
	return nil
}

// residentBytes is what this process holds of the machine's memory, garbage
// that was given back not counted.
func residentBytes() (int, error) {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		return 0, err
	}
	return resident * os.Getpagesize(), nil
}

// newFloor answers a REQ from frames encoded beforehand, knowing nothing but
// #d, #N, #t and limit: the least work that sends the same bytes.
func newFloor(g *monitor.Generation) http.Handler {
	byTag := map[[2]string][][]byte{}
	var all [][]byte
	for i := len(g.Online) - 1; i >= 0; i-- {
		body := g.Online[i].Report.JSON
		all = append(all, body)
		var ev gonostr.Event
		if err := ev.UnmarshalJSON(body); err != nil {
			panic(err)
		}
		for _, t := range ev.Tags {
			byTag[[2]string{t[0], t[1]}] = append(byTag[[2]string{t[0], t[1]}], body)
		}
	}
	header := func(b []byte, n int) []byte {
		if n < 126 {
			return append(b, 0x81, byte(n))
		}
		return binary.BigEndian.AppendUint16(append(b, 0x81, 126), uint16(n))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		b := make([]byte, 0, 80<<10)
		for {
			var h [8]byte
			if _, err := io.ReadFull(rw, h[:2]); err != nil {
				return
			}
			n, mask := int(h[1]&0x7f), h[2:6]
			if n == 126 {
				if _, err := io.ReadFull(rw, h[2:4]); err != nil {
					return
				}
				n, mask = int(binary.BigEndian.Uint16(h[2:])), h[4:8]
			}
			if _, err := io.ReadFull(rw, mask); err != nil {
				return
			}
			p := make([]byte, n)
			if _, err := io.ReadFull(rw, p); err != nil {
				return
			}
			for i := range p {
				p[i] ^= mask[i&3]
			}
			var req []json.RawMessage
			var f struct {
				D     []string `json:"#d"`
				N     []string `json:"#N"`
				T     []string `json:"#t"`
				Limit *int     `json:"limit"`
			}
			if json.Unmarshal(p, &req) != nil || len(req) < 3 || json.Unmarshal(req[2], &f) != nil {
				return
			}
			prefix := append(append([]byte(`["EVENT",`), req[1]...), ',')
			list := all
			for name, values := range map[string][]string{"d": f.D, "N": f.N, "t": f.T} {
				if values != nil {
					list = nil
					for _, v := range values {
						list = append(list, byTag[[2]string{name, v}]...)
					}
				}
			}
			if f.Limit != nil {
				list = list[:min(len(list), *f.Limit)]
			}
			b = b[:0]
			for _, j := range list {
				b = append(append(append(header(b, len(prefix)+len(j)+1), prefix...), j...), ']')
				if len(b) >= 64<<10 {
					if _, err := c.Write(b); err != nil {
						return
					}
					b = b[:0]
				}
			}
			end := `["EOSE",` + string(req[1]) + `]`
			if _, err := c.Write(append(header(b, len(end)), end...)); err != nil {
				return
			}
		}
	})
}

// process is a bench server in a process of its own.
type process struct {
	addr string
	in   io.WriteCloser
	out  *bufio.Scanner
}

func startServer(b *testing.B, kind string, n int) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", benchServer, kind, n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &process{in: in, out: bufio.NewScanner(out)}
	if !p.out.Scan() {
		b.Fatalf("%s does not start", kind)
	}
	p.addr = p.out.Text()
	return p
}

func (p *process) usage(b *testing.B) (cpu float64, resident int) {
	b.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		b.Fatal(err)
	}
	if !p.out.Scan() {
		b.Fatal("the server ended")
	}
	if _, err := fmt.Sscan(p.out.Text(), &cpu, &resident); err != nil {
		b.Fatal(err)
	}
	return cpu, resident
}

func (p *process) cpu(b *testing.B) float64 {
	b.Helper()
	cpu, _ := p.usage(b)
	return cpu
}

// connect opens a WebSocket.
func (p *process) connect(b *testing.B) (net.Conn, *bufio.Reader) {
	b.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		b.Fatal(err)
	}
	br := bufio.NewReaderSize(c, 64<<10)
	if _, err := io.WriteString(c, strings.Replace(handshake, "WebSocket\r", "websocket\r", 1)); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		b.Fatalf("%v, %v", resp, err)
	}
	return c, br
}

// tally is what a load came to.
type tally struct {
	requests, events int64
	elapsed          time.Duration
	cpu              float64 // of the server, seconds
}

func (t *tally) add(o tally) {
	t.requests += o.requests
	t.events += o.events
	t.elapsed += o.elapsed
	t.cpu += o.cpu
}

func (t tally) rate(n int64) float64      { return float64(n) / t.elapsed.Seconds() }
func (t tally) cpuPer(n int64) float64    { return t.cpu / float64(n) }
func (t tally) cpuRequest() float64       { return t.cpuPer(t.requests) }
func (t tally) eventRate() float64        { return t.rate(t.events) }
func (t tally) requestRate() float64      { return t.rate(t.requests) }
func (p *process) filterD(i int) string   { return fmt.Sprintf(`{"kinds":[30166],"#d":[%q]}`, urlOf(i)) }
func constant(s string) func(int) string  { return func(int) string { return s } }
func benchFrame(id, filter string) []byte { return frame(0x81, -1, `["REQ","`+id+`",`+filter+`]`) }
func isEvent(payload []byte) bool         { return len(payload) > 4 && payload[2] == 'E' && payload[3] == 'V' }

func isEndOfStored(payload []byte) bool {
	return len(payload) > 4 && payload[2] == 'E' && payload[3] == 'O'
}

// load lets clients ask for filter(i), one request at a time each, for d.
func (p *process) load(b *testing.B, clients int, d time.Duration, filter func(int) string) tally {
	b.Helper()
	var t tally
	var requests, events atomic.Int64
	var wg sync.WaitGroup
	conns := make([]net.Conn, clients)
	readers := make([]*bufio.Reader, clients)
	for i := range conns {
		conns[i], readers[i] = p.connect(b)
	}
	before := p.cpu(b)
	start := time.Now()
	for i := range conns {
		wg.Go(func() {
			defer func() { _ = conns[i].Close() }()
			for k := i; time.Since(start) < d; k += clients {
				if _, err := conns[i].Write(benchFrame("x", filter(k))); err != nil {
					b.Error(err)
					return
				}
				n, err := readAnswer(readers[i])
				if err != nil {
					b.Error(err)
					return
				}
				events.Add(n)
				requests.Add(1)
			}
		})
	}
	wg.Wait()
	t.elapsed = time.Since(start)
	t.cpu = p.cpu(b) - before
	t.requests, t.events = requests.Load(), events.Load()
	return t
}

// readAnswer reads up to the EOSE without looking at more than each message's
// first bytes, and counts the events.
func readAnswer(br *bufio.Reader) (events int64, err error) {
	for {
		fin := false
		for first := true; !fin; first = false {
			h, err := br.Peek(2)
			if err != nil {
				return events, err
			}
			fin = h[0]&0x80 != 0
			size, n := 2, int(h[1])
			if n == 126 {
				if h, err = br.Peek(4); err != nil {
					return events, err
				}
				size, n = 4, int(binary.BigEndian.Uint16(h[2:]))
			}
			payload, err := br.Peek(size + min(n, 8))
			if err != nil {
				return events, err
			}
			end := first && isEndOfStored(payload[size:])
			if first && isEvent(payload[size:]) {
				events++
			}
			if _, err := br.Discard(size + n); err != nil {
				return events, err
			}
			if end {
				return events, nil
			}
		}
	}
}

const (
	benchClients = 50
	benchSlice   = 300 * time.Millisecond // of each server, in turns
)

// BenchmarkP5Events: events a second at limit 500 of 3 000 stored; the bar is
// 6 × khatru + slicestore.
func BenchmarkP5Events(b *testing.B) {
	const n = 3000
	servers := map[string]*process{ours: startServer(b, ours, n), floor: startServer(b, floor, n), slice: startServer(b, slice, n)}
	sums := map[string]*tally{ours: {}, floor: {}, slice: {}}
	for b.Loop() {
		for name, p := range servers {
			sums[name].add(p.load(b, benchClients, benchSlice, constant(`{"kinds":[30166],"limit":500}`)))
		}
	}
	for name, t := range sums {
		if t.events != 500*t.requests {
			b.Fatalf("%s: %d events in %d answers", name, t.events, t.requests)
		}
		b.ReportMetric(t.eventRate(), name+"-events/s")
	}
	b.ReportMetric(sums[ours].eventRate()/sums[slice].eventRate(), "×slicestore")
	b.ReportMetric(sums[ours].cpuRequest()/sums[floor].cpuRequest(), "×floor-cpu")
}

// BenchmarkP5Lookups: #d look-ups a second; the bar is within 2 × of each other
// at 3 000 and 30 000 stored, and 20 × slicestore.
func BenchmarkP5Lookups(b *testing.B) {
	small, large, usual, least := startServer(b, ours, 3000), startServer(b, ours, 30000), startServer(b, slice, 30000), startServer(b, floor, 30000)
	var s, l, u, f tally
	for b.Loop() {
		s.add(small.load(b, benchClients, benchSlice, func(i int) string { return small.filterD(i * 7919 % 3000) }))
		l.add(large.load(b, benchClients, benchSlice, func(i int) string { return large.filterD(i * 7919 % 30000) }))
		u.add(usual.load(b, benchClients, benchSlice, func(i int) string { return usual.filterD(i * 7919 % 30000) }))
		f.add(least.load(b, benchClients, benchSlice, func(i int) string { return least.filterD(i * 7919 % 30000) }))
	}
	for _, t := range []tally{s, l, u, f} {
		if t.events != t.requests {
			b.Fatalf("%d events in %d answers", t.events, t.requests)
		}
	}
	b.ReportMetric(s.requestRate(), "look-ups/s-at-3000")
	b.ReportMetric(l.requestRate(), "look-ups/s-at-30000")
	b.ReportMetric(u.requestRate(), "slicestore-look-ups/s-at-30000")
	b.ReportMetric(f.requestRate(), "floor-look-ups/s")
	b.ReportMetric(s.requestRate()/l.requestRate(), "×3000/30000")
	b.ReportMetric(l.requestRate()/u.requestRate(), "×slicestore")
}

// BenchmarkP5FullList: the whole list of 3 000; the bar is 5 × the floor's CPU.
func BenchmarkP5FullList(b *testing.B) {
	const n = 3000
	mine, least := startServer(b, ours, n), startServer(b, floor, n)
	var m, l tally
	for b.Loop() {
		m.add(mine.load(b, benchClients, benchSlice, constant(`{"kinds":[30166]}`)))
		l.add(least.load(b, benchClients, benchSlice, constant(`{"kinds":[30166]}`)))
	}
	for _, t := range []tally{m, l} {
		if t.events != n*t.requests {
			b.Fatalf("%d events in %d answers", t.events, t.requests)
		}
	}
	b.ReportMetric(m.requestRate(), "lists/s")
	b.ReportMetric(l.requestRate(), "floor-lists/s")
	b.ReportMetric(1000*m.cpuRequest(), "cpu-ms/list")
	b.ReportMetric(m.cpuRequest()/l.cpuRequest(), "×floor-cpu")
}

// BenchmarkP5RareTags: what two of 3 000 and of 30 000 have, by #N and by #t
// beside a tag that all have; the bar is that of #d, within 2 × of each other.
func BenchmarkP5RareTags(b *testing.B) {
	small, large, least := startServer(b, ours, 3000), startServer(b, ours, 30000), startServer(b, floor, 30000)
	filters := []string{`{"kinds":[30166],"#N":["9999"]}`, `{"kinds":[30166],"#t":["rare"],"limit":500}`}
	both := func(i int) string { return filters[i%2] }
	var s, l, f tally
	for b.Loop() {
		s.add(small.load(b, benchClients, benchSlice, both))
		l.add(large.load(b, benchClients, benchSlice, both))
		f.add(least.load(b, benchClients, benchSlice, both))
	}
	for _, t := range []tally{s, l, f} {
		if t.events != 2*t.requests {
			b.Fatalf("%d events in %d answers", t.events, t.requests)
		}
	}
	b.ReportMetric(s.requestRate(), "look-ups/s-at-3000")
	b.ReportMetric(l.requestRate(), "look-ups/s-at-30000")
	b.ReportMetric(f.requestRate(), "floor-look-ups/s")
	b.ReportMetric(s.requestRate()/l.requestRate(), "×3000/30000")
	b.ReportMetric(l.cpuRequest()/f.cpuRequest(), "×floor-cpu")
}

// BenchmarkP6Idle: what a thousand subscribers cost that have read the whole
// list of 1 500 and wait for what is new; the bar is 100 MB (reports.md 19). It
// is the resident memory of the server's process, before and with them.
func BenchmarkP6Idle(b *testing.B) {
	const clients = 1000
	p := startServer(b, ours, 1500)
	var most int
	for b.Loop() {
		_, before := p.usage(b)
		conns := make([]net.Conn, clients)
		for i := range conns {
			c, br := p.connect(b)
			conns[i] = c
			if _, err := c.Write(benchFrame("x", `{"kinds":[30166]}`)); err != nil {
				b.Fatal(err)
			}
			if n, err := readAnswer(br); err != nil || n != 1500 {
				b.Fatalf("%d events, %v", n, err)
			}
		}
		_, with := p.usage(b)
		most = max(most, with-before)
		for _, c := range conns {
			_ = c.Close()
		}
	}
	b.ReportMetric(float64(most)/1e6, "MB/1000-subscribers")
	if most > 100e6 {
		b.Errorf("a thousand idle subscribers cost %d MB, more than 100", most/1e6)
	}
}

// BenchmarkP6Stalled: how long the slowest of ten readers waits for what a
// generation brings, alone and beside a subscriber that asked for the whole
// list again and again and reads nothing; the bar is 100 ms more.
func BenchmarkP6Stalled(b *testing.B) {
	const n, readers = 3000, 10
	s := serve(b, relay.Options{})
	now := time.Now()
	g := generation(b, n, now.Add(-time.Hour), unsigned)
	s.Update(g)
	var subs []*raw
	for range readers {
		r := s.dialRaw(b, frame(0x81, -1, `["REQ","r",{"kinds":[30166],"limit":0}]`))
		r.next(b)
		subs = append(subs, r)
	}
	round := 0
	// Eleven reports a second are a steady state of 40 000 relays.
	push := func() time.Duration {
		round++
		g = with(g, func(g *monitor.Generation) {
			for k := range 11 {
				i := (round*11 + k) % n
				g.Online[i].Report = unsigned(b, report(i, now.Add(time.Duration(round)*time.Second)))
			}
		})
		var wg sync.WaitGroup
		took := make([]time.Duration, readers)
		start := time.Now()
		for i, r := range subs {
			wg.Go(func() {
				for range 11 {
					if _, _, err := r.read(); err != nil {
						b.Error(err)
						return
					}
				}
				took[i] = time.Since(start)
			})
		}
		s.Update(g)
		wg.Wait()
		return slices.Max(took)
	}
	var alone, beside []time.Duration
	for b.Loop() {
		for range 20 {
			alone = append(alone, push())
		}
		ask := frame(0x81, -1, `["REQ","a",{"kinds":[30166]}]`)
		stalled := s.dialRaw(b, bytes.Repeat(ask, 20))
		stalled.next(b) // it is being answered, and reads no further
		for range 20 {
			beside = append(beside, push())
		}
		if st := s.Stats(); st.Connections != readers+1 {
			b.Fatalf("%d connections, want that of the stalled one too", st.Connections)
		}
		_ = stalled.Close()
		eventually(b, "it is forgotten", func() bool { return s.Stats().Connections == readers })
	}
	slices.Sort(alone)
	slices.Sort(beside)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(alone[len(alone)/2]), "ms-alone-p50")
	b.ReportMetric(ms(alone[len(alone)-1]), "ms-alone-max")
	b.ReportMetric(ms(beside[len(beside)/2]), "ms-beside-p50")
	b.ReportMetric(ms(beside[len(beside)-1]), "ms-beside-max")
}
