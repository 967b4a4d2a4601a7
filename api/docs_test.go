package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The page stands alone: its policy allows nothing but its own style, every
// link leads somewhere, and everything in the document has its place.
func TestDocsPage(t *testing.T) {
	runOperated(t, func(o *operated) {
		w := o.get("/docs")
		page := w.Body.String()
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.HasSuffix(page, "</html>\n") {
			o.Fatalf("%d %v", w.Code, w.Header())
		}
		policy := w.Header().Get("Content-Security-Policy")
		style := between(page, "<style>", "</style>")
		sum := sha256.Sum256([]byte(style))
		for _, want := range []string{"default-src 'none'", "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				o.Errorf("%s is missing in %s", want, policy)
			}
		}
		for _, bad := range []string{"<script", "<link", "<img", "src=", "@import", "url(", " style=", "onclick", "unsafe-inline"} {
			if strings.Contains(page+policy, bad) {
				o.Errorf("%q stands in the page", bad)
			}
		}
		ids := map[string]int{}
		for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if ids[m[1]]++; ids[m[1]] > 1 {
				o.Errorf("two elements have the id %s", m[1])
			}
		}
		for _, m := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if anchor, ok := strings.CutPrefix(m[1], "#"); m[1] != "openapi.json" && (!ok || ids[anchor] == 0) {
				o.Errorf("%s leads nowhere", m[1])
			}
		}
		doc := o.api.OpenAPI()
		for _, op := range documented(doc) {
			if ids[op.OperationID] != 1 {
				o.Errorf("%s has no anchor", op.OperationID)
				continue
			}
			part := between(page, `<article id="`+op.OperationID+`"`, "</article>")
			for _, p := range op.Parameters {
				if need := strings.Contains(part, "<code>"+p.Name+`</code> <span class="need">`); need != p.Required {
					o.Errorf("%s: parameter %s is shown as required: %v", op.OperationID, p.Name, need)
				}
				if !strings.Contains(part, "<code>"+p.Name+"</code>") || !strings.Contains(part, html.EscapeString(p.Description)) {
					o.Errorf("%s: parameter %s is missing", op.OperationID, p.Name)
				}
			}
			for status := range op.Responses {
				if !strings.Contains(part, ">"+status+"</span>") {
					o.Errorf("%s: status %s is missing", op.OperationID, status)
				}
			}
			if len(op.Security) > 0 != strings.Contains(part, `href="#keys"`) {
				o.Errorf("%s: %d keys", op.OperationID, len(op.Security))
			}
			asks := map[bool]string{strings.HasPrefix(op.Path, "/v1/admin/"): "operators", strings.HasPrefix(op.Path, "/v1/vantages/"): "vantages", op.OperationID == "opt-out-relay": "the relay&#39;s owner"}[true]
			if got := between(part, `<a class="tag" href="#keys">`, "</a>"); got != asks {
				o.Errorf("%s: %q may ask, want %q", op.OperationID, got, asks)
			}
		}
		if !strings.Contains(page, `<code>relays</code> <span class="need">required</span>`) || strings.Contains(page, `<code>generation</code> <span class="need">`) {
			o.Error("what a request needs is not marked, or what an answer holds is")
		}
		for _, want := range []string{
			"whole number, 1 to 1000, by default 100", // limit of /v1/relays
			"one of url, rtt_open, by default url",
			"list of at most 20, each whole number, 0 to 65535",
			"time, RFC 3339, or null",
			"list, each object", // ballots, with
			"<code>failure_count</code>",
		} {
			if !strings.Contains(page, want) {
				o.Errorf("the page does not say %q", want)
			}
		}
	})
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// Every command of the page does what it says, on this very server.
func TestDocsExamples(t *testing.T) {
	runOperated(t, func(o *operated) {
		page := o.get("/docs").Body.String()
		signed := o.sign(o.key, "https://pharos.example/v1/relays/opt-out", `{"url":"wss://relay.example.com"}`, nil)
		for _, op := range documented(o.api.OpenAPI()) {
			command := html.UnescapeString(between(between(page, `<article id="`+op.OperationID+`"`, "</article>"), "<pre tabindex=\"0\"><code>", "</code>"))
			if strings.HasPrefix(op.Path, "/v1/vantages/") {
				if command != "pharos vantage --core https://pharos.example" {
					o.Errorf("%s: %q", op.OperationID, command)
				}
				continue
			}
			rest, ok := strings.CutPrefix(command, "curl")
			if !ok {
				o.Errorf("%s: %q", op.OperationID, command)
				continue
			}
			method, body, target := http.MethodGet, "", ""
			var headers []string
			for _, word := range strings.Split(strings.ReplaceAll(rest, " \\\n  ", "\x00"), "\x00") {
				if word = strings.TrimSpace(word); word == "" {
					continue
				}
				value := strings.Trim(strings.TrimLeft(word, "-HdX "), `'"`)
				switch {
				case strings.HasPrefix(word, "-X "):
					method = value
				case strings.HasPrefix(word, "-H "):
					name, v, _ := strings.Cut(value, ": ")
					headers = append(headers, name, strings.NewReplacer("$(cat DATA_DIR/admin.token)", adminToken, "Nostr $NIP98_EVENT", signed[1]).Replace(v))
				case strings.HasPrefix(word, "-d "):
					body = value
				default:
					target = value
				}
			}
			path, ok := strings.CutPrefix(target, "https://pharos.example")
			if !ok || method != op.Method {
				o.Errorf("%s: %s %s", op.OperationID, method, target)
			}
			r := request(method, path, headers...)
			if body != "" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			}
			if w := o.send(r); w.Code >= 300 {
				o.Errorf("%s: %d %s\n%s", op.OperationID, w.Code, w.Body, command)
			}
		}
	})
}

// What the configuration names is text on the page, never markup.
func TestDocsAreEscaped(t *testing.T) {
	run(t, func(b *bench) {
		s := settings()
		s.Name, s.RelayURL = `<script>alert(1)</script>"'`, ""
		b.api.Configure(s)
		page := b.get("/docs").Body.String()
		if strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") || !strings.Contains(page, "http://localhost/v1/live") {
			b.Errorf("%.2000s", page)
		}
	})
}

// Every colour of text has a contrast of 4.5 or more (WCAG AA) on both grounds,
// by day and by night.
func TestDocsContrast(t *testing.T) {
	css, err := os.ReadFile("docs.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, _ := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	dark, _, _ = strings.Cut(dark, "\n}")
	luminance := func(hex string) float64 {
		l := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			c := float64(v) / 255
			if c <= 0.04045 {
				c /= 12.92
			} else {
				c = math.Pow((c+0.055)/1.055, 2.4)
			}
			l += weight * c
		}
		return l
	}
	for name, part := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--([a-z]+): #([0-9a-f]{6})`).FindAllStringSubmatch(part, -1) {
			colours[m[1]] = m[2]
		}
		for _, ink := range []string{"ink", "soft", "link", "post", "good", "bad"} {
			for _, ground := range []string{"ground", "panel"} {
				a, b := luminance(colours[ink]), luminance(colours[ground])
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
					t.Errorf("%s: %s on %s is %.2f", name, ink, ground, ratio)
				}
			}
		}
	}
}
