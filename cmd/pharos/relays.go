package main

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

//go:embed relays.txt
var builtinRelays []byte

// junkLine is a line of a relay file that names no relay that can be watched.
type junkLine struct {
	File   string
	Line   int
	Reason string // the word of relay-url.md
	Words  string // the same as a phrase
}

// relayList is what the configuration says should be watched.
type relayList struct {
	Relays   []monitor.WatchedRelay // distinct; URL and Source are set
	Junk     []junkLine
	Repeated int // lines and entries that name a relay once more
	Excluded int // taken out by exclude
}

// errNothingToWatch: the configuration leaves no relay.
var errNothingToWatch = errors.New("there is no relay to watch: name some in relays or relay_files, take both out to watch the built-in list, or let discovery.enabled find some")

// relays reads the relays that the configuration names. Junk lines of a file
// are listed and skipped.
func (c *Config) relays() (*relayList, error) {
	l := &relayList{}
	seen := map[monitor.RelayURL]bool{}
	add := func(u monitor.RelayURL, source monitor.Source) {
		if seen[u] {
			l.Repeated++
			return
		}
		seen[u] = true
		l.Relays = append(l.Relays, monitor.WatchedRelay{URL: u, Source: source})
	}
	for _, s := range c.Relays {
		u, err := monitor.ParseRelayURL(s, c.Probe.AllowNetworks...)
		if err != nil {
			return nil, fmt.Errorf("relays: %w", err)
		}
		add(u, monitor.SourceConfig)
	}
	for _, name := range c.RelayFiles {
		f, err := openRegular(name, maxRelayFile)
		if err != nil {
			return nil, fmt.Errorf("relay file %q cannot be read: %s", name, reason(err))
		}
		err = readRelayLines(f, name, nil, c.Probe.AllowNetworks, func(u monitor.RelayURL) { add(u, monitor.SourceFile) }, &l.Junk)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("relay file %q cannot be read: %s", name, reason(err))
		}
	}
	if len(c.Relays) == 0 && len(c.RelayFiles) == 0 {
		err := readRelayLines(bytes.NewReader(builtinRelays), "built-in list", nil, nil, func(u monitor.RelayURL) { add(u, monitor.SourceBuiltin) }, &l.Junk)
		if err != nil {
			return nil, fmt.Errorf("read the built-in relay list: %w", err)
		}
	}
	c.dropExcluded(l)
	dropSlashTwins(l, seen)
	if len(l.Relays) == 0 && !c.Discovery.Enabled {
		return l, errNothingToWatch
	}
	return l, nil
}

// dropExcluded takes out what exclude names.
func (c *Config) dropExcluded(l *relayList) {
	excluded := map[monitor.RelayURL]bool{}
	for _, u := range c.excluded() {
		excluded[u] = true
	}
	kept := l.Relays[:0]
	for _, r := range l.Relays {
		if excluded[r.URL] {
			l.Excluded++
			continue
		}
		kept = append(kept, r)
	}
	l.Relays = kept
}

// dropSlashTwins keeps of wss://h/a and wss://h/a/ only the one without the
// slash (relay-url.md, Many URLs, one relay).
func dropSlashTwins(l *relayList, seen map[monitor.RelayURL]bool) {
	kept := l.Relays[:0]
	for _, r := range l.Relays {
		if bare, slash := strings.CutSuffix(string(r.URL), "/"); slash && seen[monitor.RelayURL(bare)] {
			l.Repeated++
			continue
		}
		kept = append(kept, r)
	}
	l.Relays = kept
}

// maxRelayLine bounds how much of one line is kept: longer ones are junk
// anyway (relay-url.md 1: 512 bytes).
const maxRelayLine = 4096

// readRelayLines reads one URL per line; # begins a comment, at the start of a
// line or after white space. More than maxRelayFile is an error. prepare, when
// not nil, changes a line before it is judged.
func readRelayLines(r io.Reader, name string, prepare func(string) string, allow []netip.Prefix, add func(monitor.RelayURL), junk *[]junkLine) error {
	return eachRelayLine(r, func(n int, line string) {
		text := stripComment(line)
		if text == "" {
			return
		}
		if prepare != nil {
			text = prepare(text)
		}
		u, err := monitor.ParseRelayURL(text, allow...)
		if err != nil {
			word, means := refusal(err)
			*junk = append(*junk, junkLine{File: name, Line: n, Reason: word, Words: means})
			return
		}
		add(u)
	})
}

// eachRelayLine calls fn with the number, from 1, and the text of each line, of
// which no more than maxRelayLine bytes. More than maxRelayFile is an error.
func eachRelayLine(r io.Reader, fn func(n int, line string)) error {
	in := bufio.NewReaderSize(&limitedReader{r: r, limit: maxRelayFile}, maxRelayLine)
	for n := 1; ; n++ {
		b, prefix, err := in.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line := string(b)
		for prefix { // the rest of a line that is too long by far
			if _, prefix, err = in.ReadLine(); err != nil {
				break
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		fn(n, line)
	}
}

func stripComment(line string) string {
	line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
	if strings.HasPrefix(line, "#") {
		return ""
	}
	for i := 1; i < len(line); i++ {
		if line[i] == '#' && (line[i-1] == ' ' || line[i-1] == '\t') {
			return strings.TrimSpace(line[:i])
		}
	}
	return line
}
