package wire_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// comparable compares what the wire carries: addresses have no exported fields.
var comparable = cmp.Options{cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})}

// whole is an observation with every field set.
func whole() monitor.Observation {
	yes, pow := true, 16
	o := monitor.Observation{
		Relay: "wss://relay.example.com/", Vantage: "berlin",
		Start: noon.Add(-3 * time.Second), At: noon.Add(-3*time.Second + 241*time.Millisecond + 7),
		Outcome: monitor.OutcomeOK, Stage: monitor.StageRead, Cause: monitor.CauseNone,
		Evidence: "it answered with “EVENT” <b>&amp;</b>", NoEOSE: true,
		RTTOpen: 83 * time.Millisecond, RTTRead: 41 * time.Millisecond, RTTWrite: 50 * time.Millisecond,
		HTTPStatus: 101, Address: netip.MustParseAddrPort("[2001:db8::1]:443"),
		Lag: 12345 * time.Microsecond, RetryAfter: time.Minute, ServerDate: noon.Add(-time.Hour), AuthSeen: true,
		TLS: &monitor.TLSFacts{Version: "1.3", Issuer: "CN=R11,O=Let's Encrypt,C=US", Names: []string{"relay.example.com"}, NotAfter: noon.AddDate(0, 2, 0)},
		Info: &monitor.Info{
			Raw:  []byte(`{"name":"A relay","description":"two\nlines <>&","supported_nips":[1,11],"limitation":{"auth_required":true},"deep":[[[[{"x":"\u2028\\"}]]]]}`),
			Name: "A relay", Description: "two\nlines <>&", Pubkey: strings.Repeat("ab", 32), Contact: "mailto:a@example.com",
			Software: "https://example.com", Version: "1", NIPs: []int{1, 11}, AuthRequired: &yes, PaymentRequired: &yes, RestrictedWrites: &yes, MinPow: &pow,
			Countries: []string{"DE"}, Languages: []string{"de"}, Tags: []string{"x"},
		},
		DNS: &monitor.DNSFacts{
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::1")},
			IPv4:      monitor.ReachFails, IPv6: monitor.ReachAnswers,
		},
		Capabilities: &monitor.Capabilities{
			Auth: monitor.FindingConfirmed, Count: monitor.FindingDisproved, Search: monitor.FindingUnknown, Negentropy: monitor.FindingDisproved,
			EOSE: monitor.FindingConfirmed, Limit: monitor.FindingDisproved, Until: monitor.FindingConfirmed, Sample: strings.Repeat("0f", 32),
		},
		Write: &monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "restricted: “members” only"},
	}
	for stage := monitor.StageDNS; int(stage) < monitor.NumStages; stage++ {
		o.Times[stage] = time.Duration(stage)*time.Millisecond + time.Duration(stage)*time.Microsecond
	}
	return o
}

// plainOne is an observation as most are.
func plainOne(n int) monitor.Observation {
	at := noon.Add(-time.Duration(n) * time.Millisecond)
	o := monitor.Observation{
		Relay: monitor.RelayURL(fmt.Sprintf("wss://relay%d.example.com/", n)), Vantage: "berlin", Start: at.Add(-120 * time.Millisecond), At: at,
		Outcome: monitor.OutcomeOK, Stage: monitor.StageRead, RTTOpen: 80 * time.Millisecond, RTTRead: 30 * time.Millisecond,
		HTTPStatus: 101, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 443), ServerDate: at.Truncate(time.Second),
	}
	o.Times[monitor.StageTCP] = 20 * time.Millisecond
	if n%10 == 0 {
		o.Outcome, o.Stage, o.Cause, o.Evidence = monitor.OutcomeFailed, monitor.StageTCP, monitor.CauseTimeout, "no answer within 4s"
		o.RTTOpen, o.RTTRead, o.HTTPStatus, o.ServerDate = 0, 0, 0, time.Time{}
	}
	return o
}

