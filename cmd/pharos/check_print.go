package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/pharos-nostr/pharos/monitor"
)

// checkPrinter writes results as they come: a table, JSON lines, or with --debug
// what each probe did. It is safe for concurrent use.
type checkPrinter struct {
	mu       sync.Mutex
	out      io.Writer
	json     bool
	watching bool
	writing  bool      // the write test was asked for
	debug    io.Writer // where the transcripts go, nil = nowhere
	progress io.Writer // nil = nobody would see it
	width    int       // of the URL column
	total    int

	// Of the present round.
	began                 time.Time
	done, failed, changed int

	err error // the first of writing
}

// maxURLColumn is how wide the URL column grows; longer URLs push their row.
const maxURLColumn = 48

// progressFrom is with how many relays there is a progress line.
const progressFrom = 21

func newCheckPrinter(out, errs io.Writer, k *checkCmd, relays []monitor.RelayURL) *checkPrinter {
	p := &checkPrinter{out: out, json: k.JSON, watching: k.Watch != nil, writing: k.Write, width: len("RELAY"), total: len(relays)}
	switch {
	case k.Debug && k.JSON:
		p.debug = errs
	case k.Debug:
		p.debug = out
	}
	// JSON on a terminal is better off alone there.
	if isTerminal(errs) && !k.Debug && !(k.JSON && isTerminal(out)) && len(relays) >= progressFrom {
		p.progress = errs
	}
	for _, u := range relays {
		p.width = max(p.width, min(len(u), maxURLColumn))
	}
	if !p.json && p.debug == nil {
		p.row("RELAY", "OUTCOME", "STAGE", "CAUSE", "DNS", "TCP", "TLS", "UPGRADE", "READ", "INFO", "EVIDENCE")
	}
	return p
}

// beginRound is called before the probes of a round.
func (p *checkPrinter) beginRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began, p.done, p.failed, p.changed = time.Now(), 0, 0, 0
	p.showProgress()
}

// endRound sums up a whole round of several.
func (p *checkPrinter) endRound(number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eraseProgress()
	if p.json {
		return
	}
	change := ""
	if number > 1 {
		change = fmt.Sprintf(", %d changed", p.changed)
	}
	p.write(fmt.Sprintf("-- %s  round %d: %d of %d ok%s, %s\n", time.Now().Format(time.TimeOnly), number, p.done-p.failed, p.total, change, seconds(time.Since(p.began))))
}

// seconds is a duration for a person, in whole seconds once there are some.
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// row writes one aligned line; the times are in milliseconds.
func (p *checkPrinter) row(cells ...string) {
	widths := []int{p.width, 10, 7, 15, 5, 5, 5, 7, 5, 5, 0}
	var b strings.Builder
	for i, cell := range cells {
		pad := max(0, widths[i]-utf8.RuneCountInString(cell))
		switch {
		case i == len(cells)-1:
			b.WriteString(printable(cell))
		case i >= 4: // numbers stand to the right
			b.WriteString(strings.Repeat(" ", pad) + cell + "  ")
		default:
			b.WriteString(cell + strings.Repeat(" ", pad) + "  ")
		}
	}
	p.write(strings.TrimRight(b.String(), " ") + "\n")
}

func (p *checkPrinter) write(s string) {
	if _, err := io.WriteString(p.out, s); err != nil && p.err == nil {
		p.err = err
	}
}

// print writes one result; in a table of several rounds only one that changed.
func (p *checkPrinter) print(o *monitor.Observation, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if !o.Outcome.Success() {
		p.failed++
	}
	if changed {
		p.changed++
	}
	p.eraseProgress()
	if p.debug != nil {
		p.verdict(o)
	}
	switch {
	case p.json:
		b, err := json.Marshal(newCheckResult(o))
		if err != nil && p.err == nil {
			p.err = err
		}
		p.write(string(b) + "\n")
	case p.debug == nil && (changed || !p.watching):
		p.result(o)
	}
	p.showProgress()
}

// result writes one row of the table.
func (p *checkPrinter) result(o *monitor.Observation) {
	cells := []string{string(o.Relay), o.Outcome.String(), dash(o.Stage.String()), dash(o.Cause.String())}
	for _, s := range []monitor.Stage{
		monitor.StageDNS, monitor.StageTCP, monitor.StageTLS, monitor.StageUpgrade, monitor.StageRead, monitor.StageInfo,
	} {
		cell := "-"
		if ms := millis(o.Times[s]); ms > 0 {
			cell = strconv.FormatInt(ms, 10)
		}
		cells = append(cells, cell)
	}
	told := append([]string{o.Evidence}, remarks(o)...)
	if p.writing && o.Write == nil && o.Outcome.Success() {
		told = append(told, "write: not attempted")
	}
	p.row(append(cells, strings.Join(told, "; "))...)
}

