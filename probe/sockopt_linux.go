package probe

import "syscall"

// ipBindAddressNoPort is IP_BIND_ADDRESS_NO_PORT of linux/in.h.
const ipBindAddressNoPort = 24

// lateBind lets the kernel choose the port of a socket with a source address
// at connect, per destination: chosen at bind, each port would serve one
// connection only, and a vantage runs out of them within a minute.
func lateBind(raw syscall.RawConn) error {
	// Older kernels do not know it; the socket works without.
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipBindAddressNoPort, 1)
	})
}
