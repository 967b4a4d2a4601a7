package monitor

import "time"

// Freshness guards the list as a whole (corroboration.md, Brakes, Freshness;
// api.md, Lists): a list that should not be trusted is unusable, never shorter.
type Freshness struct {
	MaxAge   time.Duration // live.max_age
	MinFresh float64       // live.min_fresh
	MinCount int           // live.min_count
}

// DefaultFreshness returns the defaults of config.md.
func DefaultFreshness() Freshness {
	return Freshness{MaxAge: 4 * time.Hour, MinFresh: 0.8, MinCount: 100}
}

// ListState is what Judge needs to know of the online set.
type ListState struct {
	WarmingUp  bool // no full pass yet
	ClockWrong bool // our clock is off
	Online     int
	Fresh      int       // of them with Fresh(last success)
	Newest     time.Time // newest success of them, zero = none
}

// Fresh reports whether a last success is young enough to count.
func (f Freshness) Fresh(lastSuccess, now time.Time) bool {
	return !lastSuccess.IsZero() && now.Sub(lastSuccess) <= f.MaxAge
}

// Judge returns the gravest reason why the list must not be used. An empty
// list is always too_few, also where MinCount is 0: readers take absence for
// death.
func (f Freshness) Judge(s ListState, now time.Time) Fallback {
	switch {
	case s.WarmingUp:
		return FallbackWarmingUp
	case s.ClockWrong:
		return FallbackClock
	case s.Online == 0:
		return FallbackTooFew
	case !f.Fresh(s.Newest, now) || float64(s.Fresh) < f.MinFresh*float64(s.Online)-1e-9:
		return FallbackStale
	case s.Online < f.MinCount:
		return FallbackTooFew
	}
	return FallbackNone
}
