package world_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// expectation is one line of a scenario's expect section:
//
//	10m        r01..r05 offline 3/3 a=dead   at that moment
//	10m..12m   r01 offline                   at some moment of that time
//	10m..1h    always r01 online             all that time
//	12m..20m   probes a r01 0                counted over it
//
// The subject is relays, "list", "vantage NAME" or "probes VANTAGE RELAYS"; the
// words after it must all hold at once.
type expectation struct {
	line
	from, to time.Duration
	always   bool
	relays   []*relaySpec
	vantage  string
	list     bool
	counted  bool // of probes
	words    []string
	best     string // what was seen when the fewest words failed
	failures int
}

func (s *scenario) expectation(l line, words []string) (*expectation, error) {
	e := &expectation{line: l, failures: 1 << 30}
	from, to, long := strings.Cut(words[0], "..")
	var err error
	if e.from, err = time.ParseDuration(from); err != nil {
		return nil, l.errorf("want a time: %v", err)
	}
	e.to = e.from
	if long {
		if e.to, err = time.ParseDuration(to); err != nil || e.to <= e.from {
			return nil, l.errorf("want a span of time, as 10m..12m")
		}
	}
	words = words[1:]
	if words[0] == "always" {
		e.always, words = true, words[1:]
	}
	if len(words) < 2 {
		return nil, l.errorf("want what is expected of whom")
	}
	switch words[0] {
	case "list":
		e.list, e.words = true, words[1:]
		return e, nil
	case "vantage", "probes":
		if s.vantage(words[1]) == nil || len(words) < 3 {
			return nil, l.errorf("want a vantage and what is expected of it")
		}
		e.vantage, e.words = words[1], words[2:]
		if words[0] == "probes" {
			e.counted, e.words = true, words[3:]
			e.relays, err = s.named(l, words[2])
		}
		return e, err
	}
	e.words = words[1:]
	e.relays, err = s.named(l, words[0])
	return e, err
}

// next is when to look again after now.
func (e *expectation) next(now time.Duration) time.Duration {
	switch {
	case e.counted:
		return e.to
	case now < e.from:
		return e.from
	}
	// What holds all the time is looked at 200 times: a verdict's changes show in
	// its path all the same.
	step := time.Second
	if e.always {
		step = max(step, (e.to-e.from)/200)
	}
	return min(now.Truncate(time.Second)+step, e.to)
}

// look checks the expectation at now and reports whether that settles it.
func (e *expectation) look(st *stage, now time.Duration) bool {
	if e.counted && now < e.to {
		return false
	}
	var failed []string
	var seen string
	switch {
	case e.counted:
		failed, seen = e.lookAtProbes(st)
	case e.list:
		failed, seen = e.lookAtList(st)
	case e.vantage != "":
		failed, seen = e.lookAtVantage(st)
	default:
		for _, r := range e.relays {
			f, s := e.lookAtRelay(st, r)
			if len(f) > 0 {
				failed, seen = append(failed, f...), seen+"\n\t"+s
			}
		}
	}
	if len(failed) > 0 && len(failed) < e.failures {
		e.failures = len(failed)
		e.best = fmt.Sprintf("not %s at %v: %s", strings.Join(failed, ", "), now.Round(time.Millisecond), seen)
	}
	switch {
	case len(failed) == 0 && !e.always:
		return true
	case len(failed) > 0 && (e.always || now >= e.to):
		st.t.Errorf("line %d: %s\n%s", e.number, e.text, e.best)
		return true
	}
	return now >= e.to
}

