package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

var (
	//go:embed docs.html
	docsHTML string
	//go:embed docs.css
	docsCSS string

	docsTemplate = template.Must(template.New("docs").Parse(docsHTML))
)

// docsPolicy lets the page do nothing but show itself: no script, no request,
// no style but its own.
var docsPolicy = func() string {
	sum := sha256.Sum256([]byte(docsCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// The parts of the page, as its template takes them.
type (
	docsPage struct {
		Name, Title, Version, Description, Base string

		Style    template.CSS
		Chapters []docsChapter
		Keys     []docsKey
		Problem  docsShape
	}
	docsChapter struct {
		Name, ID, Description string
		Operations            []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, Description, Curl string

		Who        string // asks, where that matters
		Parameters []docsField
		Request    []docsShape
		Responses  []docsResponse
	}
	docsResponse struct {
		Status, Title, Description string

		Headers []docsField
		Shapes  []docsShape
		Problem bool // as the chapter on problems says
	}
	// docsShape is one form that a body may have.
	docsShape struct {
		Type   string // media type
		Words  string
		Fields []docsField
	}
	docsField struct {
		Name, Words, Doc string

		Needed  bool // in a request
		Default string
		Fields  []docsField

		always bool // never left out
	}
	// docsKey is one way to say who asks.
	docsKey struct{ Name, Description string }
)

// renderDocs writes the document as a page to read. Base is where the examples
// ask.
func renderDocs(doc *huma.OpenAPI, name, base string) ([]byte, error) {
	d := docsWriter{doc}
	p := docsPage{
		Name: name, Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description, Base: base,
		// The style is ours, embedded; the policy allows it by its hash.
		Style: template.CSS(docsCSS), //nolint:gosec // no input
	}
	for _, tag := range doc.Tags {
		c := docsChapter{Name: tag.Name, ID: strings.ToLower(tag.Name), Description: tag.Description}
		for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
			for _, op := range methods(doc.Paths[path]) {
				if slices.Contains(op.Tags, tag.Name) {
					c.Operations = append(c.Operations, d.operation(op, base))
				}
			}
		}
		p.Chapters = append(p.Chapters, c)
	}
	for _, key := range slices.Sorted(maps.Keys(doc.Components.SecuritySchemes)) {
		p.Keys = append(p.Keys, docsKey{key, doc.Components.SecuritySchemes[key].Description})
	}
	if s := doc.Components.Schemas.Map()["Problem"]; s != nil {
		p.Problem = d.shape("application/problem+json", s)
	}
	var out bytes.Buffer
	if err := docsTemplate.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("write the page of the API: %w", err)
	}
	return out.Bytes(), nil
}

// docsWriter puts a document into words.
type docsWriter struct{ doc *huma.OpenAPI }

func (d docsWriter) operation(op *huma.Operation, base string) docsOperation {
	o := docsOperation{
		ID: op.OperationID, Method: op.Method, Path: op.Path, Summary: op.Summary, Description: op.Description,
		Who: who(op), Curl: curl(op, base),
	}
	for _, p := range op.Parameters {
		f := d.field(p.Name, p.Schema, p.Required)
		if p.Description != "" {
			f.Doc = p.Description
		}
		f.Needed = p.Required
		if p.In != "query" {
			f.Words += ", in the " + p.In
		}
		o.Parameters = append(o.Parameters, f)
	}
	if op.RequestBody != nil {
		o.Request = d.shapes(op.RequestBody.Content)
		for _, shape := range o.Request {
			for i := range shape.Fields {
				shape.Fields[i].Needed = shape.Fields[i].always
			}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		code, _ := strconv.Atoi(status)
		answer := docsResponse{Status: status, Title: http.StatusText(code)}
		if r.Description != answer.Title {
			answer.Description = r.Description
		}
		for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
			f := d.field(name, r.Headers[name].Schema, false)
			f.Doc = r.Headers[name].Description
			answer.Headers = append(answer.Headers, f)
		}
		if answer.Problem = r.Content["application/problem+json"] != nil; !answer.Problem {
			answer.Shapes = d.shapes(r.Content)
		}
		o.Responses = append(o.Responses, answer)
	}
	return o
}

func (d docsWriter) shapes(content map[string]*huma.MediaType) (out []docsShape) {
	for _, media := range slices.Sorted(maps.Keys(content)) {
		s := content[media].Schema
		if s == nil {
			continue
		}
		if len(s.AnyOf) == 0 {
			out = append(out, d.shape(media, s))
		}
		for _, one := range s.AnyOf {
			out = append(out, d.shape(media, one))
		}
	}
	return out
}

func (d docsWriter) shape(media string, s *huma.Schema) docsShape {
	shape := docsShape{Type: media, Words: s.Description, Fields: d.fields(d.resolve(s), 0)}
	if shape.Words == "" {
		shape.Words = d.words(d.resolve(s)) + "."
	}
	return shape
}

// resolve follows a reference.
func (d docsWriter) resolve(s *huma.Schema) *huma.Schema {
	if s.Ref == "" {
		return s
	}
	if target := d.doc.Components.Schemas.SchemaFromRef(s.Ref); target != nil {
		return target
	}
	return s
}

// maxDocsDepth bounds how deep fields are told, should a schema hold itself.
const maxDocsDepth = 5

// fields lists those of an object, or of the objects in a list.
func (d docsWriter) fields(s *huma.Schema, depth int) (out []docsField) {
	for s.Type == huma.TypeArray && s.Items != nil {
		s = d.resolve(s.Items)
	}
	if depth == maxDocsDepth {
		return nil
	}
	// What is required stands in the order of the answer.
	names := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		p := s.Properties[name]
		if p == nil {
			continue
		}
		f := d.field(name, p, slices.Contains(s.Required, name))
		f.Fields = d.fields(d.resolve(p), depth+1)
		out = append(out, f)
	}
	return out
}

