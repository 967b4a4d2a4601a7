package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	// Source is the file, the environment variable or the flag that says it;
	// empty for a default.
	Source       string
	Line, Column int    // in a file, from 1; 0 = nowhere in particular
	Key          string // full path, "probe.timeouts.read"; empty for the file as a whole
	Text         string // what is wrong and what to do, without secrets
	Excerpt      string // the line of the file, secrets masked
}

// String is one line, and two more with the excerpt where there is one.
func (p Problem) String() string {
	var b strings.Builder
	if p.Source != "" {
		b.WriteString(p.Source)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	if p.Excerpt != "" {
		fmt.Fprintf(&b, "\n%6d | %s", p.Line, p.Excerpt)
	}
	return b.String()
}

// Problems is everything that is wrong with a configuration: an error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns them in the order of the file; those of environment and flags
// follow.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}
