package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/wire"
)

const (
	maxEnrolment = 8 << 10 // bytes
	// maxAhead is how far in the future what a batch tells may lie. Less is kept as
	// history; more comes from no clock, and would fill days that are not there yet.
	maxAhead = 24 * time.Hour
	// compressFrom is the size from which an answer to a vantage is compressed.
	compressFrom     = 4 << 10
	batchContentType = "application/x-ndjson"
)

// What the answers of package wire look like, for the document.
type (
	enrolmentBody struct {
		_        struct{} `json:"-" additionalProperties:"false"`
		Version  int      `json:"version" doc:"Of this format." example:"1"`
		Token    string   `json:"token"`
		Networks []string `json:"networks" nullable:"false" doc:"That the vantage can reach." example:"[\"clearnet\"]"`
		Software string   `json:"software,omitempty"`
	}
	enrolledBody struct {
		Name  string `json:"name"`
		Group string `json:"group"`
	}
	taskBody struct {
		Relay       string  `json:"relay"`
		Candidate   bool    `json:"candidate,omitempty"`
		PausedUntil *string `json:"paused_until,omitempty" format:"date-time"`
	}
	tasksBody struct {
		Version    uint64         `json:"version"`
		Base       uint64         `json:"base,omitempty" doc:"The version that set and removed change; without it set is the whole list."`
		Set        []taskBody     `json:"set" nullable:"false"`
		Removed    []string       `json:"removed,omitempty"`
		LastSeq    uint64         `json:"last_seq" doc:"Sequence of the newest batch that is stored."`
		Rules      map[string]any `json:"rules" doc:"Cadence and liveness that the vantage schedules by, durations in ms."`
		ServerTime string         `json:"server_time" format:"date-time"`
	}
	batchAnswer struct {
		Stored   uint64            `json:"stored" doc:"Sequence of the newest batch that is stored now."`
		Expedite []string          `json:"expedite,omitempty" doc:"Relays to probe now, within 60 s."`
		Due      map[string]string `json:"due,omitempty" doc:"When relays are to be looked at, where that is earlier than planned."`
	}
)

