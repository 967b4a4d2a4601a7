//go:build unix

package probe

import (
	"net"
	"syscall"
	"time"
)

// pending reports whether the kernel holds bytes of the peer that were not yet
// read, or the news of its end. It waits for nothing and takes nothing.
func pending(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	found := false
	_ = conn.SetReadDeadline(time.Time{}) // one that has passed would hide what is there
	_ = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		found = err == nil
		return true // the socket does not block
	})
	return found
}
