package relaytest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Note is an event that a Deep relay has.
type Note struct {
	ID        string `json:"id"`
	Kind      int    `json:"kind"`
	CreatedAt int64  `json:"created_at"`
	Content   string `json:"content"`
}

// Notes returns n notes of kind 1, the newest at t, each apart older than the
// one before.
func Notes(n int, t time.Time, apart time.Duration) []Note {
	out := make([]Note, n)
	for i := range out {
		out[i] = Note{ID: fmt.Sprintf("%064x", i+1), Kind: 1, CreatedAt: t.Add(-time.Duration(i) * apart).Unix(), Content: "what was for breakfast"}
	}
	return out
}

// NoInfoDocument as DeepOptions.Info is a relay without NIP-11.
const NoInfoDocument = "-"

// CloseConnection among DeepOptions.Replies ends the connection.
const CloseConnection = "close"

// DeepOptions says what a Deep relay has and where it is wrong. The zero value
// is an empty relay that is right in everything.
type DeepOptions struct {
	TLS   bool
	URL   monitor.RelayURL // of one that is only served by Serve
	Info  string           // the NIP-11 document; "" = InfoDocument
	Notes []Note           // newest first

	// AuthTo are the labels of the messages that need authentication (NIP-42).
	// The challenge comes at once (Greet), or with the refusal: before it, after
	// it (Late) or never (NoChallenge).
	AuthTo                   []string
	Greet, Late, NoChallenge bool
	// Expelled, when set, is the reason of the CLOSED to whoever has
	// authenticated.
	Expelled string

	// What it does not heed of a REQ.
	IgnoreLimit, IgnoreUntil, IgnoreSearch, IgnoreIDs, NoEOSE bool

	// Replies are sent in place of a real answer: by the label of the message,
	// and for a REQ also by what stands out in its filter: "REQ ids", "REQ
	// until", "REQ search", "REQ limit" (one above 1). An empty list is silence.
	// $ID stands for the id of the subscription or event, $SIG for the event's
	// signature, $MESSAGE for the message itself.
	Replies map[string][]string
}

// Deep is a relay that really answers: REQ by filter, COUNT, search, NEG-OPEN,
// AUTH and EVENT. It keeps nothing that is written to it.
type Deep struct {
	relay *Relay // nil = it listens nowhere
	opt   DeepOptions

	mu       sync.Mutex
	received []string
	faults   []string
	events   map[string]bool
}

// NewDeep returns a Deep relay that listens nowhere: its connections are those
// given to Serve.
func NewDeep(o DeepOptions) *Deep {
	if o.Info == "" {
		o.Info = InfoDocument
	}
	return &Deep{opt: o, events: make(map[string]bool)}
}

// StartDeep starts a Deep relay that stops with the test.
func StartDeep(tb testing.TB, o DeepOptions) *Deep {
	tb.Helper()
	d := NewDeep(o)
	d.relay = Start(tb, Options{TLS: o.TLS, Script: d.Serve})
	return d
}

// URL is the relay's URL.
func (d *Deep) URL() monitor.RelayURL {
	if d.relay == nil {
		return d.opt.URL
	}
	return d.relay.URL()
}

// Received returns the messages that came, in order.
func (d *Deep) Received() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.received)
}

// Faults returns what was wrong with them: events of bad signature, without
// expiration, or sent twice; answers to no challenge; subscriptions open beside
// each other.
func (d *Deep) Faults() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults)
}

func (d *Deep) fault(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// deepLink is one connection to a Deep relay.
type deepLink struct {
	*Deep
	link
	out       chan []byte // what is written
	challenge string
	asked     bool // the challenge was sent
	authed    bool
	open      []string // subscriptions
}

// Serve serves one connection until it ends or the relay ends it.
func (d *Deep) Serve(conn net.Conn) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		key := req.Header.Get("Sec-WebSocket-Key")
		if key == "" {
			answer := response("200 OK", "application/nostr+json", "", d.opt.Info)
			if d.opt.Info == NoInfoDocument {
				answer = response("404 Not Found", "text/plain", "", "not found")
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
			continue
		}
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		head := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
		if _, err := conn.Write([]byte(head)); err != nil {
			return
		}
		l := &deepLink{Deep: d, link: link{conn: conn, br: br}, challenge: strconv.FormatInt(time.Now().UnixNano(), 36), out: make(chan []byte, 64)}
		done := make(chan struct{})
		go func() { // so that it hears while it speaks
			defer close(done)
			for p := range l.out {
				if _, err := conn.Write(p); err != nil {
					conn.Close()
				}
			}
		}()
		l.websocket()
		close(l.out)
		<-done
		return
	}
}

// say sends text messages.
func (l *deepLink) say(texts ...string) {
	var out []byte
	for _, s := range texts {
		out = frame(out, opText, s)
	}
	l.out <- out
}

