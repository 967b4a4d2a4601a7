package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"

	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// authFailuresPerMinute is how often an address may fail to be an operator
// before it hears 429. Right credentials are let in all the same: a stranger
// behind the same address, or a web page that sends requests from an operator's
// own browser, must not lock the operator out, and 256 bits are not guessed.
const authFailuresPerMinute = 10

// actorToken is monitor.Command.Actor of who holds the admin token.
const actorToken = "token"

// Why somebody is no operator, for metrics.
const (
	authMissing   = "missing"   // no credentials
	authMalformed = "malformed" // none that we take
	authToken     = "token"     // another token
	authEvent     = "event"     // a NIP-98 event that does not sign this request
	authReplay    = "replay"    // one that was used
	authFull      = "full"      // one that cannot be told from a used one
	authKey       = "key"       // of a key that is no operator's
)

var authReasons = []string{authMissing, authMalformed, authToken, authEvent, authReplay, authFull, authKey}

// refusal is why a request is not an operator's.
type refusal struct {
	reason string // one of authReasons
	status int
	detail string
	pubkey string // whose signature is right, for the log
}

// auth decides who is an operator.
type auth struct {
	token   [sha256.Size]byte // hash of the admin token
	noToken bool
	started time.Time
	used    replays
	// optedOut are the signatures of relays' owners that were carried out.
	optedOut replays
	// log bounds what failures write into the log: the metric counts all.
	log rate.Sometimes
}

func newAuth(token string) *auth {
	return &auth{
		token: sha256.Sum256([]byte(token)), noToken: token == "",
		started: time.Now(),
		log:     rate.Sometimes{First: 20, Interval: time.Second},
	}
}

// actorKey is where an operation finds who asks for it.
type actorKey struct{}

// operators lets only operators on, who send their body as JSON.
func (a *API) operators() huma.Middlewares {
	return huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humachi.Unwrap(ctx)
		actor, p := a.authenticate(w, r)
		if p != nil {
			a.writeProblem(w, p)
			return
		}
		next(huma.WithValue(ctx, actorKey{}, actor))
	}}
}

// authenticate tells who asks: actorToken or an operator's pubkey. The body is
// read only once it is known who sends it, or which key claims to.
func (a *API) authenticate(w http.ResponseWriter, r *http.Request) (actor string, p *problem) {
	header, no := authorization(r)
	var signed nostr.HTTPAuth
	if no == nil {
		actor, signed, no = a.identify(r, header)
	}
	if no != nil {
		return "", a.refuse(r, no)
	}
	body, p := readBody(w, r, maxBody, bodyTimeout)
	if p != nil {
		return "", p
	}
	if actor != actorToken {
		if no := a.redeem(signed, body); no != nil {
			return "", a.refuse(r, no)
		}
	}
	return actor, checkBody(r, body)
}

// authorization is the one Authorization header.
func authorization(r *http.Request) (string, *refusal) {
	const how = "send Authorization: Bearer and the token in admin.token of the data directory, or Authorization: Nostr and a NIP-98 event signed by a key listed in operators"
	switch values := r.Header.Values("Authorization"); {
	case len(values) == 0 || values[0] == "" && len(values) == 1:
		return "", &refusal{reason: authMissing, status: http.StatusUnauthorized, detail: "this is for operators: " + how}
	case len(values) > 1:
		return "", &refusal{reason: authMalformed, status: http.StatusUnauthorized, detail: "there is more than one header Authorization"}
	default:
		return values[0], nil
	}
}

// identify checks the credentials, but for what a signature says of the body.
func (a *API) identify(r *http.Request, header string) (actor string, signed nostr.HTTPAuth, no *refusal) {
	scheme, credentials, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		// Of the hashes, so that neither time nor length tells of the token.
		h := sha256.Sum256([]byte(strings.TrimSpace(credentials)))
		if subtle.ConstantTimeCompare(h[:], a.auth.token[:]) != 1 || a.auth.noToken {
			return "", signed, &refusal{reason: authToken, status: http.StatusUnauthorized, detail: "the token is not the one in admin.token of the data directory"}
		}
		return actorToken, signed, nil
	case strings.EqualFold(scheme, "Nostr"):
		s := a.settings.Load()
		signed, err := nostr.VerifyHTTPAuth(header, nostr.HTTPRequest{Method: r.Method, URLs: requestURLs(r, s.PublicURL), Now: time.Now()})
		if err != nil {
			return "", signed, &refusal{reason: authEvent, status: http.StatusUnauthorized, detail: err.Error()}
		}
		if !slices.ContainsFunc(s.Operators, func(pubkey string) bool { return strings.EqualFold(pubkey, signed.Pubkey) }) {
			return "", signed, &refusal{
				reason: authKey, status: http.StatusForbidden, pubkey: signed.Pubkey,
				detail: "the signature is right, but its key is not listed in operators",
			}
		}
		return signed.Pubkey, signed, nil
	}
	return "", signed, &refusal{reason: authMalformed, status: http.StatusUnauthorized, detail: "the scheme of Authorization is neither Bearer nor Nostr"}
}

