package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// testDir returns a directory that PostgreSQL's user can enter; t.TempDir is
// closed to it when the tests run as root.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", testPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startTest(t *testing.T, cfg ClusterConfig) *Cluster {
	t.Helper()
	c, err := StartCluster(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopTest(t, c) })
	return c
}

func stopTest(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func openURL(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ingestTest stores batch seq of one relay, which it also watches.
func ingestTest(s *Store, seq uint64) error {
	const relay = monitor.RelayURL("wss://a.example/")
	at := time.Now()
	ctx := context.Background()
	if seq == 1 {
		err := errors.Join(s.Enrol(ctx, monitor.Vantage{Name: "a", Enrolled: at}),
			s.Watch(ctx, []monitor.WatchedRelay{{URL: relay, Source: monitor.SourceConfig, FirstSeen: at}}))
		if err != nil {
			return err
		}
	}
	return s.Ingest(ctx, &monitor.Ingest{
		Batch:   monitor.Batch{Vantage: "a", Seq: seq, Observations: []monitor.Observation{{Relay: relay, At: at, Outcome: monitor.OutcomeOK}}},
		Records: map[monitor.RelayURL]monitor.VantageRelay{relay: {Record: monitor.Record{State: monitor.StateOnline, LastSuccess: at}}},
	})
}

// stored returns the vantage's sequence and the number of observations.
func stored(t *testing.T, url string) (seq, rows int64) {
	t.Helper()
	conn := connectTest(t, url)
	return query[int64](t, conn, "SELECT last_seq FROM vantage")[0], query[int64](t, conn, "SELECT count(*) FROM observation")[0]
}

func TestClusterStopAndStart(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	c := startTest(t, ClusterConfig{DataDir: dir})
	if info, err := os.Stat(c.runDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket's directory: %v, %v", info.Mode(), err)
	}
	conn, err := c.connect(t.Context(), clusterDB)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"listen_addresses": "", "server_encoding": "UTF8", "lc_collate": "C", "synchronous_commit": "on", "fsync": "on", "full_page_writes": "on", "data_checksums": "on",
	} {
		if got := query[string](t, conn, "SELECT current_setting($1)", setting)[0]; got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	closeConn(conn)

	s := openURL(t, c.URL())
	if err := ingestTest(s, 1); err != nil {
		t.Fatal(err)
	}
	// The database goes away under an open store, and comes back.
	stopTest(t, c)
	stopTest(t, c)
	if _, err := ConnectCluster(t.Context(), ClusterConfig{DataDir: dir}); !errors.Is(err, monitor.ErrNotFound) {
		t.Errorf("connect to a stopped cluster: %v", err)
	}
	if err := ingestTest(s, 2); !errors.Is(err, monitor.ErrUnavailable) {
		t.Errorf("ingest without database: %v", err)
	}
	for what, err := range map[string]error{"ping": s.Ping(t.Context()), "load": func() error { _, err := s.Load(t.Context()); return err }()} {
		if !errors.Is(err, monitor.ErrUnavailable) {
			t.Errorf("%s without database: %v", what, err)
		}
	}
	again := startTest(t, ClusterConfig{DataDir: dir})
	tryUntil(t, func() error { return ingestTest(s, 2) })
	if seq, rows := stored(t, again.URL()); seq != 2 || rows != 2 {
		t.Errorf("sequence %d, %d observations", seq, rows)
	}
	tryUntil(t, func() error { return s.Ping(t.Context()) })
	s.Close()
}

// A server that dies is started again, and nothing that was answered is lost.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	c := startTest(t, ClusterConfig{DataDir: testDir(t), disposable: true})
	s := openURL(t, c.URL())
	if err := ingestTest(s, 1); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	pid := c.pid
	c.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Sessions may outlive their server for a moment: wait for the next one.
	tryUntil(t, func() error {
		c.mu.Lock()
		again := c.starts > 1
		c.mu.Unlock()
		if !again {
			return monitor.ErrUnavailable
		}
		return fail("connect", c.try(t.Context()))
	})
	for seq := uint64(2); seq <= 4; seq++ {
		tryUntil(t, func() error { return ingestTest(s, seq) })
	}
	if seq, rows := stored(t, c.URL()); seq != 4 || rows != 4 {
		t.Errorf("sequence %d, %d observations", seq, rows)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starts < 2 || c.pid == pid {
		t.Errorf("%d starts, process %d after %d", c.starts, c.pid, pid)
	}
	s.Close()
}

// After kill -9 of the program the next one finds its data: the server has been
// interrupted with its parent, or is used as it is.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	helper := exec.CommandContext(t.Context(), os.Args[0])
	helper.Env = append(os.Environ(), helperVariable+"="+dir)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	url, ready := "", false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		if url, ready = strings.CutPrefix(lines.Text(), "ready "); !ready {
			t.Fatalf("the helper said %q", lines.Text())
		}
	}
	connected, err := ConnectCluster(t.Context(), ClusterConfig{DataDir: dir})
	if err != nil || connected.URL() != url {
		t.Fatalf("connected to %v, helper's is %s: %v", connected, url, err)
	}
	s := openURL(t, url)
	if err := ingestTest(s, 1); err != nil {
		t.Fatal(err)
	}
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := helper.Wait(); err == nil {
		t.Error("the helper ended by itself")
	}
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	tryUntil(t, func() error { return ingestTest(s, 2) })
	if seq, rows := stored(t, c.URL()); seq != 2 || rows != 2 {
		t.Errorf("sequence %d, %d observations", seq, rows)
	}
	s.Close()
}

