package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// retryAfter is what a 503 asks for: long enough for a store to come back,
// short enough for a client that waits.
const retryAfter = 5 * time.Second

// maxProblems bounds errors[]: ten thousand wrong parameters are told as a
// hundred and a number.
const maxProblems = 100

// problem is an RFC 9457 problem.
type problem struct {
	Type   string         `json:"type" format:"uri-reference" doc:"Always about:blank: the status says it all."`
	Title  string         `json:"title" doc:"The status in words."`
	Status int            `json:"status"`
	Detail string         `json:"detail" doc:"What went wrong and what to do."`
	Errors []problemError `json:"errors,omitempty" nullable:"false" doc:"Every problem with the request."`

	headers http.Header
}

// problemError is one fault of a request. It never repeats the value: that
// may hold a secret of the caller's.
type problemError struct {
	Location string `json:"location,omitempty" doc:"Where it is, such as query.url."`
	Message  string `json:"message"`
}

// The methods that huma asks of an error.
func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }
func (p *problem) GetHeaders() http.Header   { return p.headers }

func newProblem(status int, detail string, errs ...problemError) *problem {
	if extra := len(errs) - maxProblems; extra > 0 {
		errs = append(errs[:maxProblems:maxProblems], problemError{Message: fmt.Sprintf("and %d more", extra)})
	}
	p := &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Errors: errs, headers: http.Header{}}
	if status == http.StatusServiceUnavailable {
		p.headers.Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	return p
}

// huma's errors are made by a variable of its package; this one makes them
// ours, and documents them as such. Another of its variables has it take a
// field by its own name only: as with Go's decoder, RELAYS would be relays.
func init() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, detail string, errs ...error) huma.StatusError {
		if status >= http.StatusInternalServerError {
			errs = nil // what broke inside is not for the caller
		}
		list := make([]problemError, 0, len(errs))
		for _, err := range errs {
			var d huma.ErrorDetailer
			if errors.As(err, &d) {
				e := d.ErrorDetail()
				list = append(list, problemError{Location: place(e.Location), Message: e.Message})
			} else if err != nil {
				list = append(list, problemError{Message: err.Error()})
			}
		}
		if status == http.StatusUnprocessableEntity && len(list) > 0 {
			detail = countProblems(len(list))
		}
		return newProblem(status, detail, list...)
	}
}

// countProblems is the detail of a 422 with a list.
func countProblems(n int) string {
	if n == 1 {
		return "the request has a problem; errors names it"
	}
	return fmt.Sprintf("the request has %d problems; errors names each", n)
}

// place bounds a location: the names of unknown fields are the caller's.
func place(location string) string {
	head, name, ok := strings.Cut(location, ".")
	if !ok {
		return location
	}
	return head + "." + printable(name)
}

// fault maps an error of the domain to a problem: the one place that does.
// doing is what was being done, for the log.
func (a *API) fault(ctx context.Context, doing string, err error) error {
	switch {
	case ctx.Err() != nil: // the caller is gone and will not read this
		return newProblem(http.StatusServiceUnavailable, "the request was cancelled")
	case errors.Is(err, monitor.ErrInvalid):
		return newProblem(http.StatusUnprocessableEntity, err.Error())
	case errors.Is(err, monitor.ErrNotFound):
		return newProblem(http.StatusNotFound, err.Error())
	case errors.Is(err, monitor.ErrConflict):
		return newProblem(http.StatusConflict, err.Error())
	case errors.Is(err, monitor.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		a.log.Warn("store did not answer a reader", "doing", doing, "error", err)
		return newProblem(http.StatusServiceUnavailable, "the store does not answer now; try again")
	}
	a.log.Error("request failed", "doing", doing, "error", err)
	return newProblem(http.StatusInternalServerError, "something broke here; it is in the log")
}

// writeProblem writes a problem where huma is not at work.
func (a *API) writeProblem(w http.ResponseWriter, p *problem) {
	h := w.Header()
	maps.Copy(h, p.headers)
	h.Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	// The client may be gone; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(p)
}
