package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/pharos-nostr/pharos/monitor"
)

// lists are the paths whose bodies are kept.
var lists = []string{
	"/v1/live", "/v1/live?fields=url", "/v1/live?format=event", "/v1/live?format=urls", "/v1/live?format=text", "/v1/live?format=csv",
	"/v1/live?format=ndjson", "/v1/live?format=csv&fields=url", "/v1/live?network=clearnet&sort=rtt_open&limit=1", "/v1/live?format=text&limit=1",
	"/v1/online", "/v1/offline-set", "/openapi.json", "/docs", "/",
}

func TestListBodies(t *testing.T) {
	for file, target := range map[string]string{
		"live.json":        "/v1/live",
		"live_urls.json":   "/v1/live?fields=url&format=json",
		"live_event.json":  "/v1/live?format=event",
		"online.json":      "/v1/online",
		"offline_set.json": "/v1/offline-set",
	} {
		t.Run(file, func(t *testing.T) {
			run(t, func(b *bench) {
				w := b.get(target)
				if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
					b.Fatalf("%d %v", w.Code, w.Header())
				}
				if g := w.Header().Get("X-Pharos-Generation"); g != "812" {
					b.Errorf("X-Pharos-Generation %q", g)
				}
				golden(b.T, file, w.Body.Bytes())
			})
		})
	}
}

// A list that must not be used says so in its envelope with what is known,
// and is a 503 where there is no envelope.
func TestUnusableLists(t *testing.T) {
	for _, f := range []monitor.Fallback{monitor.FallbackWarmingUp, monitor.FallbackClock, monitor.FallbackStale, monitor.FallbackTooFew} {
		t.Run(string(f), func(t *testing.T) {
			run(t, func(b *bench) {
				g := unusable(generation(b.now), f)
				b.core.generation = func() *monitor.Generation { return g }
				for _, target := range []string{"/v1/live", "/v1/live?fields=url", "/v1/offline-set"} {
					var got struct {
						Usable        bool
						Fallback      string
						Count         int
						MaxAgeSeconds int `json:"max_age_seconds"`
						Relays        []struct{ URL string }
					}
					w := b.get(target)
					if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
						b.Fatalf("%s: %d %v", target, w.Code, err)
					}
					known := 2
					if f == monitor.FallbackWarmingUp {
						known = 0
					}
					if got.Usable || got.Fallback != string(f) || got.Count != known || len(got.Relays) != known || got.Relays == nil {
						b.Errorf("%s: %+v", target, got)
					}
					if cc := w.Header().Get("Cache-Control"); cc != "no-cache" {
						b.Errorf("%s: Cache-Control %q", target, cc)
					}
				}
				for _, target := range []string{"/v1/online", "/v1/live?format=event"} {
					w := b.get(target, "If-None-Match", "*")
					p := b.problem(w, http.StatusServiceUnavailable)
					if !strings.Contains(p.Detail, string(f)) {
						b.Errorf("%s does not say why: %s", target, p.Detail)
					}
					if g := w.Header().Get("X-Pharos-Generation"); g != "813" {
						b.Errorf("%s: X-Pharos-Generation %q", target, g)
					}
				}
			})
		})
	}
}

func TestUsableListWithoutSnapshotYet(t *testing.T) {
	run(t, func(b *bench) {
		g := generation(b.now)
		g.Snapshot = nil
		b.core.generation = func() *monitor.Generation { return g }
		b.problem(b.get("/v1/live?format=event"), http.StatusServiceUnavailable)
		if w := b.get("/v1/online"); w.Code != http.StatusOK {
			b.Errorf("online: %d", w.Code)
		}
	})
}

