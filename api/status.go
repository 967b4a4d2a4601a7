package api

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// pingTimeout bounds the look at the store in /readyz: whoever asks has a
// short patience of its own.
const pingTimeout = 2 * time.Second

// statusBody is this monitor's own state.
type statusBody struct {
	Name    string `json:"name"`
	Pubkey  string `json:"pubkey"`
	Version string `json:"version"`
	Started string `json:"started" format:"date-time"`
	Role    string `json:"role" enum:"leader,standby"`

	Ready    bool    `json:"ready"`
	NotReady *string `json:"not_ready" doc:"Why it is not ready."`

	Generation uint64  `json:"generation"`
	Usable     bool    `json:"usable"`
	Fallback   *string `json:"fallback" enum:"warming_up,clock,stale,too_few"`
	WarmUp     warmUp  `json:"warm_up" doc:"The first full pass."`

	States       map[string]int `json:"states" nullable:"false" doc:"Monitored relays by verdict."`
	Candidates   int            `json:"candidates"`
	Held         int            `json:"held" doc:"Online relays whose departure is held back."`
	BrakeEngaged bool           `json:"brake_engaged"`

	ClockSkewMS int64           `json:"clock_skew_ms" doc:"Of our clock against the relays'; 0 = fine or unknown."`
	Vantages    []vantageStatus `json:"vantages" nullable:"false"`
	Store       storeStatus     `json:"store"`
	Warnings    []string        `json:"warnings" nullable:"false" doc:"What its operator should see to on this machine, in sentences."`

	Observations  map[string]uint64 `json:"observations" nullable:"false" doc:"By outcome, since the start."`
	Transitions   map[string]uint64 `json:"transitions" nullable:"false" doc:"By new state, since the start."`
	ReportsSigned uint64            `json:"reports_signed" doc:"Since the start."`

	Discovery            *discoveryStatus `json:"discovery,omitempty" doc:"What other people's lists told; absent where it is off."`
	Aliases              int              `json:"aliases" doc:"Watched URLs that are another one's relay, by evidence."`
	Twins                int              `json:"twins" doc:"Watched ws relays that a wss one stands for."`
	ExpiringCertificates int              `json:"expiring_certificates" doc:"Online relays whose TLS certificate is about to expire."`
	GeoAttribution       *string          `json:"geo_attribution" doc:"What the databases of places ask to be said."`
}

// discoveryStatus is what the newest sweep over the sources came to.
type discoveryStatus struct {
	Began    *string           `json:"began" format:"date-time" doc:"When the newest sweep began; null before the first was over."`
	Ended    *string           `json:"ended" format:"date-time"`
	Whole    bool              `json:"whole" doc:"Every source was read to its end. Nothing is dropped after any other sweep."`
	Sources  []discoverySource `json:"sources" nullable:"false"`
	Authors  int               `json:"authors" doc:"Distinct ones of the lists."`
	Found    int               `json:"found" doc:"Relays that the newest list of some author names."`
	Watched  int               `json:"watched" doc:"Those that are monitored or candidates."`
	Waiting  int               `json:"waiting" doc:"Those that have no room."`
	Held     *string           `json:"held" doc:"Why the set did not change as the sweep asked."`
	Rejected map[string]int    `json:"rejected" nullable:"false" doc:"URLs that were no relay's, by the rule that they broke; other for a word that is none of ours."`
	Ignored  map[string]int    `json:"ignored" nullable:"false" doc:"Events that were not believed, by why."`
	Refusals map[string]int    `json:"refusals" nullable:"false" doc:"Of sources, by their prefix (NIP-01); none without one, other for one that is unknown."`
}

type discoverySource struct {
	URL       string  `json:"url"`
	Events    int     `json:"events" doc:"That were believed."`
	Pages     int     `json:"pages" doc:"That were read."`
	Whole     bool    `json:"whole" doc:"It told all that it has."`
	Problem   *string `json:"problem" doc:"Why it did not."`
	RestUntil *string `json:"rest_until" format:"date-time" doc:"It asked us not to come back before."`
}

