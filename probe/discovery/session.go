package discovery

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coder/websocket"

	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/ratelimit"
)

const (
	dialLimit  = 30 * time.Second
	writeLimit = 10 * time.Second
	authLimit  = 10 * time.Second
	// maxMessage is the largest message that is looked at, bytes: an event and
	// what is around it. maxRead is the largest that the connection survives;
	// what is between both is read past.
	maxMessage = maxEvent + 1<<10
	maxRead    = 4 << 20
	// maxShown is what a problem repeats of a source's text, characters.
	maxShown = 120
)

// lostError: the connection is over, without a word about the subscription.
type lostError struct {
	text  string
	never bool // it never stood
}

func (e *lostError) Error() string { return e.text }

// errDone ends a connection when there is nothing more to ask for.
var errDone = errors.New("done")

// session asks one source for one page at a time.
type session struct {
	r      *reading
	subs   *ratelimit.Subscriptions
	conn   atomic.Pointer[websocket.Conn]
	nonce  string
	page   int
	filter atomic.Pointer[request]

	mu sync.Mutex
	// end ends the connection that stands.
	end context.CancelCauseFunc
	// idle ends it too, unless something comes; resting: nothing is asked for.
	idle      *time.Timer
	resting   bool
	challenge string
	oks       map[string]chan error // of the AUTH events that wait for their OK
}

// request is the page that is asked for.
type request struct {
	id    string
	Kinds []int `json:"kinds"`
	Limit int   `json:"limit"`
	Since int64 `json:"since,omitempty"`
	Until int64 `json:"until"`
}

func newSession(r *reading) *session {
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	s := &session{r: r, nonce: hex.EncodeToString(nonce[:]), oks: map[string]chan error{}}
	cfg := ratelimit.Config{Send: s.send, Surface: s.surface}
	if r.cfg.Key.Pubkey() != "" {
		cfg.Authenticate = s.authenticate
	}
	s.subs = ratelimit.NewSubscriptions(cfg)
	return s
}

// turn asks for the page that the pager is at. If that cannot be sent, the next
// connection does.
func (s *session) turn() {
	s.page++
	req := &request{
		id: s.nonce + "-" + strconv.Itoa(s.page), Kinds: s.r.cfg.Kinds, Limit: s.r.cfg.PageSize,
		Since: s.r.since, Until: s.r.pages.until,
	}
	s.filter.Store(req)
	_ = s.subs.Register(req.id, true)
}

// send writes the REQ of a page.
func (s *session) send(ctx context.Context, id string, _ int64) error {
	req := s.filter.Load()
	if req.id != id {
		return nil // it was turned over
	}
	msg, err := json.Marshal([]any{"REQ", id, req})
	if err != nil {
		return fmt.Errorf("encode a REQ: %w", err)
	}
	s.expect()
	return s.write(ctx, msg)
}

// write sends one message over the connection that stands.
func (s *session) write(ctx context.Context, msg []byte) error {
	conn := s.conn.Load()
	// ctx is that of one connection; an ended one must not touch the next.
	if conn == nil || ctx.Err() != nil {
		return errors.New("the connection is over")
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, msg)
}

