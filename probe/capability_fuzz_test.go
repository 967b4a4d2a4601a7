package probe

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// FuzzAnswer holds that no message crashes what judges answers, that what it
// says of one is what the read says of it, and that no answer turns a question
// into what it was not asked.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`["OK","id",true,""]`, `["OK","id",false,"blocked: x"]`, `["OK","id",null]`, `["OK","id","true"]`, `["OK"]`,
		`["COUNT","id",{"count":3}]`, `["COUNT","id",{"count":-3}]`, `["COUNT","id",{"count":1e400}]`, `["COUNT","id",[]]`,
		`["NEG-MSG","id","6100000200"]`, `["NEG-MSG","id",7]`, `["NEG-ERR","id","blocked: too big"]`, `["NEG-ERR","id"]`,
		`["EVENT","id",` + relaytest.Event + `]`, `["EVENT","id"]`, `["EVENT","id",{"created_at":1e99,"id":7}]`, `["EVENT",7,{}]`,
		`["EOSE","id"]`, `["CLOSED","id","unsupported: x"]`, `["NOTICE","ERROR: bad msg: unknown cmd"]`, `["AUTH","c"]`, `["AUTH",` + "\"\xff\"" + `]`, `[[["OK"]]]`, " [ \"EOSE\" , \"id\" ]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		r := readMessage(bytes.Clone(msg))
		kind, reason := parseMessage(bytes.Clone(msg), "id")
		if (kind == messageNone) != (r.kind == messageNone) {
			t.Errorf("kind %d, to the read %d", r.kind, kind)
		}
		if kind >= messageEvent && kind < messageAuth && (r.kind != kind || kind != messageEvent && r.text != reason) {
			t.Errorf("kind %d %q, to the read %d %q", r.kind, r.text, kind, reason)
		}
		q := &question{id: "id", max: 1}
		q.each = func(event json.RawMessage) {
			s := newSample(time.Unix(1_800_000_000, 0))
			s.event(event)
			if s.finding() == monitor.FindingConfirmed || s.sum() != "" {
				t.Error("confirmed without an end")
			}
		}
		for range 3 {
			q.take(&r)
			q.noticed(r.text)
		}
		if c := q.cause(); c < monitor.CauseAuthRequired || c > monitor.CauseDeclined {
			t.Errorf("a refusal became %s", c)
		}
		if q.refused() && q.kind != messageClosed && q.kind != messageNotice {
			t.Errorf("kind %d is a refusal", q.kind)
		}
		if s := reasonText(r.text); !utf8.ValidString(s) || len(s) > 200 || bytes.ContainsAny([]byte(s), "\r\n\x00\x1b") {
			t.Errorf("the reason is %q", s)
		}
	})
}
