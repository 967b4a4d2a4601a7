package monitor_test

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pharos-nostr/pharos/monitor"
)

// onion is a version 3 address with a right checksum.
const onion = "oxtrdevav64z64yb7x6rjg4ntzqjhedm5b5zjqulugknhzr46ny2qbad.onion"

// parsed returns the canonical form, or the reason in brackets.
func parsed(t *testing.T, u monitor.RelayURL, err error) string {
	t.Helper()
	if err == nil {
		return string(u)
	}
	var broken *monitor.URLError
	if !errors.As(err, &broken) {
		t.Fatalf("error is %T, want *monitor.URLError", err)
	}
	if u != "" {
		t.Fatalf("rejected, but the URL is %q", u)
	}
	if !errors.Is(err, monitor.ErrInvalid) {
		t.Fatalf("%v does not wrap ErrInvalid", err)
	}
	return "[" + broken.Reason + "]"
}

type urlCase struct{ input, want string }

// readURLCases reads testdata/relay-urls.tsv.
func readURLCases(t testing.TB) []urlCase {
	t.Helper()
	f, err := os.Open("testdata/relay-urls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []urlCase
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		column := strings.Split(lines.Text(), "\t")
		if len(column) != 3 {
			t.Fatalf("line %q has %d columns", lines.Text(), len(column))
		}
		input, err := strconv.Unquote(`"` + column[0] + `"`)
		if err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		want := column[2]
		if column[1] == "reject" {
			want = "[" + want + "]"
		}
		cases = append(cases, urlCase{input, want})
	}
	if len(cases) < 60 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

func TestParseRelayURLTable(t *testing.T) {
	for _, c := range readURLCases(t) {
		u, err := monitor.ParseRelayURL(c.input)
		if got := parsed(t, u, err); got != c.want {
			t.Errorf("ParseRelayURL(%q) = %s, want %s", c.input, got, c.want)
		}
	}
}

// longURL returns a URL of n bytes.
func longURL(n int) string {
	const start = "wss://relay.example.com/"
	return start + strings.Repeat("a", n-len(start))
}

// ruleCases has cases for each rule of relay-url.md.
var ruleCases = map[string][]urlCase{
	"1 empty and length": {
		{"\uFEFF \t\r\n\u00A0\u2003", "[empty]"},
		{strings.Repeat(" ", 1000), "[empty]"},
		{"\uFEFF\u3000wss://nos.lol\u2028\n", "wss://nos.lol/"},
		{longURL(512), longURL(512)},
		{longURL(513), "[length]"},
		{longURL(512) + " ", "[length]"},
		{"no scheme" + longURL(513), "[length]"},
		{"wss://relay.example.com/" + strings.Repeat("ü", 200), "[length]"}, // 1 200 bytes when encoded
	},
	"2 scheme": {
		{"wSs://nos.lol", "wss://nos.lol/"},
		{"WS://nos.lol", "ws://nos.lol/"},
		{"wss:/nos.lol", "[scheme]"},
		{"wss:nos.lol", "[scheme]"},
		{"wss:\\\\nos.lol", "[scheme]"},
		{"wss :// nos.lol", "[scheme]"},
		{"w\nss://nos.lol", "[scheme]"},
		{"\x00wss://nos.lol", "[scheme]"},
		{"://nos.lol", "[scheme]"},
		{"//nos.lol", "[scheme]"},
		{"wsſ://nos.lol", "[scheme]"}, // U+017F folds to s
		{"wsss://nos.lol", "[scheme]"},
		{"\"wss://nos.lol\"", "[scheme]"},
		{"nos.lol?u=wss://nos.lol", "[scheme]"},
	},
	"3 invisible characters": {
		{"wss://nos.lol/a\tb", "[whitespace]"},
		{"wss://nos.lol/a\u00A0b", "[whitespace]"},
		{"wss://nos.lol/a\u2028b", "[whitespace]"},
		{"wss://nos.lol/a\uFEFFb", "[whitespace]"},
		{"wss://n\u200dos.lol", "[whitespace]"},
		{"wss://n\u00ados.lol", "[whitespace]"},
		{"wss://nos.lol/\u202Etxt", "[whitespace]"},
		{"wss://nos.lol/\x7f", "[whitespace]"},
		{"wss://nos.lol/\u0085x", "[whitespace]"},
		{"wss://nos.lol\\a", "[whitespace]"},
		{"wss://nos.lol/%5c", "[whitespace]"},
		{"wss://nos.lol/%00", "[whitespace]"},
		{"wss://nos.lol/%7F", "[whitespace]"},
		{"wss://nos.lol/%e2%80%8b", "[whitespace]"},
		{"wss://nos.lol/%C2%A0", "[whitespace]"},
		{"wss://%09nos.lol", "[whitespace]"},
		{"wss://nos.lol/#a b", "[whitespace]"},
		{"wss://nos.lol/?a=%20", "[whitespace]"},
		{"wss://user@nos.lol/a b", "[whitespace]"},
		{"wss://nos.lol/%2520", "wss://nos.lol/%2520"}, // decoded once
		{"wss://nos.lol/%2", "wss://nos.lol/%2"},
		{"wss://nos.lol/%zz%", "wss://nos.lol/%zz%"},
		{"wss://nos.lol/%A0", "wss://nos.lol/%A0"}, // not UTF-8
	},
	"4 lists": {
		{"wss://a.example.com/,wss://b.example.com/", "[list]"},
		{"wss://a.example.com,WSS://b.example.com", "[list]"},
		{"wss://a.example.com,https://b.example.com", "[list]"},
		{"wss://a.example.com,,ws://b.example.com", "[list]"},
		{"wss://a.example.com%2Cwss%3A%2F%2Fb.example.com", "[list]"},
		{"wss://user@a.example.com,wss://b.example.com", "[list]"},
		{"wss://nos.lol/?a,wss://b.example.com", "[list]"},
		{"wss://nos.lol/a,b", "wss://nos.lol/a,b"},
		{"wss://nos.lol/a,1wss:", "[nested]"},
		{"wss://nos.lol,b.example.com", "[host]"},
		{"wss://nos.lol/,ws:/./%2Fx", "[list]"}, // its dot resolves to one
	},
	"4 userinfo": {
		{"wss://@nos.lol", "[userinfo]"},
		{"wss://:@nos.lol", "[userinfo]"},
		{"wss://a@b@nos.lol", "[userinfo]"},
		{"wss://a:22@nos.lol:22/?q", "[userinfo]"},
		{"wss://user@", "[userinfo]"},
		{"wss://nos.lol/@user", "wss://nos.lol/@user"},
		{"wss://user%40nos.lol", "[host]"},
		{"wss://nos.lol?u@x", "[query]"},
		{"wss://nos.lol#u@x", "wss://nos.lol/"},
	},
	"5 names": {
		{"wss:///nos.lol", "[host]"},
		{"wss://?q", "[host]"},
		{"wss://#f", "[host]"},
		{"wss://.", "[host]"},
		{"wss://nos..lol", "[host]"},
		{"wss://.nos.lol", "[host]"},
		{"wss://nos.lol..", "[host]"},
		{"wss://nos.lol.:443/", "wss://nos.lol/"},
		{"wss://nos.lol%2E", "wss://nos.lol/"},
		{"wss://%6eos.l%6Fl", "wss://nos.lol/"},
		{"wss://com.", "[host]"},
		{"wss://wss://nos.lol", "[host]"},
		{"wss://a.example.com;b.example.com", "[host]"},
		{"wss://a.example.com|x", "[host]"},
		{"wss://a!b.example.com", "[host]"},
		{"wss://a*.example.com", "[host]"},
		{"wss://<host>.example.com", "[host]"},
		{"wss://nos.lol%2Fx", "[host]"},
		{"wss://nos.lol%3A80", "[host]"},
		{"wss://-a-.example--x.com", "wss://-a-.example--x.com/"},
		{"wss://_relay._tcp.example.com", "wss://_relay._tcp.example.com/"},
		{"wss://" + strings.Repeat("a", 63) + ".com", "wss://" + strings.Repeat("a", 63) + ".com/"},
		{"wss://" + strings.Repeat("a", 64) + ".com", "[host]"},
		{"wss://" + strings.Repeat("a.", 126) + "a", "wss://" + strings.Repeat("a.", 126) + "a/"}, // 253 bytes
		{"wss://" + strings.Repeat("a.", 126) + "aa", "[host]"},
		{"wss://\xffnos.lol", "[host]"},
		{"wss://%FFnos.lol", "[host]"},
		{"wss://onion", "[host]"},
	},
	"5 international names": {
		{"wss://BÜCHER.example.com", "wss://xn--bcher-kva.example.com/"},
		{"wss://b%C3%BCcher.example.com", "wss://xn--bcher-kva.example.com/"},
		{"wss://bu\u0308cher.example.com", "wss://xn--bcher-kva.example.com/"}, // decomposed
		{"wss://XN--BCHER-KVA.example.com", "wss://xn--bcher-kva.example.com/"},
		{"wss://straße.example.com", "wss://xn--strae-oqa.example.com/"}, // non-transitional
		{"wss://ｎｏｓ．ｌｏｌ", "wss://nos.lol/"},
		{"wss://nos。lol。", "wss://nos.lol/"},
		{"wss://日本語.example", "wss://xn--wgv71a119e.example/"},
		{"wss://💜.example.com", "wss://xn--7r8h.example.com/"},
		{"wss://-bü--r-.example.com", "wss://xn---b--r--4ya.example.com/"},
		{"wss://xn--a.example.com", "[host]"},
		{"wss://xn--.example.com", "[host]"},
		{"wss://example.xn--", "[host]"},
		{"ws://1.xn--", "[host]"},
		{"wss://xn--bcher-kva💜.example.com", "[host]"},
		{"wss://xn--bcher-kva💜xn--.example.com", "[host]"},
		{"wss://nos.xn--é-。lol", "[host]"},
		{"wss://nos.lol．", "wss://nos.lol/"},
		{"wss://xn--zzzzzzzz999.example.com", "[host]"},
		{"wss://a\u05d0.example.com", "[host]"}, // two directions in one label
		{"wss://nos／lol.example.com", "[host]"}, // maps to a slash
		{"wss://user＠nos.lol", "[host]"},
		{"wss://bücher", "[host]"},
	},
	"5 IPv4": {
		{"ws://1.1.1.1", "ws://1.1.1.1/"},
		{"ws://1.1.1.1.", "ws://1.1.1.1/"},
		{"ws://16843009", "ws://1.1.1.1/"},
		{"ws://0x1010101", "ws://1.1.1.1/"},
		{"ws://0X01.0x1.01.1", "ws://1.1.1.1/"},
		{"ws://0100200401", "ws://1.1.1.1/"},
		{"ws://1.1.257", "ws://1.1.1.1/"},
		{"ws://1.65793", "ws://1.1.1.1/"},
		{"ws://１．１．１．１", "ws://1.1.1.1/"},
		{"ws://8.8.010.8", "ws://8.8.8.8/"},
		{"ws://1.1.1.256", "[host]"},
		{"ws://256.1.1.1", "[host]"},
		{"ws://1.1.65536", "[host]"},
		{"ws://1.16777216", "[host]"},
		{"ws://4294967296", "[host]"},
		{"ws://99999999999999999999999999", "[host]"},
		{"ws://18446744073726394625", "[host]"}, // 1.1.1.1 in 64 bits
		{"ws://1.1.1.1.1", "[host]"},
		{"ws://1..1", "[host]"},
		{"ws://08.1.1.1", "[host]"},
		{"ws://1.1.1.08", "[host]"},
		{"ws://1.1.1.0xg.com", "ws://1.1.1.0xg.com/"},
		{"ws://relay.example.1", "[host]"},
		{"ws://relay.0x1f", "[host]"},
		{"ws://relay.09", "[host]"},
		{"ws://relay.0x", "[host]"},
		{"ws://1.1.1.1x", "ws://1.1.1.1x/"},
		{"ws://2130706433", "[private]"},
		{"ws://0", "[private]"},
		{"ws://0x", "[private]"}, // zero
		{"ws://017700000001", "[private]"},
	},
	"5 IPv6": {
		{"ws://[2606:4700::1111]:8080/x", "ws://[2606:4700::1111]:8080/x"},
		{"ws://[2606:4700:0:0:1:0:0:0]", "ws://[2606:4700:0:0:1::]/"}, // the longest run
		{"ws://[2606:4700:0:1:1:1:1:1]", "ws://[2606:4700:0:1:1:1:1:1]/"},
		{"ws://[2606:4700::AbCd:1.2.3.4]", "ws://[2606:4700::abcd:102:304]/"},
		{"ws://[::ffff:1.1.1.1]", "ws://[::ffff:101:101]/"},
		{"ws://[::FFFF:808:808]", "ws://[::ffff:808:808]/"},
		{"ws://[]", "[host]"},
		{"ws://[", "[host]"},
		{"ws://[2606:4700::1111", "[host]"},
		{"ws://[2606:4700::1111]x", "[host]"},
		{"ws://[1.1.1.1]", "[host]"},
		{"ws://[2606::1::1]", "[host]"},
		{"ws://[2606:4700:1]", "[host]"},
		{"ws://[2606:4700::11111]", "[host]"},
		{"ws://[fe80::1%25eth0]", "[host]"},
		{"ws://[2606:4700::1%2e2]", "[host]"},
		{"ws://fe80::1", "[host]"},
		{"ws://2606:4700::1111", "[port]"}, // a host of one number
		{"ws://[nos.lol]", "[host]"},
	},
	"6 ports": {
		{"wss://nos.lol:65535", "wss://nos.lol:65535/"},
		{"wss://nos.lol:65536", "[port]"},
		{"wss://nos.lol:99999999999999999999", "[port]"},
		{"wss://nos.lol:000443", "wss://nos.lol/"},
		{"wss://nos.lol:0080/", "wss://nos.lol:80/"},
		{"wss://nos.lol:", "[port]"},
		{"wss://nos.lol:/", "[port]"},
		{"wss://a.example.comwss://b.example.com", "[port]"}, // joined without a comma
		{"wss://nos.lol:+80", "[port]"},
		{"wss://nos.lol:-1", "[port]"},
		{"wss://nos.lol:8o", "[port]"},
		{"wss://nos.lol:٤", "[port]"},
		{"wss://nos.lol:80:80", "[port]"},
		{"wss://nos.lol:0x50", "[port]"},
		{"wss://nos.lol:25", "[port]"},
		{"wss://nos.lol:6667", "[port]"},
		{"wss://nos.lol:10080", "[port]"},
		{"wss://nos.lol:00022", "[port]"},
		{"wss://nos.lol:21?q", "[port]"},
		{"ws://localhost:22", "[port]"},
		{"wss://[2606:4700::1111]:", "[port]"},
		{"wss://[2606:4700::1111]:443", "wss://[2606:4700::1111]/"},
	},
	"7 reserved names": {
		{"ws://localhost", "[reserved]"},
		{"ws://LOCALHOST.", "[reserved]"},
		{"ws://relay.localhost", "[reserved]"},
		{"ws://localhost.localdomain", "[reserved]"},
		{"ws://umbrel.local", "[reserved]"},
		{"ws://metadata.google.internal", "[reserved]"},
		{"ws://nas.lan", "[reserved]"},
		{"ws://nas.home.arpa", "[reserved]"},
		{"ws://home.arpa", "[reserved]"},
		{"ws://relay.localhost?q", "[reserved]"},
		{"ws://lan.example.com", "ws://lan.example.com/"},
		{"ws://relay.notlocal", "ws://relay.notlocal/"},
		{"ws://arpa.home", "ws://arpa.home/"},
		{"ws://local.", "[host]"},
	},
	"7 private addresses": {
		{"ws://0.0.0.0", "[private]"},
		{"ws://100.64.0.1", "[private]"},
		{"ws://172.31.255.255", "[private]"},
		{"ws://192.0.2.1", "[private]"},
		{"ws://198.18.0.1", "[private]"},
		{"ws://203.0.113.9", "[private]"},
		{"ws://224.0.0.1", "[private]"},
		{"ws://255.255.255.255", "[private]"},
		{"ws://[::]", "[private]"},
		{"ws://[fe80::1]", "[private]"},
		{"ws://[fd00::1]", "[private]"},
		{"ws://[ff02::1]", "[private]"},
		{"ws://[2001:db8::1]", "[private]"},
		{"ws://[64:ff9b::10.0.0.1]", "[private]"},
		{"ws://[64:ff9b::8.8.8.8]", "ws://[64:ff9b::808:808]/"},
		{"ws://[2002:7f00:1::1]", "[private]"},
		{"ws://[2002:808:808::1]", "ws://[2002:808:808::1]/"},
		{"ws://127.0.0.1.example.com", "ws://127.0.0.1.example.com/"},
		{"ws://127.1?q", "[private]"},
	},
	"7 other networks": {
		{"ws://relay." + onion + "/x", "ws://relay." + onion + "/x"},
		{"ws://" + strings.ToUpper(onion), "ws://" + onion + "/"},
		{"ws://p" + onion[1:], "[onion]"},
		{"ws://" + strings.Replace(onion, "qbad", "qbae", 1), "[onion]"},   // version 4
		{"ws://" + strings.Replace(onion, "2qbad", "2abad", 1), "[onion]"}, // first byte of the checksum
		{"ws://" + strings.Replace(onion, "2qbad", "2qcad", 1), "[onion]"}, // second byte
		{"ws://" + strings.Repeat("a", 56) + ".onion", "[onion]"},
		{"ws://" + strings.Repeat("1", 56) + ".onion", "[onion]"},
		{"ws://expyuzz4wqqyqhjn.onion", "[onion]"}, // version 2
		{"ws://" + onion + ".evil.onion", "[onion]"},
		{"ws://" + onion + ".example.com", "ws://" + onion + ".example.com/"},
		{"ws://" + strings.Repeat("a", 52) + ".b32.i2p", "ws://" + strings.Repeat("a", 52) + ".b32.i2p/"},
		{"ws://" + strings.Repeat("a", 51) + ".b32.i2p", "[i2p]"},
		{"ws://" + strings.Repeat("a", 52) + ".x.b32.i2p", "[i2p]"},
		{"ws://nostr.i2p", "ws://nostr.i2p/"},
	},
	"8 queries": {
		{"wss://nos.lol?", "[query]"},
		{"wss://nos.lol/?", "[query]"},
		{"wss://nos.lol/??#x", "[query]"},
		{"wss://nos.lol/wss://x?q", "[query]"},
		{"wss://nos.lol/#?x", "wss://nos.lol/"},
		{"wss://nos.lol/%3Fx", "wss://nos.lol/%3Fx"},
	},
	"8 nested": {
		{"wss://nos.lol/wss:x", "[nested]"},
		{"wss://nos.lol/x/WS:y", "[nested]"},
		{"wss://nos.lol/https:/example.com", "[nested]"},
		{"wss://nos.lol/HTTP:/example.com", "[nested]"},
		{"wss://nos.lol/x://y", "[nested]"},
		{"wss://nos.lol//wss://y", "[nested]"},
		{"wss://nos.lol/wss%3A%2F%2Fx", "[nested]"},
		{"wss://nos.lol/wss://(x)", "[nested]"},
		{"wss://nos.lol/a:/./%2Fb", "[nested]"}, // its dot resolves to one
		{"wss://nos.lol/news:today", "wss://nos.lol/news:today"},
		{"wss://nos.lol/news:ws:", "[nested]"},
		{"wss://nos.lol/https:", "wss://nos.lol/https:"},
		{"wss://nos.lol/wss", "wss://nos.lol/wss"},
	},
	"8 templates": {
		{"wss://nos.lol/{", "[path]"},
		{"wss://nos.lol/%7Bpubkey%7d", "[path]"},
		{"wss://nos.lol/<pubkey>", "[path]"},
		{"wss://nos.lol/x)", "[path]"},
		{"wss://nos.lol/%28", "[path]"},
		{"wss://nos.lol/(x)/../y", "[path]"},
		{"wss://nos.lol/[x]", "wss://nos.lol/[x]"},
	},
	"9 paths": {
		{"wss://nos.lol//", "wss://nos.lol/"},
		{"wss://nos.lol///a///", "wss://nos.lol/a/"},
		{"wss://nos.lol/.", "wss://nos.lol/"},
		{"wss://nos.lol/..", "wss://nos.lol/"},
		{"wss://nos.lol/../../a", "wss://nos.lol/a"},
		{"wss://nos.lol/a/.", "wss://nos.lol/a/"},
		{"wss://nos.lol/a/b/..", "wss://nos.lol/a/"},
		{"wss://nos.lol/a/b/../", "wss://nos.lol/a/"},
		{"wss://nos.lol/a//../b", "wss://nos.lol/a/b"}, // dots first, then slashes
		{"wss://nos.lol/a/%2e/b", "wss://nos.lol/a/b"},
		{"wss://nos.lol/a/%2E%2e/b", "wss://nos.lol/b"},
		{"wss://nos.lol/a/.%2E/b", "wss://nos.lol/b"},
		{"wss://nos.lol/a/.../b", "wss://nos.lol/a/.../b"},
		{"wss://nos.lol/a/.b/b.", "wss://nos.lol/a/.b/b."},
		{"wss://nos.lol/a/./", "wss://nos.lol/a/"},
		{"wss://nos.lol/Ünïcode", "wss://nos.lol/%C3%9Cn%C3%AFcode"},
		{"wss://nos.lol/%c3%9C", "wss://nos.lol/%c3%9C"},
		{"wss://nos.lol/\"^`|'~!$&*+=;@", "wss://nos.lol/%22%5E%60|'~!$&*+=;@"},
		{"wss://nos.lol/\xff", "wss://nos.lol/%EF%BF%BD"},
		{"wss://nos.lol/a%2Fb", "wss://nos.lol/a%2Fb"},
		{"wss://nos.lol/Inbox/#x?y", "wss://nos.lol/Inbox/"},
		{"wss://nos.lol/npub1abc/Group", "wss://nos.lol/npub1abc/Group"},
	},
}

func TestParseRelayURLRules(t *testing.T) {
	for rule, cases := range ruleCases {
		t.Run(rule, func(t *testing.T) {
			for _, c := range cases {
				u, err := monitor.ParseRelayURL(c.input)
				if got := parsed(t, u, err); got != c.want {
					t.Errorf("ParseRelayURL(%q) = %s, want %s", c.input, got, c.want)
				}
			}
		})
	}
}

func TestParseRelayURLBadPorts(t *testing.T) {
	// WHATWG fetch, port blocking.
	bad := "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123 " +
		"135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993 995 " +
		"1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080"
	want := strings.Fields(bad)
	var got []string
	for port := 1; port <= 65535; port++ {
		p := strconv.Itoa(port)
		if _, err := monitor.ParseRelayURL("wss://nos.lol:" + p); err != nil {
			got = append(got, p)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRelayURLAllow(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []urlCase{
		{"ws://127.0.0.1:7777", "ws://127.0.0.1:7777/"},
		{"ws://0x7f.1", "ws://127.0.0.1/"},
		{"ws://[fd00::1]", "ws://[fd00::1]/"},
		{"ws://10.0.0.1", "[private]"},
		{"ws://[::1]", "[private]"},
		{"ws://localhost", "[reserved]"}, // ranges, never names
		{"ws://127.0.0.1:22", "[port]"},
		{"ws://nos.lol", "ws://nos.lol/"},
	} {
		u, err := monitor.ParseRelayURL(c.input, allow...)
		if got := parsed(t, u, err); got != c.want {
			t.Errorf("ParseRelayURL(%q) = %s, want %s", c.input, got, c.want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []urlCase{
		// Rules 6 to 8 do not apply.
		{"WSS://Relay.Example.com?secret=a'b", "wss://relay.example.com/?secret=a%27b"},
		{"wss://nos.lol/?", "wss://nos.lol/?"},
		{"wss://nos.lol/?a?b#c", "wss://nos.lol/?a?b"},
		{"wss://nos.lol?ä\"<>|", "wss://nos.lol/?%C3%A4%22%3C%3E|"},
		{"ws://localhost:7777", "ws://localhost:7777/"},
		{"ws://umbrel.local", "ws://umbrel.local/"},
		{"ws://127.1", "ws://127.0.0.1/"},
		{"ws://[::1]:80", "ws://[::1]/"},
		{"wss://nos.lol:22", "wss://nos.lol:22/"},
		{"wss://nos.lol:0", "wss://nos.lol:0/"},
		{"wss://nos.lol:", "wss://nos.lol/"},
		{"wss://tooshort.onion", "wss://tooshort.onion/"},
		{"wss://nos.lol/(x)", "wss://nos.lol/(x)"},
		{"wss://nos.lol/{x}", "wss://nos.lol/%7Bx%7D"},
		{"wss://nos.lol/https:/x", "wss://nos.lol/https:/x"},
		{"wss://nos.lol/x://y", "wss://nos.lol/x:/y"},
		// The others do.
		{"", "[empty]"},
		{longURL(513), "[length]"},
		{"wss://nos.lol/?" + strings.Repeat("\"", 200), "[length]"},
		{"https://nos.lol", "[scheme]"},
		{"wss://nos.lol/?a b", "[whitespace]"},
		{"wss://a.example.com,wss://b.example.com", "[list]"},
		{"wss://nos.lol/,ws:/./%2Fx", "[list]"},
		{"wss://u@nos.lol", "[userinfo]"},
		{"wss://singlehost", "[host]"},
		{"wss://nos.lol:x", "[port]"},
		{"wss://nos.lol:65536", "[port]"},
		{"wss://nos.lol//a/../b", "wss://nos.lol/b"},
	} {
		u, err := monitor.Canonical(c.input)
		if got := parsed(t, u, err); got != c.want {
			t.Errorf("Canonical(%q) = %s, want %s", c.input, got, c.want)
		}
	}
	// Both agree on what both accept.
	for _, c := range readURLCases(t) {
		strict, err := monitor.ParseRelayURL(c.input)
		if err != nil {
			continue
		}
		if u, err := monitor.Canonical(c.input); err != nil || u != strict {
			t.Errorf("Canonical(%q) = %s, %v; ParseRelayURL says %s", c.input, u, err, strict)
		}
	}
}

func TestRelayURLAccessors(t *testing.T) {
	type parts struct {
		Network              monitor.Network
		Host, Port, HostPort string
		TLS                  bool
		Path                 string
	}
	for u, want := range map[monitor.RelayURL]parts{
		"wss://nos.lol/":                    {monitor.Clearnet, "nos.lol", "443", "nos.lol:443", true, "/"},
		"ws://nos.lol/a/b":                  {monitor.Clearnet, "nos.lol", "80", "nos.lol:80", false, "/a/b"},
		"wss://nos.lol:4430/a":              {monitor.Clearnet, "nos.lol", "4430", "nos.lol:4430", true, "/a"},
		"ws://[2606:4700::1111]/":           {monitor.Clearnet, "2606:4700::1111", "80", "[2606:4700::1111]:80", false, "/"},
		"ws://[2606:4700::1111]:8080/":      {monitor.Clearnet, "2606:4700::1111", "8080", "[2606:4700::1111]:8080", false, "/"},
		"wss://nos.lol/?a=/b":               {monitor.Clearnet, "nos.lol", "443", "nos.lol:443", true, "/?a=/b"},
		"ws://" + onion + "/":               {monitor.Tor, onion, "80", onion + ":80", false, "/"},
		"ws://nostr.i2p/":                   {monitor.I2P, "nostr.i2p", "80", "nostr.i2p:80", false, "/"},
		"wss://relay.loki/":                 {monitor.Loki, "relay.loki", "443", "relay.loki:443", true, "/"},
		"wss://onion.example.com/x.onion/y": {monitor.Clearnet, "onion.example.com", "443", "onion.example.com:443", true, "/x.onion/y"},
		// Not made by ParseRelayURL: no sense, but no panic.
		"":       {monitor.Clearnet, "", "80", ":80", false, "/"},
		"ws://[": {monitor.Clearnet, "", "80", ":80", false, "/"},
	} {
		got := parts{u.Network(), u.Host(), u.Port(), u.HostPort(), u.TLS(), u.Path()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: %s", u, diff)
		}
		if u.String() != string(u) {
			t.Errorf("String() = %q", u.String())
		}
	}
}

func TestURLErrorTellsNoSecret(t *testing.T) {
	for _, input := range []string{
		"wss://user:S3CRET@nos.lol",
		"wss://S3CRET@nos.lol/?S3CRET",
		"wss://user:S3?CRET@nos.lol",
		"wss://user:S3#CRET@nos.lol",
		"wss://user:S3/CRET@nos.lol",
		"wss://user:CRET@a.example.com,wss://user:CRET@b.example.com",
		"https://user:S3CRET@nos.lol",
		"user:S3CRET@nos.lol",
		"wss:\\\\user:S3CRET@nos.lol",
		"wss://user:S3CRET%40nos.lol",
		"wss://nos.lol/?token=S3CRET",
		"wss://nos.lol?S3CRET\nwss://nos.lol/",
		"nos.lol?token=S3CRET",
		"wss://nos.lol:x/?mail=a@CRET",
		"wss://nos.lol:x/#S3CRET",
	} {
		_, err := monitor.ParseRelayURL(input)
		var broken *monitor.URLError
		if !errors.As(err, &broken) {
			t.Errorf("%q was accepted", input)
			continue
		}
		for _, s := range []string{err.Error(), broken.Input} {
			if strings.Contains(s, "CRET") || strings.Contains(s, "S3") {
				t.Errorf("%q: secret in %q", input, s)
			}
		}
	}
}

func TestURLErrorMessage(t *testing.T) {
	for input, want := range map[string]string{
		" nostr.mom":                    `invalid relay URL "nostr.mom": scheme (it must begin with wss:// or ws://)`,
		"wss://u:p@nos.lol/x":           `invalid relay URL "wss://…@nos.lol/x": userinfo (it contains a user name or password; leave out everything up to the @)`,
		"wss://nos.lol/?a=b":            `invalid relay URL "wss://nos.lol/…": query (it contains a query; relays are watched without one)`,
		"wss://nos.lol/\x1b[31m\u202ex": `invalid relay URL "wss://nos.lol/�[31m�x": whitespace (it contains white space, a backslash or an invisible character)`,
		"":                              `invalid relay URL "": empty (there is no URL)`,
	} {
		_, err := monitor.ParseRelayURL(input)
		if err == nil || err.Error() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", input, err, want)
		}
	}
	for _, input := range []string{longURL(10_000), "wss://" + strings.Repeat("ü\x00\\\"", 300), strings.Repeat("\xff", 5000) + ":"} {
		_, err := monitor.ParseRelayURL(input)
		checkURLError(t, err)
		if !strings.HasSuffix(strings.SplitAfter(err.Error(), "…")[0], "…") {
			t.Errorf("not cut: %v", err)
		}
	}
	// Every reason has its words.
	for _, cases := range ruleCases {
		for _, c := range cases {
			if _, err := monitor.ParseRelayURL(c.input); err != nil && strings.HasSuffix(err.Error(), "()") {
				t.Errorf("no words in %q", err)
			}
		}
	}
}

// checkURLError fails when a message could hurt a terminal or a log.
func checkURLError(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 300 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("message %q", text)
	}
}

func FuzzParseRelayURL(f *testing.F) {
	for _, c := range readURLCases(f) {
		f.Add(c.input)
	}
	for _, cases := range ruleCases {
		for _, c := range cases {
			f.Add(c.input)
		}
	}
	f.Fuzz(func(t *testing.T, input string) {
		loose, looseErr := monitor.Canonical(input)
		if looseErr != nil {
			checkURLError(t, looseErr)
		} else {
			if again, err := monitor.Canonical(string(loose)); err != nil || again != loose {
				t.Fatalf("Canonical(%q) = %q, then %q, %v", input, loose, again, err)
			}
			checkCanonicalForm(t, loose)
		}
		u, err := monitor.ParseRelayURL(input)
		if err != nil {
			checkURLError(t, err)
			return
		}
		if again, err := monitor.ParseRelayURL(string(u)); err != nil || again != u {
			t.Fatalf("ParseRelayURL(%q) = %q, then %q, %v", input, u, again, err)
		}
		if looseErr != nil || loose != u {
			t.Fatalf("ParseRelayURL(%q) = %q, but Canonical = %q, %v", input, u, loose, looseErr)
		}
		if strings.ContainsAny(string(u), "?#@") && strings.ContainsAny(u.Host(), "?#@") {
			t.Fatalf("host of %q", u)
		}
	})
}

// checkCanonicalForm checks what holds of every relay URL.
func checkCanonicalForm(t *testing.T, u monitor.RelayURL) {
	t.Helper()
	s := string(u)
	if len(s) > 512 {
		t.Fatalf("%q has %d bytes", s, len(s))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '\\' {
			t.Fatalf("%q has byte %#x", s, s[i])
		}
	}
	scheme := "ws"
	if u.TLS() {
		scheme = "wss"
	}
	authority, rest, _ := strings.Cut(strings.TrimPrefix(s, scheme+"://"), "/")
	if !strings.HasPrefix(s, scheme+"://") || "/"+rest != u.Path() {
		t.Fatalf("%q: scheme %q, path %q", s, scheme, u.Path())
	}
	host, port, err := net.SplitHostPort(u.HostPort())
	if err != nil || host != u.Host() || port != u.Port() || host == "" {
		t.Fatalf("%q: HostPort %q, %v", s, u.HostPort(), err)
	}
	if path, _, _ := strings.Cut(u.Path(), "?"); strings.Contains(path, "//") {
		t.Fatalf("%q has //", s)
	}
	// The standard library reads the same, where it accepts lone percent signs.
	parsed, err := url.Parse(scheme + "://" + authority + "/")
	if err != nil || parsed.Hostname() != u.Host() || parsed.User != nil {
		t.Fatalf("net/url reads %q as %v, %v", s, parsed, err)
	}
}

func BenchmarkParseRelayURL(b *testing.B) {
	for name, s := range map[string]string{
		"canonical": "wss://relay.example.com/",
		"host":      "WSS://Relay.Example.com:443",
		"path":      "wss://relay.example.com//a/../b",
		"idn":       "wss://bücher.example.com",
		"onion":     "ws://" + onion,
		"ipv4":      "ws://1.1.1.1:8080",
		"rejected":  "wss://relay.example.com/?secret=abc",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = monitor.ParseRelayURL(s)
			}
		})
	}
}
