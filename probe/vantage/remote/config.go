package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

// Config is which core a vantage works for, as whom, and where it spools.
type Config struct {
	// URL is the core's: http(s), a host, perhaps a path, nothing else. Whether
	// http may be spoken is the caller's to judge.
	URL  string
	Key  nostr.Key // the vantage's own
	Name string    // that the core gave it
	// Dir is the vantage's data directory; the spool is Dir/spool. One process
	// may use it.
	Dir      string
	MaxSpool int64 // bytes of all batches in it, 0 = 256 MB
	// UserAgent is sent with each request, and is the software of an enrolment.
	UserAgent string
	// HTTP sends the requests; nil = a client of its own. Redirects must not be
	// followed: a signature is for one URL.
	HTTP *http.Client
	// OnRules is told what the core decides by, at first and when it changes,
	// before Tasks returns. It must not call the Core. Nil = nobody is.
	OnRules func(wire.Rules)
	Log     *slog.Logger
}

// defaultMaxSpool is some four hours at full load (50 000 relays every 5 min).
const defaultMaxSpool = 256 << 20

// CoreURL checks the URL of a core and returns it as requests are built on it,
// without a slash at its end. The error is monitor.ErrInvalid.
func CoreURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, fmt.Errorf("%w: the core's URL is no URL: write one such as https://pharos.example.com", monitor.ErrInvalid)
	case !strings.EqualFold(u.Scheme, "https") && !strings.EqualFold(u.Scheme, "http"):
		return nil, fmt.Errorf("%w: the core's URL has the scheme %q: write https://…", monitor.ErrInvalid, u.Scheme)
	case u.User != nil:
		return nil, fmt.Errorf("%w: the core's URL holds a user name or password: leave out everything up to the @", monitor.ErrInvalid)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return nil, fmt.Errorf("%w: the core's URL has something behind its path: leave it out", monitor.ErrInvalid)
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if port := u.Port(); port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		u.Host = strings.TrimSuffix(strings.TrimSuffix(u.Host, port), ":")
	}
	u = u.JoinPath() // cleans it
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func (c *Config) fill() error {
	var problems []error
	bad := func(what string) {
		problems = append(problems, fmt.Errorf("%w remote core: %s", monitor.ErrInvalid, what))
	}
	if c.Name == "" {
		bad("the vantage needs a name")
	}
	if c.Dir == "" {
		bad("the spool needs a directory")
	}
	if c.MaxSpool < 0 {
		bad("the bound of the spool must be positive")
	}
	if c.MaxSpool == 0 {
		c.MaxSpool = defaultMaxSpool
	}
	return errors.Join(append(problems, c.fillHTTP())...)
}

// fillHTTP fills in what every request needs.
func (c *Config) fillHTTP() error {
	u, err := CoreURL(c.URL)
	if err != nil {
		return err
	}
	c.URL = u.String()
	if c.Key.Pubkey() == "" {
		return fmt.Errorf("%w remote core: the vantage needs a key", monitor.ErrInvalid)
	}
	if c.UserAgent == "" {
		c.UserAgent = "pharos"
	}
	if c.HTTP == nil {
		c.HTTP = newClient()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// newClient keeps its connection, follows no redirect, and waits for nothing
// without end; each request has a limit of its own beside these.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			ResponseHeaderTimeout:  45 * time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConnsPerHost:    2,
			MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
