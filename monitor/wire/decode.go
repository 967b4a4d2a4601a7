package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
)

// unmarshal reads one JSON value and nothing after it. strict refuses unknown
// fields. The error is monitor.ErrInvalid in one sentence.
func unmarshal(b []byte, v any, strict bool) error {
	if !utf8.Valid(b) {
		return invalid("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return plain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("there is more than one JSON value")
	}
	return nil
}

// plain is an error of encoding/json in words for people, without Go's types.
func plain(err error) error {
	var typed *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, monitor.ErrInvalid):
		return invalid("%s", short(words(err)))
	case errors.As(err, &typed):
		article := "a"
		if strings.HasPrefix(typed.Value, "array") || strings.HasPrefix(typed.Value, "object") {
			article = "an"
		}
		return invalid("field %s: it is %s %s", short(typed.Field), article, typed.Value)
	case errors.As(err, &syntax):
		return invalid("it is no JSON, at byte %d: %s", syntax.Offset, syntax)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("it is no JSON: it breaks off")
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if name, bad := strconv.Unquote(field); bad == nil {
			field = name
		}
		return invalid("field %s: it is unknown in version %d", short(field), Version)
	}
	return invalid("%s", short(strings.TrimPrefix(err.Error(), "json: ")))
}

// short is a sender's text as an error may repeat it.
func short(s string) string {
	const most = 120
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// text checks a text that a person may read.
func text(s string, most int) error {
	switch {
	case !utf8.ValidString(s):
		return invalid("it is not UTF-8")
	case len(s) > most:
		return invalid("it is longer than %d bytes", most)
	}
	return nil
}

// named puts the name of a field before what is wrong with it.
func named(field string, err error) error {
	if err == nil {
		return nil
	}
	return invalid("field %s: %s", field, words(err))
}

// words are an error of ours without its kind, to be built into another.
func words(err error) string {
	s := strings.TrimPrefix(err.Error(), monitor.ErrInvalid.Error())
	return strings.TrimLeft(s, ": ")
}

// canonical checks that u is a relay's identity. The addresses that only some
// configurations allow are for the core to judge.
func canonical(u monitor.RelayURL) error {
	c, err := monitor.Canonical(string(u))
	var bad *monitor.URLError
	switch {
	case errors.As(err, &bad):
		return invalid("%s is no relay URL: %s", short(bad.Input), bad.Words())
	case err != nil:
		return err
	case c != u:
		return invalid("it is not canonical, which is %s", c)
	}
	return nil
}
