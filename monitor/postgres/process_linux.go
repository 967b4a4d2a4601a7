package postgres

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
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
// directory is its data directory. Where the kernel does not show it to us (a
// process of another user, and no CAP_SYS_PTRACE, as in containers), the socket
// tells whose it is.
func serves(pid int, dir string) bool {
	here, err := worksIn(pid, dir)
	if err != nil {
		return listens(pid, dir)
	}
	return here
}

// elsewhere reports whether process pid lives and is certainly no server on
// dir.
func elsewhere(pid int, dir string) bool {
	here, err := worksIn(pid, dir)
	return err == nil && !here
}

// worksIn compares the working directory of process pid with dir. An error: the
// process has ended, or is not ours to look at.
func worksIn(pid int, dir string) (bool, error) {
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false, err
	}
	data, err := os.Stat(dir)
	return err == nil && os.SameFile(cwd, data), nil
}

// listens reports whether process pid listens on the socket of the server that
// the file in dir speaks of.
func listens(pid int, dir string) bool {
	p, ok := readPIDFile(dir)
	if !ok || p.pid != pid || p.runDir == "" {
		return false
	}
	conn, err := net.DialTimeout("unix", filepath.Join(p.runDir, ".s.PGSQL."+p.port), time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing was said
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return false
	}
	var peer *syscall.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		peer, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	return err == nil && failure == nil && int(peer.Pid) == pid
}
