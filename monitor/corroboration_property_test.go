package monitor_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pharos-nostr/pharos/monitor"
)

// thoroughly is rapid.Check with twenty times as many cases: what these
// properties guard against hides in rare constellations. A number given on the
// command line stands.
func thoroughly(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("2000"); err != nil {
			t.Fatal(err)
		}
		defer f.Value.Set(f.DefValue) //nolint:errcheck // its own default fits
	}
	rapid.Check(t, property)
}

// drawAgo draws a moment up to most before day0, often a small or round one.
func drawAgo(t *rapid.T, label string, most time.Duration) time.Time {
	s := rapid.OneOf(
		rapid.Int64Range(0, 120),
		rapid.SampledFrom([]int64{30, 60, 300, 750, 751, 3600, 4 * 3600}),
		rapid.Int64Range(0, int64(most/time.Second)),
	).Draw(t, label)
	return day0.Add(-min(time.Duration(s)*time.Second, most))
}

func drawAgoOrZero(t *rapid.T, label string, most time.Duration) time.Time {
	if rapid.Bool().Draw(t, label+" is set") {
		return drawAgo(t, label, most)
	}
	return time.Time{}
}

// drawRecord draws any record, sensible or not.
func drawRecord(t *rapid.T, label string) monitor.Record {
	const month = 30 * 24 * time.Hour
	r := monitor.Record{
		State:        monitor.State(rapid.IntRange(0, 3).Draw(t, label+" state")),
		FailureCount: rapid.IntRange(0, 12).Draw(t, label+" failures"),
		FirstFailure: drawAgoOrZero(t, label+" first failure", month),
		LastFailure:  drawAgoOrZero(t, label+" last failure", month),
		LastSuccess:  drawAgoOrZero(t, label+" last success", month),
		Corroborated: rapid.Bool().Draw(t, label+" corroborated"),
		OnlineSince:  drawAgoOrZero(t, label+" online since", month),
	}
	if rapid.Bool().Draw(t, label+" cools down") {
		r.BackoffUntil = day0.Add(time.Duration(rapid.Int64Range(-600, 3600).Draw(t, label+" cooldown")) * time.Second)
	}
	return r
}

// drawSeen draws what a vantage may have seen of a relay: of a kind, or
// anything at all.
func drawSeen(t *rapid.T, label string, kinds ...string) monitor.VantageRelay {
	vr := monitor.VantageRelay{
		NextDue: day0.Add(time.Duration(rapid.Int64Range(-700, 300).Draw(t, label+" due")) * time.Second),
		At:      drawAgo(t, label+" at", time.Hour),
	}
	const grace = interval * 5 / 2
	first := drawAgo(t, label+" first failure", 24*time.Hour)
	failing := monitor.Record{
		State: offline, FirstFailure: first, LastFailure: laterTime(first, drawAgo(t, label+" last failure", time.Hour)),
		LastSuccess: drawAgoOrZero(t, label+" last success", 3*time.Hour), Corroborated: true,
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, label); kind {
	case "up":
		vr.Outcome = monitor.OutcomeOK
		vr.Record = monitor.Record{State: online, LastSuccess: drawAgo(t, label+" success", grace)}
		vr.Record.OnlineSince = minTime(vr.Record.LastSuccess, drawAgo(t, label+" up since", 24*time.Hour))
		if rapid.IntRange(0, 3).Draw(t, label+" expedited") == 0 {
			vr.Expedited = drawAgo(t, label+" asked", 2*time.Minute)
		}
	case "down":
		vr.Outcome, vr.Record = monitor.OutcomeFailed, failing
		vr.Record.FailureCount = rapid.IntRange(3, 9).Draw(t, label+" failures")
	case "dead":
		vr.Outcome, vr.Record = monitor.OutcomeFailed, failing
		vr.Record.State, vr.Record.FailureCount = dead, rapid.IntRange(5, 9).Draw(t, label+" failures")
	case "suspect":
		vr.Outcome, vr.Record = monitor.OutcomeFailed, failing
		vr.Record.FailureCount = rapid.IntRange(1, 2).Draw(t, label+" failures")
	case "restricted":
		vr.Outcome = monitor.OutcomeRestricted
		vr.Record = monitor.Record{LastSuccess: drawAgoOrZero(t, label+" success", 3*time.Hour)}
	case "none":
	case "anything":
		vr.Record = drawRecord(t, label)
		vr.Outcome = monitor.Outcome(rapid.IntRange(0, 6).Draw(t, label+" outcome"))
	default:
		panic(kind)
	}
	return vr
}

