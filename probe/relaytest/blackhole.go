//go:build unix

package relaytest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// blackHole listens with an accept queue of length 0 and fills it.
func blackHole() (addr netip.AddrPort, stop func(), err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return addr, nil, fmt.Errorf("socket: %w", err)
	}
	var fill []net.Conn
	stop = func() {
		for _, c := range fill {
			c.Close()
		}
		_ = syscall.Close(fd)
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return addr, nil, fmt.Errorf("bind: %w", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return addr, nil, fmt.Errorf("listen: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return addr, nil, fmt.Errorf("getsockname: %w", err)
	}
	addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	// One connection fills the queue; kernels that take one more show it by
	// answering again.
	d := net.Dialer{Timeout: 100 * time.Millisecond}
	for range 8 {
		c, err := d.DialContext(context.Background(), "tcp4", addr.String())
		if err != nil {
			return addr, stop, nil
		}
		fill = append(fill, c)
	}
	return addr, nil, fmt.Errorf("the accept queue of %s does not fill", addr)
}
