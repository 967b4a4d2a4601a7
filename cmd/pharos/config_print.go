package main

import (
	"encoding"
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
)

type configCmd struct {
	Check  configCheckCmd  `cmd:"" help:"Say everything that is wrong with the configuration."`
	Print  configPrintCmd  `cmd:"" help:"Print the configuration as it stands, secrets masked."`
	Reload configReloadCmd `cmd:"" help:"Make the running process read its configuration again: all of it or, when anything is wrong, nothing."`
}

type configCheckCmd struct{}

// Run loads the configuration as serve does and says what is wrong with it:
// all of it at once, exit status 2. Junk lines of relay files are named, but
// they stop nothing.
func (configCheckCmd) Run(c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	list, err := cfg.relays()
	for _, j := range list.junk() {
		_, _ = fmt.Fprintf(c.stdout, "%s:%d: skipped, %s: %s\n", j.File, j.Line, j.Reason, j.Words)
	}
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if _, err := openPlaces(&cfg.Config); err != nil {
		return exitWith(exitUsage, err)
	}
	from := cfg.file
	if from == "" {
		from = "built-in defaults"
	}
	_, err = fmt.Fprintf(c.stdout, "%s: fine, %s to watch\n", from, counted(len(list.Relays), "relay", "relays"))
	return err
}

// junk is nil-safe: there may be no list at all.
func (l *relayList) junk() []junkLine {
	if l == nil {
		return nil
	}
	return l.Junk
}

type configPrintCmd struct{}

// Run prints the configuration as YAML that can be read back, but for secrets.
func (configPrintCmd) Run(c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	from := cfg.file
	if from == "" {
		from = "none, built-in defaults"
	}
	dir := cfg.dataDir(os.Getuid())
	key, _ := cfg.keyPlace(dir, c.environ)
	_, _ = fmt.Fprintf(c.stdout, "# file: %s\n# data directory: %s\n# key: %s\n", from, dir, key)
	return printConfig(c.stdout, &cfg.Config)
}

// printConfig writes every key of c in the order of the schema.
func printConfig(w io.Writer, c *Config) error {
	var b strings.Builder
	printSection(&b, reflect.ValueOf(*c), "")
	_, err := io.WriteString(w, b.String())
	return err
}

func printSection(b *strings.Builder, v reflect.Value, indent string) {
	for i := range v.NumField() {
		key, f := v.Type().Field(i).Tag.Get("yaml"), v.Field(i)
		switch {
		case f.Kind() == reflect.Struct && !isText(f) && f.Type() != reflect.TypeFor[Builtin]():
			fmt.Fprintf(b, "%s%s:\n", indent, key)
			printSection(b, f, indent+"  ")
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Type().Elem().Kind() == reflect.Struct && !isText(f.Index(0)):
			fmt.Fprintf(b, "%s%s:\n", indent, key)
			for j := range f.Len() {
				var item strings.Builder
				printSection(&item, f.Index(j), indent+"    ")
				b.WriteString(indent + "  - " + strings.TrimLeft(item.String(), " "))
			}
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, key, printValue(f))
		}
	}
}

// printValue is one scalar or a list of scalars.
func printValue(v reflect.Value) string {
	if b, ok := v.Interface().(Builtin); ok {
		if b.Default {
			return "default"
		}
		return printValue(reflect.ValueOf(b.List))
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = printValue(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	switch x := v.Interface().(type) {
	case Duration:
		return x.String()
	case netip.Prefix:
		return strconv.Quote(x.String())
	case encoding.TextMarshaler: // secrets mask themselves
		text, _ := x.MarshalText()
		return strconv.Quote(string(text))
	case string:
		return strconv.Quote(x)
	}
	return fmt.Sprint(v.Interface())
}
