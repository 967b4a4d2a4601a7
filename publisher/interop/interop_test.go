package interop_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// patience bounds every wait; a client takes a second or two, and half a minute
// where it verifies every signature on a busy machine.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// khatru starts it once per relay and never ends it.
		goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// node is the program that runs the scripts. What it needs is installed by
// make; without it these tests fail and do not skip.
var node = sync.OnceValues(func() (string, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("the Nostr clients need Node.js 20 or newer: run make need-npm, and the tests by make test: %w", err)
	}
	out, err := exec.Command(path, "--version").Output()
	major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	if n, _ := strconv.Atoi(major); err != nil || n < 20 {
		return "", fmt.Errorf("the Nostr clients need Node.js 20 or newer, this is %q: run make need-npm, and the tests by make test", out)
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		return "", fmt.Errorf("the Nostr clients are not installed: run make need-npm: %w", err)
	}
	return path, nil
})

// run runs one client's script against s and decodes what it prints into out.
func run(t *testing.T, s served, client string, task, out any) {
	t.Helper()
	path, err := node()
	if err != nil {
		t.Fatal(err)
	}
	// The results that go test remembers must not outlive what these were of.
	for _, file := range []string{client + ".mjs", "client.mjs", "package-lock.json", "node_modules/.package-lock.json"} {
		if _, err := os.ReadFile(filepath.Clean(file)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, client+".mjs")
	cmd.Env = append(os.Environ(), "PHAROS_RELAY="+s.url, "PHAROS_PUBKEY="+testKey.Pubkey(), "PHAROS_TASK="+jsonText(task))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", client, err, &stderr)
	}
	// Some clients log to standard output.
	text := stdout.Bytes()
	if i := bytes.LastIndex(text, []byte("\n{")); i >= 0 {
		text = text[i+1:]
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		t.Fatalf("%s printed %.300q: %v\n%s", client, stdout.Bytes(), err, &stderr)
	}
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// same compares two lists of reports, whatever their order.
func same(t *testing.T, what string, got, want []parsed) {
	t.Helper()
	byURL := func(a, b parsed) int { return cmp.Compare(a.URL, b.URL) }
	got, want = slices.SortedFunc(slices.Values(got), byURL), slices.SortedFunc(slices.Values(want), byURL)
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s: %d reports, want %d (-want +got):\n%.1500s", what, len(got), len(want), d)
	}
}

type reports struct {
	Reports []parsed `json:"reports"`
}

// TestClients: each client sees exactly the live set of 1 500 relays and parses
// every report.
func TestClients(t *testing.T) {
	s := serve(t, 1500)
	t.Run("ndk", func(t *testing.T) { ndk(t, s) })
	t.Run("applesauce", func(t *testing.T) { applesauce(t, s) })
	t.Run("nostr-tools", func(t *testing.T) { nostrTools(t, s) })
	t.Run("snstr", func(t *testing.T) { snstr(t, s) })
	for _, plain := range []string{"nostr-fetch", "rx-nostr"} {
		t.Run(plain, func(t *testing.T) {
			var got reports
			run(t, s, plain, nil, &got)
			same(t, "{kinds:[30166]}", got.Reports, s.reports)
		})
	}
}

// ndk also shows what its filter keeps of people's relay lists.
func ndk(t *testing.T, s served) {
	const (
		gone  = "wss://gone.example.net/"
		gone2 = "wss://gone.example.org/"
		onion = "wss://oxtrdevav64z64yb7x6rjg4ntzqjhedm5b5zjqulugknhzr46ny2qbad.onion/"
	)
	a, b := s.reports[0].URL, s.reports[1499].URL
	lists := map[string][]string{
		"usual": {a, gone, b}, "online": {a, b}, "onion": {onion, gone}, "last": {gone, gone2}, "none": {},
	}
	var got struct {
		reports
		Kept        map[string][]string `json:"kept"`
		KeptFromFew map[string][]string `json:"keptFromFew"`
		KeptWhenOld map[string][]string `json:"keptWhenOld"`
	}
	run(t, s, "ndk", map[string]any{"authors": lists}, &got)
	same(t, "{kinds:[30166]}", got.Reports, s.reports)
	want := map[string][]string{
		"usual": {a, b}, "online": {a, b}, "onion": {onion}, "last": {gone, gone2}, "none": {},
	}
	if d := gocmp.Diff(want, got.Kept); d != "" {
		t.Errorf("nip66MonitorRelays kept (-want +got):\n%s", d)
	}
	if d := gocmp.Diff(lists, got.KeptFromFew); d != "" {
		t.Errorf("a short list was filtered by:\n%s", d)
	}
	if d := gocmp.Diff(lists, got.KeptWhenOld); d != "" {
		t.Errorf("an old list was filtered by:\n%s", d)
	}
	t.Logf("nip66MonitorRelays kept %v of %v", got.Kept, lists)
}

