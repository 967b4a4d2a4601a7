package main

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// origin is where a key got its value.
type origin struct {
	source       string
	line, column int
}

// decoder fills a Config from one YAML document. It walks the tree by itself,
// because the library's strict decoding stops at the first problem.
type decoder struct {
	file     string
	text     *source
	origins  map[string]origin
	anchors  map[string]ast.Node
	problems Problems
}

// decodeYAML fills c with what data says and returns where each key stands and
// all that is wrong with the document's shape, and the text for excerpts.
func decodeYAML(file string, data []byte, c *Config) (*source, map[string]origin, Problems) {
	d := &decoder{
		file: file, text: newSource(string(data)),
		origins: map[string]origin{}, anchors: map[string]ast.Node{},
	}
	if line, how := outOfBounds(string(data)); line > 0 {
		return d.text, d.origins, Problems{{Source: file, Line: line, Column: 1, Text: how}}
	}
	parsed, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.text.notYAML()
		d.syntax(err)
		d.excerpts()
		return d.text, d.origins, d.problems
	}
	var body ast.Node
	for _, doc := range parsed.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			d.text.hide(nil, doc.Body)
			d.problem(doc.Body.GetToken(), "", "is a second document: a configuration is one")
			break
		}
		body = doc.Body
	}
	if body != nil {
		d.section(body, reflect.ValueOf(c).Elem(), "")
	}
	d.excerpts()
	return d.text, d.origins, d.problems
}

// excerpts adds the lines to the problems: only when the whole document was
// read it is known where secrets stand.
func (d *decoder) excerpts() {
	for i := range d.problems {
		d.problems[i].Excerpt = d.text.excerpt(d.problems[i].Line)
	}
}

func (d *decoder) syntax(err error) {
	var bad yaml.Error
	if errors.As(err, &bad) && bad.GetToken() != nil {
		d.problem(bad.GetToken(), "", "is no valid YAML here: %s", redact(bad.GetMessage()))
		return
	}
	d.problems = append(d.problems, Problem{Source: d.file, Text: "is no valid YAML"})
}

func (d *decoder) problem(t *token.Token, key, format string, args ...any) {
	p := Problem{Source: d.file, Key: key, Text: fmt.Sprintf(format, args...)}
	if t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	d.problems = append(d.problems, p)
}

// section reads a mapping into a struct.
func (d *decoder) section(n ast.Node, v reflect.Value, path string) {
	n = d.resolve(n)
	entries, ok := mappingEntries(n)
	if !ok {
		d.text.hide(nil, n)           // it may have been meant for a secret below
		if n.Type() != ast.NullType { // a section whose keys are all commented out
			d.problem(n.GetToken(), path, "is %s, not a section of keys", nodeWord(n))
		}
		return
	}
	seen := map[string]int{}
	for _, e := range entries {
		t := e.Key.GetToken()
		if e.Key.Type() == ast.MergeKeyType {
			d.problem(t, join(path, "<<"), "merge keys are not supported: write the keys out")
			continue
		}
		name := t.Value
		key := join(path, name)
		field, ok := fieldByKey(v, name)
		if !ok { // which may be a secret's, misspelt
			d.text.hide(t, e.Value)
			d.problem(t, key, "is an unknown key%s", suggest(v, path, name))
			continue
		}
		if isSecret(field.Type()) {
			d.text.hide(t, e.Value)
			d.text.hide(nil, d.resolve(e.Value))
		}
		if first, twice := seen[name]; twice {
			d.problem(t, key, "is repeated: it stands in line %d already", first)
			continue
		}
		seen[name] = t.Position.Line
		d.origins[key] = origin{d.file, t.Position.Line, t.Position.Column}
		d.value(e.Value, field, key)
	}
}

// value reads a node into a field of any type of the schema.
func (d *decoder) value(n ast.Node, v reflect.Value, key string) {
	n = d.resolve(n)
	if v.Kind() == reflect.Struct && !isText(v) && v.Type() != reflect.TypeFor[Builtin]() {
		d.section(n, v, key)
		return
	}
	if n.Type() == ast.NullType {
		d.problem(n.GetToken(), key, "has no value: write one, or take the key out")
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[Builtin]():
		if s, ok := nodeString(n); ok {
			if s != "default" {
				d.problem(n.GetToken(), key, "is neither the word default nor a list")
				return
			}
			v.Set(reflect.ValueOf(Builtin{Default: true}))
			return
		}
		d.list(n, v.FieldByName("List"), key)
		v.FieldByName("Default").SetBool(false)
	case v.Kind() == reflect.Slice:
		d.list(n, v, key)
	default:
		d.scalar(n, v, key)
	}
}

