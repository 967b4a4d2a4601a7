package probe

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
)

// resolver finds the addresses of a name, before ctx ends.
type resolver interface {
	resolve(ctx context.Context, name string) answer
}

// answer is what is known of a name.
type answer struct {
	addrs  []netip.Addr
	exists bool  // without addresses: false is NXDOMAIN
	err    error // nothing is proven; addrs is empty
}

// systemResolver answers as other programs of this machine are answered: hosts
// file, resolv.conf and all. That resolver cannot tell a name which does not
// exist from one without addresses; so where it finds neither, the servers of
// resolv.conf are asked directly. Where they cannot tell either, it is settled
// that there is no address.
type systemResolver struct {
	system *net.Resolver
	// servers returns those of resolv.conf, read when they are needed, which is
	// for dead names only.
	servers func() []netip.AddrPort
}

func newSystemResolver() *systemResolver {
	return &systemResolver{
		system:  &net.Resolver{PreferGo: true},
		servers: func() []netip.AddrPort { return resolvConf("/etc/resolv.conf") },
	}
}

func (r *systemResolver) resolve(ctx context.Context, name string) answer {
	host := name
	if strings.Contains(name, ".") {
		host += "." // keeps the search list out of it
	}
	addrs, err := r.system.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) > 0 {
		return answer{addrs: addrs, exists: true}
	}
	var dns *net.DNSError
	if err != nil && !(errors.As(err, &dns) && dns.IsNotFound) {
		return answer{err: err}
	}
	direct := directResolver{servers: r.servers()}
	if a := direct.resolve(ctx, name); a.err == nil {
		// With addresses, where the system believed the first server, and another
		// one knows better.
		return a
	}
	return answer{exists: true}
}

// resolvConf reads the name servers of a resolv.conf; none when it cannot be
// read.
func resolvConf(path string) []netip.AddrPort {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []netip.AddrPort
	lines := bufio.NewScanner(f)
	for lines.Scan() && len(out) < 3 { // as many as the C library uses
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53))
		}
	}
	return out
}
