package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

type healthCmd struct {
	URL string `arg:"" optional:"" help:"Of the process; by default the one on this data directory."`
}

// healthTimeout bounds the whole request: a health check that hangs is a bad
// answer.
const healthTimeout = 10 * time.Second

// Run asks /readyz and exits 0 when the process is ready, 1 when it is not or
// does not answer.
func (h *healthCmd) Run(ctx context.Context, c *command) error {
	target := h.URL
	if target == "" {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		target = httpURL(c.address(cfg))
	}
	u, err := readyURL(target)
	if err != nil {
		return exitf(exitUsage, "the URL %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return exitf(exitUsage, "the URL is wrong")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return exitf(exitBad, "%s does not answer: is pharos serve running?", u)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what is cut off is not ours
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Detail, Reason string }
		_ = json.Unmarshal(body, &problem)
		if why := strings.TrimSpace(problem.Detail + problem.Reason); why != "" {
			return exitf(exitBad, "%s says %s", u, why)
		}
		return exitf(exitBad, "%s answers with HTTP status %d", u, resp.StatusCode)
	}
	var ready struct{ Status string }
	if err := json.Unmarshal(body, &ready); err != nil || ready.Status != "ok" {
		return exitf(exitBad, "%s answers, but not as Pharos does: is another program listening there?", u)
	}
	_, err = io.WriteString(c.stdout, "ready\n")
	return err
}

// readyURL turns what a person writes into the URL of /readyz.
func readyURL(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := parseURL(s, "http", "https", "ws", "wss")
	if err != nil {
		return "", err
	}
	switch u.Scheme = strings.ToLower(u.Scheme); u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	}
	if !strings.HasSuffix(u.Path, "/readyz") {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/readyz"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String(), nil
}

// httpURL is where a listening address is reached from this machine.
func httpURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}).String()
}