// showProgress rewrites the progress line: "probed 120 of 600, 34 not ok, 12 s".
func (p *checkPrinter) showProgress() {
	if p.progress != nil && p.done < p.total {
		_, _ = fmt.Fprintf(p.progress, "\r\x1b[Kprobed %d of %d, %d not ok, %.0f s", p.done, p.total, p.failed, time.Since(p.began).Seconds())
	}
}

// clearProgress takes the progress line away.
func (p *checkPrinter) clearProgress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eraseProgress()
}

func (p *checkPrinter) eraseProgress() {
	if p.progress != nil {
		_, _ = io.WriteString(p.progress, "\r\x1b[K")
	}
}

// remarks are what a person may want to know beside the outcome.
func remarks(o *monitor.Observation) []string {
	var out []string
	if o.NoEOSE {
		out = append(out, "note: no_eose")
	}
	if o.Info != nil && o.Info.Problem != "" {
		out = append(out, "info: "+o.Info.Problem)
	}
	if w := o.Write; w != nil {
		text := "write: " + w.Result.String()
		if w.Reason != "" {
			text += ", " + w.Reason
		}
		out = append(out, text)
	}
	facts := monitor.Facts{DNS: o.DNS, Capabilities: o.Capabilities, CapabilitiesAt: o.At}
	if o.Outcome.Success() { // else the evidence tells of the certificate
		facts.TLS = o.TLS
	}
	out = append(out, facts.Warnings(o.Info, o.At)...)
	if c := o.Capabilities; c != nil {
		for _, f := range []monitor.Finding{monitor.FindingConfirmed, monitor.FindingDisproved} {
			if names := capabilities(c, f); len(names) > 0 {
				out = append(out, f.String()+": "+strings.Join(names, ", "))
			}
		}
	}
	return out
}

// capabilities names those of which f was found.
func capabilities(c *monitor.Capabilities, f monitor.Finding) []string {
	var out []string
	for _, n := range c.NIPs(f) {
		out = append(out, fmt.Sprintf("NIP-%d", n))
	}
	for _, x := range []struct {
		name    string
		finding monitor.Finding
	}{{"EOSE", c.EOSE}, {"filters", c.Filters}, {"limit", c.Limit}, {"until", c.Until}} {
		if x.finding == f {
			out = append(out, x.name)
		}
	}
	return out
}

// checkResult is one line of check --json.
type checkResult struct {
	URL       monitor.RelayURL  `json:"url"`
	Outcome   monitor.Outcome   `json:"outcome"`
	Stage     monitor.Stage     `json:"stage"`
	Cause     monitor.Cause     `json:"cause"`
	Evidence  string            `json:"evidence"`
	Note      string            `json:"note,omitempty"`
	CheckedAt time.Time         `json:"checked_at"`
	RTTOpen   *int64            `json:"rtt_open_ms"` // null = not measured
	RTTRead   *int64            `json:"rtt_read_ms"`
	Stages    map[string]int64  `json:"stages"` // ms by stage, those that were reached
	HTTP      int               `json:"http_status,omitempty"`
	Address   string            `json:"address,omitempty"`
	Info      *monitor.Info     `json:"info"`
	TLS       *monitor.TLSFacts `json:"tls"`

	RTTWrite     *int64                `json:"rtt_write_ms,omitempty"`
	Write        *monitor.WriteFacts   `json:"write,omitempty"`
	DNS          *monitor.DNSFacts     `json:"dns,omitempty"`
	Capabilities *monitor.Capabilities `json:"capabilities,omitempty"`
}

func newCheckResult(o *monitor.Observation) checkResult {
	r := checkResult{
		URL: o.Relay, Outcome: o.Outcome, Stage: o.Stage, Cause: o.Cause, Evidence: o.Evidence,
		CheckedAt: o.At.UTC().Truncate(time.Millisecond),
		RTTOpen:   optionalMillis(o.RTTOpen), RTTRead: optionalMillis(o.RTTRead),
		Stages: map[string]int64{}, HTTP: o.HTTPStatus, Info: o.Info, TLS: o.TLS,
		RTTWrite: optionalMillis(o.RTTWrite), Write: o.Write, DNS: o.DNS, Capabilities: o.Capabilities,
	}
	if o.NoEOSE {
		r.Note = "no_eose"
	}
	if o.Address.IsValid() {
		r.Address = o.Address.String()
	}
	for s, d := range o.Times {
		if ms := millis(d); ms > 0 {
			r.Stages[monitor.Stage(s).String()] = ms
		}
	}
	return r
}

// millis is whole milliseconds, at least 1 for what was measured (probe.md).
func millis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(1, d.Round(time.Millisecond).Milliseconds())
}

func optionalMillis(d time.Duration) *int64 {
	ms := millis(d)
	if ms == 0 {
		return nil
	}
	return &ms
}

// printable takes control characters out of what a relay may have said: they
// would reach the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// isTerminal reports whether w is a terminal that knows how to rewrite a line.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}