func batch() *monitor.Batch {
	skipped := monitor.Observation{
		Relay: "ws://[2001:db8::2]:8080/path", Vantage: "berlin", Start: noon, At: noon,
		Outcome: monitor.OutcomeSkipped, Cause: monitor.CauseOverload, Evidence: "there was no room",
		Info: &monitor.Info{Problem: "http_404"},
	}
	return &monitor.Batch{
		Vantage: "berlin", Seq: 1<<53 + 1, SentAt: noon,
		Health: monitor.Health{
			Impairments: []monitor.Impairment{monitor.ImpairedLag, monitor.ImpairedNetwork}, ImpairedSince: noon.Add(-time.Minute),
			Lag: 1500 * time.Microsecond, CanarySuccess: noon.Add(-2 * time.Minute), InFlight: 3, Watched: 1200,
			Networks: []monitor.Network{monitor.Clearnet, monitor.Tor}, Down: []monitor.Network{monitor.Tor},
		},
		Recoveries:   []monitor.Recovery{{Impairment: monitor.ImpairedSuspended, Since: noon.Add(-time.Hour), At: noon.Add(-30 * time.Minute)}},
		Observations: []monitor.Observation{whole(), skipped, plainOne(10)},
	}
}

func encode(t testing.TB, b *monitor.Batch) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := wire.EncodeBatch(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zip(t testing.TB, parts ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, p := range parts {
		z := gzip.NewWriter(&out)
		if _, err := io.WriteString(z, p); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func unzip(t testing.TB, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it)\n%s", file, diff)
	}
}

// The golden files are what cores and vantages of this version say to each other:
// a change of one is a change of the format.
func TestBatchGolden(t *testing.T) {
	b := batch()
	body := encode(t, b)
	golden(t, "batch.ndjson", []byte(unzip(t, body)))
	got, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, got, comparable); diff != "" {
		t.Errorf("the batch came out as another (-want +got)\n%s", diff)
	}
}

// withoutNews is what version 1 can say of a batch.
func withoutNews(b *monitor.Batch) *monitor.Batch {
	b.Health.Networks, b.Health.Down = nil, nil
	for i := range b.Observations {
		o := &b.Observations[i]
		o.DNS, o.Capabilities, o.Write = nil, nil, nil
	}
	return b
}

// The files that end in -1 are what a vantage and a core of version 1 say: a
// vantage that is not yet brought to this version goes on, and what waits on its
// disk is taken after it was.
func TestVersionOneIsUnderstood(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	head, rest, _ := strings.Cut(string(read("batch-1.ndjson")), "\n")
	body := zip(t, head+"\n", rest)
	restamped, err := wire.Restamp(body, noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"as it was sent": body, "restamped": restamped} {
		got, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(withoutNews(batch()), got, comparable); diff != "" {
			t.Errorf("%s: it came out as another (-want +got)\n%s", name, diff)
		}
	}
	var tasks wire.Tasks
	if err := json.Unmarshal(read("tasks-1.json"), &tasks); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rules(), tasks.Rules); diff != "" { // among them what it says nothing of
		t.Errorf("the rules of a core of version 1 (-want +got)\n%s", diff)
	}
	var e wire.Enrolment
	if err := json.Unmarshal(read("enrolment-1.json"), &e); err != nil || e.Version != 1 {
		t.Errorf("an enrolment of version 1: %+v, %v", e, err)
	}
}

// No network at all is another thing to say than nothing.
func TestNoNetworkIsSaid(t *testing.T) {
	for _, networks := range [][]monitor.Network{nil, {}} {
		b := batch()
		b.Health.Networks, b.Health.Down = networks, nil
		got, err := wire.DecodeBatch(bytes.NewReader(encode(t, b)), "berlin")
		if err != nil {
			t.Fatal(err)
		}
		if (got.Health.Networks == nil) != (networks == nil) || len(got.Health.Networks) != 0 {
			t.Errorf("%#v came out as %#v", networks, got.Health.Networks)
		}
	}
}

