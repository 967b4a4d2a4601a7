package nostr_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

func TestParseMessage(t *testing.T) {
	for text, want := range map[string]nostr.Message{
		`["EVENT","s",{"id":"x"}]`:           {Type: "EVENT", ID: "s", Event: []byte(`{"id":"x"}`)},
		` [ "EVENT" , "a\"b" , 7 , "more" ]`: {Type: "EVENT", ID: `a"b`, Event: []byte(`7`)},
		`["EOSE","s"]`:                       {Type: "EOSE", ID: "s"},
		`["CLOSED","s","error: no"]`:         {Type: "CLOSED", ID: "s", Text: "error: no"},
		`["CLOSED","s"]`:                     {Type: "CLOSED", ID: "s"},
		`["CLOSED","s",{}]`:                  {Type: "CLOSED", ID: "s"},
		`["NOTICE","hello"]`:                 {Type: "NOTICE", Text: "hello"},
		`["AUTH","challenge"]`:               {Type: "AUTH", Text: "challenge"},
		`["OK","e",true,""]`:                 {Type: "OK", ID: "e", Accepted: true},
		`["OK","e",false,"blocked: no"]`:     {Type: "OK", ID: "e", Text: "blocked: no"},
		`["COUNT","s",{"count":1}]`:          {Type: "COUNT"},
	} {
		got, err := nostr.ParseMessage([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "{}", "null", "[]", `[7]`, `[null]`, `"EVENT"`, `["EVENT"]`, `["EVENT","s"]`, `["EVENT",null,{}]`, `["EOSE",7]`, `["OK","e"]`, `["OK","e","true"]`, `["AUTH"]`, `["EOSE","s"]x`, `["EOSE","s"`} {
		if m, err := nostr.ParseMessage([]byte(text)); !errors.Is(err, nostr.ErrBadMessage) {
			t.Errorf("%s: %+v, error %v", text, m, err)
		}
	}
}
