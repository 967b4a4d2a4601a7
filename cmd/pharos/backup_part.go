package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// partSuffix marks a file that is being written.
const partSuffix = ".partial"

// partFile is a file of mode 0600 that gets its name when it is whole.
type partFile struct {
	*os.File
	to     string
	placed bool
}

// createPart begins to write the file to, beside it and hidden. What a process
// left behind that was killed, a secret perhaps, is removed.
func createPart(to string) (*partFile, error) {
	sweepParts(to)
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*"+partSuffix)
	if err != nil {
		return nil, err
	}
	p := &partFile{File: f, to: to}
	// sweepParts sees by it that we live.
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err := f.Chmod(0o600); err != nil { // an odd umask may have taken the owner's bits
		p.discard()
		return nil, err
	}
	return p, nil
}

// sweepParts removes the parts of the file to that nobody writes any more. One
// that stays does no harm.
func sweepParts(to string) {
	dir, prefix := filepath.Dir(to), "."+filepath.Base(to)+"."
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), prefix)
		if !ours || strings.TrimLeft(number, "0123456789") != partSuffix || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.Remove(name)
		}
		_ = f.Close()
	}
}

// place flushes the file to the disk and gives it its name, which another file
// only loses with replace; without it, that is fs.ErrExist. It is closed
// afterwards.
func (p *partFile) place(replace bool) error {
	if err := errors.Join(p.Sync(), p.Close()); err != nil {
		return err
	}
	if replace {
		if err := os.Rename(p.Name(), p.to); err != nil {
			return fmt.Errorf("put it in place: %w", err)
		}
		p.placed = true
		return syncDirectory(filepath.Dir(p.to))
	}
	// A link never replaces; where the file system has none, nobody else should
	// take the name within this moment.
	err := os.Link(p.Name(), p.to)
	switch {
	case err == nil:
		p.placed = true
		if err := os.Remove(p.Name()); err != nil {
			return err
		}
	case errors.Is(err, fs.ErrExist):
		return fs.ErrExist
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EMLINK):
		if _, err := os.Lstat(p.to); err == nil {
			return fs.ErrExist
		}
		if err := os.Rename(p.Name(), p.to); err != nil {
			return fmt.Errorf("put it in place: %w", err)
		}
		p.placed = true
	default:
		return fmt.Errorf("put it in place: %w", err)
	}
	return syncDirectory(filepath.Dir(p.to))
}

// discard removes what was not placed.
func (p *partFile) discard() {
	if p.placed {
		return
	}
	_ = p.Close()
	_ = os.Remove(p.Name())
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
