package postgres

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// text makes s fit for a text column: valid UTF-8 without NUL.
func text(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	return s
}

// jsonText encodes v for a jsonb column, which refuses the escape of NUL.
// encoding/json has made its strings valid UTF-8.
func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return dropNULEscapes(string(b)), nil
}

func dropNULEscapes(s string) string {
	const nul = `\u0000`
	if !strings.Contains(s, nul) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], nul):
			i += len(nul)
		case s[i] == '\\' && i+1 < len(s): // an escape of another kind: both bytes belong together
			b.WriteString(s[i : i+2])
			i += 2
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return b.String()
}

// The times that are stored: what lies outside comes from a broken clock.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

func clamp(t time.Time) time.Time {
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}

// stamp is t for a timestamptz column, NULL when zero.
func stamp(t time.Time) pgtype.Timestamptz {
	if t.IsZero() {
		return pgtype.Timestamptz{}
	}
	return pgtype.Timestamptz{Time: clamp(t), Valid: true}
}

// when reads a timestamptz column back: UTC, zero for NULL.
func when(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// ms is d in whole milliseconds, at least 1 when d is positive.
func ms(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(1, d.Round(time.Millisecond).Milliseconds())
}

func ms32(d time.Duration) int32 { return int32(min(ms(d), math.MaxInt32)) }
func ms16(d time.Duration) int16 { return int16(min(ms(d), math.MaxInt16)) }

func duration[T int16 | int32 | int64](ms T) time.Duration {
	return time.Duration(ms) * time.Millisecond
}

// count is n for an integer column.
func count(n int) int32 { return int32(max(math.MinInt32, min(n, math.MaxInt32))) }

// instant is t for a timestamptz column that may not be NULL.
func instant(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: clamp(t), Valid: true}
}
