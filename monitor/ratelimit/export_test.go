package ratelimit

// WithoutRepeats switches the retry branch off: a refusal that would be repeated
// is surfaced. It is the negative control of the tests of repeats.
func (s *Subscriptions) WithoutRepeats() { s.repeats = 0 }