var anyKind = []string{"up", "up", "down", "down", "dead", "suspect", "restricted", "none", "anything"}

// drawVantage draws a vantage of a group, mostly fit to vote.
func drawVantage(t *rapid.T, name, group string) monitor.Vantage {
	v := monitor.Vantage{Name: name, Group: group, Networks: []monitor.Network{monitor.Clearnet}, LastSeen: day0.Add(-5 * time.Second)}
	switch rapid.IntRange(0, 15).Draw(t, name+" trouble") {
	case 15:
		v.Revoked = true
	case 14:
		v.Health.Impairments = []monitor.Impairment{monitor.ImpairedSpike}
	case 13:
		v.LastSeen = day0.Add(-time.Hour)
	case 12:
		v.Networks = []monitor.Network{monitor.Tor}
	case 11:
		v.Skew = 2 * time.Minute
	}
	return v
}

// electorate draws up to max vantages of up to five groups, and what they saw.
func electorate(t *rapid.T, max int, kinds ...string) ([]monitor.Vantage, []monitor.VantageRelay) {
	var vantages []monitor.Vantage
	var seen []monitor.VantageRelay
	for i := range rapid.IntRange(0, max).Draw(t, "vantages") {
		group := string(rune('a' + rapid.IntRange(0, 4).Draw(t, fmt.Sprintf("group of v%d", i))))
		vantages = append(vantages, drawVantage(t, fmt.Sprintf("v%d", i), group))
		seen = append(seen, drawSeen(t, fmt.Sprintf("v%d", i), kinds...))
	}
	return vantages, seen
}

func drawPrev(t *rapid.T) monitor.Verdict {
	v := monitor.Verdict{
		State:             monitor.State(rapid.IntRange(0, 3).Draw(t, "previous state")),
		LastSuccess:       drawAgoOrZero(t, "previous success", 6*time.Hour),
		MajorityDownSince: drawAgoOrZero(t, "majority down", time.Hour),
	}
	for range rapid.IntRange(0, 7).Draw(t, "transitions") {
		v.Changes = append(v.Changes, drawAgo(t, "transition", 48*time.Hour))
	}
	slices.SortFunc(v.Changes, time.Time.Compare)
	if n := len(v.Changes); n > 0 {
		v.Since = v.Changes[n-1]
	}
	return v
}

func drawSituation(t *rapid.T) monitor.Situation {
	return monitor.Situation{
		AloneSince:    drawAgoOrZero(t, "alone", 12*time.Hour),
		WatchingSince: drawAgoOrZero(t, "watching", 12*time.Hour),
		NoLeave:       rapid.IntRange(0, 2).Draw(t, "start hold") == 2,
	}
}

// polls is a second, plainer count of the groups, to check against.
type polls struct {
	able, eligible, up, against int
	upVantages                  []string
}

func poll(bs []monitor.Ballot) polls {
	var p polls
	members := map[string][]monitor.Ballot{}
	for _, b := range bs {
		if b.Able {
			members[b.Group] = append(members[b.Group], b)
		}
	}
	p.able = len(members)
	for _, group := range members {
		n, against, up, unsure := 0.0, 0.0, false, false
		for _, b := range group {
			if !b.Eligible {
				continue
			}
			n++
			switch {
			case b.Vote == monitor.VoteUp && b.Unconfirmed:
				unsure = true
			case b.Vote == monitor.VoteUp:
				up = true
				p.upVantages = append(p.upVantages, b.Vantage)
			case b.Vote == monitor.VoteDown || b.Vote == monitor.VoteDead:
				against++
			}
		}
		if n > 0 {
			p.eligible++
		}
		if up {
			p.up++
		} else if !unsure && against/max(n, 1) > 0.5 {
			p.against++
		}
	}
	return p
}

