package monitor

import (
	"hash/fnv"
	"strings"
	"time"
)

// How long what tests came to is held on to.
const (
	// FindingKept is for how long a test that told nothing leaves a finding as it
	// is.
	FindingKept = 3 * 24 * time.Hour
	// ConfirmationKept is for how long a confirmation stands against what another
	// vantage disproves: a relay may treat one vantage worse.
	ConfirmationKept = 48 * time.Hour
	// SampleKept is for how long two samples of one day may be compared.
	SampleKept = 48 * time.Hour
	// FactsBelieved is for how long the tests of capabilities and of writing say
	// something about the relay as it is now.
	FactsBelieved = 7 * 24 * time.Hour
)

// Tested is what the tests of one relay's capabilities came to, from all
// vantages together. The zero value is a relay never tested. It depends on the
// order of the tests, and holds nothing that is shared.
type Tested struct {
	findings [8]finding // in the order of Capabilities.all
	at       seconds    // of the newest test
	samples  [2]sample  // the newest of each of the two newest days, the newer day first
}

// finding is the newest known one of a kind.
type finding struct {
	value         Finding
	by            uint32  // hash of the vantage that confirmed it last
	at, confirmed seconds // when it was found so last, and confirmed last
}

type sample struct {
	at   seconds
	text string
}

// seconds is a time since 1970, as long as this program may run: 50 000 relays
// have 14 of them each.
type seconds uint32

func (s seconds) day() uint32 { return uint32(s) / (24 * 60 * 60) }

func (s seconds) within(now seconds, limit time.Duration) bool {
	return time.Duration(int64(now)-int64(s))*time.Second < limit
}

// all are the findings of c.
func (c *Capabilities) all() [8]*Finding {
	return [...]*Finding{&c.Auth, &c.Count, &c.Search, &c.Negentropy, &c.EOSE, &c.Filters, &c.Limit, &c.Until}
}

// Add takes one test, which the vantage of that name made at at. An older one
// than the newest is ignored, and false returned.
//
//   - unknown replaces a known finding only FindingKept after it was last found.
//   - disproved replaces a confirmation of another vantage only ConfirmationKept
//     after the last one.
//   - else the newest counts.
func (t *Tested) Add(c Capabilities, vantage string, at time.Time) bool {
	now := seconds(at.Unix())
	if now < t.at {
		return false
	}
	t.at = now
	h := fnv.New32a()
	_, _ = h.Write([]byte(vantage))
	by := h.Sum32()
	for i, value := range c.all() {
		f := &t.findings[i]
		switch *value {
		case FindingConfirmed:
			*f = finding{FindingConfirmed, by, now, now}
		case FindingDisproved:
			if f.value != FindingConfirmed || f.by == by || !f.confirmed.within(now, ConfirmationKept) {
				*f = finding{value: FindingDisproved, at: now}
			}
		default:
			if !f.at.within(now, FindingKept) {
				*f = finding{}
			}
		}
	}
	if c.Sample != "" {
		if newest := t.samples[0]; newest.text != "" && newest.at.day() != now.day() {
			t.samples[1] = newest
		}
		t.samples[0] = sample{now, c.Sample}
	}
	return true
}

// Capabilities is all that was found, and when the newest test was made: nil
// before the first. Its sample is that of the day of that test, "" where that
// served none.
func (t *Tested) Capabilities() (*Capabilities, time.Time) {
	if t.at == 0 {
		return nil, time.Time{}
	}
	c := new(Capabilities)
	for i, value := range c.all() {
		*value = t.findings[i].value
	}
	if s := &t.samples[0]; s.at.day() == t.at.day() {
		c.Sample = s.text
	}
	return c, time.Unix(int64(t.at), 0).UTC()
}

// Samples returns what the relay served, by the day (since 1970, UTC) of the
// test, the newer day first; those that are older than SampleKept are left out.
func (t *Tested) Samples(now time.Time) (days [2]uint32, texts [2]string) {
	n := 0
	for i := range t.samples {
		if s := &t.samples[i]; s.text != "" && s.at.within(seconds(now.Unix()), SampleKept) {
			days[n], texts[n] = s.at.day(), s.text
			n++
		}
	}
	return days, texts
}

// believed reports whether a test of then still says something.
func (f *Facts) believed(at, now time.Time) bool { return now.Sub(at) <= FactsBelieved }

// Disproved returns the NIPs that tests disproved not too long before now,
// ascending.
func (f *Facts) Disproved(now time.Time) []int {
	if f == nil || f.Capabilities == nil || !f.believed(f.CapabilitiesAt, now) {
		return nil
	}
	return f.Capabilities.NIPs(FindingDisproved)
}

// WriteNeeds says what a write test, not too long before now, was refused for
// want of: payment, or leave to write at all (reports.md 5).
func (f *Facts) WriteNeeds(now time.Time) (payment, leave bool) {
	if f == nil || f.Write == nil || f.Write.Result != WriteRefused || !f.believed(f.WriteAt, now) {
		return false, false
	}
	prefix, _, ok := strings.Cut(f.Write.Reason, ":")
	if !ok {
		return false, false
	}
	switch strings.ToLower(strings.TrimSpace(prefix)) {
	case "payment", "payment-required":
		return true, false
	case "restricted", "blocked":
		return false, true
	}
	return false, false
}