// A second process on the same directory uses the running server and leaves it
// running while the first one does.
func TestClusterIsShared(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	first := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	s := openURL(t, first.URL())
	second, err := StartCluster(t.Context(), ClusterConfig{DataDir: dir, disposable: true})
	if err != nil {
		t.Fatal(err)
	}
	if second.URL() != first.URL() || !second.adopted {
		t.Errorf("second at %s, adopted %t", second.URL(), second.adopted)
	}
	if _, err := Open(t.Context(), Config{URL: second.URL(), LockWait: time.Millisecond}); !errors.Is(err, monitor.ErrConflict) {
		t.Errorf("a second store: %v", err)
	}
	stopTest(t, second)
	if err := ingestTest(s, 1); err != nil {
		t.Errorf("after the second went: %v", err)
	}
	s.Close()
	first.mu.Lock()
	defer first.mu.Unlock()
	if first.starts != 1 {
		t.Errorf("%d starts", first.starts)
	}
}

// One that was found running and is used by nobody else is stopped by the last
// that uses it.
func TestAdoptedIsStoppedByTheLast(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	first := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	second, err := StartCluster(t.Context(), ClusterConfig{DataDir: dir, disposable: true})
	if err != nil {
		t.Fatal(err)
	}
	// The first forgets to restart it, as if it had been killed.
	first.stop()
	pid := second.pid
	stopTest(t, second)
	if serves(pid, second.pgDir) {
		t.Error("the server still runs")
	}
}

// Every path that a file system takes is one for a data directory.
func TestOddPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testDir(t), `a b+c%20"d'e&f=g`)
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	openURL(t, c.URL()).Close()
	stopTest(t, c)
}

func TestLongPathStartsElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(testDir(t), strings.Repeat("a long name, with spaces ", 5))
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	if n := len(socketPath(c.runDir)); n > maxSocketPath || strings.HasPrefix(c.runDir, dir) {
		t.Errorf("socket in %s, %d bytes", c.runDir, n)
	}
	if info, err := os.Stat(c.runDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket's directory: %v, %v", info.Mode(), err)
	}
	openURL(t, c.URL()).Close()
	stopTest(t, c)
	if _, err := os.Stat(c.runDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's directory stays behind: %v", err)
	}
}

// A pid file whose number belongs to another process by now is stale, and so
// is a half-made cluster; a large log is set aside.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "pg.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logPath(dir), make([]byte, maxLog+1), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	openURL(t, c.URL()).Close()
	stopTest(t, c)
	if info, err := os.Stat(logPath(dir)); err != nil || info.Size() > maxLog {
		t.Errorf("log: %v, %v", info, err)
	}
	pidFile := filepath.Join(dir, "pg", "postmaster.pid")
	if err := os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s\n0\n%s\n%s\n\n", os.Getpid(), c.pgDir, clusterPort, c.runDir), 0o600); err != nil {
		t.Fatal(err)
	}
	again := startTest(t, ClusterConfig{DataDir: dir, disposable: true})
	openURL(t, again.URL()).Close()
}

