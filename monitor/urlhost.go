package monitor

import (
	"crypto/sha3"
	"encoding/base32"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// domainToASCII is the WHATWG's domain to ASCII: UTS 46, non-transitional,
// hyphens and underscores anywhere; lengths are checked by validName.
var domainToASCII = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckJoiners(true),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
	idna.VerifyDNSLength(false),
)

// parseHost reads the host of a URL (relay-url.md 5) and returns its canonical
// form. addr is valid when the host is an address.
func parseHost(raw string) (host string, addr netip.Addr, ok bool) {
	if strings.HasPrefix(raw, "[") {
		return parseIPv6(raw)
	}
	name := withoutDot(percentDecode(raw))
	if isASCII(name) && !hasALabel(name) {
		name = strings.ToLower(name)
	} else if name, ok = nameToASCII(name); !ok {
		return "", addr, false
	}
	if !validName(name) {
		return "", addr, false
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if _, isNumber := ipv4Number(last); isNumber || isDigits(last) {
		if addr, ok = parseIPv4(name); !ok {
			return "", addr, false
		}
		return addr.String(), addr, true
	}
	// A name without a dot means something else in every network.
	return name, addr, last != name || name == "localhost"
}

// dotForms are the characters that IDNA takes for one (UTS 46, 4).
const dotForms = ".\u3002\uFF0E\uFF61"

// withoutDot removes one dot at the end. It goes before the mapping, which
// turns an empty A-label into nothing.
func withoutDot(name string) string {
	if last, size := utf8.DecodeLastRuneInString(name); strings.ContainsRune(dotForms, last) {
		return name[:len(name)-size]
	}
	return name
}

// nameToASCII maps an international name to A-labels, if it is valid and maps
// to one name only.
func nameToASCII(name string) (string, bool) {
	if !utf8.ValidString(name) {
		return "", false
	}
	// The library decodes these all the same.
	for label := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(dotForms, r) }) {
		if isALabel(label) && !isASCII(label) {
			return "", false
		}
	}
	ascii, err := domainToASCII.ToASCII(name)
	if err != nil {
		return "", false
	}
	again, err := domainToASCII.ToASCII(ascii)
	return ascii, err == nil && again == ascii
}

// parseIPv6 reads an IPv6 address in brackets.
func parseIPv6(raw string) (string, netip.Addr, bool) {
	text, ok := strings.CutSuffix(raw[1:], "]")
	if !ok || strings.Contains(text, "%") { // no zones in URLs
		return "", netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() {
		return "", netip.Addr{}, false
	}
	if addr.Is4In6() { // netip writes it with dots, the WHATWG does not
		b := addr.As16()
		hi, lo := uint64(b[12])<<8|uint64(b[13]), uint64(b[14])<<8|uint64(b[15])
		return "[::ffff:" + strconv.FormatUint(hi, 16) + ":" + strconv.FormatUint(lo, 16) + "]", addr, true
	}
	return "[" + addr.String() + "]", addr, true
}

// parseIPv4 reads any WHATWG notation: one to four numbers, decimal, octal or
// hexadecimal, the last of which fills the rest.
func parseIPv4(name string) (netip.Addr, bool) {
	parts := strings.Split(name, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, p := range parts {
		n, ok := ipv4Number(p)
		limit := uint64(1) << 8
		if i == len(parts)-1 {
			limit = 1 << (8 * (5 - len(parts)))
			sum = sum<<(8*(5-len(parts))) + n
		} else {
			sum = sum<<8 + n
		}
		if !ok || n >= limit {
			return netip.Addr{}, false
		}
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

// ipv4Number reads one part of an IPv4 address; what is too large for any
// comes back as 1<<32.
func ipv4Number(s string) (uint64, bool) {
	base := uint64(10)
	switch {
	case s == "":
		return 0, false
	case strings.HasPrefix(s, "0x"):
		base, s = 16, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	n := uint64(0)
	for i := range len(s) {
		d, ok := hexDigit(s[i])
		if !ok || uint64(d) >= base {
			return 0, false
		}
		n = min(n*base+uint64(d), 1<<32)
	}
	return n, true
}

// validName reports whether name consists of DNS labels: lower-case letters,
// digits, hyphens and underscores.
func validName(name string) bool {
	if len(name) > 253 {
		return false
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
			continue
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	return label > 0
}

// hasALabel reports whether some label of an ASCII name is an A-label.
func hasALabel(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if isALabel(label) {
			return true
		}
	}
	return false
}

// isALabel reports whether label begins with xn--, in any case.
func isALabel(label string) bool {
	return len(label) >= 4 && strings.EqualFold(label[:4], "xn--")
}

// reservedSuffixes are names that mean another host in every network.
var reservedSuffixes = [...]string{".localhost", ".localdomain", ".local", ".internal", ".lan", ".home.arpa", ".invalid"}

// hostPolicy is rule 7: the reason why host must not be watched, or "".
func hostPolicy(host string, addr netip.Addr, allow []netip.Prefix) string {
	if addr.IsValid() {
		if !PublicAddress(addr, allow...) {
			return reasonPrivate
		}
		return ""
	}
	for _, suffix := range reservedSuffixes {
		if host == suffix[1:] || strings.HasSuffix(host, suffix) {
			return reasonReserved
		}
	}
	if name, ok := strings.CutSuffix(host, ".onion"); ok && !validOnion(lastLabel(name)) {
		return reasonOnion
	}
	// 52 characters of base 32 are the 256 bits of the destination's hash.
	if name, ok := strings.CutSuffix(host, ".b32.i2p"); ok && len(lastLabel(name)) < 52 {
		return reasonI2P
	}
	return ""
}

func lastLabel(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func hostNetwork(host string) Network {
	switch {
	case strings.HasSuffix(host, ".onion"):
		return Tor
	case strings.HasSuffix(host, ".i2p"):
		return I2P
	case strings.HasSuffix(host, ".loki"):
		return Loki
	}
	return Clearnet
}

var onionEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// validOnion reports whether label is a version 3 onion address: a public key,
// two bytes of checksum and the version (Tor's rend-spec-v3, ONIONADDRESS).
func validOnion(label string) bool {
	const keySize, version = 32, 3
	if len(label) != 56 {
		return false
	}
	raw, err := onionEncoding.DecodeString(label)
	if err != nil || raw[keySize+2] != version {
		return false
	}
	text := append([]byte(".onion checksum"), raw[:keySize]...)
	sum := sha3.Sum256(append(text, version))
	return raw[keySize] == sum[0] && raw[keySize+1] == sum[1]
}

func defaultPort(tls bool) uint16 {
	if tls {
		return 443
	}
	return 80
}

// parsePort reads a decimal port up to 65535.
func parsePort(s string) (uint16, bool) {
	if !isDigits(s) {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if n = n*10 + int(s[i]-'0'); n > 65535 {
			return 0, false
		}
	}
	return uint16(n), true
}

// badPorts are the ports that browsers do not connect to (WHATWG fetch, port
// blocking), ascending: no client can use a relay there, and other services'
// ports are not ours to knock at.
var badPorts = [...]uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95,
	101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179,
	389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587,
	601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
	6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

func badPort(n uint16) bool {
	_, bad := slices.BinarySearch(badPorts[:], n)
	return bad
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
