package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// What commands send to a running core at once (api.md: bodies of 2 MB).
const (
	maxSentRelays = 5_000
	maxSentBytes  = 1_900_000
)

// Bounds of one request to the core: it answers within a minute or cuts off,
// and its largest answers, a page of relays or the results of a request, have a
// megabyte or two.
const (
	coreTimeout   = 90 * time.Second
	maxCoreAnswer = 16 << 20
)

// coreClient asks the running core of this configuration, on this machine.
type coreClient struct {
	base      string // "http://127.0.0.1:7766"
	token     Secret // "" = for what everybody may ask
	tokenFile string
	http      *http.Client
}

// core is a client of the core that serves this configuration. With steer it
// also holds the admin token. Errors carry an exit status.
func (c *command) core(cfg *loaded, steer bool) (*coreClient, error) {
	listen := c.address(cfg)
	if _, port, err := net.SplitHostPort(listen); err == nil && port == "0" {
		return nil, exitf(exitUsage, "listen is %s, which is any free port: name the one that the running process has, with --listen", listen)
	}
	k := &coreClient{
		base: httpURL(listen),
		http: &http.Client{
			// Neither a proxy nor another address may see the token.
			Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if !steer {
		return k, nil
	}
	k.tokenFile = adminTokenFile(cfg.dataDir(os.Getuid()))
	var err error
	if k.token, err = readAdminToken(k.tokenFile); err != nil {
		return nil, exitf(exitBad, "%s", tokenAdvice(k.tokenFile, err))
	}
	return k, nil
}

// address is where the process on the data directory answers: listen may have
// been changed since it started. Without one, and above all with --listen, it is
// that of the configuration.
func (c *command) address(cfg *loaded) string {
	if c.flags.Listen == nil {
		if at := answersAt(cfg.dataDir(os.Getuid())); at != "" {
			return at
		}
	}
	return cfg.Listen
}

// get reads a path into v.
func (k *coreClient) get(ctx context.Context, path string, query url.Values, v any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return k.do(ctx, http.MethodGet, path, nil, v)
}

// post sends body as JSON and reads the answer into v.
func (k *coreClient) post(ctx context.Context, path string, body, v any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return k.do(ctx, http.MethodPost, path, b, v)
}

// do sends one request. Its errors are sentences with exit status 1.
func (k *coreClient) do(ctx context.Context, method, path string, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, coreTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, bytes.NewReader(body))
	if err != nil {
		return exitf(exitUsage, "%s is no address that can be asked", k.base)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.token != "" {
		req.Header.Set("Authorization", "Bearer "+k.token.Reveal())
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return k.noAnswer(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxCoreAnswer+1))
	if err != nil {
		return k.noAnswer(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return k.refused(resp, answer)
	}
	if len(answer) > maxCoreAnswer || json.Unmarshal(answer, v) != nil {
		return exitf(exitBad, "%s answers, but not as Pharos does: is another program listening there?", k.base)
	}
	return nil
}

// noAnswer says what to do when nobody answers.
func (k *coreClient) noAnswer(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return exitf(exitBad, "interrupted")
	case ctx.Err() != nil:
		return exitf(exitBad, "%s did not answer within %s: look at its log", k.base, coreTimeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return exitf(exitBad, "nothing answers at %s: start Pharos with pharos serve, or name the address of the running one with --listen", k.base)
	}
	return exitf(exitBad, "%s broke off: is it shutting down, or is another program listening there?", k.base)
}

// problem is what the API answers when it does not do a thing (RFC 9457).
type problem struct {
	Title, Detail string
	Errors        []struct{ Location, Message string }
}

// maxToldProblems bounds the problems with one request that are told.
const maxToldProblems = 10

// refused makes a sentence of an answer that is no success.
func (k *coreClient) refused(resp *http.Response, answer []byte) error {
	var p problem
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(answer, &p) != nil || p.Detail+p.Title == "" {
		if resp.StatusCode == http.StatusNotFound {
			return exitf(exitBad, "%s does not know this request: is it another program, or an older Pharos?", k.base)
		}
		return exitf(exitBad, "%s answers with HTTP status %d, and not as Pharos does: is another program listening there?", k.base, resp.StatusCode)
	}
	var b strings.Builder
	b.WriteString(k.base + " says: ")
	if p.Detail != "" {
		b.WriteString(p.Detail)
	} else {
		b.WriteString(p.Title)
	}
	for i, e := range p.Errors {
		if i == maxToldProblems {
			fmt.Fprintf(&b, "\nand %d more", len(p.Errors)-i)
			break
		}
		b.WriteString("\n")
		if e.Location != "" {
			b.WriteString(e.Location + ": ")
		}
		b.WriteString(e.Message)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		fmt.Fprintf(&b, "\nthe token was that of %s; is this the data directory of the process that answers there? Name it with --data-dir", k.tokenFile)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if wait := resp.Header.Get("Retry-After"); wait != "" {
			fmt.Fprintf(&b, "\ntry again in %s seconds", wait)
		}
	}
	return exitf(exitBad, "%s", b.String())
}
