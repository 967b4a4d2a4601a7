package monitor

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// RelayURL is a relay's identity: a canonical ws:// or wss:// URL as made by
// ParseRelayURL or Canonical, never any other text. It is ASCII without white
// space. Its methods never panic, whatever it holds.
type RelayURL string

// Network is the network that a relay is reached through.
type Network string

// The networks, in NIP-66's words.
const (
	Clearnet Network = "clearnet"
	Tor      Network = "tor"
	I2P      Network = "i2p"
	Loki     Network = "loki"

	numNetworks = 4
)

// index returns n's place in an array of numNetworks.
func (n Network) index() int {
	switch n {
	case Tor:
		return 1
	case I2P:
		return 2
	case Loki:
		return 3
	}
	return 0
}

// maxURLBytes bounds a relay URL, as it comes in and as it is kept.
const maxURLBytes = 512

// ParseRelayURL turns text into a relay's identity by all rules of
// relay-url.md, in their order; addresses within allow are accepted although
// they are not public. The result is idempotent. The error is a *URLError with
// the first broken rule.
func ParseRelayURL(s string, allow ...netip.Prefix) (RelayURL, error) {
	return parseRelayURL(s, true, allow)
}

// Canonical is ParseRelayURL without the policy of rules 6 to 8: any port but
// one that is no number up to 65535, any host, a query and any path are
// accepted. Both agree on what both accept.
func Canonical(s string) (RelayURL, error) {
	return parseRelayURL(s, false, nil)
}

func parseRelayURL(input string, policy bool, allow []netip.Prefix) (RelayURL, error) {
	reject := func(reason string) (RelayURL, error) { return "", newURLError(input, reason) }

	// 1 and 2: what is there at all.
	s := strings.TrimFunc(input, func(r rune) bool { return r == '\uFEFF' || unicode.IsSpace(r) })
	if s == "" {
		return reject(reasonEmpty)
	}
	if len(input) > maxURLBytes {
		return reject(reasonLength)
	}
	tls, rest, ok := cutScheme(s)
	if !ok {
		return reject(reasonScheme)
	}

	// 3 and 4: the whole text, fragment and percent-encoded characters too.
	plain := percentDecode(rest)
	if strings.ContainsFunc(plain, invisible) {
		return reject(reasonWhitespace)
	}
	if joined(plain) {
		return reject(reasonList)
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, rawPath := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, rawPath = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return reject(reasonUserinfo)
	}

	// 5 and 6: host and port.
	rawHost, rawPort, hasPort := cutPort(authority)
	host, addr, ok := parseHost(rawHost)
	if !ok {
		return reject(reasonHost)
	}
	port := defaultPort(tls)
	if hasPort && (rawPort != "" || policy) {
		if port, ok = parsePort(rawPort); !ok || policy && badPort(port) {
			return reject(reasonPort)
		}
	}

	// 7: which hosts are not for everyone.
	if policy {
		if reason := hostPolicy(host, addr, allow); reason != "" {
			return reject(reason)
		}
	}

	// 9, then 8: what the path comes to is judged too, because resolving its
	// dots can bring together what was apart.
	buf := make([]byte, 0, maxURLBytes)
	buf = append(buf, "ws"...)
	if tls {
		buf = append(buf, 's')
	}
	buf = append(buf, "://"...)
	buf = append(buf, host...)
	if port != defaultPort(tls) {
		buf = append(buf, ':')
		buf = strconv.AppendUint(buf, uint64(port), 10)
	}
	pathStart := len(buf)
	buf = appendPath(buf, rawPath)
	before, after := percentDecode(rawPath), percentDecode(string(buf[pathStart:]))
	switch {
	case joined(after):
		return reject(reasonList)
	case policy && hasQuery:
		return reject(reasonQuery)
	case policy && (nested(before) || nested(after)):
		return reject(reasonNested)
	case policy && strings.ContainsAny(before, "(){}<>"):
		return reject(reasonPath)
	}
	if hasQuery {
		buf = append(buf, '?')
		buf = appendEncoded(buf, query, queryEncodeSet)
	}
	if len(buf) > maxURLBytes { // encoding made it longer
		return reject(reasonLength)
	}
	if string(buf) == input {
		return RelayURL(input), nil
	}
	return RelayURL(buf), nil
}

// cutScheme removes ws:// or wss:// in any case.
func cutScheme(s string) (tls bool, rest string, ok bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok:
		return false, "", false
	case strings.EqualFold(scheme, "wss"):
		// EqualFold also folds U+017F to s.
		return true, rest, len(scheme) == 3
	case strings.EqualFold(scheme, "ws"):
		return false, rest, len(scheme) == 2
	}
	return false, "", false
}

// cutPort splits an authority at the colon behind the host.
func cutPort(authority string) (host, port string, found bool) {
	if strings.HasPrefix(authority, "[") {
		if i := strings.IndexByte(authority, ']'); i >= 0 {
			switch after := authority[i+1:]; {
			case after == "":
				return authority, "", false
			case after[0] == ':':
				return authority[:i+1], after[1:], true
			}
		}
		return "", "", false // no host
	}
	return strings.Cut(authority, ":")
}

// valid reports whether u can be a relay URL at all (S4 a), without parsing it
// again.
func (u RelayURL) valid() bool {
	return strings.HasPrefix(string(u), "wss://") || strings.HasPrefix(string(u), "ws://")
}

func (u RelayURL) String() string { return string(u) }

// TLS reports whether the scheme is wss.
func (u RelayURL) TLS() bool { return strings.HasPrefix(string(u), "wss:") }

// Network tells which network the host belongs to.
func (u RelayURL) Network() Network { return hostNetwork(u.Host()) }

// Host returns the host without port and without the brackets of IPv6.
func (u RelayURL) Host() string {
	host, _, _ := cutPort(u.authority())
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// Port returns the port in decimal, the scheme's default where the URL names
// none.
func (u RelayURL) Port() string {
	if _, port, ok := cutPort(u.authority()); ok && port != "" {
		return port
	}
	return strconv.Itoa(int(defaultPort(u.TLS())))
}

// HostPort returns host:port to dial, IPv6 in brackets, with a port always.
func (u RelayURL) HostPort() string { return net.JoinHostPort(u.Host(), u.Port()) }

// Path returns what to ask the host for: the path, which always starts with a
// slash, and the query where Canonical kept one.
func (u RelayURL) Path() string {
	_, rest, _ := strings.Cut(string(u), "://")
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return "/"
	}
	return rest[i:]
}

func (u RelayURL) authority() string {
	_, rest, _ := strings.Cut(string(u), "://")
	authority, _, _ := strings.Cut(rest, "/")
	return authority
}
