package publisher

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/monitor/nostr"
)

// Limits of what a report repeats of a relay's own words, so that it stays
// under 256 tags and 32 KB whatever the document holds (reports.md 2, 7).
const (
	maxContent   = 8 << 10 // bytes
	maxNIPs      = 120
	maxKinds     = 50
	maxTopics    = 20
	maxLanguages = 10
	maxTopic     = 64 // bytes
	maxRTT       = 60000
)

const (
	statusLabels = "nip66.status"
	snapshotD    = "nip66-online"
)

var checkNames = []string{"open", "read", "write", "auth", "nip11", "dns", "geo"}

// buildReport is the whole kind 30166 but for its time, its expiration and its
// signature (reports.md 1–7).
func buildReport(src *monitor.ReportSource) (nostr.Event, fingerprint) {
	ev := nostr.Event{Kind: nostr.KindReport, Content: reportContent(src.Info)}
	t := make(nostr.Tags, 0, 48)
	t = append(t,
		nostr.Tag{"d", string(src.URL)},
		nostr.Tag{"n", string(src.Network)},
		nostr.Tag{"rtt-open", rtt(src.RTTOpen)})
	if src.RTTRead > 0 {
		t = append(t, nostr.Tag{"rtt-read", rtt(src.RTTRead)})
	}
	if src.RTTWrite > 0 {
		t = append(t, nostr.Tag{"rtt-write", rtt(src.RTTWrite)})
	}
	t = append(t, nostr.Tag{"L", statusLabels}, nostr.Tag{"l", "online", statusLabels})
	t = appendRequirements(t, src)
	for _, n := range claimedNIPs(src) {
		t = append(t, nostr.Tag{"N", strconv.Itoa(n)})
	}
	if src.Info != nil {
		for _, k := range acceptedKinds(src.Info.Raw) {
			t = append(t, nostr.Tag{"k", k})
		}
		for _, topic := range topics(src.Info.Tags) {
			t = append(t, nostr.Tag{"t", topic})
		}
		if langs := languages(src.Info.Languages); len(langs) > 0 {
			t = append(t, nostr.Tag{"L", "ISO-639-1"})
			for _, l := range langs {
				t = append(t, nostr.Tag{"l", l, "ISO-639-1"})
			}
		}
	}
	if c := strings.ToUpper(src.Country); isLetters(c, 2) {
		t = append(t,
			nostr.Tag{"L", "countryCode"}, nostr.Tag{"l", c, "countryCode"},
			nostr.Tag{"L", "ISO-3166-1"}, nostr.Tag{"l", c, "ISO-3166-1"})
	}
	if src.Geohash != "" {
		t = append(t, nostr.Tag{"g", src.Geohash})
	}
	ev.Tags = t
	return ev, fingerprintOf(&ev)
}

// rtt writes whole milliseconds, 1 to 60000 (reports.md 3).
func rtt(ms int) string { return strconv.Itoa(min(max(ms, 1), maxRTT)) }

// appendRequirements adds exactly one polarity of each R; what a probe saw
// wins over the document, and what nobody said is "!" (reports.md 5).
func appendRequirements(t nostr.Tags, src *monitor.ReportSource) nostr.Tags {
	info := src.Info
	if info == nil {
		info = new(monitor.Info)
	}
	said := func(b *bool) bool { return b != nil && *b }
	for _, r := range []struct {
		name string
		need bool
	}{
		{"auth", src.AuthSeen || said(info.AuthRequired)},
		{"payment", src.PaymentSeen || said(info.PaymentRequired)},
		{"pow", info.MinPow != nil && *info.MinPow > 0},
		{"writes", src.RestrictedWrites || said(info.RestrictedWrites)},
	} {
		if !r.need {
			r.name = "!" + r.name
		}
		t = append(t, nostr.Tag{"R", r.name})
	}
	return t
}

// claimedNIPs are the document's, ascending and distinct, without those that a
// probe disproved.
func claimedNIPs(src *monitor.ReportSource) []int {
	if src.Info == nil {
		return nil
	}
	out := make([]int, 0, len(src.Info.NIPs))
	for _, n := range src.Info.NIPs {
		if n >= 0 && !slices.Contains(src.DisprovedNIPs, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxNIPs)]
}

