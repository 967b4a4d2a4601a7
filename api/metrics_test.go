package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/pharos-nostr/pharos/monitor"
)

// The metrics of the core are exactly these.
func TestMetrics(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		body := b.get("/metrics").Body.String()
		var own []string
		for _, line := range strings.Split(body, "\n") {
			name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
			if line != "" && !strings.HasPrefix(name, "pharos_") {
				b.Errorf("no prefix: %s", line)
			}
			for _, other := range []string{"pharos_go_", "pharos_process_", "pharos_http_"} {
				if strings.HasPrefix(name, other) {
					name = ""
				}
			}
			if name != "" {
				own = append(own, line)
			}
		}
		golden(b.T, "metrics.txt", []byte(strings.Join(own, "\n")+"\n"))
	})
}

// Labels stay bounded whatever callers send, and hold no relay's URL.
func TestMetricLabels(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		b.get("/v1/live")
		b.get("/v1/live", "If-None-Match", "*")
		b.do(http.MethodHead, "/v1/relay?url=wss://a.example")
		b.get("/v1/relay?url=nonsense")
		for _, path := range []string{"/a", "/b", "/wss://a.example/", "/v1/x"} {
			b.get(path)
			b.do("BREW", path)
		}
		b.do("BREW", "/v1/live")
		body := b.get("/metrics").Body.String()
		for _, line := range []string{
			`pharos_http_requests_total{method="GET",route="/v1/live",status="200"} 1`,
			`pharos_http_requests_total{method="GET",route="/v1/live",status="304"} 1`,
			`pharos_http_requests_total{method="HEAD",route="/v1/relay",status="200"} 1`,
			`pharos_http_requests_total{method="GET",route="/v1/relay",status="422"} 1`,
			`pharos_http_requests_total{method="GET",route="other",status="404"} 4`,
			`pharos_http_request_duration_seconds_count{route="/v1/live"} `,
		} {
			if !strings.Contains(body, line) {
				b.Errorf("missing: %s", line)
			}
		}
		for _, word := range []string{"example", "wss:", "BREW", "nonsense"} {
			if strings.Contains(body, word) {
				b.Errorf("%q stands in the metrics", word)
			}
		}
	})
}

func TestMetricsOfAnUnusableList(t *testing.T) {
	run(t, func(b *bench) {
		g := unusable(generation(b.now), monitor.FallbackTooFew)
		b.core.generation = func() *monitor.Generation { return g }
		body := b.get("/metrics").Body.String()
		for _, line := range []string{"pharos_usable 0\n", `pharos_fallback{reason="too_few"} 1` + "\n", `pharos_fallback{reason="stale"} 0` + "\n"} {
			if !strings.Contains(body, line) {
				b.Errorf("missing: %s", line)
			}
		}
	})
}

// One may ask for some metrics by name; anything else is refused.
func TestMetricsByName(t *testing.T) {
	run(t, func(b *bench) {
		b.fixtures()
		w := b.get("/metrics?name[]=pharos_usable&name[]=pharos_held")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "pharos_usable 1\n") || strings.Contains(w.Body.String(), "pharos_relays") {
			b.Errorf("%d %.300s", w.Code, w.Body)
		}
		b.problem(b.get("/metrics?name=pharos_usable"), http.StatusUnprocessableEntity)
	})
}
