package monitor

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The printable ASCII characters that the WHATWG URL standard percent-encodes
// in a path and in the query of a special scheme. Everything outside printable
// ASCII is encoded too.
const (
	pathEncodeSet  = "\"#<>?^`{}"
	queryEncodeSet = "\"#<>'"
)

// appendPath appends the canonical form of a path, which is empty or starts
// with a slash: dots resolved, runs of slashes collapsed, characters encoded
// (relay-url.md 9).
func appendPath(dst []byte, raw string) []byte {
	if raw == "" || raw == "/" {
		return append(dst, '/')
	}
	parts := strings.Split(raw[1:], "/")
	segments := parts[:0] // never longer than what was read of parts
	for i, s := range parts {
		last := i == len(parts)-1
		switch n := dots(s); {
		case n == 0:
			segments = append(segments, s)
			continue
		case n == 2 && len(segments) > 0:
			segments = segments[:len(segments)-1]
		}
		if last { // /a/. and /a/b/.. are the directory /a/
			segments = append(segments, "")
		}
	}
	for i, s := range segments {
		if s != "" || i == len(segments)-1 {
			dst = append(dst, '/')
			dst = appendEncoded(dst, s, pathEncodeSet)
		}
	}
	return dst
}

// dots returns 1 or 2 for a segment of so many dots, plain or percent-encoded,
// and 0 for any other.
func dots(segment string) int {
	n := 0
	for segment != "" && n < 3 {
		switch {
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && strings.EqualFold(segment[:3], "%2e"):
			segment = segment[3:]
		default:
			return 0
		}
		n++
	}
	if n > 2 {
		return 0
	}
	return n
}

// appendEncoded appends s with everything outside printable ASCII, the space
// and the characters of set percent-encoded; what is encoded already stays as
// it is, and bytes that are not UTF-8 become U+FFFD.
func appendEncoded(dst []byte, s, set string) []byte {
	const hex = "0123456789ABCDEF"
	for _, r := range s {
		if r > ' ' && r < 0x7f && !strings.ContainsRune(set, r) {
			dst = append(dst, byte(r))
			continue
		}
		var b [utf8.UTFMax]byte
		for _, c := range b[:utf8.EncodeRune(b[:], r)] {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

// percentDecode decodes every valid %XX once; the result need not be UTF-8.
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, ok1 := hexDigit(s[i+1])
			lo, ok2 := hexDigit(s[i+2])
			if ok1 && ok2 {
				out = append(out, hi<<4|lo)
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// invisible reports whether r is white space, a control or zero-width
// character, or a backslash, which parsers read in different ways (rule 3).
func invisible(r rune) bool {
	if r < 0x7f {
		return r <= ' ' || r == '\\'
	}
	return unicode.In(r, unicode.Z, unicode.Cc, unicode.Cf)
}

// joined reports whether a comma in s is followed by a URL with a scheme of its
// own: a list in the place of one URL (rule 4).
func joined(s string) bool {
	for {
		_, after, ok := strings.Cut(s, ",")
		if !ok {
			return false
		}
		scheme, _, ok := strings.Cut(after, "://")
		if ok && isScheme(scheme) {
			return true
		}
		s = after
	}
}

// isScheme follows RFC 3986, 3.1.
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // lower case, where it is a letter
		switch {
		case 'a' <= c && c <= 'z':
		case i > 0 && (isDigits(s[i:i+1]) || strings.IndexByte("+-.", s[i]) >= 0):
		default:
			return false
		}
	}
	return s != ""
}

// nested reports whether a decoded path holds another URL (rule 8).
func nested(path string) bool {
	if !strings.Contains(path, ":") {
		return false
	}
	path = strings.ToLower(path)
	for _, s := range [...]string{"://", "wss:", "https:/", "http:/"} {
		if strings.Contains(path, s) {
			return true
		}
	}
	// ws: ends ordinary words too.
	for i := strings.Index(path, "ws:"); i >= 0; {
		before, _ := utf8.DecodeLastRuneInString(path[:i])
		if !unicode.IsLetter(before) && !unicode.IsDigit(before) {
			return true
		}
		next := strings.Index(path[i+1:], "ws:")
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return false
}
