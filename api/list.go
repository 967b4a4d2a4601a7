package api

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Usable        bool        `json:"usable" doc:"False: do not filter by this list at all. Judged by the whole set, whatever the filters leave of it."`
	Fallback      *string     `json:"fallback" enum:"warming_up,clock,stale,too_few" doc:"Why it is not usable."`
	Held          int         `json:"held" doc:"Of the whole set: relays kept online because too many would leave at once."`
	Count         int         `json:"count" doc:"Relays that match, on all pages together."`
	Monitored     int         `json:"monitored"`
	Monitor       monitorInfo `json:"monitor"`
	NextCursor    *string     `json:"next_cursor" doc:"cursor of the next page; null = this is the last."`
	Relays        []R         `json:"relays" nullable:"false" doc:"The online relays of this page; empty while warming up."`
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

// shelf holds every list of one generation under one set of settings.
type shelf struct {
	gen      *monitor.Generation
	settings *Settings
	fallback monitor.Fallback // without a guard of the reader's own
	online   []monitor.OnlineRelay
	down     []monitor.DownRelay
	number   string // of the generation, as X-Pharos-Generation has it
	tag      string // names the generation and the settings in ETags

	offline *body
	places  *body
	// whole holds the unfiltered list in each format, with all fields and with
	// URLs only: no stranger's parameters can make us forget them.
	whole [numFormats][2]*body
	views *views

	// attribution is what the databases of places ask to be said.
	attribution func() string

	counted   sync.Once
	successes []time.Time // last ones of the online set, oldest first
}

// fallback is why a generation must not be used now. The core has said so
// already, unless it makes no more generations: an old one must not stay
// usable for ever.
func (a *API) fallback(g *monitor.Generation, now time.Time) monitor.Fallback {
	return staleBy(g, now, a.settings.Load())
}

func staleBy(g *monitor.Generation, now time.Time, s *Settings) monitor.Fallback {
	if g.Usable() && now.Sub(g.NewestCheck) > s.MaxAge {
		return monitor.FallbackStale
	}
	return g.Fallback
}

// current returns the shelf of the current generation.
func (a *API) current() *shelf {
	if s := a.shelf.Load(); a.holds(s) {
		return s
	}
	a.stocking.Lock()
	defer a.stocking.Unlock()
	if s := a.shelf.Load(); a.holds(s) { // made while we waited
		return s
	}
	g, settings := a.opts.Core.Generation(), a.settings.Load()
	s := a.newShelf(g, settings, staleBy(g, time.Now(), settings))
	a.shelf.Store(s)
	return s
}

// holds reports whether s is what is to be told now.
func (a *API) holds(s *shelf) bool {
	if s == nil {
		return false
	}
	g, settings := a.opts.Core.Generation(), a.settings.Load()
	return s.gen == g && s.settings == settings && s.fallback == staleBy(g, time.Now(), settings)
}

// newShelf encodes nothing yet.
func (a *API) newShelf(g *monitor.Generation, settings *Settings, f monitor.Fallback) *shelf {
	s := &shelf{gen: g, settings: settings, fallback: f, online: g.Online, down: g.Down, number: strconv.FormatUint(g.Number, 10), views: newViews()}
	if f == monitor.FallbackWarmingUp {
		s.online, s.down = nil, nil
	}
	// The number alone is not enough: a process that was killed may count the
	// same ones again, and a list tells of the settings.
	told := fnv.New32a()
	fmt.Fprint(told, settings.Name, "|", settings.RelayURL, "|", settings.Frequency, "|", settings.MaxAge)
	s.tag = s.number + "." + strconv.FormatInt(g.GeneratedAt.UnixMilli(), 36) + "." + strconv.FormatUint(uint64(told.Sum32()), 36)
	s.offline = newBody(tagged(s.tag, f), "application/json", func() (page, error) {
		data, err := encode(newDownList(g, f, s.down))
		return page{data: data}, err
	})
	s.places = newHashed("georelays", formats[formatCSV].contentType, func() (page, error) {
		data, err := encodePlaces(s.online)
		return page{data: data}, err
	})
	s.attribution = sync.OnceValue(func() string { return a.opts.Core.Status().GeoAttribution })
	own := guard{f, settings.MaxAge}
	for i := range formats {
		for j, urlsOnly := range []bool{false, true} {
			s.whole[i][j] = a.newView(s, &liveQuery{format: format(i), urlsOnly: urlsOnly}, own)
		}
	}
	return s
}

// tagged names a body that says why the list must not be used.
func tagged(tag string, f monitor.Fallback) string {
	if f == monitor.FallbackNone {
		return tag
	}
	return tag + "." + string(f)
}

