package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// source is the text of a configuration file and which of it nobody may see.
// The zero value has no lines.
type source struct {
	lines  []string
	shown  map[int]int // by line, from 1: how many characters of it are shown; none for all of them
	silent bool        // there are no excerpts
}

// newSource hides what follows the name of a key that is a secret anywhere in
// the schema; hide knows better, but only where the text is well formed.
func newSource(text string) *source {
	s := &source{lines: strings.Split(text, "\n"), shown: map[int]int{}}
	for i, line := range s.lines {
		if m := secretName.FindStringIndex(line); m != nil {
			s.show(i+1, len([]rune(line[:m[1]])))
		}
	}
	return s
}

var secretName = regexp.MustCompile(`(^|[\s{\[,"'])(` + strings.Join(secretNames(reflect.TypeFor[Config]()), "|") + `)["']?\s*:`)

// secretNames are the keys at and below t whose values are secrets.
func secretNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		ft := f.Type
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		switch {
		case isSecret(ft):
			names = append(names, regexp.QuoteMeta(f.Tag.Get("yaml")))
		case ft.Kind() == reflect.Struct && f.Tag.Get("yaml") != "":
			names = append(names, secretNames(ft)...)
		}
	}
	return names
}

func isSecret(t reflect.Type) bool {
	return t == reflect.TypeFor[Secret]() || t == reflect.TypeFor[DSN]()
}

func (s *source) show(line, characters int) {
	if old, ok := s.shown[line]; !ok || characters < old {
		s.shown[line] = characters
	}
}

// hide hides a value, to the end of its last line, from the colon behind its
// key on; key may be nil.
func (s *source) hide(key *token.Token, n ast.Node) {
	first, last := span(n)
	if key != nil && key.Position != nil {
		first = key
	}
	if first == nil || first.Position == nil {
		return
	}
	line, visible := first.Position.Line, first.Position.Column-1
	if key != nil && line <= len(s.lines) {
		visible += len([]rune(key.Value))
		r := []rune(s.lines[line-1])
		for visible < len(r) && r[visible] != ':' {
			visible++
		}
		visible++
	}
	s.show(line, max(visible, 0))
	// The token behind the value bounds it: where a text of several lines
	// itself ends, its token does not tell.
	end, column := len(s.lines)+1, 0
	if last != nil && last.Next != nil && last.Next.Position != nil {
		end, column = last.Next.Position.Line, last.Next.Position.Column-1
	}
	for i := line + 1; i <= min(end, len(s.lines)); i++ {
		if i == end {
			r := []rune(s.lines[i-1])
			if strings.TrimSpace(string(r[:max(0, min(column, len(r)))])) == "" {
				break // the value ended before this line
			}
		}
		s.show(i, 0)
	}
}

// span is the first and the last token of a node.
func span(n ast.Node) (first, last *token.Token) {
	note := func(t *token.Token) {
		if t == nil || t.Position == nil {
			return
		}
		if first == nil || before(t, first) {
			first = t
		}
		if last == nil || before(last, t) {
			last = t
		}
	}
	ast.Walk(visitor(func(n ast.Node) {
		note(n.GetToken())
		switch x := n.(type) {
		case *ast.LiteralNode:
			note(x.Value.GetToken())
		case *ast.MappingNode:
			note(x.Start)
			note(x.End)
		case *ast.SequenceNode:
			note(x.Start)
			note(x.End)
		}
	}), n)
	return first, last
}

func before(a, b *token.Token) bool {
	if a.Position.Line != b.Position.Line {
		return a.Position.Line < b.Position.Line
	}
	return a.Position.Column < b.Position.Column
}

type visitor func(ast.Node)

func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}

// notYAML: without its structure nobody can tell which of a text is the value
// of a secret. When there is one, there are no excerpts.
func (s *source) notYAML() { s.silent = len(s.shown) > 0 }

// excerpt is a line, from 1, with a mask for what is hidden and for what else
// looks like a secret.
func (s *source) excerpt(line int) string {
	if s.silent || line < 1 || line > len(s.lines) {
		return ""
	}
	text := s.lines[line-1]
	if visible, ok := s.shown[line]; ok {
		r := []rune(text)
		text = strings.TrimRight(string(r[:min(visible, len(r))]), " \t")
		if text != "" {
			text += " "
		}
		text += mask
	}
	text = strings.TrimRight(redact(text), " \t\r")
	if r := []rune(text); len(r) > 120 {
		text = string(r[:120]) + "…"
	}
	return text
}

// Bounds of what is given to the YAML parser, whose time grows with the square
// of depth and of length; within them it takes a second or two at worst. No
// configuration needs a hundredth of either, but for relays, of which ten
// thousand fit.
const (
	maxDepth  = 100
	maxTokens = 20_000
)

// outOfBounds says where a text, line from 1, is more than the parser should be
// given, and how; 0 = nowhere.
func outOfBounds(text string) (line int, how string) {
	depth, items, count := 0, 0, 0
	for _, t := range lexer.Tokenize(text) {
		switch t.Type {
		case token.CommentType:
			continue
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType: // several in one line are nested
			items++
		}
		if t.Position.Line != line {
			line, items = t.Position.Line, 0
		}
		if count++; depth+items > maxDepth {
			return line, fmt.Sprintf("is nested more than %d levels deep here: no configuration needs that", maxDepth)
		}
		if count > maxTokens {
			return line, fmt.Sprintf("goes on here after %d words and signs: keep many relays in a file of their own, named in relay_files", maxTokens)
		}
	}
	return 0, ""
}
