package postgres

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	maxLog  = 1 << 20 // bytes, when a server starts; one older file is kept
	logTail = 16 << 10
)

func logPath(dataDir string) string { return filepath.Join(dataDir, "postgres.log") }

// openLog opens the server's log, setting a large one aside.
func openLog(dataDir string) (*os.File, error) {
	path := logPath(dataDir)
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("set the database's log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the database's log: %w", err)
	}
	return f, nil
}

// lastComplaint returns the line of the log that says why the server ended.
func lastComplaint(dataDir string) string {
	f, err := os.Open(logPath(dataDir))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		if _, err := f.Seek(-logTail, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return ""
	}
	return complaint(string(b))
}

var severity = regexp.MustCompile(`(?m)^.*?\b(FATAL|PANIC|ERROR|error|fatal):\s+(.*)$`)

// complaint returns the last error in an output of PostgreSQL's, without its
// time and severity, else the last line.
func complaint(output string) string {
	all := severity.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return lastLine(output)
	}
	return strings.TrimSpace(all[len(all)-1][2])
}

// passes reports whether the reason goes away by itself: a predecessor that was
// killed is still going.
func passes(line string) bool {
	return strings.Contains(line, "pre-existing shared memory block") ||
		strings.Contains(line, "postmaster.pid\" already exists") ||
		strings.Contains(line, ".lock\" already exists")
}

// explainExit says why the server ended at its start, and what to do.
func explainExit(line, dataDir string, a *account) error {
	who := "this user"
	if a != nil {
		who = "user " + a.name
	}
	for _, known := range []struct{ text, advice string }{
		{"No space left on device", "the disk that holds " + dataDir + " is full: make room"},
		{"Permission denied", who + " may not read or write all of " + dataDir + ": mend the permissions"},
		{"invalid permissions", "run \"chmod -R go-rwx " + filepath.Join(dataDir, "pg") + "\""},
		{"wrong ownership", "run \"chown -R\" for the user that starts Pharos on " + filepath.Join(dataDir, "pg")},
		{"Cannot allocate memory", "there is too little memory: PostgreSQL needs about 100 MB"},
		{"could not create shared memory", "there is too little shared memory: enlarge /dev/shm"},
		{"could not create semaphores", "the kernel's semaphores are used up: raise kernel.sem"},
		{"already exists", "another server uses this directory: stop it"},
	} {
		if strings.Contains(line, known.text) {
			return fmt.Errorf("%w: the database did not start: %s (%s)", monitor.ErrInvalid, known.advice, line)
		}
	}
	if line == "" {
		return errors.New("the database did not start and left no reason: see " + logPath(dataDir))
	}
	return fmt.Errorf("the database did not start: %s: see %s", line, logPath(dataDir))
}