// connection reads pages over one connection. nil = everything was read; a
// lostError = another connection may go on.
func (s *session) connection(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	conn, err := s.dial(ctx, cancel)
	if err != nil {
		return err
	}
	conn.SetReadLimit(maxRead)
	idle := time.AfterFunc(s.r.cfg.IdleLimit, func() { cancel(errSilent) })
	defer idle.Stop()
	s.mu.Lock()
	s.end, s.idle, s.resting, s.challenge = cancel, idle, false, ""
	s.mu.Unlock()
	s.conn.Store(conn)
	s.subs.Ready()
	err = s.listen(ctx, conn)
	s.conn.Store(nil)
	s.rest(err) // asks the gate, which is reset now
	s.subs.Disconnected()
	if errors.Is(err, errDone) && ctx.Err() == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "") // waits 5 s at most
		return nil
	}
	_ = conn.CloseNow()
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// dial opens the connection; ctx is that connection's.
func (s *session) dial(ctx context.Context, cancel context.CancelCauseFunc) (*websocket.Conn, error) {
	timer := time.AfterFunc(dialLimit, func() { cancel(errSilent) })
	defer timer.Stop()
	header := http.Header{}
	header.Set("User-Agent", s.r.cfg.UserAgent)
	conn, resp, err := websocket.Dial(ctx, string(s.r.source.url), &websocket.DialOptions{HTTPClient: s.r.cfg.Client, HTTPHeader: header})
	if err == nil {
		return conn, nil
	}
	if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			s.r.restUntil(retryAfter(resp.Header.Get("Retry-After"), time.Now()))
		}
		return nil, problemf("it answered the upgrade with HTTP %d", resp.StatusCode)
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errSilent) {
			return nil, &lostError{fmt.Sprintf("it could not be connected to within %s", dialLimit), true}
		}
		return nil, cause
	}
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err // without the request that we sent
	}
	return nil, &lostError{"it could not be connected to: " + shown(err.Error()), true}
}

// retryAfter reads the header of that name: seconds, or a time of HTTP.
func retryAfter(text string, now time.Time) time.Time {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 63); err == nil {
		return now.Add(time.Duration(min(seconds, uint64(maxRest/time.Second))) * time.Second)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// restUntil notes when the source may be asked again, maxRest from now at most.
func (r *reading) restUntil(at time.Time) {
	now := time.Now()
	if !at.After(now) {
		return
	}
	if most := now.Add(maxRest); at.After(most) {
		at = most
	}
	r.result.RestUntil, r.source.rest = at, at
}

// rest notes that the source limits us, where it was that which ended it.
func (s *session) rest(err error) {
	var refused *refusedError
	if errors.As(err, &refused) {
		s.r.restUntil(time.Now().Add(s.subs.Gate().Remaining()))
	}
}

// listen reads messages until the connection or the reading is over.
func (s *session) listen(ctx context.Context, conn *websocket.Conn) error {
	buf := make([]byte, 0, 4<<10)
	for {
		msg, size, err := receive(ctx, conn, buf[:0])
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return lost(err)
		}
		buf = msg
		s.heard()
		if err := s.message(ctx, msg, size); err != nil {
			return err
		}
	}
}

// receive reads one message into buf; of one that is larger than maxMessage only
// so much as shows that.
func receive(ctx context.Context, conn *websocket.Conn, buf []byte) (msg []byte, size int64, err error) {
	_, r, err := conn.Reader(ctx)
	if err != nil {
		return buf, 0, err
	}
	for len(buf) <= maxMessage {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, int64(len(buf)), nil
		}
		if err != nil {
			return buf, int64(len(buf)), err
		}
	}
	past, err := io.Copy(io.Discard, r)
	return buf, int64(len(buf)) + past, err
}

// lost says how a connection ended.
func lost(err error) error {
	var bye websocket.CloseError
	if errors.As(err, &bye) {
		text := fmt.Sprintf("it closed the connection with code %d", bye.Code)
		if bye.Reason != "" {
			text += ": " + shown(bye.Reason)
		}
		return &lostError{text: text}
	}
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return &lostError{text: "it sent a message of over 4 MB"}
	}
	return &lostError{text: "the connection broke off"}
}

// message takes what the source said. An error ends the connection.
func (s *session) message(ctx context.Context, msg []byte, size int64) error {
	r := s.r
	if err := r.spend(size); err != nil {
		return err
	}
	if len(msg) > maxMessage {
		r.count(ignoredTooLarge)
		return nil
	}
	m, err := nostr.ParseMessage(msg)
	if err != nil {
		r.count(ignoredMalformed)
		return nil
	}
	id := s.filter.Load().id
	switch m.Type {
	case "EVENT":
		if m.ID != id {
			r.count(ignoredNotAsked)
			return nil
		}
		return r.event(ctx, m.Event)
	case "EOSE":
		if m.ID == id {
			return s.eose(ctx, id)
		}
	case "CLOSED":
		return s.refused(ctx, m.ID, m.Text, m.ID == id)
	case "NOTICE":
		if _, refused := s.subs.Notice(m.Text); refused {
			// Only one subscription is open, which may get no other answer (S62).
			return s.refused(ctx, id, m.Text, true)
		}
	case "AUTH":
		s.mu.Lock()
		s.challenge = m.Text
		s.mu.Unlock()
	case "OK":
		s.ok(m)
	}
	return nil
}

