package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration whose text may also use d, a day of 24 hours:
// "1d12h". A number without a unit is wrong, but for 0.
type Duration time.Duration

const day = 24 * time.Hour

// UnmarshalText reads a duration; the error says what one looks like.
func (d *Duration) UnmarshalText(b []byte) error {
	s := string(b)
	days, rest, found := strings.Cut(s, "d")
	var total time.Duration
	if found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || n < 0 || n > 36500 {
			return errDuration
		}
		total = time.Duration(n * float64(day))
		if rest == "" {
			*d = Duration(total)
			return nil
		}
		s = rest
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil && s != "0" {
		return errors.New("has no unit: write a duration such as 30s, 5m, 1h or 2d")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return errDuration
	}
	*d = Duration(total + v)
	return nil
}

var errDuration = errors.New("is no duration: write one such as 30s, 5m, 1h30m or 2d")

// String prints the shortest text that UnmarshalText reads back.
func (d Duration) String() string {
	v := time.Duration(d)
	switch {
	case v == 0:
		return "0s"
	case v%day == 0:
		return fmt.Sprintf("%dd", v/day)
	}
	s := v.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// D is the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// Secret is a text that is never printed: every way of printing it gives a
// mask. Reveal is the only way to it.
type Secret string

const mask = "********"

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString, MarshalText and LogValue mask as String does.
func (s Secret) GoString() string             { return strconv.Quote(s.String()) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(s.String()) }

// UnmarshalText takes any text.
func (s *Secret) UnmarshalText(b []byte) error { *s = Secret(b); return nil }

// DSN is an address that may carry a password: a URL with userinfo or
// PostgreSQL's "key=value" form. Printed, its password is a mask, and so is all
// of it unless every part is surely none of the password.
type DSN string

// Reveal returns the address with its password.
func (d DSN) Reveal() string { return string(d) }

func (d DSN) String() string {
	if d == "" {
		return ""
	}
	if s, ok := withoutPassword(string(d)); ok {
		return s
	}
	return mask
}

// GoString, MarshalText and LogValue mask as String does.
func (d DSN) GoString() string             { return strconv.Quote(d.String()) }
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (d DSN) LogValue() slog.Value         { return slog.StringValue(d.String()) }

// UnmarshalText takes any text.
func (d *DSN) UnmarshalText(b []byte) error { *d = DSN(b); return nil }

// plainPart is what a user, a host, a database and a setting look like that
// hold no piece of a password: one that was not %-encoded ends up in any of
// them, with the @ behind it.
var plainPart = regexp.MustCompile(`^[A-Za-z0-9_./:,\[\]-]*$`)

// plainSettings are the settings of a PostgreSQL URL that are no secrets.
var plainSettings = []string{
	"application_name", "connect_timeout", "dbname", "host", "port", "sslcert", "sslkey", "sslmode", "sslrootcert",
	"statement_timeout", "target_session_attrs", "user",
}

// withoutPassword builds a URL anew from the parts that can be no password,
// with masks for the others; false when it is no such URL.
func withoutPassword(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(s, "#") ||
		!slices.Contains([]string{"postgres", "postgresql", "socks5", "socks5h"}, u.Scheme) {
		return "", false
	}
	settings, err := url.ParseQuery(u.RawQuery)
	if err != nil || !plainPart.MatchString(u.Host) || !plainPart.MatchString(u.Path) {
		return "", false
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		name := u.User.Username()
		if !plainPart.MatchString(name) || strings.Contains(name, ":") {
			return "", false
		}
		b.WriteString(name)
		if _, ok := u.User.Password(); ok {
			b.WriteString(":" + mask)
		}
		b.WriteString("@")
	}
	b.WriteString(u.Host + u.Path)
	separator, hidden := "?", false
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := settings.Get(name)
		if !slices.Contains(plainSettings, name) || len(settings[name]) > 1 || !plainPart.MatchString(value) {
			hidden = true
			continue
		}
		b.WriteString(separator + name + "=" + value)
		separator = "&"
	}
	if hidden {
		b.WriteString(separator + mask)
	}
	return b.String(), true
}

var (
	secretUserinfo = regexp.MustCompile(`(://[^\s/:@]*):[^\s]*@`)
	// A quoted password ends at its quote, one whose quote stays open with the
	// line.
	secretPassword = regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|sslpassword)\s*[=:]\s*)("[^"\n]*"|'(?:[^'\\\n]|\\.)*'|["'].*|[^\s&,}]+)`)
	// A file of such a name, and what is wrong with it: "/d/admin.token: …".
	secretFile = regexp.MustCompile(`(?i)/[^\s/"'=:?&]*(?:password|passwd|passphrase|secret|token): `)
	secretKey  = regexp.MustCompile(`(?i)\b(nsec1|ncryptsec1)[0-9a-z]+|\b[0-9a-f]{64}\b`)
)

// redact masks whatever in s looks like a secret: a password in a URL, in a
// query or in a PostgreSQL connection string, a private key. It guesses: what is
// known to be a secret by its type is masked whole before.
func redact(s string) string {
	s = secretUserinfo.ReplaceAllString(s, "${1}:"+mask+"@")
	var b strings.Builder
	at := 0
	for _, file := range append(secretFile.FindAllStringIndex(s, -1), []int{len(s), len(s)}) {
		b.WriteString(secretPassword.ReplaceAllString(s[at:file[0]], "${1}"+mask) + s[file[0]:file[1]])
		at = file[1]
	}
	return secretKey.ReplaceAllString(b.String(), mask)
}

// Builtin is a list that may also be the word "default", which stands for the
// list that comes with the program.
type Builtin struct {
	Default bool
	List    []string // used when Default is false
}

// parseURL parses an absolute URL with one of the schemes; errors name what is
// wrong without repeating the text, which may hold a password.
func parseURL(s string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("is no URL: write one such as %s://host", schemes[0])
	}
	for _, scheme := range schemes {
		if strings.EqualFold(u.Scheme, scheme) {
			return u, nil
		}
	}
	return nil, fmt.Errorf("has the scheme %q: write %s://…", u.Scheme, strings.Join(schemes, ":// or "))
}
