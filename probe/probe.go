package probe

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Timeouts are the limits of the stages and of the whole probe, without the
// wait for admission. A zero field takes its value from DefaultTimeouts.
type Timeouts struct {
	DNS, TCP, TLS, Upgrade, Read, Write, Info, Overall time.Duration
}

// DefaultTimeouts returns the limits of config.md.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		DNS: 3 * time.Second, TCP: 4 * time.Second, TLS: 4 * time.Second, Upgrade: 4 * time.Second,
		Read: 5 * time.Second, Write: 5 * time.Second, Info: 5 * time.Second, Overall: 12 * time.Second,
	}
}

// Config is how a Checker probes. The zero value is usable: system resolver,
// system roots, default limits, nothing private reachable.
type Config struct {
	Timeouts Timeouts
	// UserAgent is sent with every request; "" = "pharos". Origin is sent with
	// the upgrade only when set. Neither may hold control characters.
	UserAgent, Origin string
	// AllowNetworks opens address ranges that the dial guard refuses otherwise.
	AllowNetworks []netip.Prefix
	// CAFile names a PEM file with roots beside those of Roots.
	CAFile string
	// Roots are the trusted roots; nil = the system's.
	Roots *x509.CertPool
	// Resolvers are asked for addresses in turn, as ip:port; empty = the
	// system's resolver (hosts file and all). With two or more, that a name does
	// not exist, has no address, or none that is public, is believed only where
	// two of them agree.
	Resolvers []string
	// SourceAddress binds every connection to relays; the zero Addr = the
	// system's choice. Addresses of the other family are then out of reach.
	// Connections to proxies are not bound.
	SourceAddress netip.Addr
	// Proxy, when set, is what every connection to a clearnet relay goes
	// through. Names are resolved here all the same, RemoteDNS or not, and the
	// proxy is asked for an address: only so does the dial guard see where the
	// connection goes, has a permit the right neighbourhood, and is the dns
	// stage a measurement of ours.
	Proxy *Proxy
	// Proxies are the ways to relays of Tor, I2P and Lokinet; those of a network
	// without one are skipped (no_proxy). They are given the relay's name,
	// RemoteDNS or not: no resolver could tell it, and none is asked.
	Proxies map[monitor.Network]Proxy
	// Overall are the overall limits of probes through Proxies; 0 =
	// DefaultProxyOverall. Where one is longer than Timeouts.Overall, the limits
	// of the stages widen too, that of tcp most: it covers the connection to the
	// proxy, and the proxy's to the relay.
	Overall map[monitor.Network]time.Duration
	// Dial opens connections in place of net.Dialer; address is an ip:port that
	// passed the dial guard, or that of a proxy. nil = net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Key signs what a probe says of itself; the zero Key = nothing is ever
	// written or authenticated. Auth answers a relay that refuses a REQ or an
	// event as auth-required (NIP-42), once per probe; a mere challenge is never
	// answered.
	Key  nostr.Key
	Auth bool
	// Log gets the stack of a panic in a probe; nil = slog.Default().
	Log *slog.Logger
}

// Request is one probe.
type Request struct {
	Relay monitor.RelayURL
	// Info asks for the NIP-11 document too.
	Info bool
	// Facts tries both address families apart, whichever the probe itself goes
	// over: when the outcome stands, the other one is dialled once. A relay that
	// a proxy resolves has none.
	Facts bool
	// Capabilities tests what the relay does, whatever its NIP-11 says. Write
	// sends an event, where the relay's NIP-11 does not speak against it. Both
	// only after an ok read.
	Capabilities, Write bool
	// Document is the relay's NIP-11 as the caller knows it from before, nil =
	// not at all; only what it says of payment and of restricted writes counts.
	// Nothing is written to a relay whose NIP-11 is unknown both here and in this
	// probe so far.
	Document *monitor.Info
	// LastOutcome is the outcome of the last measured probe. After ok and
	// refused NIP-11 is fetched first and the upgrade goes over the same
	// connection if the server keeps it; otherwise the upgrade goes first.
	LastOutcome monitor.Outcome
	// Admit, when set, is called once after the name was resolved, with the
	// address that will be dialled first, before any packet goes to it: never
	// an IPv4 address in IPv6 form, and without a zone. For a relay whose name
	// a proxy resolves it is the zero Addr. It may
	// block until there is a permit; the wait counts for no limit. ok = false
	// ends the probe as skipped/overload. release, when not nil, is called when
	// the probe has closed its connections.
	Admit func(ctx context.Context, addr netip.Addr) (release func(), ok bool)
	// Trace, when set, is told every step as it happens, in order and by one
	// goroutine. The probe waits for it.
	Trace func(TraceEvent)
}

// Checker probes relays. It is safe for concurrent use.
type Checker struct {
	cfg      Config
	roots    *x509.CertPool
	hasRoots bool
	dialer   net.Dialer
	resolver resolver
	ways     [len(networks)]way // as networks
	failures failures
	worked   worked
	panics   atomic.Uint64
	log      *slog.Logger
}

