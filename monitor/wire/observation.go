package wire

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pharos-nostr/pharos/monitor"
)

// observation is a line of a batch. Whose it is stands in the header.
type observation struct {
	Relay      monitor.RelayURL  `json:"relay"`
	Start      time.Time         `json:"start"`
	At         time.Time         `json:"at"`
	Outcome    monitor.Outcome   `json:"outcome"`
	Stage      monitor.Stage     `json:"stage,omitzero"`
	Cause      monitor.Cause     `json:"cause,omitzero"`
	Evidence   string            `json:"evidence,omitempty"`
	NoEOSE     bool              `json:"no_eose,omitempty"`
	Times      stages            `json:"times_ms,omitzero"`
	RTTOpen    millis            `json:"rtt_open_ms,omitzero"`
	RTTRead    millis            `json:"rtt_read_ms,omitzero"`
	RTTWrite   millis            `json:"rtt_write_ms,omitzero"`
	HTTPStatus int               `json:"http_status,omitempty"`
	Address    *netip.AddrPort   `json:"address,omitempty"`
	Lag        millis            `json:"lag_ms,omitzero"`
	RetryAfter millis            `json:"retry_after_ms,omitzero"`
	ServerDate time.Time         `json:"server_date,omitzero"`
	AuthSeen   bool              `json:"auth_seen,omitempty"`
	TLS        *monitor.TLSFacts `json:"tls,omitempty"`
	Info       *info             `json:"info,omitempty"`

	DNS          *monitor.DNSFacts     `json:"dns,omitempty"`
	Capabilities *monitor.Capabilities `json:"capabilities,omitempty"`
	Write        *monitor.WriteFacts   `json:"write,omitempty"`
}

// stages is how long each stage took.
type stages struct {
	DNS     millis `json:"dns,omitzero"`
	TCP     millis `json:"tcp,omitzero"`
	TLS     millis `json:"tls,omitzero"`
	Upgrade millis `json:"upgrade,omitzero"`
	Read    millis `json:"read,omitzero"`
	Write   millis `json:"write,omitzero"`
	Info    millis `json:"info,omitzero"`
}

// info is a NIP-11 document: what was read of it, and the document itself as a
// text, so that it arrives byte for byte however deep it is.
type info struct {
	monitor.Info
	Raw string `json:"raw,omitempty"`
}

// byStage lists the fields of s at the index of their stage; StageNone has none.
func (s *stages) byStage() [monitor.NumStages]*millis {
	return [monitor.NumStages]*millis{
		monitor.StageDNS: &s.DNS, monitor.StageTCP: &s.TCP, monitor.StageTLS: &s.TLS, monitor.StageUpgrade: &s.Upgrade,
		monitor.StageRead: &s.Read, monitor.StageWrite: &s.Write, monitor.StageInfo: &s.Info,
	}
}

// CheckObservation reports why o cannot be part of a batch: monitor.ErrInvalid,
// which names the field.
func CheckObservation(o *monitor.Observation) error {
	if err := canonical(o.Relay); err != nil {
		return named("relay", err)
	}
	switch {
	case !saneTime(o.Start):
		return named("start", invalid("the year %d is impossible", o.Start.UTC().Year()))
	case !saneTime(o.At):
		return named("at", invalid("the year %d is impossible", o.At.UTC().Year()))
	case o.At.Before(o.Start):
		return named("at", invalid("it ended before it began"))
	case o.At.Sub(o.Start) > maxDuration:
		return named("at", invalid("it took longer than %s", maxDuration))
	case o.Outcome == monitor.OutcomeNone, strange(o.Outcome.String()):
		return named("outcome", invalid("there is none"))
	case strange(o.Stage.String()):
		return named("stage", invalid("it is unknown"))
	case strange(o.Cause.String()):
		return named("cause", invalid("it is unknown"))
	case o.HTTPStatus != 0 && (o.HTTPStatus < 100 || o.HTTPStatus > 999):
		return named("http_status", invalid("there is no status %d", o.HTTPStatus))
	case !writableTime(o.ServerDate):
		return named("server_date", invalid("its year does not have four digits"))
	case o.Lag < 0:
		return named("lag_ms", invalid("it is negative"))
	}
	if err := text(o.Evidence, maxEvidence); err != nil {
		return named("evidence", err)
	}
	for stage, d := range o.Times {
		if d < 0 || d > maxDuration || stage == int(monitor.StageNone) && d != 0 {
			return named("times_ms."+monitor.Stage(stage).String(), errMeasured)
		}
	}
	for _, d := range [...]struct {
		name  string
		value time.Duration
	}{{"rtt_open_ms", o.RTTOpen}, {"rtt_read_ms", o.RTTRead}, {"rtt_write_ms", o.RTTWrite}, {"retry_after_ms", o.RetryAfter}} {
		if d.value < 0 || d.value > maxDuration {
			return named(d.name, errMeasured)
		}
	}
	if err := checkTLS(o.TLS); err != nil {
		return named("tls", err)
	}
	return cmp.Or(named("info", checkInfo(o.Info)), named("dns", checkDNS(o.DNS)),
		named("capabilities", checkCapabilities(o.Capabilities)), named("write", checkWrite(o.Write)))
}