// eose turns the page.
func (s *session) eose(ctx context.Context, id string) error {
	s.r.result.Pages++
	s.subs.EOSE(id)
	s.subs.Unregister(id)
	if msg, err := json.Marshal([]string{"CLOSE", id}); err == nil {
		_ = s.write(ctx, msg) // the next read tells if it is over
	}
	if !s.r.pages.next() {
		return errDone
	}
	s.turn()
	return nil
}

// refusedError: the source refused, and is not to be asked again in this sweep.
type refusedError struct{ problem }

func (e *refusedError) Unwrap() error { return &e.problem }

// refused takes a CLOSED, or a NOTICE that means the same.
func (s *session) refused(ctx context.Context, id, text string, ours bool) error {
	if ours {
		s.pause()
	}
	refusal := s.subs.Closed(id, text)
	if cause := context.Cause(ctx); cause != nil { // it was surfaced
		return cause
	}
	deadline, ok := ctx.Deadline()
	if left := s.subs.Gate().Remaining(); ok && left > 0 && left >= time.Until(deadline) {
		// The sweep is over before it may be asked again.
		s.surface(id, refusal)
		return context.Cause(ctx)
	}
	return nil
}

// surface ends the connection, and with it the reading of this source.
func (s *session) surface(_ string, refusal ratelimit.Refusal) {
	s.r.mu.Lock()
	s.r.refusals[refusal.Label()]++
	s.r.mu.Unlock()
	text := "it refused"
	if refusal.Text != "" {
		text += ": " + shown(refusal.Text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(&refusedError{problem{text: text}})
}

// expect begins the wait for an answer.
func (s *session) expect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = false
	s.idle.Reset(s.r.cfg.IdleLimit)
}

// heard begins it anew, unless nothing is asked for.
func (s *session) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.resting {
		s.idle.Reset(s.r.cfg.IdleLimit)
	}
}

// pause ends the wait for an answer until a REQ is sent again.
func (s *session) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting = true
	s.idle.Stop()
}

// authenticate answers the source's challenge (NIP-42).
func (s *session) authenticate(ctx context.Context) error {
	s.mu.Lock()
	challenge := s.challenge
	s.mu.Unlock()
	if challenge == "" {
		return errors.New("there is no challenge to answer")
	}
	ev := &nostr.Event{
		Kind: 22242, CreatedAt: nostr.Timestamp(time.Now().Unix()),
		Tags: nostr.Tags{{"relay", string(s.r.source.url)}, {"challenge", challenge}},
	}
	if err := s.r.cfg.Key.Sign(ev); err != nil {
		return fmt.Errorf("answer a challenge: %w", err)
	}
	msg, err := json.Marshal([]any{"AUTH", ev})
	if err != nil {
		return fmt.Errorf("answer a challenge: %w", err)
	}
	answer := make(chan error, 1)
	s.mu.Lock()
	s.oks[ev.ID] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.oks, ev.ID)
		s.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, authLimit)
	defer cancel()
	if err := s.write(ctx, msg); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ok hands an OK to whoever waits for it.
func (s *session) ok(m nostr.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.oks[m.ID]
	if answer == nil {
		return
	}
	delete(s.oks, m.ID)
	var err error
	if r := ratelimit.ClassifyOK(m.Accepted, m.Text); r.Action != ratelimit.Success {
		err = errors.New("it does not accept our key")
	}
	answer <- err
}

// shown makes a source's text fit for a sentence.
func shown(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(text); len(runes) > maxShown {
		text = string(runes[:maxShown]) + "…"
	}
	return text
}
