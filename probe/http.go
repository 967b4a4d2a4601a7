package probe

import (
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
	"strconv"
)

// maxHead is what is read of one response's head, interim ones included.
const maxHead = 64 << 10

var (
	errHead    = errors.New("the response's head is larger than 64 KB")
	errNotHTTP = errors.New("the answer is not HTTP")
	errBody    = errors.New("the response's body is larger than 64 KB")
)

// head is what a probe wants to know of a response's head. Texts are as the
// peer sent them.
type head struct {
	status  int
	minor   int // of HTTP/1.x
	server  string
	date    string
	retry   string // Retry-After
	where   string // Location
	accept  string // Sec-WebSocket-Accept
	length  int64  // Content-Length, -1 = not said
	chunked bool
	close   bool // Connection: close
	upgrade bool // Connection: upgrade
	socket  bool // Upgrade: websocket
	extras  bool // an extension or a subprotocol, which were not offered
	// challenge: a content network wants to see a browser first.
	challenge bool
	// unclear: the body's end can be read in two ways.
	unclear bool
}

// readHead reads one response's head, past interim ones (1xx but 101).
func (w *wire) readHead() (head, error) {
	var h head
	left := maxHead
	for {
		if err := w.speaksHTTP(); err != nil {
			return h, err
		}
		line, n, err := w.line()
		if err != nil {
			return h, err
		}
		left -= n
		if w.head != nil {
			w.head(line, n)
		}
		h = head{length: -1}
		if h.status, h.minor = statusLine(line); h.status == 0 {
			return h, errNotHTTP
		}
		for {
			line, n, err := w.line()
			if err != nil {
				return h, err
			}
			if left -= n; left < 0 {
				return h, errHead
			}
			if w.head != nil {
				w.head(line, n)
			}
			if n <= 2 && len(line) == 0 {
				break
			}
			h.field(line)
		}
		if h.status >= 200 || h.status == 101 {
			return h, nil
		}
	}
}

// httpPrefix begins every response.
const httpPrefix = "HTTP/1."

// speaksHTTP returns errNotHTTP as soon as what comes cannot become a response:
// HTTP/2 and others that speak first wait then, and never send a line's end.
func (w *wire) speaksHTTP() error {
	for i := range httpPrefix {
		b, err := w.br.Peek(i + 1)
		if err != nil {
			if errors.Is(err, io.EOF) && len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if b[i] != httpPrefix[i] {
			return errNotHTTP
		}
	}
	return nil
}

// statusLine reads "HTTP/1.1 200 OK"; status 0 = it is no such line.
func statusLine(b []byte) (status, minor int) {
	if len(b) < len(httpPrefix)+5 || string(b[:len(httpPrefix)]) != httpPrefix {
		return 0, 0
	}
	m, b := b[len(httpPrefix)], b[len(httpPrefix)+1:]
	if m != '0' && m != '1' || b[0] != ' ' || len(b) > 4 && b[4] != ' ' {
		return 0, 0
	}
	for _, c := range b[1:4] {
		if c < '0' || c > '9' {
			return 0, 0
		}
		status = status*10 + int(c-'0')
	}
	if status < 100 {
		return 0, 0
	}
	return status, int(m - '0')
}

// field takes one header field; the line is changed. Lines that are no field
// say nothing.
func (h *head) field(line []byte) {
	i := bytes.IndexByte(line, ':')
	if i <= 0 {
		return
	}
	name, value := line[:i], bytes.TrimSpace(line[i+1:])
	lower(name)
	switch string(name) {
	case "server":
		h.server = string(value)
	case "date":
		h.date = string(value)
	case "retry-after":
		h.retry = string(value)
	case "location":
		h.where = string(value)
	case "sec-websocket-accept":
		h.accept = string(value)
	case "sec-websocket-extensions", "sec-websocket-protocol":
		h.extras = h.extras || len(value) > 0
	case "content-length":
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 || h.length >= 0 && h.length != n {
			h.unclear = true
		}
		h.length = n
	case "transfer-encoding":
		lower(value)
		h.chunked = string(value) == "chunked"
		h.unclear = h.unclear || !h.chunked
	case "connection":
		h.close = h.close || hasToken(value, "close")
		h.upgrade = h.upgrade || hasToken(value, "upgrade")
	case "upgrade":
		h.socket = h.socket || hasToken(value, "websocket")
	case "cf-mitigated":
		h.challenge = h.challenge || hasToken(value, "challenge")
	case "x-amzn-waf-action":
		h.challenge = h.challenge || hasToken(value, "challenge") || hasToken(value, "captcha")
	}
}

func lower(b []byte) {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
}

// hasToken reports whether the comma-separated list holds the word, in any
// case.
func hasToken(list []byte, word string) bool {
	for len(list) > 0 {
		item := list
		if i := bytes.IndexByte(list, ','); i >= 0 {
			item, list = list[:i], list[i+1:]
		} else {
			list = nil
		}
		if item = bytes.TrimSpace(item); len(item) == len(word) && bytes.EqualFold(item, []byte(word)) {
			return true
		}
	}
	return false
}

// readBody appends the body of a response to dst, at most max bytes of it
// (errBody). kept: the connection stands at the start of the next response.
func (w *wire) readBody(dst []byte, h *head, max int) (body []byte, kept bool, err error) {
	kept = h.minor == 1 && !h.close && !h.unclear
	var r io.Reader = w.br
	switch {
	case h.status == 204 || h.status == 304:
		return dst, kept, nil
	case h.chunked:
		r = httputil.NewChunkedReader(w.br)
		kept = kept && h.length < 0
	case h.length > int64(max):
		return dst, false, errBody
	case h.length >= 0 && !h.unclear:
		start := len(dst)
		dst = append(dst, make([]byte, h.length)...)
		if _, err := io.ReadFull(w.br, dst[start:]); err != nil {
			return dst[:start], false, err
		}
		return dst, kept, nil
	default:
		kept = false // the body ends with the connection
	}
	start := len(dst)
	for {
		if len(dst)-start > max {
			return dst[:start], false, errBody
		}
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), start+max+1)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return dst[:start], false, err
		}
	}
	if len(dst)-start > max {
		return dst[:start], false, errBody
	}
	for kept { // the trailer
		line, n, err := w.line()
		if err != nil || n > 2 {
			return dst, false, nil //nolint:nilerr // the body is whole: only the connection cannot be used again
		}
		if len(line) == 0 {
			break
		}
	}
	return dst, kept, nil
}
