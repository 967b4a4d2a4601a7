package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// backupJob writes backups of one data directory.
type backupJob struct {
	cfg     *Config
	dir     string
	environ []string
	log     *slog.Logger
}

// write makes the backup file to, which an existing file is never replaced by
// without force. It is written beside and put in place whole, or not at all.
func (b *backupJob) write(ctx context.Context, to string, force bool) (_ *manifest, size int64, err error) {
	if err := checkBackupTarget(to, force); err != nil {
		return nil, 0, err
	}
	source, release, err := b.openSource(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	key, m, err := b.readKey()
	if err != nil {
		return nil, 0, err
	}
	content, err := postgres.Describe(ctx, source)
	if err != nil {
		return nil, 0, causeOf(ctx, err)
	}
	b.identify(m, content.Pubkeys)
	m.PostgreSQL, m.Schema, m.Relays, m.Transitions = content.Server, content.Schema, content.Relays, content.Transitions

	part, err := createPart(to)
	if err != nil {
		return nil, 0, writeError(to, err)
	}
	defer part.discard()
	if size, err = writeBackup(part.File, m, key, func(w io.Writer) error { return postgres.Dump(ctx, source, content.Server, w) }); err != nil {
		return nil, 0, writeError(to, err)
	}
	if err := part.place(force); err != nil {
		return nil, 0, writeError(to, err)
	}
	return m, size, nil
}

// causeOf is why ctx ended, when it did, else err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// readKey returns the key file as it is stored, and a manifest that names whose
// key it is, as far as that can be told without a password.
func (b *backupJob) readKey() ([]byte, *manifest, error) {
	file, provided := b.cfg.keyPlace(b.dir, b.environ)
	key, err := nostr.KeyFile{Path: file, Provided: provided, Password: b.passwordOr()}.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, exitf(exitStart, "there is no service key %s, so a backup would not be whole: name the right file in key.file", file)
	case err != nil && !errors.Is(err, errNoPassword):
		return nil, nil, keyError(file, err)
	}
	text, err := readRegular(file, maxBackupKey)
	if err != nil {
		return nil, nil, exitf(exitStart, "the key file %s cannot be read: %s", file, reason(err))
	}
	m := &manifest{Format: backupFormat, Version: backupVersion, Pharos: versionText(), Time: time.Now().UTC().Truncate(time.Second)}
	m.Npub, m.Pubkey = key.Npub(), key.Pubkey()
	return text, m, nil
}

func (b *backupJob) passwordOr() nostr.Password {
	if p := b.cfg.keyPassword(b.environ); p != nil {
		return p
	}
	return noPassword
}

// identify compares the key with the database's reports, which also tell whose
// an encrypted key is.
func (b *backupJob) identify(m *manifest, pubkeys []string) {
	switch {
	case m.Pubkey == "" && len(pubkeys) == 1:
		m.Pubkey = pubkeys[0]
	case m.Pubkey != "" && len(pubkeys) > 0 && !slices.Contains(pubkeys, m.Pubkey):
		b.log.Warn("the service key is not the one that the database's reports are signed with; the backup holds both as they are", "npub", m.Npub)
	}
}

func isNotFound(err error) bool { return errors.Is(err, monitor.ErrNotFound) }

// hasCluster tells whether a private cluster was made in dir. An error: that may
// not be known.
func hasCluster(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "pg", "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// inside tells whether file would be in dir, or below.
func inside(file, dir string) bool {
	real := func(p string) string {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		if r, err := filepath.EvalSymlinks(p); err == nil {
			return r
		}
		return p
	}
	rel, err := filepath.Rel(real(dir), filepath.Join(real(filepath.Dir(file)), filepath.Base(file)))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// checkBackupTarget refuses before any work what writing would refuse after it.
func checkBackupTarget(to string, force bool) error {
	if to == "-" {
		return exitf(exitUsage, "a backup is written to a file, which is put in place when it is whole, and not to the standard output: name one")
	}
	st, err := os.Lstat(to)
	switch {
	case err == nil && st.IsDir():
		return exitf(exitStart, "%s is a directory: name a file in it", to)
	case err == nil && !force:
		return errBackupThere(to)
	case err == nil && !st.Mode().IsRegular():
		return exitf(exitStart, "%s is no regular file and is not replaced: name another", to)
	}
	return nil
}

func errBackupThere(to string) error {
	return exitf(exitStart, "%s is there already and is not replaced: choose another name, move it away, or add --force", to)
}

// writeError says why to could not be written.
func writeError(to string, err error) error {
	var e *exitError
	switch {
	case errors.As(err, &e), errors.Is(err, errInterrupted):
		return err
	case errors.Is(err, fs.ErrExist): // it came meanwhile
		return errBackupThere(to)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return exitf(exitStart, "the disk that holds %s is full, and nothing of the backup is kept: make room, or name a file elsewhere", filepath.Dir(to))
	case errors.Is(err, syscall.EFBIG):
		return exitf(exitStart, "the backup is larger than a file in %s may be, and nothing of it is kept: name a file elsewhere", filepath.Dir(to))
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if errors.Is(err, fs.ErrNotExist) {
			return exitf(exitStart, "the backup %s cannot be made: there is no directory %s; make it, or choose another place", to, filepath.Dir(to))
		}
		return exitf(exitStart, "the backup %s cannot be written: %s", to, reason(err))
	}
	return err
}