// acceptedKinds reads the document's retention, which is the only place of
// NIP-11 that names kinds: one kept for no time or in no number is refused
// ("!1"), another accepted. A kind named both ways is left out, and so are
// entries of any other shape and ranges of more than ten kinds.
func acceptedKinds(raw []byte) []string {
	var doc struct {
		Retention []json.RawMessage `json:"retention"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &doc) != nil {
		return nil
	}
	accepted := map[int]bool{}
	both := map[int]bool{}
	for _, r := range doc.Retention {
		var e struct {
			Kinds []json.RawMessage `json:"kinds"`
			Time  *float64          `json:"time"`
			Count *float64          `json:"count"`
		}
		if json.Unmarshal(r, &e) != nil {
			continue
		}
		keeps := (e.Time == nil || *e.Time > 0) && (e.Count == nil || *e.Count > 0)
		for _, k := range e.Kinds {
			for _, n := range kindRange(k) {
				if was, ok := accepted[n]; ok && was != keeps {
					both[n] = true
				}
				accepted[n] = keeps
			}
		}
	}
	var nums []int
	for n := range accepted {
		if !both[n] {
			nums = append(nums, n)
		}
	}
	slices.Sort(nums)
	var out []string
	for _, n := range nums[:min(len(nums), maxKinds)] {
		s := strconv.Itoa(n)
		if !accepted[n] {
			s = "!" + s
		}
		out = append(out, s)
	}
	return out
}

// kindRange reads 1 or [5, 7].
func kindRange(raw json.RawMessage) []int {
	var one int
	if json.Unmarshal(raw, &one) == nil {
		if one >= 0 && one <= 65535 {
			return []int{one}
		}
		return nil
	}
	var pair []int
	if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 || pair[0] < 0 || pair[1] > 65535 || pair[1]-pair[0] > 9 {
		return nil
	}
	var out []int
	for n := pair[0]; n <= pair[1]; n++ {
		out = append(out, n)
	}
	return out
}

// topics are the document's tags, each one short line of text.
func topics(tags []string) []string {
	var out []string
	for _, s := range tags {
		s = plain(s)
		if s != "" && len(s) <= maxTopic && !slices.Contains(out, s) {
			out = append(out, s)
		}
		if len(out) == maxTopics {
			break
		}
	}
	return out
}

// languages are the two-letter parts of the document's language tags; "*" and
// longer codes say nothing in ISO 639-1.
func languages(tags []string) []string {
	var out []string
	for _, s := range tags {
		s, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(s)), "-")
		if isLetters(s, 2) && !slices.Contains(out, s) {
			out = append(out, s)
		}
		if len(out) == maxLanguages {
			break
		}
	}
	return out
}

func isLetters(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// plain makes one line of valid UTF-8 without control characters: PostgreSQL
// refuses NUL in jsonb, and a reader's terminal deserves better.
func plain(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}

// standardFields are NIP-11's, in the order in which they are kept when the
// document is too large: the ones that clients decide by come first.
var standardFields = []string{
	"name", "pubkey", "contact", "supported_nips", "software", "version", "limitation", "fees", "payments_url",
	"relay_countries", "language_tags", "tags", "posting_policy", "privacy_policy", "terms_of_service", "self",
	"icon", "banner", "retention", "description",
}

// reportContent is the document as a JSON object of at most 8 KB; of a larger
// one the standard fields, as many as fit; "" when there is none (reports.md 7).
func reportContent(info *monitor.Info) string {
	if info == nil || info.Problem != "" {
		return ""
	}
	raw := bytes.TrimSpace(info.Raw)
	if len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
		return ""
	}
	if len(raw) <= maxContent {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	out := []byte{'{'}
	for _, name := range standardFields {
		value, ok := fields[name]
		if !ok {
			continue
		}
		var compact bytes.Buffer
		if json.Compact(&compact, value) != nil {
			continue
		}
		field := compact.Bytes()
		room := maxContent - len(out) - len(name) - len(`"":,}`)
		if len(field) > room {
			if field = shorten(value, room); field == nil {
				continue
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = strconv.AppendQuote(out, name)
		out = append(out, ':')
		out = append(out, field...)
	}
	return strings.ToValidUTF8(string(append(out, '}')), "")
}

// shorten cuts a JSON string to fit into room bytes; nil when it is no string
// or hardly anything would be left.
func shorten(value json.RawMessage, room int) []byte {
	var s string
	if room < 64 || json.Unmarshal(value, &s) != nil {
		return nil
	}
	// An escape takes up to six bytes; halving until it fits ends soon.
	for n := min(len(s), room); n > 0; n /= 2 {
		cut := s[:n]
		for len(cut) > 0 && !utf8.ValidString(cut) {
			cut = cut[:len(cut)-1]
		}
		b, err := json.Marshal(cut + "…")
		if err == nil && len(b) <= room {
			return b
		}
	}
	return nil
}

// buildSnapshot is the online set under one signature; urls sorted.
func buildSnapshot(urls []monitor.RelayURL, generation uint64, newestCheck, expires time.Time) nostr.Event {
	t := make(nostr.Tags, 0, len(urls)+5)
	t = append(t,
		nostr.Tag{"d", snapshotD},
		nostr.Tag{"title", "Online relays"},
		nostr.Tag{"count", strconv.Itoa(len(urls))},
		nostr.Tag{"generation", strconv.FormatUint(generation, 10)})
	if !newestCheck.IsZero() {
		t = append(t, nostr.Tag{"newest_check", strconv.FormatInt(newestCheck.Unix(), 10)})
	}
	t = append(t, expirationTag(expires.Unix()))
	for _, u := range urls {
		t = append(t, nostr.Tag{"relay", string(u)})
	}
	return nostr.Event{Kind: nostr.KindRelaySet, Tags: t}
}

// membersOf reads a snapshot back, sorted.
func membersOf(ev *nostr.Event) []monitor.RelayURL {
	var out []monitor.RelayURL
	for _, t := range ev.Tags {
		if len(t) >= 2 && t[0] == "relay" {
			out = append(out, monitor.RelayURL(t[1]))
		}
	}
	slices.Sort(out)
	return out
}

// buildAnnouncement is the kind 10166: what we check and how often. The
// frequency is in whole seconds, and there is exactly one timeout, of two
// items, because readers disagree on the order of the longer form.
func buildAnnouncement(c *Config) nostr.Event {
	t := nostr.Tags{
		{"frequency", strconv.FormatInt(int64(c.Frequency/time.Second), 10)},
		{"timeout", strconv.FormatInt(c.Timeout.Milliseconds(), 10)},
	}
	for _, name := range checkNames {
		if slices.Contains(c.Checks, name) {
			t = append(t, nostr.Tag{"c", name})
		}
	}
	t = append(t, nostr.Tag{"k", strconv.Itoa(nostr.KindReport)})
	for _, n := range []monitor.Network{monitor.Clearnet, monitor.Tor, monitor.I2P, monitor.Loki} {
		if slices.Contains(c.Networks, n) {
			t = append(t, nostr.Tag{"n", string(n)})
		}
	}
	if c.Geohash != "" {
		t = append(t, nostr.Tag{"g", c.Geohash})
	}
	return nostr.Event{Kind: nostr.KindAnnouncement, Tags: t}
}

// buildProfile is the monitor's kind 0.
func buildProfile(c *Config) nostr.Event {
	about := "A Pharos relay monitor: which Nostr relays are online, checked and corroborated, as NIP-66 reports."
	profile := struct {
		Name    string `json:"name"`
		About   string `json:"about"`
		Contact string `json:"contact,omitempty"`
		Bot     bool   `json:"bot"` // NIP-24
	}{plain(c.Name), about, plain(c.Contact), true}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(profile) // strings and a bool always encode
	return nostr.Event{Kind: nostr.KindProfile, Tags: nostr.Tags{}, Content: strings.TrimSpace(b.String())}
}

// buildRelayList is the kind 10002: our own relay first, written as every
// relay is (relay-url.md).
func buildRelayList(c *Config) nostr.Event {
	url := c.PublicURL
	if url == "" {
		url = c.ListenURL
	}
	if u, err := monitor.Canonical(url); err == nil {
		url = string(u)
	}
	return nostr.Event{Kind: nostr.KindRelayList, Tags: nostr.Tags{{"r", url}}}
}

func expirationTag(unix int64) nostr.Tag {
	return nostr.Tag{"expiration", strconv.FormatInt(unix, 10)}
}

// fingerprint tells whether an event says something else than another one:
// everything but its times and measured durations.
type fingerprint uint64

func fingerprintOf(ev *nostr.Event) fingerprint {
	h := fnv.New64a()
	for _, t := range ev.Tags {
		if len(t) == 0 || t[0] == "expiration" || strings.HasPrefix(t[0], "rtt-") {
			continue
		}
		for _, s := range t {
			_, _ = h.Write([]byte(s))
			_, _ = h.Write([]byte{0})
		}
		_, _ = h.Write([]byte{1})
	}
	_, _ = h.Write([]byte(ev.Content))
	return fingerprint(h.Sum64())
}

// fold is what two URLs have in common that differ only in the case of the
// host or in trailing slashes (reports.md 1).
func fold(u monitor.RelayURL) string {
	s := strings.TrimRight(string(u), "/")
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	host, path, _ := strings.Cut(rest, "/")
	lower := strings.ToLower(host)
	if lower == host {
		return s // canonical already: no allocation
	}
	if path != "" {
		path = "/" + path
	}
	return scheme + "://" + lower + path
}

// hashUnit maps a text to [0, 1), the same in every process.
func hashUnit(s string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	x := h.Sum64()
	// FNV leaves the high bits of similar texts alike; mix them (splitmix64).
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