func TestEmptyBatch(t *testing.T) {
	b := &monitor.Batch{Vantage: "berlin", Seq: 1, SentAt: noon}
	got, err := wire.DecodeBatch(bytes.NewReader(encode(t, b)), "berlin")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, got, comparable, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the batch came out as another (-want +got)\n%s", diff)
	}
}

func rules() wire.Rules {
	return wire.Rules{Cadence: monitor.DefaultCadence(), Liveness: monitor.DefaultLiveness()}
}

func TestMessagesGolden(t *testing.T) {
	paused := monitor.Task{Relay: "wss://paused.example.com/", PausedUntil: noon.Add(time.Hour)}
	for name, c := range map[string]struct{ in, out any }{
		"tasks.json":     {&wire.Tasks{Version: 12, Set: []monitor.Task{{Relay: "wss://relay.example.com/"}, {Relay: "wss://new.example.com/", Candidate: true}, paused}, LastSeq: 99, Rules: rules(), ServerTime: noon}, new(wire.Tasks)},
		"delta.json":     {&wire.Tasks{Version: 13, Base: 12, Set: []monitor.Task{paused}, Removed: []monitor.RelayURL{"wss://relay.example.com/"}, LastSeq: 100, Rules: rules(), ServerTime: noon}, new(wire.Tasks)},
		"answer.json":    {&wire.Answer{Stored: 100, Expedite: []monitor.RelayURL{"wss://relay.example.com/"}, Due: map[monitor.RelayURL]time.Time{"wss://new.example.com/": noon}}, new(wire.Answer)},
		"enrolment.json": {&wire.Enrolment{Version: wire.Version, Token: "token", Networks: []monitor.Network{monitor.Clearnet, monitor.Tor}, Software: "pharos/1"}, new(wire.Enrolment)},
		"enrolled.json":  {&wire.Enrolled{Name: "berlin", Group: "hetzner"}, new(wire.Enrolled)},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(c.in)
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, b, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, name, append(pretty.Bytes(), '\n'))
			if err := json.Unmarshal(b, c.out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.in, c.out); diff != "" {
				t.Errorf("it came out as another (-want +got)\n%s", diff)
			}
		})
	}
}

// change is the golden batch with one text in place of another, gzipped.
func change(t testing.TB, from, to string) []byte {
	t.Helper()
	text := unzip(t, encode(t, batch()))
	if !strings.Contains(text, from) {
		t.Fatalf("the batch does not contain %s", from)
	}
	return zip(t, strings.Replace(text, from, to, 1))
}

