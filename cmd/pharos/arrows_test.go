package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pharos-nostr/pharos"

// listed is what `go list -json` says about one package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func goList(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", module+"/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	packages := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	return packages
}

// arrow says what the packages below one path may import.
type arrow struct {
	pkg   string   // relative to the module; "x/..." also means what is below x
	ours  []string // of the module, written likewise
	third []string // prefixes of other modules; nil = any but the fenced ones
}

// Longer paths stand before shorter ones: the first that matches holds.
var arrows = []arrow{
	{pkg: "monitor", third: []string{"golang.org/x/net/idna"}},
	{pkg: "monitor/nostr", ours: []string{"monitor"}, third: []string{"github.com/nbd-wtf/go-nostr", "golang.org/x/crypto", "github.com/btcsuite/btcd/btcec/v2"}},
	{pkg: "monitor/wire", ours: []string{"monitor"}, third: []string{}},
	{pkg: "monitor/ratelimit", ours: []string{}, third: []string{}},
	{pkg: "monitor/selection", ours: []string{}, third: []string{"gonum.org/v1/gonum"}},
	{pkg: "monitor/engine", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection"}, third: []string{}},
	{pkg: "monitor/postgres", ours: []string{"monitor", "migrations"}, third: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3", "golang.org/x/sync"}},
	{pkg: "migrations", ours: []string{}, third: []string{}},
	{pkg: "probe/...", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection", "monitor/wire", "probe/..."}},
	{pkg: "publisher/relay", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection"}},
	{pkg: "publisher/...", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection", "publisher/..."}},
	{pkg: "api/client", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection"}},
	{pkg: "api/...", ours: []string{"monitor", "monitor/nostr", "monitor/ratelimit", "monitor/selection", "monitor/wire", "api/..."}},
	{pkg: "cmd/pharos", ours: []string{"..."}},
	{pkg: "cmd/pharos/world", ours: []string{}, third: []string{}}, // tests alone
}

// fences name who alone may import a module directly.
var fences = []struct {
	module string
	inside []string
}{
	{"github.com/nbd-wtf/go-nostr", []string{"monitor/nostr", "publisher/relay", "api/client"}},
	{"github.com/fiatjaf/", []string{"publisher/relay"}},
	{"github.com/jackc/pgx/", []string{"monitor/postgres"}},
}

func matches(pattern, pkg string) bool {
	base, tree := strings.CutSuffix(pattern, "...")
	return pkg == pattern || tree && (pkg+"/" == base || strings.HasPrefix(pkg, base))
}

func TestArrows(t *testing.T) {
	packages := goList(t)
	seen := 0
	for path, p := range packages {
		pkg, mine := strings.CutPrefix(path, module+"/")
		if !mine {
			continue
		}
		seen++
		i := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.pkg, pkg) })
		if i < 0 {
			t.Errorf("package %s is in no arrow of this test: say what it may import", pkg)
			continue
		}
		for _, violation := range violations(arrows[i], pkg, p, packages) {
			t.Error(violation)
		}
	}
	if seen < 5 {
		t.Fatalf("go list found %d packages of ours", seen)
	}
}

// violations checks the imports of one package, and whether it reaches the
// store or the engine by any chain.
func violations(a arrow, pkg string, p listed, packages map[string]listed) []string {
	var out []string
	for _, imp := range p.Imports {
		if target, mine := strings.CutPrefix(imp, module+"/"); mine {
			if !slices.ContainsFunc(a.ours, func(o string) bool { return matches(o, target) }) {
				out = append(out, pkg+" imports "+target)
			}
			continue
		}
		if packages[imp].Standard || !strings.Contains(imp, ".") {
			continue
		}
		if a.third != nil && !slices.ContainsFunc(a.third, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") }) {
			out = append(out, pkg+" imports "+imp)
		}
		for _, f := range fences {
			if strings.HasPrefix(imp+"/", f.module) && !slices.Contains(f.inside, pkg) {
				out = append(out, pkg+" imports "+imp+", which is fenced in")
			}
		}
	}
	if pkg == "cmd/pharos" {
		return out
	}
	for _, dep := range p.Deps {
		for _, fenced := range []string{"monitor/postgres", "monitor/engine"} {
			if dep == module+"/"+fenced && pkg != fenced {
				out = append(out, pkg+" reaches "+fenced)
			}
		}
		if pkg != "monitor/postgres" && strings.HasPrefix(dep, "github.com/jackc/pgx/") {
			out = append(out, pkg+" reaches "+dep)
		}
	}
	return out
}

// The check itself must be able to fail.
func TestArrowsCatchViolations(t *testing.T) {
	pharos := func(s string) string { return module + "/" + s }
	for name, c := range map[string]struct {
		pkg     string
		imports []string
		deps    []string
		want    int
	}{
		"domain stays pure":         {pkg: "monitor", imports: []string{"github.com/nbd-wtf/go-nostr"}, want: 2},
		"domain imports no sibling": {pkg: "monitor", imports: []string{pharos("probe")}, want: 1},
		"probe and the store":       {pkg: "probe/vantage", imports: []string{pharos("monitor/postgres")}, deps: []string{pharos("monitor/postgres")}, want: 2},
		"probe and api":             {pkg: "probe", imports: []string{pharos("api")}, want: 1},
		"relay needs no publisher":  {pkg: "publisher/relay", imports: []string{pharos("publisher")}, want: 1},
		"api and go-nostr":          {pkg: "api", imports: []string{"github.com/nbd-wtf/go-nostr/nip19"}, want: 1},
		"engine by a chain":         {pkg: "api", deps: []string{pharos("monitor/engine")}, want: 1},
		"cmd fenced from pgx":       {pkg: "cmd/pharos", imports: []string{"github.com/jackc/pgx/v5"}, want: 1},
		"what is allowed":           {pkg: "probe/vantage", imports: []string{pharos("probe"), pharos("monitor"), "fmt"}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(arrows, func(a arrow) bool { return matches(a.pkg, c.pkg) })
			got := violations(arrows[i], c.pkg, listed{Imports: c.imports, Deps: c.deps}, nil)
			if len(got) != c.want {
				t.Errorf("found %d violations, want %d: %q", len(got), c.want, got)
			}
		})
	}
}
