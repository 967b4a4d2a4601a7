package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	submitPath = "/v1/relays/submit"
	// submissionsPerMinute is what an address may propose. Nobody is exempt: an
	// operator adds relays instead.
	submissionsPerMinute = 10
	maxSubmission        = 8 << 10 // bytes
)

type submission struct {
	_   struct{} `json:"-" additionalProperties:"false"`
	URL string   `json:"url" doc:"The relay, in any spelling." example:"wss://relay.example.com"`
}

// submitted is what became of a submission.
type submitted struct {
	URL       string `json:"url" doc:"Canonical form of the URL that was sent."`
	State     string `json:"state" enum:"unknown,online,offline,dead"`
	Candidate bool   `json:"candidate" doc:"It is probed when its turn comes, and watched once it was seen alive."`
}

// submitAnswer has 200 where there was nothing to do.
type submitAnswer struct {
	Status int
	Body   submitted
}

// routeSubmit registers what anybody may propose.
func (a *API) routeSubmit() {
	op := huma.Operation{
		OperationID: "submit-relay", Method: http.MethodPost, Path: submitPath, Tags: []string{"Relays"},
		Summary: "Propose a relay to watch",
		Description: "202: it is a candidate now. 200: it is watched already. 409: it is not wanted here, or there is no room. " +
			fmt.Sprintf("An address may propose %d a minute. Nothing is fetched while the request waits.", submissionsPerMinute),
		DefaultStatus: http.StatusAccepted,
		Responses: map[string]*huma.Response{
			"200": response(a.huma, "It is watched already.", submitted{}),
		},
		Errors: []int{
			http.StatusBadRequest, http.StatusRequestTimeout, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
		},
		MaxBodyBytes:    maxSubmission,
		BodyReadTimeout: -1, // it was read by then; huma ends its deadline, which would end the request
		Middlewares:     huma.Middlewares{a.strangers},
	}
	huma.Register(a.huma, op, a.submit)
}

// strangers lets everybody on, ten times a minute.
func (a *API) strangers(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	if wait := a.limits.submissions.take(addressKey(clientAddress(r)), submissionsPerMinute, time.Now()); wait > 0 {
		a.writeProblem(w, a.tooMany(limitSubmissions, wait, fmt.Sprintf("more than %d submissions in a minute from your address", submissionsPerMinute)))
		return
	}
	body, p := readBody(w, r, maxSubmission, bodyTimeout)
	if p == nil {
		p = checkBody(r, body)
	}
	if p != nil {
		a.writeProblem(w, p)
		return
	}
	next(ctx)
}

func (a *API) submit(ctx context.Context, in *adminInput[submission]) (*submitAnswer, error) {
	u, err := monitor.ParseRelayURL(in.Body.URL, a.settings.Load().AllowNetworks...)
	if err != nil {
		return nil, invalid(problemError{"body.url", *refusedURL(err).Reason})
	}
	work, cancel := outlasting(ctx)
	defer cancel()
	results, err := a.opts.Operator.Administer(work, monitor.Command{Kind: monitor.CommandSubmit, Relays: []monitor.RelayURL{u}})
	if err != nil {
		return nil, a.fault(context.WithoutCancel(ctx), "submit", err)
	}
	view := a.opts.Core.RelayView(u)
	out := &submitAnswer{Status: http.StatusOK, Body: submitted{URL: string(u), State: view.Verdict.State.String(), Candidate: view.Candidate}}
	done := len(results) == 1 && results[0].Done
	a.log.Debug("relay submitted", "relay", u, "done", done)
	switch {
	case done:
		out.Status, out.Body.Candidate = http.StatusAccepted, true
	case !view.Monitored:
		why := "it was not taken"
		if len(results) == 1 && results[0].Why != "" {
			why = results[0].Why
		}
		return nil, newProblem(http.StatusConflict, "the relay is not taken: "+why)
	}
	return out, nil
}