// Over TCP the leader's session asks for the keep-alives that free its lock.
func TestLeaderSession(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := startTest(t, ClusterConfig{DataDir: testDir(t), disposable: true, extra: []string{"listen_addresses=127.0.0.1"}, port: strconv.Itoa(port)})
	s := openURL(t, fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", clusterUser, port, clusterDB))
	for setting, want := range map[string]string{
		"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "2", "tcp_user_timeout": "15000",
	} {
		if got := query[string](t, s.leader.conn, "SELECT current_setting($1)", setting)[0]; got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	s.Close()
	stopTest(t, c)
}

// fakeBinaries makes programs that say they are of that version.
func fakeBinaries(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + program + " (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old := fakeBinaries(t, filepath.Join(root, "lib", "14", "bin"), "14.20 (Debian 14.20-1)")
	newest := fakeBinaries(t, filepath.Join(root, "lib", "18", "bin"), "18beta1")
	ancient := fakeBinaries(t, filepath.Join(root, "ancient"), "9.6.24")
	links := filepath.Join(root, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"postgres", "initdb"} {
		if err := os.Symlink(filepath.Join(old, p), filepath.Join(links, p)); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(root, "empty")
	both := []string{filepath.Join(root, "lib", "*", "bin")}
	for name, c := range map[string]struct {
		pgBin, path string
		patterns    []string
		data        int
		want        string
		kind        error
		says        []string
	}{
		"newest":                 {patterns: both, want: newest},
		"the one of the data":    {patterns: both, data: 14, want: old},
		"in PATH, through links": {path: empty + ":" + links, want: old},
		"named":                  {pgBin: old, path: newest, patterns: both, want: old},
		"none":                   {path: empty, kind: monitor.ErrNotFound, says: []string{installCommand(), "database.url"}},
		"none where named":       {pgBin: empty, patterns: both, kind: monitor.ErrNotFound, says: []string{"database.pg_bin", empty, installCommand()}},
		"too old":                {path: ancient, kind: monitor.ErrInvalid, says: []string{"version 9", "14 or newer"}},
		"other data":             {patterns: both, data: 16, kind: monitor.ErrConflict, says: []string{"made by PostgreSQL 16", "only version 18"}},
	} {
		got, err := findBinaries(t.Context(), c.pgBin, c.path, c.patterns, c.data)
		if got.dir != c.want || !errors.Is(err, c.kind) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for _, s := range c.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not say %q", name, err, s)
			}
		}
	}
}

func TestFindBinariesInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("told to end")
	cancel(told)
	if _, err := findBinaries(ctx, fakeBinaries(t, t.TempDir(), "18"), "", nil, 0); !errors.Is(err, told) {
		t.Errorf("interrupted: %v", err)
	}
}

// The programs are run from other directories than ours.
func TestProgramDirsAreAbsolute(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pgBin, path string
		want        []string
	}{
		{"bin", "/usr/bin", []string{filepath.Join(here, "bin")}},
		{"", "bin:/usr/bin::.:/bin", []string{"/usr/bin", "/bin"}},
	} {
		if dirs, err := programDirs(c.pgBin, c.path, nil); err != nil || !slices.Equal(dirs, c.want) {
			t.Errorf("%q, %q: %q, %v", c.pgBin, c.path, dirs, err)
		}
	}
}

func TestInstallCommand(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{
		"ID=debian\n": "apt-get", "ID=mint\nID_LIKE=\"ubuntu debian\"\n": "apt-get", "ID=fedora\n": "dnf",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n": "dnf", "ID=alpine\n": "apk", "ID=arch\n": "pacman",
	} {
		if got := installCommandFor(release); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", release, got)
		}
	}
}

// Each says what is wrong and what to do, in one line, and deletes nothing.
func TestStartRefusals(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	with := func(name string, files map[string]string) string {
		t.Helper()
		d := filepath.Join(dir, name)
		if err := os.MkdirAll(d, 0o711); err != nil {
			t.Fatal(err)
		}
		for f, content := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(d, f)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(d, f), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	bin, err := findBinaries(t.Context(), "", os.Getenv("PATH"), searchPatterns, 0)
	if err != nil {
		t.Fatal(err)
	}
	here := strconv.Itoa(bin.major)
	for name, c := range map[string]struct {
		cfg  ClusterConfig
		says []string
	}{
		"other version":     {ClusterConfig{DataDir: with("old", map[string]string{"pg/PG_VERSION": "9\n"})}, []string{"made by PostgreSQL 9", "PHAROS_DATABASE_PG_BIN", "pharos backup", "pharos restore FILE"}},
		"no version":        {ClusterConfig{DataDir: with("junk", map[string]string{"pg/PG_VERSION": "x"})}, []string{"PG_VERSION", "damaged"}},
		"damaged":           {ClusterConfig{DataDir: with("damaged", map[string]string{"pg/PG_VERSION": here + "\n"})}, []string{"did not start", "postgresql.conf"}},
		"something else":    {ClusterConfig{DataDir: with("other", map[string]string{"pg/diary.txt": "dear"})}, []string{"holds no database", "move it away"}},
		"no directory":      {ClusterConfig{}, []string{"data_dir"}},
		"below a file":      {ClusterConfig{DataDir: filepath.Join(with("file", map[string]string{"f": ""}), "f", "x")}, []string{"--data-dir"}},
		"no programs there": {ClusterConfig{DataDir: with("bin", nil), PgBin: dir}, []string{"database.pg_bin", installCommand()}},
	} {
		started, err := StartCluster(t.Context(), c.cfg)
		if err == nil {
			stopTest(t, started)
			t.Errorf("%s: started", name)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not say %q", name, err, s)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", name, err)
		}
	}
	for _, kept := range []string{"old/pg/PG_VERSION", "junk/pg/PG_VERSION", "damaged/pg/PG_VERSION", "other/pg/diary.txt"} {
		if _, err := os.Stat(filepath.Join(dir, kept)); err != nil {
			t.Error(err)
		}
	}
}