var errMeasured = invalid("it is not from 0 to %d ms", maxDuration.Milliseconds())

// strange reports whether a word is what an enumeration prints of a value that
// it does not have.
func strange(word string) bool { return strings.HasPrefix(word, "invalid(") }

func checkTLS(f *monitor.TLSFacts) error {
	if f == nil {
		return nil
	}
	for _, s := range append([]string{f.Version, f.Issuer}, f.Names...) {
		if err := text(s, maxText); err != nil {
			return err
		}
	}
	switch {
	case len(f.Names) > maxNames:
		return invalid("it has more than %d names", maxNames)
	case !writableTime(f.NotAfter):
		return invalid("the year of not_after does not have four digits")
	}
	return nil
}

func checkInfo(i *monitor.Info) error {
	if i == nil {
		return nil
	}
	// What was read of a document is no larger than that.
	for _, list := range [][]string{{i.Name, i.Description, i.Contact, i.Software, i.Version}, i.Countries, i.Languages, i.Tags} {
		for _, s := range list {
			if err := text(s, maxInfoRaw); err != nil {
				return err
			}
		}
	}
	switch {
	case i.Problem != "":
		if len(i.Raw) > 0 {
			return invalid("it has both a problem and a document")
		}
		return text(i.Problem, maxText)
	case len(i.Raw) == 0:
		return invalid("it has neither a problem nor a document")
	case len(i.Raw) > maxInfoRaw:
		return invalid("its document is larger than %d KB", maxInfoRaw>>10)
	case i.Raw[0] != '{', !json.Valid(i.Raw):
		return invalid("its document is no JSON object")
	case i.MinPow != nil && *i.MinPow < 0:
		return invalid("min_pow_difficulty is negative")
	}
	if i.Pubkey != "" {
		if _, err := hex.DecodeString(i.Pubkey); err != nil || len(i.Pubkey) != 64 || i.Pubkey != strings.ToLower(i.Pubkey) {
			return invalid("pubkey is not 64 digits of lower-case hex")
		}
	}
	for n, nip := range i.NIPs {
		if nip < 0 || n > 0 && nip <= i.NIPs[n-1] {
			return invalid("supported_nips are not ascending")
		}
	}
	return text(string(i.Raw), maxInfoRaw)
}

func checkDNS(f *monitor.DNSFacts) error {
	switch {
	case f == nil:
		return nil
	case strange(f.IPv4.String()), strange(f.IPv6.String()):
		return invalid("an address family came to something unknown")
	case len(f.Addresses) > maxAddresses:
		return invalid("it has more than %d addresses", maxAddresses)
	}
	for i, a := range f.Addresses {
		switch {
		case !a.IsValid() || a.Zone() != "" || a.Is4In6():
			return invalid("an address is none, has a zone or maps an IPv4 one")
		case i > 0 && !f.Addresses[i-1].Less(a):
			return invalid("its addresses are not ascending")
		}
	}
	return nil
}

func checkCapabilities(c *monitor.Capabilities) error {
	if c == nil {
		return nil
	}
	for _, f := range [...]monitor.Finding{c.Auth, c.Count, c.Search, c.Negentropy, c.EOSE, c.Filters, c.Limit, c.Until} {
		if strange(f.String()) {
			return invalid("a finding is unknown")
		}
	}
	if len(c.Sample) > maxSample || strings.Trim(c.Sample, "0123456789abcdef") != "" {
		return invalid("sample is not at most %d digits of lower-case hex", maxSample)
	}
	return nil
}

