package wire

import (
	"math"
	"strconv"
	"time"
)

// millis is a duration as JSON's number of milliseconds, exact to the
// nanosecond.
type millis time.Duration

// longest bounds what is read: with it a float64 still holds every nanosecond.
const longest = 100 * 24 * time.Hour

// MarshalJSON writes a whole number where there is one.
func (d millis) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 20)
	n := int64(d)
	if n < 0 {
		b = append(b, '-')
		n = -n
	}
	b = strconv.AppendInt(b, n/1e6, 10)
	if rest := n % 1e6; rest != 0 {
		b = append(b, '.')
		for unit := int64(1e5); rest != 0; unit /= 10 {
			b = append(b, byte('0'+rest/unit))
			rest %= unit
		}
	}
	return b, nil
}

// UnmarshalJSON reads any number within ±100 days.
func (d *millis) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || b[0] == '"' {
		return invalid("a duration is not a number of milliseconds")
	}
	if math.Abs(f) > float64(longest/time.Millisecond) {
		return invalid("a duration of %g ms is too long", f)
	}
	*d = millis(math.Round(f * 1e6))
	return nil
}