func TestBarrier(t *testing.T) {
	t.Parallel()
	root := testDir(t)
	shut := filepath.Join(root, "shut")
	inner := filepath.Join(shut, "data")
	for _, d := range []string{shut, inner} {
		if err := os.Mkdir(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	stranger := &account{name: "stranger", uid: 54321, gid: 54321}
	owner := &account{name: "owner", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if got, err := barrier(inner, stranger); got != "" || err != nil {
		t.Errorf("open way: %q, %v", got, err)
	}
	if err := os.Chmod(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	want, err := filepath.EvalSymlinks(shut)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := barrier(inner, stranger); got != want || err != nil {
		t.Errorf("shut for others: %q, %v", got, err)
	}
	if got, err := barrier(inner, owner); got != "" || err != nil {
		t.Errorf("shut for others, asked by the owner: %q, %v", got, err)
	}
	if os.Geteuid() != 0 {
		return // only root hands the server to another user
	}
	_, err = StartCluster(t.Context(), ClusterConfig{DataDir: inner})
	if err == nil || !strings.Contains(err.Error(), "chmod o+x "+want) || !strings.Contains(err.Error(), "/var/lib/pharos") {
		t.Errorf("started below a shut directory: %v", err)
	}
}

func TestExplanations(t *testing.T) {
	t.Parallel()
	nobody := &account{name: "nobody"}
	for line, says := range map[string]string{
		`2026-11-29 20:00:00.000 UTC [7] FATAL:  could not write lock file "postmaster.pid": No space left on device`: "make room",
		`2026-11-29 20:00:00.000 UTC [7] FATAL:  could not open file "global/pg_filenode.map": Permission denied`:     "user nobody may not",
		`2026-11-29 20:00:00.000 UTC [7] FATAL:  data directory "/x/pg" has invalid permissions`:                      "chmod -R go-rwx",
		`2026-11-29 20:00:00.000 UTC [7] FATAL:  could not map anonymous shared memory: Cannot allocate memory`:       "too little memory",
		`2026-11-29 20:00:00.000 UTC [7] PANIC:  something new`:                                                       "something new: see /data/postgres.log",
		"": "/data/postgres.log",
	} {
		if err := explainExit(complaint(line+"\n2026-11-29 20:00:00.000 UTC [7] LOG:  database system is shut down\n"), "/data", nobody); line != "" && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", line, err)
		}
	}
	for output, says := range map[string]string{
		"initdb: error: could not look up effective user ID 54321: user does not exist": "/etc/passwd",
		"initdb: error: could not create directory \"/x\": Permission denied":           "--data-dir",
		"initdb: error: could not write file: No space left on device":                  "make room",
		"initdb: error: something new":                                                  "something new",
	} {
		if err := explainInit(errors.New("exit status 1"), output, "/data/pg"); !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", output, err)
		}
	}
	if err := explainInit(&fs.PathError{Op: "mkdir", Path: "/x", Err: syscall.ENOSPC}, "", "/x"); !strings.Contains(err.Error(), "make room") {
		t.Error(err)
	}
}

// A user without an entry in the passwd file: what a container with a bare
// --user has.
func TestUserWithoutEntry(t *testing.T) {
	t.Parallel()
	c, err := newCluster(ClusterConfig{DataDir: testDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	if c.bin, err = findBinaries(t.Context(), "", os.Getenv("PATH"), searchPatterns, 0); err != nil {
		t.Fatal(err)
	}
	c.account = &account{name: "54321", uid: 54321, gid: 54321}
	// Only root can become somebody else; others are told that they cannot.
	want := "/etc/passwd"
	if os.Geteuid() != 0 {
		want = "not permitted"
	}
	if err := c.initdb(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(filepath.Join(c.dataDir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// fakeTB records how a test would fail.
type fakeTB struct{ failure string }

func (f *fakeTB) Helper()        {}
func (f *fakeTB) Cleanup(func()) {}
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failure = fmt.Sprintf(format, args...)
	panic(f)
}

// Without programs a test fails, and says how to install them.
func TestTestDatabaseFailsWithoutPrograms(t *testing.T) {
	t.Parallel()
	c := testCluster{pgBin: t.TempDir()}
	f := &fakeTB{}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		c.database(f)
	}()
	if !strings.Contains(f.failure, installCommand()) {
		t.Errorf("failure %q", f.failure)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}
