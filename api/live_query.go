package api

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

// liveQuery is what one request asks of the live list, in one spelling: equal
// requests are equal queries.
type liveQuery struct {
	format   format
	urlsOnly bool

	network               monitor.Network // "" = all
	nips                  []int           // ascending, each once; all must hold
	country               string          // upper case, "" = all
	auth, payment, writes choice
	maxRTTOpen            int // ms, 0 = any
	minVantages           int // 0 = any

	byRTT  bool
	limit  int // 0 = all
	cursor cursor
}

// choice is a filter on something that is true or false.
type choice uint8

const (
	either choice = iota
	only
	without
)

func choose(b optionBool) choice {
	switch {
	case !b.set:
		return either
	case b.value:
		return only
	}
	return without
}

func (c choice) allows(v bool) bool { return c == either || v == (c == only) }

// bound names all that a cursor depends on: filters and sort.
func (q *liveQuery) bound() string {
	var b strings.Builder
	b.WriteString("live|" + string(q.network) + "|" + q.country)
	for _, n := range append([]int{int(q.auth), int(q.payment), int(q.writes), q.maxRTTOpen, q.minVantages}, q.nips...) {
		b.WriteString("|" + strconv.Itoa(n))
	}
	if q.byRTT {
		b.WriteString("|rtt_open")
	}
	return b.String()
}

// key names the view: equal keys, equal content in a generation. Told is what
// its envelope says besides the list.
func (q *liveQuery) key(told string) string {
	return formats[q.format].name + "|" + strconv.FormatBool(q.urlsOnly) + "|" + strconv.Itoa(q.limit) + "|" +
		strconv.FormatUint(q.cursor.rank, 10) + "|" + q.cursor.url + "|" + told + "|" + q.bound()
}

// whole reports whether it asks for the list as it is.
func (q *liveQuery) whole() bool {
	return q.limit == 0 && q.cursor == cursor{} && q.bound() == wholeList
}

var wholeList = new(liveQuery).bound()

func (q *liveQuery) match(r *monitor.OnlineRelay) bool {
	return (q.network == "" || r.Network == q.network) &&
		(q.country == "" || r.Country == q.country) &&
		q.auth.allows(r.Auth) && q.payment.allows(r.Payment) && q.writes.allows(r.Writes) &&
		(q.maxRTTOpen == 0 || r.RTTOpenMS > 0 && r.RTTOpenMS <= q.maxRTTOpen) &&
		r.VantagesUp >= q.minVantages &&
		!slices.ContainsFunc(q.nips, func(n int) bool { return !slices.Contains(r.NIPs, n) })
}

// place is where a relay stands in the order of the query: a relay whose round
// trip was not measured comes last.
func (q *liveQuery) place(r *monitor.OnlineRelay) cursor {
	c := cursor{url: string(r.URL)}
	if q.byRTT {
		c.rank = math.MaxUint32
		if r.RTTOpenMS > 0 {
			c.rank = uint64(r.RTTOpenMS)
		}
	}
	return c
}

func (c cursor) compare(d cursor) int {
	return cmp.Or(cmp.Compare(c.rank, d.rank), cmp.Compare(c.url, d.url))
}

// apply takes one page out of online, which is sorted by URL. Count is how
// many match on all pages; next is "" on the last one.
func (q *liveQuery) apply(online []monitor.OnlineRelay) (relays []*monitor.OnlineRelay, count int, next string) {
	for i := range online {
		if q.match(&online[i]) {
			relays = append(relays, &online[i])
		}
	}
	count = len(relays)
	if q.byRTT {
		slices.SortFunc(relays, func(a, b *monitor.OnlineRelay) int { return q.place(a).compare(q.place(b)) })
	}
	if q.cursor.url != "" {
		from, exact := slices.BinarySearchFunc(relays, q.cursor, func(r *monitor.OnlineRelay, c cursor) int { return q.place(r).compare(c) })
		if exact {
			from++
		}
		relays = relays[from:]
	}
	if q.limit > 0 && len(relays) > q.limit {
		relays = relays[:q.limit]
		next = q.place(relays[q.limit-1]).encode(q.bound())
	}
	return relays, count, next
}
