package discovery

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// The memory for each author that there may be; not all by everyone.
const (
	listsPerAuthor = 4
	namesPerAuthor = 50
	urlsPerAuthor  = 5
)

// many lists of one author are found by an index.
const many = 16

// name is one relay of a list: the number of its URL, or, with rejected set, the
// place of the reason and a hash of the text that was no URL.
type name uint32

const (
	rejected    name = 1 << 31
	reasonShift      = 26
	hashMask    name = 1<<reasonShift - 1
)

// head says which event a list came from, and which list it is the newest of.
type head struct {
	pubkey  [32]byte
	kind    uint8  // place in allKinds
	d       uint64 // hash of the d tag, 0 where the kind has none
	created int64
	id      uint64 // the first 8 bytes: what decides between events of one second
	expires int64  // 0 = never
}

// list is what is kept of an event.
type list struct {
	d       uint64
	created int64
	id      uint64
	names   []name
	expires uint32 // seconds since 1970, 0 = never
	round   uint32 // of the latest sweep that saw it
	kind    uint8
}

// replaces reports whether h is newer than l by NIP-01: of two events of one
// second the lower id holds.
func (h *head) replaces(l *list) bool {
	return h.created > l.created || h.created == l.created && h.id < l.id
}

func (h *head) is(l *list) bool { return h.created == l.created && h.id == l.id }

// author is whose lists they are.
type author struct {
	lists []list
	index map[listKey]int // where there are many
}

type listKey struct {
	kind uint8
	d    uint64
}

func (a *author) find(kind uint8, d uint64) *list {
	if a.index != nil {
		if i, ok := a.index[listKey{kind, d}]; ok {
			return &a.lists[i]
		}
		return nil
	}
	for i := range a.lists {
		if l := &a.lists[i]; l.kind == kind && l.d == d {
			return l
		}
	}
	return nil
}

func (a *author) add(l list) {
	a.lists = append(a.lists, l)
	if a.index != nil {
		a.index[listKey{l.kind, l.d}] = len(a.lists) - 1
	} else if len(a.lists) > many {
		a.reindex()
	}
}

func (a *author) reindex() {
	a.index = nil
	if len(a.lists) > many {
		a.index = make(map[listKey]int, len(a.lists))
		for i := range a.lists {
			a.index[listKey{a.lists[i].kind, a.lists[i].d}] = i
		}
	}
}

// lists is the newest list of every author. It is safe for concurrent use, but
// for prune and tally, which come when nothing is read.
type lists struct {
	maxAuthors int
	seed       maphash.Seed

	mu      sync.Mutex
	authors map[[32]byte]*author
	held    int // lists
	names   int
	urls    []monitor.RelayURL
	numbers map[monitor.RelayURL]name
	reasons []string // in the order in which they were met
	// full is the latest sweep in which something was not taken for want of
	// room; 0 = none was.
	full uint32
}

func newLists(maxAuthors int) *lists {
	return &lists{
		maxAuthors: maxAuthors, seed: maphash.MakeSeed(),
		authors: map[[32]byte]*author{}, numbers: map[monitor.RelayURL]name{},
	}
}

// hash is that of text; it differs from one process to the next, so that nobody
// can make two of them meet.
func (ls *lists) hash(text string) uint64 { return maphash.String(ls.seed, text) }

// standing is what an event is to the lists that are held.
type standing uint8

const (
	wanted standing = iota
	same            // it is the newest that is held
	older           // than the one that is held
	noRoom          // for another author
)

// standing tells what an event is, before its signature is looked at; that it is
// the same notes that a source still has it.
func (ls *lists) standing(h *head, round uint32) standing {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.judge(h, round)
}

func (ls *lists) judge(h *head, round uint32) standing {
	a := ls.authors[h.pubkey]
	if a == nil {
		if len(ls.authors) >= ls.maxAuthors {
			ls.full = round
			return noRoom
		}
		return wanted
	}
	switch l := a.find(h.kind, h.d); {
	case l == nil || h.replaces(l):
		return wanted
	case h.is(l):
		l.round = round
		return same
	}
	return older
}

