//go:build unix

package vantage

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// cpuTime is the processor time that this process has used, false = not known.
func cpuTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

// descriptors counts the open file descriptors and how many there may be,
// false = not known.
func descriptors() (used, limit int, ok bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, false
	}
	d, err := os.Open("/dev/fd")
	if err != nil {
		// None left to look with is the answer too.
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			return int(min(r.Cur, 1<<30)), int(min(r.Cur, 1<<30)), true
		}
		return 0, 0, false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return 0, 0, false
	}
	return len(names), int(min(r.Cur, 1<<30)), true
}
