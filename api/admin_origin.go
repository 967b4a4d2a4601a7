package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/cors"
)

// adminPath is where the operators' commands are.
const adminPath = "/v1/admin/"

// crossOrigin lets pages of any origin read, propose a relay, and hand over what
// a relay's owner signed for this very request. No page may command: a browser that is told nothing does not send the Authorization
// header or the JSON of another origin.
//
// It stands before the limits, so that a page can read that it was limited; a
// preflight therefore costs nothing, and gets nothing.
func crossOrigin(next http.Handler) http.Handler {
	open := func(methods ...string) http.Handler {
		return cors.Handler(cors.Options{
			AllowedOrigins: []string{"*"},
			AllowedMethods: methods,
			AllowedHeaders: []string{"*"},
			ExposedHeaders: []string{"ETag", "Link", generationHeader, "Retry-After"},
			MaxAge:         int((24 * time.Hour).Seconds()),
		})(next)
	}
	read, propose := open(http.MethodGet, http.MethodHead), open(http.MethodPost)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, adminPath), strings.HasPrefix(r.URL.Path, vantagesPath):
			next.ServeHTTP(w, r)
		case r.URL.Path == submitPath, r.URL.Path == optOutPath:
			propose.ServeHTTP(w, r)
		default:
			read.ServeHTTP(w, r)
		}
	})
}
