package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// encoding is a content coding that bodies are kept in.
type encoding uint8

// The codings in the order in which we prefer them when a client does not
// mind: zstd is the smaller and the cheaper one.
const (
	zstdCoding encoding = iota
	gzipCoding
	identity
	numEncodings = int(identity) + 1
)

// encodingNames holds the word of each coding as in Content-Encoding.
var encodingNames = [numEncodings]string{"zstd", "gzip", "identity"}

// negotiate picks the coding that Accept-Encoding likes best (RFC 9110
// 12.5.3). Identity is what is left when nothing suits.
func negotiate(header []string) encoding {
	const unset = -1
	q := [numEncodings]int{unset, unset, unset}
	star := unset
	for _, line := range header {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			weight := qvalue(params)
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "zstd"):
				q[zstdCoding] = weight
			case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
				q[gzipCoding] = weight
			case strings.EqualFold(name, "identity"):
				q[identity] = weight
			case name == "*":
				star = weight
			}
		}
	}
	best, most := identity, 0
	for e, weight := range q {
		if weight == unset {
			weight = max(star, 0)
		}
		if weight > most {
			best, most = encoding(e), weight
		}
	}
	return best
}

// qvalue reads the weight of an item in thousandths; a malformed one counts
// as not wanted.
func qvalue(params string) int {
	for p := range strings.SplitSeq(params, ";") {
		k, v, ok := strings.Cut(strings.TrimSpace(p), "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(k), "q") {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return 0
		}
		return int(f * 1000)
	}
	return 1000
}

// matches reports whether If-None-Match names tag, by weak comparison (RFC
// 9110 13.1.2).
func matches(header []string, tag string) bool {
	for _, line := range header {
		for line = strings.TrimLeft(line, " \t,"); line != ""; line = strings.TrimLeft(line, " \t,") {
			if line[0] == '*' {
				return true
			}
			line = strings.TrimPrefix(line, "W/")
			if line == "" || line[0] != '"' { // no entity tag: skip the item
				_, line, _ = strings.Cut(line, ",")
				continue
			}
			end := strings.IndexByte(line[1:], '"')
			if end < 0 {
				break
			}
			if line[:end+2] == tag {
				return true
			}
			line = line[end+2:]
		}
	}
	return false
}

// body is one representation of something immutable. It is encoded, and
// compressed in each coding, when first asked for, once; concurrent readers
// wait for that one flight.
type body struct {
	contentType string
	name        string
	hashed      bool // the ETags wait for the content
	encode      func() (page, error)
	// kept, where set, is told how many bytes each new variant holds.
	kept     func(bytes int)
	variants [numEncodings]variant

	tags [numEncodings]string // ETags, quoted; of a hashed body once it is encoded
	next string               // cursor of the page after this one, once it is encoded
}

// page is the content of a body, with where it goes on.
type page struct {
	data []byte
	next string // cursor of the next page, "" = this is the last
}

type variant struct {
	once   sync.Once
	data   []byte
	length string
	err    error
}

// newBody makes a body; name must differ from that of every other content
// that the same URL may answer with.
func newBody(name, contentType string, encode func() (page, error)) *body {
	b := &body{contentType: contentType, name: name, encode: encode}
	b.setTags(name)
	return b
}

// newHashed makes a body whose ETag is of its content, so that it outlives a
// generation that changed nothing in it; name need only tell formats apart.
func newHashed(name, contentType string, encode func() (page, error)) *body {
	return &body{contentType: contentType, name: name, encode: encode, hashed: true}
}

func (b *body) setTags(name string) {
	for e := range b.tags {
		b.tags[e] = `"` + name + "-" + encodingNames[e] + `"`
	}
	b.tags[identity] = `"` + name + `"`
}

// tag returns the ETag of a coding, quoted.
func (b *body) tag(e encoding) (string, error) {
	if b.hashed {
		if plain := b.variant(identity); plain.err != nil {
			return "", plain.err
		}
	}
	return b.tags[e], nil
}

func (b *body) variant(e encoding) *variant {
	v := &b.variants[e]
	v.once.Do(func() {
		v.err = errors.New("encoding panicked") // if it does, nobody is given an empty body
		if e == identity {
			var p page
			p, v.err = b.encode()
			v.data, b.next = p.data, p.next
			if b.hashed {
				sum := sha256.Sum256(v.data)
				b.setTags(b.name + "." + hex.EncodeToString(sum[:12]))
			}
		} else if plain := b.variant(identity); plain.err != nil {
			v.err = plain.err
		} else {
			v.data, v.err = compress(e, plain.data)
		}
		v.length = strconv.Itoa(len(v.data))
		if b.kept != nil {
			b.kept(len(v.data))
		}
	})
	return v
}

// gzipLevel takes some 8 ms for the list of 3 000 relays, once per generation;
// the last tenth that a higher one saves would cost three times that.
const gzipLevel = 8

func compress(e encoding, data []byte) ([]byte, error) {
	if e == zstdCoding {
		// One encoder per body costs some memory for the moment and leaves no
		// goroutine behind.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
		if err != nil {
			return nil, fmt.Errorf("make a zstd encoder: %w", err)
		}
		return enc.EncodeAll(data, nil), nil
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzipLevel)
	if err != nil {
		return nil, fmt.Errorf("make a gzip encoder: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("gzip a body: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("gzip a body: %w", err)
	}
	return out.Bytes(), nil
}

// vary names what a list's answer depends on. Origin is there because the
// CORS header is only sent to those who have one.
const vary = "Accept, Accept-Encoding, Origin"

// serveBody answers with b in the coding that the request prefers, or 304
// where the client has it already.
func (a *API) serveBody(w http.ResponseWriter, r *http.Request, b *body, cacheControl string) {
	e := negotiate(r.Header["Accept-Encoding"])
	tag, err := b.tag(e)
	if err != nil {
		a.bodyFailed(w, b, err)
		return
	}
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", cacheControl)
	h.Set("Vary", vary)
	if matches(r.Header["If-None-Match"], tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	v := b.variant(e)
	if v.err != nil {
		a.bodyFailed(w, b, v.err)
		return
	}
	h.Set("Content-Type", b.contentType)
	h.Set("Content-Length", v.length)
	if e != identity {
		h.Set("Content-Encoding", encodingNames[e])
	}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		// A write fails when the client is gone; there is nobody to tell.
		_, _ = w.Write(v.data)
	}
}

// bodyFailed is the 500 of a body that could not be encoded.
func (a *API) bodyFailed(w http.ResponseWriter, b *body, err error) {
	h := w.Header()
	h.Del("ETag")
	h.Del("Link")
	h.Set("Cache-Control", "no-store")
	a.log.Error("body could not be encoded", "body", b.name, "error", err)
	a.writeProblem(w, newProblem(http.StatusInternalServerError, "something broke here; it is in the log"))
}