func bad(s monitor.State) bool { return s == offline || s == dead }

// severity orders states from online to dead.
func severity(s monitor.State) int {
	return map[monitor.State]int{online: 0, unknown: 1, offline: 2, dead: 3}[s]
}

// Never offline or dead without a strict majority of the eligible groups, of
// two at least unless only one is there, or only one is left for six hours.
func TestNeverOfflineWithoutQuorum(t *testing.T) {
	c := monitor.DefaultCorroboration()
	thoroughly(t, func(t *rapid.T) {
		vantages, seen := electorate(t, 6, rapid.SampledFrom([][]string{anyKind, {"down", "dead", "suspect"}}).Draw(t, "kinds")...)
		bs := c.Ballots(relayA, vantages, seen, day0)
		prev, s := drawPrev(t), drawSituation(t)
		got := c.Decide(prev, bs, s, day0)
		if got.State == prev.State || !bad(got.State) {
			return
		}
		p := poll(bs)
		alone := p.able == 1 || !s.AloneSince.IsZero() && day0.Sub(s.AloneSince) >= 6*time.Hour
		if p.up > 0 || 2*p.against <= p.eligible || p.against < 2 && !alone {
			t.Fatalf("%s → %s with %+v, %+v", prev.State, got.State, p, s)
		}
		if s.NoLeave && prev.State == online {
			t.Fatal("left during the start hold")
		}
	})
}

// Where three groups are eligible, no single one takes a relay offline or dead,
// whatever its vantages send.
func TestOneGroupTakesNothingDown(t *testing.T) {
	c := monitor.DefaultCorroboration()
	thoroughly(t, func(t *rapid.T) {
		honest := []string{"suspect", "restricted", "none"}
		if rapid.Bool().Draw(t, "some up") {
			honest = append(honest, "up")
		}
		vantages, seen := electorate(t, 5, honest...)
		for i := range rapid.IntRange(1, 4).Draw(t, "liars") {
			vantages = append(vantages, drawVantage(t, fmt.Sprintf("liar%d", i), "liar"))
			seen = append(seen, drawSeen(t, fmt.Sprintf("liar%d", i), "down", "down", "dead", "anything"))
		}
		bs := c.Ballots(relayA, vantages, seen, day0)
		prev := drawPrev(t)
		got := c.Decide(prev, bs, drawSituation(t), day0)
		if poll(bs).eligible >= 3 && got.State != prev.State && bad(got.State) {
			t.Fatalf("%s → %s: %s", prev.State, got.State, got.Reason)
		}
	})
}

// Where three groups are eligible and one alone keeps or brings a relay online,
// the verdict is partial and names its vantages.
func TestOneGroupAloneIsPartial(t *testing.T) {
	c := monitor.DefaultCorroboration()
	thoroughly(t, func(t *rapid.T) {
		vantages, seen := electorate(t, 5, "up", "down", "dead", "suspect", "restricted", "none")
		for i := range rapid.IntRange(1, 2).Draw(t, "optimists") {
			vantages = append(vantages, drawVantage(t, fmt.Sprintf("optimist%d", i), "optimist"))
			seen = append(seen, drawSeen(t, fmt.Sprintf("optimist%d", i), "up"))
		}
		bs := c.Ballots(relayA, vantages, seen, day0)
		got := c.Decide(drawPrev(t), bs, drawSituation(t), day0)
		p := poll(bs)
		if got.State != online || p.eligible < 3 || p.up != 1 {
			return
		}
		if !got.Marks.Has(monitor.MarkPartial) {
			t.Fatalf("marks %q: %s", got.Marks, got.Reason)
		}
		for _, name := range p.upVantages {
			if !strings.Contains(got.Reason, name) {
				t.Fatalf("%q does not name %s", got.Reason, name)
			}
		}
	})
}

