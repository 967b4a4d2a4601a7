package postgres

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Root in a container may not look at another user's process: the server's
// socket tells who listens.
func TestServerThatIsNotShown(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	p, ok := readPIDFile(c.pgDir)
	if !ok {
		t.Fatal("there is no pid file")
	}
	if !listens(p.pid, c.pgDir) || listens(os.Getpid(), c.pgDir) || listens(p.pid, testDir(t)) {
		t.Error("the socket does not tell the server from others")
	}
	// The file of a server that is gone, its number another one's by now.
	stale := filepath.Join(testDir(t), "pg")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, "postmaster.pid"), []byte("1\n"+stale+"\n0\n"+p.port+"\n"+p.runDir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if listens(1, stale) {
		t.Error("another's socket is taken for process 1's")
	}
	if os.Geteuid() != 0 {
		return // the server runs as we do, and is shown
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := dropPtrace(); err != nil {
			t.Error(err)
			return
		}
		if _, err := worksIn(p.pid, c.pgDir); err == nil {
			t.Error("the server is shown all the same")
		}
		if !serves(p.pid, c.pgDir) || elsewhere(p.pid, c.pgDir) {
			t.Error("the server is not found")
		}
		if connected, err := ConnectCluster(t.Context(), ClusterConfig{DataDir: dir}); err != nil || connected.URL() != c.URL() {
			t.Errorf("connected to %v, %v", connected, err)
		}
	}()
	<-done
}

// dropPtrace takes from this thread the right to look at other users'
// processes.
func dropPtrace() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	return unix.Capset(&head, &caps[0])
}

// Who starts Pharos may stand in a directory that is closed to the server's
// user.
func TestStartFromAClosedDirectory(t *testing.T) {
	dir, here := testDir(t), t.TempDir()
	t.Chdir(here)
	if err := os.Chmod(here, 0); err != nil {
		t.Fatal(err)
	}
	startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	if log, err := os.ReadFile(logPath(dir)); err != nil || strings.Contains(string(log), "directory") {
		t.Errorf("the server complains: %s %v", log, err)
	}
}