// sequenceProblem is the problem of a batch that is stored already.
type sequenceProblem struct {
	Type    string `json:"type" format:"uri-reference"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	LastSeq uint64 `json:"last_seq" doc:"Sequence of the newest batch that is stored: what is not above it may be dropped."`
}

// tasksInput is what the tasks are asked with.
type tasksInput struct {
	strict
	Name  string `path:"name" maxLength:"63" doc:"The vantage."`
	Since uint64 `query:"since" doc:"The version that the vantage has: what changed since is enough."`
}

type batchInput struct {
	strict
	Name string `path:"name" maxLength:"63" doc:"The vantage."`
}

// routeDesk registers what vantages on other machines use.
func (a *API) routeDesk() {
	doc := a.huma.OpenAPI()
	doc.Components.SecuritySchemes["vantage"] = vantageScheme()
	clock := func() map[string]*huma.Header {
		return map[string]*huma.Header{timeHeader: {Description: "Our clock.", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	with := func(r *huma.Response, more map[string]*huma.Header) *huma.Response {
		r.Headers = clock()
		maps.Copy(r.Headers, more)
		return r
	}

	enrol := a.deskOperation(huma.Operation{
		OperationID: "enrol-vantage", Method: http.MethodPost, Path: enrolPath,
		Summary: "Become a vantage, with the token of an invitation",
		Description: "The key that signs is the vantage's from now on. The same request may be sent again by the same key, signed anew. " +
			"403: there is no such token. 409: the invitation has expired or was taken up, or the key is another vantage's.",
		Responses: map[string]*huma.Response{"200": with(response(a.huma, "Enrolled.", enrolledBody{}), nil)},
		Errors: []int{
			http.StatusBadRequest, http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusServiceUnavailable,
		},
	})
	huma.Register(a.huma, enrol, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		return raw(a.enrolVantage), nil
	})

	tag := map[string]*huma.Header{"ETag": {Description: "Of list and rules.", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}
	tasks := a.deskOperation(huma.Operation{
		OperationID: "get-vantage-tasks", Method: http.MethodGet, Path: vantagesPath + "{name}/tasks",
		Summary: "What a vantage is to watch, and by which rules",
		Responses: map[string]*huma.Response{
			"200": with(response(a.huma, "The list, or what changed of it.", tasksBody{}), tag),
			"304": with(&huma.Response{Description: "Nothing has changed (If-None-Match)."}, tag),
		},
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
		Middlewares: huma.Middlewares{a.vantagesOnly},
	})
	huma.Register(a.huma, tasks, func(ctx context.Context, in *tasksInput) (*huma.StreamResponse, error) {
		v, _ := ctx.Value(visitorKey{}).(*visitor)
		return raw(func(w http.ResponseWriter, r *http.Request) { a.tasks(w, r, v, in.Since) }), nil
	})

	schemas := doc.Components.Schemas
	batches := a.deskOperation(huma.Operation{
		OperationID: "post-vantage-observations", Method: http.MethodPost, Path: vantagesPath + "{name}/observations",
		Summary: "Hand over a batch of observations",
		Description: fmt.Sprintf("gzip of JSON lines: a header, and a line for each observation, at most %d; at most %d MB as sent and %d MB of text. "+
			"Each sequence is stored once: 409 says which is the newest, and nothing was stored again. Observations of relays that are not watched are left out.",
			wire.MaxObservations, wire.MaxBody>>20, wire.MaxPlain>>20),
		Responses: map[string]*huma.Response{
			"200": with(response(a.huma, "The batch is stored.", batchAnswer{}), nil),
			"409": with(&huma.Response{Description: "The batch, or a later one, is stored already.", Content: map[string]*huma.MediaType{
				"application/problem+json": {Schema: huma.SchemaFromType(schemas, reflect.TypeFor[sequenceProblem]())},
			}}, nil),
		},
		Errors: []int{
			http.StatusBadRequest, http.StatusNotFound, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusServiceUnavailable,
		},
		Middlewares: huma.Middlewares{a.vantagesOnly},
	})
	huma.Register(a.huma, batches, func(ctx context.Context, _ *batchInput) (*huma.StreamResponse, error) {
		v, _ := ctx.Value(visitorKey{}).(*visitor)
		return raw(func(w http.ResponseWriter, r *http.Request) { a.observations(w, r, v) }), nil
	})

	// Said only now, or huma would read the bodies.
	doc.Paths[enrol.Path].Post.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{jsonContentType: {Schema: response(a.huma, "", enrolmentBody{}).Content[jsonContentType].Schema}},
	}
	doc.Paths[batches.Path].Post.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{batchContentType: {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
	for _, op := range []*huma.Operation{doc.Paths[enrol.Path].Post, doc.Paths[tasks.Path].Get, doc.Paths[batches.Path].Post} {
		for status, r := range op.Responses {
			if r.Headers == nil {
				r.Headers = map[string]*huma.Header{}
			}
			if r.Headers[timeHeader] == nil { // some problems come before it is set
				r.Headers[timeHeader] = &huma.Header{Description: "Our clock.", Schema: &huma.Schema{Type: huma.TypeString}}
			}
			if status == strconv.Itoa(http.StatusUnauthorized) {
				r.Headers["WWW-Authenticate"] = &huma.Header{Description: "Nostr.", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
			}
		}
	}
}

// enrolVantage lets a machine that holds a token in.
func (a *API) enrolVantage(w http.ResponseWriter, r *http.Request) {
	tellTime(w)
	signed, _, no := a.signedRequest(r)
	if no != nil {
		a.writeProblem(w, a.turnAway(r, no, true))
		return
	}
	body, p := readBody(w, r, maxEnrolment, bodyTimeout)
	if p == nil {
		p = checkBody(r, body)
	}
	if p != nil {
		a.desk.refused.WithLabelValues(deskBody).Inc()
		a.writeProblem(w, p)
		return
	}
	if err := signed.MatchBody(body); err != nil {
		a.writeProblem(w, a.turnAway(r, &deskProblem{deskPayload, http.StatusUnauthorized, err.Error(), signed.Pubkey}, true))
		return
	}
	var in wire.Enrolment
	if err := json.Unmarshal(body, &in); err != nil {
		if !errors.Is(err, monitor.ErrInvalid) { // no JSON object
			err = fmt.Errorf("%w: it is no enrolment", monitor.ErrInvalid)
		}
		a.writeProblem(w, a.turnAway(r, &deskProblem{deskInvalid, http.StatusUnprocessableEntity, err.Error(), signed.Pubkey}, true))
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), commandTimeout)
	defer cancel()
	v, err := a.opts.Roster.Enrol(work, monitor.Enrolment{
		Token: monitor.HashToken(in.Token), Pubkey: signed.Pubkey, Networks: in.Networks, At: time.Now().UTC(),
	})
	switch {
	case err == nil:
	case errors.Is(err, monitor.ErrNotFound):
		no = &deskProblem{deskToken, http.StatusForbidden, "there is no open invitation with this token: it is mistyped, was withdrawn or replaced by a newer one", signed.Pubkey}
	case errors.Is(err, monitor.ErrConflict):
		no = &deskProblem{deskToken, http.StatusConflict, err.Error(), signed.Pubkey}
	default:
		a.writeProblem(w, a.deskFault(r, "", err))
		return
	}
	if no != nil {
		a.writeProblem(w, a.turnAway(r, no, true))
		return
	}
	// Only who holds a token gets here, so that strangers cannot fill the table;
	// what is asked again has changed nothing.
	if fresh, _ := a.desk.enrolled.claim(signed.ID, signed.CreatedAt, time.Now()); !fresh {
		a.writeProblem(w, a.turnAway(r, &deskProblem{deskReplay, http.StatusUnauthorized, "the event was used before; sign each request anew", signed.Pubkey}, true))
		return
	}
	a.log.Info("vantage enrolled", "vantage", v.Name, "pubkey", v.Pubkey, "software", printable(in.Software), "client", clientAddress(r).String())
	a.writeJSON(w, r, wire.Enrolled{Name: v.Name, Group: v.Group})
}

// tasks answers a vantage with what it is to watch.
func (a *API) tasks(w http.ResponseWriter, r *http.Request, v *visitor, since uint64) {
	if no := a.redeemVantage(v, nil); no != nil {
		a.writeProblem(w, a.turnAway(r, no, no.status == http.StatusUnauthorized))
		return
	}
	c, err := a.opts.Intake.TaskChanges(v.vantage.Name, since)
	if err != nil {
		a.writeProblem(w, a.deskFault(r, v.vantage.Name, err))
		return
	}
	rules := wire.Rules{Cadence: c.Cadence, Liveness: c.Liveness}
	tag, err := tasksTag(c.Version, rules)
	if err != nil {
		a.writeProblem(w, a.deskFault(r, v.vantage.Name, err))
		return
	}
	w.Header().Set("ETag", tag)
	if matches(r.Header["If-None-Match"], tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	a.writeJSON(w, r, wire.Tasks{
		Version: c.Version, Base: c.Base, Set: c.Set, Removed: c.Removed, LastSeq: c.LastSeq, Rules: rules, ServerTime: time.Now(),
	})
}

// tasksTag names a list and the rules that it is followed by.
func tasksTag(version uint64, rules wire.Rules) (string, error) {
	b, err := json.Marshal(rules)
	if err != nil {
		return "", fmt.Errorf("encode rules: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return `"` + strconv.FormatUint(version, 36) + "-" + strconv.FormatUint(h.Sum64(), 36) + `"`, nil
}

// observations takes a batch.
func (a *API) observations(w http.ResponseWriter, r *http.Request, v *visitor) {
	done, p := a.queue(r, v)
	if p != nil {
		a.writeProblem(w, p)
		return
	}
	defer done()
	b, p := a.readBatch(w, r, v)
	if p != nil {
		a.writeProblem(w, p)
		return
	}
	work, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), commandTimeout)
	defer cancel()
	answer, err := a.opts.Intake.Deliver(work, *b)
	var old *monitor.SequenceError
	switch {
	case errors.As(err, &old):
		a.desk.refused.WithLabelValues(deskSequence).Inc()
		a.log.Debug("batch was stored before", "vantage", b.Vantage, "seq", b.Seq, "newest", old.Last)
		a.writeSequence(w, old)
	case err != nil:
		a.writeProblem(w, a.deskFault(r, b.Vantage, err))
	default:
		a.writeJSON(w, r, wire.Answer{Stored: b.Seq, Expedite: answer.Expedite, Due: answer.Due})
	}
}

// queue waits until no other batch of the vantage is under way; done lets the
// next one in.
func (a *API) queue(r *http.Request, v *visitor) (done func(), p *problem) {
	t := time.NewTimer(queueTimeout)
	defer t.Stop()
	select {
	case <-v.seat.turn:
		return func() { v.seat.turn <- struct{}{} }, nil
	case <-t.C:
	case <-r.Context().Done():
	}
	return nil, a.turnAway(r, &deskProblem{deskBusy, http.StatusTooManyRequests, "an earlier batch of this vantage is still being taken", v.signed.Pubkey}, false)
}

// readBatch reads and checks the body of a vantage's batch.
func (a *API) readBatch(w http.ResponseWriter, r *http.Request, v *visitor) (*monitor.Batch, *problem) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != batchContentType || r.Header.Get("Content-Encoding") != "gzip" {
		return nil, a.turnAway(r, &deskProblem{deskBody, http.StatusUnsupportedMediaType, "send a batch as Content-Type: " + batchContentType + " with Content-Encoding: gzip", v.signed.Pubkey}, false)
	}
	// A vantage may have a thin line. The error is of a writer that knows no
	// deadline, as in a test.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(batchTimeout))
	body, p := readBody(w, r, wire.MaxBody, batchTimeout)
	if p != nil {
		a.desk.refused.WithLabelValues(deskBody).Inc()
		return nil, p
	}
	if no := a.redeemVantage(v, body); no != nil {
		return nil, a.turnAway(r, no, no.status == http.StatusUnauthorized)
	}
	// The body may have taken long, and the vantage be another machine by now.
	if _, no := a.enrolledVantage(v.vantage.Name, &v.signed); no != nil {
		return nil, a.turnAway(r, no, no.stranger())
	}
	b, err := wire.DecodeBatch(bytes.NewReader(body), v.vantage.Name)
	if err == nil {
		err = checkAhead(b, time.Now())
	}
	if err != nil {
		return nil, a.turnAway(r, &deskProblem{deskInvalid, http.StatusUnprocessableEntity, err.Error(), v.signed.Pubkey}, false)
	}
	return b, nil
}

// checkAhead refuses what lies so far in the future that no clock can have told
// it.
func checkAhead(b *monitor.Batch, now time.Time) error {
	check := func(what string, at time.Time, where string) error {
		if ahead := at.Sub(now); ahead > maxAhead {
			return fmt.Errorf("%w batch: %s is %s in the future%s", monitor.ErrInvalid, what, ahead.Round(time.Minute), where)
		}
		return nil
	}
	err := cmp.Or(
		check("sent_at", b.SentAt, ""),
		check("impaired_since", b.Health.ImpairedSince, ""),
		check("canary_success", b.Health.CanarySuccess, ""),
	)
	for i := range b.Recoveries {
		err = cmp.Or(err, check("a recovery", b.Recoveries[i].At, ""))
	}
	for i := range b.Observations {
		if at := b.Observations[i].At; err == nil && at.Sub(now) > maxAhead {
			err = check("at", at, fmt.Sprintf(" (line %d)", i+2))
		}
	}
	return err
}

func (a *API) writeSequence(w http.ResponseWriter, old *monitor.SequenceError) {
	w.Header().Set("Content-Type", (*problem)(nil).ContentType(""))
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(sequenceProblem{
		"about:blank", http.StatusText(http.StatusConflict), http.StatusConflict,
		fmt.Sprintf("batch %d is not above the newest that is stored, %d: nothing was stored again", old.Seq, old.Last), old.Last,
	})
}

// writeJSON answers a vantage, compressed where that is worth it.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	b, err := encode(v)
	h := w.Header()
	if err == nil && len(b) >= compressFrom && negotiate(r.Header["Accept-Encoding"]) == gzipCoding {
		if b, err = compress(gzipCoding, b); err == nil {
			h.Set("Content-Encoding", encodingNames[gzipCoding])
		}
	}
	if err != nil {
		h.Del("ETag")
		a.log.Error("request failed", "doing", "answer a vantage", "error", err)
		a.writeProblem(w, newProblem(http.StatusInternalServerError, "something broke here; it is in the log"))
		return
	}
	h.Set("Content-Type", jsonContentType)
	_, _ = w.Write(b) // the client may be gone
}
