package relaytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// authority signs the certificates of this process's relays.
type authority struct {
	cert      *x509.Certificate
	key, leaf *ecdsa.PrivateKey
}

var ca = sync.OnceValue(func() authority {
	a := authority{}
	// Neither fails with these arguments.
	a.key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	a.leaf = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relaytest CA"},
		// Long enough for the clock of a synctest bubble, too.
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, t, t, &a.key.PublicKey, a.key))))
	return a
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("relaytest: %v", err))
	}
	return v
}

// Roots returns a pool with the CA that signs the relays of this process.
func Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca().cert)
	return pool
}

// CAPEM returns that CA as PEM.
func CAPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca().cert.Raw})
}

// CAFile writes that CA to a PEM file which lives as long as the test.
func CAFile(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ca.pem")
	if err := os.WriteFile(path, CAPEM(), 0o600); err != nil {
		tb.Fatalf("write the CA: %v", err)
	}
	return path
}

// serverConfig hands out certificates by the relay's behaviour of the moment
// and the name that is asked for.
func serverConfig(r *Relay) *tls.Config {
	type which struct {
		b    Behaviour
		name string
	}
	var mu sync.Mutex
	made := map[which]*tls.Certificate{}
	base := &tls.Config{
		SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			w := which{Behaviour(r.behaviour.Load()), h.ServerName}
			mu.Lock()
			defer mu.Unlock()
			if c := made[w]; c != nil {
				return c, nil
			}
			c, err := certificate(w.b, w.name, r.addr.Addr().AsSlice())
			if err == nil {
				made[w] = c
			}
			return c, err
		},
	}
	hybrid := base.Clone()
	hybrid.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768}
	mutual := base.Clone()
	mutual.ClientAuth = tls.RequireAnyClientCert
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		b := Behaviour(r.behaviour.Load())
		if change := hostile[b].config; change != nil {
			c := base.Clone()
			c.GetConfigForClient = nil
			change(c)
			return c, nil
		}
		switch b {
		case TLSHybrid:
			return hybrid, nil
		case TLSMutual:
			return mutual, nil
		default:
			return base, nil
		}
	}
	return base
}

func certificate(b Behaviour, name string, ip net.IP) (*tls.Certificate, error) {
	a := ca()
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "relaytest relay"},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(60 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{ip},
	}
	if name != "" {
		t.DNSNames = []string{name}
	}
	parent, key := a.cert, a.key
	if change := hostile[b].certificate; change != nil {
		return change(t)
	}
	switch b {
	case TLSExpired:
		t.NotAfter = now.Add(-24 * time.Hour)
	case TLSUnknownCA:
		parent, key = t, a.leaf
	case TLSWrongName:
		t.IPAddresses, t.DNSNames = nil, []string{"other.example.com"}
	case TLSSoonExpired:
		t.NotAfter = now.Add(72 * time.Hour)
	default:
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &a.leaf.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf}, nil
}
