package probe_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// TestLimits holds that every peer ends at its limit, at the default limits and
// to the microsecond: time is the bubble's.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		relay monitor.RelayURL
		serve func(*peer)
		req   probe.Request
		want  string
		took  time.Duration
	}{
		{
			name: "mute before the handshake", relay: "wss://192.0.2.1/", want: "failed/tls/timeout", took: 4 * time.Second,
			serve: func(p *peer) { p.wait() },
		},
		{
			name: "reads nothing, TLS", relay: "wss://192.0.2.1/", want: "failed/tls/timeout", took: 4 * time.Second,
			serve: func(p *peer) { elapse(time.Minute) },
		},
		{
			name: "reads nothing", want: "failed/upgrade/timeout", took: 4 * time.Second,
			serve: func(p *peer) { elapse(time.Minute) },
		},
		{
			name: "mute", want: "failed/upgrade/timeout", took: 4 * time.Second,
			serve: func(p *peer) { p.wait() },
		},
		{
			name: "drips its head", want: "failed/upgrade/timeout", took: 4 * time.Second,
			serve: func(p *peer) {
				p.request()
				for p.send("HTTP/1.1 101 Switching Protocols\r\n"); p.send("X"); elapse(200 * time.Millisecond) {
				}
			},
		},
		{
			name: "mute after the upgrade", want: "failed/read/silent", took: 5 * time.Second,
			serve: func(p *peer) { p.upgraded(); p.wait() },
		},
		{
			// The farewell is not read either.
			name: "reads nothing after the upgrade", want: "failed/read/silent", took: 5050 * time.Millisecond,
			serve: func(p *peer) { p.request(); p.switching(""); elapse(time.Minute) },
		},
		{
			name: "pings for ever", want: "failed/read/silent", took: 5 * time.Second,
			serve: func(p *peer) {
				p.upgraded()
				go p.wait()
				for p.send(frame(0x89, "hi")) {
					elapse(100 * time.Millisecond)
				}
			},
		},
		{
			name: "drips a frame", want: "failed/read/silent", took: 5 * time.Second,
			serve: func(p *peer) {
				p.upgraded()
				go p.wait()
				for p.send("\x81\x7e\xff\x00"); p.send(" "); elapse(100 * time.Millisecond) {
				}
			},
		},
		{
			name: "speaks of other subscriptions only", want: "failed/read/silent", took: 5 * time.Second,
			serve: func(p *peer) {
				p.upgraded()
				p.send(text(`["EOSE","other"]`) + text(`["EVENT","other",{}]`) + text(`["CLOSED","other","error: "]`) + text(`["OK","00",true,""]`))
				p.wait()
			},
		},
		{
			name: "event without EOSE", want: "ok/read/-", took: 5 * time.Second,
			serve: func(p *peer) {
				id := p.upgraded()
				p.send(text(`["EVENT","` + id + `",{}]`))
				p.wait()
			},
		},
		{
			name: "greets with AUTH only", want: "refused/read/auth_required", took: 5 * time.Second,
			serve: func(p *peer) { p.upgraded(); p.send(text(`["AUTH","x"]`)); p.wait() },
		},
		{
			name: "too many", want: "refused/read/rate_limited", took: 5 * time.Second,
			serve: func(p *peer) { p.upgraded(); p.send(text(`["NOTICE","Too many connections"]`)); p.wait() },
		},
		{
			name: "never closes its side", want: "ok/read/-", took: 150 * time.Millisecond,
			serve: func(p *peer) { id := p.upgraded(); p.send(text(`["EOSE","` + id + `"]`)); p.wait() },
		},
		{
			name: "reads nothing after EOSE", want: "ok/read/-", took: 150 * time.Millisecond,
			serve: func(p *peer) { id := p.upgraded(); p.send(text(`["EOSE","` + id + `"]`)); elapse(time.Minute) },
		},
		{
			name: "closes its side", want: "ok/read/-", took: 0,
			serve: func(p *peer) { id := p.upgraded(); p.send(text(`["EOSE","` + id + `"]`)); p.message(); p.message() },
		},
		{
			name: "mute about NIP-11, afterwards", req: probe.Request{Info: true}, want: "ok/read/-", took: 5 * time.Second,
			serve: func(p *peer) {
				if p.dial > 1 {
					p.wait()
					return
				}
				id := p.upgraded()
				p.send(text(`["EOSE","` + id + `"]`))
				p.message()
				p.message()
			},
		},
		{
			// The upgrade and the read keep their 9 s of the 12.
			name: "mute about NIP-11, first", req: probe.Request{Info: true, LastOutcome: monitor.OutcomeOK}, want: "ok/read/-", took: 3 * time.Second,
			serve: func(p *peer) {
				if p.dial == 1 {
					p.wait()
					return
				}
				id := p.upgraded()
				p.send(text(`["EOSE","` + id + `"]`))
				p.message()
				p.message()
			},
		},
		{
			name: "mute all the way, NIP-11 first", req: probe.Request{Info: true, LastOutcome: monitor.OutcomeOK}, want: "failed/upgrade/timeout", took: 7 * time.Second,
			serve: func(p *peer) { p.wait() },
		},
		{
			name: "slow everywhere", req: probe.Request{Info: true, LastOutcome: monitor.OutcomeOK}, want: "failed/read/silent", took: 11900 * time.Millisecond,
			serve: func(p *peer) {
				if p.dial == 1 { // NIP-11
					p.wait()
					return
				}
				p.request()
				elapse(3900 * time.Millisecond)
				p.switching("")
				p.wait()
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.req.Relay = tt.relay
				o, took := check(t, pipedConfig(tt.serve), tt.req)
				if got := class(o); got != tt.want {
					t.Errorf("got %s, want %s (%s)", got, tt.want, o.Evidence)
				}
				if took.Round(time.Microsecond) != tt.took {
					t.Errorf("it took %s, want %s (%s)", took, tt.took, o.Evidence)
				}
				if o.At.Sub(o.Start) != took {
					t.Errorf("it says that it took %s", o.At.Sub(o.Start))
				}
				elapse(2 * time.Minute) // until all peers have returned
			})
		})
	}
}