func (d docsWriter) field(name string, s *huma.Schema, required bool) docsField {
	f := docsField{Name: name, Words: d.words(d.resolve(s)), Doc: s.Description, always: required}
	if s.Default != nil {
		f.Default = plain(s.Default)
	}
	return f
}

// words says what a value is.
func (d docsWriter) words(s *huma.Schema) string {
	var w string
	switch s.Type {
	case huma.TypeString:
		w = "text"
		if s.Format == "date-time" {
			w = "time, RFC 3339"
		}
	case huma.TypeInteger:
		w = "whole number"
	case huma.TypeNumber:
		w = "number"
	case huma.TypeBoolean:
		w = "true or false"
	case huma.TypeArray:
		w = "list"
		switch {
		case s.MinItems != nil && s.MaxItems != nil:
			w += " of " + strconv.Itoa(*s.MinItems) + " to " + strconv.Itoa(*s.MaxItems)
		case s.MinItems != nil:
			w += " of at least " + strconv.Itoa(*s.MinItems)
		case s.MaxItems != nil:
			w += " of at most " + strconv.Itoa(*s.MaxItems)
		}
		if s.Items != nil {
			w += ", each " + d.words(d.resolve(s.Items))
		}
	case huma.TypeObject:
		w = "object"
		if values, ok := s.AdditionalProperties.(*huma.Schema); ok && len(s.Properties) == 0 {
			w = "object, each value " + d.words(d.resolve(values))
		}
	default:
		w = "anything"
	}
	if len(s.Enum) > 0 {
		var all []string
		for _, v := range s.Enum {
			if v != nil {
				all = append(all, plain(v))
			}
		}
		w = strings.Join(all, ", ")
		if len(all) > 1 {
			w = "one of " + w
		}
	}
	if s.Type != huma.TypeArray {
		switch {
		case s.Minimum != nil && s.Maximum != nil:
			w += ", " + plain(*s.Minimum) + " to " + plain(*s.Maximum)
		case s.Minimum != nil && (*s.Minimum != 0 || s.Format == ""):
			w += ", at least " + plain(*s.Minimum)
		case s.Maximum != nil:
			w += ", at most " + plain(*s.Maximum)
		}
	}
	if s.Pattern != "" {
		w += ", matching " + s.Pattern
	}
	if s.MaxLength != nil {
		w += ", at most " + strconv.Itoa(*s.MaxLength) + " characters"
	}
	if s.Nullable {
		w += ", or null"
	}
	return w
}

// plain writes a value of a schema as a reader would.
func plain(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// who names those that an operation is for, where it wants to know.
func who(op *huma.Operation) string {
	switch {
	case len(op.Security) == 0:
		return ""
	case isVantages(op):
		return "vantages"
	case isOwners(op):
		return "the relay's owner"
	}
	return "operators"
}

// curl is a command that works against this server: with all that is required
// and nothing else.
func curl(op *huma.Operation, base string) string {
	path, query := op.Path, ""
	for _, p := range op.Parameters {
		if !p.Required {
			continue
		}
		value := plain(example(p.Schema))
		switch p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))
		case "query":
			// Slashes and colons need no escape in a query, and read better.
			value = strings.NewReplacer("%2F", "/", "%3A", ":").Replace(url.QueryEscape(value))
			query += "&" + p.Name + "=" + value
		}
	}
	if query != "" {
		query = "?" + query[1:]
	}
	if isVantages(op) { // no shell signs
		return "pharos vantage --core " + base
	}
	command := []string{"curl"}
	if op.Method != http.MethodGet {
		command[0] += " -X " + op.Method
	}
	switch {
	case isOwners(op): // with what some program signed before
		command = append(command, `-H "Authorization: Nostr $NIP98_EVENT"`)
	case len(op.Security) > 0:
		command = append(command, `-H "Authorization: Bearer $(cat DATA_DIR/admin.token)"`)
	}
	if body := bodies[op.OperationID]; body != "" {
		command = append(command, "-H 'Content-Type: application/json'", "-d "+quoted(body))
	}
	command = append(command, quoted(base+path+query))
	if len(command) == 2 {
		return strings.Join(command, " ")
	}
	return strings.Join(command, " \\\n  ")
}

// quoted makes a word of a POSIX shell out of s.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// example is a value of a required parameter: its schema's own, or one of its
// enumeration.
func example(s *huma.Schema) any {
	for _, from := range [][]any{s.Examples, {s.Default}, s.Enum} {
		if len(from) > 0 && from[0] != nil {
			return from[0]
		}
	}
	return "VALUE"
}
