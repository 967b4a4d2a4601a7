package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// How large the files may be that the configuration names, bytes. Nobody who
// writes them comes near; a wrong name may lead to anything.
const (
	maxConfigFile = 1 << 20
	maxRelayFile  = 64 << 20
	maxCAFile     = 16 << 20
	maxGeoFile    = 1 << 30
)

// openRegular opens a file for reading, and nothing else: a pipe would keep us
// until somebody writes, a device would never end.
func openRegular(name string, limit int64) (*os.File, error) {
	st, err := os.Stat(name) // some must not even be opened
	if err == nil {
		err = checkRegular(st, limit)
	}
	if err != nil {
		return nil, err
	}
	// Should it be another file by now, opening must not wait.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil {
		err = checkRegular(st, limit)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func checkRegular(st fs.FileInfo, limit int64) error {
	switch {
	case st.IsDir():
		return errors.New("it is a directory")
	case !st.Mode().IsRegular():
		return errors.New("it is no regular file")
	case st.Size() > limit:
		return tooLarge(limit)
	}
	return nil
}

func tooLarge(limit int64) error {
	if limit < 1<<20 {
		return fmt.Errorf("it is larger than %d KB", limit>>10)
	}
	return fmt.Errorf("it is larger than %d MB", limit>>20)
}

// readRegular reads a whole file that openRegular opens, without the byte order
// mark that some editors put in front.
func readRegular(name string, limit int64) ([]byte, error) { return readSecret(name, limit, 0) }

// errSecretFile says of a file of secrets why it cannot be taken, and what to do;
// its name goes before that.
type errSecretFile string

func (e errSecretFile) Error() string { return string(e) }

// readSecret is readRegular for a file that must have none of the permissions in
// others, else it is an errSecretFile.
func readSecret(name string, limit int64, others fs.FileMode) ([]byte, error) {
	f, err := openRegular(name, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if perm := st.Mode().Perm(); perm&others != 0 {
		return nil, errSecretFile(fmt.Sprintf("has the permissions %04o, so others can reach it; run: chmod 600 %s", perm, name))
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit { // it grew, or the system did not know its size
		err = tooLarge(limit)
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), err
}

// checkWritableDir wants a directory that files can be made in, or a name that
// such a directory can be made at. It makes nothing.
func checkWritableDir(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			continue // it will be made
		case errors.Is(err, syscall.ENOTDIR) && at != filepath.Dir(at):
			continue // the file that is in the way is further up
		case err != nil:
			return fmt.Errorf("%q cannot be used: %s", dir, reason(err))
		case !st.IsDir():
			return fmt.Errorf("%q cannot be used: %s is no directory", dir, at)
		}
		if err := syscall.Access(at, 0x3); err != nil { // W_OK and X_OK
			return fmt.Errorf("%q cannot be used: in %s nothing can be written (%s)", dir, at, reason(err))
		}
		return nil
	}
}

// maxPasswordFile bounds a file that holds one password, bytes.
const maxPasswordFile = 4096

// readPassword reads a file that holds one password in one line, and that
// nobody but its owner may reach; provided files, which a service manager put
// there, may be readable by a group. The error begins with the quoted name.
func readPassword(name string, provided bool) (Secret, error) {
	others := fs.FileMode(0o077)
	if provided {
		others = 0o037
	}
	b, err := readSecret(name, maxPasswordFile, others)
	var unfit errSecretFile
	switch {
	case errors.As(err, &unfit):
		return "", fmt.Errorf("%q %w", name, err)
	case err != nil:
		return "", fmt.Errorf("%q cannot be read: %s", name, reason(err))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case text == "":
		return "", fmt.Errorf("%q is empty: write the password in it, in one line", name)
	case strings.ContainsAny(text, "\r\n"):
		return "", fmt.Errorf("%q has more than one line: write the password alone in it", name)
	case !utf8.ValidString(text):
		return "", fmt.Errorf("%q is not UTF-8", name)
	}
	return Secret(text), nil
}

// limitedReader fails where io.LimitReader would pretend that the end is there.
type limitedReader struct {
	r     io.Reader
	limit int64
	read  int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.read += int64(n); l.read > l.limit {
		return 0, tooLarge(l.limit)
	}
	return n, err
}

// reason is an error of the file system in words, without the path that the
// caller names already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only"
	}
	return err.Error()
}
