package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// deployed reads a file of deploy/.
func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDeployedConfiguration: what the package installs as /etc/pharos/pharos.yaml
// is fine, with its examples taken as they are, too.
func TestDeployedConfiguration(t *testing.T) {
	text := deployed(t, "pharos.yaml")
	// A commented key begins right after the "#"; the relay file is the reader's.
	examples := regexp.MustCompile(`(?m)^#([a-z].*)$`).ReplaceAllString(text, "$1")
	examples = regexp.MustCompile(`(?m)^relay_files:.*$`).ReplaceAllString(examples, "")
	if strings.Count(examples, "\n#") == strings.Count(text, "\n#") {
		t.Fatal("no example found in it")
	}
	for name, text := range map[string]string{"as it is": text, "its examples": examples} {
		// The test's user may not write where the service's may.
		text = strings.ReplaceAll(text, "/var/lib/pharos", t.TempDir())
		file := filepath.Join(t.TempDir(), "pharos.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := pharos(t, "", nil, "config", "check", "--config", file); got.status != exitFine {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDeployedEnvironment: every variable that the containers set is one of
// ours, with a value that is taken.
func TestDeployedEnvironment(t *testing.T) {
	texts := map[string]string{}
	for _, name := range []string{"Containerfile", "compose.yaml", "compose.postgres.yaml"} {
		texts[name] = deployed(t, name)
	}
	t.Chdir(t.TempDir()) // away from any pharos.yaml
	assignment := regexp.MustCompile(`(PHAROS_[A-Z_]+)(?:=|: )(\S+)`)
	for name, text := range texts {
		var environ []string
		for _, m := range assignment.FindAllStringSubmatch(text, -1) {
			environ = append(environ, m[1]+"="+strings.ReplaceAll(m[2], "/var/lib/pharos", t.TempDir()))
		}
		if len(environ) < 2 {
			t.Fatalf("%s sets %q", name, environ)
		}
		if got := pharos(t, "", environ, "config", "check"); got.status != exitFine {
			t.Errorf("%s: %+v", name, got)
		}
		if got := pharos(t, "", append(environ, "PHAROS_PUBLIC_LURE=1"), "config", "check"); got.status != exitUsage {
			t.Errorf("%s: a variable that is none of ours is taken", name)
		}
	}
}

// TestDeployedCommands: every command that the operators' README and the units
// name is there.
func TestDeployedCommands(t *testing.T) {
	word := regexp.MustCompile(`^[a-z]+$`)
	var seen []string
	for _, name := range []string{"README.md", "pharos.service", "pharos.yaml", "compose.yaml"} {
		for _, m := range regexp.MustCompile("(?m)(?:^|[`&|=/] ?|exec )pharos ((?:--config \\S+ )?[a-z][^`\n]*)").FindAllStringSubmatch(deployed(t, name), -1) {
			var args []string
			for _, w := range strings.Fields(m[1]) {
				if !word.MatchString(w) || len(args) == 2 || len(args) == 1 && args[0] != "relays" && args[0] != "config" {
					break
				}
				args = append(args, w)
			}
			if len(args) == 0 || args[0] == "pharos" {
				continue
			}
			seen = append(seen, strings.Join(args, " "))
			if got := pharos(t, "", nil, append(args, "--help")...); got.status != exitFine {
				t.Errorf("%s says %q: %s", name, "pharos "+m[1], got.stderr)
			}
		}
	}
	for _, must := range []string{"serve", "health", "backup", "restore", "config check", "config reload", "relays import", "relays pause", "keygen", "check"} {
		if !slices.Contains(seen, must) {
			t.Errorf("%q was not found among %q", must, seen)
		}
	}
}