// applesauce also asks the monitor about single relays: it finds them by the
// relay list (kind 10002).
func applesauce(t *testing.T, s served) {
	present := []string{s.reports[1].URL, s.reports[7].URL, s.reports[1499].URL}
	var got struct {
		reports
		Monitor struct {
			Frequency int `json:"frequency"`
			Timeouts  []struct {
				Timeout int `json:"timeout"`
			} `json:"timeouts"`
			Checks  []string `json:"checks"`
			Geohash string   `json:"geohash"`
		} `json:"monitor"`
		Status map[string]struct {
			RTTOpen int `json:"rttOpen"`
		} `json:"status"`
		Absent int `json:"absent"`
	}
	run(t, s, "applesauce", map[string]any{"present": present, "absent": "wss://gone.example.net/"}, &got)
	same(t, "{kinds:[30166]}", got.Reports, s.reports)
	m := got.Monitor
	if m.Frequency != 3600 || len(m.Timeouts) != 1 || m.Timeouts[0].Timeout != 12000 || m.Geohash != geohash ||
		!slices.Equal(m.Checks, []string{"open", "read", "nip11", "dns"}) {
		t.Errorf("RelayMonitor: %+v", m)
	}
	for _, i := range []int{1, 7, 1499} {
		if r := s.reports[i]; got.Status[r.URL].RTTOpen != r.RTTOpen {
			t.Errorf("relayStatus(%s): %+v, want rttOpen %d", r.URL, got.Status[r.URL], r.RTTOpen)
		}
	}
	if got.Absent != 0 {
		t.Errorf("%d reports on a relay that is not online", got.Absent)
	}
}

// nostrTools also filters by tags, by time and by number.
func nostrTools(t *testing.T, s served) {
	var got struct {
		reports
		With50 []parsed `json:"with50"`
		Tor    []parsed `json:"tor"`
		Newest []parsed `json:"newest"`
	}
	run(t, s, "nostr-tools", nil, &got)
	same(t, "{kinds:[30166]}", got.Reports, s.reports)
	same(t, "#N 50", got.With50, s.where(func(p parsed) bool { return slices.Contains(p.NIPs, "50") }))
	same(t, "#n tor", got.Tor, nil)
	if all := urls(got.Newest); len(all) != 500 || len(slices.Compact(all)) != 500 {
		t.Errorf("limit 500 gave %d reports", len(all))
	}
}

// snstr also parses the announcement, and refuses one without a frequency.
func snstr(t *testing.T, s served) {
	var got struct {
		reports
		Monitor struct {
			Frequency int `json:"frequency"`
			Timeouts  []struct {
				Value int `json:"value"`
			} `json:"timeouts"`
			Checks  []string `json:"checks"`
			Geohash string   `json:"geohash"`
			Content string   `json:"content"`
		} `json:"monitor"`
	}
	run(t, s, "snstr", nil, &got)
	same(t, "{kinds:[30166]}", got.Reports, s.reports)
	m := got.Monitor
	if m.Frequency != 3600 || len(m.Timeouts) != 1 || m.Timeouts[0].Value != 12000 || m.Geohash != geohash ||
		!slices.Equal(m.Checks, []string{"open", "read", "nip11", "dns"}) || m.Content != "" {
		t.Errorf("parseRelayMonitorAnnouncement: %+v", m)
	}
}
