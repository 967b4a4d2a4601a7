package probe

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// maxDepth is how deep a NIP-11 document may nest: the NIP needs 4, and
	// what stores the document may have less patience than we.
	maxDepth = 32
	// maxItems are kept of a list.
	maxItems = 200
)

// notJSON is the Problem of a body that is no JSON object.
const notJSON = "not_json"

// parseInfo reads a NIP-11 document field by field: one of the wrong shape is
// lost alone.
func parseInfo(body []byte) *monitor.Info {
	body = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\uFEFF")))
	if len(body) == 0 || body[0] != '{' || depth(body) > maxDepth {
		return &monitor.Info{Problem: notJSON}
	}
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	var raw bytes.Buffer
	raw.Grow(len(body))
	if json.Compact(&raw, body) != nil || raw.Len() > maxInfo {
		return &monitor.Info{Problem: notJSON}
	}
	doc := raw.Bytes()
	mendEscapes(doc)
	info := &monitor.Info{Raw: doc}
	each(doc, func(name, value []byte) {
		switch string(unquoted(name)) {
		case "name":
			info.Name = text(value)
		case "description":
			info.Description = text(value)
		case "pubkey":
			info.Pubkey = pubkey(value)
		case "contact":
			info.Contact = text(value)
		case "software":
			info.Software = text(value)
		case "version":
			info.Version = text(value)
		case "supported_nips":
			info.NIPs = numbers(value)
		case "relay_countries":
			info.Countries = texts(value)
		case "language_tags":
			info.Languages = texts(value)
		case "tags":
			info.Tags = texts(value)
		case "limitation":
			limitation(info, value)
		}
	})
	return info
}

func limitation(info *monitor.Info, value []byte) {
	info.AuthRequired, info.PaymentRequired, info.RestrictedWrites, info.MinPow = nil, nil, nil, nil
	if value[0] != '{' {
		return
	}
	each(value, func(name, value []byte) {
		switch string(unquoted(name)) {
		case "auth_required":
			info.AuthRequired = boolean(value)
		case "payment_required":
			info.PaymentRequired = boolean(value)
		case "restricted_writes":
			info.RestrictedWrites = boolean(value)
		case "min_pow_difficulty":
			info.MinPow = nil
			if n, err := strconv.Atoi(string(value)); err == nil && n >= 0 {
				info.MinPow = &n
			}
		}
	})
}

// The functions below read JSON that is known to be valid and compact.
// encoding/json would be a third of the cost of a plain probe.

// each calls f with every member of an object, its name still quoted, or with
// every item of an array, without a name.
func each(b []byte, f func(name, value []byte)) {
	for i := 1; i < len(b)-1; {
		var name []byte
		if b[0] == '{' {
			n := span(b[i:])
			name = b[i : i+n]
			i += n + 1
		}
		n := span(b[i:])
		f(name, b[i:i+n])
		i += n + 1
	}
}

// span is the length of the value with which b begins.
func span(b []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case inString && c == '\\':
			i++
			continue
		case c == '"':
			inString = !inString
		case inString:
			continue
		case c == '{' || c == '[':
			depth++
			continue
		case c == '}' || c == ']':
			if depth--; depth < 0 {
				return i
			}
		case c == ',' && depth == 0:
			return i
		default:
			continue
		}
		if depth == 0 && !inString {
			return i + 1
		}
	}
	return len(b)
}

// unquoted is the name of a member.
func unquoted(name []byte) []byte {
	if bytes.IndexByte(name, '\\') < 0 {
		return name[1 : len(name)-1]
	}
	return []byte(text(name))
}

// text reads a string, "" for anything else.
func text(b []byte) string {
	if len(b) < 2 || b[0] != '"' {
		return ""
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1])
	}
	var s string
	_ = json.Unmarshal(b, &s) // it is valid
	return s
}

// pubkey reads 64 hex digits, "" for anything else.
func pubkey(b []byte) string {
	s := text(b)
	if _, err := hex.DecodeString(s); err != nil || len(s) != 64 {
		return ""
	}
	return strings.ToLower(s)
}

func boolean(b []byte) *bool {
	v := b[0] == 't'
	if !v && b[0] != 'f' {
		return nil
	}
	return &v
}

// texts reads a list of strings; items of another kind are left out.
func texts(b []byte) []string {
	if b[0] != '[' {
		return nil
	}
	var out []string
	each(b, func(_, item []byte) {
		if s := text(item); s != "" && len(out) < maxItems {
			out = append(out, s)
		}
	})
	return out
}

// numbers reads a list of NIP numbers, ascending and distinct; items of another
// kind are left out.
func numbers(b []byte) []int {
	if b[0] != '[' {
		return nil
	}
	out := make([]int, 0, 32)
	each(b, func(_, item []byte) {
		if n, err := strconv.Atoi(string(item)); err == nil && n >= 1 && n <= 0xffff {
			out = append(out, n)
		}
	})
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) == 0 {
		return nil
	}
	return out[:min(len(out), maxItems)]
}

// depth is how deep the brackets outside of strings nest.
func depth(b []byte) int {
	deepest, now := 0, 0
	inString := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// mendEscapes replaces, in valid JSON, the escapes of U+0000 and of lone
// surrogates by that of U+FFFD: they are legal JSON and no legal text, and
// PostgreSQL refuses a document for them.
func mendEscapes(b []byte) {
	unit := func(i int) (uint16, bool) {
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return 0, false
		}
		var v [2]byte
		_, err := hex.Decode(v[:], b[i+2:i+6])
		return uint16(v[0])<<8 | uint16(v[1]), err == nil
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		u, ok := unit(i)
		if !ok {
			i++ // the escaped character
			continue
		}
		if high := u&0xfc00 == 0xd800; high {
			if low, ok := unit(i + 6); ok && low&0xfc00 == 0xdc00 {
				i += 11
				continue
			}
		}
		if u == 0 || u&0xf800 == 0xd800 {
			copy(b[i+2:], "fffd")
		}
		i += 5
	}
}
