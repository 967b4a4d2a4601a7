package geo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
)

// kind is what a file is meant to tell.
type kind int

const (
	cityFile kind = iota
	asnFile
	numFiles = 2
)

const (
	// maxFile bounds what is read into memory, bytes. The largest free databases
	// have some 150 MB.
	maxFile = 1 << 30
	// maxSample is how many networks of a file are looked at for what it tells,
	// and sampleTime for how long, should each be a monster.
	maxSample  = 1 << 16
	sampleTime = 3 * time.Second
)

// file is one database on disk.
type file struct {
	key, path string
	// seen is how the file was when it was last read, nil = never; problem is
	// why it was of no use then.
	seen    fs.FileInfo
	problem error
}

// read returns what the file holds when it is another one than last time; nil
// when it is the same, or of no use.
func (f *file) read(k kind) (*maxminddb.Reader, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		f.seen = nil
		return nil, f.wrong(plain(err))
	}
	if f.seen != nil && same(f.seen, info) {
		return nil, f.problem
	}
	data, info, err := load(f.path)
	if err != nil {
		f.seen = nil // it may be mended without looking otherwise
		return nil, f.wrong(plain(err))
	}
	r, err := decode(data, k)
	f.seen, f.problem = info, nil
	if err != nil {
		f.problem = f.wrong(err)
		return nil, f.problem
	}
	return r, nil
}

func (f *file) wrong(err error) error { return fmt.Errorf("%s %s: %w", f.key, f.path, err) }

// plain leaves the path out of an error: f.wrong names it.
func plain(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// same reports whether two looks at a path found one file, not written since.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// load reads a whole file, and says as of when.
func load(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	before, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !before.Mode().IsRegular():
		return nil, nil, errors.New("it is no regular file")
	case before.Size() > maxFile:
		return nil, nil, fmt.Errorf("it is larger than %d MB, which is the most that is held in memory", maxFile>>20)
	}
	data := make([]byte, before.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = errBeingWritten
		}
		return nil, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !same(before, after) {
		return nil, nil, errBeingWritten
	}
	return data, after, nil
}

var errBeingWritten = errors.New("it is being written just now; it is read when it is whole")

// packed are the first bytes of what databases are downloaded as.
var packed = map[string]string{"\x1f\x8b": "gzip", "PK\x03\x04": "zip", "\x28\xb5\x2f\xfd": "zstd", "\xfd7zXZ": "xz"}

// decode opens a database, and checks that it tells what it is there for.
func decode(data []byte, k kind) (*maxminddb.Reader, error) {
	r, err := maxminddb.OpenBytes(data)
	if err != nil {
		for magic, name := range packed {
			if bytes.HasPrefix(data, []byte(magic)) {
				return nil, fmt.Errorf("it is packed (%s); unpack it and name the .mmdb file", name)
			}
		}
		return nil, errors.New("it is no .mmdb database, or not all of one")
	}
	countries, systems, err := tells(r, k)
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	what := fmt.Sprintf("its type is %q", printable(r.Metadata.DatabaseType))
	switch {
	case !countries && !systems:
		return nil, fmt.Errorf("it tells neither countries nor autonomous systems; %s", what)
	case k == cityFile && !countries:
		return nil, fmt.Errorf("it tells autonomous systems and no countries: set it as geo.asn_db; %s", what)
	case k == asnFile && !systems:
		return nil, fmt.Errorf("it tells countries and no autonomous systems: set it as geo.city_db; %s", what)
	}
	return r, nil
}

// tells looks at records of a database until it has seen what k wants, or
// enough of them. The error is of one that cannot be read.
func tells(r *maxminddb.Reader, k kind) (countries, systems bool, err error) {
	left, until := maxSample, time.Now().Add(sampleTime)
	seen := map[uintptr]bool{}
	// Empty networks too: each must count, or a tree without any record could
	// keep us for ever.
	for result := range r.Networks(maxminddb.IncludeNetworksWithoutData()) {
		if left--; left < 0 || result.Err() != nil || time.Now().After(until) {
			return countries, systems, result.Err()
		}
		if !result.Found() || seen[result.Offset()] {
			continue
		}
		seen[result.Offset()] = true
		var whole any
		if err := result.Decode(&whole); err != nil {
			return countries, systems, err
		}
		rec := record{result}
		countries = countries || rec.country() != ""
		systems = systems || rec.number() != 0
		if k == cityFile && countries || k == asnFile && systems {
			break
		}
	}
	return countries, systems, nil
}
