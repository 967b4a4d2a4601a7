package probe_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
	"github.com/pharos-nostr/pharos/probe"
	"github.com/pharos-nostr/pharos/probe/relaytest"
)

// saying is a sentence of evidence, HOST standing for the relay's host, and how
// long a probe without NIP-11 takes at the default limits.
type saying struct {
	evidence string
	took     time.Duration
}

// farmSays has what is said of each line of farm-behaviours.tsv.
var farmSays = map[string]saying{
	"1 ws":         {"HOST answered the subscription", 0},
	"1 wss":        {"HOST answered the subscription", 0},
	"2 ws":         {"HOST answered the subscription", 4 * time.Second},
	"3 ws":         {"HOST reset the connection during the upgrade to WebSocket", 0},
	"3 wss":        {"HOST reset the connection during the TLS handshake", 0},
	"4 ws":         {"HOST did not complete the upgrade to WebSocket within 4s", 4 * time.Second},
	"4 wss":        {"HOST did not complete the TLS handshake within 4s", 4 * time.Second},
	"5 ws":         {"HOST answered the upgrade with HTTP 502 Bad Gateway", 0},
	"6 ws":         {"HOST answered the upgrade with HTTP 403 Forbidden", 0},
	"7 ws":         {"HOST answered the upgrade with HTTP 429 Too Many Requests, to be asked again after 2m0s", 0},
	"8 ws":         {"HOST closed the connection with code 1008 before it answered: “blocked”", 0},
	"9 ws":         {"HOST closed the connection before it answered", 0},
	"10 ws":        {"HOST closed the subscription: “auth-required: we only serve members”", 0},
	"11 ws":        {"HOST closed the subscription: “rate-limited: slow down”", 0},
	"12 ws":        {"HOST sent text that is not Nostr: “<html>not nostr</html>”", 0},
	"13 ws":        {"HOST sent bytes that are no WebSocket frame", 0},
	"14 ws":        {"HOST answered the subscription", 0},
	"15 ws":        {"HOST did not complete the upgrade to WebSocket within 4s", 4 * time.Second},
	"16 ws":        {"HOST sent an event, but never said that there are no more", 5 * time.Second},
	"17 ws":        {"HOST sent an event, but never said that there are no more", 0},
	"18 ws":        {"HOST answered the upgrade with HTTP 301 Moved Permanently", 0},
	"19 ws":        {"HOST answered the subscription", 0},
	"20 ws":        {"HOST answered only with a notice: “ERROR: bad req”", 5 * time.Second},
	"21 ws":        {"HOST answered the upgrade with HTTP 101 and a wrong Sec-WebSocket-Accept", 0},
	"22 ws":        {"HOST answered the subscription", 0},
	"23 ws":        {"HOST answered the subscription", 0},
	"24 ws":        {"HOST answered the subscription", 0},
	"25 ws":        {"HOST answered the subscription", 0},
	"26 ws":        {"HOST sent or announced more than 256 KB before a first event", 0},
	"27 ws":        {"HOST answered the subscription", 0},
	"28 ws":        {"HOST answered the subscription", 0},
	"29 ws":        {"HOST answered the subscription", 0},
	"30 wss":       {"TLS certificate of HOST expired on 1999-12-31", 0},
	"31 wss":       {"TLS certificate of HOST was issued by CN=relaytest relay, which is no trusted authority", 0},
	"32 wss":       {"TLS certificate of HOST is for other.example.com", 0},
	"33 wss":       {"HOST did not complete the TLS handshake within 4s", 4 * time.Second},
	"34 wss":       {"HOST refused the TLS handshake: tls: handshake failure", 0},
	"35 wss":       {"HOST answered the subscription", 0},
	"36 ws":        {"HOST answered the upgrade with HTTP 502 Bad Gateway", 0},
	"37 ws":        {"HOST opened the WebSocket and then said nothing for 5s", 5 * time.Second},
	"38 ws":        {"HOST answered the subscription", 0},
	"39 ws":        {"HOST opened the WebSocket and then said nothing for 5s", 5 * time.Second},
	"port 7998 ws": {"HOST did not answer at HOST:80 within 4s", 4 * time.Second},
	"port 7999 ws": {"HOST refused the connection at HOST:80", 0},
}

