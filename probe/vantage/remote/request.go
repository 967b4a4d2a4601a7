package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// requestLimit bounds one request with its answer.
	requestLimit = time.Minute
	// maxAnswer bounds an answer, bytes after decompression.
	maxAnswer = 8 << 20
	// maxDetail bounds what is repeated of a problem, bytes.
	maxDetail = 500
	// timeHeader is the core's clock, on a 401.
	timeHeader = "X-Pharos-Time"
	// skewMost is from where a clock is wrong: a signature further off is refused
	// (NIP-98), and so are votes (corroboration.md).
	skewMost = time.Minute
)

// request is one request to the core.
type request struct {
	method, url string
	body        []byte // nil = none
	headers     map[string]string
}

// reply is a whole answer of the core: 200 or 304.
type reply struct {
	status int
	etag   string
	body   []byte
}

// refusal is an answer of the core that is no success, in its own words: an RFC
// 9457 problem. What a proxy says in its place is none.
type refusal struct {
	status     int
	detail     string
	lastSeq    uint64
	hasLastSeq bool
	retryAfter time.Duration
	// skew is our clock − the core's, where that came along.
	skew    time.Duration
	hasTime bool
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the core answers %d: %s", r.status, r.detail)
}

// Unwrap is the kind of error of the domain.
func (r *refusal) Unwrap() error {
	switch r.status {
	case http.StatusNotFound:
		return monitor.ErrNotFound
	case http.StatusConflict:
		return monitor.ErrConflict
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return monitor.ErrInvalid
	}
	return monitor.ErrUnavailable
}

// busyError is an answer that is not the core's, with how long to wait.
type busyError struct {
	text       string
	retryAfter time.Duration
}

func (e *busyError) Error() string { return e.text }
func (e *busyError) Unwrap() error { return monitor.ErrUnavailable }

// retryAfter is how long an error asks to wait.
func retryAfter(err error) time.Duration {
	var r *refusal
	var b *busyError
	switch {
	case errors.As(err, &r):
		return r.retryAfter
	case errors.As(err, &b):
		return b.retryAfter
	}
	return 0
}

// do signs a request, sends it and reads the answer. The error is a *refusal when
// the core said no, else monitor.ErrUnavailable in a sentence.
func (c *Config) do(ctx context.Context, r request) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	auth, err := c.Key.HTTPAuth(r.method, r.url, r.body, time.Now())
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("%w: ask the core: %w", monitor.ErrInvalid, err)
	}
	for name, value := range r.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", auth)
	req.Header.Set("User-Agent", c.UserAgent)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, notReached(c.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, notReached(c.URL, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("%w: the core's answer is larger than %d MB", monitor.ErrUnavailable, maxAnswer>>20)
	case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusNotModified:
		return &reply{resp.StatusCode, resp.Header.Get("ETag"), body}, nil
	}
	return nil, refused(resp, body)
}

// notReached is an error of the network in words, without the request's address,
// which the caller's sentence has.
func notReached(core string, err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %s did not answer in time", monitor.ErrUnavailable, core)
	}
	return fmt.Errorf("%w: %s was not reached: %w", monitor.ErrUnavailable, core, err)
}

// refused makes an error of an answer that is no success.
func refused(resp *http.Response, body []byte) error {
	wait := parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	var p struct {
		Title, Detail string
		LastSeq       *uint64 `json:"last_seq"`
		Errors        []struct{ Location, Message string }
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, &p) != nil {
		return &busyError{fmt.Sprintf("the core's address answers with HTTP status %d, and not as Pharos does", resp.StatusCode), wait}
	}
	r := &refusal{status: resp.StatusCode, retryAfter: wait, detail: p.Detail}
	if r.detail == "" {
		r.detail = p.Title
	}
	for _, e := range p.Errors {
		r.detail += "; " + strings.TrimPrefix(e.Location+": "+e.Message, ": ")
	}
	if r.detail = strings.ToValidUTF8(r.detail, "\uFFFD"); len(r.detail) > maxDetail {
		r.detail = strings.ToValidUTF8(r.detail[:maxDetail], "") + "…"
	}
	if p.LastSeq != nil {
		r.lastSeq, r.hasLastSeq = *p.LastSeq, true
	}
	if t, err := time.Parse(time.RFC3339Nano, resp.Header.Get(timeHeader)); err == nil {
		r.skew, r.hasTime = time.Since(t), true
	}
	return r
}

// parseRetryAfter reads seconds or a date; 0 = there is none.
func parseRetryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// skewWords says what to do about a clock that is wrong by skew.
func skewWords(skew time.Duration) string {
	where := "ahead of"
	if skew < 0 {
		where = "behind"
	}
	return fmt.Sprintf("this machine's clock is %s %s the core's: set it", skew.Abs().Round(time.Second), where)
}
