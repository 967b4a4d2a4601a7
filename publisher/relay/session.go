package relay

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Limits of one connection, announced in NIP-11 where it has a word for them.
const (
	maxSubID   = 64 // characters (NIP-01)
	maxFilters = 64 // of one REQ
)

// The texts that strangers get. Each begins with NIP-01's machine-readable
// word.
const (
	noEvents      = "restricted: this relay is read-only; it serves its own reports"
	noAuth        = "unsupported: nothing here needs AUTH"
	noNegentropy  = "blocked: negentropy is not served here; use REQ"
	noNegSession  = "closed: there is no such session"
	badSubID      = "invalid: a subscription id is a string of 1 to 64 characters without quotes, backslashes or control characters"
	badMessage    = "invalid: expected a JSON array that begins with REQ, COUNT, CLOSE, EVENT or AUTH"
	noFilter      = "invalid: a filter is missing"
	tooManyFilter = "invalid: too many filters in one request"
)

// answer handles one message of the client. Its error ends the connection;
// what the client did wrong is told to the client.
func (c *conn) answer(message []byte) error {
	// encoding/json refuses what is nested deeper than 10 000 levels.
	var parts []json.RawMessage
	var label string
	if json.Unmarshal(message, &parts) != nil || len(parts) == 0 || json.Unmarshal(parts[0], &label) != nil {
		return c.reply("NOTICE", badMessage)
	}
	switch label {
	case "REQ", "COUNT", "CLOSE", "NEG-OPEN", "NEG-MSG", "NEG-CLOSE":
		return c.subscriptionMessage(label, parts)
	case "EVENT":
		return c.reply("OK", eventID(parts), false, noEvents)
	case "AUTH":
		return c.reply("OK", eventID(parts), false, noAuth)
	}
	return c.reply("NOTICE", badMessage)
}

// eventID is the id that an OK must name; "" when the event has none.
func eventID(parts []json.RawMessage) string {
	var ev struct {
		ID string `json:"id"`
	}
	if len(parts) < 2 || json.Unmarshal(parts[1], &ev) != nil || len(ev.ID) > 64 {
		return ""
	}
	return ev.ID
}

func (c *conn) subscriptionMessage(label string, parts []json.RawMessage) error {
	var id string
	if len(parts) < 2 || json.Unmarshal(parts[1], &id) != nil {
		return c.reply("NOTICE", badSubID)
	}
	if !validSubID(id) {
		if len(id) > 4*maxSubID {
			return c.reply("NOTICE", badSubID)
		}
		return c.reply("CLOSED", id, badSubID)
	}
	switch label {
	case "CLOSE":
		c.unsubscribe(id)
		return nil
	case "NEG-OPEN":
		return c.reply("NEG-ERR", id, noNegentropy)
	case "NEG-MSG":
		return c.reply("NEG-ERR", id, noNegSession)
	case "NEG-CLOSE":
		return nil
	}
	problem := c.mayAsk()
	var filters []filter
	if problem == "" {
		filters, problem = parseFilters(parts[2:])
	}
	if problem != "" {
		if label == "REQ" {
			c.unsubscribe(id) // CLOSED ends what ran under this id (NIP-01)
		}
		return c.reply("CLOSED", id, problem)
	}
	if label == "COUNT" {
		return c.count(id, filters)
	}
	return c.request(id, filters)
}

func parseFilters(raw []json.RawMessage) (fs []filter, problem string) {
	switch {
	case len(raw) == 0:
		return nil, noFilter
	case len(raw) > maxFilters:
		return nil, tooManyFilter
	}
	fs = make([]filter, len(raw))
	for i := range raw {
		f, err := parseFilter(raw[i])
		if err != nil {
			return nil, err.Error()
		}
		fs[i] = f
	}
	return fs, ""
}

// validSubID: ids are written raw into every frame, so one that would need
// escaping is refused.
func validSubID(id string) bool {
	if id == "" || utf8.RuneCountInString(id) > maxSubID {
		return false
	}
	for _, r := range id {
		if r < 0x20 || r == 0x7f || r == '"' || r == '\\' || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// request opens a subscription: the stored events, newest first, one EOSE,
// then what is new. An open one of the same id is replaced.
func (c *conn) request(id string, filters []filter) error {
	if most := c.relay.settings.Load().maxSubs; !c.mayOpen(id, most) {
		c.relay.limited.Add(1)
		return c.reply("CLOSED", id, fmt.Sprintf("rate-limited: at most %d subscriptions are open at once on one connection; close one first", most))
	}
	s := &subscription{prefix: append(append([]byte(`["EVENT","`), id...), `",`...), filters: filters}
	// Registered within the turn, so that nothing new goes out before the
	// stored events and the EOSE.
	return c.send(func(w *writer) error {
		stored := c.relay.index.query(filters, w.now, func(version uint64, hidden bool) {
			s.version, s.blank = version, hidden
			c.subscribe(id, s)
		})
		for _, e := range stored {
			if err := w.event(s, e); err != nil {
				return err
			}
		}
		w.message("EOSE", id)
		return nil
	})
}

func (c *conn) count(id string, filters []filter) error {
	for i := range filters {
		filters[i].limit = -1 // how many there are, not how many would be sent
	}
	n := len(c.relay.index.query(filters, time.Now().Unix(), nil))
	return c.reply("COUNT", id, struct {
		Count int `json:"count"`
	}{n})
}

// mayAsk counts a REQ or COUNT; the text for the client if it was one too many.
func (c *conn) mayAsk() string {
	s := c.relay.settings.Load()
	if s.exempts(c.addr) {
		return ""
	}
	wait := c.relay.limits.request(c.visitor, s.perMinute, time.Now())
	if wait == 0 {
		return ""
	}
	c.relay.limited.Add(1)
	return fmt.Sprintf("rate-limited: at most %d requests a minute from one address; try again in %d s", s.perMinute, (wait+time.Second-1)/time.Second)
}

func (c *conn) mayOpen(id string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.subs[id]
	return open || len(c.subs) < most
}

func (c *conn) subscribe(id string, s *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	if old := c.subs[id]; old != nil {
		old.over.Store(true)
	}
	c.subs[id] = s
}

func (c *conn) unsubscribe(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.subs[id]; s != nil {
		s.over.Store(true)
		delete(c.subs, id)
	}
}
