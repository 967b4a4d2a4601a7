package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
)

// beginTranscript begins the transcript of one probe and returns what takes its
// steps. Where several relays are probed each line names its own.
func (p *checkPrinter) beginTranscript(u monitor.RelayURL) func(probe.TraceEvent) {
	if p.total == 1 {
		p.mu.Lock()
		p.tell(string(u) + "\n")
		p.mu.Unlock()
	}
	return func(e probe.TraceEvent) {
		p.mu.Lock()
		defer p.mu.Unlock()
		mark := " "
		switch e.Kind {
		case probe.TraceSent:
			mark = ">"
		case probe.TraceReceived:
			mark = "<"
		case probe.TraceNote:
		}
		p.step(u, e.Since, e.Stage.String(), mark, e.Text)
	}
}

// verdict ends the transcript of one probe.
func (p *checkPrinter) verdict(o *monitor.Observation) {
	text := o.Outcome.String()
	if o.Cause != monitor.CauseNone {
		text += " (" + o.Cause.String() + ")"
	}
	if o.Stage != monitor.StageNone {
		text += " at " + o.Stage.String()
	}
	text += ": " + strings.Join(append([]string{o.Evidence}, remarks(o)...), "; ")
	if o.RTTOpen > 0 {
		text += fmt.Sprintf("; open %d ms", millis(o.RTTOpen))
	}
	if o.RTTRead > 0 {
		text += fmt.Sprintf(", read %d ms", millis(o.RTTRead))
	}
	p.step(o.Relay, o.At.Sub(o.Start), "verdict", "=", text)
}

// step writes one line: when, where, whose words, and what.
func (p *checkPrinter) step(u monitor.RelayURL, since time.Duration, stage, mark, text string) {
	name := ""
	if p.total > 1 {
		name = fmt.Sprintf("%-*s  ", p.width, u)
	}
	p.tell(fmt.Sprintf("%s%9.1f ms  %-7s %s %s\n", name, float64(since)/float64(time.Millisecond), stage, mark, printable(text)))
}

func (p *checkPrinter) tell(s string) {
	if _, err := io.WriteString(p.debug, s); err != nil && p.err == nil {
		p.err = err
	}
}
