package main

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/go-chi/chi/v5/middleware"
)

// clientAddress notes in each request's context who asks: the peer, or, where
// that is one of the trusted proxies, whom its X-Forwarded-For names.
func clientAddress(trusted []netip.Prefix) func(http.Handler) http.Handler {
	if len(trusted) == 0 {
		return middleware.ClientIPFromRemoteAddr
	}
	words := make([]string, len(trusted))
	for i, p := range trusted {
		words[i] = p.String()
	}
	return middleware.ClientIPFromXFF(words...)
}

// clientOf is the address that clientAddress noted; invalid where there is none.
func clientOf(r *http.Request) netip.Addr {
	if a := middleware.GetClientIPAddr(r.Context()); a.IsValid() {
		return a
	}
	// A trusted proxy that names nobody asks for itself.
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return peer.Addr().Unmap()
}

// isLoopback reports whether only this machine can reach a listening address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
