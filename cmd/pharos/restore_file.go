package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// backupFile is a backup that was read through and found whole.
type backupFile struct {
	manifest
	key  []byte
	dump *io.SectionReader
}

// errNoBackup: the file is no backup, or not all of one. The text says which.
type errNoBackup string

func (e errNoBackup) Error() string { return string(e) }

// readBackup reads all of f and compares the sums. Whatever is wrong is an
// errNoBackup, but for errors of reading itself.
func readBackup(ctx context.Context, f *os.File) (*backupFile, error) {
	r := &backupReader{ctx: ctx, f: f, tar: tar.NewReader(readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return f.Read(p)
	}))}
	b := &backupFile{}
	about, err := r.small(manifestEntry, maxManifest)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(about, &b.manifest); err != nil || b.Format != backupFormat {
		return nil, errNoBackup("it is no backup of Pharos's: its manifest is of something else")
	}
	if b.Version != backupVersion {
		return nil, errNoBackup(fmt.Sprintf("it has the format %d and this Pharos reads only %d: restore it with the Pharos that wrote it (%s)", b.Version, backupVersion, b.Pharos))
	}
	if b.key, err = r.small(keyEntry, maxBackupKey); err != nil {
		return nil, err
	}
	if b.dump, err = r.large(dumpEntry); err != nil {
		return nil, err
	}
	want := r.sums.String()
	got, err := r.small(sumsEntry, maxManifest)
	if err != nil {
		return nil, err
	}
	if string(got) != want {
		return nil, errNoBackup("it is damaged: what it holds is not what was written (SHA256SUMS)")
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return nil, errNoBackup("it is damaged: something follows its end")
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Two empty blocks end a tar file; the reader does without.
	if st.Size() < r.end+2*tarBlock {
		return nil, errNoBackup("it is not whole: its end is missing")
	}
	return b, nil
}

type backupReader struct {
	ctx  context.Context
	f    *os.File
	tar  *tar.Reader
	sums bytes.Buffer
	end  int64 // of the entry that was read last
}

// next finds the entry that must come now and returns where its content begins.
func (r *backupReader) next(name string) (at, size int64, err error) {
	h, err := r.tar.Next()
	switch {
	case r.ctx.Err() != nil:
		return 0, 0, context.Cause(r.ctx)
	case err != nil && name == manifestEntry:
		return 0, 0, errNoBackup("it is no backup of Pharos's")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, 0, errNoBackup("it is not whole: it ends before " + name)
	case err != nil:
		return 0, 0, errNoBackup("it is damaged before " + name)
	case h.Typeflag != tar.TypeReg || h.Name != name:
		if name == manifestEntry {
			return 0, 0, errNoBackup("it is no backup of Pharos's")
		}
		return 0, 0, errNoBackup(fmt.Sprintf("it is damaged: %s is missing", name))
	}
	// The tar reader takes whole blocks and never more.
	at, err = r.f.Seek(0, io.SeekCurrent)
	r.end = at + (h.Size+tarBlock-1)/tarBlock*tarBlock
	return at, h.Size, err
}

// content reads an entry into w and notes its sum.
func (r *backupReader) content(name string, w io.Writer) error {
	sum := sha256.New()
	_, err := io.Copy(io.MultiWriter(sum, w), r.tar)
	switch {
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errNoBackup("it is not whole: it ends in " + name)
	case err != nil:
		return err
	}
	fmt.Fprintf(&r.sums, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
	return nil
}

func (r *backupReader) small(name string, limit int64) ([]byte, error) {
	_, size, err := r.next(name)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, errNoBackup(fmt.Sprintf("it is damaged: its %s has %d bytes", name, size))
	}
	var b bytes.Buffer
	err = r.content(name, &b)
	return b.Bytes(), err
}

func (r *backupReader) large(name string) (*io.SectionReader, error) {
	at, size, err := r.next(name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(r.f, at, size), r.content(name, io.Discard)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