// TestDialLimit holds the tcp stage's limit, the overall one, and that the
// wait for a permit counts for none.
func TestDialLimit(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	cfg := probe.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Dial: hang}
	synctest.Test(t, func(t *testing.T) {
		o, took := check(t, cfg, probe.Request{})
		if class(o) != "failed/tcp/timeout" || took != 4*time.Second {
			t.Errorf("got %s after %s (%s)", class(o), took, o.Evidence)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := cfg
		cfg.Timeouts.Overall = time.Second
		o, took := check(t, cfg, probe.Request{})
		if class(o) != "failed/tcp/timeout" || took != time.Second {
			t.Errorf("overall limit: got %s after %s (%s)", class(o), took, o.Evidence)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		o, took := check(t, cfg, probe.Request{Admit: func(context.Context, netip.Addr) (func(), bool) {
			elapse(time.Minute)
			return nil, true
		}})
		if class(o) != "failed/tcp/timeout" || took != time.Minute+4*time.Second {
			t.Errorf("after a wait for admission: got %s after %s (%s)", class(o), took, o.Evidence)
		}
	})
}

// TestLag holds that a process which wakes up long after the limit does not
// blame the relay.
func TestLag(t *testing.T) {
	t.Parallel()
	late := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		elapse(1100 * time.Millisecond) // nobody let us run
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	synctest.Test(t, func(t *testing.T) {
		o, _ := check(t, probe.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Dial: late}, probe.Request{})
		if class(o) != "unclear/tcp/lag" {
			t.Errorf("got %s (%s)", class(o), o.Evidence)
		}
	})
}

// TestCancel holds that a cancelled context ends a probe at once, at any stage,
// and says nothing about the relay.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		relay monitor.RelayURL
		serve func(*peer)
		req   probe.Request
		stage monitor.Stage
	}{
		"tls":     {relay: "wss://192.0.2.1/", serve: func(p *peer) { p.wait() }, stage: monitor.StageTLS},
		"upgrade": {relay: piped, serve: func(p *peer) { p.wait() }, stage: monitor.StageUpgrade},
		"read":    {relay: piped, serve: func(p *peer) { p.upgraded(); p.wait() }, stage: monitor.StageRead},
		"info, then the next stage": {
			relay: piped, serve: func(p *peer) { p.wait() }, stage: monitor.StageTCP,
			req: probe.Request{Info: true, LastOutcome: monitor.OutcomeOK},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := probe.New(pipedConfig(tt.serve))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				start := time.Now()
				tt.req.Relay = tt.relay
				o := c.Check(ctx, tt.req)
				if o.Outcome != monitor.OutcomeUnclear || o.Cause != monitor.CauseLocalNetwork || o.Stage != tt.stage {
					t.Errorf("got %s (%s)", class(o), o.Evidence)
				}
				if took := time.Since(start); took != 1500*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c, err := probe.New(pipedConfig(func(p *peer) { p.wait() }))
		if err != nil {
			t.Fatal(err)
		}
		if o := c.Check(ctx, probe.Request{Relay: piped}); class(o) != "unclear/tcp/local_network" {
			t.Errorf("cancelled before: got %s (%s)", class(o), o.Evidence)
		}
	})
}

// TestUnread holds that an answer which came in time, but which nobody read, is
// not held against the relay.
func TestUnread(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	r := relaytest.Start(t, relaytest.Options{Script: func(c net.Conn) {
		c.Read(make([]byte, 1<<10))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n")
		close(answered)
		io.Copy(io.Discard, c)
	}})
	limits := short
	limits.Upgrade = 200 * time.Millisecond
	var d net.Dialer
	c := newChecker(t, probe.Config{Timeouts: limits, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &busy{TCPConn: conn.(*net.TCPConn), until: answered}, nil
	}})
	if o := c.Check(t.Context(), probe.Request{Relay: r.URL()}); class(o) != "unclear/upgrade/lag" {
		t.Errorf("got %s (%s)", class(o), o.Evidence)
	}
}

// busy reads only after the peer has written and the deadline is over.
type busy struct {
	*net.TCPConn
	until    <-chan struct{}
	deadline time.Time
}

func (b *busy) SetDeadline(t time.Time) error {
	b.deadline = t
	return b.TCPConn.SetDeadline(t)
}

func (b *busy) Read(p []byte) (int, error) {
	<-b.until
	<-time.After(time.Until(b.deadline))
	// The deadline's own timer may be a moment later: it must be over now.
	if err := b.TCPConn.SetReadDeadline(b.deadline); err != nil {
		return 0, err
	}
	return b.TCPConn.Read(p)
}

// elapse lets virtual time pass; it belongs in a synctest bubble only.
func elapse(d time.Duration) { time.Sleep(d) }
