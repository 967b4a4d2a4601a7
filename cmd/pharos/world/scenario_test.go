package world_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// scenario is one file of testdata. Its times count from the moment when all has
// settled: by default five intervals after the first start.
type scenario struct {
	about    string
	interval time.Duration
	settle   time.Duration
	maxAge   time.Duration
	vantages []*vantageSpec
	relays   []*relaySpec
	// truth is what becomes of a relay, by its name; sights what one vantage
	// sees instead, by "vantage relay" or "vantage *".
	truth, sights map[string]timeline
	core          []moment
	expectations  []*expectation
}

type vantageSpec struct {
	name, group string
	networks    []monitor.Network
	noIPv6      bool
	local       bool // in the core's process: it has the core's clock, and ends with it
	late        bool // not enrolled before the scenario says so
	// What happens to it: "lost" and "back" of the network, the resolver and the
	// core; "frozen" and "thawed"; how far its clock is off; "missing" and
	// "there" of the CA roots.
	network, resolver, core, freeze, clock, roots timeline
}

type relaySpec struct {
	name      string
	url       monitor.RelayURL
	addr      netip.Addr
	ipv6      bool
	candidate bool
}

// moment is something that happens once.
type moment struct {
	line
	at   time.Duration
	word string
	rest []string
}

// timeline tells which word holds when: each until the next.
type timeline []moment

func (tl timeline) at(t time.Duration) *moment {
	var m *moment
	for i := range tl {
		if tl[i].at <= t {
			m = &tl[i]
		}
	}
	return m
}

// is reports whether the word that holds at t is w.
func (tl timeline) is(w string, t time.Duration) bool {
	m := tl.at(t)
	return m != nil && m.word == w
}

// after is when the word that holds at t ends; zero = it does not.
func (tl timeline) after(t time.Duration) time.Duration {
	for i := range tl {
		if tl[i].at > t {
			return tl[i].at
		}
	}
	return 0
}

func parseScenario(text string) (*scenario, error) {
	about, sections := parseArchive(text)
	s := &scenario{about: about, interval: time.Minute, settle: -1, maxAge: 4 * time.Hour, truth: map[string]timeline{}, sights: map[string]timeline{}}
	if len(sections) == 0 || sections[0].name != "world" {
		return nil, fmt.Errorf("the first section is not world")
	}
	for _, sec := range sections {
		for _, l := range sec.lines {
			if err := s.add(sec.name, l); err != nil {
				return nil, fmt.Errorf("section %s: %w", sec.name, err)
			}
		}
	}
	if s.settle < 0 {
		s.settle = 5 * s.interval
	}
	if len(s.vantages) == 0 || len(s.relays) == 0 || len(s.expectations) == 0 {
		return nil, fmt.Errorf("a scenario needs vantages, relays and expectations")
	}
	return s, nil
}

