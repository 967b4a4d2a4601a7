package engine

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	aliasesEvery = time.Minute      // at most so often, where something has changed
	aliasesLapse = 10 * time.Minute // at least so often: evidence gets old
	// maxAliasesTold are told of one relay; a wildcard name may have any number.
	maxAliasesTold = 100
)

// aliases are the watched URLs that are one relay by evidence (relay-url.md,
// Many URLs, one relay): the same NIP-11 document and, on the same day, the same
// reply, at one host or under one pubkey. They are told, and change no list.
type aliases struct {
	groups map[monitor.RelayURL][]monitor.RelayURL // by each member: all of them, the one that stands for them first
	count  int                                     // URLs that another one stands for
	made   time.Time
	stale  bool
}

// of returns the other URLs that are the relay at u, at most maxAliasesTold of
// them, and the one that stands for it, "" = u itself.
func (a *aliases) of(u monitor.RelayURL) (others []monitor.RelayURL, of monitor.RelayURL) {
	group := a.groups[u]
	if len(group) == 0 {
		return nil, ""
	}
	others = slices.DeleteFunc(slices.Clone(group[:min(len(group), maxAliasesTold+1)]), func(m monitor.RelayURL) bool { return m == u })
	others = others[:min(len(others), maxAliasesTold)]
	if group[0] != u {
		of = group[0]
	}
	return others, of
}

// evidence is what two URLs of one relay have in common. host is empty where the
// document names a pubkey.
type evidence struct {
	document uint64
	day      uint32
	sample   string
	host     string
}

// seekAliases finds the aliases anew where that is due. Its caller holds mu.
func (e *Engine) seekAliases(now time.Time) {
	a := &e.aliases
	if age := now.Sub(a.made); age >= 0 && age < aliasesEvery || age < aliasesLapse && !a.stale {
		return
	}
	*a = aliases{made: now}
	seed := maphash.MakeSeed()
	first := map[evidence]*relay{}
	parents := map[*relay]*relay{} // of those that are not alone; a root is its own
	for _, r := range e.relays {
		if r.facts == nil || r.facts.tested == nil || r.Info == nil || len(r.Info.Raw) == 0 {
			continue
		}
		days, samples := r.facts.tested.Samples(now)
		key := evidence{}
		for i := range samples {
			if samples[i] == "" {
				break
			}
			if i == 0 {
				key.document = maphash.Bytes(seed, r.Info.Raw)
				if r.Info.Pubkey == "" {
					key.host = r.URL.Host()
				}
			}
			key.day, key.sample = days[i], samples[i]
			switch other := first[key]; {
			case other == nil:
				first[key] = r
			case bytes.Equal(other.Info.Raw, r.Info.Raw):
				unite(parents, other, r)
			}
		}
	}
	if len(parents) == 0 {
		return
	}
	byRoot := map[*relay][]monitor.RelayURL{}
	for r := range parents {
		root := rootOf(parents, r)
		byRoot[root] = append(byRoot[root], r.URL)
	}
	a.groups = make(map[monitor.RelayURL][]monitor.RelayURL, len(parents))
	for _, group := range byRoot {
		slices.SortFunc(group, standsBefore)
		for _, u := range group {
			a.groups[u] = group
		}
		a.count += len(group) - 1
	}
}

// rootOf is the relay that a group is known by while it is put together.
func rootOf(parents map[*relay]*relay, r *relay) *relay {
	for parents[r] != r {
		parents[r] = parents[parents[r]]
		r = parents[r]
	}
	return r
}

func unite(parents map[*relay]*relay, a, b *relay) {
	for _, r := range []*relay{a, b} {
		if parents[r] == nil {
			parents[r] = r
		}
	}
	parents[rootOf(parents, b)] = rootOf(parents, a)
}

// standsBefore orders URLs of one relay: the first stands for it. No path before
// a path, wss before ws, shorter, then by the alphabet.
func standsBefore(a, b monitor.RelayURL) int {
	weight := func(u monitor.RelayURL) int {
		n := 0
		if _, path, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(string(u), "wss://"), "ws://"), "/"); path != "" {
			n += 2
		}
		if !u.TLS() {
			n++
		}
		return n
	}
	return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
