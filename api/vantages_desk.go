package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Intake takes in what vantages on other machines see.
type Intake interface {
	// TaskChanges returns monitor.ErrNotFound for a name that is not enrolled.
	TaskChanges(name string, since uint64) (monitor.TaskChanges, error)
	// Deliver stores a batch, once: an old sequence is a *monitor.SequenceError.
	Deliver(ctx context.Context, b monitor.Batch) (monitor.Answer, error)
	// Skewed notes how wrong the clock is that a vantage signs with.
	Skewed(name string, skew time.Duration)
}

const (
	vantagesPath = "/v1/vantages/"
	enrolPath    = vantagesPath + "enrol"
	// timeHeader tells a vantage our clock, so that it can tell how wrong its own is.
	timeHeader = "X-Pharos-Time"
	// deskFailuresPerMinute is how often an address may be refused for who asks
	// before it hears 429. Right signatures are let in all the same: a stranger
	// behind the same address must not lock a vantage out.
	deskFailuresPerMinute = 30
	limitVantages         = "vantages"
	// batchTimeout bounds how long the body of a batch may take to arrive.
	batchTimeout = 30 * time.Second
	// queueTimeout is how long a batch waits for an earlier one of its vantage.
	queueTimeout = 5 * time.Second
	// heardLately is for how long after a right request of a vantage one with a
	// wrong time says nothing of its clock: it may be one that somebody kept.
	heardLately = time.Minute
)

// Why a vantage's request is refused, for metrics.
const (
	deskMissing   = "missing"   // no signature
	deskMalformed = "malformed" // none that we take
	deskEvent     = "event"     // an event that does not sign this request
	deskClock     = "clock"     // one of another time
	deskPayload   = "payload"   // one of another body
	deskReplay    = "replay"    // one that was used
	deskUnknown   = "unknown"   // no such vantage
	deskKey       = "key"       // another key than the vantage's
	deskRevoked   = "revoked"
	deskToken     = "token"    // of no open invitation
	deskBody      = "body"     // too large, too slow, not of the right type
	deskInvalid   = "invalid"  // a batch or an enrolment that makes no sense
	deskSequence  = "sequence" // a batch that was stored
	deskBusy      = "busy"     // too many at once
	deskStore     = "store"    // the store is away
)

var deskReasons = []string{
	deskMissing, deskMalformed, deskEvent, deskClock, deskPayload, deskReplay, deskUnknown, deskKey, deskRevoked,
	deskToken, deskBody, deskInvalid, deskSequence, deskBusy, deskStore,
}

// desk is where vantages on other machines are received.
type desk struct {
	refused  *prometheus.CounterVec
	failures tally          // deskFailuresPerMinute
	log      rate.Sometimes // bounds what refusals write into the log
	started  time.Time
	enrolled replays // signatures of enrolments that were carried out

	mu    sync.Mutex
	seats map[string]*seat // by name, of enrolled vantages
}

// seat is what is remembered of one vantage's requests.
type seat struct {
	pubkey string
	used   replays
	turn   chan struct{} // holds one token: one batch at a time
	mu     sync.Mutex
	heard  time.Time // newest right request
}

func newDesk(r *prometheus.Registry, limited *prometheus.CounterVec) *desk {
	d := &desk{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pharos_vantage_requests_refused_total", Help: "Requests for vantages on other machines that were refused, by reason.",
		}, []string{"reason"}),
		log:     rate.Sometimes{First: 20, Interval: time.Second},
		started: time.Now(),
		seats:   map[string]*seat{},
	}
	limited.WithLabelValues(limitVantages)
	for _, reason := range deskReasons {
		d.refused.WithLabelValues(reason)
	}
	r.MustRegister(d.refused)
	return d
}

// seat returns that of an enrolled vantage; a new key begins a new one.
func (d *desk) seat(v *monitor.Vantage) *seat {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.seats[v.Name]
	if s == nil || s.pubkey != v.Pubkey {
		s = &seat{pubkey: v.Pubkey, turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		d.seats[v.Name] = s
	}
	return s
}

// leave forgets a vantage that is revoked.
func (d *desk) leave(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.seats, name)
}

// atDesk reports whether a request is a vantage's own. It is not counted against
// the limit of the address: when it is refused for who asks, it is at the desk.
func atDesk(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, vantagesPath) {
		return false
	}
	if r.Method == http.MethodPost {
		return strings.HasSuffix(r.URL.Path, "/observations")
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.HasSuffix(r.URL.Path, "/tasks")
}

// deskProblem is why a request of a vantage is not done.
type deskProblem struct {
	reason string // one of deskReasons
	status int
	detail string
	pubkey string // whose signature is right, for the log
}

