package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// encode writes JSON as the API does: URLs stay readable.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b.Bytes(), nil
}

// utc writes a time as the API does: RFC 3339, UTC, whole seconds.
func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// orNull gives nil for a zero value, so that what is not known is null.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// utcOrNull is null for a time that has not been.
func utcOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := utc(t)
	return &s
}

// millis writes a duration in whole milliseconds; 0 is null, as not measured.
func millis(d time.Duration) *int64 { return orNull(d.Milliseconds()) }
