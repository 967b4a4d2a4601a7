package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// EncodeBatch writes b as a body to send: one gzip member with the header, one
// with the observations, each in its line. The observations' Vantage is not
// sent, it is the batch's. The error is monitor.ErrInvalid when b could not be
// decoded again, in particular by CheckObservation; nothing is written then.
func EncodeBatch(w io.Writer, b *monitor.Batch) error {
	h := newHeader(b)
	if err := h.check(); err != nil {
		return fmt.Errorf("encode batch %d: %w", b.Seq, err)
	}
	var head, lines bytes.Buffer
	if err := appendLine(&head, &h); err != nil {
		return fmt.Errorf("encode batch %d: %w", b.Seq, err)
	}
	for i := range b.Observations {
		if err := appendObservation(&lines, &b.Observations[i]); err != nil {
			return fmt.Errorf("encode batch %d, observation %d: %w", b.Seq, i+1, err)
		}
	}
	switch {
	case head.Len() > maxLine:
		return fmt.Errorf("encode batch %d: %w", b.Seq, invalid("its header is larger than %d KB", maxLine>>10))
	case head.Len()+lines.Len() > MaxPlain:
		return fmt.Errorf("encode batch %d: %w", b.Seq, tooLarge(MaxPlain, "decompressed"))
	}
	if err := compress(w, head.Bytes()); err != nil {
		return err
	}
	if lines.Len() == 0 {
		return nil
	}
	return compress(w, lines.Bytes())
}

// Restamp is body, a batch as EncodeBatch wrote it, with another time of
// sending: what waited on a disk must not look as if the clock that wrote it
// were late. The error is monitor.ErrInvalid when body does not begin with a
// header.
func Restamp(body []byte, at time.Time) ([]byte, error) {
	rest := bytes.NewReader(body)
	z, err := gzip.NewReader(rest) // which reads no further than it must: rest is an io.ByteReader
	if err != nil {
		return nil, invalid("it is not gzip")
	}
	z.Multistream(false)
	line, err := io.ReadAll(io.LimitReader(z, maxLine+1))
	switch {
	case err != nil:
		return nil, invalid("its gzip is damaged or cut off")
	case len(line) > maxLine:
		return nil, errLine
	}
	h, err := decodeHeader(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		return nil, err
	}
	h.SentAt = at.UTC()
	if err := h.check(); err != nil {
		return nil, err
	}
	var head, out bytes.Buffer
	if err := appendLine(&head, &h); err != nil {
		return nil, err
	}
	if err := compress(&out, head.Bytes()); err != nil {
		return nil, err
	}
	out.Write(body[len(body)-rest.Len():])
	return out.Bytes(), nil
}

// DecodeBatch reads a batch as it was sent, gzip and all, by the vantage of that
// name. It reads no more than the limits allow. The error is monitor.ErrInvalid
// and says where and what is wrong, in one sentence; when reading r fails it is
// that error.
func DecodeBatch(r io.Reader, vantage string) (*monitor.Batch, error) {
	l := newLines(r)
	defer l.close()
	b, err := decodeBatch(l, vantage)
	switch {
	case l.sent.err != nil:
		return nil, fmt.Errorf("read batch: %w", l.sent.err)
	case l.sent.n > MaxBody:
		return nil, fmt.Errorf("decode batch: %w", tooLarge(MaxBody, "as sent"))
	case err != nil:
		return nil, fmt.Errorf("decode batch: %w", err)
	}
	return b, nil
}

