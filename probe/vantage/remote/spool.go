package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/pharos-nostr/pharos/monitor"
)

// batchFile is the name of a batch: its number and how many observations it
// holds. Digits are enough for the names to sort.
const batchFile = "%020d-%d.batch"

// unfinished is the name of a batch that is being written. There is only one at
// a time; one that is found at the start was never finished.
const unfinished = "unfinished"

// maxSeq is the highest number of a batch that any core takes.
const maxSeq = math.MaxInt32

// spool keeps batches in a directory, one file each, in the order of their
// numbers. A file is written under another name, flushed, and renamed, so that a
// batch is either whole or not there, whenever the machine stops. Safe for
// concurrent use by one process; a lock keeps others out.
type spool struct {
	dir  string
	lock *os.File
	max  int64 // bytes of all batches
	log  *slog.Logger

	mu      sync.Mutex
	batches []*batch // ascending
	bytes   int64
	last    uint64 // highest number that was ever in it
	busy    *batch // being sent: not dropped meanwhile
	lost    losses
}

// batch is one file of the spool.
type batch struct {
	seq   uint64
	count int // observations
	size  int64
	// found: it was there at the start, so that an earlier process may have sent
	// it, or damaged it.
	found bool
	tried bool // sent before, or perhaps
	// unread counts the attempts at which it could not be read.
	unread int
	ended  chan struct{} // closed once an attempt to send it has ended, or it is gone
}

// losses are what the spool gave up.
type losses struct {
	dropped, droppedObservations uint64 // for want of room
	broken                       uint64 // half-written or damaged files
}

// openSpool opens the spool in dir, or makes one. It takes away what was not
// finished, and the oldest batches beyond limit bytes. The error says what to do.
func openSpool(dir string, limit int64, log *slog.Logger) (_ *spool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the spool: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the spool: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, fmt.Errorf("open the spool %s: %w: another process uses it; stop that, or choose another directory", dir, monitor.ErrConflict)
	case err != nil:
		return nil, fmt.Errorf("lock the spool %s: %w", dir, err)
	}
	s := &spool{dir: dir, lock: lock, max: limit, log: log}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	for _, f := range files {
		if err := s.find(f); err != nil {
			return nil, fmt.Errorf("read the spool: %w", err)
		}
	}
	slices.SortFunc(s.batches, func(a, b *batch) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	if n := len(s.batches); n > 0 {
		s.last = s.batches[n-1].seq
	}
	s.trim()
	return s, nil
}

// find takes over a file that was there at the start.
func (s *spool) find(f fs.DirEntry) error {
	name := f.Name()
	if name == unfinished {
		s.lost.broken++
		return os.Remove(filepath.Join(s.dir, name))
	}
	b := &batch{found: true, ended: make(chan struct{})}
	if _, err := fmt.Sscanf(name, batchFile, &b.seq, &b.count); err != nil || b.seq > maxSeq || s.name(b) != name || !f.Type().IsRegular() {
		return nil // not ours
	}
	info, err := f.Info()
	if err != nil {
		return err
	}
	b.size = info.Size()
	s.batches, s.bytes = append(s.batches, b), s.bytes+b.size
	return nil
}

func (s *spool) name(b *batch) string { return fmt.Sprintf(batchFile, b.seq, b.count) }

func (s *spool) path(b *batch) string { return filepath.Join(s.dir, s.name(b)) }

// add puts a batch behind the others; seq must be above theirs. When it returns
// without an error the batch is on the disk; with one, it is not.
// tried says that it was sent before.
func (s *spool) add(seq uint64, count int, body []byte, tried bool) (*batch, error) {
	b := &batch{seq: seq, count: count, size: int64(len(body)), tried: tried, ended: make(chan struct{})}
	temporary := filepath.Join(s.dir, unfinished)
	err := write(temporary, body)
	if errors.Is(err, fs.ErrNotExist) && os.Mkdir(s.dir, 0o700) == nil { // somebody took it away
		err = write(temporary, body)
	}
	if err == nil {
		err = os.Rename(temporary, s.path(b))
	}
	if err != nil {
		_ = os.Remove(temporary)
		return nil, fmt.Errorf("write to the spool: %w", err)
	}
	if err := syncDir(s.dir); err != nil {
		_ = os.Remove(s.path(b))
		return nil, fmt.Errorf("write to the spool: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches, s.bytes, s.last = append(s.batches, b), s.bytes+b.size, seq
	s.trim()
	return b, nil
}

// write writes a file that is on the disk when it returns.
func write(name string, body []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// trim drops the oldest batches until the others fit, but not the newest, nor
// the one that is being sent. Its caller holds mu.
func (s *spool) trim() {
	for i := 0; s.bytes > s.max && i < len(s.batches)-1; {
		b := s.batches[i]
		if b == s.busy {
			i++
			continue
		}
		s.lost.dropped++
		s.lost.droppedObservations += uint64(b.count)
		s.remove(b)
	}
}

// remove takes b out of the spool. Its caller holds mu.
func (s *spool) remove(b *batch) {
	i := slices.Index(s.batches, b)
	if i < 0 {
		return
	}
	s.batches = slices.Delete(s.batches, i, i+1)
	s.bytes -= b.size
	b.end()
	// Should it stay, or come back with the disk of a machine that lost its
	// power, the next start sends it again, and the core knows its number.
	if err := os.Remove(s.path(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("batch not taken out of the spool", "seq", b.seq, "error", err)
	}
}

// end says that an attempt at b is over. Its caller holds the spool's mu.
func (b *batch) end() {
	select {
	case <-b.ended:
	default:
		close(b.ended)
	}
}

// take returns the oldest batch for sending; nil = there is none. It stays until
// done or again.
func (s *spool) take() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.batches) == 0 {
		return nil
	}
	s.busy = s.batches[0]
	return s.busy
}

// again says that the attempt at b has failed: it is to be sent once more.
func (s *spool) again(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, b.tried = nil, true
	b.end()
}

// later says that b could not be read, and was not sent.
func (s *spool) later(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
	b.unread++
	b.end()
}

// done takes b out, for the core has it or never wants it. broken counts it as
// damaged.
func (s *spool) done(b *batch, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = nil
	if broken {
		s.lost.broken++
	}
	s.remove(b)
}

// size is what waits in the spool.
func (s *spool) size() (batches, observations int, bytes int64, lost losses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		observations += b.count
	}
	return len(s.batches), observations, s.bytes, s.lost
}

// waiting reports whether there is any batch.
func (s *spool) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.batches) > 0
}

// newest is the highest number that was ever in the spool; 0 = none.
func (s *spool) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// close lets go of the directory; what is in it stays.
func (s *spool) close() error {
	if err := s.lock.Close(); err != nil {
		return fmt.Errorf("close the spool: %w", err)
	}
	return nil
}