type warmUp struct {
	Measured int  `json:"measured"`
	Due      int  `json:"due"`
	Done     bool `json:"done"`
}

// storeStatus says whether the store answers; what it said otherwise stands
// in the log, as it may name hosts and users.
type storeStatus struct {
	Up bool `json:"up"`
}

type vantageStatus struct {
	Name          string   `json:"name"`
	Group         string   `json:"group"`
	Networks      []string `json:"networks" nullable:"false" doc:"Those that it can reach."`
	NetworksDown  []string `json:"networks_down" nullable:"false" doc:"Those of them whose proxy does not answer now: it has no vote on their relays meanwhile."`
	Enrolled      *string  `json:"enrolled" format:"date-time"`
	LastSeen      *string  `json:"last_seen" format:"date-time"`
	Remote        bool     `json:"remote" doc:"It is on another machine."`
	Revoked       bool     `json:"revoked"`
	Eligible      bool     `json:"eligible" doc:"Its votes count now: it is enrolled, healthy, was heard lately, and its clock is right."`
	Healthy       bool     `json:"healthy"`
	Impairments   []string `json:"impairments" nullable:"false" doc:"Why it is not healthy."`
	ImpairedSince *string  `json:"impaired_since" format:"date-time"`
	CanarySuccess *string  `json:"canary_success" format:"date-time"`
	SkewMS        int64    `json:"skew_ms" doc:"Of its clock against ours."`
	LagMS         int64    `json:"lag_ms" doc:"How late its probes start, 95th percentile of the last minute."`
	InFlight      int      `json:"in_flight"`
	Watched       int      `json:"watched"`
	// Null before there was a vote to compare.
	Disagreement *float64 `json:"disagreement_ratio" doc:"Share of its votes of the last hour that stood against the verdict."`
}

// health is the body of /healthz and /readyz.
type health struct {
	Status string `json:"status" enum:"ok"`
}

// routeStatus registers what tells about this monitor itself.
func (a *API) routeStatus() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-status", Method: http.MethodGet, Path: "/v1/status", Tags: []string{"Service"},
		Summary: "This monitor itself: generation, vantages, brakes, store",
		Errors:  []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
	}, func(context.Context, *struct{ strict }) (*answer[statusBody], error) {
		return &answer[statusBody]{a.status()}, nil
	})
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-healthz", Method: http.MethodGet, Path: "/healthz", Tags: []string{"Service"},
		Summary: "Whether the process answers",
		Errors:  []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
	}, func(context.Context, *struct{ strict }) (*answer[health], error) {
		return &answer[health]{health{"ok"}}, nil
	})
	// huma documents a 500 everywhere; there is nothing here that could fail.
	delete(a.huma.OpenAPI().Paths["/healthz"].Get.Responses, "500")
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-readyz", Method: http.MethodGet, Path: "/readyz", Tags: []string{"Service"},
		Summary:     "Whether it does its work: the store answers and the list is complete",
		Description: "It asks nothing of the outside network.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable},
	}, func(ctx context.Context, _ *struct{ strict }) (*answer[health], error) {
		if ready, why := a.opts.Core.Ready(); !ready {
			return nil, newProblem(http.StatusServiceUnavailable, "not ready: "+why)
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if err := a.opts.History.Ping(ping); err != nil {
			a.log.Warn("store did not answer", "error", err)
			return nil, newProblem(http.StatusServiceUnavailable, "not ready: the store does not answer")
		}
		return &answer[health]{health{"ok"}}, nil
	})
}

