package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// relaysBody is one page of the relays that are watched.
type relaysBody struct {
	Limit      int         `json:"limit" doc:"Most relays on one page."`
	NextCursor *string     `json:"next_cursor" doc:"cursor of the next page; null = this is the last."`
	Relays     []relayLine `json:"relays" nullable:"false" doc:"By URL."`
}

// relayLine is what the list of all relays tells of one; /v1/relay tells all.
type relayLine struct {
	URL           string   `json:"url"`
	State         string   `json:"state" enum:"unknown,online,offline,dead"`
	Since         *string  `json:"since" format:"date-time" doc:"When state was reached."`
	Eligible      bool     `json:"eligible" doc:"A client may try it now."`
	Marks         []string `json:"marks" nullable:"false"`
	Cause         *string  `json:"cause"`
	Network       string   `json:"network" enum:"clearnet,tor,i2p,loki"`
	Source        *string  `json:"source" enum:"config,file,builtin,discovery,operator,submitted" doc:"Where its URL came from."`
	FirstSeen     *string  `json:"first_seen" format:"date-time"`
	LastSuccess   *string  `json:"last_success" format:"date-time"`
	Candidate     bool     `json:"candidate" doc:"Found, not yet seen alive anywhere."`
	Excluded      bool     `json:"excluded" doc:"Never probed, as an operator or its owner wants it."`
	PausedUntil   *string  `json:"paused_until" format:"date-time" doc:"Not probed before."`
	RTTOpenMS     *int     `json:"rtt_open_ms" doc:"Median of the vantages that are up; null = not measured."`
	VantagesUp    int      `json:"vantages_up"`
	VantagesTotal int      `json:"vantages_total" doc:"Enrolled and able to reach it."`
}

type relaysInput struct {
	strict
	State     string     `query:"state" enum:"unknown,online,offline,dead" doc:"Only relays in this state."`
	Marks     []string   `query:"mark,explode" enum:"partial,restricted,flapping,stale,degraded,uncorroborated,held,singled_out" maxItems:"20" nullable:"false" doc:"Only relays with this mark. May be given several times: all must hold."`
	Network   string     `query:"network" enum:"clearnet,tor,i2p,loki" doc:"Only relays of this network."`
	Source    string     `query:"source" enum:"config,file,builtin,discovery,operator,submitted" doc:"Only relays whose URL came from there."`
	Candidate optionBool `query:"candidate" doc:"Only candidates (true), or only others (false)."`
	Paused    optionBool `query:"paused" doc:"Only relays that are paused now (true), or that are not (false)."`
	Excluded  bool       `query:"excluded" default:"false" doc:"true lists the excluded relays instead, which are not watched."`
	Q         string     `query:"q" maxLength:"512" doc:"Only relays whose URL holds this text, in any case."`
	Limit     int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Most relays on one page."`
	Cursor    string     `query:"cursor" maxLength:"720" doc:"next_cursor of the page before, with the other parameters but limit unchanged."`

	query monitor.RelayQuery
	bound string // what a cursor depends on
}

// Resolve makes the query.
func (in *relaysInput) Resolve(ctx huma.Context) []error {
	if errs := in.strict.Resolve(ctx); len(errs) > 0 {
		return errs
	}
	q := &in.query
	if in.State != "" {
		q.State = new(monitor.State)
		if err := q.State.UnmarshalText([]byte(in.State)); err != nil {
			return []error{&huma.ErrorDetail{Location: "query.state", Message: err.Error()}}
		}
	}
	var err error
	if q.Marks, err = monitor.ParseMarks(in.Marks); err != nil {
		return []error{&huma.ErrorDetail{Location: "query.mark", Message: err.Error()}}
	}
	q.Network, q.Source, q.Excluded = monitor.Network(in.Network), monitor.Source(in.Source), in.Excluded
	q.Candidate, q.Paused = in.Candidate.pointer(), in.Paused.pointer()
	q.Contains = strings.ToLower(in.Q)
	in.bound = strings.Join([]string{
		"relays", in.State, q.Marks.String(), in.Network, in.Source, strconv.Itoa(int(choose(in.Candidate))),
		strconv.Itoa(int(choose(in.Paused))), strconv.FormatBool(in.Excluded), q.Contains,
	}, "|")
	if in.Cursor != "" {
		c, err := decodeCursor(in.Cursor, in.bound)
		if err != nil {
			return []error{badCursor(err)}
		}
		q.After = monitor.RelayURL(c.url)
	}
	q.Limit = in.Limit + 1 // one more tells whether there is another page
	return nil
}

// routeRelays registers the list of all relays.
func (a *API) routeRelays() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-relays", Method: http.MethodGet, Path: "/v1/relays", Tags: []string{"Relays"},
		Summary:     "All relays that are watched, with filters, by pages",
		Description: "Candidates are among them. Every condition must hold.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
	}, func(_ context.Context, in *relaysInput) (*answer[relaysBody], error) {
		entries := a.opts.Core.Relays(in.query)
		b := relaysBody{Limit: in.Limit, Relays: []relayLine{}}
		if len(entries) > in.Limit {
			entries = entries[:in.Limit]
			b.NextCursor = orNull(cursor{url: string(entries[in.Limit-1].URL)}.encode(in.bound))
		}
		for i := range entries {
			b.Relays = append(b.Relays, newRelayLine(&entries[i]))
		}
		return &answer[relaysBody]{b}, nil
	})
}

func newRelayLine(e *monitor.RelayEntry) relayLine {
	d := &e.Verdict
	return relayLine{
		URL:           string(e.URL),
		State:         d.State.String(),
		Since:         utcOrNull(d.Since),
		Eligible:      e.Eligible,
		Marks:         d.Marks.Strings(),
		Cause:         orNull(d.Cause.String()),
		Network:       string(e.URL.Network()),
		Source:        sourceOrNull(e.Source),
		FirstSeen:     utcOrNull(e.FirstSeen),
		LastSuccess:   utcOrNull(d.LastSuccess),
		Candidate:     e.Candidate,
		Excluded:      e.Excluded,
		PausedUntil:   utcOrNull(e.PausedUntil),
		RTTOpenMS:     orNull(e.RTTOpenMS),
		VantagesUp:    e.VantagesUp,
		VantagesTotal: e.VantagesTotal,
	}
}

// sourceOrNull is null for a relay that nobody names any more.
func sourceOrNull(s monitor.Source) *string {
	if s == monitor.SourceNone {
		return nil
	}
	return orNull(string(s))
}
