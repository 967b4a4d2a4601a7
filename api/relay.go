package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// relayBody is all that is known of one relay.
type relayBody struct {
	URL       string `json:"url" doc:"Canonical form of the URL that was asked for."`
	State     string `json:"state" enum:"unknown,online,offline,dead"`
	Monitored bool   `json:"monitored" doc:"False: nothing is known, which speaks neither for nor against the relay."`
	Eligible  bool   `json:"eligible" doc:"A client may try it now."`

	Network   *string `json:"network" enum:"clearnet,tor,i2p,loki"`
	Source    *string `json:"source" enum:"config,file,builtin,discovery,operator,submitted" doc:"Where its URL came from."`
	Candidate bool    `json:"candidate" doc:"Found, not yet seen alive anywhere."`
	FirstSeen *string `json:"first_seen" format:"date-time"`

	Excluded    bool                `json:"excluded" doc:"Never probed, as an operator or its owner wants it."`
	PausedUntil *string             `json:"paused_until" format:"date-time" doc:"Not probed before, as an operator wants it."`
	Maintenance []maintenanceWindow `json:"maintenance" nullable:"false" doc:"Declared windows that are not over yet: what the relay does in them is not held against it."`

	Since       *string  `json:"since" format:"date-time" doc:"When state was reached."`
	Reason      *string  `json:"reason" doc:"Why the verdict is as it is."`
	Quorum      *string  `json:"quorum" doc:"Groups of vantages that carry the verdict / that may vote." example:"3/4"`
	Marks       []string `json:"marks" nullable:"false"`
	Cause       *string  `json:"cause"`
	Evidence    *string  `json:"evidence"`
	HeldSince   *string  `json:"held_since" format:"date-time" doc:"Since when its departure is held back."`
	LastSuccess *string  `json:"last_success" format:"date-time"`
	Rules       int      `json:"rules" doc:"Version of the rules that decide."`
	RTTOpenMS   *int     `json:"rtt_open_ms"`
	RTTReadMS   *int     `json:"rtt_read_ms"`

	Vantages []ballot `json:"vantages" nullable:"false" doc:"Each vantage's vote, with what stands behind it."`

	NIPsClaimed   []int         `json:"nips_claimed" nullable:"false" doc:"By the relay's own document."`
	NIPsConfirmed []int         `json:"nips_confirmed" nullable:"false" doc:"Those that a test found at work."`
	NIPsDisproved []int         `json:"nips_disproved" nullable:"false" doc:"Those that a test found not to work, whatever the document says."`
	NIP11         document      `json:"nip11,omitempty" doc:"The relay's own document."`
	NIP11Problem  *string       `json:"nip11_problem" doc:"Why there is no document."`
	TLS           *tlsFacts     `json:"tls,omitempty"`
	DNS           *dnsFacts     `json:"dns,omitempty" doc:"Where its name leads. Each of these facts is told by the vantage that looked last."`
	Capabilities  *capabilities `json:"capabilities,omitempty" doc:"What it was seen to do."`
	Write         *writeTest    `json:"write,omitempty" doc:"What became of an event that is deleted by itself; where writing is not tested there is none."`
	Geo           *geoFacts     `json:"geo,omitempty" doc:"Where its address stands, by the databases of this monitor's operator."`
	Provenance    *provenance   `json:"provenance,omitempty" doc:"Where discovery found it."`
	Aliases       []string      `json:"aliases" nullable:"false" doc:"Other URLs that are this very relay, by evidence."`
	AliasOf       *string       `json:"alias_of" doc:"Which URL stands for the relay where several do; null = this one."`
	Twin          *string       `json:"twin" doc:"The wss relay that stands for this ws one, which is therefore not probed."`
	Warnings      []string      `json:"warnings" nullable:"false" doc:"What whoever runs the relay should see to, in sentences."`
	ReportID      *string       `json:"report_id" doc:"Id of the signed report (kind 30166)."`
}

// maintenanceWindow is a declared time of work on a relay.
type maintenanceWindow struct {
	From  string  `json:"from" format:"date-time"`
	Until string  `json:"until" format:"date-time" doc:"Exclusive."`
	Note  *string `json:"note"`
}

// ballot is one vantage's vote.
type ballot struct {
	Vantage      string  `json:"vantage"`
	Group        string  `json:"group"`
	Vote         string  `json:"vote" enum:"none,up,restricted,dead,down,suspect"`
	Eligible     bool    `json:"eligible" doc:"The vantage may vote on this relay now."`
	Unconfirmed  bool    `json:"unconfirmed" doc:"An up from before the suspicion: it counts for neither side."`
	Outcome      *string `json:"outcome" enum:"ok,refused,restricted,failed" doc:"Of the last measured probe."`
	Stage        *string `json:"stage"`
	Cause        *string `json:"cause"`
	Evidence     *string `json:"evidence"`
	At           *string `json:"at" format:"date-time" doc:"When that probe ended."`
	FailureCount int     `json:"failure_count"`
	LastFailure  *string `json:"last_failure" format:"date-time"`
	LastSuccess  *string `json:"last_success" format:"date-time"`
	OnlineSince  *string `json:"online_since" format:"date-time" doc:"First success of the present run of successes."`
	BackoffUntil *string `json:"backoff_until" format:"date-time" doc:"End of the cooldown."`
	RTTOpenMS    *int64  `json:"rtt_open_ms"`
	RTTReadMS    *int64  `json:"rtt_read_ms"`
}

