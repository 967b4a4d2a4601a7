package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// adminTokenBytes is how much randomness an admin token holds.
const adminTokenBytes = 32

// adminTokenFile is where a core keeps the token that its commands use.
func adminTokenFile(dataDir string) string { return filepath.Join(dataDir, "admin.token") }

// loadOrCreateAdminToken reads the admin token of a data directory, or makes
// one at the first start, in a file of mode 0600 that is flushed to the disk
// with its directory; created tells which. A file that is there is never
// replaced. The error carries exit status 3 and says what to do.
func loadOrCreateAdminToken(dataDir string) (token Secret, created bool, err error) {
	file := adminTokenFile(dataDir)
	token, err = readAdminToken(file)
	if errors.Is(err, fs.ErrNotExist) {
		token, err = createAdminToken(file)
		created = err == nil
	}
	if err != nil {
		return "", false, exitf(exitStart, "%s", tokenAdvice(file, err))
	}
	return token, created, nil
}

func createAdminToken(file string) (_ Secret, err error) {
	b := make([]byte, adminTokenBytes)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	token := Secret(base64.RawURLEncoding.EncodeToString(b))
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // which follows no link
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil { // half a token would keep the next start
			_ = f.Close()
			_ = os.Remove(file)
		}
	}()
	if err := f.Chmod(0o600); err != nil { // an odd umask may have taken the owner's bits
		return "", err
	}
	if _, err := f.WriteString(token.Reveal() + "\n"); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }()
	return token, dir.Sync()
}

// errTokenFile is an admin.token that is there but cannot be taken.
type errTokenFile string

func (e errTokenFile) Error() string { return string(e) }

// readAdminToken reads a token from a regular file, no link, that nobody but
// its owner may reach.
func readAdminToken(file string) (Secret, error) {
	st, err := os.Lstat(file) // a pipe must not even be opened
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() {
		return "", errTokenFile("is no regular file; remove it, and the next start makes a new one")
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if st, err = f.Stat(); err != nil {
		return "", err
	}
	if perm := st.Mode().Perm(); !st.Mode().IsRegular() || perm&0o077 != 0 {
		return "", errTokenFile(fmt.Sprintf("has the permissions %04o, so others can reach it; run: chmod 600 %s", perm, file))
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if raw, err := base64.RawURLEncoding.Strict().DecodeString(token); err != nil || len(raw) != adminTokenBytes {
		return "", errTokenFile("holds no token; remove it, and the next start makes a new one")
	}
	return Secret(token), nil
}

// tokenAdvice says what is wrong with the file of the admin token and what to
// do.
func tokenAdvice(file string, err error) string {
	var wrong errTokenFile
	switch {
	case errors.As(err, &wrong):
		return "the admin token's file " + file + " " + wrong.Error()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no %s; pharos serve makes it at its first start; is this its data directory? Name it with --data-dir", file)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s cannot be used, permission denied; run the command as the user that runs pharos serve", file)
	}
	return fmt.Sprintf("%s cannot be used: %s", file, reason(err))
}