func envelope[R any](a *API, s *shelf, g guard, relays []*monitor.OnlineRelay, count int, next string, relay func(*monitor.OnlineRelay) R) liveList[R] {
	l := liveList[R]{
		GeneratedAt:   utc(s.gen.GeneratedAt),
		Generation:    s.gen.Number,
		NewestCheck:   utcOrNull(s.gen.NewestCheck),
		OldestCheck:   utcOrNull(s.gen.OldestCheck),
		MaxAgeSeconds: int64(g.maxAge.Seconds()),
		Usable:        g.fallback == monitor.FallbackNone,
		Fallback:      orNull(string(g.fallback)),
		Held:          s.gen.Held,
		Count:         count,
		Monitored:     s.gen.Monitored,
		Monitor: monitorInfo{
			Name:             s.settings.Name,
			Pubkey:           a.opts.Pubkey,
			Relay:            orNull(s.settings.RelayURL),
			FrequencySeconds: int64(s.settings.Frequency.Seconds()),
			Vantages:         s.gen.Vantages,
		},
		NextCursor: orNull(next),
		Relays:     make([]R, len(relays)),
	}
	for i, r := range relays {
		l.Relays[i] = relay(r)
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

// routeLists registers the lists of the generation.
func (a *API) routeLists() {
	a.routeLive()
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-online", Method: http.MethodGet, Path: "/v1/online", Tags: []string{"Lists"},
		Summary:     "The URLs of the online relays, sorted, as a bare array",
		Description: "Complete or not at all: 503 when the list must not be used.",
		Responses:   listResponses(a.huma, "The online set.", content{"A bare array of URLs.", []string{}}),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable},
	}, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		s := a.current()
		if s.fallback != monitor.FallbackNone {
			return nil, s.notUsable(s.fallback, "the list must not be used now")
		}
		return a.serveList(s, s.whole[formatURLs][0], s.fallback), nil
	})

	places := listResponses(a.huma, "The online relays whose place is known.", "")
	places["200"].Content = map[string]*huma.MediaType{formats[formatCSV].contentType: {Schema: &huma.Schema{
		Type: huma.TypeString, Description: "RFC 4180 with a line of names: " + strings.Join(placeColumns, ", ") + ". Degrees, north and east above 0.",
	}}}
	huma.Register(a.huma, huma.Operation{
		OperationID: "get-georelays", Method: http.MethodGet, Path: "/v1/georelays.csv", Tags: []string{"Lists"},
		Summary: "Where the online relays stand, as CSV",
		Description: "By URL. A relay whose coordinates are not known is left out, and so is one that is reached through a CDN or an anycast address. " +
			"503 when the list must not be used, and when no place is known at all.",
		Responses: places,
		Errors:    []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable},
	}, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		s := a.current()
		if s.fallback != monitor.FallbackNone {
			return nil, s.notUsable(s.fallback, "the list must not be used now")
		}
		if !slices.ContainsFunc(s.online, func(r monitor.OnlineRelay) bool { return r.Located }) {
			p := newProblem(http.StatusServiceUnavailable, "no relay's place is known: this monitor has no database of places (geo.city_db), or has not looked yet")
			p.headers.Set(generationHeader, s.number)
			return nil, p
		}
		return a.serveList(s, s.places, s.fallback), nil
	})

	huma.Register(a.huma, huma.Operation{
		OperationID: "get-offline-set", Method: http.MethodGet, Path: "/v1/offline-set", Tags: []string{"Lists"},
		Summary:   "The monitored relays that are offline or dead, with their causes",
		Responses: listResponses(a.huma, "The relays that are down.", content{"The list with its envelope.", downList{}}),
		Errors:    []int{http.StatusUnprocessableEntity, http.StatusInternalServerError},
	}, func(context.Context, *struct{ strict }) (*huma.StreamResponse, error) {
		s := a.current()
		return a.serveList(s, s.offline, s.fallback), nil
	})
}

// generationHeader tells which generation a list is of.
const generationHeader = "X-Pharos-Generation"

// serveList answers with one list of a shelf.
func (a *API) serveList(s *shelf, b *body, f monitor.Fallback) *huma.StreamResponse {
	return raw(func(w http.ResponseWriter, r *http.Request) { a.writeList(w, r, s, b, f) })
}

// writeList writes it. A usable list may be kept for 10 s: a generation lives
// from 1 s to 60 s.
func (a *API) writeList(w http.ResponseWriter, r *http.Request, s *shelf, b *body, f monitor.Fallback) {
	w.Header().Set(generationHeader, s.number)
	cache := "public, max-age=10"
	if f != monitor.FallbackNone {
		cache = "no-cache"
	}
	a.serveBody(w, r, b, cache)
}

// notUsable is the 503 of a format that cannot carry usable = false.
func (s *shelf) notUsable(f monitor.Fallback, what string) error {
	why := "it is made in a moment"
	switch f {
	case monitor.FallbackNone:
	case monitor.FallbackWarmingUp:
		why = "warming_up: the first full pass over the relays is not over"
	case monitor.FallbackClock:
		why = "clock: the clock of this monitor is wrong"
	case monitor.FallbackStale:
		why = fmt.Sprintf("stale: the newest check is too old, or fewer than %.0f %% of the online relays answered lately", s.settings.MinFresh*100)
	case monitor.FallbackTooFew:
		why = "too_few: there are too few online relays"
	}
	p := newProblem(http.StatusServiceUnavailable, what+" ("+why+"); do not drop relays meanwhile")
	p.headers.Set(generationHeader, s.number)
	return p
}
