package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/pharos-nostr/pharos/monitor"
)

// liveInput is what /v1/live takes.
type liveInput struct {
	strict
	Network      string     `query:"network" enum:"clearnet,tor,i2p,loki" doc:"Only relays of this network."`
	NIPs         []int      `query:"nip,explode" minimum:"0" maximum:"65535" maxItems:"20" nullable:"false" doc:"Only relays that claim this NIP. May be given several times: all must hold."`
	Country      string     `query:"country" pattern:"^[A-Za-z]{2}$" patternDescription:"two letters, as in ISO 3166-1" doc:"Only relays in this country, two letters as in ISO 3166-1."`
	Auth         optionBool `query:"auth" doc:"Only relays that ask readers to authenticate (true), or that do not (false)."`
	Payment      optionBool `query:"payment" doc:"Only relays that want payment (true), or that do not (false)."`
	Writes       optionBool `query:"writes" doc:"Only relays that restrict who may write (true), or that do not (false)."`
	MaxRTTOpenMS int        `query:"max_rtt_open_ms" minimum:"1" maximum:"60000" doc:"Only relays whose rtt_open_ms was measured and is at most this."`
	MinVantages  int        `query:"min_vantages" minimum:"1" maximum:"1000" doc:"Only relays that at least so many vantages see up."`

	Sort   string `query:"sort" enum:"url,rtt_open" default:"url" doc:"Order of the relays. rtt_open: the nearest first, those not measured last."`
	Limit  int    `query:"limit" minimum:"1" maximum:"10000" doc:"Most relays on one page. By default all are on one."`
	Cursor string `query:"cursor" maxLength:"720" doc:"next_cursor of the page before, or of its header Link, with filters and sort unchanged. It stays good over generations: a relay that comes or goes between two pages moves no other one."`
	Fields string `query:"fields" enum:"url" doc:"Leave only this of each relay. By default all fields."`

	MaxAge   int `query:"max_age" minimum:"1" maximum:"14400" doc:"Your own guard, in seconds: usable and fallback are told for a list whose newest check may be this old. By default this monitor's, told as max_age_seconds."`
	MinCount int `query:"min_count" minimum:"1" maximum:"1000000" doc:"Your own guard: usable and fallback are told for a whole set that must have so many relays. By default this monitor's, usually 100."`

	Format string `query:"format" enum:"json,urls,text,csv,ndjson,event" doc:"By default what Accept likes best of application/json, text/plain, text/csv and application/x-ndjson, else json. urls: a bare JSON array of URLs. text: one URL per line. ndjson: one relay object per line. event: the signed relay set (kind 30002), the whole list under one signature."`

	query  liveQuery
	accept bool // false: no format suits Accept
}

// Resolve makes the query, and adds what parameters together make wrong.
func (in *liveInput) Resolve(ctx huma.Context) []error {
	errs := in.strict.Resolve(ctx)
	if len(errs) > 0 {
		return errs
	}
	q := &in.query
	in.accept = true
	if f, ok := formatNamed(in.Format); ok {
		q.format = f
	} else {
		r, _ := humachi.Unwrap(ctx)
		q.format, in.accept = acceptable(r.Header["Accept"])
	}
	// What says nothing more than the format does is no other view.
	q.urlsOnly = in.Fields != "" && q.format != formatURLs && q.format != formatText
	q.network, q.country = monitor.Network(in.Network), strings.ToUpper(in.Country)
	q.nips = slices.Compact(slices.Sorted(slices.Values(in.NIPs)))
	q.auth, q.payment, q.writes = choose(in.Auth), choose(in.Payment), choose(in.Writes)
	q.maxRTTOpen, q.minVantages = in.MaxRTTOpenMS, in.MinVantages
	q.byRTT, q.limit = in.Sort == "rtt_open", in.Limit
	if in.Cursor != "" {
		var err error
		if q.cursor, err = decodeCursor(in.Cursor, q.bound()); err != nil {
			errs = append(errs, badCursor(err))
		}
	}
	if q.format == formatEvent && (q.urlsOnly || !q.whole()) {
		errs = append(errs, &huma.ErrorDetail{
			Location: "query.format",
			Message:  "event can be chosen with max_age and min_count only: what is signed cannot be filtered, sorted or cut",
		})
	}
	return errs
}

// guard is why a list must not be used, as somebody sees it.
type guard struct {
	fallback monitor.Fallback
	maxAge   time.Duration
}

// guard judges the whole set by the reader's own measures where they were
// given. What the core alone knows stays as the core says.
func (s *shelf) guard(in *liveInput, now time.Time) guard {
	if in.MaxAge == 0 && in.MinCount == 0 {
		return guard{s.fallback, s.settings.MaxAge}
	}
	f := monitor.Freshness{MaxAge: s.settings.MaxAge, MinFresh: s.settings.MinFresh, MinCount: s.settings.MinCount}
	if in.MaxAge != 0 {
		f.MaxAge = time.Duration(in.MaxAge) * time.Second
	}
	if in.MinCount != 0 {
		f.MinCount = in.MinCount
	}
	state := monitor.ListState{
		WarmingUp:  s.fallback == monitor.FallbackWarmingUp,
		ClockWrong: s.fallback == monitor.FallbackClock,
		Online:     len(s.online), Fresh: s.fresh(f, now), Newest: s.gen.NewestCheck,
	}
	return guard{f.Judge(state, now), f.MaxAge}
}