// One more up, in a group of its own or another's, never moves a verdict
// towards offline.
func TestAnUpNeverMovesTowardsOffline(t *testing.T) {
	c := monitor.DefaultCorroboration()
	thoroughly(t, func(t *rapid.T) {
		vantages, seen := electorate(t, 7, anyKind...)
		prev, s := drawPrev(t), drawSituation(t)
		if rapid.Bool().Draw(t, "was down") {
			prev.State = rapid.SampledFrom([]monitor.State{offline, dead}).Draw(t, "was")
		}
		without := c.Decide(prev, c.Ballots(relayA, vantages, seen, day0), s, day0)
		group := string(rune('a' + rapid.IntRange(0, 5).Draw(t, "group of the up")))
		more := append(vantages, drawVantage(t, "more", group))
		with := c.Decide(prev, c.Ballots(relayA, more, append(seen, drawSeen(t, "more", "up")), day0), s, day0)
		if severity(with.State) > severity(without.State) {
			t.Fatalf("%s → %s, with one more up %s\n%s\n%s", prev.State, without.State, with.State, without.Reason, with.Reason)
		}
	})
}

// Half of the groups against a relay decide nothing.
func TestTiesHold(t *testing.T) {
	c := monitor.DefaultCorroboration()
	thoroughly(t, func(t *rapid.T) {
		var words []string
		for range rapid.IntRange(1, 4).Draw(t, "half") {
			words = append(words,
				rapid.SampledFrom([]string{"down", "dead", "down,dead", "dead,dead,suspect", "down,none"}).Draw(t, "against"),
				rapid.SampledFrom([]string{"suspect", "restricted", "old", "restricted,suspect", "old,down"}).Draw(t, "other"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "silent") {
			words = append(words, rapid.SampledFrom([]string{"none", "cut"}).Draw(t, "silent one"))
		}
		words = rapid.Permutation(words).Draw(t, "order")
		prev := drawPrev(t)
		prev.LastSuccess = drawAgo(t, "success", 3*time.Hour)
		if got := c.Decide(prev, ballots(strings.Join(words, " ")), drawSituation(t), day0); got.State != prev.State {
			t.Fatalf("%v: %s → %s", words, prev.State, got.State)
		}
	})
}

// The order in which the vantages' batches arrive changes no vote: each has an
// observer and records of its own, and a vote looks at nothing else.
func TestArrivalOrderChangesNoVote(t *testing.T) {
	c, l, cadence := monitor.DefaultCorroboration(), monitor.DefaultLiveness(), monitor.DefaultCadence()
	relays := []monitor.RelayURL{"wss://a.example/", "wss://b.example/"}
	type seenAt struct {
		relay   int
		outcome monitor.Outcome
		at      time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "vantages")
		vantages := make([]monitor.Vantage, n)
		batches := make([][]seenAt, n)
		var arrivals []int
		for v := range vantages {
			vantages[v] = drawVantage(t, fmt.Sprintf("v%d", v), fmt.Sprintf("g%d", v%3))
			at := day0.Add(-30 * time.Minute)
			for range rapid.IntRange(0, 25).Draw(t, "observations") {
				at = at.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "after")) * time.Second)
				batches[v] = append(batches[v], seenAt{
					rapid.IntRange(0, 1).Draw(t, "relay"),
					rapid.SampledFrom([]monitor.Outcome{
						monitor.OutcomeOK, monitor.OutcomeFailed, monitor.OutcomeFailed, monitor.OutcomeFailed,
						monitor.OutcomeRestricted, monitor.OutcomeSkipped, monitor.OutcomeUnclear,
					}).Draw(t, "outcome"),
					at,
				})
				arrivals = append(arrivals, v)
			}
		}
		votes := func(order []int) [][]monitor.Ballot {
			observers := make([]*monitor.Observer, n)
			seen := [2][]monitor.VantageRelay{make([]monitor.VantageRelay, n), make([]monitor.VantageRelay, n)}
			next := make([]int, n)
			for v := range observers {
				observers[v] = monitor.NewObserver(day0.Add(-time.Hour))
			}
			for _, v := range order {
				o := batches[v][next[v]]
				next[v]++
				vr := &seen[o.relay][v]
				prev := vr.Record
				vr.Record, _ = l.Step(prev, observers[v], relays[o.relay], o.outcome, o.at, o.at)
				if o.outcome.Measured() {
					vr.Outcome, vr.At = o.outcome, o.at
					vr.NextDue = cadence.Next(prev, vr.Record, relays[o.relay], vantages[v].Name, monitor.Task{}, o.outcome, 0, o.at)
				}
			}
			return [][]monitor.Ballot{
				c.Ballots(relays[0], vantages, seen[0], day0.Add(time.Hour/2)),
				c.Ballots(relays[1], vantages, seen[1], day0.Add(time.Hour/2)),
			}
		}
		in := slices.Sorted(slices.Values(arrivals)) // one vantage after the other
		if d := cmp.Diff(votes(in), votes(rapid.Permutation(arrivals).Draw(t, "order"))); d != "" {
			t.Fatal(d)
		}
	})
}