func (l *deepLink) ask() {
	l.asked = true
	l.say(`["AUTH","` + l.challenge + `"]`)
}

func (l *deepLink) websocket() {
	if l.opt.Greet {
		l.ask()
	}
	buf := make([]byte, 16<<10)
	for {
		op, msg, ok := l.frame(buf)
		if !ok {
			return
		}
		switch op {
		case opClose:
			l.out <- frame(nil, opClose, string(msg))
			return
		case opText:
			l.mu.Lock()
			l.received = append(l.received, string(msg))
			l.mu.Unlock()
			if !l.message(bytes.Clone(msg)) {
				return
			}
		}
	}
}

// deepFilter is what a Deep relay knows of filters.
type deepFilter struct {
	IDs     []string `json:"ids"`
	Kinds   []int    `json:"kinds"`
	Authors []string `json:"authors"`
	Since   *int64   `json:"since"`
	Until   *int64   `json:"until"`
	Limit   *int     `json:"limit"`
	Search  string   `json:"search"`
}

// shape is what stands out in a REQ.
func (f *deepFilter) shape() string {
	switch {
	case f.IDs != nil:
		return "REQ ids"
	case f.Search != "":
		return "REQ search"
	case f.Until != nil:
		return "REQ until"
	case f.Limit != nil && *f.Limit > 1:
		return "REQ limit"
	}
	return "REQ"
}

// message answers one message, and reports whether the connection goes on.
func (l *deepLink) message(msg []byte) bool {
	var parts []json.RawMessage
	var label, id string
	if json.Unmarshal(msg, &parts) != nil || len(parts) < 2 || json.Unmarshal(parts[0], &label) != nil {
		l.fault("no message: %s", msg)
		l.say(`["NOTICE","invalid: no message"]`)
		return true
	}
	var filter deepFilter
	var event *nostr.Event
	shape := label
	switch label {
	case "EVENT", "AUTH":
		var err error
		if event, err = nostr.Decode(parts[1]); err != nil {
			l.fault("%s: %s", label, err)
			return false
		}
		id = event.ID
	default:
		if json.Unmarshal(parts[1], &id) != nil {
			l.fault("no id: %s", msg)
			return false
		}
		if len(parts) > 2 && json.Unmarshal(parts[2], &filter) != nil {
			l.fault("no filter: %s", msg)
			return false
		}
		if label == "REQ" {
			shape = filter.shape()
			l.open = append(l.open, id)
			if len(l.open) > 1 {
				l.fault("%d subscriptions at once: %s", len(l.open), msg)
			}
		}
	}
	switch label {
	case "EVENT":
		l.judgeWrite(event)
	case "AUTH":
		l.judgeAuth(event)
	case "CLOSE":
		l.open = slices.DeleteFunc(l.open, func(s string) bool { return s == id })
		return true
	case "NEG-CLOSE":
		return true
	}
	if replies, ok := l.opt.Replies[shape]; ok {
		sig := ""
		if event != nil {
			sig = event.Sig
		}
		for _, s := range replies {
			if s == CloseConnection {
				return false
			}
			l.say(strings.NewReplacer("$ID", id, "$SIG", sig, "$MESSAGE", string(msg)).Replace(s))
			if strings.HasPrefix(s, `["CLOSED"`) {
				l.open = slices.DeleteFunc(l.open, func(s string) bool { return s == id })
			}
		}
		return true
	}
	if slices.Contains(l.opt.AuthTo, label) && !l.authed {
		l.demand(label, id)
		return true
	}
	switch label {
	case "REQ":
		if l.opt.Expelled != "" && l.authed {
			l.open = nil
			l.say(`["CLOSED","` + id + `","` + l.opt.Expelled + `"]`)
			return true
		}
		var out []string
		for _, n := range l.find(&filter) {
			body, _ := json.Marshal(n)
			out = append(out, `["EVENT","`+id+`",`+string(body)+`]`)
		}
		if !l.opt.NoEOSE {
			out = append(out, `["EOSE","`+id+`"]`)
		}
		l.say(out...)
	case "COUNT":
		l.say(fmt.Sprintf(`["COUNT",%q,{"count":%d}]`, id, len(l.find(&filter))))
	case "NEG-OPEN":
		var first string
		if len(parts) < 4 || json.Unmarshal(parts[3], &first) != nil {
			l.say(`["NEG-ERR","` + id + `","invalid: no first message"]`)
			return true
		}
		answer, err := reconcile(first, l.find(&filter))
		if err != nil {
			l.fault("NEG-OPEN: %s", err)
			l.say(`["NEG-ERR","` + id + `","invalid: ` + err.Error() + `"]`)
			return true
		}
		l.say(`["NEG-MSG","` + id + `","` + answer + `"]`)
	case "AUTH":
		l.authed = true
		l.say(`["OK","` + id + `",true,""]`)
	case "EVENT":
		l.say(`["OK","` + id + `",true,""]`)
	default:
		l.say(`["NOTICE","ERROR: bad msg: unknown cmd"]`)
	}
	return true
}

