package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// storeTimeout bounds one read of the store for a caller who waits.
const storeTimeout = 10 * time.Second

// maxPoints bounds a raw history: two days of one relay at ten vantages every
// five minutes are 5 760 points (history.md, Store).
const maxPoints = 20000

// transitionsBody is one page of transitions.
type transitionsBody struct {
	From        string           `json:"from" format:"date-time"`
	To          string           `json:"to" format:"date-time" doc:"Exclusive."`
	Limit       int              `json:"limit" doc:"Most transitions on one page."`
	Transitions []transitionBody `json:"transitions" nullable:"false" doc:"Newest first."`
	Next        *string          `json:"next" doc:"The cursor of the next page; null = this is the last."`
}

type transitionBody struct {
	URL       string  `json:"url"`
	FromState string  `json:"from_state" enum:"unknown,online,offline,dead"`
	ToState   string  `json:"to_state" enum:"unknown,online,offline,dead"`
	At        string  `json:"at" format:"date-time"`
	Quorum    string  `json:"quorum" example:"3/4"`
	Cause     *string `json:"cause"`
	Evidence  *string `json:"evidence"`
}

type transitionsInput struct {
	strict
	From   moment     `query:"from" doc:"From this time on (RFC 3339 or unix seconds). By default 24 hours before the end."`
	To     moment     `query:"to" doc:"Up to but without this time. By default now."`
	URL    relayParam `query:"url" doc:"Only this relay. By default all."`
	State  string     `query:"state" enum:"unknown,online,offline,dead" doc:"Only transitions to this state."`
	Limit  int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Most transitions on one page."`
	Cursor int64      `query:"cursor" minimum:"1" doc:"next of the page before, with the other parameters unchanged."`
}

// historyBody is the raw history of one relay.
type historyBody struct {
	URL        string  `json:"url"`
	Resolution string  `json:"resolution" enum:"raw"`
	From       string  `json:"from" format:"date-time"`
	To         string  `json:"to" format:"date-time" doc:"Exclusive."`
	Limit      int     `json:"limit" doc:"Most points in one answer."`
	Truncated  bool    `json:"truncated" doc:"There are more points: ask again from the time of the last one."`
	Points     []point `json:"points" nullable:"false" doc:"Oldest first."`
}

type point struct {
	Time      string  `json:"time" format:"date-time"`
	Vantage   string  `json:"vantage"`
	Outcome   string  `json:"outcome" enum:"ok,refused,restricted,failed,skipped,unclear"`
	Cause     *string `json:"cause"`
	RTTOpenMS *int64  `json:"rtt_open_ms"`
	RTTReadMS *int64  `json:"rtt_read_ms"`
}

type historyInput struct {
	strict
	URL        relayParam `query:"url" required:"true" doc:"The relay, in any spelling."`
	From       moment     `query:"from" doc:"From this time on (RFC 3339 or unix seconds). By default 24 hours before the end."`
	To         moment     `query:"to" doc:"Up to but without this time. By default now."`
	Resolution string     `query:"resolution" enum:"raw" default:"raw" doc:"How fine the points are: raw is every single probe."`
	Vantage    string     `query:"vantage" maxLength:"64" doc:"Only this vantage. By default all."`
}

// routeHistory registers what is read from the store.
func (a *API) routeHistory() {
	failures := []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable}
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-transitions", Method: http.MethodGet, Path: "/v1/transitions", Tags: []string{"History"},
		Summary:     "Changes of verdicts, newest first, by pages",
		Description: "They are kept for ever; by default the last 24 hours are told.",
		Errors:      failures,
		Middlewares: a.relayURLs(),
	}, a.transitions)
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-history", Method: http.MethodGet, Path: "/v1/history", Tags: []string{"History"},
		Summary:     "What each vantage saw of one relay, probe by probe",
		Description: "By default of the last 24 hours. Single probes are kept for 48 hours by default.",
		Errors:      failures,
		Middlewares: a.relayURLs(),
	}, a.history)
}

func (a *API) transitions(ctx context.Context, in *transitionsInput) (*answer[transitionsBody], error) {
	from, to, err := span(in.From, in.To, time.Now())
	if err != nil {
		return nil, err
	}
	q := monitor.TransitionQuery{Relay: in.URL.URL, From: from, To: to, Before: in.Cursor, Limit: in.Limit + 1}
	if in.State != "" {
		var s monitor.State
		if err := s.UnmarshalText([]byte(in.State)); err != nil {
			return nil, a.fault(ctx, "read the state asked for", err)
		}
		q.State = &s
	}
	read, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := a.opts.History.Transitions(read, q)
	if err != nil {
		return nil, a.fault(ctx, "read transitions", err)
	}
	b := transitionsBody{From: utc(from), To: utc(to), Limit: in.Limit, Transitions: []transitionBody{}}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		b.Next = orNull(strconv.FormatInt(rows[in.Limit-1].ID, 10))
	}
	for i := range rows {
		t := &rows[i]
		b.Transitions = append(b.Transitions, transitionBody{
			URL: string(t.Relay), FromState: t.From.String(), ToState: t.To.String(), At: utc(t.At),
			Quorum: t.Quorum.String(), Cause: orNull(t.Cause.String()), Evidence: orNull(t.Evidence),
		})
	}
	return &answer[transitionsBody]{b}, nil
}

func (a *API) history(ctx context.Context, in *historyInput) (*answer[historyBody], error) {
	from, to, err := span(in.From, in.To, time.Now())
	if err != nil {
		return nil, err
	}
	read, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := a.opts.History.Observations(read, monitor.ObservationQuery{
		Relay: in.URL.URL, From: from, To: to, Vantage: in.Vantage, Limit: maxPoints + 1,
	})
	if err != nil {
		return nil, a.fault(ctx, "read observations", err)
	}
	b := historyBody{URL: string(in.URL.URL), Resolution: in.Resolution, From: utc(from), To: utc(to), Limit: maxPoints}
	if len(rows) > maxPoints {
		rows, b.Truncated = rows[:maxPoints], true
	}
	b.Points = make([]point, len(rows))
	for i := range rows {
		o := &rows[i]
		b.Points[i] = point{
			Time: utc(o.At), Vantage: o.Vantage, Outcome: o.Outcome.String(), Cause: orNull(o.Cause.String()),
			RTTOpenMS: millis(o.RTTOpen), RTTReadMS: millis(o.RTTRead),
		}
	}
	return &answer[historyBody]{b}, nil
}
