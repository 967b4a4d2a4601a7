//go:build soak

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/postgres"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// "make soak" sets these.
var (
	flagKills = flag.Int("kills", 50, "how often the soak kills vantages, and how often the core")
	flagAway  = flag.Duration("away", time.Minute, "for how long the soak keeps the core away, a minute at least")
)

const (
	soakRelays   = 40
	soakInterval = minInterval
	soakBatch    = 5 * time.Second // between a vantage's batches
	// Older than 2.5 intervals is history only (corroboration.md, Votes).
	soakGrace = soakInterval * 5 / 2
)

// TestSoak kills real processes at bad moments: two vantages while they send and a
// core with its private database while it takes in, and keeps the core away while
// relays go and come. The relays count the probes that reached them; each of these
// must be stored once, but for what a killed vantage had in memory. It takes many
// minutes: make soak.
func TestSoak(t *testing.T) {
	if *flagAway < time.Minute {
		t.Fatalf("-away %s: the spool would hold nothing that is too old to count: at least a minute", *flagAway)
	}
	begun := time.Now()
	s := newSoak(t)
	s.startCore()
	for _, v := range s.vantages {
		v.token = s.invite(v.name)
		v.start()
	}
	s.waitForList(s.relays)

	// Nothing is killed: every probe that a relay counted is stored.
	s.pause(2 * soakInterval)
	quiet := s.settle()
	table := []soakRow{{what: "nobody killed", tally: quiet, took: time.Since(begun)}}
	if quiet.lost() != 0 {
		t.Errorf("%d probes reached relays and %d were stored, though nobody was killed", quiet.probes, quiet.stored)
	}

	row := s.killVantages(*flagKills)
	table = append(table, row)
	if bound := *flagKills * s.largestBatch(); row.lost() < 0 || row.lost() > bound {
		t.Errorf("%d observations lost by %d kills of vantages: want 0 to %d, a batch each", row.lost(), row.kills, bound)
	}
	if most := s.largestBatch(); row.most > most {
		t.Errorf("%d observations lost by one kill of a vantage: the largest batch has %d", row.most, most)
	}
	if row.kills > 0 && row.amid == 0 {
		t.Error("no vantage was killed while it was sending")
	}
	row = s.killCore(*flagKills)
	table = append(table, row)
	if row.lost() != 0 {
		t.Errorf("%d observations lost by kills of the core, want none", row.lost())
	}
	if row.kills > 0 && row.amid == 0 {
		t.Error("the core was never killed while it was taking a batch in")
	}
	row, away := s.coreAway(*flagAway)
	table = append(table, row)
	if row.lost() != 0 {
		t.Errorf("%d observations lost while the core was away, want none", row.lost())
	}
	s.checkOrder()
	printSoak(s, table, away)
}

// soakRow is a line of the table.
type soakRow struct {
	what  string
	kills int
	amid  int // of them while a batch was under way
	most  int // most observations that one kill cost
	took  time.Duration
	tally
}

// tally is what came of the probes that reached relays.
type tally struct{ probes, stored int }

func (t tally) lost() int           { return t.probes - t.stored }
func (t tally) since(u tally) tally { return tally{t.probes - u.probes, t.stored - u.stored} }

func printSoak(s *soak, table []soakRow, away soakAway) {
	fmt.Printf("%d relays, %d vantages, an interval of %s; the largest batch has %d observations\n\n", soakRelays, len(s.vantages), soakInterval, s.largestBatch())
	fmt.Println("| | kills | amid a batch | probes | stored once | lost | most by one kill | took |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, r := range table {
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %s |\n", r.what, r.kills, r.amid, r.probes, r.stored, r.lost(), r.most, r.took.Round(time.Second))
	}
	fmt.Printf("\nCore away for %s: %d batches of %d observations were spooled, sent within %s of its return; list served again after %s; longest gap in the history of a relay at a vantage %s; "+
		"%d returns and %d failures of that time that would have changed a verdict are history, and %d verdicts changed\n",
		away.lasted.Round(time.Second), away.batches, away.observations, away.drained.Round(100*time.Millisecond), away.served.Round(100*time.Millisecond),
		away.gap.Round(time.Second), away.oldReturns, away.oldFailures, away.transitions)
}

// soak is the processes and what is between them.
type soak struct {
	t        *testing.T
	dir      string
	bin      string
	config   string
	url      string // of the core itself
	relays   []*relaytest.Relay
	link     *link // from the vantages to the core
	core     *soakProcess
	vantages []*soakVantage
	random   *rand.Rand
	psql     string
}

// soakVantage is one vantage over all its processes.
type soakVantage struct {
	*soak
	name, dir, token string
	process          *soakProcess
}