func TestBadBatches(t *testing.T) {
	good := encode(t, batch())
	text := unzip(t, good)
	head, rest, _ := strings.Cut(text, "\n")
	long := `"evidence":"` + strings.Repeat("x", 1025) + `"`
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"nothing":               {nil, "it is empty"},
		"not gzip":              {[]byte(text), "it is not gzip"},
		"empty gzip":            {zip(t, ""), "it is empty"},
		"trailing garbage":      {append(bytes.Clone(good), "garbage behind the end"...), "something follows its end"},
		"trailing zeros":        {append(bytes.Clone(good), make([]byte, 512)...), "something follows its end"},
		"damaged":               {damaged(good), "damaged"},
		"no line end":           {zip(t, strings.TrimSuffix(text, "\n")), "its last line has no end"},
		"an empty line":         {zip(t, head+"\n\n"+rest), "it breaks off (line 2)"},
		"too few":               {change(t, `"count":3`, `"count":4`), "4 observations are announced, 3 are there"},
		"too many":              {change(t, `"count":3`, `"count":2`), "more than the 2 observations"},
		"negative count":        {change(t, `"count":3`, `"count":-1`), "field count"},
		"huge count":            {change(t, `"count":3`, `"count":5001`), "5001 is not from 0 to 5000"},
		"another version":       {change(t, `"version":2`, `"version":3`), "this is version 3, and 2 is spoken here"},
		"a later header":        {change(t, `"version":2`, `"version":3,"mood":"fine"`), "this is version 3, and 2 is spoken here"},
		"no version":            {change(t, `"version":2,`, ``), "this is version 0"},
		"another vantage":       {change(t, `"vantage":"berlin"`, `"vantage":"tokyo"`), "it is of the vantage tokyo, and was sent as berlin"},
		"no number":             {change(t, `"seq":9007199254740993`, `"seq":0`), "field seq"},
		"number too large":      {change(t, `"seq":9007199254740993`, `"seq":18446744073709551616`), "field seq"},
		"beyond a database":     {change(t, `"seq":9007199254740993`, `"seq":9223372036854775808`), "field seq: 9223372036854775808 is too large"},
		"sent in 1970":          {change(t, `"sent_at":"2026`, `"sent_at":"1970`), "the year 1970 is impossible"},
		"unknown header":        {change(t, `"count":3`, `"count":3,"mood":"fine"`), "field mood: it is unknown in version 2 (line 1)"},
		"unknown field":         {change(t, `"auth_seen":true`, `"auth_sean":true`), "field auth_sean: it is unknown in version 2 (line 2)"},
		"wrong type":            {change(t, `"http_status":101`, `"http_status":"101"`), "field http_status: it is a string (line 2)"},
		"unknown outcome":       {change(t, `"outcome":"ok"`, `"outcome":"fine"`), `outcome "fine" (line 2)`},
		"no outcome":            {change(t, `"outcome":"ok",`, ``), "field outcome"},
		"unknown stage":         {change(t, `"stage":"read"`, `"stage":"written"`), `stage "written"`},
		"unknown cause":         {change(t, `"cause":"overload"`, `"cause":"laziness"`), `cause "laziness" (line 3)`},
		"unknown impairment":    {change(t, `["lag"`, `["hunger"`), "hunger is unknown (line 1)"},
		"the core's own":        {change(t, `["lag"`, `["unclear"`), "unclear is unknown (line 1)"},
		"no recovery of lag":    {change(t, `"impairment":"suspended"`, `"impairment":"lag"`), "lag is unknown"},
		"recovered before":      {change(t, `"since":"2026`, `"since":"2027`), "it was over before it began"},
		"relay of no kind":      {change(t, `"wss://relay.example.com/"`, `"https://relay.example.com/"`), "it must begin with wss:// or ws://"},
		"relay not canonical":   {change(t, `"wss://relay.example.com/"`, `"wss://Relay.example.com"`), "it is not canonical, which is wss://relay.example.com/"},
		"ended before":          {change(t, `"start":"2026`, `"start":"2027`), "it ended before it began"},
		"far too long":          {change(t, `"start":"2026-11`, `"start":"2026-10`), "it took longer than 1h0m0s"},
		"year 2201":             {change(t, `"at":"2026`, `"at":"2201`), "the year 2201 of at is impossible"},
		"year 12026":            {change(t, `"start":"2026`, `"start":"12026`), "line 2"},
		"no time":               {change(t, `"start":"2026-11-30T11:59:57Z"`, `"start":"noon"`), "line 2"},
		"negative duration":     {change(t, `"rtt_open_ms":83`, `"rtt_open_ms":-1`), "field rtt_open_ms"},
		"endless duration":      {change(t, `"rtt_open_ms":83`, `"rtt_open_ms":1e300`), "is too long"},
		"duration over 1 h":     {change(t, `"rtt_open_ms":83`, `"rtt_open_ms":3600001`), "it is not from 0 to 3600000 ms"},
		"lag over 1 h":          {change(t, `"lag_ms":12.345`, `"lag_ms":3600001`), "field lag_ms"},
		"duration as text":      {change(t, `"rtt_open_ms":83`, `"rtt_open_ms":"83"`), "not a number of milliseconds"},
		"strange status":        {change(t, `"http_status":101`, `"http_status":99`), "there is no status 99"},
		"negative in flight":    {change(t, `"in_flight":3`, `"in_flight":-3`), "field health.in_flight"},
		"negative watched":      {change(t, `"watched":1200`, `"watched":-1`), "field health.watched"},
		"long evidence":         {change(t, `"evidence":"there was no room"`, long), "longer than 1024 bytes"},
		"not UTF-8":             {change(t, `there was no room`, "\xff"), "it is not UTF-8 (line 3)"},
		"no address":            {change(t, `"[2001:db8::1]:443"`, `"[2001:db8::1]"`), "line 2"},
		"zone":                  {change(t, `"[2001:db8::1]:443"`, `"[fe80::1%eth0]:443"`), "field address"},
		"pubkey":                {change(t, `"pubkey":"ab`, `"pubkey":"AB`), "64 digits of lower-case hex"},
		"document no object":    {change(t, `"raw":"{`, `"raw":"[{`), "no JSON object"},
		"document and fault":    {change(t, `"problem":"http_404"`, `"problem":"http_404","raw":"{}"`), "both a problem and a document"},
		"neither":               {change(t, `"problem":"http_404"`, `"name":"x"`), "neither a problem nor a document"},
		"deep":                  {change(t, `"evidence":"there was no room"`, `"evidence":`+strings.Repeat("[", 100_000)), "line 3"},
		"two values":            {change(t, `"auth_seen":true`, `"auth_seen":true}{"a":1`), "line 2"},
		"too many addresses":    {change(t, `["192.0.2.7"`, `[`+manyAddresses()), "more than 16 addresses"},
		"addresses in no order": {change(t, `["192.0.2.7"`, `["2001:db8::2"`), "field dns: its addresses are not ascending"},
		"one address twice":     {change(t, `["192.0.2.7"`, `["2001:db8::1"`), "not ascending"},
		"address with a zone":   {change(t, `"2001:db8::1"],`, `"fe80::1%eth0"],`), "has a zone"},
		"address that maps":     {change(t, `"2001:db8::1"],`, `"::ffff:192.0.2.8"],`), "maps an IPv4 one"},
		"address of no kind":    {change(t, `["192.0.2.7"`, `[""`), "field dns"},
		"unknown reach":         {change(t, `"ipv4":"fails"`, `"ipv4":"limps"`), `reach "limps" (line 2)`},
		"unknown finding":       {change(t, `"auth":"confirmed"`, `"auth":"maybe"`), `finding "maybe" (line 2)`},
		"an unknown test":       {change(t, `"count":"disproved"`, `"juggling":"disproved"`), "is unknown in version 2 (line 2)"},
		"sample too long":       {change(t, `"sample":"0f`, `"sample":"000f`), "sample is not at most 64 digits"},
		"sample no hex":         {change(t, `"sample":"0f`, `"sample":"0F`), "lower-case hex"},
		"unknown result":        {change(t, `"result":"refused"`, `"result":"eaten"`), `write result "eaten" (line 2)`},
		"reason of two lines":   {change(t, `"reason":"restricted: `, `"reason":"restricted:\n`), "field write: its reason is not one line"},
		"long reason":           {change(t, `"reason":"restricted: `, `"reason":"`+strings.Repeat("x", 200)), "field write: it is longer than 200 bytes"},
		"unknown network":       {change(t, `["clearnet","tor"]`, `["clearnet","fidonet"]`), "field health.networks: fidonet is unknown (line 1)"},
		"network twice":         {change(t, `["clearnet","tor"]`, `["tor","tor"]`), "there twice"},
		"down and not there":    {change(t, `["clearnet","tor"]`, `["clearnet"]`), "no way into tor that could be down"},
		"unknown one down":      {change(t, `"down":["tor"]`, `"down":["ham"]`), "field health.down: ham is unknown"},
		"a long line":           {zip(t, strings.Repeat(" ", 2<<20)), "a line is longer than 1024 KB"},
		"another message":       {zip(t, "[]\n"), "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeBatch(bytes.NewReader(c.body), "berlin")
			if !errors.Is(err, monitor.ErrInvalid) || got != nil {
				t.Fatalf("got %v, error %v; want ErrInvalid", got, err)
			}
			if s := err.Error(); !strings.Contains(s, c.want) || len(s) > 400 || strings.ContainsAny(s, "\n\x00") {
				t.Errorf("error %q, want it to contain %q", s, c.want)
			}
		})
	}
}

