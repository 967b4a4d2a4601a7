package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// maxNames of a certificate are kept.
const maxNames = 20

var (
	http11 = []string{"http/1.1"}
	// classical is offered first: Go ignores the order of curves, so offering
	// the hybrid at all means paying for it, a third of a whole probe.
	classical = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}
)

// handshake secures w, which must have its deadline.
func (c *Checker) handshake(w *wire, host string, hybrid bool) (*monitor.TLSFacts, error) {
	cfg := &tls.Config{RootCAs: c.roots, ServerName: host, NextProtos: http11}
	if !hybrid {
		cfg.CurvePreferences = classical
	}
	conn := tls.Client(metered{w.raw, w.budget}, cfg)
	// w ends it, by its deadline and its watch over the context; a context here
	// would start a goroutine for each handshake.
	err := conn.HandshakeContext(context.Background())
	state := conn.ConnectionState()
	certs := state.PeerCertificates
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		certs = bad.UnverifiedCertificates
	}
	var facts *monitor.TLSFacts
	if len(certs) > 0 {
		facts = tlsFacts(state.Version, certs[0])
	}
	if err == nil {
		w.conn = conn
	}
	return facts, err
}

func tlsFacts(version uint16, leaf *x509.Certificate) *monitor.TLSFacts {
	f := &monitor.TLSFacts{Issuer: clean(leaf.Issuer.String()), NotAfter: leaf.NotAfter.UTC(), Names: make([]string, 0, min(maxNames, len(leaf.DNSNames)+len(leaf.IPAddresses)))}
	switch version {
	case tls.VersionTLS12:
		f.Version = "1.2"
	case tls.VersionTLS13:
		f.Version = "1.3"
	}
	for _, n := range leaf.DNSNames {
		if len(f.Names) < maxNames {
			f.Names = append(f.Names, clean(n))
		}
	}
	for _, ip := range leaf.IPAddresses {
		if len(f.Names) < maxNames {
			f.Names = append(f.Names, ip.String())
		}
	}
	if len(f.Names) == 0 && leaf.Subject.CommonName != "" {
		f.Names = append(f.Names, clean(leaf.Subject.CommonName))
	}
	return f
}

// isAlert reports whether the peer ended the handshake with an alert, as one
// does that wants a key exchange which was not offered.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// tlsCause tells what a handshake's error means; the sentence fits after the
// host's name. CauseNone: it is an error of the network, or of ours.
func tlsCause(err error, facts *monitor.TLSFacts, host string, now time.Time) (monitor.Cause, string) {
	var (
		invalid   x509.CertificateInvalidError
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		bad       *tls.CertificateVerificationError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		cert := invalid.Cert
		what := "TLS certificate of " + host
		if errors.As(err, &bad) && !cert.Equal(bad.UnverifiedCertificates[0]) {
			what = "a CA certificate in the chain of " + host
		}
		if now.Before(cert.NotBefore) {
			return monitor.CauseTLSExpired, what + " is not valid before " + cert.NotBefore.UTC().Format(time.DateOnly)
		}
		return monitor.CauseTLSExpired, what + " expired on " + cert.NotAfter.UTC().Format(time.DateOnly)
	case errors.As(err, &name):
		if facts != nil && len(facts.Names) > 0 {
			more := ""
			if n := len(facts.Names) - 1; n > 0 {
				more = fmt.Sprintf(" and %d more", n)
			}
			return monitor.CauseTLSName, fmt.Sprintf("TLS certificate of %s is for %s%s", host, facts.Names[0], more)
		}
		return monitor.CauseTLSName, "TLS certificate of " + host + " is for no name at all"
	case errors.As(err, &authority):
		issuer := "an unknown authority"
		if facts != nil && facts.Issuer != "" {
			issuer = facts.Issuer + ", which is no trusted authority"
		}
		return monitor.CauseTLSUntrusted, "TLS certificate of " + host + " was issued by " + issuer
	case errors.As(err, &bad):
		return monitor.CauseTLSUntrusted, "TLS certificate of " + host + " cannot be trusted: " + clean(bad.Err.Error())
	case isAlert(err):
		var op *net.OpError
		errors.As(err, &op)
		return monitor.CauseTLSHandshake, host + " refused the TLS handshake: " + clean(op.Err.Error())
	case errors.As(err, &record):
		return monitor.CauseTLSHandshake, host + " does not speak TLS on this port"
	}
	switch readNetError(err) {
	case netClosed:
		return monitor.CauseTLSHandshake, host + " closed the connection during the TLS handshake"
	case netUnknown:
		return monitor.CauseTLSHandshake, "TLS handshake with " + host + " failed: " + clean(err.Error())
	default:
		return monitor.CauseNone, ""
	}
}