// hostileRelays are relays beyond the farm's, and what a probe makes of them:
// outcome, stage and cause; the evidence; the time that a probe without NIP-11
// takes at the default limits; whether EOSE was missing. “ID” in the evidence
// is the subscription's.
var hostileRelays = []struct {
	name   string
	b      relaytest.Behaviour
	scheme string
	want   string
	saying string
	took   time.Duration
	noEOSE bool
}{
	{"InfoCloses", relaytest.InfoCloses, "ws", "ok/read/-", "HOST answered the subscription", 0, false},
	{"ResetLater", relaytest.ResetLater, "ws", "failed/read/closed_early", "HOST reset the connection before it answered", 0, false},
	{"HeadFlood", relaytest.HeadFlood, "ws", "failed/upgrade/oversized", "HOST sent far too much during the upgrade to WebSocket", 0, false},
	{"TLSHybrid", relaytest.TLSHybrid, "wss", "ok/read/-", "HOST answered the subscription", 0, false},
	{"TLSMutual", relaytest.TLSMutual, "wss", "failed/upgrade/tls_handshake", "HOST broke TLS off during the upgrade to WebSocket: remote error: tls: certificate required", 0, false},
	{"CloseAtRequest", relaytest.CloseAtRequest, "ws", "failed/upgrade/closed_early", "HOST closed the connection during the upgrade to WebSocket", 0, false},
	{"TLSDrip", relaytest.TLSDrip, "wss", "failed/tls/timeout", "HOST did not complete the TLS handshake within 4s", 4 * time.Second, false},
	{"TLSHelloOnly", relaytest.TLSHelloOnly, "wss", "failed/tls/timeout", "HOST did not complete the TLS handshake within 4s", 4 * time.Second, false},
	{"TLSCertOnly", relaytest.TLSCertOnly, "wss", "failed/tls/timeout", "HOST did not complete the TLS handshake within 4s", 4 * time.Second, false},
	{"TLSReset", relaytest.TLSReset, "wss", "failed/tls/reset", "HOST reset the connection during the TLS handshake", 0, false},
	{"TLSClose", relaytest.TLSClose, "wss", "failed/tls/tls_handshake", "HOST closed the connection during the TLS handshake", 0, false},
	{"TLSHalfRecord", relaytest.TLSHalfRecord, "wss", "failed/tls/tls_handshake", "HOST closed the connection during the TLS handshake", 0, false},
	{"TLSGarbage", relaytest.TLSGarbage, "wss", "failed/tls/tls_handshake", "HOST does not speak TLS on this port", 0, false},
	{"TLSGiantRecord", relaytest.TLSGiantRecord, "wss", "failed/tls/tls_handshake", "HOST does not speak TLS on this port", 0, false},
	{"TLSWarnings", relaytest.TLSWarnings, "wss", "failed/tls/tls_handshake", "TLS handshake with HOST failed: tls: too many ignored records", 0, false},
	{"TLSGiantChain", relaytest.TLSGiantChain, "wss", "failed/tls/tls_handshake", "TLS handshake with HOST failed: tls: handshake message of length N bytes exceeds maximum of 262144 bytes", 0, false},
	{"TLSOld", relaytest.TLSOld, "wss", "failed/tls/tls_handshake", "HOST refused the TLS handshake: tls: protocol version not supported", 0, false},
	{"TLSMutual12", relaytest.TLSMutual12, "wss", "failed/tls/tls_handshake", "HOST refused the TLS handshake: tls: handshake failure", 0, false},
	{"TLSChainExpired", relaytest.TLSChainExpired, "wss", "failed/tls/tls_expired", "a CA certificate in the chain of HOST expired on 1999-12-31", 0, false},
	{"TLSForeignCA", relaytest.TLSForeignCA, "wss", "failed/tls/tls_untrusted", "TLS certificate of HOST was issued by CN=foreign CA,O=Example [2J, which is no trusted authority", 0, false},
	{"TLSIPOnly", relaytest.TLSIPOnly, "wss", "ok/read/-", "HOST answered the subscription", 0, false},
	{"TLSNoNames", relaytest.TLSNoNames, "wss", "failed/tls/tls_name", "TLS certificate of HOST is for no name at all", 0, false},
	{"TLSNotYet", relaytest.TLSNotYet, "wss", "failed/tls/tls_expired", "TLS certificate of HOST is not valid before 2000-01-02", 0, false},
	{"TLSClientOnly", relaytest.TLSClientOnly, "wss", "failed/tls/tls_untrusted", "TLS certificate of HOST cannot be trusted: x509: certificate specifies an incompatible key usage", 0, false},
	{"TLSPlainLater", relaytest.TLSPlainLater, "wss", "failed/upgrade/tls_handshake", "HOST broke TLS off during the upgrade to WebSocket: tls: received record with version 5454 when expecting version 303", 0, false},
	{"TLSTinyRecords", relaytest.TLSTinyRecords, "wss", "ok/read/-", "HOST sent an event, but never said that there are no more", 0, true},
	{"TLSHelloRequests", relaytest.TLSHelloRequests, "wss", "failed/tls/tls_handshake", "TLS handshake with HOST failed: tls: received unexpected handshake message of type *tls.helloRequestMsg when waiting for *tls.serverHelloMsg", 0, false},
	{"HalfHead", relaytest.HalfHead, "ws", "failed/upgrade/timeout", "HOST did not complete the upgrade to WebSocket within 4s", 4 * time.Second, false},
	{"HalfHeadReset", relaytest.HalfHeadReset, "ws", "failed/upgrade/reset", "HOST reset the connection during the upgrade to WebSocket", 0, false},
	{"HalfHeadClose", relaytest.HalfHeadClose, "ws", "failed/upgrade/closed_early", "HOST closed the connection during the upgrade to WebSocket", 0, false},
	{"StatusFlood", relaytest.StatusFlood, "ws", "failed/upgrade/oversized", "HOST sent far too much during the upgrade to WebSocket", 0, false},
	{"FieldFlood", relaytest.FieldFlood, "ws", "failed/upgrade/oversized", "HOST sent far too much during the upgrade to WebSocket", 0, false},
	{"InterimFlood", relaytest.InterimFlood, "ws", "failed/upgrade/oversized", "HOST sent far too much during the upgrade to WebSocket", 0, false},
	{"InterimFirst", relaytest.InterimFirst, "ws", "ok/read/-", "HOST answered the subscription", 0, false},
	{"BodyFlood", relaytest.BodyFlood, "ws", "failed/upgrade/http_other", "HOST answered the upgrade with HTTP 200 OK", 0, false},
	{"HTTP09", relaytest.HTTP09, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with something that is not HTTP", 0, false},
	{"HTTP2", relaytest.HTTP2, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with something that is not HTTP", 0, false},
	{"Banner", relaytest.Banner, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with something that is not HTTP", 0, false},
	{"HTTP200", relaytest.HTTP200, "ws", "failed/upgrade/http_other", "HOST answered the upgrade with HTTP 200 OK", 0, false},
	{"HTTP401", relaytest.HTTP401, "ws", "restricted/upgrade/http_401", "HOST answered the upgrade with HTTP 401 Unauthorized", 0, false},
	{"HTTP402", relaytest.HTTP402, "ws", "restricted/upgrade/payment", "HOST answered the upgrade with HTTP 402 Payment Required", 0, false},
	{"HTTP404", relaytest.HTTP404, "ws", "failed/upgrade/http_404", "HOST answered the upgrade with HTTP 404 Not Found", 0, false},
	{"HTTP407", relaytest.HTTP407, "ws", "restricted/upgrade/http_407", "HOST answered the upgrade with HTTP 407 Proxy Authentication Required", 0, false},
	{"HTTP451", relaytest.HTTP451, "ws", "restricted/upgrade/http_451", "HOST answered the upgrade with HTTP 451 Unavailable For Legal Reasons", 0, false},
	{"HTTP500", relaytest.HTTP500, "ws", "failed/upgrade/http_5xx", "HOST answered the upgrade with HTTP 500 Internal Server Error", 0, false},
	{"Challenge", relaytest.Challenge, "ws", "restricted/upgrade/challenge", "HOST showed a challenge page for browsers (HTTP 403 Forbidden)", 0, false},
	{"RetryDate", relaytest.RetryDate, "ws", "restricted/upgrade/http_429", "HOST answered the upgrade with HTTP 429 Too Many Requests, to be asked again after 10m0s", 0, false},
	{"RetryGarbage", relaytest.RetryGarbage, "ws", "restricted/upgrade/http_429", "HOST answered the upgrade with HTTP 429 Too Many Requests", 0, false},
	{"RetryHuge", relaytest.RetryHuge, "ws", "restricted/upgrade/http_429", "HOST answered the upgrade with HTTP 429 Too Many Requests, to be asked again after 1h0m0s", 0, false},
	{"RedirectLoop", relaytest.RedirectLoop, "ws", "failed/upgrade/http_other", "HOST answered the upgrade with HTTP 301 Moved Permanently", 0, false},
	{"NoUpgradeHeader", relaytest.NoUpgradeHeader, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with HTTP 101 and no Upgrade: websocket", 0, false},
	{"UnaskedExtension", relaytest.UnaskedExtension, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with HTTP 101 and an extension or a subprotocol that nobody offered", 0, false},
	{"UnaskedProtocol", relaytest.UnaskedProtocol, "ws", "failed/upgrade/upgrade_invalid", "HOST answered the upgrade with HTTP 101 and an extension or a subprotocol that nobody offered", 0, false},
	{"Pipelined", relaytest.Pipelined, "ws", "ok/read/-", "HOST answered the subscription", 0, false},
	{"Deflated", relaytest.Deflated, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"DeflateBomb", relaytest.DeflateBomb, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"ReservedBits", relaytest.ReservedBits, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"MaskedFrame", relaytest.MaskedFrame, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"ReservedOpcode", relaytest.ReservedOpcode, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"LooseFragment", relaytest.LooseFragment, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"BrokenFragments", relaytest.BrokenFragments, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"FragmentedPing", relaytest.FragmentedPing, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"LongPing", relaytest.LongPing, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"PingDrip", relaytest.PingDrip, "ws", "failed/read/silent", "HOST opened the WebSocket and then said nothing for 5s", 5 * time.Second, false},
	{"PingFlood", relaytest.PingFlood, "ws", "failed/read/oversized", "HOST sent or announced more than 256 KB before a first event", 0, false},
	{"FragmentFlood", relaytest.FragmentFlood, "ws", "failed/read/oversized", "HOST sent or announced more than 256 KB before a first event", 0, false},
	{"FrameDrip", relaytest.FrameDrip, "ws", "failed/read/silent", "HOST began a message and did not finish it within 5s", 5 * time.Second, false},
	{"HalfFrameClose", relaytest.HalfFrameClose, "ws", "failed/read/closed_early", "HOST closed the connection before it answered", 0, false},
	{"HalfFrameReset", relaytest.HalfFrameReset, "ws", "failed/read/closed_early", "HOST reset the connection before it answered", 0, false},
	{"ResetAtREQ", relaytest.ResetAtREQ, "ws", "failed/read/closed_early", "HOST reset the connection before it answered", 0, false},
	{"CloseNoCode", relaytest.CloseNoCode, "ws", "failed/read/closed_early", "HOST closed the connection before it answered", 0, false},
	{"CloseOddCode", relaytest.CloseOddCode, "ws", "failed/read/closed_early", "HOST closed the connection with code 999 before it answered: “odd”", 0, false},
	{"CloseShort", relaytest.CloseShort, "ws", "failed/read/closed_early", "HOST closed the connection before it answered", 0, false},
	{"CloseLong", relaytest.CloseLong, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
	{"CloseOddText", relaytest.CloseOddText, "ws", "failed/read/closed_early", "HOST closed the connection with code 1008 before it answered: “no \ufffd [2J more”", 0, false},
	{"OddText", relaytest.OddText, "ws", "failed/read/not_nostr", "HOST sent text that is not Nostr: “\ufffd [m”", 0, false},
	{"OddEvent", relaytest.OddEvent, "ws", "ok/read/-", "HOST answered the subscription", 0, false},
	{"BinaryEOSE", relaytest.BinaryEOSE, "ws", "failed/read/not_nostr", "HOST sent a binary message, which is not Nostr", 0, false},
	{"EmptyTexts", relaytest.EmptyTexts, "ws", "failed/read/not_nostr", "HOST sent text that is not Nostr", 0, false},
	{"ObjectMessage", relaytest.ObjectMessage, "ws", "failed/read/not_nostr", `HOST sent text that is not Nostr: “{"EOSE":"ID"}”`, 0, false},
	{"NumberLabel", relaytest.NumberLabel, "ws", "failed/read/not_nostr", `HOST sent text that is not Nostr: “[1,"ID"]”`, 0, false},
	{"DepthBomb", relaytest.DepthBomb, "ws", "failed/read/not_nostr", "HOST sent text that is not Nostr: “" + strings.Repeat("[", 199) + "…”", 0, false},
	{"EOSENoID", relaytest.EOSENoID, "ws", "failed/read/silent", "HOST said nothing about the subscription for 5s, only other things", 5 * time.Second, false},
	{"EOSEOther", relaytest.EOSEOther, "ws", "failed/read/silent", "HOST answered another subscription than ours, and ours not within 5s", 5 * time.Second, false},
	{"EventOther", relaytest.EventOther, "ws", "failed/read/silent", "HOST answered another subscription than ours, and ours not within 5s", 5 * time.Second, false},
	{"EventOtherFlood", relaytest.EventOtherFlood, "ws", "failed/read/oversized", "HOST sent or announced more than 256 KB before a first event", 0, false},
	{"ClosedNoReason", relaytest.ClosedNoReason, "ws", "refused/read/declined", "HOST closed the subscription", 0, false},
	{"ClosedOther", relaytest.ClosedOther, "ws", "failed/read/silent", "HOST answered another subscription than ours, and ours not within 5s", 5 * time.Second, false},
	{"AuthThenClose", relaytest.AuthThenClose, "ws", "refused/read/auth_required", "HOST asked for authentication and answered nothing else", 0, false},
	{"AuthDrip", relaytest.AuthDrip, "ws", "refused/read/auth_required", "HOST asked for authentication and answered nothing else", 5 * time.Second, false},
	{"NoticeFlood", relaytest.NoticeFlood, "ws", "failed/read/oversized", "HOST sent or announced more than 256 KB before a first event", 0, false},
	{"NoticeHuge", relaytest.NoticeHuge, "ws", "refused/read/declined", "HOST answered only with a notice: “" + strings.Repeat("no [31m \ufffd", 18) + "n…”", 5 * time.Second, false},
	{"EventDrip", relaytest.EventDrip, "ws", "ok/read/-", "HOST sent an event, but never said that there are no more", 5 * time.Second, true},
	{"GiantThenEOSE", relaytest.GiantThenEOSE, "ws", "ok/read/-", "HOST answered the subscription", 0, false},
	{"HugeFragments", relaytest.HugeFragments, "ws", "failed/read/oversized", "HOST sent or announced more than 256 KB before a first event", 0, false},
	{"UnsignedOverflow", relaytest.UnsignedOverflow, "ws", "failed/read/not_nostr", "HOST sent bytes that are no WebSocket frame", 0, false},
}

// hostileInfos are relays that are healthy but for their NIP-11: the problem of
// the document, or the name in it, and the time that a probe takes with NIP-11
// after and before the upgrade.
var hostileInfos = []struct {
	name           string
	b              relaytest.Behaviour
	problem, title string
	after, before  time.Duration
}{
	{"EndlessInfo", relaytest.EndlessInfo, "oversized", "", 0, 0},
	{"InfoDrip", relaytest.InfoDrip, "timeout", "", 5 * time.Second, 3 * time.Second},
	{"InfoBomb", relaytest.InfoBomb, "not_json", "", 0, 0},
	{"InfoBadChunks", relaytest.InfoBadChunks, "http_other", "", 0, 0},
	{"InfoShort", relaytest.InfoShort, "timeout", "", 5 * time.Second, 3 * time.Second},
	{"InfoShortEnd", relaytest.InfoShortEnd, "closed_early", "", 0, 0},
	{"InfoLong", relaytest.InfoLong, "", "cut", 0, 0},
	{"InfoVast", relaytest.InfoVast, "oversized", "", 0, 0},
	{"InfoLoop", relaytest.InfoLoop, "http_other", "", 0, 0},
	{"InfoDepth", relaytest.InfoDepth, "not_json", "", 0, 0},
	{"InfoReset", relaytest.InfoReset, "reset", "", 0, 0},
	{"InfoTrailers", relaytest.InfoTrailers, "", "whole", 0, 0},
	{"InfoUpgrades", relaytest.InfoUpgrades, "http_other", "", 0, 0},
}

// maxRead is what a probe reads of one relay at most, TLS included
// (performance.md, P4).
const maxRead = 256 << 10

// slack is how much later than its limit a probe may end (probe.md, Stages).
const slack = 200 * time.Millisecond

// bubbled probes a piped relay at the default limits, and returns how long it
// took and how many bytes were read. It belongs in a synctest bubble.
func bubbled(t *testing.T, o relaytest.Options, scheme string, req probe.Request) (obs monitor.Observation, took time.Duration, read int64) {
	t.Helper()
	o.TLS, o.Addr = scheme == "wss", "192.0.2.1:80"
	o.RedirectTo = "http://192.0.2.2/"
	if o.Drip == 0 {
		o.Drip = time.Second
	}
	p := relaytest.Pipe(t, o)
	req.Relay = monitor.RelayURL(scheme + "://192.0.2.1/")
	obs, took = check(t, probe.Config{Dial: p.Dial, Roots: relaytest.Roots(), AllowNetworks: documentation}, req)
	return obs, took, p.Received()
}

var documentation = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}

// orders are the ways in which a probe is asked for.
var orders = []probe.Request{{}, {Info: true}, {Info: true, LastOutcome: monitor.OutcomeOK}}

// checkBubbled holds the time and the bytes of a probe at the default limits.
// Only one without NIP-11 takes took to the microsecond; NIP-11 has its own
// limit after the upgrade, and shares the overall one before it.
func checkBubbled(t *testing.T, req probe.Request, took, want time.Duration, read int64) {
	t.Helper()
	limits := probe.DefaultTimeouts()
	longest := limits.Overall
	switch {
	case !req.Info && took.Round(time.Microsecond) != want:
		t.Errorf("it took %s, want %s", took, want)
	case req.Info && req.LastOutcome == monitor.OutcomeNone:
		longest = want + limits.Info
	}
	if took > longest+slack {
		t.Errorf("it took %s, want at most %s and %s", took, longest, slack)
	}
	if read > maxRead {
		t.Errorf("it read %d bytes", read)
	}
}

// orderName names an order in tests.
func orderName(req probe.Request) string {
	if !req.Info {
		return "without NIP-11"
	}
	return fmt.Sprintf("NIP-11 after %q", req.LastOutcome)
}

var (
	aDay    = regexp.MustCompile(`\d{4}-\d\d-\d\d`)
	aTime   = regexp.MustCompile(`\b\d[0-9.hm]*s\b`)
	aLength = regexp.MustCompile(`length \d+ bytes`)
	anID    = regexp.MustCompile(`"[0-9a-f]{16}"`)
)

// said is the evidence as the tables have it.
func said(o monitor.Observation) string {
	s := strings.ReplaceAll(o.Evidence, o.Relay.Host(), "HOST")
	return anID.ReplaceAllString(aLength.ReplaceAllString(s, "length N bytes"), `"ID"`)
}

// timeless leaves days and times out of a sentence: other limits and another
// calendar have others.
func timeless(s string) string {
	return aTime.ReplaceAllString(aDay.ReplaceAllString(s, "DAY"), "TIME")
}

// TestFarm takes every line of farm-behaviours.tsv at the default limits, in
// virtual time: outcome, stage, cause, evidence, bytes and time.
func TestFarm(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/farm-behaviours.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := append(strings.Split(lines.Text(), "\t"), "")
		for _, scheme := range strings.Split(fields[2], ",") {
			name := fields[0] + " " + scheme
			says, ok := farmSays[name]
			if !ok {
				t.Errorf("nothing is known of %s", name)
			}
			seen++
			for _, req := range orders {
				t.Run(name+" "+orderName(req), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { farmed(t, fields, scheme, says, req) })
				})
			}
		}
	}
	if seen != len(farmSays) {
		t.Errorf("the table has %d lines, %d are known", seen, len(farmSays))
	}
}

// farmed probes the relay of one line.
func farmed(t *testing.T, fields []string, scheme string, says saying, req probe.Request) {
	var (
		o    monitor.Observation
		took time.Duration
		read int64
	)
	switch fields[0] {
	case "port 7998":
		o, took = check(t, probe.Config{AllowNetworks: documentation, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, req)
	case "port 7999":
		o, took = check(t, probe.Config{AllowNetworks: documentation, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, syscall.ECONNREFUSED
		}}, req)
	default:
		b, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		// The farm's own times.
		o, took, read = bubbled(t, relaytest.Options{Behaviour: relaytest.Behaviour(b), Slow: 2 * time.Second, Drip: 200 * time.Millisecond}, scheme, req)
	}
	checkBubbled(t, req, took, says.took, read)
	checkObservation(t, o)
	got, want := class(o), strings.Join(fields[3:6], "/")
	if want == "ok or failed/-/- or http_5xx" { // the second connection is the good one
		want = "failed/upgrade/http_5xx"
		if req.LastOutcome == monitor.OutcomeOK {
			want, says.evidence = "ok/read/-", "HOST answered the subscription"
		}
	}
	if got != want {
		t.Errorf("%s: got %s, want %s (%s)", fields[1], got, want, o.Evidence)
	}
	if got := said(o); got != says.evidence {
		t.Errorf("evidence is %q, want %q", got, says.evidence)
	}
	if want := fields[6] == "note: no_eose"; o.NoEOSE != want {
		t.Errorf("NoEOSE is %t, want %t", o.NoEOSE, want)
	}
	if want, ok := strings.CutPrefix(fields[6], "info: "); ok && req.Info && (o.Info == nil || o.Info.Problem != want) {
		t.Errorf("info is %+v, want the problem %s", o.Info, want)
	}
}

// TestHostile holds what becomes of hostile relays at the default limits, in
// virtual time: none takes longer than its limit or makes a probe read more
// than 256 KB.
func TestHostile(t *testing.T) {
	t.Parallel()
	known := map[relaytest.Behaviour]bool{}
	for _, tt := range hostileRelays {
		known[tt.b] = true
		for _, req := range orders {
			t.Run(tt.name+" "+orderName(req), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o, took, read := bubbled(t, relaytest.Options{Behaviour: tt.b}, tt.scheme, req)
					checkBubbled(t, req, took, tt.took, read)
					if got := class(o); got != tt.want || o.NoEOSE != tt.noEOSE {
						t.Errorf("got %s, no EOSE %t; want %s, %t (%s)", got, o.NoEOSE, tt.want, tt.noEOSE, o.Evidence)
					}
					if got := said(o); got != tt.saying {
						t.Errorf("evidence is %q, want %q", got, tt.saying)
					}
					// A head ends at 64 KB, and what was buffered behind it.
					if tt.want == "failed/upgrade/oversized" && !req.Info && read > 68<<10 {
						t.Errorf("it read %d bytes of a head", read)
					}
					checkObservation(t, o)
				})
			})
		}
	}
	for _, tt := range hostileInfos {
		known[tt.b] = true
		for i, want := range []time.Duration{0, tt.after, tt.before} {
			t.Run(tt.name+" "+orderName(orders[i]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o, took, read := bubbled(t, relaytest.Options{Behaviour: tt.b}, "ws", orders[i])
					if class(o) != "ok/read/-" || read > maxRead || took.Round(time.Microsecond) != want {
						t.Errorf("got %s after %d bytes and %s, want ok after %s (%s)", class(o), read, took, want, o.Evidence)
					}
					checkObservation(t, o)
					if got := o.Info; i == 0 && got != nil || i > 0 && (got == nil || got.Problem != tt.problem || got.Name != tt.title || (got.Raw == nil) != (tt.problem != "")) {
						t.Errorf("info is %+v, want problem %q, name %q", got, tt.problem, tt.title)
					}
				})
			})
		}
	}
	for _, b := range relaytest.HostileBehaviours() {
		if !known[b] {
			t.Errorf("nothing is known of behaviour %d", b)
		}
	}
}

