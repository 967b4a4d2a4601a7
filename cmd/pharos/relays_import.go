package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

type relaysImportCmd struct {
	File   string `arg:"" help:"A list with one URL per line and # comments, or - for standard input."`
	DryRun bool   `help:"Only judge the lines; no running core is needed."`
	JSON   bool   `name:"json" help:"One JSON object per line: input, verdict, url, reason."`
	Note   string `help:"Why, in a line, for the record."`
}

// judgedLine is one line of a list and what was made of it.
type judgedLine struct {
	Input   string           `json:"input"`
	Verdict string           `json:"verdict"` // verdictOK or verdictReject
	URL     monitor.RelayURL `json:"url"`     // canonical; empty when rejected
	// Reason is the word of relay-url.md of what is rejected; and of what is
	// good, but was not added, the core's words.
	Reason string `json:"reason"`

	line  int
	words string // Reason as a phrase, of what is rejected
}

const (
	verdictOK     = "ok"
	verdictReject = "reject"
)

// maxToldLines bounds the rejected lines that are named one by one; --json
// names all.
const maxToldLines = 100

// Run judges each line and adds the relays of the good ones to the running
// core. Rejected lines are nothing unusual in a list: the exit status is 1 only
// when no line was good or the core did not take them.
func (k *relaysImportCmd) Run(ctx context.Context, c *command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	lines, err := k.read(c, cfg.Probe.AllowNetworks)
	if err != nil {
		return err
	}
	good := distinct(lines)
	var outcome map[string]adminResult
	var failure error
	if !k.DryRun && len(good) > 0 {
		ctx, stop := c.untilSignal(ctx)
		defer stop()
		outcome, failure = k.send(ctx, c, cfg, good)
	}
	if k.JSON {
		err = printJudged(c.stdout, lines, outcome)
	} else {
		err = k.summarise(c.stdout, lines, good, outcome)
	}
	switch {
	case failure != nil:
		return failure
	case err != nil:
		return exitf(exitStart, "the results could not be written: %s", reason(err))
	case len(good) == 0:
		return exitf(exitBad, "no line of %s names a relay", k.name())
	}
	return nil
}

func (k *relaysImportCmd) name() string {
	if k.File == "-" {
		return "standard input"
	}
	return k.File
}

// read judges the lines. Blank ones are judged as the others are; comments are
// none of the list.
func (k *relaysImportCmd) read(c *command, allow []netip.Prefix) ([]judgedLine, error) {
	in := c.stdin
	if k.File != "-" {
		f, err := os.Open(k.File) // a pipe of the shell's is fine here
		if err != nil {
			return nil, exitf(exitUsage, "%s cannot be read: %s", k.File, reason(err))
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	var lines []judgedLine
	err := eachRelayLine(in, func(n int, line string) {
		text := stripComment(line)
		if text == "" && strings.Contains(line, "#") {
			return
		}
		j := judgedLine{Input: line, Verdict: verdictOK, line: n}
		u, err := monitor.ParseRelayURL(text, allow...)
		if err != nil {
			j.Verdict = verdictReject
			j.Reason, j.words = refusal(err)
		}
		j.URL = u
		lines = append(lines, j)
	})
	if err != nil {
		return nil, exitf(exitUsage, "%s cannot be read: %s", k.name(), reason(err))
	}
	return lines, nil
}

// distinct are the relays of the good lines, each once, in their order.
func distinct(lines []judgedLine) []string {
	seen := map[monitor.RelayURL]bool{}
	var urls []string
	for _, j := range lines {
		if j.Verdict == verdictOK && !seen[j.URL] {
			seen[j.URL] = true
			urls = append(urls, string(j.URL))
		}
	}
	return urls
}

// send adds the relays to the core, in requests of a bounded size, and returns
// what came of each so far. On a terminal it tells how far it is.
func (k *relaysImportCmd) send(ctx context.Context, c *command, cfg *loaded, urls []string) (map[string]adminResult, error) {
	core, err := c.core(cfg, true)
	if err != nil {
		return nil, err
	}
	outcome := make(map[string]adminResult, len(urls))
	for sent := 0; sent < len(urls); {
		part := sendable(urls[sent:])
		var answer adminResults
		if err := core.post(ctx, "/v1/admin/relays", adminRequest{Add: part, Note: k.Note}, &answer); err != nil {
			if sent == 0 {
				return outcome, err
			}
			return outcome, exitf(exitBad, "%s\n%d of %d relays were sent before; import the list again to go on", err, sent, len(urls))
		}
		for _, r := range answer.Results {
			outcome[cmp.Or(r.URL, r.Input)] = r
		}
		sent += len(part)
		if isTerminal(c.stderr) && len(urls) > maxSentRelays {
			_, _ = fmt.Fprintf(c.stderr, "%d of %d relays sent\n", sent, len(urls))
		}
	}
	return outcome, nil
}

// sendable is the longest beginning of urls that one request may hold.
func sendable(urls []string) []string {
	size := 0
	for i, u := range urls {
		if size += len(u) + 3; i == maxSentRelays || size > maxSentBytes { // quotes and comma
			return urls[:i]
		}
	}
	return urls
}

func printJudged(w io.Writer, lines []judgedLine, outcome map[string]adminResult) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range lines {
		j := lines[i]
		if r, ok := outcome[string(j.URL)]; ok && !r.Done {
			j.Reason = r.Reason
		}
		if err := enc.Encode(&j); err != nil {
			return err
		}
		if b.Len() > 1<<16 || i == len(lines)-1 {
			if _, err := io.WriteString(w, b.String()); err != nil {
				return err
			}
			b.Reset()
		}
	}
	return nil
}

// summarise names the rejected lines and counts the rest.
func (k *relaysImportCmd) summarise(w io.Writer, lines []judgedLine, good []string, outcome map[string]adminResult) error {
	var errs []error
	say := func(format string, args ...any) {
		_, err := fmt.Fprintf(w, format, args...)
		errs = append(errs, err)
	}
	rejected, repeated := 0, -len(good)
	for _, j := range lines {
		switch {
		case j.Verdict == verdictOK:
			repeated++
		case strings.TrimSpace(j.Input) == "": // as good as no line
		default:
			if rejected++; rejected <= maxToldLines {
				say("%s:%d: skipped, %s: %s\n", k.name(), j.line, j.Reason, j.words)
			}
		}
	}
	if rejected > maxToldLines {
		say("and %d lines more; --json names all\n", rejected-maxToldLines)
	}
	if k.DryRun {
		say("%s could be added", counted(len(good), "relay", "relays"))
	} else {
		added, why := 0, map[string]int{}
		for _, r := range outcome {
			if r.Done {
				added++
			} else {
				why[r.Reason]++
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(why)) {
			n, text := why[reason], reason
			if verb, _, _ := strings.Cut(reason, " "); verb == "is" || verb == "has" { // of the relay
				if text = "it " + reason; n > 1 {
					text = "each " + reason
				}
			}
			say("%s not added: %s\n", counted(n, "relay", "relays"), text)
		}
		say("%s added", counted(added, "relay", "relays"))
	}
	if repeated > 0 {
		say(", %s once more what stood before", counted(repeated, "line named", "lines named"))
	}
	say(", %s skipped\n", counted(rejected, "line", "lines"))
	return errors.Join(errs...)
}