type tlsFacts struct {
	Version  string   `json:"version"`
	Issuer   string   `json:"issuer"`
	Names    []string `json:"names" nullable:"false"`
	NotAfter *string  `json:"not_after" format:"date-time" doc:"Expiry of the certificate."`
	DaysLeft *int     `json:"days_left" doc:"Whole days until then, below 0 afterwards."`
	LookedAt *string  `json:"looked_at" format:"date-time"`
}

type relayInput struct {
	strict
	URL relayParam `query:"url" required:"true" doc:"The relay, in any spelling."`
}

// routeRelay registers the view of one relay.
func (a *API) routeRelay() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-relay", Method: http.MethodGet, Path: "/v1/relay", Tags: []string{"Relays"},
		Summary:     "One relay: the verdict in words, and what every vantage says",
		Description: "A URL that is not monitored answers 200 with state unknown and eligible true. Nothing is fetched.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
		Middlewares: a.relayURLs(),
	}, func(_ context.Context, in *relayInput) (*answer[relayBody], error) {
		v := a.opts.Core.RelayView(in.URL.URL)
		v.URL = in.URL.URL
		attribution := ""
		if v.Place != (monitor.Place{}) {
			attribution = a.current().attribution()
		}
		return &answer[relayBody]{newRelayBody(v, time.Now(), attribution)}, nil
	})
}

// newRelayBody tells of a relay at now. attribution is what the databases of
// places ask to be said.
func newRelayBody(v monitor.RelayView, now time.Time, attribution string) relayBody {
	b := relayBody{
		URL:         string(v.URL),
		State:       monitor.StateUnknown.String(),
		Eligible:    true,
		Network:     orNull(string(v.URL.Network())),
		Marks:       []string{},
		Rules:       monitor.RulesVersion,
		Vantages:    []ballot{},
		NIPsClaimed: []int{}, NIPsConfirmed: []int{}, NIPsDisproved: []int{},
		Aliases:     []string{},
		Warnings:    []string{},
		Excluded:    v.Excluded,
		PausedUntil: utcOrNull(v.PausedUntil),
		Maintenance: make([]maintenanceWindow, len(v.Maintenance)),
	}
	for i, m := range v.Maintenance {
		b.Maintenance[i] = maintenanceWindow{From: utc(m.From), Until: utc(m.Until), Note: orNull(m.Note)}
	}
	if !v.Monitored {
		return b
	}
	d := &v.Verdict
	b.State, b.Monitored, b.Eligible = d.State.String(), true, v.Eligible
	b.Source, b.Candidate, b.FirstSeen = sourceOrNull(v.Source), v.Candidate, utcOrNull(v.FirstSeen)
	b.Since, b.Reason, b.Marks = utcOrNull(d.Since), orNull(d.Reason), d.Marks.Strings()
	if !d.Since.IsZero() {
		b.Quorum = orNull(d.Quorum.String())
	}
	b.Cause, b.Evidence = orNull(d.Cause.String()), orNull(d.Evidence)
	b.HeldSince, b.LastSuccess = utcOrNull(d.HeldSince), utcOrNull(d.LastSuccess)
	b.RTTOpenMS, b.RTTReadMS = orNull(v.RTTOpenMS), orNull(v.RTTReadMS)
	for i := range v.Ballots {
		b.Vantages = append(b.Vantages, newBallot(&v.Ballots[i]))
	}
	if v.Info != nil {
		b.NIP11Problem = orNull(v.Info.Problem)
		b.NIP11 = newDocument(v.Info)
		if v.Info.NIPs != nil {
			b.NIPsClaimed = v.Info.NIPs
		}
	}
	b.tellFacts(&v, now)
	b.Geo = newGeoFacts(&v.Place, attribution)
	b.tellRelatives(&v)
	if v.Report != nil {
		b.ReportID = orNull(v.Report.ID)
	}
	return b
}

func newBallot(v *monitor.Ballot) ballot {
	return ballot{
		Vantage:      v.Vantage,
		Group:        v.Group,
		Vote:         v.Vote.String(),
		Eligible:     v.Eligible,
		Unconfirmed:  v.Unconfirmed,
		Outcome:      orNull(v.Outcome.String()),
		Stage:        orNull(v.Stage.String()),
		Cause:        orNull(v.Cause.String()),
		Evidence:     orNull(v.Evidence),
		At:           utcOrNull(v.At),
		FailureCount: v.FailureCount,
		LastFailure:  utcOrNull(v.LastFailure),
		LastSuccess:  utcOrNull(v.LastSuccess),
		OnlineSince:  utcOrNull(v.OnlineSince),
		BackoffUntil: utcOrNull(v.BackoffUntil),
		RTTOpenMS:    millis(v.RTTOpen),
		RTTReadMS:    millis(v.RTTRead),
	}
}

// document is a JSON object that is passed on as it came.
type document []byte

// MarshalJSON writes it.
func (d document) MarshalJSON() ([]byte, error) { return d, nil }

// Schema documents it.
func (document) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// newDocument takes the NIP-11 document as the relay sent it, or, where only
// the fields that we read are left of it, those; nil when there is none.
func newDocument(info *monitor.Info) document {
	if info.Problem != "" {
		return nil
	}
	if bytes.HasPrefix(bytes.TrimSpace(info.Raw), []byte("{")) && json.Valid(info.Raw) {
		return info.Raw
	}
	fields, err := json.Marshal(info)
	if err != nil {
		return nil // cannot be: they are strings, numbers and booleans
	}
	return fields
}