// lookAtRelay checks the words on one relay; it returns those that do not hold,
// and what was seen.
func (e *expectation) lookAtRelay(st *stage, r *relaySpec) (failed []string, seen string) {
	eng := st.engine.Load()
	if eng == nil {
		return []string{"running"}, "the core is away"
	}
	view := eng.RelayView(r.url)
	v := &view.Verdict
	g := eng.Generation()
	published := false
	for i := range g.Online {
		published = published || g.Online[i].URL == r.url && g.Online[i].Report != nil
	}
	var path []string
	var last monitor.Transition
	for _, m := range st.store.transitions(r.url) {
		if m.At.After(st.zero) {
			path = append(path, m.To.String())
			last = m
		}
	}
	votes := map[string]string{}
	var ballots []string
	for _, b := range view.Ballots {
		text := b.Vote.String()
		if b.Unconfirmed {
			text += "?"
		}
		if !b.Eligible {
			text = "(" + text + ")"
		}
		votes[b.Vantage] = text
		ballots = append(ballots, fmt.Sprintf("%s=%s[%d]", b.Vantage, text, b.FailureCount))
	}
	for _, w := range e.words {
		ok := false
		name, value, pair := strings.Cut(w, "=")
		switch {
		case name == "changes<": // changes<=8
			most, err := strconv.Atoi(value)
			ok = err == nil && len(path) <= most
		case name == "took<": // took<=100s: the last move, since the first probe that could know
			most, err := time.ParseDuration(value)
			took := st.took(r, last.At.Sub(st.zero))
			ok = err == nil && took > 0 && took <= most
		case w == "published":
			ok = published
		case w == "unpublished": // and it never was since zero, or was taken back
			ok = !published
		case w == "withdrawn":
			ok = !published && st.store.withdrawals(r.url) > 0
		case w == "unwatched":
			ok = !view.Monitored
		case w == "candidate":
			ok = view.Candidate
		case w == "plain":
			ok = v.Marks == 0
		case w[0] == '+':
			ok = strings.Contains(","+v.Marks.String()+",", ","+w[1:]+",")
		case w[0] == '-':
			ok = !strings.Contains(","+v.Marks.String()+",", ","+w[1:]+",")
		case w[0] == '!':
			ok = v.State.String() != w[1:]
		case pair && strings.HasSuffix(name, "!"): // a!=suspect
			ok = strings.Trim(votes[name[:len(name)-1]], "()?") != value
		case pair && name == "path":
			ok = strings.Join(path, ",") == value
		case pair && name == "by":
			ok = last.Quorum.String() == value
		case pair && name == "cause":
			ok = v.Cause.String() == value
		case pair && name == "reason":
			ok = strings.Contains(v.Reason, strings.ReplaceAll(value, "_", " "))
		case pair:
			ok = votes[name] == value
		case strings.Contains(w, "/"):
			ok = v.Quorum.String() == w
		default:
			ok = v.State.String() == w
		}
		if !ok {
			failed = append(failed, w)
		}
	}
	if len(failed) == 0 {
		return nil, ""
	}
	since := "never decided"
	if !v.Since.IsZero() {
		since = fmt.Sprintf("since %v", v.Since.Sub(st.zero).Round(time.Second))
	}
	took := st.took(r, last.At.Sub(st.zero)).Round(time.Millisecond)
	seen = fmt.Sprintf("%s %s %s [%s] %s, %s, path=%s by=%s took=%v published=%v withdrawn=%d — %s",
		r.name, v.State, v.Quorum, v.Marks, strings.Join(ballots, " "), since, strings.Join(path, ","), last.Quorum, took, published, st.store.withdrawals(r.url), v.Reason)
	return failed, seen
}

// took is how long before moved the first probe of r by any vantage was that
// could know of the change that led to it: 0 = there is none.
func (st *stage) took(r *relaySpec, moved time.Duration) time.Duration {
	change := st.truth[r.name].at(moved)
	if change == nil {
		return 0
	}
	first := moved
	for _, m := range st.machines {
		m.mu.Lock()
		for _, p := range m.probes {
			if p.relay == r && p.at >= change.at {
				first = min(first, p.at)
			}
		}
		m.mu.Unlock()
	}
	return moved - first
}

// lookAtList checks the list: how many relays it has and may be used, or why
// not; "held=N".
func (e *expectation) lookAtList(st *stage) (failed []string, seen string) {
	eng := st.engine.Load()
	if eng == nil {
		return []string{"running"}, "the core is away"
	}
	g := eng.Generation()
	use := string(g.Fallback)
	if g.Usable() {
		use = "usable"
	}
	for _, w := range e.words {
		held, ok := strings.CutPrefix(w, "held=")
		if ok && held == fmt.Sprint(g.Held) || w == use || w == fmt.Sprint(len(g.Online)) {
			continue
		}
		failed = append(failed, w)
	}
	return failed, fmt.Sprintf("%s, %d relays, held=%d", use, len(g.Online), g.Held)
}

// lookAtVantage checks what the core knows of a vantage: eligible or not, its
// impairments, and its skew in whole minutes.
func (e *expectation) lookAtVantage(st *stage) (failed []string, seen string) {
	eng := st.engine.Load()
	if eng == nil {
		return []string{"running"}, "the core is away"
	}
	for _, v := range eng.Status().Vantages {
		if v.Name != e.vantage {
			continue
		}
		eligible := "ineligible"
		if st.cfg.Corroboration.VantageEligible(&v, time.Now()) {
			eligible = "eligible"
		}
		words := map[string]bool{eligible: true, fmt.Sprintf("skew=%v", v.Skew.Round(time.Minute)): true}
		for _, i := range v.Health.Impairments {
			words[string(i)] = true
		}
		for _, w := range e.words {
			if !words[w] {
				failed = append(failed, w)
			}
		}
		return failed, fmt.Sprintf("%s, impairments %v, skew %v", eligible, v.Health.Impairments, v.Skew)
	}
	return e.words, "the core does not know it"
}

// lookAtProbes counts probes: "4", "<=4" or ">=4".
func (e *expectation) lookAtProbes(st *stage) (failed []string, seen string) {
	for _, m := range st.machines {
		if m.name != e.vantage {
			continue
		}
		got := m.between(e.relays, e.from, e.to)
		for _, w := range e.words {
			var want int
			ok := false
			switch _, err := fmt.Sscan(strings.TrimLeft(w, "<>="), &want); {
			case err != nil:
			case strings.HasPrefix(w, "<="):
				ok = got <= want
			case strings.HasPrefix(w, ">="):
				ok = got >= want
			default:
				ok = got == want
			}
			if !ok {
				failed = append(failed, w)
			}
		}
		seen = fmt.Sprintf("%d probes", got)
	}
	return failed, seen
}
