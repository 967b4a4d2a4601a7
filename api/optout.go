package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

const (
	optOutPath = "/v1/relays/opt-out"
	// optOutsPerMinute is how often an address may ask, whoever signed: a
	// signature costs us more than it costs the sender. Nobody is exempt.
	optOutsPerMinute = 10
)

// optedOut is what became of an opt-out.
type optedOut struct {
	URL      string  `json:"url" doc:"Canonical form of the URL that was sent."`
	Excluded bool    `json:"excluded" doc:"Always true: it is never probed, and in no list."`
	Done     bool    `json:"done" doc:"False: it was excluded already."`
	Reason   *string `json:"reason" doc:"Why it was not done."`
}

// ownerKey is where an operation finds the signature of who asks.
type ownerKey struct{}

// routeOptOut registers what a relay's owner may ask.
func (a *API) routeOptOut() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "opt-out-relay", Method: http.MethodPost, Path: optOutPath, Tags: []string{"Relays"},
		Summary: "Have your relay left alone: never probed, in no list",
		Description: "Signed (NIP-98) by the key that the relay's NIP-11 document names as pubkey, as this monitor read it last, which it does hourly. " +
			"403: another key signed. 404: the relay is not watched here. 409: it could not be done. " +
			fmt.Sprintf("An address may ask %d times a minute. Nothing is fetched while the request waits. An operator of this monitor can undo it.", optOutsPerMinute),
		Errors: []int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict,
			http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
			http.StatusInternalServerError, http.StatusServiceUnavailable,
		},
		Security:        []map[string][]string{{schemeOwner: {}}},
		MaxBodyBytes:    maxSubmission,
		BodyReadTimeout: -1, // it was read by then; huma ends its deadline, which would end the request
		Middlewares:     huma.Middlewares{a.owners},
	}, a.optOut)
}

// isOwners reports whether an operation is one of a relay's owner.
func isOwners(op *huma.Operation) bool {
	return slices.ContainsFunc(op.Security, func(s map[string][]string) bool { return s[schemeOwner] != nil })
}

// owners lets everybody on whose signature is right, ten times a minute.
func (a *API) owners(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	signed, p := a.identifyOwner(w, r)
	if p != nil {
		a.writeProblem(w, p)
		return
	}
	next(huma.WithValue(ctx, ownerKey{}, signed))
}

// identifyOwner tells who signed the request, and this body.
func (a *API) identifyOwner(w http.ResponseWriter, r *http.Request) (signed nostr.HTTPAuth, p *problem) {
	if wait := a.limits.optOuts.take(addressKey(clientAddress(r)), optOutsPerMinute, time.Now()); wait > 0 {
		return signed, a.tooMany(limitOptOuts, wait, fmt.Sprintf("more than %d requests in a minute from your address", optOutsPerMinute))
	}
	values := r.Header.Values("Authorization")
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return signed, notOwner("this is for a relay's owner: send Authorization: Nostr and a NIP-98 event signed by the pubkey of the relay's NIP-11 document")
	case len(values) > 1:
		return signed, notOwner("there is more than one header Authorization")
	}
	if scheme, _, _ := strings.Cut(values[0], " "); !strings.EqualFold(scheme, "Nostr") {
		return signed, notOwner("the scheme of Authorization is not Nostr")
	}
	signed, err := nostr.VerifyHTTPAuth(values[0], nostr.HTTPRequest{Method: r.Method, URLs: requestURLs(r, a.settings.Load().PublicURL), Now: time.Now()})
	switch {
	case err != nil:
		return signed, notOwner(err.Error())
	case signed.CreatedAt.Unix() < a.auth.started.Unix(): // what was used before is not remembered
		return signed, notOwner("the event was signed before Pharos was started; sign anew")
	case a.auth.optedOut.used(signed.ID):
		return signed, notOwner("the event was used before; sign each request anew")
	}
	body, p := readBody(w, r, maxSubmission, bodyTimeout)
	if p != nil {
		return signed, p
	}
	if err := signed.MatchBody(body); err != nil {
		return signed, notOwner(err.Error())
	}
	return signed, checkBody(r, body)
}

func notOwner(detail string) *problem {
	p := newProblem(http.StatusUnauthorized, detail)
	p.headers["Www-Authenticate"] = []string{"Nostr"}
	return p
}

func (a *API) optOut(ctx context.Context, in *adminInput[submission]) (*answer[optedOut], error) {
	u, err := monitor.ParseRelayURL(in.Body.URL, a.settings.Load().AllowNetworks...)
	if err != nil {
		return nil, invalid(problemError{"body.url", *refusedURL(err).Reason})
	}
	signed, _ := ctx.Value(ownerKey{}).(nostr.HTTPAuth)
	work, cancel := outlasting(ctx)
	defer cancel()
	results, err := a.opts.Operator.Administer(work, monitor.Command{Kind: monitor.CommandOptOut, Actor: signed.Pubkey, Relays: []monitor.RelayURL{u}})
	if err != nil {
		return nil, a.fault(context.WithoutCancel(ctx), "opt out", err)
	}
	if len(results) == 1 && results[0].Done {
		// Only what was carried out is remembered, so that no stranger fills the
		// table; anything else has changed nothing, and may be sent again.
		_, _ = a.auth.optedOut.claim(signed.ID, signed.CreatedAt, time.Now())
		a.log.Info("relay opted out", "relay", u, "pubkey", signed.Pubkey)
		return &answer[optedOut]{optedOut{URL: string(u), Excluded: true, Done: true}}, nil
	}
	why := ""
	if len(results) == 1 {
		why = results[0].Why
	}
	a.log.Debug("opt-out was not done", "relay", u, "pubkey", signed.Pubkey, "why", why)
	return a.notOptedOut(u, signed.Pubkey, why)
}

// notOptedOut is the answer where the core did not do it, with the core's words.
func (a *API) notOptedOut(u monitor.RelayURL, pubkey, why string) (*answer[optedOut], error) {
	status, what := http.StatusConflict, "it could not be done: the relay "
	switch v := a.opts.Core.RelayView(u); {
	case v.Excluded:
		return &answer[optedOut]{optedOut{URL: string(u), Excluded: true, Reason: orNull(why)}}, nil
	case !v.Monitored:
		status, what = http.StatusNotFound, "the relay "
	case v.Info == nil || !strings.EqualFold(v.Info.Pubkey, pubkey):
		status, what = http.StatusForbidden, "the signature is right, but not by the relay's key: "
	}
	if why == "" {
		why = "the core gave no reason"
	}
	return nil, newProblem(status, what+why)
}
