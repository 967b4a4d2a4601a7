package relaytest_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

func TestMain(m *testing.M) {
	relaytest.Main()
	goleak.VerifyTestMain(m)
}

const limit = 20 * time.Second

// TestFloor holds that the floor does all of its work, over as many connections
// as it says.
func TestFloor(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{false, true} {
		r := relaytest.Start(t, relaytest.Options{TLS: secure})
		f := relaytest.Floor{TLS: secure, Timeout: limit}
		if err := f.Two(r.Addr().String()); err != nil {
			t.Fatalf("two connections, TLS %t: %v", secure, err)
		}
		f.Curves = []tls.CurveID{tls.X25519}
		if err := f.One(r.Addr().String()); err != nil {
			t.Fatalf("one connection, TLS %t: %v", secure, err)
		}
		want := relaytest.Counters{Connections: 3, Upgrades: 2, Infos: 2, Requests: 2}
		got := r.Counters()
		got.Written = 0
		if got != want {
			t.Errorf("TLS %t: counted %+v, want %+v", secure, got, want)
		}
		r.Behave(relaytest.HTTP502)
		if err := f.One(r.Addr().String()); err == nil {
			t.Errorf("TLS %t: a 502 is fine for the floor", secure)
		}
	}
}

// TestRestart holds that a relay can be killed and revived on its port.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{Behaviour: relaytest.Silent})
	addr := r.Addr()
	c, err := net.DialTimeout("tcp", addr.String(), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Stop()
	r.Stop() // again: nothing
	c.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection outlived the relay: %v", err)
	}
	f := relaytest.Floor{Timeout: limit}
	if err := f.Two(addr.String()); err == nil {
		t.Error("a stopped relay answers")
	}
	r.Behave(relaytest.Healthy)
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(); err == nil {
		t.Error("it could be started twice")
	}
	if r.Addr() != addr {
		t.Errorf("it came back at %s, was at %s", r.Addr(), addr)
	}
	if err := f.Two(addr.String()); err != nil {
		t.Errorf("it came back, but: %v", err)
	}
}

// TestStartMany holds that many relays have as many addresses.
func TestStartMany(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	f := relaytest.Floor{Timeout: limit}
	for _, relays := range [][]*relaytest.Relay{
		relaytest.StartMany(t, 300, relaytest.Options{}),
		relaytest.StartMany(t, 10, relaytest.Options{}),
		relaytest.StartMany(t, 10, relaytest.Options{Addr: "127.20.7.250:0"}),
	} {
		for _, r := range relays {
			host := r.URL().Host()
			if seen[host] {
				t.Errorf("%s was given out twice", host)
			}
			seen[host] = true
		}
		if err := f.Two(relays[len(relays)-1].Addr().String()); err != nil {
			t.Error(err)
		}
	}
	if !seen["127.20.7.254"] || !seen["127.20.8.1"] || seen["127.20.7.255"] {
		t.Error("the addresses do not count up from the one that was given")
	}
}

// TestPlaces holds that nothing listens beyond loopback.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:0", "192.0.2.1:0", "[::]:0", "nonsense"} {
		if r, err := relaytest.New(relaytest.Options{Addr: addr}); err == nil {
			r.Stop()
			t.Errorf("a relay listens at %s", addr)
		}
	}
}

