package postgres

import (
	"fmt"
	"os"
	"syscall"
)

// childAttr is how a program of PostgreSQL is run: as account when that is not
// nil, in a process group of its own, so that a terminal's interrupt reaches us
// alone and we stop it when we are done, and interrupted by the kernel when the
// thread that started it ends, that is when we are killed.
func childAttr(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// serves reports whether process pid is a server on dir: a server's working
// directory is its data directory.
func serves(pid int, dir string) bool {
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	data, err := os.Stat(dir)
	return err == nil && os.SameFile(cwd, data)
}
