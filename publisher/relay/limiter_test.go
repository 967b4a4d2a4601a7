package relay

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

func TestVisitorKey(t *testing.T) {
	for a, want := range map[string]string{
		"192.0.2.7":               "192.0.2.7/32",
		"::ffff:192.0.2.7":        "192.0.2.7/32",
		"2001:db8:1:2:3:4:5:6":    "2001:db8:1:2::/64",
		"2001:db8:1:2::":          "2001:db8:1:2::/64",
		"2001:db8:1:3::":          "2001:db8:1:3::/64",
		"fe80::1%a-zone-of-a-net": "fe80::/64",
	} {
		if got := visitorKey(netip.MustParseAddr(a)).String(); got != want {
			t.Errorf("%s: %s, want %s", a, got, want)
		}
	}
	if got := visitorKey(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("no address: %s", got)
	}
}

// TestAllowance: a minute's worth at once, then one for each share of a minute,
// and never more saved up; what is refused costs nothing.
func TestAllowance(t *testing.T) {
	l, now := newLimiter(), time.Now()
	v := l.connect(visitorKey(netip.MustParseAddr("192.0.2.1")), 1, now)
	allowed := func(perMinute int) (n int) {
		for l.request(v, perMinute, now) == 0 {
			n++
		}
		return n
	}
	for _, step := range []struct {
		after     time.Duration
		perMinute int
		want      int
		wait      time.Duration // after those
	}{
		{0, 6, 6, 10 * time.Second},
		{9 * time.Second, 6, 0, time.Second},
		{time.Second, 6, 1, 10 * time.Second},
		{35 * time.Second, 6, 3, 5 * time.Second},
		{24 * time.Hour, 6, 6, 10 * time.Second},
		{0, 600, 0, 100 * time.Millisecond}, // a raised limit holds from now on
		{time.Second, 600, 10, 100 * time.Millisecond},
		{time.Second, 1, 0, 59 * time.Second},
	} {
		now = now.Add(step.after)
		if n := allowed(step.perMinute); n != step.want {
			t.Errorf("%s later %d of %d a minute are allowed, want %d", step.after, n, step.perMinute, step.want)
		}
		if got := l.request(v, step.perMinute, now); got != step.wait {
			t.Errorf("%s later: wait %s, want %s", step.after, got, step.wait)
		}
	}
}

// TestManyAddresses: what is remembered is bounded, is nothing once an address
// is quiet, and never loses count of a connection.
func TestManyAddresses(t *testing.T) {
	l, now := newLimiter(), time.Now()
	addr := func(i int) netip.Prefix {
		var b [16]byte
		b[0] = 0x20
		binary.BigEndian.PutUint32(b[4:], uint32(i))
		return visitorKey(netip.AddrFrom16(b))
	}
	stays := l.connect(addr(0), 1, now)
	for i := 1; i < maxAddresses+5000; i++ {
		v := l.connect(addr(i), 1, now)
		l.request(v, 1, now)
		l.disconnect(v, now)
	}
	if n := len(l.by); n != maxAddresses {
		t.Errorf("%d addresses are remembered, want %d", n, maxAddresses)
	}
	if l.connect(addr(0), 1, now) != nil {
		t.Error("the connection that stays was forgotten")
	}
	// Those that asked are whole again after a minute.
	now = now.Add(sweepEvery)
	l.request(stays, 1, now)
	if n := len(l.by); n != 1 {
		t.Errorf("a minute later %d addresses are remembered, want the connected one", n)
	}
	v := l.connect(addr(7), 1, now) // asks nothing
	l.disconnect(v, now)
	l.disconnect(stays, now.Add(time.Minute))
	if n := len(l.by); n != 0 {
		t.Errorf("%d are remembered when all are gone", n)
	}
}