// manyAddresses are 17 in their order.
func manyAddresses() string {
	var out []string
	for i := range 17 {
		out = append(out, fmt.Sprintf("%q", netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})))
	}
	return strings.Join(out, ",")
}

// damaged is a batch whose last member has a wrong checksum.
func damaged(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-8]++
	return b
}

func TestTruncatedAnywhere(t *testing.T) {
	body := encode(t, batch())
	for n := range body {
		if got, err := wire.DecodeBatch(bytes.NewReader(body[:n]), "berlin"); !errors.Is(err, monitor.ErrInvalid) || got != nil {
			t.Fatalf("cut at byte %d of %d: error %v, want ErrInvalid", n, len(body), err)
		}
	}
}

// endless is a reader of one text again and again, that counts what was taken.
type endless struct {
	text string
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], e.text[e.n%len(e.text):])
		n, e.n = n+m, e.n+m
	}
	return n, nil
}

func TestLimits(t *testing.T) {
	head := `{"version":1,"vantage":"berlin","seq":1,"sent_at":"2026-11-30T12:00:00Z","count":5000,"health":{"in_flight":0,"watched":0}}` + "\n"
	fat := `{"relay":"wss://relay.example.com/","start":"2026-11-30T12:00:00Z","at":"2026-11-30T12:00:00Z","outcome":"ok"` + strings.Repeat(" ", 30<<10) + "}\n"
	t.Run("100 MB as sent", func(t *testing.T) {
		// Empty members, each 23 bytes, without end.
		r := &endless{text: string(zip(t, ""))}
		_, err := wire.DecodeBatch(r, "berlin")
		if !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "larger than 8 MB as sent") {
			t.Errorf("error %v", err)
		}
		if r.n > wire.MaxBody+1 {
			t.Errorf("%d bytes were read", r.n)
		}
	})
	t.Run("bomb in one line", func(t *testing.T) {
		_, err := wire.DecodeBatch(bytes.NewReader(bytes.Repeat(zip(t, strings.Repeat(" ", 1<<20)), 100)), "berlin")
		if !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "a line is longer") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("bomb of observations", func(t *testing.T) {
		_, err := wire.DecodeBatch(bytes.NewReader(append(zip(t, head), bytes.Repeat(zip(t, fat), 3000)...)), "berlin")
		if !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), "larger than 64 MB decompressed") {
			t.Errorf("error %v", err)
		}
	})
}

