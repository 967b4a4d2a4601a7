package probe

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
)

// TraceKind says whose words a TraceEvent tells.
type TraceKind uint8

// The kinds.
const (
	TraceNote     TraceKind = iota // what the probe does or found
	TraceSent                      // what it sent
	TraceReceived                  // what came
)

// TraceEvent is one step of a probe, for a person.
type TraceEvent struct {
	Since time.Duration // since the probe started
	Stage monitor.Stage // that it belongs to
	Kind  TraceKind
	// Text is one line of valid UTF-8. Control and format characters are
	// escaped as Go writes them, frames and documents cut after 200 bytes, and
	// values of headers that may hold a credential and our own signatures left
	// out.
	Text string
}

// maxTraced bytes of a frame or a document are told.
const maxTraced = 200

// traced reports whether anybody wants to know. Whoever calls note, sent or
// received asks before, so that a probe without a trace builds no texts.
func (a *attempt) traced() bool { return a.req.Trace != nil }

func (a *attempt) tell(s monitor.Stage, k TraceKind, text string) {
	a.req.Trace(TraceEvent{Since: time.Since(a.obs.Start), Stage: s, Kind: k, Text: text})
}

func (a *attempt) note(s monitor.Stage, format string, args ...any) {
	a.tell(s, TraceNote, visible([]byte(fmt.Sprintf(format, args...)), 4*maxTraced))
}

// traceResolve tells what is asked of whom.
func (a *attempt) traceResolve() {
	who := "the system's resolver"
	if r, ok := a.c.resolver.(*directResolver); ok {
		servers := make([]string, len(r.servers))
		for i, s := range r.servers {
			servers[i] = s.String()
		}
		who = strings.Join(servers, ", ")
	}
	a.note(monitor.StageDNS, "ask %s for AAAA and A of %s", who, a.to.host)
}

func (a *attempt) traceAnswer(r answer) {
	switch {
	case len(r.addrs) > 0:
		texts := make([]string, len(r.addrs))
		for i, ip := range r.addrs {
			texts[i] = ip.Unmap().String()
		}
		a.note(monitor.StageDNS, "%s is at %s", a.to.host, strings.Join(texts, ", "))
	case r.err != nil:
		a.note(monitor.StageDNS, "no answer: %s", r.err)
	case r.exists:
		a.note(monitor.StageDNS, "the name exists, but has no address")
	default:
		a.note(monitor.StageDNS, "the name does not exist (NXDOMAIN)")
	}
}

// traceUsable tells which addresses are not dialled, and why.
func (a *attempt) traceUsable(addrs, usable []netip.Addr) {
	for _, ip := range addrs {
		ip = ip.Unmap()
		switch {
		case slices.Contains(usable, ip):
		case !a.c.permitted(ip):
			a.note(monitor.StageTCP, "%s is not a public address: not dialled", ip)
		case len(usable) >= maxAddresses:
			a.note(monitor.StageTCP, "%s is one more than are tried", ip)
		default:
			a.note(monitor.StageTCP, "%s is not of the family of the source address %s: not dialled", ip, a.c.cfg.SourceAddress)
		}
	}
}

// traceDial tells of one attempt to connect.
func (a *attempt) traceDial(d dialled, step dialStep) {
	switch {
	case step == dialBegins && a.way.proxy != nil:
		a.note(monitor.StageTCP, "dial %s through the proxy %s", d.addr, a.way.proxy.Address)
	case step == dialBegins:
		a.note(monitor.StageTCP, "dial %s", d.addr)
	case step == dialTooLate:
		a.note(monitor.StageTCP, "%s given up: another address was quicker", d.addr)
	case d.err != nil:
		a.note(monitor.StageTCP, "%s failed: %s", d.addr, d.err)
	default:
		a.note(monitor.StageTCP, "%s connected", d.addr)
	}
}

// traceTLS tells what a handshake came to.
func (a *attempt) traceTLS(facts *monitor.TLSFacts, err error) {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "the handshake failed: %s", err)
	} else if conn, ok := a.w.conn.(*tls.Conn); ok {
		state := conn.ConnectionState()
		fmt.Fprintf(&b, "%s, %s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite), state.CurveID)
	}
	a.note(monitor.StageTLS, "%s", b.String())
	if facts == nil {
		return
	}
	names := facts.Names
	more := ""
	if len(names) > 5 {
		names, more = names[:5], fmt.Sprintf(" and %d more", len(names)-5)
	}
	a.note(monitor.StageTLS, "certificate for %s%s, issued by %s, valid until %s",
		strings.Join(names, ", "), more, facts.Issuer, facts.NotAfter.Format("2006-01-02 15:04 MST"))
}

