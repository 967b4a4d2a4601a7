package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// binaries is one installation of PostgreSQL's programs.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// searchPatterns are where distributions put the programs; newest version first
// among them.
var searchPatterns = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Fedora and relatives
	"/usr/libexec/postgresql*",  // Alpine
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/usr/local/pgsql/bin", // built from source
}

// findBinaries returns the programs to run: those in pgBin when it is set, else
// the newest found in PATH and the usual places. dataMajor is the version that
// made the data that are there, 0 = none yet; only that one can open them, and
// when only others are found that is an otherMajorError.
func findBinaries(ctx context.Context, pgBin, path string, patterns []string, dataMajor int) (binaries, error) {
	dirs, err := programDirs(pgBin, path, patterns)
	if err != nil {
		return binaries{}, err
	}
	var all []binaries
	var broken error
	for _, dir := range dirs {
		if !executable(filepath.Join(dir, "initdb")) || !executable(filepath.Join(dir, "postgres")) {
			continue
		}
		// PATH may hold links into a version's own directory.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil && executable(filepath.Join(filepath.Dir(real), "initdb")) {
			dir = filepath.Dir(real)
		}
		major, err := majorOf(ctx, filepath.Join(dir, "postgres"))
		if err != nil && ctx.Err() != nil {
			return binaries{}, err
		}
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		if !slices.Contains(all, binaries{dir, major}) {
			all = append(all, binaries{dir, major})
		}
	}
	slices.SortStableFunc(all, func(a, b binaries) int { return b.major - a.major })

	switch {
	case len(all) == 0 && broken != nil:
		return binaries{}, fmt.Errorf("PostgreSQL's programs do not run: %w: install them again with %q", oneLine{broken}, installCommand())
	case len(all) == 0 && pgBin != "":
		return binaries{}, fmt.Errorf("%w: database.pg_bin is %s, and there are no programs initdb and postgres in it: correct it, or install them with %q",
			monitor.ErrNotFound, pgBin, installCommand())
	case len(all) == 0:
		return binaries{}, fmt.Errorf("%w: PostgreSQL's programs (initdb and postgres) are not on this machine: install them with %q, or set database.url to a server of yours",
			monitor.ErrNotFound, installCommand())
	case dataMajor != 0:
		for _, b := range all {
			if b.major == dataMajor {
				return b, nil
			}
		}
		return binaries{}, &otherMajorError{data: dataMajor, here: all[0].major}
	case all[0].major < oldestServer:
		return binaries{}, fmt.Errorf("%w: the PostgreSQL in %s is version %d and Pharos needs %d or newer: install a newer one",
			monitor.ErrInvalid, all[0].dir, all[0].major, oldestServer)
	}
	return all[0], nil
}

// programDirs are the directories in which PostgreSQL's programs are looked
// for: pgBin alone when it is set, else those of path and then of patterns. They
// are run from other directories than ours, so all of them are absolute; what is
// not in path is left out, as everywhere in Go.
func programDirs(pgBin, path string, patterns []string) ([]string, error) {
	if pgBin != "" {
		dir, err := filepath.Abs(pgBin)
		if err != nil {
			return nil, fmt.Errorf("find database.pg_bin %s: %w", pgBin, err)
		}
		return []string{dir}, nil
	}
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("search PostgreSQL in %s: %w", p, err)
		}
		dirs = append(dirs, found...)
	}
	return dirs, nil
}

// otherMajorError: the data are of a major version of PostgreSQL's whose
// programs are not here.
type otherMajorError struct{ data, here int }

func (e *otherMajorError) Error() string {
	return fmt.Sprintf("the data were made by PostgreSQL %d and only version %d is here", e.data, e.here)
}

func (e *otherMajorError) Unwrap() error { return monitor.ErrConflict }

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

var versionText = regexp.MustCompile(`PostgreSQL\) (\d+)`)

// majorOf asks a postgres program for its version, "postgres (PostgreSQL) 15.14".
// When ctx has ended the error is its cause.
func majorOf(ctx context.Context, program string) (int, error) {
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(limit, program, "--version").CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return 0, fmt.Errorf("ask %s for its version: %w", program, context.Cause(ctx))
	}
	if err != nil {
		return 0, fmt.Errorf("%s --version: %w (%s)", program, err, lastLine(string(out)))
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s --version answered %q", program, lastLine(string(out)))
	}
	return strconv.Atoi(string(m[1]))
}

// dataVersion returns the major version that made the data in dir, 0 when it
// holds none.
func dataVersion(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the database's version: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%w: %s does not hold a version: the directory is damaged or no database", monitor.ErrInvalid, filepath.Join(dir, "PG_VERSION"))
	}
	return v, nil
}

// installCommand is the one command that installs PostgreSQL here.
func installCommand() string {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		release = nil
	}
	return installCommandFor(string(release))
}

func installCommandFor(release string) string {
	ids := ""
	for line := range strings.Lines(release) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && (key == "ID" || key == "ID_LIKE") {
			ids += " " + strings.Trim(value, `"'`)
		}
	}
	for _, known := range []struct{ id, command string }{
		{"debian", "apt-get install -y postgresql"},
		{"ubuntu", "apt-get install -y postgresql"},
		{"fedora", "dnf install -y postgresql-server"},
		{"rhel", "dnf install -y postgresql-server"},
		{"suse", "zypper install -y postgresql-server"},
		{"alpine", "apk add postgresql"},
		{"arch", "pacman -S --noconfirm postgresql"},
	} {
		if slices.Contains(strings.Fields(ids), known.id) {
			return known.command
		}
	}
	if _, err := os.Stat("/System/Library"); err == nil {
		return "brew install postgresql"
	}
	return "apt-get install -y postgresql"
}

// lastLine returns the last line of text that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
