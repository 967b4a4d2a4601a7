package api

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pharos-nostr/pharos/monitor"
)

// format is a way to write the live list.
type format uint8

// The formats; those that Accept can ask for in the order in which we prefer
// them where a client does not mind.
const (
	formatJSON format = iota
	formatText
	formatCSV
	formatNDJSON
	formatURLs
	formatEvent
	numFormats = int(formatEvent) + 1
)

// formats tells of each its word, its content type, and the media type that
// asks for it in Accept ("" = only the parameter does).
var formats = [numFormats]struct{ name, contentType, accept string }{
	formatJSON:   {"json", "application/json", "application/json"},
	formatText:   {"text", "text/plain; charset=utf-8", "text/plain"},
	formatCSV:    {"csv", "text/csv; charset=utf-8; header=present", "text/csv"},
	formatNDJSON: {"ndjson", "application/x-ndjson", "application/x-ndjson"},
	formatURLs:   {"urls", "application/json", ""},
	formatEvent:  {"event", "application/json", ""},
}

// formatNamed finds a format by its word.
func formatNamed(name string) (format, bool) {
	for f := range formats {
		if formats[f].name == name {
			return format(f), true
		}
	}
	return 0, false
}

// acceptable picks the format that Accept likes best (RFC 9110 12.5.1): of
// every format the most specific range decides. Without the header it is JSON;
// false where nothing suits.
func acceptable(header []string) (format, bool) {
	type rank struct{ specific, q int }
	var ranks [numFormats]rank
	asked := false
	for _, line := range header {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "" {
				continue
			}
			asked = true
			for f := range formats {
				specific := 0
				kind, _, _ := strings.Cut(formats[f].accept, "/")
				switch name {
				case formats[f].accept:
					specific = 3
				case kind + "/*":
					specific = 2
				case "*/*":
					specific = 1
				}
				if q := qvalue(params); formats[f].accept != "" && specific > ranks[f].specific {
					ranks[f] = rank{specific, q}
				}
			}
		}
	}
	if !asked {
		return formatJSON, true
	}
	best, most := formatJSON, 0
	for f, r := range ranks {
		if r.q > most {
			best, most = format(f), r.q
		}
	}
	return best, most > 0
}

// acceptList names the media types that Accept may ask for.
func acceptList() string {
	var names []string
	for _, f := range formats {
		if f.accept != "" {
			names = append(names, f.accept)
		}
	}
	return strings.Join(names, ", ")
}

// encodeURLs writes a bare JSON array.
func encodeURLs(relays []*monitor.OnlineRelay) ([]byte, error) {
	urls := make([]string, len(relays))
	for i, r := range relays {
		urls[i] = string(r.URL)
	}
	return encode(urls)
}

// encodeText writes one URL per line.
func encodeText(relays []*monitor.OnlineRelay) ([]byte, error) {
	var b bytes.Buffer
	for _, r := range relays {
		b.WriteString(string(r.URL))
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// encodeNDJSON writes one JSON object per line.
func encodeNDJSON(relays []*monitor.OnlineRelay, urlsOnly bool) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, r := range relays {
		var line any = liveURL{string(r.URL)}
		if !urlsOnly {
			line = newLiveRelay(r)
		}
		if err := enc.Encode(line); err != nil {
			return nil, fmt.Errorf("encode relay %s: %w", r.URL, err)
		}
	}
	return b.Bytes(), nil
}

// csvColumns are those of format=csv, named as the fields of JSON. Lists are
// joined by spaces; what is not known is empty.
var csvColumns = []string{
	"url", "state", "since", "last_success", "rtt_open_ms", "rtt_read_ms", "network", "vantages_up", "vantages_total",
	"marks", "auth", "payment", "writes", "nips", "country",
}

// encodeCSV writes RFC 4180, with a line of column names.
func encodeCSV(relays []*monitor.OnlineRelay, urlsOnly bool) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	columns := csvColumns
	if urlsOnly {
		columns = columns[:1]
	}
	// Write keeps the first error for Error.
	_ = w.Write(columns)
	for _, r := range relays {
		_ = w.Write(csvRow(r)[:len(columns)])
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("encode CSV: %w", err)
	}
	return b.Bytes(), nil
}

// placeColumns are those of /v1/georelays.csv, as its readers know them.
var placeColumns = []string{"Relay URL", "Latitude", "Longitude"}

// encodePlaces writes the relays whose coordinates are known, as CSV with four
// decimals: ten metres, which is finer than any of them is right. A URL is
// canonical, and so begins with ws: no program takes it for a formula.
func encodePlaces(online []monitor.OnlineRelay) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	// Adding 0 makes 0 of -0.
	degrees := func(d float64) string { return strconv.FormatFloat(math.Round(d*1e4)/1e4+0, 'f', -1, 64) }
	// Write keeps the first error for Error.
	_ = w.Write(placeColumns)
	for i := range online {
		if r := &online[i]; r.Located {
			_ = w.Write([]string{string(r.URL), degrees(r.Latitude), degrees(r.Longitude)})
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return nil, fmt.Errorf("encode CSV: %w", err)
	}
	return b.Bytes(), nil
}

func csvRow(o *monitor.OnlineRelay) []string {
	r := newLiveRelay(o)
	nips := make([]string, len(r.NIPs))
	for i, n := range r.NIPs {
		nips[i] = strconv.Itoa(n)
	}
	return []string{
		r.URL, r.State, text(r.Since), text(r.LastSuccess), number(r.RTTOpenMS), number(r.RTTReadMS), r.Network,
		strconv.Itoa(r.VantagesUp), strconv.Itoa(r.VantagesTotal), strings.Join(r.Marks, " "),
		strconv.FormatBool(r.Auth), strconv.FormatBool(r.Payment), strconv.FormatBool(r.Writes), strings.Join(nips, " "), text(r.Country),
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
