package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// face is what one relay shows of itself.
type face struct {
	url    monitor.RelayURL
	doc    string // name in its document; "" = it has none
	pubkey string
	sample string
}

func (f face) info() *monitor.Info {
	if f.doc == "" {
		return nil
	}
	return &monitor.Info{Raw: fmt.Appendf(nil, `{"name":%q,"pubkey":%q}`, f.doc, f.pubkey), Name: f.doc, Pubkey: f.pubkey}
}

func TestAliases(t *testing.T) {
	const key, other = "aa11", "bb22"
	for _, tc := range []struct {
		name  string
		faces []face
		of    map[monitor.RelayURL]monitor.RelayURL // who stands for whom
	}{
		{
			"paths of one host",
			[]face{{"wss://a.example/x", "A", "", "01"}, {"wss://a.example/", "A", "", "01"}, {"wss://a.example/yy", "A", "", "01"}},
			map[monitor.RelayURL]monitor.RelayURL{"wss://a.example/x": "wss://a.example/", "wss://a.example/yy": "wss://a.example/"},
		},
		{"legal paths: another reply", []face{{"wss://a.example/", "A", "", "01"}, {"wss://a.example/inbox", "A", "", "02"}}, nil},
		{"legal paths: another document", []face{{"wss://a.example/", "A", "", "01"}, {"wss://a.example/it", "B", "", "01"}}, nil},
		{"no reply is no evidence", []face{{"wss://a.example/", "A", key, ""}, {"wss://a.example/x", "A", key, ""}}, nil},
		{"no document neither", []face{{"wss://a.example/", "", "", "01"}, {"wss://a.example/x", "", "", "01"}}, nil},
		{
			"two hosts of one operator",
			[]face{{"wss://b.example/", "A", key, "01"}, {"wss://longer.example/", "A", key, "01"}},
			map[monitor.RelayURL]monitor.RelayURL{"wss://longer.example/": "wss://b.example/"},
		},
		{"two hosts with the document of the shop", []face{{"wss://b.example/", "A", "", "01"}, {"wss://c.example/", "A", "", "01"}}, nil},
		{"two operators", []face{{"wss://b.example/", "A", key, "01"}, {"wss://c.example/", "A", other, "01"}}, nil},
		{
			"wss before ws, no path before that",
			[]face{{"ws://a.example/", "A", "", "01"}, {"wss://a.example/x", "A", "", "01"}, {"ws://a.example:8080/", "A", "", "01"}},
			map[monitor.RelayURL]monitor.RelayURL{"wss://a.example/x": "ws://a.example/", "ws://a.example:8080/": "ws://a.example/"},
		},
		{
			"by the alphabet",
			[]face{{"wss://c.example/", "A", key, "01"}, {"wss://b.example/", "A", key, "01"}},
			map[monitor.RelayURL]monitor.RelayURL{"wss://c.example/": "wss://b.example/"},
		},
		{
			"two groups",
			[]face{{"wss://a.example/", "A", "", "01"}, {"wss://a.example/x", "A", "", "01"}, {"wss://b.example/", "B", "", "02"}, {"wss://b.example/x", "B", "", "02"}},
			map[monitor.RelayURL]monitor.RelayURL{"wss://a.example/x": "wss://a.example/", "wss://b.example/x": "wss://b.example/"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inFaces(t, tc.faces, func(w *world, _ map[monitor.RelayURL]*face) {
				w.run(3 * time.Minute)
				w.wantAliases(tc.faces, tc.of)
				if got := len(w.live()); got != len(tc.faces) {
					t.Errorf("%d relays are listed, want all %d", got, len(tc.faces))
				}
			})
		})
	}
}

// inFaces runs a world of these relays.
func inFaces(t *testing.T, faces []face, f func(w *world, byURL map[monitor.RelayURL]*face)) {
	inWorld(t, 1, []string{"a"}, func(_ *testing.T, w *world) {
		byURL := map[monitor.RelayURL]*face{}
		w.cfg.Relays = nil
		for i := range faces {
			face := faces[i]
			byURL[face.url] = &face
			w.cfg.Relays = append(w.cfg.Relays, monitor.WatchedRelay{URL: face.url, Source: monitor.SourceConfig, FirstSeen: time.Now()})
		}
		w.cfg.Freshness.MinCount = 1
		w.restart()
		w.vantages[0].tells = func(o *monitor.Observation) {
			if face := byURL[o.Relay]; face != nil {
				o.Info, o.Capabilities = face.info(), &monitor.Capabilities{Sample: face.sample}
			}
		}
		f(w, byURL)
	})
}

