//go:build !linux

package postgres

import (
	"os"
	"syscall"
)

// childAttr is how a program of PostgreSQL is run: as account when that is not
// nil, in a process group of its own, so that a terminal's interrupt reaches us
// alone and we stop it when we are done.
func childAttr(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// serves reports whether process pid may be a server on dir: here only whether
// it lives.
func serves(pid int, _ string) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// elsewhere reports whether process pid lives and is certainly no server on
// dir: here nobody can tell.
func elsewhere(int, string) bool { return false }