func newSoak(t *testing.T) *soak {
	s := &soak{t: t, dir: dataDir(t), relays: relaytest.StartMany(t, soakRelays, relaytest.Options{}), random: rand.New(rand.NewPCG(4, 2))}
	s.psql = findPsql(t)
	s.bin = filepath.Join(s.dir, "pharos")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	s.url = "http://" + address
	s.link = newLink(t, address)

	s.config = filepath.Join(s.dir, "pharos.yaml")
	text := fmt.Sprintf(`listen: %s
relays: [%s]
discovery: {enabled: false}
database: {backup: "off"}
probe:
  interval: %s
  timeouts: {overall: 9s}
  allow_networks: [127.0.0.0/8]
  per_ip: 64
  per_subnet: 64
self_check: {canaries: []}
liveness: {backoff_base_delay: 1s, backoff_max_delay: 5s, recovery_grace_period: 0s}
live: {min_count: 1}
vantages: []
`, address, strings.Join(urlsOf(s.relays...), ", "), Duration(soakInterval))
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		s.vantages = append(s.vantages, &soakVantage{soak: s, name: name, dir: filepath.Join(s.dir, name)})
	}
	t.Cleanup(func() {
		for _, v := range s.vantages {
			v.process.kill()
		}
		s.core.kill()
		if t.Failed() {
			for _, name := range []string{"core", "one", "two"} {
				t.Logf("the end of %s's log:\n%s", name, tail(filepath.Join(s.dir, name+".log")))
			}
		}
	})
	return s
}

func tail(file string) string {
	b, _ := os.ReadFile(file)
	return string(b[max(0, len(b)-4000):])
}

// findPsql finds PostgreSQL's own client beside its server's programs.
func findPsql(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("psql"); err == nil {
		return path
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/psql", "/usr/pgsql-*/bin/psql"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	t.Fatal("psql is missing: install PostgreSQL's client")
	return ""
}

// soakProcess is one process. Its methods take nil: there is none.
type soakProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// run starts the program; what it logs is appended to NAME.log.
func (s *soak) run(name string, environ []string, args ...string) *soakProcess {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &soakProcess{exec.CommandContext(context.Background(), s.bin, args...), make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environ...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	err = p.cmd.Start()
	_ = log.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// kill is kill -9; it returns when the process has ended.
func (p *soakProcess) kill() {
	if p != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *soakProcess) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (s *soak) startCore() {
	s.core = s.run("core", nil, "--config", s.config, "--data-dir", filepath.Join(s.dir, "data"), "serve")
}

func (v *soakVantage) start() {
	v.process = v.run(v.name, []string{tokenVariable + "=" + v.token}, "--config", v.config, "--data-dir", v.dir, "vantage", "--core", v.link.url())
}

// invite asks the core for a token, as soon as it has its database.
func (s *soak) invite(name string) string {
	s.t.Helper()
	var got invitedVantage
	s.waitUntil("an invitation", func() bool {
		out, err := exec.CommandContext(s.t.Context(), s.bin, "--config", s.config, "--data-dir", filepath.Join(s.dir, "data"), "vantages", "invite", name, "--json").Output()
		return err == nil && json.Unmarshal(out, &got) == nil && got.Token != ""
	})
	return got.Token
}

// pause waits for d.
func (s *soak) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.t.Context().Done():
	}
}

// waitUntil waits for a condition while all processes live.
func (s *soak) waitUntil(what string, met func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * patience); !met(); s.pause(100 * time.Millisecond) {
		switch {
		case s.core != nil && s.core.ended():
			s.t.Fatalf("waited for %s, and the core ended", what)
		case time.Now().After(deadline):
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// read reads one path of the core into v; false = it does not answer 200.
func (s *soak) read(path string, v any) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK && (v == nil || json.NewDecoder(resp.Body).Decode(v) == nil)
}

// waitForList waits until the list is usable and exactly these.
func (s *soak) waitForList(relays []*relaytest.Relay) {
	s.t.Helper()
	want := urlsOf(relays...)
	s.waitUntil(fmt.Sprintf("a list of %d relays", len(want)), func() bool {
		var l live
		return s.read("/v1/live", &l) && l.Usable && slices.Equal(l.urls(), want)
	})
}

// spooled is what waits on a vantage's disk.
func (v *soakVantage) spooled() (batches, observations int) {
	files, err := filepath.Glob(filepath.Join(v.dir, "spool", "*.batch"))
	if err != nil {
		v.t.Fatal(err)
	}
	for _, f := range files {
		_, count, _ := strings.Cut(strings.TrimSuffix(filepath.Base(f), ".batch"), "-")
		n, _ := strconv.Atoi(count)
		observations += n
	}
	return len(files), observations
}

// settle stops the vantages in an orderly way and returns all that was counted
// since the start.
func (s *soak) settle() tally {
	s.t.Helper()
	for _, v := range s.vantages {
		v.settle()
	}
	return s.counted()
}

// settle stops the vantage once nothing waits on its disk.
func (v *soakVantage) settle() {
	v.t.Helper()
	for {
		if v.process == nil || v.process.ended() {
			v.start()
		}
		v.waitUntil("the spool of "+v.name+" to be empty", func() bool { n, _ := v.spooled(); return n == 0 && !v.process.ended() })
		v.stop()
		if n, _ := v.spooled(); n == 0 {
			return
		}
	}
}

// stop ends the vantage's process in an orderly way: what the core does not take
// stays on the disk.
func (v *soakVantage) stop() {
	_ = v.process.cmd.Process.Signal(syscall.SIGTERM)
	<-v.process.done
}

// reached counts the probes that got through to a relay.
func (s *soak) reached() (n int) {
	for _, r := range s.relays {
		n += int(r.Counters().Upgrades)
	}
	return n
}

// sql asks the core's private database through its socket; rows of columns.
func (s *soak) sql(query string) [][]string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cluster, err := postgres.ConnectCluster(ctx, postgres.ClusterConfig{DataDir: filepath.Join(s.dir, "data")})
	if err != nil {
		s.t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, s.psql, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--command", query, cluster.URL())
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", query, err, errs.String())
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "|"))
	}
	return rows
}

