package monitor_test

import (
	"net/netip"
	"testing"

	"github.com/pharos-nostr/pharos/monitor"
)

func TestPublicAddress(t *testing.T) {
	public := []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		"2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2a00::1", "3ffe::1",
		"::ffff:1.1.1.1", "64:ff9b::8.8.8.8", "2002:808:808::1",
	}
	private := []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.2.0", "192.168.0.0", "192.168.255.255",
		"198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.255", "224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::2", "100::1", "fc00::", "fd00::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "5f00::1",
		"2001:db8::1", "2001::1", "2001:2::1", "2001:10::1", "2001:1ff:ffff::", "3fff::1", "3fff:fff:ffff::1", "64:ff9b:1::1",
		"::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:0.0.0.0", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe",
		"2002:7f00:1::", "2002:c0a8:101::1", "2002::1", "2002:e000:1::",
	}
	for _, s := range public {
		if !monitor.PublicAddress(netip.MustParseAddr(s)) {
			t.Errorf("%s is refused", s)
		}
	}
	for _, s := range private {
		if monitor.PublicAddress(netip.MustParseAddr(s)) {
			t.Errorf("%s is accepted", s)
		}
	}
	if monitor.PublicAddress(netip.Addr{}) {
		t.Error("no address is accepted")
	}
}

func TestPublicAddressAllow(t *testing.T) {
	for _, c := range []struct {
		allow, addr string
		want        bool
	}{
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true}, // the same address
		{"127.0.0.0/8", "10.0.0.1", false},
		{"127.0.0.0/8", "1.1.1.1", true},
		{"127.0.0.0/8", "64:ff9b::127.0.0.1", false}, // another machine's
		{"64:ff9b::/96", "64:ff9b::127.0.0.1", true},
		{"fe80::/10", "fe80::1%eth0", true},
		{"::1/128", "::1", true},
	} {
		got := monitor.PublicAddress(netip.MustParseAddr(c.addr), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix(c.allow))
		if got != c.want {
			t.Errorf("%s with %s open: %v, want %v", c.addr, c.allow, got, c.want)
		}
	}
}
