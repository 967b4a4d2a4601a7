package probe

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxText bytes of a relay's text go into evidence and facts.
const maxText = 200

// clean makes a relay's text fit for evidence: valid UTF-8 in one line, without
// control or format characters, at most maxText bytes.
func clean(s string) string {
	cut := len(s) > 4*maxText
	if cut {
		s = s[:4*maxText]
	}
	var b strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			space = b.Len() > 0
			continue
		}
		if b.Len()+utf8.RuneLen(r)+1 > maxText {
			cut = true
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}

// quoted is a relay's text within a sentence, "" for none.
func quoted(s string) string {
	if s = clean(s); s == "" {
		return ""
	}
	return ": “" + s + "”"
}

// limitText writes a limit for a person: "4s", "1.5s".
func limitText(d time.Duration) string { return d.Round(time.Millisecond).String() }

// statusText writes an HTTP status for a person: "HTTP 404 Not Found".
func statusText(code int) string {
	s := "HTTP " + strconv.Itoa(code)
	if t := http.StatusText(code); t != "" {
		s += " " + t
	}
	return s
}

// isClosed reports whether err is the orderly end of a connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}
