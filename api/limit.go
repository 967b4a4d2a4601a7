package api

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
)

// The limits that an address can come up against, for metrics.
const (
	limitRequests    = "requests"
	limitSubmissions = "submissions"
	limitAuth        = "auth"
	limitOptOuts     = "opt_outs"
)

// limits are what an address may do in a minute, and what came of it.
type limits struct {
	requests    tally // Settings.PerMinute
	submissions tally // submissionsPerMinute
	failures    tally // authFailuresPerMinute
	optOuts     tally // optOutsPerMinute

	limited *prometheus.CounterVec
	failed  *prometheus.CounterVec
}

func newLimits(r *prometheus.Registry) *limits {
	l := &limits{
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pharos_http_limited_total", Help: "HTTP requests refused with 429, by the limit of an address that was reached.",
		}, []string{"limit"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pharos_http_auth_failures_total", Help: "Operators' requests that were refused for who asks, by reason.",
		}, []string{"reason"}),
	}
	for _, limit := range []string{limitRequests, limitSubmissions, limitAuth, limitOptOuts} {
		l.limited.WithLabelValues(limit)
	}
	for _, reason := range authReasons {
		l.failed.WithLabelValues(reason)
	}
	r.MustRegister(l.limited, l.failed)
	return l
}

// unlimited are the paths that whoever watches this process asks.
func unlimited(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/metrics"
}

// limit refuses the requests of an address above Settings.PerMinute.
func (a *API) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := a.settings.Load()
		if s.PerMinute <= 0 || unlimited(r.URL.Path) || atDesk(r) {
			next.ServeHTTP(w, r)
			return
		}
		client := clientAddress(r)
		if !exempt(client, s.Exempt) {
			if wait := a.limits.requests.take(addressKey(client), s.PerMinute, time.Now()); wait > 0 {
				a.writeProblem(w, a.tooMany(limitRequests, wait, fmt.Sprintf("more than %d requests in a minute from your address", s.PerMinute)))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// tooMany is the 429 of a limit that lets the next one through after wait.
func (a *API) tooMany(limit string, wait time.Duration, what string) *problem {
	a.limits.limited.WithLabelValues(limit).Inc()
	seconds := int(math.Ceil(wait.Seconds()))
	p := newProblem(http.StatusTooManyRequests, fmt.Sprintf("%s; try again in %d s", what, seconds))
	p.headers.Set("Retry-After", strconv.Itoa(seconds))
	return p
}

// clientAddress is who asks: the address that a trusted proxy named, or the
// peer's. It is invalid where neither can be read.
func clientAddress(r *http.Request) netip.Addr {
	client := middleware.GetClientIPAddr(r.Context())
	if !client.IsValid() {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return netip.Addr{}
		}
		client = peer.Addr()
	}
	return client.Unmap().WithZone("")
}

func exempt(client netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(client) })
}

// addressKey is what a limit counts by: an IPv4 address, or the /64 of an IPv6
// address, which is the least that one customer gets. IPv4 stands within
// ff00::/8, where no client can be; addresses that are not known share one key.
func addressKey(client netip.Addr) uint64 {
	if client.Is4() {
		b := client.As4()
		return 0xffffffff<<32 | uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := client.As16()
	return binary.BigEndian.Uint64(b[:8])
}
