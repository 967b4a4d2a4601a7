package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/postgres"
)

// keyRestore puts a key file in place. Nothing of what is there is changed
// before place.
type keyRestore struct {
	file  string
	part  *partFile // nil: the same key is there
	moved string    // where another key went
}

// prepareKey writes the key beside its place, and looks whether it is one:
// pubkey is whose it must be, "" = not known.
func prepareKey(file string, text []byte, pubkey string) (_ *keyRestore, err error) {
	part, err := createPart(file)
	if err != nil {
		return nil, keyError(file, err)
	}
	k := &keyRestore{file: file, part: part}
	defer func() {
		if err != nil {
			k.discard()
		}
	}()
	if _, err := part.Write(text); err != nil {
		return nil, keyError(file, err)
	}
	if err := part.Sync(); err != nil {
		return nil, keyError(file, err)
	}
	key, err := nostr.KeyFile{Path: part.Name(), Password: noPassword}.Load()
	switch {
	case errors.Is(err, errNoPassword): // encrypted, and whole
	case err != nil:
		return nil, exitf(exitStart, "the backup holds no usable service key: nothing was restored")
	case pubkey != "" && key.Pubkey() != pubkey:
		return nil, exitf(exitStart, "the backup's service key is not the one that its manifest names: nothing was restored")
	}
	if there, err := readRegular(file, maxBackupKey); err == nil && string(there) == string(text) {
		k.discard()
		k.part = nil
	}
	return k, nil
}

// place moves another key aside and gives the new one its name. old is where
// the other went, "" when there was none. On an error all is as it was.
func (k *keyRestore) place(now time.Time) (old string, err error) {
	if k.part == nil {
		return "", nil
	}
	owner := ownerOfFile(k.file)
	if _, err := os.Lstat(k.file); err == nil {
		if old, err = postgres.AsideName(k.file, now); err != nil {
			return "", err
		}
		if err := os.Rename(k.file, old); err != nil {
			return "", exitf(exitStart, "the key file %s cannot be moved aside: %s", k.file, reason(err))
		}
		k.moved = old
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", keyError(k.file, err)
	}
	if owner >= 0 && os.Geteuid() == 0 {
		err = k.part.Chown(owner, -1)
	}
	if err == nil {
		err = k.part.place(false)
	}
	if err != nil {
		err = fmt.Errorf("put the service key %s in place: %w", k.file, err)
		if k.moved != "" {
			err = errors.Join(err, os.Rename(k.moved, k.file))
		}
		return "", err
	}
	return old, nil
}

func (k *keyRestore) discard() {
	if k.part != nil {
		k.part.discard()
	}
}

// ownerOfFile is the user whose file is, else whose its directory is; -1 when
// that cannot be told.
func ownerOfFile(file string) int {
	for _, name := range []string{file, filepath.Dir(file)} {
		if st, err := os.Stat(name); err == nil {
			if sys, ok := st.Sys().(*syscall.Stat_t); ok {
				return int(sys.Uid)
			}
		}
	}
	return -1
}