// redeem uses up an operator's event: for this body, and once.
func (a *API) redeem(signed nostr.HTTPAuth, body []byte) *refusal {
	no := &refusal{reason: authEvent, status: http.StatusUnauthorized, pubkey: signed.Pubkey}
	if err := signed.MatchBody(body); err != nil {
		no.detail = err.Error()
		return no
	}
	if signed.CreatedAt.Unix() < a.auth.started.Unix() {
		// What was used before this process began is not remembered.
		no.detail = "the event was signed before Pharos was started; sign anew"
		return no
	}
	switch fresh, room := a.auth.used.claim(signed.ID, signed.CreatedAt, time.Now()); {
	case !fresh:
		no.reason, no.detail = authReplay, "the event was used before; sign each request anew"
		return no
	case !room:
		no.reason, no.status = authFull, http.StatusTooManyRequests
		no.detail = "there were too many signed requests in the last minutes; wait, or use the token"
		return no
	}
	return nil
}

// refuse counts, logs and answers a request that is no operator's.
func (a *API) refuse(r *http.Request, no *refusal) *problem {
	client := clientAddress(r)
	a.limits.failed.WithLabelValues(no.reason).Inc()
	a.auth.log.Do(func() {
		a.log.Warn("operator's request refused", "reason", no.reason, "detail", no.detail, "client", client.String(),
			"route", chi.RouteContext(r.Context()).RoutePattern(), "pubkey", no.pubkey)
	})
	if wait := a.limits.failures.take(addressKey(client), authFailuresPerMinute, time.Now()); wait > 0 {
		return a.tooMany(limitAuth, wait, "too many requests from your address were no operator's, the last one too")
	}
	if no.status == http.StatusTooManyRequests {
		return a.tooMany(limitAuth, 2*nostr.HTTPAuthWindow, no.detail)
	}
	p := newProblem(no.status, no.detail)
	if no.status == http.StatusUnauthorized {
		p.headers["Www-Authenticate"] = []string{"Bearer", "Nostr"}
	}
	return p
}

// requestURLs lists the absolute URLs that r may have been signed for: below
// public_url, and the one that it was sent to, with http or https, as a proxy
// may have taken TLS off.
//
// The header Host is the sender's word. Whoever was sent an event that an
// operator signed for another Pharos could send it on to this one with that
// one's name as Host; so where public_url is known, the request's own URL counts
// only if Host is the address that the connection came in at.
func requestURLs(r *http.Request, publicURL string) []string {
	var urls []string
	if u, err := url.Parse(publicURL); err == nil && u.Host != "" {
		scheme := strings.ToLower(u.Scheme)
		switch scheme {
		case "ws":
			scheme = "http"
		case "wss":
			scheme = "https"
		}
		urls = append(urls, scheme+"://"+u.Host+strings.TrimSuffix(u.EscapedPath(), "/")+r.URL.RequestURI())
	}
	if len(urls) == 0 || isLocal(r) {
		urls = append(urls, "http://"+r.Host+r.URL.RequestURI(), "https://"+r.Host+r.URL.RequestURI())
	}
	return urls
}

// isLocal reports whether the header Host names, by address or as localhost,
// the address that the connection was made to.
func isLocal(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	local, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return false
	}
	addr := local.Addr().Unmap().WithZone("")
	host := (&url.URL{Host: r.Host}).Hostname()
	named, err := netip.ParseAddr(host)
	return err == nil && named.Unmap() == addr || strings.EqualFold(host, "localhost") && addr.IsLoopback()
}

// secure documents an operation as one of the operators'.
func (a *API) secure(op huma.Operation) huma.Operation {
	op.Middlewares = a.operators()
	op.Security = []map[string][]string{{"token": {}}, {"nostr": {}}}
	op.Tags = []string{"Operators"}
	op.MaxBodyBytes = maxBody
	op.BodyReadTimeout = -1 // it was read by then; huma ends its deadline, which would end the request
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
		http.StatusTooManyRequests, http.StatusInternalServerError)
	return op
}

// schemeOwner is how the owner of a relay is told.
const schemeOwner = "owner"

// securitySchemes documents how an operator is told, and a relay's owner.
func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{
		schemeOwner: {
			Type: "apiKey", In: "header", Name: "Authorization",
			Description: "NIP-98: Nostr and a base64 event of kind 27235, signed by the key that the relay's NIP-11 document names as pubkey, with u (this URL, below public_url), " +
				"method and payload (the SHA-256 of the body); created within 60 s of now, and used once.",
		},
		"token": {Type: "http", Scheme: "bearer", Description: "The token in admin.token of the data directory."},
		"nostr": {
			Type: "apiKey", In: "header", Name: "Authorization",
			Description: "NIP-98: Nostr and a base64 event of kind 27235, signed by a key listed in operators, with u (this URL, below public_url), " +
				"method and payload (required with a body); created within 60 s of now, and used once.",
		},
	}
}