func checkWrite(w *monitor.WriteFacts) error {
	switch {
	case w == nil:
		return nil
	case strange(w.Result.String()):
		return invalid("its result is unknown")
	case strings.ContainsFunc(w.Reason, unicode.IsControl):
		return invalid("its reason is not one line")
	}
	return text(w.Reason, maxReason)
}

// appendObservation adds the line of o.
func appendObservation(w *bytes.Buffer, o *monitor.Observation) error {
	if err := CheckObservation(o); err != nil {
		return err
	}
	line := observation{
		Relay: o.Relay, Start: o.Start.UTC(), At: o.At.UTC(),
		Outcome: o.Outcome, Stage: o.Stage, Cause: o.Cause, Evidence: o.Evidence, NoEOSE: o.NoEOSE,
		RTTOpen: millis(o.RTTOpen), RTTRead: millis(o.RTTRead), RTTWrite: millis(o.RTTWrite),
		HTTPStatus: o.HTTPStatus, Lag: millis(min(o.Lag, maxDuration)), RetryAfter: millis(o.RetryAfter), AuthSeen: o.AuthSeen, TLS: o.TLS,
		DNS: o.DNS, Capabilities: o.Capabilities, Write: o.Write,
	}
	for stage, field := range line.Times.byStage() {
		if field != nil {
			*field = millis(o.Times[stage])
		}
	}
	if !o.ServerDate.IsZero() {
		line.ServerDate = o.ServerDate.UTC()
	}
	if o.Address.IsValid() {
		a := netip.AddrPortFrom(o.Address.Addr().WithZone(""), o.Address.Port())
		line.Address = &a
	}
	if o.Info != nil {
		line.Info = &info{*o.Info, string(o.Info.Raw)}
	}
	return appendLine(w, &line)
}

// decodeObservation reads a line.
func decodeObservation(b []byte, vantage string) (monitor.Observation, error) {
	var line observation
	if err := unmarshal(b, &line, true); err != nil {
		return monitor.Observation{}, err
	}
	o := monitor.Observation{
		Relay: line.Relay, Vantage: vantage, Start: line.Start.UTC(), At: line.At.UTC(),
		Outcome: line.Outcome, Stage: line.Stage, Cause: line.Cause, Evidence: line.Evidence, NoEOSE: line.NoEOSE,
		RTTOpen: time.Duration(line.RTTOpen), RTTRead: time.Duration(line.RTTRead), RTTWrite: time.Duration(line.RTTWrite),
		HTTPStatus: line.HTTPStatus, Lag: time.Duration(line.Lag), RetryAfter: time.Duration(line.RetryAfter), AuthSeen: line.AuthSeen, TLS: line.TLS,
		DNS: line.DNS, Capabilities: line.Capabilities, Write: line.Write,
	}
	for stage, field := range line.Times.byStage() {
		if field != nil {
			o.Times[stage] = time.Duration(*field)
		}
	}
	if !line.ServerDate.IsZero() {
		o.ServerDate = line.ServerDate.UTC()
	}
	if line.Address != nil {
		if !line.Address.IsValid() || line.Address.Addr().Zone() != "" {
			return monitor.Observation{}, named("address", invalid("it is no address with a port"))
		}
		o.Address = *line.Address
	}
	if line.TLS != nil {
		line.TLS.NotAfter = line.TLS.NotAfter.UTC()
	}
	if line.Info != nil {
		o.Info = &line.Info.Info
		if line.Info.Raw != "" {
			o.Info.Raw = []byte(line.Info.Raw)
		}
	}
	if o.Lag > maxDuration {
		return monitor.Observation{}, named("lag_ms", errMeasured)
	}
	return o, CheckObservation(&o)
}

// appendLine adds v as one line of JSON.
func appendLine(w *bytes.Buffer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// known are the words that an impairment of a vantage may be.
var known = []monitor.Impairment{
	monitor.ImpairedNetwork, monitor.ImpairedSuspended, monitor.ImpairedClock, monitor.ImpairedSpike,
	monitor.ImpairedLag, monitor.ImpairedDescriptors, monitor.ImpairedRoots,
}

// ending are those whose end is a recovery.
var ending = known[:4]

func checkImpairment(i monitor.Impairment, of []monitor.Impairment) error {
	if !slices.Contains(of, i) {
		return invalid("%s is unknown", short(string(i)))
	}
	return nil
}
