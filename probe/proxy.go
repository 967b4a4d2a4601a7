package probe

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// defaultProxyPort is the usual one of SOCKS (RFC 1928, 3).
	defaultProxyPort = "1080"
	// DefaultProxyOverall is the overall limit of a probe through Tor, I2P or
	// Lokinet where Config.Overall names none (config.md).
	DefaultProxyOverall = 45 * time.Second
)

// Proxy is a SOCKS5 proxy (RFC 1928). It prints without user and password.
type Proxy struct {
	Address string // host:port
	// User and Password are sent when the proxy asks for them (RFC 1929), at
	// most 255 bytes each; User "" = there are none.
	User, Password string
	// RemoteDNS says that the proxy was written as socks5h, with names left to
	// it. Which names are is a matter of the network, though (Config).
	RemoteDNS bool
}

// ParseProxy reads socks5://HOST:PORT or socks5h://HOST:PORT, with
// USER:PASSWORD@ before HOST where the proxy asks for them; without a port it is
// 1080. The error is monitor.ErrInvalid, says how to write it and repeats
// nothing that could be a secret.
func ParseProxy(s string) (Proxy, error) {
	bad := func(what string) (Proxy, error) {
		return Proxy{}, fmt.Errorf("%w proxy: %s; write it as socks5h://HOST:PORT, with USER:PASSWORD@ before HOST where it asks for them", monitor.ErrInvalid, what)
	}
	scheme, _, ok := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case !ok:
		return bad("it is no URL")
	case scheme == "http", scheme == "https", scheme == "socks", scheme == "socks4", scheme == "socks4a":
		return bad("its scheme is " + scheme + ", but only SOCKS5 proxies are spoken to")
	case scheme != "socks5" && scheme != "socks5h":
		return bad("its scheme is neither socks5 nor socks5h")
	}
	u, err := url.Parse(s)
	if err != nil {
		return bad("it is no URL: a special character in user or password is written as %XX") // err would repeat it
	}
	switch {
	case u.Hostname() == "":
		return bad("it has no host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("there is something after the port")
	}
	port := u.Port()
	if port == "" {
		port = defaultProxyPort
	}
	p := Proxy{Address: net.JoinHostPort(u.Hostname(), port), User: u.User.Username(), RemoteDNS: scheme == "socks5h"}
	p.Password, _ = u.User.Password()
	if what := p.problem(); what != "" {
		return bad(what)
	}
	return p, nil
}

// problem says what is wrong with p, "" = nothing, without a secret of it.
func (p *Proxy) problem() string {
	host, port, err := net.SplitHostPort(p.Address)
	n, perr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || host == "":
		return "its address is no HOST:PORT"
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "its host holds white space or control characters"
	case perr != nil || n == 0:
		return "its port is no number from 1 to 65535"
	case p.User == "" && p.Password != "":
		return "there is a password, but no user"
	case len(p.User) > 255 || len(p.Password) > 255:
		return "user and password have at most 255 bytes each"
	}
	return ""
}

// String writes the proxy as a URL, user and password masked.
func (p Proxy) String() string {
	scheme, user := "socks5://", ""
	if p.RemoteDNS {
		scheme = "socks5h://"
	}
	if p.User != "" {
		user = "********@"
	}
	return scheme + user + p.Address
}

// GoString is String: %#v prints no secret either.
func (p Proxy) GoString() string { return p.String() }

// networks are all that there are, clearnet first.
var networks = [...]monitor.Network{monitor.Clearnet, monitor.Tor, monitor.I2P, monitor.Loki}

// way is how relays of one network are reached.
type way struct {
	open    bool // there is one
	proxy   *Proxy
	named   bool // the proxy is given the relay's name; nobody else resolves it
	overall time.Duration
	// dial and rest are what the limit of the tcp stage, and those of the others,
	// are multiplied by.
	dial, rest float64
}

// makeWays checks the proxies and says how each network is reached.
func (c *Checker) makeWays() error {
	if p := c.cfg.Proxy; p != nil {
		if what := p.problem(); what != "" {
			return fmt.Errorf("%w proxy: %s", monitor.ErrInvalid, what)
		}
	}
	for n, d := range c.cfg.Overall {
		if d < 0 || networkIndex(n) <= 0 {
			return fmt.Errorf("%w overall limit of %s, %s: it must be positive, and for tor, i2p or loki", monitor.ErrInvalid, n, d)
		}
	}
	c.ways[0] = way{open: true, proxy: c.cfg.Proxy, overall: c.cfg.Timeouts.Overall, dial: 1, rest: 1}
	for n, p := range c.cfg.Proxies {
		i := networkIndex(n)
		if i <= 0 {
			return fmt.Errorf("%w proxy for %q: there are those for tor, i2p and loki", monitor.ErrInvalid, n)
		}
		if what := p.problem(); what != "" {
			return fmt.Errorf("%w proxy for %s: %s", monitor.ErrInvalid, n, what)
		}
		w := way{open: true, proxy: &p, named: true, overall: c.cfg.Overall[n]}
		if w.overall == 0 {
			w.overall = DefaultProxyOverall
		}
		// Most of the time goes into the way to a hidden service: its descriptor,
		// its introduction, the meeting point. Once that stands, an answer takes
		// as long as a few relays need to pass it on. So of what the overall
		// limit is wider, the tcp stage gets twice its share, the others half of
		// theirs: by default 30 s, and 9.5 to 12 s.
		wider := max(1, float64(w.overall)/float64(c.cfg.Timeouts.Overall))
		w.dial, w.rest = 2*wider, (1+wider)/2
		c.ways[i] = w
	}
	return nil
}

// networkIndex is n's place in networks, -1 = it is none.
func networkIndex(n monitor.Network) int {
	for i, m := range networks {
		if m == n {
			return i
		}
	}
	return -1
}

// wayTo returns the way to a network.
func (c *Checker) wayTo(n monitor.Network) *way { return &c.ways[max(0, networkIndex(n))] }

// widened is the limit of a stage on this way.
func (w *way) widened(s monitor.Stage, limit time.Duration) time.Duration {
	by := w.rest
	if s == monitor.StageTCP {
		by = w.dial
	}
	if by == 1 {
		return limit
	}
	return time.Duration(float64(limit) * by)
}
