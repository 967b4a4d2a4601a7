package world_test

import (
	"fmt"
	"strings"
)

// section is one "-- name --" part of an archive (the txtar format).
type section struct {
	name  string
	lines []line
}

// line is one line of a section without its comment; never empty.
type line struct {
	number int // in the file, from 1
	text   string
}

func (l line) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d (%s): %s", l.number, l.text, fmt.Sprintf(format, args...))
}

// parseArchive splits a txtar file into the text before its first section, and
// its sections. In a section "#" begins a comment.
func parseArchive(text string) (about string, sections []section) {
	for i, s := range strings.Split(text, "\n") {
		if name, ok := strings.CutPrefix(s, "-- "); ok && strings.HasSuffix(name, " --") {
			sections = append(sections, section{name: strings.TrimSpace(strings.TrimSuffix(name, "--"))})
			continue
		}
		if len(sections) == 0 {
			about += s + "\n"
			continue
		}
		s, _, _ = strings.Cut(s, "#")
		if s = strings.TrimSpace(s); s != "" {
			last := &sections[len(sections)-1]
			last.lines = append(last.lines, line{i + 1, s})
		}
	}
	return strings.TrimSpace(about), sections
}