// stranger reports whether the request is to count against its address. One that
// a vantage signed which was revoked does not: it is told so, however many of its
// requests came before, and stops.
func (no *deskProblem) stranger() bool { return no.reason != deskRevoked }

// turnAway counts, logs and answers a refused request. stranger: it was not
// shown to be an enrolled vantage's.
func (a *API) turnAway(r *http.Request, no *deskProblem, stranger bool) *problem {
	client := clientAddress(r)
	a.desk.refused.WithLabelValues(no.reason).Inc()
	a.desk.log.Do(func() {
		a.log.Warn("vantage's request refused", "reason", no.reason, "detail", no.detail, "client", client.String(),
			"route", chi.RouteContext(r.Context()).RoutePattern(), "vantage", printable(chi.URLParam(r, "name")), "pubkey", no.pubkey)
	})
	if stranger {
		if wait := a.desk.failures.take(addressKey(client), deskFailuresPerMinute, time.Now()); wait > 0 {
			return a.tooMany(limitVantages, wait, "too many requests from your address were no vantage's, the last one too")
		}
	}
	if no.status == http.StatusTooManyRequests {
		return a.tooMany(limitVantages, queueTimeout, no.detail)
	}
	p := newProblem(no.status, no.detail)
	if no.status == http.StatusUnauthorized {
		p.headers["Www-Authenticate"] = []string{"Nostr"}
	}
	return p
}

// signedRequest checks the signature of a request, but for what it says of the
// body, and that it is not older than this process, which would not know that it
// was used. skew is how wrong the signer's clock is, where that is all that is
// wrong.
func (a *API) signedRequest(r *http.Request) (signed nostr.HTTPAuth, skew time.Duration, no *deskProblem) {
	values := r.Header.Values("Authorization")
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return signed, 0, &deskProblem{reason: deskMissing, status: http.StatusUnauthorized, detail: "this is for vantages: send Authorization: Nostr and a NIP-98 event signed by the vantage's key"}
	case len(values) > 1:
		return signed, 0, &deskProblem{reason: deskMalformed, status: http.StatusUnauthorized, detail: "there is more than one header Authorization"}
	}
	if scheme, _, _ := strings.Cut(values[0], " "); !strings.EqualFold(scheme, "Nostr") {
		return signed, 0, &deskProblem{reason: deskMalformed, status: http.StatusUnauthorized, detail: "the scheme of Authorization is not Nostr"}
	}
	now := time.Now()
	want := nostr.HTTPRequest{Method: r.Method, URLs: requestURLs(r, a.settings.Load().PublicURL), Now: now}
	signed, err := nostr.VerifyHTTPAuth(values[0], want)
	if err == nil {
		if signed.CreatedAt.Unix() < a.desk.started.Unix() {
			no = &deskProblem{reason: deskEvent, status: http.StatusUnauthorized, detail: "the event was signed before Pharos was started; sign anew"}
		}
		return signed, 0, no
	}
	no = &deskProblem{reason: deskEvent, status: http.StatusUnauthorized, detail: err.Error()}
	created := nostr.HTTPAuthCreated(values[0])
	if skew = created.Sub(now); created.IsZero() || skew.Abs() <= nostr.HTTPAuthWindow {
		return signed, 0, no
	}
	want.Now = created
	if signed, err = nostr.VerifyHTTPAuth(values[0], want); err != nil {
		return nostr.HTTPAuth{}, 0, no
	}
	no.reason = deskClock
	return signed, skew, no
}

// visitorKey is where an operation finds whose request it is.
type visitorKey struct{}

// vantagesOnly lets only enrolled vantages on.
func (a *API) vantagesOnly(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	tellTime(w)
	v, p := a.identifyVantage(r)
	if p != nil {
		a.writeProblem(w, p)
		return
	}
	next(huma.WithValue(ctx, visitorKey{}, v))
}

// visitor is a vantage whose request is being answered.
type visitor struct {
	vantage monitor.Vantage
	seat    *seat
	signed  nostr.HTTPAuth
}

// identifyVantage tells which enrolled vantage asks. Its signature is still to be
// redeemed.
func (a *API) identifyVantage(r *http.Request) (*visitor, *problem) {
	signed, skew, no := a.signedRequest(r)
	if signed.Pubkey == "" {
		return nil, a.turnAway(r, no, true)
	}
	v, strange := a.enrolledVantage(chi.URLParam(r, "name"), &signed)
	if strange != nil {
		return nil, a.turnAway(r, strange, strange.stranger())
	}
	s := a.desk.seat(&v)
	if no != nil {
		if skew != 0 && !s.lately(time.Now()) {
			a.opts.Intake.Skewed(v.Name, skew)
		}
		return nil, a.turnAway(r, no, true)
	}
	return &visitor{v, s, signed}, nil
}