// fresh counts the relays whose last success is young enough.
func (s *shelf) fresh(f monitor.Freshness, now time.Time) int {
	s.counted.Do(func() {
		for i := range s.online {
			s.successes = append(s.successes, s.online[i].LastSuccess)
		}
		slices.SortFunc(s.successes, time.Time.Compare)
	})
	old, _ := slices.BinarySearchFunc(s.successes, now, func(t, now time.Time) int {
		if f.Fresh(t, now) {
			return 1
		}
		return -1
	})
	return len(s.successes) - old
}

// view returns the body that answers q.
func (a *API) view(s *shelf, q *liveQuery, g guard) *body {
	told := ""
	if q.format == formatJSON { // the others say nothing of the guard
		told = string(g.fallback) + "|" + strconv.FormatInt(int64(g.maxAge), 36)
	}
	if q.whole() && (told == "" || g == guard{s.fallback, s.settings.MaxAge}) {
		return s.whole[q.format][index(q.urlsOnly)]
	}
	return s.views.get(q.key(told), func() *body { return a.newView(s, q, g) })
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

// newView makes the body that answers q; nothing is encoded yet.
func (a *API) newView(s *shelf, q *liveQuery, g guard) *body {
	f := formats[q.format]
	if q.format == formatEvent {
		return newHashed(f.name, f.contentType, func() (page, error) { return page{data: s.gen.Snapshot.JSON}, nil })
	}
	encode := func() (p page, err error) {
		relays, count, next := q.apply(s.online)
		p.next = next
		switch q.format {
		case formatURLs:
			p.data, err = encodeURLs(relays)
		case formatText:
			p.data, err = encodeText(relays)
		case formatCSV:
			p.data, err = encodeCSV(relays, q.urlsOnly)
		case formatNDJSON:
			p.data, err = encodeNDJSON(relays, q.urlsOnly)
		default:
			if q.urlsOnly {
				p.data, err = encode(envelope(a, s, g, relays, count, next, func(r *monitor.OnlineRelay) liveURL { return liveURL{string(r.URL)} }))
			} else {
				p.data, err = encode(envelope(a, s, g, relays, count, next, newLiveRelay))
			}
		}
		return p, err
	}
	if q.format != formatJSON {
		return newHashed(f.name, f.contentType, encode)
	}
	// The envelope tells the generation's times: it is another one each time.
	return newBody(tagged(s.tag, g.fallback), f.contentType, encode)
}

// routeLive registers the live list.
func (a *API) routeLive() {
	ok := listResponses(a.huma, "The online set, or what the filters leave of it.",
		content{"format=json.", liveList[liveRelay]{}},
		content{"format=json with fields=url.", liveList[liveURL]{}},
		content{"format=urls: a bare array of URLs.", []string{}},
		content{"format=event: a Nostr event (NIP-01) of kind 30002, with a tag relay for each URL.", signedEvent{}},
	)
	for _, f := range []format{formatText, formatCSV, formatNDJSON} {
		ok["200"].Content[formats[f].contentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: formatDocs[f]}}
	}
	link := &huma.Header{
		Description: "Where there are more relays: the next page (rel=next, RFC 8288), relative to this URL.",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}
	for _, status := range []string{"200", "304"} {
		ok[status].Headers["Link"] = link
	}
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-live", Method: http.MethodGet, Path: "/v1/live", Tags: []string{"Lists"},
		Summary: "The online relays, and whether the list may be used",
		Description: "format=json (with an envelope) answers 200 also when the list must not be used: then usable is false, fallback says why, and relays holds what is known. " +
			"The other formats have no place to say so and answer 503 instead. The guards look at the whole set, never at a filtered view.",
		Responses: ok,
		Errors: []int{
			http.StatusNotAcceptable, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable,
		},
	}, a.live)
}

var formatDocs = map[format]string{
	formatText:   "format=text: one URL per line.",
	formatCSV:    "format=csv: RFC 4180 with a line of names: " + strings.Join(csvColumns, ", ") + ". Lists are joined by spaces; what is not known is empty.",
	formatNDJSON: "format=ndjson: one relay object per line, as in relays of format=json.",
}

func (a *API) live(_ context.Context, in *liveInput) (*huma.StreamResponse, error) {
	if !in.accept {
		return nil, newProblem(http.StatusNotAcceptable, "Accept wants none of what there is: "+acceptList()+"; the parameter format chooses without it")
	}
	s := a.current()
	g := s.guard(in, time.Now())
	q := &in.query
	switch {
	case q.format == formatJSON:
	case g.fallback != monitor.FallbackNone:
		return nil, s.notUsable(g.fallback, "the list must not be used now")
	case q.format == formatEvent && s.gen.Snapshot == nil:
		return nil, s.notUsable(s.fallback, "there is no signed list now")
	}
	b := a.view(s, q, g)
	return raw(func(w http.ResponseWriter, r *http.Request) {
		// Where a page goes on is known when it is encoded; where that fails,
		// writeList says so.
		if q.limit > 0 && b.variant(identity).err == nil && b.next != "" {
			w.Header().Set("Link", "<?"+withCursor(r.URL.RawQuery, b.next)+`>; rel="next"`)
		}
		a.writeList(w, r, s, b, g.fallback)
	}), nil
}

// withCursor is a query for the page that begins at cursor.
func withCursor(query, cursor string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	values.Set("cursor", cursor)
	return values.Encode()
}
