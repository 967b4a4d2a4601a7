package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pharos-nostr/pharos/monitor"
)

// A Unix socket's path holds at most 107 bytes and a final zero.
const maxSocketPath = 107

// account is a user of this machine.
type account struct {
	name     string
	uid, gid uint32
}

// prepareDataDir makes the data directory and returns as whom the server must
// run: PostgreSQL refuses root, so root hands it to the owner of an existing
// cluster, else of the data directory, to postgres or to nobody.
func prepareDataDir(dataDir, pgDir string) (*account, error) {
	root := os.Geteuid() == 0
	mode := fs.FileMode(0o700)
	if root {
		mode = 0o711 // the server's user must get through
	}
	if err := os.MkdirAll(dataDir, mode); err != nil {
		return nil, fmt.Errorf("the data directory %s cannot be made: %w: choose another with --data-dir", dataDir, err)
	}
	owner, there, err := ownerOf(pgDir)
	if err != nil {
		return nil, err
	}
	if !root {
		if there && int(owner.uid) != os.Geteuid() {
			return nil, fmt.Errorf("%w: the database in %s belongs to user %s: start Pharos as that user or as root, or run \"chown -R %d %s\"",
				monitor.ErrInvalid, pgDir, owner.name, os.Geteuid(), pgDir)
		}
		return nil, nil
	}
	if there && owner.uid != 0 {
		return owner, nil
	}
	if real, err := filepath.EvalSymlinks(dataDir); err == nil {
		owner, _, err := ownerOf(real)
		if err != nil {
			return nil, err
		}
		// A number without a name is one of another machine's, of a mounted volume.
		if u, err := user.LookupId(strconv.FormatUint(uint64(owner.uid), 10)); err == nil {
			if a, ok := accountOf(u); ok {
				return a, nil
			}
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		if a, ok := accountOf(u); ok {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%w: PostgreSQL refuses to run as root, and there is no user postgres or nobody: make one with \"useradd --system postgres\", or start Pharos as another user", monitor.ErrNotFound)
}

// accountOf is u with its own group; false when a server may not run as u.
func accountOf(u *user.User) (*account, bool) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil || uid == 0 {
		return nil, false
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &account{u.Username, uint32(uid), uint32(gid)}, err == nil
}

// ownerOf returns who owns path, and whether it is there.
func ownerOf(path string) (*account, bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look at %s: %w", path, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, false, fmt.Errorf("look at %s: its owner cannot be read", path)
	}
	a := &account{name: strconv.FormatUint(uint64(st.Uid), 10), uid: st.Uid, gid: st.Gid}
	if u, err := user.LookupId(a.name); err == nil {
		a.name = u.Username
	}
	return a, true, nil
}

// lockDataDir keeps two processes from preparing the same directory at a time.
func lockDataDir(ctx context.Context, dataDir string) (unlock func(), err error) {
	path := filepath.Join(dataDir, "pg.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the data directory %s cannot be written: %w: mend its permissions, or choose another with --data-dir", dataDir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // the lock goes with it
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("%w: another process has been starting a database in %s for a minute: stop it", monitor.ErrUnavailable, dataDir), f.Close())
		}
	}
}

// checkAccess makes sure that the server's user can enter the data directory
// and run the programs, and hands it what it must own.
func (c *Cluster) checkAccess(ctx context.Context) error {
	if c.account == nil {
		return nil
	}
	if dir, err := barrier(c.dataDir, c.account); err != nil {
		return err
	} else if dir != "" {
		return fmt.Errorf("%w: PostgreSQL may not run as root, and user %s cannot get through %s to the data directory %s: choose another with --data-dir (/var/lib/pharos), or run \"chmod o+x %s\"",
			monitor.ErrInvalid, c.account.name, dir, c.dataDir, dir)
	}
	if _, err := c.runProgram(ctx, "postgres", "--version"); err != nil {
		return fmt.Errorf("user %s cannot run %s: %w: make it and the directories above it readable for all, or choose others with database.pg_bin", c.account.name, c.bin.path("postgres"), err)
	}
	return giveTo(c.pgDir, c.account)
}

// barrier returns the first directory on the way to dir, or dir itself, that a
// may not enter.
func barrier(dir string, a *account) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("find data directory %s: %w", dir, err)
	}
	var way []string
	for d := real; ; d = filepath.Dir(d) {
		way = append(way, d)
		if d == filepath.Dir(d) {
			break
		}
	}
	for i := len(way) - 1; i >= 0; i-- {
		info, err := os.Stat(way[i])
		if err != nil {
			return "", fmt.Errorf("look at %s: %w", way[i], err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		bit := fs.FileMode(0o001)
		switch {
		case st.Uid == a.uid:
			bit = 0o100
		case st.Gid == a.gid:
			bit = 0o010
		}
		if info.Mode()&bit == 0 {
			return way[i], nil
		}
	}
	return "", nil
}

// giveTo makes a the owner of all that is in dir; a missing one is fine.
func giveTo(dir string, a *account) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == a.uid {
			return nil
		}
		return os.Lchown(path, int(a.uid), int(a.gid))
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hand %s to user %s: %w", dir, a.name, err)
	}
	return nil
}

