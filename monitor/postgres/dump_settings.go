package postgres

import (
	"net/url"
	"strings"
)

// connSettings returns the settings of a connection URL's query, or of a
// string of key=value, that parseURL takes.
func connSettings(text string) map[string]string {
	settings := map[string]string{}
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") {
		if u, err := url.Parse(text); err == nil {
			for key, values := range u.Query() {
				settings[key] = values[0]
			}
		}
		return settings
	}
	for {
		key, rest, ok := strings.Cut(text, "=")
		if !ok {
			return settings
		}
		var value string
		value, text = connValue(strings.TrimLeft(rest, " \t\n\r\f\v"))
		settings[strings.TrimSpace(key)] = value
	}
}

// connValue reads one value, plain or in quotes, a backslash before what is to
// be taken as it is; rest is what follows.
func connValue(text string) (value, rest string) {
	var b strings.Builder
	quoted := strings.HasPrefix(text, "'")
	if quoted {
		text = text[1:]
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case quoted && c == '\'', !quoted && strings.IndexByte(" \t\n\r\f\v", c) >= 0:
			return b.String(), text[i+1:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
