package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/publisher/relay"
)

var nobody = []netip.Prefix{}

// named takes the address from a header that only these tests know.
func named(req *http.Request) netip.Addr {
	a, _ := netip.ParseAddr(req.Header.Get("Test-Address"))
	return a
}

// dialAs connects as addr ("" = as it is), with these headers too; on a refusal
// it returns the response and its body.
func (s *served) dialAs(t testing.TB, addr string, header http.Header) (*client, *http.Response, string) {
	t.Helper()
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if addr != "" {
		header.Set("Test-Address", addr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sock, resp, err := websocket.Dial(ctx, s.url, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return nil, resp, string(body)
	}
	return newClient(t, sock), resp, ""
}

func (s *served) mustDialAs(t testing.TB, addr string) *client {
	t.Helper()
	c, resp, body := s.dialAs(t, addr, nil)
	if c == nil {
		t.Fatalf("%s is refused: %d %s", addr, resp.StatusCode, body)
	}
	return c
}

// refused sends a message and wants a CLOSED of id that begins with prefix.
func (c *client) refused(send, id, prefix string) string {
	c.t.Helper()
	c.send("%s", send)
	m := c.next()
	if m.label != "CLOSED" || m.str(1) != id || !strings.HasPrefix(m.str(2), prefix) {
		c.t.Errorf("%s: got %s, want a CLOSED of %s, %s…", send, m.text, id, prefix)
		return ""
	}
	return m.str(2)
}

const tooMany = "rate-limited: at most 2 requests a minute from one address; try again in "

// TestRequestLimit: rule 17. REQ and COUNT of one address are counted together,
// on all its connections.
func TestRequestLimit(t *testing.T) {
	s := serve(t, relay.Options{RequestsPerMinute: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, ClientAddress: named})
	s.Update(generation(t, 3, time.Now(), signed))

	for _, pair := range [][2]string{
		{"192.0.2.1", "::ffff:192.0.2.1"},
		{"2001:db8::1", "2001:db8::ffff:2"}, // one /64
	} {
		a, b := s.mustDialAs(t, pair[0]), s.mustDialAs(t, pair[1])
		before := s.Stats()
		a.send(`["REQ","a",{"kinds":[30166]}]`)
		if n := len(a.untilEOSE("a")); n != 3 {
			t.Fatalf("%d events", n)
		}
		b.send(`["COUNT","b",{"kinds":[30166]}]`)
		if m := b.next(); m.label != "COUNT" {
			t.Fatalf("got %s", m.text)
		}
		// Never an empty EOSE; the open subscription of that id ends, as CLOSED says.
		for _, c := range []*client{a, b} {
			said := c.refused(`["REQ","a",{"kinds":[30166]}]`, "a", tooMany)
			var wait int
			if _, err := fmt.Sscanf(said, tooMany+"%d s", &wait); err != nil || wait < 1 || wait > 30 {
				t.Errorf("it says to wait %d s (%v), want up to 30", wait, err)
			}
			c.refused(`["COUNT","b",{"kinds":[30166]}]`, "b", tooMany)
		}
		st := s.Stats()
		if n := st.RateLimited - before.RateLimited; n != 4 {
			t.Errorf("%d are counted, want 4", n)
		}
		if st.Subscriptions != 0 {
			t.Errorf("%d subscriptions are open", st.Subscriptions)
		}
		// What asks for nothing is not counted.
		a.send(`["CLOSE","a"]`)
		a.send(`["EVENT",{"id":"00"}]`)
		if m := a.next(); m.label != "OK" {
			t.Errorf("got %s", m.text)
		}
	}
	for _, addr := range []string{"192.0.2.2", "2001:db8:0:1::1"} {
		if n := len(s.mustDialAs(t, addr).query(`{}`)); n != 3 {
			t.Errorf("%s, another address, gets %d", addr, n)
		}
	}
	exempt := s.mustDialAs(t, "198.51.100.200")
	for range 10 {
		if n := len(exempt.query(`{}`)); n != 3 {
			t.Fatalf("an exempt address gets %d", n)
		}
	}
	// Without an address from the function, the peer's counts: loopback.
	local := s.mustDialAs(t, "")
	local.query(`{}`)
	local.query(`{}`)
	local.refused(`["REQ","x",{}]`, "x", tooMany)
}

// TestConnectionLimit: rule 17 and K13. Too many are told so before the
// upgrade, whatever a client writes of itself.
func TestConnectionLimit(t *testing.T) {
	s := serve(t, relay.Options{MaxConnections: 2, Exempt: nobody})
	first := s.mustDialAs(t, "")
	s.mustDialAs(t, "")
	for i, h := range []http.Header{{}, {"X-Forwarded-For": {"203.0.113.9"}}, {"X-Real-Ip": {"203.0.113.9"}}, {"Forwarded": {"for=203.0.113.9"}}} {
		c, resp, body := s.dialAs(t, "", h)
		if c != nil {
			t.Fatalf("%v: a third connection is taken", h)
		}
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "75" ||
			body != "Too many connections from your address: at most 2 may be open at once. Close one, or try again in 75 seconds.\n" {
			t.Errorf("%v: %d, Retry-After %q: %s", h, resp.StatusCode, resp.Header.Get("Retry-After"), body)
		}
		if n := s.Stats().Refused; n != uint64(i+1) {
			t.Errorf("%d are counted, want %d", n, i+1)
		}
	}
	// NIP-11 is no connection of the kind that is counted.
	if info := s.info(t); info["name"] != nil {
		t.Errorf("%v", info)
	}
	// One that ends makes room, and handshakes that fail take none.
	_ = first.sock.CloseNow()
	eventually(t, "one is closed", func() bool { return s.Stats().Connections == 1 })
	for range 5 {
		req, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(s.url, "ws"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}} // and no key
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("a handshake without a key: %d", resp.StatusCode)
		}
	}
	s.mustDialAs(t, "").query(`{}`)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestLoopbackIsExempt: by default, of both limits.
func TestLoopbackIsExempt(t *testing.T) {
	s := serve(t, relay.Options{MaxConnections: 1, RequestsPerMinute: 1})
	for range 3 {
		c := s.dial(t)
		c.query(`{}`)
		c.query(`{}`)
	}
}

// info fetches the NIP-11 document.
func (s *served) info(t testing.TB) map[string]any {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(s.url, "ws"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/nostr+json, */*")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Type"); got != "application/nostr+json" {
		t.Errorf("content type %q", got)
	}
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("CORS %q", got)
	}
	var out map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return out
}

// TestConfigure: what is changed holds for the next request, on connections
// that were open before too.
func TestConfigure(t *testing.T) {
	o := relay.Options{
		Name: "Pharos", Contact: "mailto:a@example.com", Pubkey: key.Pubkey(), Version: "1.2.3",
		MaxSubscriptions: 9, RequestsPerMinute: 2, MaxConnections: 1, Exempt: nobody,
	}
	s := serve(t, o)
	s.Update(generation(t, 3, time.Now(), signed))
	c := s.mustDialAs(t, "")
	c.query(`{}`)
	c.query(`{}`)
	c.refused(`["REQ","x",{}]`, "x", tooMany)
	before := s.info(t)

	for _, wrong := range []func(*relay.Options){
		func(o *relay.Options) { o.MaxSubscriptions = -1 },
		func(o *relay.Options) { o.RequestsPerMinute = -1 },
		func(o *relay.Options) { o.MaxConnections = -1 },
		func(o *relay.Options) { o.Exempt = []netip.Prefix{{}} },
	} {
		bad := relay.Options{Name: "Bad", Exempt: nil} // loopback would be exempt
		wrong(&bad)
		if err := s.Configure(bad); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
		if _, err := relay.New(bad); !errors.Is(err, monitor.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if d := gocmp.Diff(before, s.info(t)); d != "" {
		t.Errorf("a wrong one changed:\n%s", d)
	}
	c.refused(`["REQ","x",{}]`, "x", tooMany)

	o.Name, o.Contact, o.Pubkey, o.Version = "Other", "mailto:b@example.com", "", ""
	o.MaxSubscriptions, o.RequestsPerMinute, o.MaxConnections = 1, 60_000, 2
	if err := s.Configure(o); err != nil {
		t.Fatal(err)
	}
	after := s.info(t)
	if after["name"] != "Other" || after["contact"] != "mailto:b@example.com" || after["pubkey"] != key.Pubkey() || after["version"] != "1.2.3" ||
		after["limitation"].(map[string]any)["max_subscriptions"] != 1.0 {
		t.Errorf("it says of itself: %v", after)
	}
	// A share of a minute is 1 ms now.
	eventually(t, "requests are answered again", func() bool {
		c.send(`["REQ","one",{"kinds":[0]}]`)
		m := c.next()
		return m.label == "EOSE"
	})
	eventually(t, "the lower limit of subscriptions holds", func() bool {
		c.send(`["REQ","two",{"kinds":[0]}]`)
		m := c.next()
		return m.label == "CLOSED" && strings.HasPrefix(m.str(2), "rate-limited: at most 1 subscriptions")
	})
	s.mustDialAs(t, "")
	if c, _, _ := s.dialAs(t, "", nil); c != nil {
		t.Error("a third connection is taken")
	}

	o.Exempt = nil
	if err := s.Configure(o); err != nil {
		t.Fatal(err)
	}
	o.Exempt = slices.Clone(nobody) // the caller's own
	s.mustDialAs(t, "")
}