// number is the one number that a query yields.
func (s *soak) number(query string) int {
	s.t.Helper()
	n, err := strconv.ParseFloat(cmp.Or(s.sql(query)[0][0], "0"), 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return int(n)
}

func (s *soak) largestBatch() int {
	return s.number("SELECT max(n) FROM (SELECT count(*) AS n FROM observation GROUP BY vantage_id, seq) AS batch")
}

// bad waits for a bad moment: every other time one soon after a batch of the
// vantage (empty = of any) has set out, else any within the time between two.
func (s *soak) bad(n int, vantage string) {
	if n%2 == 1 {
		s.pause(time.Duration(s.random.Int64N(int64(soakBatch))))
		return
	}
	if !s.link.await(s.t.Context(), vantage, 2*patience) {
		s.t.Fatalf("no batch of %s in %s", cmp.Or(vantage, "any vantage"), 2*patience)
	}
	s.pause(time.Duration(s.random.IntN(8_000)) * time.Microsecond)
}

// killVantages kills one after the other, half of the times each, and starts it
// again. The others rest, so that what reached a relay is the victim's.
func (s *soak) killVantages(times int) soakRow {
	begun, row := time.Now(), soakRow{what: "kill -9 of a vantage", kills: times}
	before := s.counted()
	last := before
	for i, v := range s.vantages {
		type moment struct {
			at      time.Time
			reached int
		}
		var moments []moment
		v.start()
		for n := range times*(i+1)/len(s.vantages) - times*i/len(s.vantages) {
			s.bad(n, v.name)
			if v.process.ended() {
				s.t.Fatalf("vantage %s ended by itself", v.name)
			}
			if s.link.underWay(v.name) {
				row.amid++
			}
			v.process.kill()
			moments = append(moments, moment{time.Now(), s.reached()})
			v.start()
		}
		v.settle()
		for _, m := range moments {
			now := tally{m.reached, s.number(fmt.Sprintf("SELECT count(*) FROM observation WHERE http_status = 101 AND time <= to_timestamp(%d / 1e6)", m.at.UnixMicro()))}
			row.most = max(row.most, now.since(last).lost())
			last = now
		}
		last = s.counted()
	}
	row.tally, row.took = last.since(before), time.Since(begun)
	return row
}

// counted is all that was counted since the start, while no vantage runs.
func (s *soak) counted() tally {
	return tally{s.reached(), s.number("SELECT count(*) FROM observation WHERE http_status = 101")}
}

// killCore kills the core, and with it its database, and starts it again.
func (s *soak) killCore(times int) soakRow {
	begun, row := time.Now(), soakRow{what: "kill -9 of the core", kills: times}
	before := s.counted()
	for _, v := range s.vantages {
		v.start()
	}
	for n := range times {
		s.bad(n, "")
		if s.core.ended() {
			s.t.Fatal("the core ended by itself")
		}
		amid := s.link.underWay("")
		s.core.kill()
		if amid {
			row.amid++
		}
		s.startCore()
	}
	s.waitUntil("the core to be ready", func() bool { return s.read("/readyz", nil) })
	row.tally, row.took = s.settle().since(before), time.Since(begun)
	return row
}

// soakAway is what came of the core's absence.
type soakAway struct {
	lasted, drained, served, gap time.Duration
	batches, observations        int // spooled
	oldReturns, oldFailures      int
	transitions                  int
}

// coreAway keeps the core away. Meanwhile three relays that were offline come
// back, three that were online go, and all are as they were again long before it
// returns: what the vantages saw is history, and must change no verdict.
func (s *soak) coreAway(d time.Duration) (soakRow, soakAway) {
	s.t.Helper()
	begun, row, a := time.Now(), soakRow{what: "core away for " + d.String(), kills: 1}, soakAway{}
	before := s.counted()
	for _, v := range s.vantages {
		v.start()
	}
	s.pause(soakInterval) // each vantage has looked at each relay, and goes on by its interval
	s.waitForList(s.relays)
	returning, going := s.relays[:3], s.relays[3:6]
	stop := func(relays []*relaytest.Relay) {
		for _, r := range relays {
			r.Stop()
		}
	}
	restart := func(relays []*relaytest.Relay) {
		for _, r := range relays {
			if err := r.Restart(); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	stop(returning)
	s.waitForList(s.relays[3:])
	s.pause(soakBatch)

	left := time.Now()
	s.core.kill()
	restart(returning)
	stop(going)
	s.pause(d - soakGrace - soakInterval)
	turned := time.Now()
	stop(returning)
	restart(going)
	s.pause(time.Until(left.Add(d)))
	for _, v := range s.vantages {
		v.stop()
		n, o := v.spooled()
		a.batches, a.observations = a.batches+n, a.observations+o
	}

	back := time.Now()
	a.lasted = back.Sub(left)
	s.startCore()
	s.waitForList(s.relays[3:])
	a.served = time.Since(back)
	// The old batches of both come in side by side, and so slowly that the core
	// decides several times meanwhile.
	s.link.delay(500 * time.Millisecond)
	for _, v := range s.vantages {
		v.start()
	}
	s.waitUntil("the spools to drain", func() bool {
		for _, v := range s.vantages {
			if n, _ := v.spooled(); n > 1 {
				return false
			}
		}
		return true
	})
	a.drained = time.Since(back)
	s.link.delay(0)
	s.pause(2*soakInterval + soakBatch) // the hold after a start is over: now it would show
	var moved struct {
		Transitions []struct {
			URL, At string
			From    string `json:"from_state"`
			To      string `json:"to_state"`
		}
	}
	query := url.Values{"from": {left.UTC().Format(time.RFC3339Nano)}, "limit": {"1000"}}
	if !s.read("/v1/transitions?"+query.Encode(), &moved) {
		s.t.Fatal("/v1/transitions does not answer")
	}
	a.transitions = len(moved.Transitions)
	for _, m := range moved.Transitions {
		if m.From == "offline" && m.To == "dead" && d >= monitor.DefaultLiveness().MinFailureDuration {
			a.transitions-- // it has failed for long enough, and fails now (S9)
			continue
		}
		s.t.Errorf("%s went from %s to %s at %s, though it is as it was before the core left", m.URL, m.From, m.To, m.At)
	}
	s.waitForList(s.relays[3:])

	// Verdicts are made again, from what is seen now.
	restart(returning)
	s.waitForList(s.relays)
	row.tally, row.took = s.settle().since(before), time.Since(begun)

	old := func(outcome string, relays []*relaytest.Relay) (total int) {
		for _, r := range relays {
			for _, v := range s.vantages {
				n := s.number(fmt.Sprintf("SELECT count(*) FROM observation JOIN relay ON relay.id = relay_id JOIN vantage ON vantage.id = vantage_id "+
					"WHERE url = '%s' AND name = '%s' AND outcome = '%s' AND time BETWEEN to_timestamp(%d / 1e6) AND to_timestamp(%d / 1e6)",
					r.URL(), v.name, outcome, left.UnixMicro(), turned.UnixMicro()))
				if least := map[string]int{"ok": 1, "failed": 3}[outcome]; n < least {
					s.t.Errorf("%s has %d observations %q of %s while the core was away, want %d at least", v.name, n, outcome, r.URL(), least)
				}
				total += n
			}
		}
		return total
	}
	a.oldReturns, a.oldFailures = old("ok", returning), old("failed", going)
	gap := s.number(fmt.Sprintf("SELECT 1000 * extract(epoch FROM max(gap)) FROM (SELECT time - lag(time) OVER (PARTITION BY vantage_id, relay_id ORDER BY time) AS gap FROM observation "+
		"WHERE time BETWEEN to_timestamp(%d / 1e6) AND to_timestamp(%d / 1e6)) AS gaps", left.Add(-soakInterval).UnixMicro(), back.Add(soakInterval).UnixMicro()))
	a.gap = time.Duration(gap) * time.Millisecond
	if a.gap > 30*time.Second+soakInterval { // the second look after a return
		s.t.Errorf("the history has a gap of %s", a.gap)
	}
	return row, a
}

// checkOrder checks that each batch was stored in one transaction, after those of
// lower numbers, and nothing twice.
func (s *soak) checkOrder() {
	s.t.Helper()
	if n := s.number("SELECT count(*) FROM (SELECT 1 FROM observation GROUP BY vantage_id, relay_id, time HAVING count(*) > 1) AS twice"); n > 0 {
		s.t.Errorf("%d observations are stored more than once", n)
	}
	const batches = "(SELECT vantage_id, seq, min(xmin::text::bigint) AS first, max(xmin::text::bigint) AS last FROM observation GROUP BY vantage_id, seq) AS batch"
	if n := s.number("SELECT count(*) FROM " + batches + " WHERE first <> last"); n > 0 {
		s.t.Errorf("%d batches were stored by more than one transaction", n)
	}
	if n := s.number("SELECT count(*) FROM (SELECT first <= lag(last) OVER (PARTITION BY vantage_id ORDER BY seq) AS wrong FROM " + batches + ") AS step WHERE wrong"); n > 0 {
		s.t.Errorf("%d batches were stored before one of a lower number", n)
	}
	if n := s.number("SELECT count(*) FROM vantage WHERE last_seq < (SELECT max(seq) FROM observation WHERE vantage_id = vantage.id)"); n > 0 {
		s.t.Errorf("%d vantages have a batch above their high-water mark", n)
	}
}

// link is the way from the vantages to the core: TCP, passed on as it is.
type link struct {
	listener net.Listener
	core     string
	wg       sync.WaitGroup
	posts    chan string // vantages, as their batches set out

	mu      sync.Mutex
	closed  bool
	conns   map[net.Conn]bool
	waiting map[net.Conn]string // whose batch waits for its answer
	slow    time.Duration
}

func newLink(t *testing.T, core string) *link {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, core: core, posts: make(chan string, 64), conns: map[net.Conn]bool{}, waiting: map[net.Conn]string{}}
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.wg.Go(func() { l.pass(c) })
		}
	})
	t.Cleanup(l.close)
	return l
}