func (s *scenario) add(section string, l line) error {
	words := strings.Fields(l.text)
	if section == "world" {
		return s.declare(l, words)
	}
	if section == "expect" {
		e, err := s.expectation(l, words)
		if err == nil {
			s.expectations = append(s.expectations, e)
		}
		return err
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || len(words) < 2 {
		return l.errorf("want a time and what happens then")
	}
	m := moment{line: l, at: at, word: words[1], rest: words[2:]}
	who := strings.Fields(section)
	v := s.vantage(who[0])
	switch {
	case section == "core":
		s.core = append(s.core, m)
		return nil
	case v != nil && len(who) == 1:
		return s.happens(v, m)
	case v != nil:
		if who[1] == "*" {
			return s.sees(s.sights, v.name+" *", m)
		}
		return s.each(l, who[1], func(r *relaySpec) error { return s.sees(s.sights, v.name+" "+r.name, m) })
	}
	return s.each(l, section, func(r *relaySpec) error { return s.sees(s.truth, r.name, m) })
}

// sees appends to the timeline of what is seen of a relay.
func (s *scenario) sees(of map[string]timeline, key string, m moment) error {
	if _, ok := sights[m.word]; !ok && m.word != "flaps" && m.word != "as" {
		return m.errorf("%q is nothing that a probe can come to", m.word)
	}
	return s.append(of, key, m)
}

func (s *scenario) append(of map[string]timeline, key string, m moment) error {
	tl := of[key]
	if len(tl) > 0 && tl[len(tl)-1].at >= m.at {
		return m.errorf("times must ascend")
	}
	of[key] = append(tl, m)
	return nil
}

// happens appends to one of a vantage's own timelines.
func (s *scenario) happens(v *vantageSpec, m moment) error {
	for _, k := range []struct {
		name  string
		of    *timeline
		words []string
	}{
		{"network", &v.network, []string{"lost", "back"}},
		{"resolver", &v.resolver, []string{"lost", "back"}},
		{"core", &v.core, []string{"lost", "back"}},
		{"roots", &v.roots, []string{"missing", "there"}},
		{"clock", &v.clock, nil},
		{"frozen", &v.freeze, nil},
		{"thawed", &v.freeze, nil},
	} {
		if m.word != k.name {
			continue
		}
		if len(m.rest) > 0 {
			m.word = m.rest[0]
		}
		if k.words != nil && !slices.Contains(k.words, m.word) {
			return m.errorf("want one of %v", k.words)
		}
		if _, err := time.ParseDuration(m.word); k.name == "clock" && err != nil {
			return m.errorf("want how far the clock is off, as +10m")
		}
		if n := len(*k.of); n > 0 && (*k.of)[n-1].at >= m.at {
			return m.errorf("times must ascend")
		}
		*k.of = append(*k.of, m)
		return nil
	}
	return m.errorf("nothing of that kind happens to a vantage")
}

func (s *scenario) declare(l line, words []string) (err error) {
	switch words[0] {
	case "interval":
		s.interval, err = time.ParseDuration(words[1])
	case "settle":
		s.settle, err = time.ParseDuration(words[1])
	case "max_age": // live.max_age
		s.maxAge, err = time.ParseDuration(words[1])
	case "vantages":
		for _, name := range words[1:] {
			s.vantages = append(s.vantages, &vantageSpec{name: name, group: name, networks: []monitor.Network{monitor.Clearnet}})
		}
	case "vantage":
		v := &vantageSpec{name: words[1], group: words[1], networks: []monitor.Network{monitor.Clearnet}}
		for _, w := range words[2:] {
			switch group, isGroup := strings.CutPrefix(w, "group="); {
			case isGroup:
				v.group = group
			case w == "tor":
				v.networks = append(v.networks, monitor.Tor)
			case w == "noipv6":
				v.noIPv6 = true
			case w == "local":
				v.local = true
			case w == "late":
				v.late = true
			default:
				return l.errorf("a vantage is not %q", w)
			}
		}
		s.vantages = append(s.vantages, v)
	case "relays":
		return s.addRelays(l, words[1:])
	default:
		return l.errorf("the world has no %q", words[0])
	}
	if err != nil {
		return l.errorf("%v", err)
	}
	return nil
}

// addRelays declares r01..r20 or a single name, with what is special of them.
func (s *scenario) addRelays(l line, words []string) error {
	names, err := spelled(words[0])
	if err != nil {
		return l.errorf("%v", err)
	}
	provider := 0
	for _, name := range names {
		n := len(s.relays) + 1
		r := &relaySpec{name: name, url: monitor.RelayURL("wss://" + name + ".example.com/"), addr: netip.AddrFrom4([4]byte{100, byte(n / 250), byte(n % 250), 1})}
		for _, w := range words[1:] {
			switch w {
			case "provider": // all of them in one network
				if provider == 0 {
					provider = n
				}
				r.addr = netip.AddrFrom4([4]byte{101, byte(provider), 1, byte(1 + n%250)})
			case "ipv6":
				r.ipv6 = true
				r.addr = netip.AddrFrom16([16]byte{0x20, 0x01, 0x48, 0x60, byte(n >> 8), byte(n), 15: 1})
			case "tor":
				r.url = monitor.RelayURL("ws://" + strings.Repeat("a", 56-len(name)) + name + ".onion/")
				r.addr = netip.Addr{}
			case "candidate":
				r.candidate = true
			default:
				return l.errorf("a relay is not %q", w)
			}
		}
		s.relays = append(s.relays, r)
	}
	return nil
}

// spelled spells out r01..r20.
func spelled(text string) ([]string, error) {
	first, last, ok := strings.Cut(text, "..")
	if !ok {
		return []string{text}, nil
	}
	prefix := strings.TrimRight(first, "0123456789")
	end, ok := strings.CutPrefix(last, prefix)
	from, err := strconv.Atoi(first[len(prefix):])
	to, err2 := strconv.Atoi(end)
	if err != nil || err2 != nil || !ok || to < from {
		return nil, fmt.Errorf("%q is no span of names", text)
	}
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s%0*d", prefix, len(first)-len(prefix), i))
	}
	return out, nil
}

func (s *scenario) vantage(name string) *vantageSpec {
	for _, v := range s.vantages {
		if v.name == name {
			return v
		}
	}
	return nil
}

func (s *scenario) relay(name string) *relaySpec {
	for _, r := range s.relays {
		if r.name == name {
			return r
		}
	}
	return nil
}

func (s *scenario) byURL(u monitor.RelayURL) *relaySpec {
	for _, r := range s.relays {
		if r.url == u {
			return r
		}
	}
	return nil
}

func (s *scenario) each(l line, names string, f func(*relaySpec) error) error {
	list, err := s.named(l, names)
	for _, r := range list {
		if err := f(r); err != nil {
			return err
		}
	}
	return err
}

// named finds the relays of "r01", "r01..r05", "r01,r03" or "all".
func (s *scenario) named(l line, names string) ([]*relaySpec, error) {
	if names == "all" {
		return s.relays, nil
	}
	var out []*relaySpec
	for part := range strings.SplitSeq(names, ",") {
		list, err := spelled(part)
		if err != nil {
			return nil, l.errorf("%v", err)
		}
		for _, name := range list {
			r := s.relay(name)
			if r == nil {
				return nil, l.errorf("there is no relay %q", name)
			}
			out = append(out, r)
		}
	}
	return out, nil
}
