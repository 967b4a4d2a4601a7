package vantage

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	// clockStep: clocks are slewed by far less than this in a second; more at
	// once is a jump.
	clockStep = 2 * time.Second
	// frozenFrom: a look that comes this late by the monotonic clock means that
	// the process stood still.
	frozenFrom = 10 * time.Second
)

// reading is one look at the clocks.
type reading struct {
	wall time.Time     // without a monotonic part
	mono time.Duration // since any fixed point; stands still while suspended
	boot time.Duration // since boot, goes on while suspended; 0 = not known
}

// readClocks looks at this machine's clocks; origin is any time with a
// monotonic reading.
func readClocks(origin time.Time) reading {
	now := time.Now()
	return reading{wall: now.Round(0), mono: now.Sub(origin), boot: uptime()}
}

// uptime is Linux' time since boot, 0 elsewhere.
func uptime() time.Duration {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// disturbance is what happened between two looks at the clocks.
type disturbance struct {
	kind  monitor.Impairment // "" = nothing
	since time.Time          // the look before, on today's wall clock
	at    time.Time
	// shift is how far the wall clock moved beyond the time that passed: what
	// was planned by it has to move along.
	shift time.Duration
}

// clockWatch compares the clocks about once a second.
type clockWatch struct {
	last reading
	seen bool
}

// look compares r with the look before. A machine that slept, a process that
// stood still, and a wall clock that was set are told apart where the time since
// boot is known; otherwise a sleep looks like a clock set forward.
func (c *clockWatch) look(r reading) disturbance {
	before, seen := c.last, c.seen
	c.last, c.seen = r, true
	if !seen {
		return disturbance{}
	}
	passed := r.mono - before.mono
	kind := monitor.Impairment("")
	switch {
	case r.boot > 0 && before.boot > 0 && r.boot-before.boot-passed >= clockStep:
		passed = r.boot - before.boot
		kind = monitor.ImpairedSuspended
	case passed >= frozenFrom:
		kind = monitor.ImpairedSuspended
	}
	shift := r.wall.Sub(before.wall) - passed
	if shift.Abs() < clockStep {
		shift = 0
	} else if kind == "" {
		kind = monitor.ImpairedClock
	}
	if kind == "" {
		return disturbance{}
	}
	return disturbance{kind: kind, since: before.wall.Add(shift), at: r.wall, shift: shift}
}