// New returns a Checker, or an error (monitor.ErrInvalid, or of the file) that
// names the setting which is wrong.
func New(cfg Config) (*Checker, error) {
	d := DefaultTimeouts()
	for _, t := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"dns", &cfg.Timeouts.DNS, d.DNS},
		{"tcp", &cfg.Timeouts.TCP, d.TCP},
		{"tls", &cfg.Timeouts.TLS, d.TLS},
		{"upgrade", &cfg.Timeouts.Upgrade, d.Upgrade},
		{"read", &cfg.Timeouts.Read, d.Read},
		{"write", &cfg.Timeouts.Write, d.Write},
		{"info", &cfg.Timeouts.Info, d.Info},
		{"overall", &cfg.Timeouts.Overall, d.Overall},
	} {
		if *t.value == 0 {
			*t.value = t.def
		}
		if *t.value < 0 {
			return nil, fmt.Errorf("%w %s timeout %s: it must be positive", monitor.ErrInvalid, t.name, *t.value)
		}
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "pharos"
	}
	for name, value := range map[string]string{"user agent": cfg.UserAgent, "origin": cfg.Origin} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("%w %s %q: it must not hold control characters", monitor.ErrInvalid, name, value)
		}
	}
	c := &Checker{cfg: cfg, log: cfg.Log}
	if c.log == nil {
		c.log = slog.Default()
	}
	if err := c.makeWays(); err != nil {
		return nil, err
	}
	if err := c.loadRoots(); err != nil {
		return nil, err
	}
	if len(cfg.Resolvers) == 0 {
		c.resolver = newSystemResolver()
	} else {
		r, err := newDirectResolver(cfg.Resolvers)
		if err != nil {
			return nil, err
		}
		r.permitted = c.permitted
		c.resolver = r
	}
	c.dialer = net.Dialer{KeepAlive: -1, FallbackDelay: -1, Control: c.guard}
	if cfg.SourceAddress.IsValid() {
		c.dialer.LocalAddr = &net.TCPAddr{IP: cfg.SourceAddress.AsSlice(), Zone: cfg.SourceAddress.Zone()}
	}
	return c, nil
}

// loadRoots fills in the trusted roots.
func (c *Checker) loadRoots() error {
	switch {
	case c.cfg.Roots != nil:
		c.roots = c.cfg.Roots
	default:
		pool, err := x509.SystemCertPool()
		if err != nil {
			// No roots is an impairment (HasRoots), no reason not to start: ws
			// relays can be probed all the same.
			pool = x509.NewCertPool()
		}
		c.roots = pool
	}
	if c.cfg.CAFile != "" {
		pem, err := os.ReadFile(c.cfg.CAFile)
		if err != nil {
			return fmt.Errorf("read further roots: %w", err)
		}
		c.roots = c.roots.Clone()
		if !c.roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%w file of further roots %s: it holds no PEM certificate", monitor.ErrInvalid, c.cfg.CAFile)
		}
	}
	c.hasRoots = !c.roots.Equal(x509.NewCertPool())
	return nil
}

// HasRoots reports whether there is any trusted root. Without one every wss
// relay would look untrusted: a vantage is impaired then
// (monitor.ImpairedRoots).
func (c *Checker) HasRoots() bool { return c.hasRoots }

// Resolve returns the addresses of name as a probe would find them, before ctx
// ends. None without an error: the name has no address, or does not exist.
func (c *Checker) Resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	a := c.resolver.resolve(ctx, strings.TrimSuffix(name, "."))
	if a.err != nil {
		return nil, fmt.Errorf("resolve %s: %w", name, a.err)
	}
	return a.addrs, nil
}

// Panics is how many probes an error in Pharos itself has ended so far.
func (c *Checker) Panics() uint64 { return c.panics.Load() }

// Check probes one relay and returns what it saw, at the latest 200 ms after
// the overall limit. All fields but Vantage and Lag are filled in. It never
// panics: an error in Pharos itself, and a cancelled ctx, which ends it at once,
// are unclear/local_network.
func (c *Checker) Check(ctx context.Context, req Request) (obs monitor.Observation) {
	a := &attempt{c: c, req: req}
	a.begin(time.Now())
	defer func() {
		if p := recover(); p != nil {
			c.panics.Add(1)
			c.log.Error("probe panicked", "relay", string(req.Relay), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a.finish(monitor.OutcomeUnclear, a.stage, monitor.CauseLocalNetwork, "an error in Pharos itself ended the probe; its log has the details")
		}
		a.obs.At = time.Now()
		obs = a.obs
	}()
	defer a.close() // first, so that a panic of it is caught too
	a.run(ctx)
	a.doubtProxy(ctx)
	if req.Facts {
		a.families(ctx)
	}
	return
}