// demand refuses what needs authentication.
func (l *deepLink) demand(label, id string) {
	if !l.asked && !l.opt.Late && !l.opt.NoChallenge {
		l.ask()
	}
	refusal := `["CLOSED","` + id + `","auth-required: members only"]`
	if label == "EVENT" {
		refusal = `["OK","` + id + `",false,"auth-required: members only"]`
	}
	l.open = slices.DeleteFunc(l.open, func(s string) bool { return s == id })
	l.say(refusal)
	if !l.asked && !l.opt.NoChallenge {
		l.ask()
	}
}

func (l *deepLink) judgeWrite(ev *nostr.Event) {
	if err := nostr.Verify(ev); err != nil {
		l.fault("EVENT: %s", err)
	}
	now := time.Now()
	if at := nostr.Expiration(ev); !at.After(now) || at.After(now.Add(time.Hour)) {
		l.fault("EVENT: it expires at %s", at)
	}
	if ev.Kind < 20000 || ev.Kind > 29999 {
		l.fault("EVENT: kind %d is not ephemeral", ev.Kind)
	}
	l.mu.Lock()
	twice := l.events[ev.ID]
	l.events[ev.ID] = true
	l.mu.Unlock()
	if twice {
		l.fault("EVENT: %s came twice", ev.ID)
	}
}

func (l *deepLink) judgeAuth(ev *nostr.Event) {
	if err := nostr.Verify(ev); err != nil {
		l.fault("AUTH: %s", err)
	}
	if !l.asked || ev.Kind != 22242 || !has(ev, "challenge", l.challenge) || !has(ev, "relay", string(l.URL())) {
		l.fault("AUTH: kind %d with tags %s is no answer", ev.Kind, ev.Tags)
	}
	if l.authed {
		l.fault("AUTH: a second time")
	}
}

func has(ev *nostr.Event, name, value string) bool {
	return slices.ContainsFunc(ev.Tags, func(t nostr.Tag) bool { return len(t) == 2 && t[0] == name && t[1] == value })
}

// find returns the notes that a filter is after.
func (d *Deep) find(f *deepFilter) []Note {
	var out []Note
	for _, n := range d.opt.Notes {
		switch {
		case f.Limit != nil && len(out) >= *f.Limit && !d.opt.IgnoreLimit:
			return out
		case f.Kinds != nil && !slices.Contains(f.Kinds, n.Kind),
			f.IDs != nil && !d.opt.IgnoreIDs && !slices.Contains(f.IDs, n.ID),
			f.Authors != nil,
			f.Since != nil && n.CreatedAt < *f.Since,
			f.Until != nil && !d.opt.IgnoreUntil && n.CreatedAt > *f.Until,
			f.Search != "" && !d.opt.IgnoreSearch && !strings.Contains(n.Content, f.Search):
			continue
		}
		out = append(out, n)
	}
	return out
}

// reconcile answers a first message of negentropy (NIP-77) with all that we
// have, as one list; it must consist of whole ranges up to infinity.
func reconcile(first string, have []Note) (string, error) {
	in, err := hex.DecodeString(first)
	if err != nil || len(in) == 0 || in[0] != 0x61 {
		return "", fmt.Errorf("%q is no message of version 1", first)
	}
	in = in[1:]
	bad := false
	varint := func() (n uint64) {
		for len(in) > 0 {
			b := in[0]
			in = in[1:]
			if n = n<<7 | uint64(b&0x7f); b&0x80 == 0 {
				return n
			}
		}
		bad = true
		return 0
	}
	skip := func(n uint64) {
		if n > uint64(len(in)) {
			bad, n = true, uint64(len(in))
		}
		in = in[n:]
	}
	infinite := false
	for len(in) > 0 && !bad {
		infinite = varint() == 0
		skip(varint()) // the id's beginning
		switch varint() {
		case 0: // skip
		case 1: // fingerprint
			skip(16)
		case 2: // list of ids
			skip(32 * varint())
		default:
			bad = true
		}
	}
	if bad || !infinite {
		return "", fmt.Errorf("%q is not made of whole ranges", first)
	}
	out := []byte{0x61, 0, 0, 2}
	if len(have) >= 0x80 {
		return "", fmt.Errorf("%d events are too many for a test", len(have))
	}
	out = append(out, byte(len(have)))
	for _, n := range have {
		id, err := hex.DecodeString(n.ID)
		if err != nil {
			return "", fmt.Errorf("note %q: %w", n.ID, err)
		}
		out = append(out, id...)
	}
	return hex.EncodeToString(out), nil
}
