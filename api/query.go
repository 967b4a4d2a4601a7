package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// strict, embedded in an operation's input, refuses what huma lets pass: a
// parameter that the operation does not have, one given twice or without a
// value, text that is not UTF-8 or holds control characters.
type strict struct{}

// Resolve is called by huma after the parameters were read.
func (strict) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	return judge(u.RawQuery, ctx.Operation().Parameters)
}

// judge holds a query against the parameters that there are.
func judge(query string, parameters []*huma.Param) (errs []error) {
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		errs = append(errs, &huma.ErrorDetail{Location: "query", Message: "the query is malformed or far too long: use name=value, joined by &, with %XX escapes"})
	}
	known := make(map[string]*huma.Param)
	for _, p := range parameters {
		if p.In == "query" {
			known[p.Name] = p
		}
	}
	takes := "none"
	if len(known) > 0 {
		takes = strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		complain := func(text string) {
			errs = append(errs, &huma.ErrorDetail{Location: "query." + printable(name), Message: text})
		}
		p, given := known[name], values[name]
		switch {
		case p == nil:
			complain("unknown parameter; this path takes " + takes)
		case len(given) > 1 && p.Schema.Type != huma.TypeArray:
			complain(fmt.Sprintf("given %d times; once is enough", len(given)))
		case slices.Contains(given, ""):
			complain("has no value")
		case slices.ContainsFunc(given, func(v string) bool { return !utf8.ValidString(v) }):
			complain("is not UTF-8")
		case slices.ContainsFunc(given, func(v string) bool { return strings.ContainsFunc(v, unicode.IsControl) }):
			complain("holds control characters")
		}
	}
	return errs
}

// strictly has h answer where the query holds nothing but params: pages that
// are no operation refuse what they do not know too.
func (a *API) strictly(h http.Handler, params ...*huma.Param) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if errs := judge(r.URL.RawQuery, params); len(errs) > 0 {
			err := huma.NewError(http.StatusUnprocessableEntity, "", errs...)
			var p *problem
			if errors.As(err, &p) {
				a.writeProblem(w, p)
				return
			}
		}
		h.ServeHTTP(w, r)
	}
}

// optionBool is a boolean parameter that may be left out.
type optionBool struct{ value, set bool }

// Receiver is where huma reads the value to.
func (o *optionBool) Receiver() reflect.Value { return reflect.ValueOf(&o.value).Elem() }

// OnParamSet is called by huma when it looked for the parameter.
func (o *optionBool) OnParamSet(set bool, _ any) { o.set = set }

// pointer is nil where it was left out.
func (o optionBool) pointer() *bool {
	if !o.set {
		return nil
	}
	return &o.value
}

// Schema documents the parameter.
func (optionBool) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// printable makes a caller's word fit for an answer.
func printable(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// moment is a parameter that holds a time: RFC 3339, or whole seconds since
// 1970. The zero value is one that was not given.
type moment struct{ t time.Time }

// latest is the last second that RFC 3339 can write.
const latest = 253402300799

// UnmarshalText is called by huma.
func (m *moment) UnmarshalText(text []byte) error {
	if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		if seconds < 0 || seconds > latest {
			return errors.New("out of range")
		}
		m.t = time.Unix(seconds, 0).UTC()
		return nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New("no time: use RFC 3339, such as 2006-01-02T15:04:05Z, or seconds since 1970")
	}
	if t.Unix() < 0 || t.Unix() > latest {
		return errors.New("out of range")
	}
	m.t = t.UTC()
	return nil
}

// Schema documents the parameter.
func (moment) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Examples: []any{"2006-01-02T15:04:05Z", "1136214245"}}
}

// defaultWindow is how far back an answer goes that was not told.
const defaultWindow = 24 * time.Hour

// span fills in the defaults of from and to, and refuses an empty one.
func span(fromParam, toParam moment, now time.Time) (from, to time.Time, err error) {
	from, to = fromParam.t, toParam.t
	if to.IsZero() {
		to = now.UTC().Truncate(time.Second).Add(time.Second) // what happened in this second is in
	}
	if from.IsZero() {
		from = to.Add(-defaultWindow)
	}
	if !from.Before(to) {
		return from, to, newProblem(http.StatusUnprocessableEntity, "the request has a problem; errors names it",
			problemError{Location: "query.from", Message: "is not before to (" + utc(to) + ")"})
	}
	return from, to, nil
}

// relayParam is a parameter that holds a relay URL, in any spelling.
type relayParam struct {
	text string
	URL  monitor.RelayURL // "" = not given
}

// UnmarshalText is called by huma; the URL is judged by Resolve, which knows
// the configuration.
func (p *relayParam) UnmarshalText(text []byte) error {
	p.text = string(text)
	return nil
}

// Schema documents the parameter.
func (relayParam) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Examples: []any{"wss://relay.example.com"}}
}

// allowKey is where relayParam finds the address ranges that are open.
type allowKey struct{}

// Resolve turns the text into the relay's identity, or says why it is none.
func (p *relayParam) Resolve(ctx huma.Context, at *huma.PathBuffer) []error {
	if p.text == "" {
		return nil
	}
	allow, _ := ctx.Context().Value(allowKey{}).([]netip.Prefix)
	u, err := monitor.ParseRelayURL(p.text, allow...)
	if err != nil {
		// The text of a monitor.URLError holds no password and no query.
		return []error{&huma.ErrorDetail{Location: at.String(), Message: err.Error()}}
	}
	p.URL = u
	return nil
}

// relayURLs lets an operation have a relayParam.
func (a *API) relayURLs() huma.Middlewares {
	return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		next(huma.WithValue(ctx, allowKey{}, a.settings.Load().AllowNetworks))
	}}
}