// traceRequest tells a request's first line and the names of its headers.
func (a *attempt) traceRequest(req []byte) {
	lines := bytes.Split(bytes.TrimSuffix(req, []byte("\r\n\r\n")), []byte("\r\n"))
	names := make([]string, 0, len(lines))
	for _, l := range lines[1:] {
		name, _, _ := bytes.Cut(l, []byte(":"))
		names = append(names, string(name))
	}
	a.tell(a.stage, TraceSent, visible(lines[0], 4*maxTraced))
	a.tell(a.stage, TraceSent, "headers "+strings.Join(names, ", "))
}

// traceHead tells one line of a response's head, n bytes long; one too long to
// be read has no text.
func (a *attempt) traceHead(line []byte, n int) {
	text := fmt.Sprintf("a header line of %d bytes, too long to be read", n)
	if len(line) > 0 {
		text = visible(maskHeader(line), 4*maxTraced)
	} else if n <= 2 {
		return // the end of the head
	}
	a.tell(a.stage, TraceReceived, text)
}

// secretHeaders are parts of the names of headers whose value may let somebody
// in.
var secretHeaders = []string{"cookie", "auth", "token", "secret", "session", "password", "passwd", "credential", "api-key", "apikey", "signature"}

// maskHeader hides what may be a secret in one line of a head.
func maskHeader(line []byte) []byte {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return line
	}
	lower := strings.ToLower(string(name))
	for _, s := range secretHeaders {
		if strings.Contains(lower, s) {
			return []byte(string(name) + ": ********")
		}
	}
	switch lower {
	case "location", "content-location", "refresh", "link":
		return []byte(string(name) + ": " + maskURL(strings.TrimSpace(string(value))))
	}
	return line
}

// maskURL leaves out of a URL what may hold a secret: user, query, fragment.
func maskURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "********"
	}
	hidden := ""
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		hidden = " (some of it left out)"
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment, u.Opaque = nil, "", "", "", ""
	return u.String() + hidden
}

// traceDate compares the relay's clock with ours; Date has whole seconds.
func (a *attempt) traceDate(now time.Time) {
	skew := a.obs.ServerDate.Sub(now)
	switch {
	case skew.Abs() < 2*time.Second:
		a.note(a.stage, "Date agrees with our clock")
	case skew > 0:
		a.note(a.stage, "Date is %s ahead of our clock", skew.Round(time.Second))
	default:
		a.note(a.stage, "Date is %s behind our clock", -skew.Round(time.Second))
	}
}

// frameNames are those of the opcodes.
var frameNames = map[byte]string{opText: "text", opBinary: "binary", opClose: "close", opPing: "ping", opPong: "pong"}

// traceFrame tells one frame, or one message of several.
func (a *attempt) traceFrame(k TraceKind, op byte, payload []byte) {
	text := frameNames[op]
	if op == opClose && len(payload) >= 2 {
		text += " " + strconv.Itoa(int(payload[0])<<8|int(payload[1]))
		payload = payload[2:]
	}
	if n := len(payload); n > 0 {
		if a.inquiry != nil {
			for _, s := range a.inquiry.signed { // an echo would tell it too
				payload = bytes.ReplaceAll(payload, []byte(s), []byte("********"))
			}
		}
		text = fmt.Sprintf("%s, %d bytes: %s", text, n, visible(payload, maxTraced))
	}
	a.tell(a.stage, k, text)
}

// traceInfo tells what NIP-11 came to.
func (a *attempt) traceInfo(info *monitor.Info) {
	if info.Problem != "" {
		a.note(monitor.StageInfo, "no NIP-11 document: %s", info.Problem)
		return
	}
	a.note(monitor.StageInfo, "NIP-11: name %q, software %q, version %q, NIPs %v", info.Name, info.Software, info.Version, info.NIPs)
}

// visible makes at most limit bytes of what may be anything fit for one line:
// what is no printable character is escaped.
func visible(b []byte, limit int) string {
	cut := ""
	if len(b) > limit {
		end := limit
		for end > limit-utf8.UTFMax && !utf8.RuneStart(b[end]) { // not through a character
			end--
		}
		b, cut = b[:end], "…"
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, b[0])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default: // control and format characters, and spaces that are none
			q := strconv.QuoteRune(r)
			out.WriteString(q[1 : len(q)-1])
		}
		b = b[n:]
	}
	return out.String() + cut
}