// A verdict depends on the votes, the previous verdict and now: not on the
// order of the ballots, not on what else they carry, not on an earlier call; and
// it changes neither.
func TestVerdictDependsOnVotesOnly(t *testing.T) {
	c := monitor.DefaultCorroboration()
	brief := func(v monitor.Verdict) string {
		v.Marks &^= monitor.MarkSingledOut // which is about what stands behind the votes
		return fmt.Sprint(v.State, v.Since, v.Marks, v.Quorum, v.LastSuccess, v.MajorityDownSince, v.Changes, v.HeldSince)
	}
	thoroughly(t, func(t *rapid.T) {
		vantages, seen := electorate(t, 6, anyKind...)
		for i := range seen {
			seen[i].Cause = monitor.Cause(rapid.IntRange(0, 20).Draw(t, "cause"))
		}
		bs := c.Ballots(relayA, vantages, seen, day0)
		prev, s := drawPrev(t), drawSituation(t)
		keptVotes, keptChanges := slices.Clone(bs), slices.Clone(prev.Changes)
		want := c.Decide(prev, bs, s, day0)
		if d := cmp.Diff(want, c.Decide(prev, bs, s, day0)); d != "" {
			t.Fatalf("a second call says otherwise\n%s", d)
		}
		if d := cmp.Diff(keptVotes, bs) + cmp.Diff(keptChanges, prev.Changes); d != "" {
			t.Fatalf("the call changed what it was given\n%s", d)
		}

		// Vantages in another order: suspicion must not depend on it either.
		order := make([]int, len(vantages))
		for i := range order {
			order[i] = i
		}
		order = rapid.Permutation(order).Draw(t, "order")
		var vantages2 []monitor.Vantage
		var seen2 []monitor.VantageRelay
		for _, i := range order {
			vantages2, seen2 = append(vantages2, vantages[i]), append(seen2, seen[i])
		}
		other := c.Decide(prev, c.Ballots(relayA, vantages2, seen2, day0), s, day0)
		if brief(other) != brief(want) || other.Marks != want.Marks || other.Cause != want.Cause {
			t.Fatalf("in another order\n%s\nwant\n%s", brief(other), brief(want))
		}

		for i := range bs {
			bs[i].Evidence, bs[i].Cause, bs[i].Stage, bs[i].Outcome = "something else", monitor.CauseReset, monitor.StageTLS, monitor.OutcomeUnclear
			bs[i].RTTOpen, bs[i].BackoffUntil, bs[i].At, bs[i].FailureCount, bs[i].LastFailure = 1, day0, day0, 99, day0
		}
		if other = c.Decide(prev, bs, s, day0); brief(other) != brief(want) {
			t.Fatalf("with other evidence\n%s\nwant\n%s", brief(other), brief(want))
		}
	})
}

