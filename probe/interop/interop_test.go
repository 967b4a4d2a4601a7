package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
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

// khatruRelay in the environment makes this program a khatru relay of the name.
const khatruRelay = "PHAROS_TEST_KHATRU"

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(khatruRelay); ok {
		if err := serveKhatru(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
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

// khatrus are relays by name: what each of them is told beside its store.
var khatrus = map[string]func(*khatru.Relay){
	"open":            countsTen,
	"without COUNT":   func(*khatru.Relay) {},
	"with negentropy": func(r *khatru.Relay) { r.Negentropy = true },
	"takes no events": func(r *khatru.Relay) {
		countsTen(r)
		r.RejectEvent = append(r.RejectEvent, func(context.Context, *gonostr.Event) (bool, string) { return true, "blocked: not here" })
	},
	"members only": func(r *khatru.Relay) {
		countsTen(r)
		r.Info.AddSupportedNIP(42)
		r.RejectFilter = append(r.RejectFilter, func(ctx context.Context, _ gonostr.Filter) (bool, string) {
			return khatru.GetAuthed(ctx) == "", "auth-required: for members"
		})
	},
}

func countsTen(r *khatru.Relay) {
	r.CountEvents = append(r.CountEvents, func(context.Context, gonostr.Filter) (int64, error) { return 10, nil })
}

// serveKhatru serves a relay with ten notes of last week on a free port, which it
// prints, until its standard input ends.
func serveKhatru(name string) error {
	db := &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		return err
	}
	events, err := notes()
	if err != nil {
		return err
	}
	for _, ev := range events {
		if err := db.SaveEvent(context.Background(), ev); err != nil {
			return err
		}
	}
	r := khatru.NewRelay()
	r.StoreEvent = append(r.StoreEvent, db.SaveEvent)
	r.QueryEvents = append(r.QueryEvents, db.QueryEvents)
	khatrus[name](r)
	s := httptest.NewServer(r)
	fmt.Println(s.Listener.Addr().(*net.TCPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startRelay starts a program that prints its port first and ends with its
// standard input: khatru races with itself, and must not do so in here.
func startRelay(t *testing.T, environ string, program string, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), environ)
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
	return "ws://127.0.0.1:" + strings.TrimSpace(port)
}

// notes are ten of last week, signed by a key made for them.
func notes() ([]*gonostr.Event, error) {
	key, err := nostr.NewKey()
	if err != nil {
		return nil, err
	}
	var out []*gonostr.Event
	for n := range 10 {
		ev := &nostr.Event{
			Kind: gonostr.KindTextNote, Content: fmt.Sprint("note ", n), Tags: nostr.Tags{},
			CreatedAt: nostr.Timestamp(time.Now().AddDate(0, 0, -7).Unix()) + nostr.Timestamp(n),
		}
		if err := key.Sign(ev); err != nil {
			return nil, err
		}
		out = append(out, ev)
	}
	return out, nil
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		relay string
		cfg   probe.Config
		want  told
	}{
		"open": {"open", probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"without COUNT": {"without COUNT", probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42},
			Capabilities: monitor.Capabilities{Count: disproved, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"with negentropy": {"with negentropy", probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 77},
			Capabilities: monitor.Capabilities{Count: disproved, Search: disproved, Negentropy: confirmed, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
		"takes no events": {"takes no events", probe.Config{}, told{
			Class: "ok/read/", Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        monitor.WriteFacts{Result: monitor.WriteRefused, Reason: "blocked: not here"},
		}},
		"members only, a stranger": {"members only", probe.Config{}, told{
			Class: "refused/read/auth_required", AuthSeen: true, Claimed: []int{42, 45},
		}},
		"members only, a member": {"members only", probe.Config{Auth: true}, told{
			Class: "ok/read/", AuthSeen: true, Claimed: []int{42, 45},
			Capabilities: monitor.Capabilities{Auth: confirmed, Count: confirmed, Search: disproved, Negentropy: disproved, EOSE: confirmed, Filters: confirmed, Limit: confirmed, Until: confirmed},
			Write:        nobody,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, look(t, startRelay(t, khatruRelay+"="+c.relay, self), c.cfg)); d != "" {
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
	url = startRelay(t, "RELAY_DOMAIN="+domain, node, "nostr-relay.mjs")
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
	events, err := notes()
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
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