// initdb makes the cluster under another name first: a half-made one is never
// taken for a whole one.
func (c *Cluster) initdb(ctx context.Context) error {
	fresh := c.pgDir + freshSuffix
	if err := c.makeData(ctx, fresh); err != nil {
		return err
	}
	// An empty directory of that name, from a mount point say, is in the way.
	err := os.Remove(c.pgDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s is there and holds no database: move it away, nothing in it is touched (%w)", monitor.ErrConflict, c.pgDir, err)
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, c.pgDir); err != nil {
		return errors.Join(fmt.Errorf("put the new database in place: %w", err), os.RemoveAll(fresh))
	}
	return nil
}

// freshSuffix names what a cluster is made in; one that is left behind was
// never used.
const freshSuffix = ".new"

// makeData makes the data of a cluster in fresh, in the place of an unfinished
// one.
func (c *Cluster) makeData(ctx context.Context, fresh string) (err error) {
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove the unfinished database %s: %w", fresh, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(fresh))
		}
	}()
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return explainInit(err, "", fresh)
	}
	if c.account != nil {
		if err := giveTo(fresh, c.account); err != nil {
			return err
		}
	}
	args := []string{"-D", fresh, "-U", clusterUser, "-A", "trust", "-E", "UTF8", "--locale=C", "--data-checksums", "--no-instructions"}
	if c.cfg.disposable {
		args = append(args, "--no-sync")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if out, err := c.runProgram(ctx, "initdb", args...); err != nil {
		return explainInit(err, out, c.pgDir)
	}
	return nil
}

// explainInit says why no cluster could be made.
func explainInit(err error, output, dir string) error {
	said := complaint(output)
	for _, known := range []struct{ text, advice string }{
		{"could not look up effective user ID", "this process runs as a user id without an entry in /etc/passwd, which PostgreSQL needs: add one, run as another user, or set database.url"},
		{"o space left on device", "the disk that holds " + dir + " is full: make room"},
		{"ermission denied", "the directory above " + dir + " may not be written: mend its permissions, or choose another with --data-dir"},
		{"ead-only file system", dir + " is on a read-only file system: choose another directory with --data-dir"},
	} {
		if strings.Contains(output+err.Error(), known.text) {
			return fmt.Errorf("%w: no database could be made: %s (%s)", monitor.ErrInvalid, known.advice, firstNonEmpty(said, err.Error()))
		}
	}
	return fmt.Errorf("no database could be made in %s: initdb said %q (%w): mend that, or set database.url", dir, said, err)
}

// runProgram runs one of PostgreSQL's programs as the server's user and returns
// its output. Like the server it is interrupted when we are killed.
func (c *Cluster) runProgram(ctx context.Context, program string, args ...string) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.bin.path(program), args...)
	cmd.Dir = c.dataDir
	cmd.Env = environment()
	cmd.SysProcAttr = childAttr(c.account)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = quitTimeout
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// environment leaves out the PG variables, which would change what the programs
// do, and everything else that they have no business to see.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// makeRunDir returns the socket's directory: run in the data directory, or,
// where that path is too long for a socket, a short one named for it. Only the
// server's user can enter it: that is the cluster's whole access control.
func makeRunDir(dataDir string, a *account) (string, error) {
	dir := filepath.Join(dataDir, "run")
	if len(socketPath(dir)) > maxSocketPath {
		sum := sha256.Sum256([]byte(dataDir))
		name := "pharos-" + hex.EncodeToString(sum[:6])
		base := "/tmp"
		if r := os.Getenv("XDG_RUNTIME_DIR"); a == nil && r != "" && len(socketPath(filepath.Join(r, name))) <= maxSocketPath {
			base = r
		} else if a != nil {
			if info, err := os.Stat("/run"); err == nil && info.IsDir() {
				base = "/run"
			}
		}
		dir = filepath.Join(base, name)
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil && a != nil {
		err = os.Lchown(dir, int(a.uid), int(a.gid))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the directory %s for the database's socket cannot be made: %w: make room there or mend its permissions", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", dir, err)
	}
	uid := uint32(os.Geteuid())
	if a != nil {
		uid = a.uid
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || st.Uid != uid {
		return "", fmt.Errorf("%w: %s, where the database's socket belongs, is somebody else's: remove it", monitor.ErrConflict, dir)
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return "", fmt.Errorf("close %s to others: %w", dir, err)
		}
	}
	return dir, nil
}

func socketPath(dir string) string { return filepath.Join(dir, ".s.PGSQL."+clusterPort) }

// quoteSocketDir writes dir for a setting that holds a list.
func quoteSocketDir(dir string) string {
	return `"` + strings.ReplaceAll(dir, `"`, `""`) + `"`
}

// pidFile is what a running server writes into postmaster.pid.
type pidFile struct {
	pid    int
	port   string
	runDir string
}

func readPIDFile(pgDir string) (pidFile, bool) {
	b, err := os.ReadFile(filepath.Join(pgDir, "postmaster.pid"))
	if err != nil {
		return pidFile{}, false
	}
	lines := strings.Split(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return pidFile{}, false
	}
	p := pidFile{pid: pid, port: clusterPort}
	if len(lines) > 4 { // it is written in two steps
		p.port, p.runDir = strings.TrimSpace(lines[3]), strings.TrimSpace(lines[4])
	}
	return p, true
}

// clearStalePIDFile removes the file of a server that is gone where PostgreSQL
// itself would hesitate: its number now belongs to another living process.
func clearStalePIDFile(pgDir string) {
	if p, ok := readPIDFile(pgDir); ok && elsewhere(p.pid, pgDir) {
		_ = os.Remove(filepath.Join(pgDir, "postmaster.pid")) // else the server says that it is there
	}
}

func firstNonEmpty(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