// Skipped, unclear and restricted never count against a relay: not in the
// record, not as a vote, not as a further ballot.
func TestSilenceNeverCountsAgainst(t *testing.T) {
	c, l := monitor.DefaultCorroboration(), monitor.DefaultLiveness()
	t.Run("in the record", func(t *testing.T) {
		thoroughly(t, func(t *rapid.T) {
			v := monitor.NewObserver(day0.Add(-48 * time.Hour))
			at := day0.Add(-12 * time.Hour)
			l.Step(monitor.Record{}, v, "wss://other.example/", monitor.OutcomeOK, at, at)
			r := monitor.Record{}
			if rapid.Bool().Draw(t, "was up") {
				r, _ = l.Step(r, v, relayA, monitor.OutcomeOK, at, at)
			}
			vr := monitor.VantageRelay{Record: r}
			for range rapid.IntRange(1, 30).Draw(t, "observations") {
				at = at.Add(time.Duration(rapid.IntRange(1, 1200).Draw(t, "after")) * time.Second)
				o := rapid.SampledFrom([]monitor.Outcome{monitor.OutcomeRestricted, monitor.OutcomeSkipped, monitor.OutcomeUnclear}).Draw(t, "outcome")
				vr.Record, _ = l.Step(vr.Record, v, relayA, o, at, at)
				if o.Measured() {
					vr.Outcome = o
				}
				vr.NextDue = at.Add(interval)
				if vote := c.Vote(vr, at); vote.Against() {
					t.Fatalf("after %s it votes %s", o, vote)
				}
			}
		})
	})
	t.Run("as a ballot", func(t *testing.T) {
		thoroughly(t, func(t *rapid.T) {
			vantages, seen := electorate(t, 7, anyKind...)
			prev, s := drawPrev(t), drawSituation(t)
			without := c.Decide(prev, c.Ballots(relayA, vantages, seen, day0), s, day0)
			group := string(rune('a' + rapid.IntRange(0, 5).Draw(t, "group of the silent one")))
			more := append(vantages, drawVantage(t, "more", group))
			silent := drawSeen(t, "more", "restricted", "none")
			with := c.Decide(prev, c.Ballots(relayA, more, append(seen, silent), day0), s, day0)
			if with.State != without.State && bad(with.State) && severity(with.State) > severity(without.State) {
				t.Fatalf("%s → %s, with one more silent vantage %s", prev.State, without.State, with.State)
			}
		})
	})
	t.Run("alone", func(t *testing.T) {
		thoroughly(t, func(t *rapid.T) {
			vantages, seen := electorate(t, 6, "restricted", "none")
			prev := drawPrev(t)
			prev.LastSuccess = drawAgo(t, "success", 4*time.Hour-time.Second)
			got := c.Decide(prev, c.Ballots(relayA, vantages, seen, day0), drawSituation(t), day0)
			if got.State != prev.State {
				t.Fatalf("%s → %s: %s", prev.State, got.State, got.Reason)
			}
		})
	})
}

