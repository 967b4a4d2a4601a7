package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
)

// checkPrinter writes results as they come: a table, or JSON lines.
type checkPrinter struct {
	out      io.Writer
	progress io.Writer // nil = not a terminal
	json     bool
	width    int // of the URL column
	total    int
	done     int
	failed   int
	err      error // the first of writing
}

// maxURLColumn is how wide the URL column grows; longer URLs push their row.
const maxURLColumn = 48

func newCheckPrinter(out, progress io.Writer, asJSON bool, relays []monitor.RelayURL) *checkPrinter {
	p := &checkPrinter{out: out, json: asJSON, width: len("RELAY"), total: len(relays)}
	if isTerminal(progress) && len(relays) > 1 {
		p.progress = progress
	}
	for _, u := range relays {
		p.width = max(p.width, min(len(u), maxURLColumn))
	}
	if !asJSON {
		p.row("RELAY", "OUTCOME", "STAGE", "CAUSE", "DNS", "TCP", "TLS", "UPGRADE", "READ", "INFO", "EVIDENCE")
	}
	p.showProgress()
	return p
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

// print writes one result.
func (p *checkPrinter) print(o *monitor.Observation) {
	p.done++
	if !o.Outcome.Success() {
		p.failed++
	}
	p.clearProgress()
	if p.json {
		b, err := json.Marshal(newCheckResult(o))
		if err != nil && p.err == nil {
			p.err = err
		}
		p.write(string(b) + "\n")
	} else {
		cells := []string{string(o.Relay), o.Outcome.String(), dash(o.Stage.String()), dash(o.Cause.String())}
		for _, s := range []monitor.Stage{
			monitor.StageDNS, monitor.StageTCP, monitor.StageTLS, monitor.StageUpgrade, monitor.StageRead, monitor.StageInfo,
		} {
			cell := "-"
			if ms := millis(o.Times[s]); ms > 0 {
				cell = fmt.Sprint(ms)
			}
			cells = append(cells, cell)
		}
		p.row(append(cells, strings.Join(append([]string{o.Evidence}, remarks(o)...), "; "))...)
	}
	p.showProgress()
}

// end takes the progress line away and returns the first error of writing.
func (p *checkPrinter) end() error {
	p.clearProgress()
	return p.err
}

func (p *checkPrinter) showProgress() {
	if p.progress != nil && p.done < p.total {
		_, _ = fmt.Fprintf(p.progress, "\r%d of %d checked, %d not ok", p.done, p.total, p.failed)
	}
}

func (p *checkPrinter) clearProgress() {
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
	if o.TLS != nil && o.Outcome.Success() {
		if left := o.TLS.NotAfter.Sub(o.At); left < 14*day {
			out = append(out, fmt.Sprintf("tls: the certificate expires on %s", o.TLS.NotAfter.UTC().Format("2006-01-02 15:04 MST")))
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
}

func newCheckResult(o *monitor.Observation) checkResult {
	r := checkResult{
		URL: o.Relay, Outcome: o.Outcome, Stage: o.Stage, Cause: o.Cause, Evidence: o.Evidence,
		CheckedAt: o.At.UTC().Truncate(time.Millisecond),
		RTTOpen:   optionalMillis(o.RTTOpen), RTTRead: optionalMillis(o.RTTRead),
		Stages: map[string]int64{}, HTTP: o.HTTPStatus, Info: o.Info, TLS: o.TLS,
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

// isTerminal reports whether w is a device that a person looks at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}
