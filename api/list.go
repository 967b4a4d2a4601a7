package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pharos-nostr/pharos/monitor"
)

// liveList is the online set with all that a client needs to judge it.
type liveList[R any] struct {
	GeneratedAt   string      `json:"generated_at" format:"date-time"`
	Generation    uint64      `json:"generation" doc:"Ascending. What API and relay serve of one generation agrees."`
	NewestCheck   *string     `json:"newest_check" format:"date-time" doc:"Newest success of the online relays."`
	OldestCheck   *string     `json:"oldest_check" format:"date-time" doc:"Oldest of each online relay's newest success."`
	MaxAgeSeconds int64       `json:"max_age_seconds" doc:"At which age of newest_check the list must no longer be used."`
	Usable        bool        `json:"usable" doc:"False: do not filter by this list at all."`
	Fallback      *string     `json:"fallback" enum:"warming_up,clock,stale,too_few" doc:"Why it is not usable."`
	Held          int         `json:"held" doc:"Relays kept online because too many would leave at once."`
	Count         int         `json:"count"`
	Monitored     int         `json:"monitored"`
	Monitor       monitorInfo `json:"monitor"`
	Relays        []R         `json:"relays" nullable:"false" doc:"The online relays by URL; empty while warming up."`
}

// monitorInfo says who made a list.
type monitorInfo struct {
	Name             string  `json:"name"`
	Pubkey           string  `json:"pubkey" doc:"Hex key that signs the reports."`
	Relay            *string `json:"relay" doc:"Where the reports are served."`
	FrequencySeconds int64   `json:"frequency_seconds" doc:"At which reports are renewed."`
	Vantages         int     `json:"vantages" doc:"Enrolled."`
}

// liveRelay is one relay of the online set.
type liveRelay struct {
	URL           string   `json:"url"`
	State         string   `json:"state" enum:"online"`
	Since         *string  `json:"since" format:"date-time"`
	LastSuccess   *string  `json:"last_success" format:"date-time"`
	RTTOpenMS     *int     `json:"rtt_open_ms" doc:"Median of the vantages that are up; null = not measured."`
	RTTReadMS     *int     `json:"rtt_read_ms"`
	Network       string   `json:"network" enum:"clearnet,tor,i2p,loki"`
	VantagesUp    int      `json:"vantages_up"`
	VantagesTotal int      `json:"vantages_total" doc:"Enrolled and able to reach it."`
	Marks         []string `json:"marks" nullable:"false"`
	Auth          bool     `json:"auth"`
	Payment       bool     `json:"payment"`
	Writes        bool     `json:"writes" doc:"Writing is restricted."`
	NIPs          []int    `json:"nips" nullable:"false"`
	Country       *string  `json:"country"`
}

// liveURL is what fields=url leaves of it.
type liveURL struct {
	URL string `json:"url"`
}

// downList is the list of relays that are monitored and offline or dead.
type downList struct {
	GeneratedAt string      `json:"generated_at" format:"date-time"`
	Generation  uint64      `json:"generation"`
	Usable      bool        `json:"usable" doc:"False: do not drop relays by this list."`
	Fallback    *string     `json:"fallback" enum:"warming_up,clock,stale,too_few"`
	Count       int         `json:"count"`
	Relays      []downRelay `json:"relays" nullable:"false" doc:"By URL; empty while warming up. What is in no list is not monitored, which is not dead."`
}

type downRelay struct {
	URL   string  `json:"url"`
	State string  `json:"state" enum:"offline,dead"`
	Since *string `json:"since" format:"date-time"`
	Cause *string `json:"cause"`
}

// signedEvent documents a Nostr event (NIP-01).
type signedEvent struct {
	ID        string     `json:"id"`
	Pubkey    string     `json:"pubkey"`
	CreatedAt int64      `json:"created_at"`
	Kind      int        `json:"kind"`
	Tags      [][]string `json:"tags" nullable:"false"`
	Content   string     `json:"content"`
	Sig       string     `json:"sig"`
}

// shelf holds every list of one generation.
type shelf struct {
	gen      *monitor.Generation
	fallback monitor.Fallback
	number   string

	live, liveURLs, online, offline *body
	event                           *body // nil = there is none
}

// fallback is why a generation must not be used now. The core has said so
// already, unless it makes no more generations: an old one must not stay
// usable for ever.
func (a *API) fallback(g *monitor.Generation, now time.Time) monitor.Fallback {
	if g.Usable() && now.Sub(g.NewestCheck) > a.opts.MaxAge {
		return monitor.FallbackStale
	}
	return g.Fallback
}

