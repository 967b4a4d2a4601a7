package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/pharos-nostr/pharos/monitor"
)

// program is pg_dump or pg_restore, ready to run against a database.
type program struct {
	path  string
	major int
	// conninfo names the database, without the password: others may read the
	// arguments of a process. That goes by its environment, which only its user
	// and root can read.
	conninfo string
	password string
	account  *account // as whom it runs, nil = as we do
	dir      string   // where it runs, "" = where we do
}

// findProgram returns the program called name for t: the one of the server's
// major version, else the newest. Server 0 = the newest.
func findProgram(ctx context.Context, name string, t Target, server int) (*program, error) {
	p, err := findNewest(ctx, name, t.PgBin, os.Getenv("PATH"), searchPatterns, server)
	if err != nil {
		return nil, err
	}
	if t.url() == "" {
		return p, nil
	}
	if p.conninfo, p.password, err = connInfo(t.url()); err != nil {
		return nil, err
	}
	if c := t.Cluster; c != nil {
		p.dir = "/" // ours may be closed to its user
		if p.account = c.account; p.account == nil && os.Geteuid() == 0 {
			owner, _, err := ownerOf(c.pgDir)
			if err != nil {
				return nil, err
			}
			p.account = owner
		}
	}
	return p, nil
}

// findNewest searches name where findBinaries searches the server's programs.
func findNewest(ctx context.Context, name, pgBin, path string, patterns []string, server int) (*program, error) {
	dirs, err := programDirs(pgBin, path, patterns)
	if err != nil {
		return nil, err
	}
	var best *program
	var broken error
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if !executable(file) {
			continue
		}
		major, err := majorOf(ctx, file)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		if best == nil || major == server && best.major != server || major > best.major && best.major != server {
			best = &program{path: file, major: major}
		}
	}
	switch {
	case best != nil:
		return best, nil
	case broken != nil:
		return nil, fmt.Errorf("PostgreSQL's program %s does not run: %w: install it again with %q", name, oneLine{broken}, installCommand())
	case pgBin != "":
		return nil, fmt.Errorf("%w: database.pg_bin is %s, and there is no program %s in it: correct it, or install it with %q",
			monitor.ErrNotFound, pgBin, name, installCommand())
	}
	return nil, fmt.Errorf("%w: PostgreSQL's program %s is not on this machine: install it with %q", monitor.ErrNotFound, name, installCommand())
}

// run runs the program to its end and returns what it said on stderr. When ctx
// ends it is interrupted, and when we are killed.
func (p *program) run(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = p.dir
	cmd.Env = append(environment(), "PGAPPNAME=pharos "+filepath.Base(p.path))
	if p.password != "" {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+p.password)
	}
	for _, name := range sslVariables {
		if v, ok := os.LookupEnv(name); ok && p.account == nil {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.SysProcAttr = childAttr(p.account)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = quitTimeout
	stderr := &headBuffer{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err = cmd.Run()
	return stderr.b.String(), err
}

// sslVariables are those of libpq's that the driver obeys too.
var sslVariables = []string{"PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGPASSFILE"}

// headBuffer keeps the beginning of what a program says, which is enough to
// know why it failed.
type headBuffer struct{ b bytes.Buffer }

func (h *headBuffer) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), max(0, logTail-h.b.Len()))])
	return len(p), nil
}

// connInfo writes url for libpq's programs, the password apart. The driver says
// what it means, its environment and password file included; what only libpq
// knows is passed on.
func connInfo(url string) (conninfo, password string, err error) {
	cfg, err := parseURL(url)
	if err != nil {
		return "", "", err
	}
	settings := connSettings(url)
	if settings["sslpassword"] != "" {
		return "", "", fmt.Errorf("%w: database.url holds an sslpassword, which pg_dump and pg_restore could only be given where others can read it: use a client key without a password", monitor.ErrInvalid)
	}
	hosts, ports := []string{cfg.Host}, []string{fmt.Sprint(cfg.Port)}
	for _, f := range cfg.Fallbacks {
		if last := len(hosts) - 1; f.Host != hosts[last] || fmt.Sprint(f.Port) != ports[last] { // else it is the same one without TLS
			hosts, ports = append(hosts, f.Host), append(ports, fmt.Sprint(f.Port))
		}
	}
	words := []string{
		"host=" + quoteConn(strings.Join(hosts, ",")), "port=" + quoteConn(strings.Join(ports, ",")),
		"user=" + quoteConn(cfg.User), "dbname=" + quoteConn(cfg.Database), "connect_timeout=10",
	}
	for _, key := range libpqSettings {
		if v := settings[key]; v != "" {
			words = append(words, key+"="+quoteConn(v))
		}
	}
	return strings.Join(words, " "), cfg.Password, nil
}

// libpqSettings are passed on as they are.
var libpqSettings = []string{
	"sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslsni", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version",
	"krbsrvname", "channel_binding", "target_session_attrs", "options",
}

func quoteConn(v string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "'"
}