// Departures within one interval never exceed the brake, those it released
// apart, whatever happens to how many relays and when decisions fall; and while
// it is engaged nothing leaves that it did not release.
func TestDeparturesStayWithinTheBrake(t *testing.T) {
	c := monitor.DefaultCorroboration()
	c.HoldMin = 3
	b := c.Brake()
	words := map[string][]monitor.Ballot{}
	for _, w := range []string{"up up up", "suspect up up", "suspect old old", "down suspect suspect", "down down suspect", "dead dead dead", "restricted restricted restricted"} {
		words[w] = ballots(w)
	}
	kinds := slices.Sorted(func(yield func(string) bool) {
		for w := range words {
			if !yield(w) {
				return
			}
		}
	})
	leaving := []string{"down down suspect", "dead dead dead"}

	thoroughly(t, func(t *rapid.T) {
		n := rapid.IntRange(5, 80).Draw(t, "relays")
		verdicts := make([]monitor.Verdict, n)
		votes := make([]string, n)
		atFirst := rapid.IntRange(0, n).Draw(t, "online at first")
		for i := range verdicts {
			verdicts[i] = monitor.Verdict{State: online, Since: day0, LastSuccess: day0}
			votes[i] = "up up up"
			if i >= atFirst {
				verdicts[i].State, votes[i] = dead, "dead dead dead"
			}
		}
		type size struct {
			at     time.Time
			online int
		}
		sizes := []size{{day0.Add(-24 * time.Hour), atFirst}}
		var departures, arrivals []time.Time
		now := day0
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
			// Anything happens to a few, or one thing to a run of many.
			if rapid.Bool().Draw(t, "at once") {
				from := rapid.IntRange(0, n-1).Draw(t, "from")
				kind := rapid.SampledFrom(append(leaving, "up up up")).Draw(t, "to all of them")
				for i := from; i < min(n, from+rapid.IntRange(1, n).Draw(t, "many")); i++ {
					votes[i] = kind
				}
			} else {
				for range rapid.IntRange(1, 4).Draw(t, "few") {
					votes[rapid.IntRange(0, n-1).Draw(t, "which")] = rapid.SampledFrom(kinds).Draw(t, "votes")
				}
			}
			free := rapid.IntRange(-1, n-1).Draw(t, "released by the operator")

			s := monitor.Situation{WatchingSince: day0}
			proposed := make([]monitor.Verdict, n)
			pending := make([]bool, n)
			e := monitor.Electorate{Departures: departures, Arrivals: arrivals, EligibleGroups: 3}
			for i, v := range verdicts {
				bs := words[votes[i]]
				proposed[i] = c.Decide(v, bs, s, now)
				pending[i] = monitor.Pending(v, bs) || monitor.Departs(v, proposed[i])
				if v.State == online {
					e.Online++
				}
				if pending[i] {
					e.Pending++
				}
			}
			engaged := b.Engaged(e, now)
			before := e.Online
			released := 0
			for i, v := range verdicts {
				next := b.Apply(v, proposed[i], pending[i], engaged, i == free, now)
				switch {
				case monitor.Departs(v, next) && engaged && i == free:
					released++
				case monitor.Departs(v, next) && engaged:
					t.Fatalf("relay %d left while the brake was engaged", i)
				case monitor.Departs(v, next):
					departures = append(departures, now)
				case v.State != online && next.State == online:
					arrivals = append(arrivals, now)
				}
				if engaged && pending[i] && next.State == online && !next.Marks.Has(monitor.MarkHeld) {
					t.Fatalf("relay %d is pending and not marked held", i)
				}
				verdicts[i] = next
			}

			// The check: what left within the interval, against the online set
			// as it really was at its start. The released ones left that set
			// without having been counted, so the limit may be too low for them.
			inWindow := 0
			for _, at := range departures {
				if now.Sub(at) < b.Interval {
					inWindow++
				}
			}
			start := 0
			for _, s := range sizes {
				if !s.at.After(now.Add(-b.Interval)) {
					start = s.online
				}
			}
			if limit := max(b.HoldMin, start/10); inWindow > limit {
				t.Fatalf("%d departures within one interval, the online set was %d at its start (limit %d)", inWindow, start, limit)
			}
			after := 0
			for _, v := range verdicts {
				if v.State == online {
					after++
				}
			}
			if engaged && after < before-released {
				t.Fatalf("the list shrank from %d to %d under the brake", before, after)
			}
			sizes = append(sizes, size{now, after})
		}
	})
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
