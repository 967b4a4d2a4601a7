package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// How large the files may be that the configuration names, bytes. Nobody who
// writes them comes near; a wrong name may lead to anything.
const (
	maxConfigFile = 1 << 20
	maxRelayFile  = 64 << 20
	maxCAFile     = 16 << 20
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

func tooLarge(limit int64) error { return fmt.Errorf("it is larger than %d MB", limit>>20) }

// readRegular reads a whole file that openRegular opens, without the byte order
// mark that some editors put in front.
func readRegular(name string, limit int64) ([]byte, error) {
	f, err := openRegular(name, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit { // it grew, or the system did not know its size
		err = tooLarge(limit)
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), err
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