// What breaks while reading is no fault of the batch's.
func TestReadError(t *testing.T) {
	broken := errors.New("the connection broke")
	body := encode(t, batch())
	for _, n := range []int{0, 1, 100, len(body) - 1, len(body)} {
		r := io.MultiReader(bytes.NewReader(body[:n]), &failing{broken})
		if _, err := wire.DecodeBatch(r, "berlin"); !errors.Is(err, broken) || errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("broken at byte %d: error %v", n, err)
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestRestamp(t *testing.T) {
	later := noon.Add(3 * time.Hour)
	for _, b := range []*monitor.Batch{batch(), {Vantage: "berlin", Seq: 3, SentAt: noon}} {
		body, err := wire.Restamp(encode(t, b), later)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeBatch(bytes.NewReader(body), "berlin")
		if err != nil {
			t.Fatal(err)
		}
		b.SentAt = later
		if diff := cmp.Diff(b, got, comparable, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("more than the time has changed (-want +got)\n%s", diff)
		}
	}
	if _, err := wire.Restamp(encode(t, batch()), time.Unix(0, 0)); !errors.Is(err, monitor.ErrInvalid) {
		t.Errorf("sent in 1970: error %v", err)
	}
	for name, body := range map[string][]byte{"nothing": nil, "no gzip": []byte("{}"), "cut": encode(t, batch())[:40], "no header": zip(t, "{}\n")} {
		if got, err := wire.Restamp(body, later); !errors.Is(err, monitor.ErrInvalid) || got != nil {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// What cannot be decoded again is not encoded.
func TestEncodeRefuses(t *testing.T) {
	for name, spoil := range map[string]func(b *monitor.Batch, o *monitor.Observation){
		"year 1970":  func(_ *monitor.Batch, o *monitor.Observation) { o.Start, o.At = time.Unix(1, 0), time.Unix(1, 0) },
		"no outcome": func(_ *monitor.Batch, o *monitor.Observation) { o.Outcome = 0 },
		"outcome":    func(_ *monitor.Batch, o *monitor.Observation) { o.Outcome = 99 },
		"cause":      func(_ *monitor.Batch, o *monitor.Observation) { o.Cause = 250 },
		"stage":      func(_ *monitor.Batch, o *monitor.Observation) { o.Stage = 99 },
		"not UTF-8":  func(_ *monitor.Batch, o *monitor.Observation) { o.Evidence = "\xff" },
		"relay":      func(_ *monitor.Batch, o *monitor.Observation) { o.Relay = "wss://X/" },
		"document":   func(_ *monitor.Batch, o *monitor.Observation) { o.Info.Raw = []byte("{") },
		"certificate": func(_ *monitor.Batch, o *monitor.Observation) {
			o.TLS.NotAfter = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
		},
		"server's date": func(_ *monitor.Batch, o *monitor.Observation) {
			o.ServerDate = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
		},
		"a reach":      func(_ *monitor.Batch, o *monitor.Observation) { o.DNS.IPv6 = 9 },
		"no address":   func(_ *monitor.Batch, o *monitor.Observation) { o.DNS.Addresses = make([]netip.Addr, 1) },
		"a finding":    func(_ *monitor.Batch, o *monitor.Observation) { o.Capabilities.Until = 9 },
		"a result":     func(_ *monitor.Batch, o *monitor.Observation) { o.Write.Result = 9 },
		"a reason":     func(_ *monitor.Batch, o *monitor.Observation) { o.Write.Reason = "\xff" },
		"a network":    func(b *monitor.Batch, _ *monitor.Observation) { b.Health.Networks = []monitor.Network{"x"} },
		"no number":    func(b *monitor.Batch, _ *monitor.Observation) { b.Seq = 0 },
		"sent in 1970": func(b *monitor.Batch, _ *monitor.Observation) { b.SentAt = time.Unix(0, 0) },
		"recovery":     func(b *monitor.Batch, _ *monitor.Observation) { b.Recoveries[0].Impairment = "hunger" },
		"too many": func(b *monitor.Batch, _ *monitor.Observation) {
			b.Observations = make([]monitor.Observation, wire.MaxObservations+1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := batch()
			spoil(b, &b.Observations[0])
			var out bytes.Buffer
			if err := wire.EncodeBatch(&out, b); !errors.Is(err, monitor.ErrInvalid) || out.Len() > 0 {
				t.Errorf("error %v, %d bytes written", err, out.Len())
			}
		})
	}
}

// A lag of any length arrives, as an hour at the most: machines sleep.
func TestLongLag(t *testing.T) {
	b := batch()
	b.Observations[0].Lag, b.Health.Lag = 8*time.Hour, 8*time.Hour
	got, err := wire.DecodeBatch(bytes.NewReader(encode(t, b)), "berlin")
	if err != nil || got.Observations[0].Lag != time.Hour || got.Health.Lag != time.Hour {
		t.Errorf("%+v, error %v", got, err)
	}
}

func TestBadMessages(t *testing.T) {
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	tasks := marshal(wire.Tasks{Version: 12, Base: 11, Set: []monitor.Task{{Relay: "wss://relay.example.com/"}}, Removed: []monitor.RelayURL{"wss://old.example.com/"}, Rules: rules(), ServerTime: noon})
	answer := marshal(wire.Answer{Expedite: []monitor.RelayURL{"wss://relay.example.com/"}, Due: map[monitor.RelayURL]time.Time{"wss://new.example.com/": noon}})
	enrolment := marshal(wire.Enrolment{Version: 1, Token: "secret-token", Networks: []monitor.Network{monitor.Clearnet}})
	for name, c := range map[string]struct {
		text, from, to, want string
		into                 any
	}{
		"tasks: version 0":       {tasks, `"version":12`, `"version":0`, "field version", new(wire.Tasks)},
		"tasks: whole, removed":  {tasks, `"base":11`, `"base":0`, "a whole list removes nothing", new(wire.Tasks)},
		"tasks: relay":           {tasks, `wss://relay`, `wss://RELAY`, "field set: it is not canonical", new(wire.Tasks)},
		"tasks: removed":         {tasks, `wss://old`, `ftp://old`, "field removed", new(wire.Tasks)},
		"tasks: no interval":     {tasks, `"interval_ms":300000`, `"interval_ms":0`, "cadence.interval_ms 0s is too short", new(wire.Tasks)},
		"tasks: hammering":       {tasks, `"interval_ms":300000`, `"interval_ms":10`, "cadence.interval_ms 10ms is too short", new(wire.Tasks)},
		"tasks: hasty facts":     {tasks, `"facts_every_ms":21600000`, `"facts_every_ms":10`, "cadence.facts_every_ms 10ms is too short", new(wire.Tasks)},
		"tasks: hasty depth":     {tasks, `"depth_every_ms":86400000`, `"depth_every_ms":-1`, "cadence.depth_every_ms", new(wire.Tasks)},
		"tasks: no deaths":       {tasks, `"max_failures_before_dead":5`, `"max_failures_before_dead":0`, "max_failures_before_dead", new(wire.Tasks)},
		"tasks: time":            {tasks, `"server_time":"2026`, `"server_time":"1926`, "field server_time", new(wire.Tasks)},
		"tasks: no object":       {tasks, tasks, `[]`, "", new(wire.Tasks)},
		"answer: relay":          {answer, `wss://relay`, `wss://RELAY`, "field expedite", new(wire.Answer)},
		"answer: due relay":      {answer, `wss://new`, `nope://new`, "field due", new(wire.Answer)},
		"answer: due time":       {answer, `"2026`, `"1926`, "the year 1926 is impossible", new(wire.Answer)},
		"answer: stored":         {answer, `"stored":0`, `"stored":-1`, "field stored", new(wire.Answer)},
		"enrolment: version":     {enrolment, `"version":1`, `"version":3`, "this is version 3", new(wire.Enrolment)},
		"enrolment: no token":    {enrolment, `secret-token`, ``, "field token", new(wire.Enrolment)},
		"enrolment: long token":  {enrolment, `secret-token`, strings.Repeat("x", 300), "field token", new(wire.Enrolment)},
		"enrolment: networks":    {enrolment, `["clearnet"]`, `[]`, "field networks", new(wire.Enrolment)},
		"enrolment: network":     {enrolment, `"clearnet"`, `"fidonet"`, "fidonet is unknown", new(wire.Enrolment)},
		"enrolment: twice":       {enrolment, `"clearnet"`, `"clearnet","clearnet"`, "there twice", new(wire.Enrolment)},
		"enrolment: unknown":     {enrolment, `"version":1`, `"version":1,"group":"x"`, "field group", new(wire.Enrolment)},
		"enrolment: wrong token": {enrolment, `"secret-token"`, `["secret-token"]`, "field token", new(wire.Enrolment)},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(c.text, c.from) {
				t.Fatalf("%s does not contain %s", c.text, c.from)
			}
			err := json.Unmarshal([]byte(strings.Replace(c.text, c.from, c.to, 1)), c.into)
			if !errors.Is(err, monitor.ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-token") {
				t.Errorf("error %v, want ErrInvalid with %q", err, c.want)
			}
		})
	}
	// What a later core says besides is no fault.
	if err := json.Unmarshal([]byte(strings.Replace(answer, `{`, `{"mood":"fine",`, 1)), new(wire.Answer)); err != nil {
		t.Errorf("an answer with more in it: %v", err)
	}
}