func (d *decoder) list(n ast.Node, v reflect.Value, key string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if v.Type().Elem().Kind() == reflect.Struct {
			d.text.hide(nil, n)
		}
		d.problem(n.GetToken(), key, "is %s, not a list: write [a, b]", nodeWord(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, len(seq.Values))
	for i, item := range seq.Values {
		elem := reflect.New(v.Type().Elem()).Elem()
		itemKey := fmt.Sprintf("%s[%d]", key, i)
		if t := d.resolve(item).GetToken(); t != nil && t.Position != nil {
			d.origins[itemKey] = origin{d.file, t.Position.Line, t.Position.Column}
		}
		d.value(item, elem, itemKey)
		out = reflect.Append(out, elem)
	}
	v.Set(out)
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, key string) {
	if _, isMap := mappingEntries(n); isMap || n.Type() == ast.SequenceType {
		d.problem(n.GetToken(), key, "is %s, not %s", nodeWord(n), typeWord(v))
		return
	}
	text, isString := nodeString(n)
	if !isString {
		text = n.GetToken().Value
	}
	// The YAML type must be the schema's: a quoted number is a text, and an
	// unquoted one is none. What reads text (durations, addresses) takes both.
	ok := true
	switch {
	case isText(v):
	case v.Kind() == reflect.String:
		ok = isString
	case v.Kind() == reflect.Bool:
		ok = n.Type() == ast.BoolType
	case v.Kind() == reflect.Int:
		ok = n.Type() == ast.IntegerType
	case v.Kind() == reflect.Float64:
		switch n.Type() {
		case ast.IntegerType, ast.FloatType, ast.NanType, ast.InfinityType:
		default:
			ok = false
		}
	}
	if !ok {
		hint := ""
		if v.Kind() == reflect.String {
			hint = ": put it in quotes"
		}
		d.problem(n.GetToken(), key, "is %s, not %s%s", nodeWord(n), typeWord(v), hint)
		return
	}
	if err := setText(v, text); err != nil {
		d.problem(n.GetToken(), key, "%s%v", quoteValue(v, text), err)
	}
}

// resolve takes anchors, aliases and tags off a node.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for range 16 { // an alias may name an anchor that is an alias
		switch x := n.(type) {
		case *ast.AnchorNode:
			d.anchors[x.Name.GetToken().Value] = x.Value
			n = x.Value
		case *ast.AliasNode:
			target, ok := d.anchors[x.Value.GetToken().Value]
			if !ok {
				return n
			}
			n = target
		case *ast.TagNode:
			n = x.Value
		default:
			return n
		}
	}
	return n
}

// setText sets a scalar from its text; the error begins with a verb, to follow
// the value.
func setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if x, ok := u.(*netip.Prefix); ok {
			return setPrefix(x, text)
		}
		err := u.UnmarshalText([]byte(text))
		if _, ok := u.(*netip.Addr); ok && err != nil {
			return errors.New("is no IP address: write one of this machine's, such as 192.0.2.1 or 2001:db8::1")
		}
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		v.SetBool(b)
	case reflect.Int:
		i, err := strconv.ParseInt(text, 0, 32)
		if err != nil {
			return errors.New("is no whole number that fits")
		}
		v.SetInt(i)
	case reflect.Float64:
		// YAML writes .nan and .inf.
		f, err := strconv.ParseFloat(strings.Replace(strings.ToLower(text), ".inf", "inf", 1), 64)
		if err != nil || math.IsNaN(f) {
			return errors.New("is not a number: write one such as 0.5")
		}
		if math.IsInf(f, 0) {
			return errors.New("is infinite: write a number such as 0.5")
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("cannot be read into %s", v.Type())
	}
	return nil
}

// setPrefix reads an address range; an address alone is the range of it. IPv4
// addresses in IPv6 are what they stand for.
func setPrefix(x *netip.Prefix, text string) error {
	errPrefix := errors.New("is no address range: write one such as 10.0.0.0/8 or fd00::/8, or a single address")
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return errPrefix
		}
		address = address.Unmap()
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return errPrefix
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	*x = prefix.Masked()
	return nil
}

// quoteValue repeats a wrong value in front of what is wrong, but for secrets.
func quoteValue(v reflect.Value, text string) string {
	switch v.Interface().(type) {
	case Secret, DSN:
		return ""
	}
	return fmt.Sprintf("%q ", redact(text))
}

func isText(v reflect.Value) bool {
	return reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func mappingEntries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch x := n.(type) {
	case *ast.MappingNode:
		return x.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{x}, true
	}
	return nil, false
}

func nodeString(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		return x.Value, true
	case *ast.LiteralNode:
		return x.Value.Value, true
	}
	return "", false
}

func nodeWord(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a section of keys"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "a text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.AliasType:
		return "an alias of an anchor that is not there"
	default:
		return "something else"
	}
}

func typeWord(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[Duration]():
		return "a duration such as 30s or 5m"
	case v.Type() == reflect.TypeFor[netip.Prefix]():
		return "an address range such as 10.0.0.0/8"
	case v.Type() == reflect.TypeFor[netip.Addr]():
		return "an IP address"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Int:
		return "a whole number"
	case v.Kind() == reflect.Float64:
		return "a number"
	}
	return "a text"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func fieldByKey(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// leaves calls fn for every key of the schema below v that holds a value, in
// the order of the structs; lists count as one.
func leaves(v reflect.Value, path string, fn func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		key, f := join(path, v.Type().Field(i).Tag.Get("yaml")), v.Field(i)
		if f.Kind() == reflect.Struct && !isText(f) && f.Type() != reflect.TypeFor[Builtin]() {
			leaves(f, key, fn)
			continue
		}
		fn(key, f)
	}
}

// suggest names the key that was probably meant.
func suggest(v reflect.Value, path, name string) string {
	best, distance := "", 3
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		if d := editDistance(name, key); d < distance && d < len(key) {
			best, distance = key, d
		}
	}
	if best == "" {
		leaves(reflect.ValueOf(Config{}), "", func(key string, _ reflect.Value) {
			if best == "" && (strings.HasSuffix(key, "."+name) || key == name) {
				best = key
			}
		})
	} else {
		best = join(path, best)
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