func (a *API) status() statusBody {
	s, g := a.opts.Core.Status(), a.opts.Core.Generation()
	fallback := a.fallback(g, time.Now())
	ready, why := a.opts.Core.Ready()
	b := statusBody{
		Name:          a.settings.Load().Name,
		Pubkey:        a.opts.Pubkey,
		Version:       a.opts.Version,
		Started:       utc(s.Started),
		Role:          "standby",
		Ready:         ready,
		Generation:    g.Number,
		Usable:        fallback == monitor.FallbackNone,
		Fallback:      orNull(string(fallback)),
		WarmUp:        warmUp(s.WarmUp),
		States:        map[string]int{},
		Candidates:    s.Candidates,
		Held:          s.Held,
		BrakeEngaged:  s.Engaged,
		ClockSkewMS:   s.ClockSkew.Milliseconds(),
		Vantages:      make([]vantageStatus, len(s.Vantages)),
		Store:         storeStatus{Up: s.StoreError == ""},
		Warnings:      append([]string{}, s.Warnings...),
		Observations:  map[string]uint64{},
		Transitions:   map[string]uint64{},
		ReportsSigned: s.ReportsSigned,
		Discovery:     newDiscoveryStatus(s.Discovery),
		Aliases:       s.Aliases,
		Twins:         s.Twins,

		ExpiringCertificates: s.Expiring,
		GeoAttribution:       orNull(s.GeoAttribution),
	}
	if s.Leader {
		b.Role = "leader"
	}
	if !ready {
		b.NotReady = &why
	}
	for _, state := range states {
		b.States[state.String()] = s.States[state]
		b.Transitions[state.String()] = s.Transitions[state]
	}
	for _, o := range outcomes {
		b.Observations[o.String()] = s.Observations[o]
	}
	for i := range s.Vantages {
		b.Vantages[i] = newVantageStatus(&s.Vantages[i])
	}
	return b
}

func newVantageStatus(v *monitor.Vantage) vantageStatus {
	b := vantageStatus{
		Name:          v.Name,
		Group:         v.Group,
		Networks:      words(v.Networks),
		NetworksDown:  words(v.Health.Down),
		Enrolled:      utcOrNull(v.Enrolled),
		LastSeen:      utcOrNull(v.LastSeen),
		Remote:        v.Remote(),
		Revoked:       v.Revoked,
		Eligible:      v.Eligible,
		Healthy:       len(v.Health.Impairments) == 0,
		Impairments:   words(v.Health.Impairments),
		ImpairedSince: utcOrNull(v.Health.ImpairedSince),
		CanarySuccess: utcOrNull(v.Health.CanarySuccess),
		SkewMS:        v.Skew.Milliseconds(),
		LagMS:         v.Health.Lag.Milliseconds(),
		InFlight:      v.Health.InFlight,
		Watched:       v.Health.Watched,
	}
	if v.Judged > 0 {
		b.Disagreement = &v.Disagreement
	}
	return b
}

// words makes a list of words of ours one of text; never nil.
func words[W ~string](list []W) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// counted is bounded without what did not happen.
func counted(counts map[string]int, known []string) map[string]int {
	out := bounded(counts, known)
	maps.DeleteFunc(out, func(_ string, n int) bool { return n == 0 })
	return out
}

// newDiscoveryStatus is nil where discovery is off.
func newDiscoveryStatus(d *monitor.DiscoveryStatus) *discoveryStatus {
	if d == nil {
		return nil
	}
	b := &discoveryStatus{
		Sources: []discoverySource{}, Found: d.Found, Watched: d.Watched, Waiting: d.Waiting, Held: orNull(d.Held),
		Rejected: map[string]int{}, Ignored: map[string]int{}, Refusals: map[string]int{},
	}
	s := d.Sweep
	if s == nil {
		return b
	}
	b.Began, b.Ended, b.Whole, b.Authors = utcOrNull(s.Start), utcOrNull(s.At), s.Whole, s.Authors
	for _, source := range s.Sources {
		b.Sources = append(b.Sources, discoverySource{
			string(source.URL), source.Events, source.Pages, source.Whole, orNull(source.Problem), utcOrNull(source.RestUntil),
		})
	}
	b.Rejected, b.Refusals = counted(s.Rejected, rules), counted(s.Refusals, prefixes)
	maps.Copy(b.Ignored, s.Ignored)
	return b
}
