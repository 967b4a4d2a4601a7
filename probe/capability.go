package probe

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// sampleLimit is how many events the day's question asks for, limitLimit
	// how many the one that is about the limit only.
	sampleLimit, limitLimit = 3, 2
	// recent is how far back COUNT and NEG-OPEN look, so that they cost the
	// relay next to nothing.
	recent = time.Minute
	// negentropy is a first message of NIP-77: version 1, and one range up to
	// infinity with the empty list of what we have.
	negentropy = "6100000200"
)

// capabilities asks what the relay can do. A refusal disproves a capability
// only where it says that the relay does not know the like; one for who asks,
// how often, or because something broke, tells nothing. The order is part of
// the proof: a relay that passes over COUNT or NEG-OPEN in silence, but answers
// what is asked after it, does not know it.
//
// A search is honoured where a relay that has notes finds none with a word that
// nobody wrote; an empty relay would say so to anything. What answers any
// question alike is asked nothing more: its answers prove nothing. NIP-42 is never
// disproved: many relays send a challenge only when somebody asks for what is
// not public.
func (in *inquiry) capabilities(ctx context.Context, events int, eose monitor.Finding) {
	a := in.a
	if in.over != nil || in.stop || !time.Now().Before(in.limit) {
		return
	}
	c := &monitor.Capabilities{EOSE: eose}
	a.obs.Capabilities = c
	if c.Filters = in.filters(ctx, events); c.Filters == monitor.FindingDisproved {
		return
	}
	now := time.Now()

	s := newSample(now)
	in.subscribe(ctx, s.question, `{"kinds":[1],"limit":`+strconv.Itoa(sampleLimit)+`,"until":`+strconv.FormatInt(s.until, 10)+`}`)

	since := strconv.FormatInt(now.Add(-recent).Unix(), 10)
	count := newQuestion(0)
	in.put(ctx, count, answerTime, `["COUNT","`, count.id, `",{"kinds":[1],"since":`, since, `}]`)

	neg := newQuestion(0)
	if in.put(ctx, neg, answerTime, `["NEG-OPEN","`, neg.id, `",{"kinds":[1],"limit":1,"since":`, since, `},"`, negentropy, `"]`) && neg.kind == messageNegMsg {
		in.held, in.neg = neg.id, true
	}

	word := strings.ToLower(rand.Text()) // that no note has
	search := newQuestion(0)
	found := false
	search.each = func(event json.RawMessage) { found = strings.Contains(strings.ToLower(string(event)), word) }
	in.subscribe(ctx, search, `{"kinds":[1],"limit":1,"search":"`+word+`"}`)

	// The last question is about the limit, and a sign of life for those that
	// were passed over; where both are known it is spared.
	limit := newQuestion(limitLimit)
	if s.limit() == monitor.FindingUnknown || count.kind == messageNone || neg.kind == messageNone {
		in.subscribe(ctx, limit, `{"kinds":[1],"limit":`+strconv.Itoa(limitLimit)+`}`)
	}

	if a.obs.AuthSeen {
		c.Auth = monitor.FindingConfirmed
	}
	c.Count = in.command(count, messageCount)
	c.Negentropy = in.command(neg, messageNegMsg)
	if neg.kind == messageNegErr { // an answer of NIP-77, unless it says that there is none
		c.Negentropy = monitor.FindingConfirmed
		if disowns(neg.reason) {
			c.Negentropy = monitor.FindingDisproved
		}
	}
	switch {
	case search.events > 0 && !found, search.refused():
		c.Search = monitor.FindingDisproved
	case search.events == 0 && search.kind == messageEOSE && events > 0:
		// It has notes, and none of them where none fits.
		c.Search = monitor.FindingConfirmed
	}
	c.Limit = strictest(s.limit(), within(limit))
	if events > 1 { // of the read, which asked for one
		c.Limit = monitor.FindingDisproved
	}
	c.Until, c.Sample = s.finding(), s.sum()
	if a.traced() {
		a.note(a.stage, "auth %s, COUNT %s, search %s, negentropy %s, EOSE %s, filters %s, limit %s, until %s, sample %q",
			c.Auth, c.Count, c.Search, c.Negentropy, c.EOSE, c.Filters, c.Limit, c.Until, c.Sample)
	}
}

// command judges a command that is answered by a message of its own.
func (in *inquiry) command(q *question, want messageKind) monitor.Finding {
	switch {
	case q.kind == want:
		return monitor.FindingConfirmed
	case q.refused(), in.passedOver(q):
		return monitor.FindingDisproved
	case q.kind == messageEvent, q.kind == messageEOSE: // it was taken for a REQ
		return monitor.FindingDisproved
	}
	return monitor.FindingUnknown
}

// disowns reports whether a NEG-ERR says that there is no NIP-77 here.
func disowns(reason string) bool {
	return closedCause(reason) == monitor.CauseUnsupported ||
		containsAny(reason, []string{"unsupported", "not support", "disabled", "not enabled", "not implemented"})
}

// within judges whether a relay keeps to the limit of a REQ.
func within(q *question) monitor.Finding {
	switch {
	case q.events > q.max:
		return monitor.FindingDisproved
	case q.events > 0 && q.kind == messageEOSE:
		return monitor.FindingConfirmed
	}
	return monitor.FindingUnknown
}

// strictest is what two tests of the same come to.
func strictest(a, b monitor.Finding) monitor.Finding { return max(a, b) }

// sample is the question of the day: what a relay had at midnight UTC, which
// is the same all day and from everywhere.
type sample struct {
	*question
	until    int64 // seconds
	newer    bool  // an event of a later time came
	readable bool  // all events had an id and a time
	hash     hash.Hash
}

func newSample(now time.Time) *sample {
	s := &sample{question: newQuestion(sampleLimit), until: now.UTC().Truncate(24 * time.Hour).Unix(), readable: true, hash: sha256.New()}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(s.until))
	s.hash.Write(b[:])
	s.each = s.event
	return s
}

func (s *sample) event(event json.RawMessage) {
	var e struct {
		ID        string `json:"id"`
		CreatedAt *int64 `json:"created_at"`
	}
	if json.Unmarshal(event, &e) != nil || e.CreatedAt == nil {
		s.readable = false
		return
	}
	s.newer = s.newer || *e.CreatedAt > s.until
	id, err := hex.DecodeString(e.ID)
	if err != nil || len(id) != sha256.Size {
		s.readable = false
		return
	}
	s.hash.Write(id)
}

func (s *sample) limit() monitor.Finding { return within(s.question) }

// finding judges whether the relay heeds until.
func (s *sample) finding() monitor.Finding {
	switch {
	case s.newer:
		return monitor.FindingDisproved
	case s.readable && s.events > 0 && s.kind == messageEOSE:
		return monitor.FindingConfirmed
	}
	return monitor.FindingUnknown
}

// sum is the first half of a SHA-256 over the time and the ids in order, in
// hex; "" where the relay served nothing, or not what was asked for.
func (s *sample) sum() string {
	if s.finding() != monitor.FindingConfirmed {
		return ""
	}
	return hex.EncodeToString(s.hash.Sum(nil)[:16])
}
