package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// importLine is what --json prints of a line.
type importLine struct{ Input, Verdict, URL, Reason string }

func importLines(t *testing.T, stdout string) []importLine {
	t.Helper()
	var lines []importLine
	for text := range strings.Lines(stdout) {
		var l importLine
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		lines = append(lines, l)
	}
	return lines
}

// The cases of relay-url.md, as a list to import.
func TestImportJudges(t *testing.T) {
	text, err := os.ReadFile("../../monitor/testdata/relay-urls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	var want []importLine
	for row := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		if strings.HasPrefix(row, "#") {
			continue
		}
		input, err := strconv.Unquote(`"` + strings.ReplaceAll(fields[0], `"`, `\"`) + `"`)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(input, "\n") {
			continue // no line of a list
		}
		w := importLine{Input: input, Verdict: fields[1], URL: fields[2]}
		if w.Verdict == "reject" {
			w.URL, w.Reason = "", fields[2]
		}
		want = append(want, w)
		list.WriteString(input + "\n")
	}
	if len(want) < 60 {
		t.Fatalf("only %d cases", len(want))
	}
	file := filepath.Join(t.TempDir(), "list.txt")
	writeFile(t, file, list.String(), 0o600)
	for _, args := range [][]string{{"-"}, {file}} {
		got := pharos(t, list.String(), nil, append([]string{"--config", "testdata/config/good/empty.yaml", "relays", "import", "--dry-run", "--json"}, args...)...)
		if got.status != 0 || got.stderr != "" {
			t.Errorf("status %d, stderr %s", got.status, got.stderr)
		}
		if diff := cmp.Diff(want, importLines(t, got.stdout)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
}

const smallList = "# a list\nwss://a.example.com\n\nwss://A.example.com:443/ # again\nwss://no.example.com/x?token=hunter2\nrelay.example.com\nwss://no.example.com\n"

func TestImport(t *testing.T) {
	f := newFakeCore(t, doAll)
	got := f.run(t, smallList, "relays", "import", "-", "--note", "spring")
	want := `standard input:5: skipped, query: it contains a query; relays are watched without one
standard input:6: skipped, scheme: it must begin with wss:// or ws://
1 relay not added: it is watched already
1 relay added, 1 line named once more what stood before, 2 lines skipped
`
	if got.status != 0 || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got.stdout, "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`POST /v1/admin/relays {"add":["wss://a.example.com/","wss://no.example.com/"],"note":"spring"}`}, f.asked()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	got = f.run(t, smallList, "relays", "import", "-", "--json")
	lines := []importLine{
		{"wss://a.example.com", "ok", "wss://a.example.com/", ""},
		{"", "reject", "", "empty"},
		{"wss://A.example.com:443/ # again", "ok", "wss://a.example.com/", ""},
		{"wss://no.example.com/x?token=hunter2", "reject", "", "query"},
		{"relay.example.com", "reject", "", "scheme"},
		{"wss://no.example.com", "ok", "wss://no.example.com/", "is watched already"},
	}
	if diff := cmp.Diff(lines, importLines(t, got.stdout)); diff != "" || got.status != 0 {
		t.Errorf("status %d (-want +got):\n%s", got.status, diff)
	}

	if got := f.run(t, "wss://no.example.com\nwss://no.example.org\n", "relays", "import", "-"); got.status != 0 || got.stdout != "2 relays not added: each is watched already\n0 relays added, 0 lines skipped\n" {
		t.Errorf("nothing new: %+v", got)
	}

	f.asked()
	got = f.run(t, smallList, "relays", "import", "--dry-run", "-")
	if asked := f.asked(); got.status != 0 || len(asked) != 0 || !strings.HasSuffix(got.stdout, "\n2 relays could be added, 1 line named once more what stood before, 2 lines skipped\n") {
		t.Errorf("a dry run: %+v, requests %q", got, asked)
	}
	for _, list := range []string{"", "# none\n", "nonsense\nhttp://a.example\n"} {
		if got := f.run(t, list, "relays", "import", "-"); got.status != exitBad || !strings.Contains(got.stderr, "no line of standard input names a relay") || len(f.asked()) != 0 {
			t.Errorf("%q: %+v", list, got)
		}
	}
	if got := f.run(t, "", "relays", "import", "no-such-file"); got.status != exitUsage || !strings.Contains(got.stderr, "no-such-file cannot be read: there is no such file") {
		t.Errorf("no file: %+v", got)
	}
	if got := f.run(t, strings.Repeat("nonsense\n", 300)+"wss://a.example.com\n", "relays", "import", "-"); strings.Count(got.stdout, "skipped, ") != maxToldLines || !strings.Contains(got.stdout, "and 200 lines more; --json names all\n") {
		t.Errorf("300 lines of junk: %+v", got)
	}
}

// A long list goes out in requests that the API takes, and says how far it got.
func TestImportInParts(t *testing.T) {
	f := newFakeCore(t, doAll)
	var many, long strings.Builder
	for i := range 12_345 {
		fmt.Fprintf(&many, "wss://r%d.example.com\n", i)
	}
	for i := range 4_900 {
		fmt.Fprintf(&long, "wss://r%d.example.com/%s\n", i, strings.Repeat("x", 450))
	}
	for name, c := range map[string]struct {
		list         string
		relays, sent int
	}{"many": {many.String(), 12_345, 3}, "long": {long.String(), 4_900, 2}} {
		got, asked := f.run(t, c.list, "relays", "import", "-"), f.asked()
		if got.status != 0 || got.stdout != fmt.Sprintf("%d relays added, 0 lines skipped\n", c.relays) || len(asked) != c.sent {
			t.Errorf("%s: status %d, %s, %d requests", name, got.status, got.stdout, len(asked))
		}
		for _, r := range asked {
			if n := strings.Count(r, "wss://"); n > 5_000 || len(r) > 2_000_000 {
				t.Errorf("%s: a request with %d relays and %d bytes", name, n, len(r))
			}
		}
	}
	f.answers(func(w http.ResponseWriter, path string, body []byte) {
		if strings.Contains(string(body), "wss://r5000.") { // the second request
			problemAnswer(w, http.StatusServiceUnavailable, `{"detail":"the store is away"}`)
			return
		}
		doAll(w, path, body)
	})
	got := f.run(t, many.String(), "relays", "import", "-")
	if got.status != exitBad || got.stdout != "5000 relays added, 0 lines skipped\n" ||
		!strings.Contains(got.stderr, "says: the store is away\n5000 of 12345 relays were sent before; import the list again to go on") {
		t.Errorf("a failure between: %+v", got)
	}
}

func TestRelaysList(t *testing.T) {
	first := `{"url":"wss://a.example/","state":"online","since":"2026-01-02T03:04:05Z","marks":["held"],"cause":null,"source":"file","candidate":false,"excluded":false,"paused_until":null,"rtt_open_ms":83,"vantages_up":2,"vantages_total":3}`
	second := `{"url":"wss://b.example/","state":"dead","since":null,"marks":[],"cause":"conn_refused","source":null,"candidate":true,"excluded":true,"paused_until":"2026-02-02T03:04:05Z","rtt_open_ms":null,"vantages_up":0,"vantages_total":3}`
	f := newFakeCore(t, func(w http.ResponseWriter, path string, _ []byte) {
		page := `{"limit":1000,"next_cursor":"next","relays":[` + first + `]}`
		if strings.Contains(path, "cursor=next") {
			page = `{"limit":1000,"next_cursor":null,"relays":[` + second + `]}`
		}
		_, _ = w.Write([]byte(page))
	})
	got := f.run(t, "", "relays", "list")
	want := `STATE     SINCE                     RTT     UP  SOURCE     URL
online    2026-01-02T03:04:05Z    83 ms    2/3  file       wss://a.example/  (held)
dead      -                           -    0/3  -          wss://b.example/  (conn_refused, candidate, excluded, paused until 2026-02-02T03:04:05Z)
`
	if diff := cmp.Diff(want, got.stdout); diff != "" || got.status != 0 || got.stderr != "" {
		t.Errorf("status %d, %s (-want +got):\n%s", got.status, got.stderr, diff)
	}
	if got := f.run(t, "", "relays", "list", "--json"); got.stdout != first+"\n"+second+"\n" || got.status != 0 {
		t.Errorf("--json: %+v", got)
	}
	f.asked()
	f.run(t, "", "relays", "list", "--state", "online", "--mark", "held", "--mark", "stale", "--network", "tor", "--source", "config", "--candidate", "--paused", "--excluded", "--contains", "a&b")
	want = "GET /v1/relays?candidate=true&excluded=true&limit=1000&mark=held&mark=stale&network=tor&paused=true&q=a%26b&source=config&state=online "
	if asked := f.asked(); len(asked) == 0 || asked[0] != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	// The list is for everybody: no token is needed, and none is sent.
	f.dir = t.TempDir()
	if got := f.run(t, "", "relays", "list"); got.status != 0 {
		t.Errorf("without a token: %+v", got)
	}
	f.answers(func(w http.ResponseWriter, _ string, _ []byte) {
		_, _ = w.Write([]byte(`{"next_cursor":"next","relays":[]}`))
	})
	if got := f.run(t, "", "relays", "list"); got.status != exitBad || !strings.Contains(got.stderr, "the same page again and again") {
		t.Errorf("a circle: %+v", got)
	}
}