// put takes over what an event names, and reports what it was; "" where it is
// held now, otherwise the word of Sweep.Ignored.
func (ls *lists) put(h *head, round uint32, texts []string, allow []netip.Prefix) (ignored string) {
	type judged struct {
		url    monitor.RelayURL
		reason string
	}
	parsed := make([]judged, len(texts))
	for i, t := range texts {
		u, err := monitor.ParseRelayURL(t, allow...)
		parsed[i].url = u
		if broken := (*monitor.URLError)(nil); errors.As(err, &broken) {
			parsed[i].reason = broken.Reason
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch ls.judge(h, round) { // another source may have had it meanwhile
	case same:
		return ""
	case older:
		return ignoredOlder
	case noRoom:
		return ignoredAuthors
	}
	names := make([]name, 0, len(texts))
	for i, p := range parsed {
		if p.reason != "" {
			names = append(names, ls.reject(p.reason, texts[i]))
			continue
		}
		n, ok := ls.number(p.url)
		if !ok {
			ls.full = round
			return ignoredRoom
		}
		names = append(names, n)
	}
	slices.Sort(names)
	names = slices.Clip(slices.Compact(names))

	a := ls.authors[h.pubkey]
	var l *list
	if a != nil {
		l = a.find(h.kind, h.d)
	}
	switch {
	case l == nil && ls.held >= listsPerAuthor*ls.maxAuthors:
		ls.full = round
		return ignoredRoom
	case ls.names+len(names) > namesPerAuthor*ls.maxAuthors:
		ls.full = round
		return ignoredRoom
	}
	if a == nil {
		a = new(author)
		ls.authors[h.pubkey] = a
	}
	ls.names += len(names)
	fresh := list{d: h.d, created: h.created, id: h.id, names: names, round: round, kind: h.kind}
	if h.expires > 0 && h.expires <= math.MaxUint32 {
		fresh.expires = uint32(h.expires)
	}
	if l != nil {
		ls.names -= len(l.names)
		*l = fresh
		return ""
	}
	ls.held++
	a.add(fresh)
	return ""
}

// number is that of a URL, a new one if there is room.
func (ls *lists) number(u monitor.RelayURL) (name, bool) {
	n, ok := ls.numbers[u]
	if !ok {
		if len(ls.urls) >= urlsPerAuthor*ls.maxAuthors {
			return 0, false
		}
		n = name(len(ls.urls))
		ls.urls = append(ls.urls, u)
		ls.numbers[u] = n
	}
	return n, true
}

func (ls *lists) reject(reason, text string) name {
	i := slices.Index(ls.reasons, reason)
	if i < 0 {
		i = len(ls.reasons)
		ls.reasons = append(ls.reasons, reason) // relay-url.md has 15, 32 fit
	}
	return rejected | name(i)<<reasonShift | name(ls.hash(text))&hashMask
}

func (ls *lists) reason(n name) string { return ls.reasons[(n&^rejected)>>reasonShift] }

// prune drops the lists that have expired, and those that no sweep from round
// oldest on has seen.
func (ls *lists) prune(oldest uint32, now time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, a := range ls.authors {
		before := len(a.lists)
		a.lists = slices.DeleteFunc(a.lists, func(l list) bool {
			gone := l.round < oldest || l.expires > 0 && int64(l.expires) <= now.Unix()
			if gone {
				ls.names -= len(l.names)
				ls.held--
			}
			return gone
		})
		switch {
		case len(a.lists) == 0:
			delete(ls.authors, key)
		case len(a.lists) != before:
			a.reindex()
		}
	}
	ls.compact()
}

// compact forgets the URLs that no list names any longer, when they are many.
func (ls *lists) compact() {
	used := make([]bool, len(ls.urls))
	count := 0
	for _, a := range ls.authors {
		for i := range a.lists {
			for _, n := range a.lists[i].names {
				if n&rejected == 0 && !used[n] {
					used[n] = true
					count++
				}
			}
		}
	}
	if len(ls.urls) < 2*count || len(ls.urls) == count {
		return
	}
	to := make([]name, len(ls.urls))
	urls := make([]monitor.RelayURL, 0, count)
	numbers := make(map[monitor.RelayURL]name, count)
	for n, u := range ls.urls {
		if used[n] {
			to[n] = name(len(urls))
			numbers[u] = to[n]
			urls = append(urls, u)
		}
	}
	for _, a := range ls.authors {
		for i := range a.lists {
			for j, n := range a.lists[i].names {
				if n&rejected == 0 {
					a.lists[i].names[j] = to[n]
				}
			}
		}
	}
	ls.urls, ls.numbers = urls, numbers
}

// tally fills in what the lists come to: Found, Authors and Rejected.
func (ls *lists) tally(s *monitor.Sweep) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	type naming struct {
		authors, last uint32
		kinds         uint8
	}
	byURL := make([]naming, len(ls.urls))
	s.Rejected = map[string]int{}
	seen := map[name]bool{} // what the author has that is no URL
	found, ordinal := 0, uint32(0)
	for _, a := range ls.authors {
		ordinal++
		clear(seen)
		names := false
		for i := range a.lists {
			for _, n := range a.lists[i].names {
				if n&rejected != 0 {
					seen[n] = true
					continue
				}
				names = true
				u := &byURL[n]
				if u.kinds == 0 {
					found++
				}
				u.kinds |= 1 << a.lists[i].kind
				if u.last != ordinal {
					u.last = ordinal
					u.authors++
				}
			}
		}
		for n := range maps.Keys(seen) {
			s.Rejected[ls.reason(n)]++
		}
		if names {
			s.Authors++
		}
	}
	s.Found = make([]monitor.FoundRelay, 0, found)
	for n, u := range byURL {
		if u.kinds == 0 {
			continue
		}
		s.Found = append(s.Found, monitor.FoundRelay{URL: ls.urls[n], Kinds: kindsOf(u.kinds), Authors: int(u.authors)})
	}
	slices.SortFunc(s.Found, func(a, b monitor.FoundRelay) int {
		switch {
		case a.URL < b.URL:
			return -1
		case a.URL > b.URL:
			return 1
		}
		return 0
	})
}

func kindsOf(bits uint8) []int {
	var kinds []int
	for i, k := range allKinds {
		if bits&(1<<i) != 0 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// hex32 reads 64 hex digits in lower case.
func hex32(s string) (b [32]byte, ok bool) {
	if len(s) != 64 {
		return b, false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return b, false
		}
	}
	_, err := hex.Decode(b[:], []byte(s))
	return b, err == nil
}

func prefix8(b [32]byte) uint64 { return binary.BigEndian.Uint64(b[:8]) }