func (l *link) url() string { return "http://" + l.listener.Addr().String() }

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// keep has c closed with the link; false = it is closed already.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) drop(c net.Conn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	delete(l.waiting, c)
}

// pass connects a vantage with the core until one of them ends.
func (l *link) pass(vantage net.Conn) {
	defer l.drop(vantage)
	if !l.keep(vantage) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	core, err := (&net.Dialer{}).DialContext(ctx, "tcp4", l.core)
	if err != nil {
		return
	}
	defer l.drop(core)
	if !l.keep(core) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer func() { _ = vantage.Close() }()
		copyTo(vantage, core, func([]byte) { l.answered(vantage) })
	})
	copyTo(core, vantage, func(b []byte) { l.asked(vantage, b) })
	_ = core.Close()
	back.Wait()
}

// copyTo passes bytes on; each shows them first.
func copyTo(to, from net.Conn, each func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			each(buf[:n])
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var batchRequest = regexp.MustCompile(`^POST /v1/vantages/([^/ ]+)/observations `)

func (l *link) asked(c net.Conn, b []byte) {
	m := batchRequest.FindSubmatch(b)
	if m == nil {
		return
	}
	l.mu.Lock()
	l.waiting[c] = string(m[1])
	slow := l.slow
	l.mu.Unlock()
	if slow > 0 {
		timer := time.NewTimer(slow)
		<-timer.C
	}
	select {
	case l.posts <- string(m[1]):
	default: // nobody waits for it
	}
}

func (l *link) answered(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, c)
}

// await waits for the next batch of the vantage to set out, empty = of any.
func (l *link) await(ctx context.Context, vantage string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for len(l.posts) > 0 {
		<-l.posts // these are on their way since long
	}
	for {
		select {
		case name := <-l.posts:
			if vantage == "" || name == vantage {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// underWay reports whether a batch of the vantage, empty = of any, waits for its
// answer.
func (l *link) underWay(vantage string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.waiting {
		if vantage == "" || name == vantage {
			return true
		}
	}
	return false
}

// delay holds every batch back for so long.
func (l *link) delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = d
}
