package world_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// long is an outage that a monitor has to notice.
	long = 15 * time.Minute
	// lateBy: a verdict that comes so soon after the end of an outage is late,
	// and not made up. A dead relay is looked at once an hour, and what flaps may
	// change its verdict as often.
	lateBy = time.Hour
)

// score is what a policy's verdicts are worth, against the truth.
type score struct {
	watched      time.Duration // relay time, dead ones' included
	falseOffline int           // calls of a relay that was up, and had been for lateBy
	falseDead    int           // likewise
	withdrawn    int           // departures of relays that were up, late ones too
	departures   int
	outages      int             // long ones of relays that were called online when they began
	missed       int             // of them: never called anything else
	detected     []time.Duration // how long they took to be
}

func (s *score) add(o score) {
	s.watched += o.watched
	s.falseOffline += o.falseOffline
	s.falseDead += o.falseDead
	s.withdrawn += o.withdrawn
	s.departures += o.departures
	s.outages += o.outages
	s.missed += o.missed
	s.detected = append(s.detected, o.detected...)
}

// scoreOf judges the verdicts on one relay after the first hour.
func scoreOf(w *truth, r *trueRelay, moves []move) score {
	s := score{watched: w.length - watchedFrom}
	state := monitor.StateUnknown
	for _, m := range moves {
		from := state
		state = m.to
		if m.at < watchedFrom {
			continue
		}
		if m.to == from {
			continue
		}
		up := !r.down.has(m.at)
		settled := up && !r.down.touches(max(0, m.at-lateBy), m.at)
		if from == monitor.StateOnline {
			s.departures++
			if up {
				s.withdrawn++
			}
			if settled {
				s.falseOffline++
			}
		}
		if m.to == monitor.StateDead && settled {
			s.falseDead++
		}
	}
	for _, d := range r.down {
		if d.from < watchedFrom || d.to-d.from < long || d.from+long > w.length {
			continue
		}
		began := lastMove(moves, d.from)
		if began.to != monitor.StateOnline {
			continue
		}
		s.outages++
		during := func(m move) bool { return m.at > d.from && m.at <= min(d.to, w.length) }
		shown := began.marks != 0 || slices.ContainsFunc(moves, func(m move) bool { return during(m) && (m.marks != 0 || m.to != monitor.StateOnline) })
		if !shown && d.to <= w.length {
			s.missed++
		}
		i := slices.IndexFunc(moves, func(m move) bool { return during(m) && m.to != monitor.StateOnline })
		if i < 0 {
			continue
		}
		s.detected = append(s.detected, moves[i].at-d.from)
	}
	return s
}

// lastMove is what held at t.
func lastMove(moves []move, t time.Duration) move {
	var last move
	for _, m := range moves {
		if m.at > t {
			break
		}
		last = m
	}
	return last
}

// perKiloYear is n as a rate per 1 000 relay-years.
func (s *score) perKiloYear(n int) float64 {
	return float64(n) / (s.watched.Hours() / 24 / 365) * 1000
}

// detection is the p-th part of the detection times, 0 when there are none.
func (s *score) detection(p float64) time.Duration {
	if len(s.detected) == 0 {
		return 0
	}
	slices.Sort(s.detected)
	return s.detected[min(len(s.detected)-1, int(p*float64(len(s.detected))))]
}

// header and row are lines of the table (Markdown).
const header = "| vantages | policy | false offline¹ | false dead¹ | missed outages ≥ 15 min | noticed after, p50 | p99 | wrongly withdrawn² |\n" +
	"|---|---|---|---|---|---|---|---|\n"

func (s *score) row(vantages int, name string, dead bool) string {
	falseDead := "–"
	if dead {
		falseDead = rate(s.perKiloYear(s.falseDead))
	}
	return fmt.Sprintf("| %d | %s | %s | %s | %d of %d (%.1f %%) | %s | %s | %d of %d |\n",
		vantages, name, rate(s.perKiloYear(s.falseOffline)), falseDead,
		s.missed, s.outages, 100*float64(s.missed)/float64(max(1, s.outages)),
		s.detection(0.5).Round(time.Second), s.detection(0.99).Round(time.Second), s.withdrawn, s.departures)
}

func rate(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}
