package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// dirLock keeps a second process out of a data directory. The kernel lets go
// of it when the process ends, however it ends.
type dirLock struct{ f *os.File }

// lockDataDir takes the lock of dir, or says who has it.
func lockDataDir(dir string) (*dirLock, error) {
	name := filepath.Join(dir, "pharos.lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, exitf(exitStart, "the data directory %s cannot be used: %s; mend that, or choose another with --data-dir", dir, reason(err))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := "another process"
		b := make([]byte, 20)
		if n, _ := f.Read(b); n > 0 {
			holder = "process " + strings.TrimSpace(string(b[:n]))
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, exitf(exitStart, "%s uses the data directory %s already: stop it, or choose another with --data-dir", holder, dir)
		}
		return nil, exitf(exitStart, "the data directory %s cannot be locked: %v; choose one on another file system with --data-dir", dir, err)
	}
	// The number only serves the message above.
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return &dirLock{f}, nil
}

func (l *dirLock) release() error { return l.f.Close() }
