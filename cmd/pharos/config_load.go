package main

import (
	"cmp"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Overrides are the flags that stand above file and environment; nil = not
// given.
type Overrides struct {
	DataDir, Listen, Relays *string
}

// loaded is a configuration and where its keys come from.
type loaded struct {
	Config
	file    string // "" = none was read
	origins map[string]origin
}

// loadConfig reads the configuration: the defaults, under the file, under the
// environment, under the flags. path is the --config flag; empty means
// $PHAROS_CONFIG, else ./pharos.yaml if it is there. The error is Problems,
// everything that is wrong at once.
func loadConfig(path string, environ []string, over Overrides) (*loaded, error) {
	env := pharosEnv(environ)
	l := &loaded{Config: Default(), origins: map[string]origin{}}
	var problems Problems

	path, required := cmp.Or(path, env["PHAROS_CONFIG"]), true
	if path == "" {
		path, required = "pharos.yaml", false
	}
	text := &source{}
	switch b, err := readRegular(path, maxConfigFile); {
	case err == nil:
		l.file = path
		text, l.origins, problems = decodeYAML(path, b, &l.Config)
	case required || !errors.Is(err, fs.ErrNotExist):
		return nil, Problems{{Source: path, Text: "cannot be read: " + reason(err)}}
	}
	problems = append(problems, l.readEnv(env)...)
	l.readFlags(over)

	broken := map[string]bool{}
	for _, p := range problems {
		broken[p.Key] = true
	}
	for _, found := range []Problems{laterFeatures(&l.Config), l.Validate()} {
		var fresh Problems
		for _, p := range found {
			if broken[p.Key] { // its value was not even read, or is refused already
				continue
			}
			l.locate(&p, text)
			fresh = append(fresh, p)
		}
		for _, p := range fresh {
			broken[p.Key] = true
		}
		problems = append(problems, fresh...)
	}
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	return l, nil
}

// locate says where the key of p got its value: its own place, or that of the
// list or section that holds it.
func (l *loaded) locate(p *Problem, text *source) {
	for key := p.Key; key != ""; {
		if o, ok := l.origins[key]; ok {
			p.Source, p.Line, p.Column = o.source, o.line, o.column
			if o.line > 0 {
				p.Excerpt = text.excerpt(o.line)
			}
			return
		}
		cut := strings.LastIndexAny(key, ".[")
		if cut < 0 {
			return
		}
		key = key[:cut]
	}
}

// Names in the environment that are no keys: where the file is, how to log, the
// key's password, a vantage's token, and what Kubernetes and Docker's links set for a service
// called pharos.
var notKeys = []string{"PHAROS_CONFIG", "PHAROS_LOG_LEVEL", "PHAROS_LOG_FORMAT", keyPasswordVariable, tokenVariable, "PHAROS_PORT"}

func pharosEnv(environ []string) map[string]string {
	env := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, "PHAROS_") {
			env[name] = value
		}
	}
	return env
}

func envName(key string) string {
	return "PHAROS_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// readEnv sets the keys that the environment names. Lists are separated by
// commas, or written as YAML like everything that is no plain value.
func (l *loaded) readEnv(env map[string]string) Problems {
	var problems Problems
	known := map[string]bool{}
	leaves(reflect.ValueOf(&l.Config).Elem(), "", func(key string, v reflect.Value) {
		name := envName(key)
		known[name] = true
		text, ok := env[name]
		if !ok {
			return
		}
		l.forget(key)
		l.origins[key] = origin{source: name}
		problems = append(problems, decodeEnv(name, key, text, v)...)
	})
	for name := range env {
		if known[name] || slices.Contains(notKeys, name) ||
			strings.HasPrefix(name, "PHAROS_PORT_") || strings.HasPrefix(name, "PHAROS_SERVICE_") {
			continue
		}
		best, distance := "", 4
		for k := range known {
			if d := editDistance(name, k); d < distance || d == distance && k < best {
				best, distance = k, d
			}
		}
		text := "is an unknown key"
		if best != "" {
			text += "; did you mean " + best + "?"
		}
		problems = append(problems, Problem{Source: "environment", Key: name, Text: text})
	}
	slices.SortFunc(problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Key, b.Key)) })
	return problems
}

func decodeEnv(name, key, text string, v reflect.Value) Problems {
	text = strings.TrimSpace(text)
	isList := v.Kind() == reflect.Slice || v.Type() == reflect.TypeFor[Builtin]()
	if !isList {
		if err := setText(v, text); err != nil {
			return Problems{{Source: name, Key: key, Text: quoteValue(v, text) + err.Error()}}
		}
		return nil
	}
	if text != "default" && !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	if line, how := outOfBounds(text); line > 0 {
		return Problems{{Source: name, Key: key, Text: how}}
	}
	parsed, err := parser.ParseBytes([]byte(text), 0)
	if err != nil || len(parsed.Docs) != 1 || parsed.Docs[0].Body == nil {
		return Problems{{Source: name, Key: key, Text: "is no list: write a,b"}}
	}
	d := &decoder{file: name, text: &source{}, origins: map[string]origin{}, anchors: map[string]ast.Node{}}
	d.value(parsed.Docs[0].Body, v, key)
	for i := range d.problems {
		d.problems[i].Line, d.problems[i].Column = 0, 0
	}
	return d.problems
}

// readFlags sets what the command line says.
func (l *loaded) readFlags(over Overrides) {
	set := func(key, flag string) {
		l.forget(key)
		l.origins[key] = origin{source: flag}
	}
	if over.DataDir != nil {
		l.DataDir = *over.DataDir
		set("data_dir", "--data-dir")
	}
	if over.Listen != nil {
		l.Listen = *over.Listen
		set("listen", "--listen")
	}
	if over.Relays != nil {
		l.RelayFiles = []string{*over.Relays}
		set("relay_files", "--relays")
	}
}

// forget takes the places of a key's items out: a higher source replaced them.
func (l *loaded) forget(key string) {
	for k := range l.origins {
		if k == key || strings.HasPrefix(k, key+"[") {
			delete(l.origins, k)
		}
	}
}