// TestHostileSockets takes the same relays over real sockets: all those at once
// that a probe waits for up to its limits, the others a few at a time and with
// more patience than they need.
func TestHostileSockets(t *testing.T) {
	t.Parallel()
	type row struct {
		name, want, saying, problem string
		waits                       bool
		req                         probe.Request
		o                           monitor.Observation
		read                        atomic.Int64
	}
	var rows []*row
	add := func(name string, b relaytest.Behaviour, secure bool, want, saying, problem string, waits bool, req probe.Request) {
		r := relaytest.Start(t, relaytest.Options{Behaviour: b, TLS: secure})
		req.Relay = r.URL()
		rows = append(rows, &row{name: name + " " + orderName(req), want: want, saying: saying, problem: problem, waits: waits, req: req})
	}
	for _, tt := range hostileRelays {
		add(tt.name, tt.b, tt.scheme == "wss", tt.want, tt.saying, "", tt.took > 0, probe.Request{})
	}
	for _, tt := range hostileInfos {
		for _, req := range orders[1:] {
			add(tt.name, tt.b, false, "ok/read/-", "HOST answered the subscription", tt.problem, tt.after > 0, req)
		}
	}
	const patience = 30 * time.Second
	patient := probe.Timeouts{TCP: patience, TLS: patience, Upgrade: patience, Read: patience, Info: patience, Overall: 4 * patience}
	slots := make(chan struct{}, 8)
	var d net.Dialer
	var wg sync.WaitGroup
	for _, r := range rows {
		limits := patient
		if r.waits {
			limits = probe.DefaultTimeouts()
		}
		c := newChecker(t, probe.Config{Timeouts: limits, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return counted{conn, &r.read}, nil
		}})
		wg.Go(func() {
			if !r.waits {
				slots <- struct{}{}
				defer func() { <-slots }()
			}
			r.o = c.Check(t.Context(), r.req)
		})
	}
	wg.Wait()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			got, saying := class(r.o), said(r.o)
			// What a server writes before it closes may be overtaken by the reset
			// that an unread request brings.
			reset := r.want == "failed/upgrade/tls_handshake" && got == "failed/upgrade/reset"
			if got != r.want && !reset {
				t.Errorf("got %s, want %s (%s)", got, r.want, r.o.Evidence)
			}
			if timeless(saying) != timeless(r.saying) && !reset {
				t.Errorf("evidence is %q, want %q", saying, r.saying)
			}
			if r.req.Info && (r.o.Info == nil || r.o.Info.Problem != r.problem) {
				t.Errorf("info is %+v, want the problem %q", r.o.Info, r.problem)
			}
			if n := r.read.Load(); n > maxRead {
				t.Errorf("it read %d bytes", n)
			}
			checkObservation(t, r.o)
		})
	}
}

// TestNamedCertificates holds that a certificate for an address is none for a
// name.
func TestNamedCertificates(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t, relaytest.Options{TLS: true, Behaviour: relaytest.TLSIPOnly})
	names := relaytest.StartDNS(t, map[string]relaytest.Name{"relay.example": {Addrs: []netip.Addr{r.Addr().Addr()}}})
	c := newChecker(t, probe.Config{Resolvers: []string{names.Addr().String()}})
	o := c.Check(t.Context(), probe.Request{Relay: monitor.RelayURL(fmt.Sprintf("wss://relay.example:%d/", r.Addr().Port()))})
	if class(o) != "failed/tls/tls_name" || o.Evidence != "TLS certificate of relay.example is for 127.0.0.1" {
		t.Errorf("got %s (%s)", class(o), o.Evidence)
	}
}
