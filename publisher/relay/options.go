package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/pharos-nostr/pharos/monitor"
)

// Options are what the relay says of itself, and its limits. "Address" is one
// IPv4 address, or one IPv6 /64.
type Options struct {
	Name, Contact string
	Pubkey        string // of the service key, hex
	Version       string // of Pharos
	// MaxSubscriptions is how many one connection may hold open; 0 = 50
	// (limits.relay_subscriptions).
	MaxSubscriptions int
	// RequestsPerMinute is how many REQ and COUNT messages one address may
	// send, on all its connections together; as many may come at once after a
	// quiet minute. 0 = 120 (limits.relay_req_per_minute).
	RequestsPerMinute int
	// MaxConnections is how many one address may hold open; 0 = 50
	// (limits.relay_connections).
	MaxConnections int
	// Exempt are networks to which neither of the two limits per address
	// applies; nil = loopback (limits.exempt).
	Exempt []netip.Prefix
	// ClientAddress is who sent a request; nil, or an answer that is not valid,
	// = the peer of the connection. No header is believed here.
	ClientAddress func(*http.Request) netip.Addr
	Log           *slog.Logger // nil = silent
}

// loopback is exempt by default.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// settings are what Configure swaps.
type settings struct {
	info           []byte // the NIP-11 document
	maxSubs        int
	perMinute      int
	maxConnections int
	exempt         []netip.Prefix
	clientAddress  func(*http.Request) netip.Addr
}

func (o *Options) settings() (*settings, error) {
	var errs []error
	limit := func(key string, n, standard int) int {
		if n < 0 {
			errs = append(errs, fmt.Errorf("relay: %w: limits.%s is %d; it must not be negative", monitor.ErrInvalid, key, n))
		}
		return cmp.Or(n, standard)
	}
	s := &settings{
		maxSubs:        limit("relay_subscriptions", o.MaxSubscriptions, 50),
		perMinute:      limit("relay_req_per_minute", o.RequestsPerMinute, 120),
		maxConnections: limit("relay_connections", o.MaxConnections, 50),
		exempt:         slices.Clone(o.Exempt),
		clientAddress:  o.ClientAddress,
	}
	if o.Exempt == nil {
		s.exempt = loopback
	}
	for _, p := range s.exempt {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("relay: %w: limits.exempt holds a network that is none", monitor.ErrInvalid))
		}
	}
	var err error
	if s.info, err = infoDocument(o, s); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

// address is who sent req; invalid where that cannot be told, as on a Unix
// socket.
func (s *settings) address(req *http.Request) netip.Addr {
	if s.clientAddress != nil {
		if a := s.clientAddress(req); a.IsValid() {
			return a.Unmap()
		}
	}
	a, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

func (s *settings) exempts(a netip.Addr) bool {
	return slices.ContainsFunc(s.exempt, func(p netip.Prefix) bool { return p.Contains(a) })
}
