package nostr

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxKeyFile bounds how much of a key file is read, bytes; an nsec has 63, an
// ncryptsec 162.
const maxKeyFile = 4096

// KeyFile is a file that holds a secret key: one nsec, ncryptsec or 64 hex
// digits, a trailing newline is fine.
type KeyFile struct {
	Path string
	// Password is asked by Load when the file holds an ncryptsec, and by Create,
	// which then writes one; nil = there is none.
	Password Password
	// Provided files were put there by a service manager
	// ($CREDENTIALS_DIRECTORY), whose permissions may let a group read.
	Provided bool
}

// LoadKey reads a key file that is not encrypted; see KeyFile.Load.
func LoadKey(file string) (Key, error) { return KeyFile{Path: file}.Load() }

// CreateKey makes a key and writes it as an nsec; see KeyFile.Create.
func CreateKey(file string) (Key, error) { return KeyFile{Path: file}.Create() }

// Load reads the key. Nobody but the owner may be able to read or write the
// file. A missing file is fs.ErrNotExist; anything wrong with an existing one is
// an ErrBadKey that names the file.
func (f KeyFile) Load() (Key, error) {
	b, err := f.read()
	if err != nil {
		return Key{}, err
	}
	k, err := parseKey(string(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))), f.Password)
	if err != nil {
		if bytes.Contains(bytes.ToLower(b), []byte(encryptedPrefix)) && !errors.Is(err, errDamagedEncrypted) {
			return Key{}, fmt.Errorf("key file %s: %w", f.Path, err) // it is a key, and must not be thrown away
		}
		return Key{}, fmt.Errorf("key file %s: %w; %s", f.Path, err, restore)
	}
	return k, nil
}

func (f KeyFile) read() ([]byte, error) {
	// A pipe would keep us until somebody writes, so it is not even opened; and
	// should it be another file by then, opening does not wait.
	st, err := os.Stat(f.Path)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, notRegular(f.Path)
	}
	open, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	defer func() { _ = open.Close() }()
	if st, err = open.Stat(); err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, notRegular(f.Path)
	}
	others := fs.FileMode(0o077)
	if f.Provided {
		others = 0o037 // the group may read
	}
	if perm := st.Mode().Perm(); perm&others != 0 {
		return nil, fmt.Errorf("key file %s: %w: its permissions are %04o, so others can reach it; run: chmod 600 %s", f.Path, ErrBadKey, perm, f.Path)
	}
	b, err := io.ReadAll(io.LimitReader(open, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", f.Path, err)
	}
	if len(b) > maxKeyFile {
		return nil, fmt.Errorf("key file %s: %w: it is larger than %d bytes; %s", f.Path, ErrBadKey, maxKeyFile, restore)
	}
	return b, nil
}

// restore is what to do about a file that holds no key.
const restore = "restore your copy of it, or move it away and let Pharos make a new key, which is a new identity"

func notRegular(file string) error {
	return fmt.Errorf("key file %s: %w: it is not a regular file; move it away, or name another file", file, ErrBadKey)
}

// Create makes a key and writes it to a new file of mode 0600, as an ncryptsec
// where there is a password and as an nsec else, flushed to the disk with its
// directory before it returns. It never replaces a file: an existing one is
// fs.ErrExist.
func (f KeyFile) Create() (_ Key, err error) {
	k, err := NewKey()
	if err != nil {
		return Key{}, err
	}
	// The password may be long in coming: no file waits for it.
	text, err := k.text(f.Password)
	if err != nil {
		return Key{}, err
	}
	file, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Key{}, fmt.Errorf("create key file: %w", err)
	}
	defer func() {
		if err != nil { // half a key is worse than none: the next start would refuse it
			_ = file.Close()
			_ = os.Remove(f.Path)
		}
	}()
	if err := file.Chmod(0o600); err != nil { // an odd umask may have taken the owner's bits
		return Key{}, fmt.Errorf("create key file: %w", err)
	}
	if _, err := file.WriteString(text + "\n"); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := file.Sync(); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := file.Close(); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	if err := syncDir(filepath.Dir(f.Path)); err != nil {
		return Key{}, fmt.Errorf("write key file: %w", err)
	}
	return k, nil
}

// text is what a file holds of the key.
func (k Key) text(password Password) (string, error) {
	if password == nil {
		return k.nsec()
	}
	secret, err := password()
	if err != nil {
		return "", fmt.Errorf("%w: it cannot be encrypted: %w", ErrBadKey, err)
	}
	return k.encrypted(secret)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