func decodeBatch(l *lines, vantage string) (*monitor.Batch, error) {
	line, err := l.next()
	if errors.Is(err, io.EOF) {
		return nil, invalid("it is empty")
	}
	if err != nil {
		return nil, err
	}
	h, err := decodeHeader(line)
	if err != nil {
		return nil, fmt.Errorf("%w (line 1)", err)
	}
	if h.Vantage != vantage {
		return nil, invalid("it is of the vantage %s, and was sent as %s", short(h.Vantage), short(vantage))
	}
	b := h.batch()
	b.Observations = make([]monitor.Observation, 0, h.Count)
	for n := range h.Count {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil, invalid("it is half-written: %d observations are announced, %d are there", h.Count, n)
		}
		if err != nil {
			return nil, err
		}
		o, err := decodeObservation(line, vantage)
		if err != nil {
			return nil, fmt.Errorf("%w (line %d)", err, n+2)
		}
		b.Observations = append(b.Observations, o)
	}
	switch _, err := l.next(); {
	case err == nil:
		return nil, invalid("there is more than the %d observations that are announced", h.Count)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return b, nil
}

func decodeHeader(line []byte) (header, error) {
	var v struct{ Version int }
	if err := unmarshal(line, &v, false); err != nil {
		return header{}, err
	}
	h := header{Version: v.Version}
	if checkVersion(v.Version) == nil { // of another, only the number can be read
		if err := unmarshal(line, &h, true); err != nil {
			return header{}, err
		}
	}
	return h, h.check()
}

var errLine = invalid("a line is longer than %d KB", maxLine>>10)

func tooLarge(limit int64, how string) error {
	return invalid("it is larger than %d MB %s", limit>>20, how)
}

// lines reads a batch line by line within all limits.
type lines struct {
	sent  *counted // as it comes in
	plain *counted // decompressed
	zip   *gzip.Reader
	buf   *bufio.Reader
	line  []byte
}

func newLines(r io.Reader) *lines {
	return &lines{sent: &counted{r: r, limit: MaxBody}}
}

func (l *lines) close() {
	if l.zip != nil {
		_ = l.zip.Close()
	}
}

// next is the next line, without its end and valid until the next call; io.EOF
// after the last one.
func (l *lines) next() ([]byte, error) {
	if l.zip == nil {
		z, err := gzip.NewReader(bufio.NewReader(l.sent))
		if err != nil {
			return nil, l.why(err)
		}
		l.zip = z
		l.plain = &counted{r: z, limit: MaxPlain}
		l.buf = bufio.NewReaderSize(l.plain, 64<<10)
	}
	l.line = l.line[:0]
	for {
		part, err := l.buf.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case len(l.line) > maxLine:
			return nil, errLine
		case err == nil:
			return l.line[:len(l.line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(l.line) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, invalid("its last line has no end")
		default:
			return nil, l.why(err)
		}
	}
}

// why is an error of reading in words.
func (l *lines) why(err error) error {
	switch {
	case l.plain != nil && l.plain.n > MaxPlain:
		return tooLarge(MaxPlain, "decompressed")
	case errors.Is(err, gzip.ErrHeader) && l.zip == nil:
		return invalid("it is not gzip")
	case errors.Is(err, gzip.ErrHeader):
		return invalid("something follows its end")
	case errors.Is(err, io.EOF) && l.zip == nil && l.sent.n == 0:
		return io.EOF
	case (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && l.zip == nil: // shorter than a header
		return invalid("it is not gzip")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("its gzip is cut off")
	}
	return invalid("its gzip is damaged")
}

// counted counts what it reads, ends with an error beyond the limit, and keeps
// the error of the reader below.
type counted struct {
	r     io.Reader
	limit int64
	n     int64
	err   error
}

var errLimit = errors.New("beyond the limit")

func (c *counted) Read(p []byte) (int, error) {
	if c.n > c.limit {
		return 0, errLimit
	}
	if most := c.limit + 1 - c.n; int64(len(p)) > most {
		p = p[:most]
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// zips are gzip writers, which are large.
var zips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress writes b as one gzip member.
func compress(w io.Writer, b []byte) error {
	z := zips.Get().(*gzip.Writer)
	defer zips.Put(z)
	z.Reset(w)
	_, err := z.Write(b)
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return nil
}
