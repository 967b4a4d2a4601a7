//go:build !linux

package probe

import "syscall"

// lateBind has nothing to set where the kernel has no such option.
func lateBind(syscall.RawConn) error { return nil }