// enrolledVantage is the vantage of that name, as long as it is enrolled with the
// key that signed.
func (a *API) enrolledVantage(name string, signed *nostr.HTTPAuth) (monitor.Vantage, *deskProblem) {
	v, err := a.opts.Roster.Vantage(name)
	switch {
	case err != nil:
		return v, &deskProblem{deskUnknown, http.StatusNotFound, "no vantage of this name is enrolled from another machine", signed.Pubkey}
	case v.Pubkey != signed.Pubkey:
		return v, &deskProblem{deskKey, http.StatusForbidden, "the signature is right, but its key is not the one that is enrolled for this vantage", signed.Pubkey}
	case v.Revoked:
		a.desk.leave(v.Name)
		return v, &deskProblem{deskRevoked, http.StatusForbidden, "this vantage was revoked; its operator can be asked for a new invitation", signed.Pubkey}
	}
	return v, nil
}

// lately reports whether the vantage was heard in the last minute.
func (s *seat) lately(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.IsZero() && now.Sub(s.heard) < heardLately
}

// redeemVantage uses up a vantage's signature: for this body, and once.
func (a *API) redeemVantage(v *visitor, body []byte) *deskProblem {
	if err := v.signed.MatchBody(body); err != nil {
		return &deskProblem{deskPayload, http.StatusUnauthorized, err.Error(), v.signed.Pubkey}
	}
	now := time.Now()
	switch fresh, room := v.seat.used.claim(v.signed.ID, v.signed.CreatedAt, now); {
	case !fresh:
		return &deskProblem{deskReplay, http.StatusUnauthorized, "the event was used before; sign each request anew", v.signed.Pubkey}
	case !room:
		return &deskProblem{deskBusy, http.StatusTooManyRequests, "there were too many requests of this vantage in the last minutes", v.signed.Pubkey}
	}
	v.seat.mu.Lock()
	v.seat.heard = now
	v.seat.mu.Unlock()
	return nil
}

// deskFault maps an error of the core to what the vantage is told.
func (a *API) deskFault(r *http.Request, name string, err error) *problem {
	no := &deskProblem{reason: deskStore, status: http.StatusServiceUnavailable, detail: "the store does not answer now; keep the batch and try again"}
	switch {
	case errors.Is(err, monitor.ErrInvalid):
		no = &deskProblem{reason: deskInvalid, status: http.StatusUnprocessableEntity, detail: err.Error()}
	case errors.Is(err, monitor.ErrNotFound): // it was revoked meanwhile
		no = &deskProblem{reason: deskRevoked, status: http.StatusForbidden, detail: "this vantage was revoked"}
	case errors.Is(err, monitor.ErrConflict):
		no.detail = "another core decides now; try again"
	case !errors.Is(err, monitor.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
		a.log.Error("request failed", "doing", "take a vantage's request", "vantage", name, "error", err)
		return newProblem(http.StatusInternalServerError, "something broke here; it is in the log")
	}
	return a.turnAway(r, no, false)
}

// deskOperation documents an operation as one of a vantage's.
func (a *API) deskOperation(op huma.Operation) huma.Operation {
	op.Tags = []string{"Vantages"}
	op.Security = []map[string][]string{{"vantage": {}}}
	op.BodyReadTimeout = -1
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
		http.StatusTooManyRequests, http.StatusInternalServerError)
	return op
}

// isVantages reports whether an operation is one of a vantage's.
func isVantages(op *huma.Operation) bool {
	return slices.ContainsFunc(op.Security, func(s map[string][]string) bool { return s["vantage"] != nil })
}

// vantageScheme documents how a vantage is told.
func vantageScheme() *huma.SecurityScheme {
	return &huma.SecurityScheme{
		Type: "apiKey", In: "header", Name: "Authorization",
		Description: fmt.Sprintf("NIP-98: Nostr and a base64 event of kind 27235, signed by the vantage's key, with u, method and payload (the SHA-256 of the body as it is sent); "+
			"created within %d s of now, and used once. A 401 carries our clock in %s.", int(nostr.HTTPAuthWindow.Seconds()), timeHeader),
	}
}

// tellTime puts our clock into every answer of the desk.
func tellTime(w http.ResponseWriter) {
	w.Header().Set(timeHeader, time.Now().UTC().Format(time.RFC3339Nano))
}
