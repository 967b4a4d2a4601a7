package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// A backup is a tar file with these entries in this order:
//
//	manifest.json   what it is (manifest)
//	service.key     the key file as it was stored: an nsec, hex or ncryptsec
//	database.dump   of pg_dump, in its custom format
//	SHA256SUMS      of the others, as sha256sum -c takes them
//
// The sums stand last: a file without them is not whole.
const (
	manifestEntry = "manifest.json"
	keyEntry      = "service.key"
	dumpEntry     = "database.dump"
	sumsEntry     = "SHA256SUMS"
)

const (
	backupFormat  = "pharos-backup"
	backupVersion = 1

	maxManifest  = 64 << 10
	maxBackupKey = 4 << 10 // as much as a key file may have
	tarBlock     = 512
)

// manifest says what a backup holds. The figures are of the moment before the
// dump.
type manifest struct {
	Format      string    `json:"format"`
	Version     int       `json:"version"` // of the format
	Pharos      string    `json:"pharos"`  // version
	Time        time.Time `json:"time"`    // UTC
	Npub        string    `json:"npub,omitempty"`
	Pubkey      string    `json:"pubkey,omitempty"` // hex; of an encrypted key as the database knows it
	PostgreSQL  int       `json:"postgresql"`       // major version of the server
	Schema      int64     `json:"schema"`           // version of the database's schema
	Relays      int64     `json:"relays"`
	Transitions int64     `json:"transitions"`
}

// identity names whose the backup is.
func (m *manifest) identity() string {
	switch {
	case m.Npub != "":
		return m.Npub
	case m.Pubkey != "":
		return "public key " + m.Pubkey
	}
	return "an encrypted key"
}

// writeBackup writes a whole backup to f and returns its size. How long the
// dump becomes is known when it is written: its head is written last.
func writeBackup(f *os.File, m *manifest, key []byte, dump func(io.Writer) error) (size int64, err error) {
	about, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("write the manifest: %w", err)
	}
	w := &backupWriter{f: f, at: m.Time}
	if err := w.add(manifestEntry, append(about, '\n')); err != nil {
		return 0, err
	}
	if err := w.add(keyEntry, key); err != nil {
		return 0, err
	}
	if err := w.stream(dumpEntry, dump); err != nil {
		return 0, err
	}
	if err := w.add(sumsEntry, w.sums.Bytes()); err != nil {
		return 0, err
	}
	if err := w.write(make([]byte, 2*tarBlock)); err != nil { // the end of a tar file
		return 0, err
	}
	return w.size, nil
}

type backupWriter struct {
	f    *os.File
	at   time.Time
	size int64
	sums bytes.Buffer
}

func (w *backupWriter) add(name string, content []byte) error {
	return w.stream(name, func(to io.Writer) error {
		_, err := to.Write(content)
		return err
	})
}

func (w *backupWriter) stream(name string, fill func(io.Writer) error) error {
	head := w.size
	if err := w.write(make([]byte, tarBlock)); err != nil {
		return err
	}
	sum := sha256.New()
	body := w.size
	if err := fill(io.MultiWriter(sum, writerFunc(w.write))); err != nil {
		return err
	}
	length := w.size - body
	if odd := length % tarBlock; odd != 0 {
		if err := w.write(make([]byte, tarBlock-odd)); err != nil {
			return err
		}
	}
	block, err := tarHead(name, length, w.at)
	if err != nil {
		return err
	}
	if _, err := w.f.WriteAt(block, head); err != nil {
		return err
	}
	fmt.Fprintf(&w.sums, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
	return nil
}

func (w *backupWriter) write(p []byte) error {
	n, err := w.f.WriteAt(p, w.size)
	w.size += int64(n)
	return err
}

type writerFunc func(p []byte) error

func (f writerFunc) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// tarHead is one block for every size: GNU's format has no limit to it.
func tarHead(name string, size int64, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	err := tar.NewWriter(&b).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at, Format: tar.FormatGNU})
	if err != nil || b.Len() != tarBlock {
		return nil, fmt.Errorf("write the head of %s (%d bytes): %w", name, b.Len(), err)
	}
	return b.Bytes(), nil
}