// current returns the shelf of the current generation.
func (a *API) current() *shelf {
	g := a.opts.Core.Generation()
	f := a.fallback(g, time.Now())
	if s := a.shelf.Load(); s != nil && s.gen == g && s.fallback == f {
		return s
	}
	a.stocking.Lock()
	defer a.stocking.Unlock()
	g = a.opts.Core.Generation() // a newer one may have come while we waited
	f = a.fallback(g, time.Now())
	if s := a.shelf.Load(); s != nil && s.gen == g && s.fallback == f {
		return s
	}
	s := a.newShelf(g, f)
	a.shelf.Store(s)
	return s
}

// newShelf encodes nothing yet.
func (a *API) newShelf(g *monitor.Generation, f monitor.Fallback) *shelf {
	number := strconv.FormatUint(g.Number, 10)
	// The number alone is not enough: a process that was killed may count the
	// same ones again.
	tag := number + "." + strconv.FormatInt(g.GeneratedAt.UnixMilli(), 36)
	if f != monitor.FallbackNone {
		tag += "." + string(f)
	}
	const ct = "application/json"
	s := &shelf{gen: g, fallback: f, number: number}
	online, down := g.Online, g.Down
	if f == monitor.FallbackWarmingUp {
		online, down = nil, nil
	}
	s.live = newBody(tag, ct, func() ([]byte, error) { return encode(envelope(a, g, f, online, newLiveRelay)) })
	s.liveURLs = newBody(tag+".urls", ct, func() ([]byte, error) {
		return encode(envelope(a, g, f, online, func(r *monitor.OnlineRelay) liveURL { return liveURL{string(r.URL)} }))
	})
	s.online = newBody(tag, ct, func() ([]byte, error) {
		urls := make([]string, len(online))
		for i := range online {
			urls[i] = string(online[i].URL)
		}
		return encode(urls)
	})
	s.offline = newBody(tag, ct, func() ([]byte, error) { return encode(newDownList(g, f, down)) })
	if f == monitor.FallbackNone && g.Snapshot != nil {
		s.event = newBody(tag+".event", ct, func() ([]byte, error) { return g.Snapshot.JSON, nil })
	}
	return s
}

func envelope[R any](a *API, g *monitor.Generation, f monitor.Fallback, online []monitor.OnlineRelay, relay func(*monitor.OnlineRelay) R) liveList[R] {
	l := liveList[R]{
		GeneratedAt:   utc(g.GeneratedAt),
		Generation:    g.Number,
		NewestCheck:   utcOrNull(g.NewestCheck),
		OldestCheck:   utcOrNull(g.OldestCheck),
		MaxAgeSeconds: int64(a.opts.MaxAge.Seconds()),
		Usable:        f == monitor.FallbackNone,
		Fallback:      orNull(string(f)),
		Held:          g.Held,
		Count:         len(online),
		Monitored:     g.Monitored,
		Monitor: monitorInfo{
			Name:             a.opts.Name,
			Pubkey:           a.opts.Pubkey,
			Relay:            orNull(a.opts.RelayURL),
			FrequencySeconds: int64(a.opts.Frequency.Seconds()),
			Vantages:         g.Vantages,
		},
		Relays: make([]R, len(online)),
	}
	for i := range online {
		l.Relays[i] = relay(&online[i])
	}
	return l
}

func newLiveRelay(r *monitor.OnlineRelay) liveRelay {
	nips := r.NIPs
	if nips == nil {
		nips = []int{}
	}
	return liveRelay{
		URL:           string(r.URL),
		State:         monitor.StateOnline.String(),
		Since:         utcOrNull(r.Since),
		LastSuccess:   utcOrNull(r.LastSuccess),
		RTTOpenMS:     orNull(r.RTTOpenMS),
		RTTReadMS:     orNull(r.RTTReadMS),
		Network:       string(r.Network),
		VantagesUp:    r.VantagesUp,
		VantagesTotal: r.VantagesTotal,
		Marks:         r.Marks.Strings(),
		Auth:          r.Auth,
		Payment:       r.Payment,
		Writes:        r.Writes,
		NIPs:          nips,
		Country:       orNull(r.Country),
	}
}

