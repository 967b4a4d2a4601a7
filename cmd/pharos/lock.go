package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// makeDataDir makes the data directory. Root's may be entered by others,
// because PostgreSQL runs as a user of its own; what is in it is closed.
func makeDataDir(dir string) error {
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return exitf(exitStart, "the data directory %s cannot be made: %s; choose another with --data-dir", dir, reason(err))
	}
	return nil
}

const lockName = "pharos.lock"

// dirLock keeps a second process out of a data directory. The kernel lets go
// of it when the process ends, however it ends.
type dirLock struct{ f *os.File }

// lockDataDir takes the lock of dir, or says who has it.
func lockDataDir(dir string) (*dirLock, error) {
	name := filepath.Join(dir, lockName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, exitf(exitStart, "the data directory %s cannot be used: %s; mend that, or choose another with --data-dir", dir, reason(err))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := "another process"
		if pid, _ := readLock(f); pid > 0 {
			holder = fmt.Sprintf("process %d", pid)
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, exitf(exitStart, "%s uses the data directory %s already: stop it, or choose another with --data-dir", holder, dir)
		}
		return nil, exitf(exitStart, "the data directory %s cannot be locked: %v; choose one on another file system with --data-dir", dir, err)
	}
	l := &dirLock{f}
	l.announce("")
	return l, nil
}

// announce writes who has the lock, and the address where it answers, for the
// message above and for commands, which can do without.
func (l *dirLock) announce(address string) {
	_ = l.f.Truncate(0)
	_, _ = l.f.WriteAt(fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), address), 0)
}

func (l *dirLock) release() error {
	_ = l.f.Truncate(0) // nobody has it
	return l.f.Close()
}

// readLock reads what announce wrote; 0 and "" for what is not there.
func readLock(r io.Reader) (pid int, address string) {
	b, _ := io.ReadAll(io.LimitReader(r, 1024)) // half of it is as good as none
	first, rest, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 0 {
		return 0, ""
	}
	return pid, strings.TrimSpace(rest)
}

// answersAt is where the process that uses the data directory dir listens, ""
// when there is none or that cannot be told.
func answersAt(dir string) string {
	f, err := openRegular(filepath.Join(dir, lockName), 1024)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	pid, address := readLock(f)
	if pid == 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) { // it was killed
		return ""
	}
	return address
}
