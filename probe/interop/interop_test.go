package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/google/go-cmp/cmp"
	gonostr "github.com/nbd-wtf/go-nostr"
	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/probe"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// khatru starts it once per relay and never ends it.
		goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// told is what a probe came to, as far as these relays decide it.
type told struct {
	Class        string // outcome/stage/cause
	AuthSeen     bool
	Claimed      []int // of the NIPs that are tested
	Capabilities monitor.Capabilities
	Write        monitor.WriteFacts
}

// look probes a relay with everything that a probe can ask.
func look(t *testing.T, url string, cfg probe.Config) told {
	t.Helper()
	var err error
	cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	if cfg.Key, err = nostr.NewKey(); err != nil {
		t.Fatal(err)
	}
	c, err := probe.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	u, err := monitor.ParseRelayURL(url, cfg.AllowNetworks...)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Check(t.Context(), probe.Request{Relay: u, Info: true, LastOutcome: monitor.OutcomeOK, Capabilities: true, Write: true})
	t.Logf("%s: %s", url, o.Evidence)
	out := told{Class: o.Outcome.String() + "/" + o.Stage.String() + "/" + o.Cause.String(), AuthSeen: o.AuthSeen}
	if o.Info == nil || o.Info.Problem != "" {
		t.Fatalf("NIP-11 of %s: %+v", url, o.Info)
	}
	for _, n := range o.Info.NIPs {
		if n == 42 || n == 45 || n == 50 || n == 77 {
			out.Claimed = append(out.Claimed, n)
		}
	}
	if o.Capabilities != nil {
		out.Capabilities = *o.Capabilities
		if out.Capabilities.Sample == "" {
			t.Errorf("%s: nothing was sampled", url)
		}
		out.Capabilities.Sample = ""
	}
	if o.Write != nil {
		out.Write = *o.Write
	}
	return out
}

// startKhatru serves a relay with ten notes of last week.
func startKhatru(t *testing.T, change func(*khatru.Relay)) (url string) {
	t.Helper()
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for _, ev := range notes(t) {
		if err := db.SaveEvent(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	r := khatru.NewRelay()
	r.StoreEvent = append(r.StoreEvent, db.SaveEvent)
	r.QueryEvents = append(r.QueryEvents, db.QueryEvents)
	change(r)
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

// notes are ten of last week, signed by a key made for them.
func notes(t *testing.T) []*gonostr.Event {
	t.Helper()
	key, err := nostr.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	var out []*gonostr.Event
	for n := range 10 {
		ev := &nostr.Event{
			Kind: gonostr.KindTextNote, Content: fmt.Sprint("note ", n), Tags: nostr.Tags{},
			CreatedAt: nostr.Timestamp(time.Now().AddDate(0, 0, -7).Unix()) + nostr.Timestamp(n),
		}
		if err := key.Sign(ev); err != nil {
			t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

const (
	confirmed = monitor.FindingConfirmed
	disproved = monitor.FindingDisproved
)

// nobody is khatru's word for an ephemeral event that it took and that nobody
// was subscribed to.
var nobody = monitor.WriteFacts{Result: monitor.WriteAccepted, Reason: "mute: no one was listening for this"}

// khatru's stores know no search and send what matches the rest of the filter.
func TestKhatru(t *testing.T) {
	count := func(r *khatru.Relay) {
		r.CountEvents = append(r.CountEvents, func(context.Context, gonostr.Filter) (int64, error) { return 10, nil })
	}
	members := func(r *khatru.Relay) {
		count(r)
		r.Info.AddSupportedNIP(42)
		r.RejectFilter = append(r.RejectFilter, func(ctx context.Context, _ gonostr.Filter) (bool, string) {
			return khatru.GetAuthed(ctx) == "", "auth-required: for members"
		})
	}
	for name, c := range map[string]struct {
		change func(*khatru.Relay)
		cfg    probe.Config
		want   told
	}{
		"open": {count, probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"without COUNT": {func(*khatru.Relay) {}, probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42},
			Capabilities: monitor.Capabilities{Count: disproved, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"with negentropy": {func(r *khatru.Relay) { r.Negentropy = true }, probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 77},
			Capabilities: monitor.Capabilities{Count: disproved, Search: disproved, Negentropy: confirmed, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"takes no events": {func(r *khatru.Relay) {
			count(r)
			r.RejectEvent = append(r.RejectEvent, func(context.Context, *gonostr.Event) (bool, string) { return true, "blocked: not here" })
		}, probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "blocked: not here"},
		}},
		"members only, a stranger": {members, probe.Config{}, told{
			Class: "refused/read/auth_required", AuthSeen: true, Claimed: []int{42, 45},
		}},
		"members only, a member": {members, probe.Config{Auth: true}, told{
			Class: "ok/read/", AuthSeen: true, Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Auth: confirmed, Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, look(t, startKhatru(t, c.change), c.cfg)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// startNostrRelay starts nostr-relay.mjs and writes the notes to it.
func startNostrRelay(t *testing.T, domain string) (url string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("the relay needs Node.js 20 or newer: run make need-npm, and the tests by make test: %v", err)
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		t.Fatalf("the relay is not installed: run make need-npm: %v", err)
	}
	cmd := exec.Command(node, "nostr-relay.mjs")
	cmd.Env = append(os.Environ(), "RELAY_DOMAIN="+domain)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // which ends it
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the relay did not start: %v", err)
	}
	url = "ws://127.0.0.1:" + strings.TrimSpace(port)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, url, nil) // go-nostr's client races with itself on Close
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	defer func() { _ = ws.CloseNow() }()
	for _, ev := range notes(t) {
		if err := wsjson.Write(ctx, ws, []any{"EVENT", ev}); err != nil {
			t.Fatal(err)
		}
		for taken := false; !taken; { // an AUTH may come first
			var answer []any
			if err := wsjson.Read(ctx, ws, &answer); err != nil {
				t.Fatal(err)
			}
			if taken = answer[0] == "OK"; taken && answer[2] != true {
				t.Fatalf("a note is refused: %v", answer)
			}
		}
	}
	return url
}

func TestNostrRelay(t *testing.T) {
	for name, c := range map[string]struct {
		domain string
		want   told
	}{
		"without NIP-42": {"", told{
			Class:        "ok/read/",
			Capabilities: monitor.Capabilities{Count: disproved, Search: confirmed, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        monitor.WriteFacts{Result: monitor.WriteAccepted},
		}},
		// Its document claims COUNT and search too, which it has not.
		"with NIP-42": {"localhost", told{
			Class: "ok/read/", AuthSeen: true, Claimed: []int{42, 45, 50},
			Capabilities: monitor.Capabilities{Auth: confirmed, Count: disproved, Search: confirmed, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        monitor.WriteFacts{Result: monitor.WriteAccepted},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, look(t, startNostrRelay(t, c.domain), probe.Config{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
