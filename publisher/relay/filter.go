package relay

import (
	"errors"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// filter is a NIP-01 filter made ready to be asked many times.
type filter struct {
	ids, authors *set
	kinds        []int // nil = any
	tags         []condition
	since, until int64
	limit        int // -1 = none
	ids0         []string
	d            []string // values of #d; nil = not asked for
}

type condition struct {
	name   byte
	values *set
	never  bool // the name is no letter: nothing can match
}

var (
	errFilter = errors.New("invalid: a filter is not as NIP-01 says")
	errSearch = errors.New("unsupported: search (NIP-50) is not served here")
)

// parseFilter reads one filter object. The error's text is for the client.
func parseFilter(raw []byte) (filter, error) {
	var in nostr.Filter
	if len(raw) == 0 || raw[0] != '{' || in.UnmarshalJSON(raw) != nil || in.Limit < 0 {
		return filter{}, errFilter
	}
	if in.Search != "" {
		return filter{}, errSearch
	}
	f := filter{
		ids: newSet(in.IDs), authors: newSet(in.Authors), kinds: in.Kinds, ids0: in.IDs,
		since: math.MinInt64, until: math.MaxInt64, limit: -1,
	}
	if in.Since != nil {
		f.since = int64(*in.Since)
	}
	if in.Until != nil {
		f.until = int64(*in.Until)
	}
	if in.Limit > 0 || in.LimitZero {
		f.limit = in.Limit
	}
	for name, values := range in.Tags {
		if values == nil {
			continue
		}
		if len(name) != 1 {
			f.tags = append(f.tags, condition{never: true})
			continue
		}
		if name == "d" {
			f.d = values
		}
		f.tags = append(f.tags, condition{name: name[0], values: newSet(values)})
	}
	return f, nil
}

// matches ignores the limit.
func (f *filter) matches(e *event) bool {
	if e.created < f.since || e.created > f.until ||
		(f.kinds != nil && !slices.Contains(f.kinds, e.kind)) ||
		!f.ids.has(e.id) || !f.authors.has(e.pubkey) {
		return false
	}
conditions:
	for i := range f.tags {
		c := &f.tags[i]
		if c.never {
			return false
		}
		for j := range e.tags {
			if e.tags[j].name == c.name && c.values.has(e.tags[j].value) {
				continue conditions
			}
		}
		return false
	}
	return true
}

// set is a set of strings; nil contains everything, an empty one nothing.
type set struct {
	few  []string
	many map[string]struct{} // instead, from many values on
}

func newSet(values []string) *set {
	if values == nil {
		return nil
	}
	if len(values) <= 8 {
		return &set{few: values}
	}
	m := make(map[string]struct{}, len(values))
	for _, v := range values {
		m[v] = struct{}{}
	}
	return &set{many: m}
}

// all walks the values of a set that is not nil.
func (s *set) all(yield func(string) bool) {
	for _, v := range s.few {
		if !yield(v) {
			return
		}
	}
	for v := range s.many {
		if !yield(v) {
			return
		}
	}
}

func (s *set) has(v string) bool {
	if s == nil {
		return true
	}
	if s.many != nil {
		_, ok := s.many[v]
		return ok
	}
	return slices.Contains(s.few, v)
}