// A core that makes no more generations must not leave its last one usable
// for ever.
func TestListGoesStaleByItself(t *testing.T) {
	run(t, func(b *bench) {
		first := b.get("/v1/live")
		elapse(4*time.Hour - 5*time.Second) // of the bubble: the newest check is 4 h old
		if w := b.get("/v1/online"); w.Code != http.StatusOK {
			b.Fatalf("at exactly 4 h: %d", w.Code)
		}
		elapse(time.Second)
		b.problem(b.get("/v1/online"), http.StatusServiceUnavailable)
		b.problem(b.get("/v1/live?format=event"), http.StatusServiceUnavailable)
		w := b.get("/v1/live", "If-None-Match", first.Header().Get("ETag"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"usable":false,"fallback":"stale"`) {
			b.Errorf("%d %s", w.Code, w.Body)
		}
		if w := b.get("/v1/status"); !strings.Contains(w.Body.String(), `"usable":false,"fallback":"stale"`) {
			b.Errorf("status: %s", w.Body)
		}
		if w := b.get("/metrics"); !strings.Contains(w.Body.String(), "pharos_usable 0\n") {
			b.Error("metrics say usable")
		}
	})
}

func unpack(t *testing.T, coding string, data []byte) []byte {
	t.Helper()
	var r io.Reader = bytes.NewReader(data)
	switch coding {
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = z
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		r = z
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRepresentations(t *testing.T) {
	run(t, func(b *bench) {
		for _, target := range lists {
			plain := b.get(target)
			tags := map[string]string{plain.Header().Get("ETag"): "identity"}
			for _, coding := range []string{"gzip", "zstd"} {
				w := b.get(target, "Accept-Encoding", coding)
				if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != coding {
					b.Fatalf("%s %s: %d %v", target, coding, w.Code, w.Header())
				}
				if d := cmp.Diff(plain.Body.String(), string(unpack(b.T, coding, w.Body.Bytes()))); d != "" {
					b.Errorf("%s %s is another body:\n%s", target, coding, d)
				}
				tag := w.Header().Get("ETag")
				if other, twice := tags[tag]; twice || tag == "" {
					b.Errorf("%s: ETag %q of %s is that of %q", target, tag, coding, other)
				}
				tags[tag] = coding
				if vary := w.Header().Get("Vary"); !strings.HasPrefix(vary, "Accept, Accept-Encoding") {
					b.Errorf("%s: Vary %q", target, vary)
				}
				if again := b.get(target, "Accept-Encoding", coding, "If-None-Match", tag); again.Code != http.StatusNotModified ||
					again.Body.Len() != 0 || again.Header().Get("ETag") != tag || again.Header().Get("Vary") == "" || again.Header().Get("Cache-Control") == "" {
					b.Errorf("%s %s: no good 304: %d %v", target, coding, again.Code, again.Header())
				}
				if other := b.get(target, "If-None-Match", tag); other.Code != http.StatusOK {
					b.Errorf("%s: 304 for the ETag of another coding", target)
				}
			}
			head := b.do(http.MethodHead, target, "Accept-Encoding", "gzip")
			full := b.get(target, "Accept-Encoding", "gzip")
			if head.Body.Len() != 0 {
				b.Errorf("HEAD %s has a body", target)
			}
			if d := cmp.Diff(full.Header(), head.Header()); d != "" || head.Code != full.Code {
				b.Errorf("HEAD %s: %d\n%s", target, head.Code, d)
			}
			if n := full.Header().Get("Content-Length"); n != fmt.Sprint(full.Body.Len()) {
				b.Errorf("%s: Content-Length %s of %d bytes", target, n, full.Body.Len())
			}
		}
	})
}

// A list that tells of its generation has another ETag with each.
func TestETagFollowsTheGeneration(t *testing.T) {
	run(t, func(b *bench) {
		now := generation(b.now)
		b.core.generation = func() *monitor.Generation { return now }
		for _, target := range []string{"/v1/live", "/v1/live?fields=url", "/v1/live?network=clearnet", "/v1/offline-set"} {
			tag := b.get(target).Header().Get("ETag")
			if w := b.get(target, "If-None-Match", tag); w.Code != http.StatusNotModified {
				b.Errorf("%s: %d while nothing changed", target, w.Code)
			}
			next := *now
			next.Number++
			now = &next
			w := b.get(target, "If-None-Match", tag)
			if w.Code != http.StatusOK {
				b.Errorf("%s: %d after a new generation", target, w.Code)
			}
			tag = w.Header().Get("ETag")
			// A process that was killed counts the same number again.
			again := *now
			again.GeneratedAt = again.GeneratedAt.Add(time.Second)
			now = &again
			if w := b.get(target, "If-None-Match", tag); w.Code != http.StatusOK {
				b.Errorf("%s: %d for another generation of the same number", target, w.Code)
			}
		}
	})
}

// A list that tells nothing of its generation keeps its ETag until something
// in it changes.
func TestETagFollowsTheContent(t *testing.T) {
	for _, target := range []string{
		"/v1/online", "/v1/live?format=urls", "/v1/live?format=text", "/v1/live?format=csv&fields=url", "/v1/live?format=ndjson&fields=url",
		"/v1/live?format=event", "/v1/live?format=text&nip=11&limit=1",
	} {
		run(t, func(b *bench) {
			now := generation(b.now)
			b.core.generation = func() *monitor.Generation { return now }
			for _, coding := range []string{"identity", "gzip", "zstd"} {
				tag := b.get(target, "Accept-Encoding", coding).Header().Get("ETag")
				next := *now
				next.Number++
				next.GeneratedAt = next.GeneratedAt.Add(time.Minute)
				next.Online = slices.Clone(next.Online)
				next.Online[0].LastSuccess = b.now
				now = &next
				w := b.get(target, "Accept-Encoding", coding, "If-None-Match", tag)
				if w.Code != http.StatusNotModified || w.Header().Get("ETag") != tag || w.Header().Get("X-Pharos-Generation") != fmt.Sprint(next.Number) {
					b.Errorf("%s %s: %d while nothing in it changed: %v", target, coding, w.Code, w.Header())
				}
				changed := next
				changed.Online = slices.Clone(next.Online)
				changed.Online[0].URL += "x"
				changed.Snapshot = &monitor.SignedEvent{JSON: append(slices.Clone(next.Snapshot.JSON), ' ')}
				now = &changed
				if w := b.get(target, "Accept-Encoding", coding, "If-None-Match", tag); w.Code != http.StatusOK || w.Header().Get("ETag") == tag {
					b.Errorf("%s %s: %d after a change", target, coding, w.Code)
				}
			}
		})
	}
}

// The bodies of a generation are kept for as long as it is the current one.
func TestBodiesAreKeptWithTheirGeneration(t *testing.T) {
	run(t, func(b *bench) {
		first := b.api.Shelf()
		if b.get("/v1/live"); b.api.Shelf() != first {
			b.Error("made anew while nothing changed")
		}
		next := *generation(b.now)
		b.core.generation = func() *monitor.Generation { return &next }
		if b.api.Shelf() == first {
			b.Error("kept after a new generation")
		}
	})
}

// Readers that race with new generations each get one whole list.
func TestConcurrentReadersAndGenerations(t *testing.T) {
	run(t, func(b *bench) {
		gens := make(chan *monitor.Generation, 1)
		gens <- generation(b.now)
		b.core.generation = func() *monitor.Generation { g := <-gens; gens <- g; return g }
		done := make(chan struct{})
		for i := range 8 {
			go func() {
				defer func() { done <- struct{}{} }()
				for range 50 {
					w := b.get("/v1/live", "Accept-Encoding", []string{"gzip", "zstd", ""}[i%3])
					var got struct {
						Generation uint64
						Count      int
						Relays     []struct{ URL string }
					}
					if err := json.Unmarshal(unpack(b.T, w.Header().Get("Content-Encoding"), w.Body.Bytes()), &got); err != nil || len(got.Relays) != got.Count {
						b.Errorf("%v: %+v", err, got)
					}
					if number := w.Header().Get("X-Pharos-Generation"); number != fmt.Sprint(got.Generation) {
						b.Errorf("header says %s, body %d", number, got.Generation)
					}
				}
			}()
		}
		for range 20 {
			g := *<-gens
			g.Number++
			g.Online = append(g.Online[:len(g.Online):len(g.Online)], monitor.OnlineRelay{URL: "wss://z.example/", Network: monitor.Clearnet})
			gens <- &g
		}
		for range 8 {
			<-done
		}
		synctest.Wait()
	})
}

// elapse lets virtual time pass; it belongs in a synctest bubble only.
func elapse(d time.Duration) { time.Sleep(d) }