// TestDead holds that dead ports are dead in their ways.
func TestDead(t *testing.T) {
	t.Parallel()
	if _, err := net.DialTimeout("tcp", relaytest.ClosedPort(t).String(), limit); err == nil || os.IsTimeout(err) {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := net.DialTimeout("tcp", relaytest.BlackHole(t).String(), 50*time.Millisecond); !os.IsTimeout(err) {
		t.Errorf("a black hole: %v", err)
	}
}

// TestProcess holds that relays run in a process of their own, and end with it.
func TestProcess(t *testing.T) {
	t.Parallel()
	p := relaytest.StartProcess(t, relaytest.ProcessOptions{Plain: 2, TLS: 1})
	if len(p.Plain) != 2 || len(p.TLS) != 1 {
		t.Fatalf("got %v and %v", p.Plain, p.TLS)
	}
	f := relaytest.Floor{Timeout: limit}
	for _, u := range append(p.Plain, p.TLS...) {
		f.TLS = u.TLS()
		if err := f.Two(u.HostPort()); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	c, err := tls.Dial("tcp", p.TLS[0].HostPort(), &tls.Config{RootCAs: p.Roots})
	if err != nil {
		t.Fatalf("with its roots: %v", err)
	}
	c.Close()
	p.Stop()
	f.TLS = false
	if err := f.Two(p.Plain[0].HostPort()); err == nil {
		t.Error("it answers after it was stopped")
	}
}

// TestDistantProcess holds that a process's relays behave as they are told, are
// as far away as they are told, and that its black holes answer nothing.
func TestDistantProcess(t *testing.T) {
	t.Parallel()
	const rtt = 20 * time.Millisecond
	p := relaytest.StartProcess(t, relaytest.ProcessOptions{Plain: 1, TLS: 1, RTT: rtt, BlackHoles: 3})
	for u, trips := range map[monitor.RelayURL]time.Duration{p.Plain[0]: 4, p.TLS[0]: 5} {
		f := relaytest.Floor{TLS: u.TLS(), Timeout: limit}
		start := time.Now()
		if err := f.One(u.HostPort()); err != nil { // accept, handshake, NIP-11, upgrade, EOSE
			t.Errorf("%s: %v", u, err)
		}
		if took := time.Since(start); took < trips*rtt {
			t.Errorf("%s took %s, want at least %d round trips of %s", u, took, trips, rtt)
		}
	}
	if len(p.BlackHoles) != 3 {
		t.Errorf("there are %d black holes, want 3", len(p.BlackHoles))
	}
	for _, a := range p.BlackHoles {
		if _, err := net.DialTimeout("tcp", a.String(), 50*time.Millisecond); !os.IsTimeout(err) {
			t.Errorf("a black hole: %v", err)
		}
	}
	mute := relaytest.StartProcess(t, relaytest.ProcessOptions{Plain: 1, Behaviour: relaytest.HTTP502})
	f := relaytest.Floor{Timeout: limit}
	if err := f.One(mute.Plain[0].HostPort()); err == nil {
		t.Error("a 502 is fine")
	}
}

// TestPipe holds that a connection in memory has the buffers, ends, resets and
// deadlines of TCP, and that no time passes by itself.
func TestPipe(t *testing.T) {
	t.Parallel()
	dial := func(t *testing.T, script func(net.Conn)) net.Conn {
		p := relaytest.Pipe(t, relaytest.Options{Script: script})
		c, err := p.Dial(t.Context(), "tcp", "192.0.2.1:80")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	timed := func(t *testing.T, want time.Duration, do func() error) error {
		t.Helper()
		start := time.Now()
		err := do()
		if took := time.Since(start); took != want {
			t.Errorf("it took %s, want %s", took, want)
		}
		return err
	}
	read := func(c net.Conn) func() error {
		return func() error { _, err := c.Read(make([]byte, 64)); return err }
	}
	for name, tt := range map[string]struct {
		script func(net.Conn)
		client func(t *testing.T, c net.Conn)
	}{
		"what came before the end is read": {
			func(c net.Conn) { io.WriteString(c, "hello") },
			func(t *testing.T, c net.Conn) {
				if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
					t.Errorf("got %q, %v", b, err)
				}
			},
		},
		"an unread request resets": {
			func(c net.Conn) { io.ReadFull(c, make([]byte, 1)); io.WriteString(c, "x") },
			func(t *testing.T, c net.Conn) {
				io.WriteString(c, "two")
				if b, err := io.ReadAll(c); string(b) != "x" || !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %q, %v", b, err)
				}
				if _, err := io.WriteString(c, "more"); !errors.Is(err, syscall.EPIPE) {
					t.Errorf("writing more: %v", err)
				}
			},
		},
		"a deadline ends a read": {
			func(c net.Conn) { io.Copy(io.Discard, c) },
			func(t *testing.T, c net.Conn) {
				c.SetDeadline(time.Now().Add(time.Second))
				if err := timed(t, time.Second, read(c)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				c.SetDeadline(time.Time{})
				time.AfterFunc(time.Minute, func() { c.SetReadDeadline(time.Unix(1, 0)) })
				if err := timed(t, time.Minute, read(c)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
			},
		},
		"a full buffer holds a write up": {
			func(c net.Conn) {
				<-time.After(time.Second)
				io.Copy(io.Discard, c)
			},
			func(t *testing.T, c net.Conn) {
				write := func(n int) func() error { return func() error { _, err := c.Write(make([]byte, n)); return err } }
				if err := timed(t, 0, write(64<<10)); err != nil {
					t.Error(err)
				}
				c.SetWriteDeadline(time.Now().Add(time.Second / 2))
				if err := timed(t, time.Second/2, write(1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				c.SetWriteDeadline(time.Time{})
				if err := timed(t, time.Second/2, write(1)); err != nil {
					t.Error(err)
				}
			},
		},
		"closed here": {
			func(c net.Conn) { io.Copy(io.Discard, c) },
			func(t *testing.T, c net.Conn) {
				c.Close()
				if err := read(c)(); !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, tt.script)
				defer c.Close()
				tt.client(t, c)
			})
		})
	}
}
