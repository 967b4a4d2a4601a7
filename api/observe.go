package api

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// observe counts every request and turns a panic into a 500, so that one bad
// handler costs one answer and not the process.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		if r.ContentLength != 0 {
			// Also of a body that nobody reads: the server does, before it answers.
			// The error is of a writer that knows no deadline, as in a test.
			_ = http.NewResponseController(w).SetReadDeadline(start.Add(bodyTimeout))
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store") // but for lists, which say otherwise
		defer func() {
			route := chi.RouteContext(r.Context()).RoutePattern()
			v := recover()
			// An answer that is half out cannot be mended: the connection is cut,
			// so that nobody takes it for a whole one.
			abort := v != nil && (v == http.ErrAbortHandler || ww.Status() != 0)
			if v != nil && v != http.ErrAbortHandler {
				a.http.panics.Inc()
				a.log.Error("handler panicked", "route", route, "panic", v, "stack", string(debug.Stack()))
			}
			if v != nil && !abort {
				a.writeProblem(ww, newProblem(http.StatusInternalServerError, "something broke here; it is in the log"))
			}
			if route == "" || route == "/*" {
				route = "other"
			}
			status := ww.Status()
			if status == 0 {
				status = http.StatusOK
			}
			a.http.requests.WithLabelValues(route, methodLabel(r.Method), strconv.Itoa(status)).Inc()
			a.http.duration.WithLabelValues(route).Observe(time.Since(start).Seconds())
			if abort {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(ww, r)
	})
}

// methodLabel keeps the label bounded: a caller may send any word as method.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return m
	}
	return "other"
}