func newDownList(g *monitor.Generation, f monitor.Fallback, down []monitor.DownRelay) downList {
	l := downList{
		GeneratedAt: utc(g.GeneratedAt),
		Generation:  g.Number,
		Usable:      f == monitor.FallbackNone,
		Fallback:    orNull(string(f)),
		Count:       len(down),
		Relays:      make([]downRelay, len(down)),
	}
	for i := range down {
		d := &down[i]
		l.Relays[i] = downRelay{URL: string(d.URL), State: d.State.String(), Since: utcOrNull(d.Since), Cause: orNull(d.Cause.String())}
	}
	return l
}

// liveInput is what /v1/live takes.
type liveInput struct {
	strict
	Fields string `query:"fields" enum:"url" doc:"Leave only this of each relay. By default all fields."`
	Format string `query:"format" enum:"json,event" default:"json" doc:"event: the signed relay set (kind 30002), the whole list under one signature."`
}

// Resolve adds what two parameters together make wrong.
func (in *liveInput) Resolve(ctx huma.Context) []error {
	errs := in.strict.Resolve(ctx)
	if in.Format == "event" && in.Fields != "" {
		errs = append(errs, &huma.ErrorDetail{Location: "query.fields", Message: "cannot be chosen with format=event: what is signed cannot be cut"})
	}
	return errs
}

// routeLists registers the lists of the generation.
func (a *API) routeLists() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-live", Method: http.MethodGet, Path: "/v1/live", Tags: []string{"Lists"},
		Summary:     "The online relays, and whether the list may be used",
		Description: "Answers 200 also when the list must not be used: then usable is false, fallback says why, and relays holds what is known. Only format=event answers 503 instead.",
		Responses:   listResponses(a.huma, "The online set.", liveList[liveRelay]{}, liveList[liveURL]{}, signedEvent{}),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable},
	}, func(_ context.Context, in *liveInput) (*huma.StreamResponse, error) {
		s := a.current()
		b := s.live
		switch {
		case in.Format == "event":
			if b = s.event; b == nil {
				return nil, a.notUsable(s, "there is no signed list now")
			}
		case in.Fields == "url":
			b = s.liveURLs
		}
		return a.serveList(s, b), nil
	})

	huma.Register(a.huma, huma.Operation{
		OperationID: "get-online", Method: http.MethodGet, Path: "/v1/online", Tags: []string{"Lists"},
		Summary:     "The URLs of the online relays, sorted, as a bare array",
		Description: "Complete or not at all: 503 when the list must not be used.",
		Responses:   listResponses(a.huma, "The online set.", []string{}),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable},
	}, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		s := a.current()
		if s.fallback != monitor.FallbackNone {
			return nil, a.notUsable(s, "the list must not be used now")
		}
		return a.serveList(s, s.online), nil
	})

	huma.Register(a.huma, huma.Operation{
		OperationID: "get-offline-set", Method: http.MethodGet, Path: "/v1/offline-set", Tags: []string{"Lists"},
		Summary:   "The monitored relays that are offline or dead, with their causes",
		Responses: listResponses(a.huma, "The relays that are down.", downList{}),
		Errors:    []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
	}, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		s := a.current()
		return a.serveList(s, s.offline), nil
	})
}

// serveList answers with one list of a shelf. A usable list may be kept for
// 10 s: a generation lives from 1 s to 60 s.
func (a *API) serveList(s *shelf, b *body) *huma.StreamResponse {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Pharos-Generation", s.number)
		cache := "public, max-age=10"
		if s.fallback != monitor.FallbackNone {
			cache = "no-cache"
		}
		a.serveBody(w, r, b, cache)
	})
}

// notUsable is the 503 of a format that cannot carry usable = false.
func (a *API) notUsable(s *shelf, what string) error {
	why := "it is made in a moment"
	switch s.fallback {
	case monitor.FallbackNone:
	case monitor.FallbackWarmingUp:
		why = "warming_up: the first full pass over the relays is not over"
	case monitor.FallbackClock:
		why = "clock: the clock of this monitor is wrong"
	case monitor.FallbackStale:
		why = fmt.Sprintf("stale: the newest check is older than %s, or fewer than %.0f %% of the online relays answered within it", a.opts.MaxAge, a.opts.MinFresh*100)
	case monitor.FallbackTooFew:
		why = fmt.Sprintf("too_few: there are fewer than %d online relays", a.opts.MinCount)
	}
	p := newProblem(http.StatusServiceUnavailable, what+" ("+why+"); do not drop relays meanwhile")
	p.headers.Set("X-Pharos-Generation", s.number)
	return p
}