func (w *world) wantAliases(faces []face, of map[monitor.RelayURL]monitor.RelayURL) {
	w.t.Helper()
	got := map[monitor.RelayURL]monitor.RelayURL{}
	for _, f := range faces {
		v := w.engine.RelayView(f.url)
		if v.AliasOf != "" {
			got[f.url] = v.AliasOf
		}
		for _, other := range v.Aliases {
			back := w.engine.RelayView(other)
			if other == f.url || back.AliasOf != v.AliasOf && back.AliasOf != f.url && other != v.AliasOf {
				w.t.Errorf("%s has %s for an alias, which is one of %q", f.url, other, back.AliasOf)
			}
		}
		if (len(v.Aliases) > 0) != (v.AliasOf != "" || stands(of, f.url)) {
			w.t.Errorf("%s has the aliases %v", f.url, v.Aliases)
		}
	}
	want := map[monitor.RelayURL]monitor.RelayURL{}
	for u, by := range of {
		want[u] = by
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("aliases (-want +got)\n%s", d)
	}
	if n := w.engine.Status().Aliases; n != len(of) {
		w.t.Errorf("%d aliases are counted, want %d", n, len(of))
	}
}

func stands(of map[monitor.RelayURL]monitor.RelayURL, u monitor.RelayURL) bool {
	for _, by := range of {
		if by == u {
			return true
		}
	}
	return false
}

// Aliases part when the evidence is gone: another document or reply, evidence of
// different days or too old, a relay that is no longer watched.
func TestAliasesPart(t *testing.T) {
	const root, path = monitor.RelayURL("wss://a.example/"), monitor.RelayURL("wss://a.example/x")
	faces := []face{{root, "A", "", "01"}, {path, "A", "", "01"}}
	joined := map[monitor.RelayURL]monitor.RelayURL{path: root}
	for _, tc := range []struct {
		name string
		do   func(w *world, byURL map[monitor.RelayURL]*face)
	}{
		{"another document", func(w *world, byURL map[monitor.RelayURL]*face) { byURL[path].doc = "B"; w.run(3 * time.Minute) }},
		{"another reply", func(w *world, byURL map[monitor.RelayURL]*face) { byURL[path].sample = "02"; w.run(3 * time.Minute) }},
		{"no newer evidence", func(w *world, _ map[monitor.RelayURL]*face) { w.vantages[0].tells = nil; w.run(49 * time.Hour) }},
		{"no longer watched", func(w *world, _ map[monitor.RelayURL]*face) {
			w.cfg.Relays = w.cfg.Relays[:1]
			if err := w.engine.Configure(w.t.Context(), w.cfg); err != nil {
				w.t.Fatal(err)
			}
			w.run(3 * time.Minute)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inFaces(t, faces, func(w *world, byURL map[monitor.RelayURL]*face) {
				w.run(3 * time.Minute)
				w.wantAliases(faces, joined)
				tc.do(w, byURL)
				w.wantAliases(faces, nil)
			})
		})
	}
}

// Two samples are compared where they are of one day, also when one relay was
// asked again since; those of two days are not.
func TestAliasesOfOneDay(t *testing.T) {
	const root, path = monitor.RelayURL("wss://a.example/"), monitor.RelayURL("wss://a.example/x")
	faces := []face{{root, "A", "", "01"}, {path, "A", "", "01"}}
	inFaces(t, faces, func(w *world, byURL map[monitor.RelayURL]*face) {
		var only monitor.RelayURL // the one whose capabilities are tested; "" = both
		all := w.vantages[0].tells
		w.vantages[0].tells = func(o *monitor.Observation) {
			all(o)
			if only != "" && o.Relay != only {
				o.Capabilities = nil
			}
		}
		w.run(3 * time.Minute)
		w.wantAliases(faces, map[monitor.RelayURL]monitor.RelayURL{path: root})
		// The next day the question has another answer, and root is asked first.
		only = root
		w.run(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)))
		byURL[root].sample, byURL[path].sample = "02", "02"
		w.run(time.Hour)
		w.wantAliases(faces, map[monitor.RelayURL]monitor.RelayURL{path: root})
	})
	inFaces(t, faces, func(w *world, _ map[monitor.RelayURL]*face) { // the same text, days apart
		all := w.vantages[0].tells
		w.vantages[0].tells = func(o *monitor.Observation) {
			all(o)
			if (time.Now().UTC().Day()%2 == 0) != (o.Relay == root) {
				o.Capabilities = nil
			}
		}
		w.run(26 * time.Hour)
		w.wantAliases(faces, nil)
	})
}
