package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

const (
	clusterUser = "pharos"
	clusterDB   = "pharos"
	clusterPort = "5432" // a part of the socket's name only

	startTimeout = 3 * time.Minute  // recovery after a crash may replay much
	leaveTimeout = 60 * time.Second // for a server that is stopping already
	fastTimeout  = 10 * time.Second // a shutdown that ends sessions, then one that only crashes cleanly
	quitTimeout  = 5 * time.Second
	stopTimeout  = fastTimeout + 2*quitTimeout

	firstRestart = 200 * time.Millisecond
	lastRestart  = 30 * time.Second
)

// ClusterConfig says where the private cluster lives.
type ClusterConfig struct {
	// DataDir holds the cluster in pg/, its socket in run/ and postgres.log.
	DataDir string
	PgBin   string // directory of PostgreSQL's programs; "" = search
	// MaxConns is how many connections Store.Open will be allowed; 0 = 16.
	MaxConns int
	// BackupDir is where daily backups are looked for when the data are of
	// another major version; "" = DefaultBackupDir.
	BackupDir string
	Log       *slog.Logger

	disposable bool     // for tests: need not survive a power cut
	extra      []string // settings, for tests
	port       string   // for tests; "" = clusterPort
}

// Cluster is the private PostgreSQL server in a data directory: reached through
// a Unix socket in a directory that only its user may enter, without TCP. A
// server that dies is started again. When this process is killed the kernel
// stops the server (on Linux); one that is found running is used as it is.
type Cluster struct {
	cfg     ClusterConfig
	dataDir string
	pgDir   string
	runDir  string // where the socket is
	port    string
	bin     binaries
	account *account // as whom the server runs, nil = as we do
	log     *slog.Logger

	stopping context.Context // ends when Stop begins
	stop     context.CancelFunc
	done     chan struct{} // closed when supervise has returned

	mu       sync.Mutex
	pid      int // of the server, 0 = none
	adopted  bool
	starts   int   // servers started
	exits    int   // of them ended
	startErr error // why the last one could not even be started
}

// StartCluster starts the private cluster in cfg.DataDir, making it first when
// there is none, or joins it when it is running. It returns once the server
// answers; every error is one sentence that says what to do.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	if c.account, err = prepareDataDir(c.dataDir, c.pgDir); err != nil {
		return nil, err
	}
	unlock, err := lockDataDir(ctx, c.dataDir)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := c.finishRestore(); err != nil {
		return nil, err
	}
	version, err := dataVersion(c.pgDir)
	if err != nil {
		return nil, err
	}
	if c.bin, err = findBinaries(ctx, cfg.PgBin, os.Getenv("PATH"), searchPatterns, version); err != nil {
		return nil, c.explainVersion(err)
	}
	if err := c.checkAccess(ctx); err != nil {
		return nil, err
	}
	if version == 0 {
		c.log.Info("making the private database", "dir", c.pgDir, "postgres", c.bin.dir)
		if err := c.initdb(ctx); err != nil {
			return nil, err
		}
	}
	if c.runDir, err = makeRunDir(c.dataDir, c.account); err != nil {
		return nil, err
	}
	if err := c.join(ctx); err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// run keeps a server until Stop, and returns once it answers.
func (c *Cluster) run(ctx context.Context) error {
	go c.supervise()
	if err := c.ready(ctx); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(err, c.Stop(clean))
	}
	return nil
}

func newCluster(cfg ClusterConfig) (*Cluster, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = 16
	}
	if cfg.port == "" {
		cfg.port = clusterPort
	}
	if cfg.DataDir == "" {
		return nil, fmt.Errorf("%w: no data directory is given: set data_dir", monitor.ErrInvalid)
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("find data directory %s: %w", cfg.DataDir, err)
	}
	c := &Cluster{cfg: cfg, dataDir: dir, pgDir: filepath.Join(dir, "pg"), port: cfg.port, log: cfg.Log, done: make(chan struct{})}
	c.stopping, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// URL returns what Config.URL and psql take.
func (c *Cluster) URL() string { return c.url(clusterDB) }

func (c *Cluster) url(database string) string {
	query := url.Values{
		"host": {c.runDir}, "port": {c.port}, "user": {clusterUser}, "sslmode": {"disable"},
	}.Encode()
	// Neither libpq nor pgx reads a plus as a space.
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: strings.ReplaceAll(query, "+", "%20")}
	return u.String()
}

// Stop ends the server: sessions first, then, when that takes long, at once. A
// server that was found running is stopped only when nobody else uses it. The
// Store must be closed before. Stop may be called again.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stop()
	pid, adopted := c.pid, c.adopted
	c.mu.Unlock()
	if adopted {
		if others, err := c.settled(ctx); err != nil || others > 0 {
			<-c.done
			return err
		}
	}
	if pid == 0 {
		<-c.done
		return nil
	}
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, fastTimeout}, {syscall.SIGQUIT, quitTimeout}, {syscall.SIGKILL, quitTimeout}} {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the database (process %d): %w", pid, err)
		}
		if c.gone(ctx, pid, step.wait) {
			<-c.done
			if filepath.Dir(c.runDir) != c.dataDir {
				_ = os.Remove(c.runDir) // made for a path too long; it is empty now
			}
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stop the database (process %d): %w", pid, ctx.Err())
		}
		c.log.Warn("the database does not stop", "signal", step.signal.String(), "process", pid)
	}
	return fmt.Errorf("the database (process %d) does not stop", pid)
}

// gone waits until the server has ended, at most for wait.
func (c *Cluster) gone(ctx context.Context, pid int, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		c.mu.Lock()
		ended := c.pid != pid
		adopted := c.adopted
		c.mu.Unlock()
		if ended || adopted && !serves(pid, c.pgDir) {
			return true
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return false
		}
	}
}

// settled is others once the sessions that are ending have ended: the server
// takes a moment to notice.
func (c *Cluster) settled(ctx context.Context) (n int, err error) {
	for range 10 {
		if n, err = c.others(ctx); err != nil || n == 0 {
			return n, err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return n, nil
}

// others counts the sessions of other processes.
func (c *Cluster) others(ctx context.Context) (n int, err error) {
	conn, err := c.connect(ctx, "postgres")
	if err != nil {
		return 0, fmt.Errorf("ask who uses the database: %w", oneLine{err})
	}
	defer closeConn(conn)
	if err := conn.QueryRow(ctx, statement("cluster_others")).Scan(&n); err != nil {
		return 0, fmt.Errorf("ask who uses the database: %w", oneLine{err})
	}
	return n, nil
}

// supervise runs the server until Stop, again and again. The kernel interrupts
// the server when the thread that started it ends, so this goroutine stays on
// one thread for as long.
func (c *Cluster) supervise() {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait := firstRestart
	for {
		began := time.Now()
		c.mu.Lock()
		adopted, pid := c.adopted, c.pid
		c.mu.Unlock()
		var err error
		if adopted {
			if !c.watchAdopted(pid) {
				return
			}
			err = errors.New("the server that was found running has ended")
		} else {
			err = c.runServer()
		}
		if c.stopping.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			wait = firstRestart
		}
		c.log.Warn("database server ended, starting it again", "error", err, "said", lastComplaint(c.dataDir), "in", wait)
		if pause(c.stopping, wait) != nil {
			return
		}
		wait = min(2*wait, lastRestart)
	}
}

// watchAdopted returns true when a server that is not our child has ended,
// false when Stop began.
func (c *Cluster) watchAdopted(pid int) bool {
	for serves(pid, c.pgDir) {
		if pause(c.stopping, 250*time.Millisecond) != nil {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid, c.adopted = 0, false
	return true
}

// runServer runs one server to its end.
func (c *Cluster) runServer() error {
	cmd := exec.Command(c.bin.path("postgres"), c.arguments()...)
	cmd.Dir = c.dataDir // ours may be closed to its user
	cmd.Env = environment()
	cmd.SysProcAttr = childAttr(c.account)
	log, err := openLog(c.dataDir)
	if err == nil {
		defer func() { _ = log.Close() }() // the server has its own copy
		cmd.Stdout, cmd.Stderr = log, log
		clearStalePIDFile(c.pgDir)
		err = c.begin(cmd)
	}
	if err != nil {
		c.mu.Lock()
		c.startErr = err
		c.starts++
		c.exits++
		c.mu.Unlock()
		return err
	}
	err = cmd.Wait()
	c.mu.Lock()
	c.pid = 0
	c.exits++
	c.mu.Unlock()
	if err == nil {
		err = errors.New("somebody stopped it")
	}
	return err
}

// begin starts cmd unless Stop was faster.
func (c *Cluster) begin(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stopping.Err(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	c.pid = cmd.Process.Pid
	c.starts++
	return nil
}

// arguments are the server's settings. They stand here rather than in
// postgresql.conf so that a newer Pharos finds its own.
func (c *Cluster) arguments() []string {
	settings := []string{
		"listen_addresses=", // no TCP: the socket's directory is the only door
		"unix_socket_directories=" + quoteSocketDir(c.runDir),
		"unix_socket_permissions=0700",
		"port=" + c.port,
		"max_connections=" + strconv.Itoa(c.cfg.MaxConns+14), // leader, migrations, an operator's psql
		"shared_buffers=64MB",
		"wal_level=minimal", "max_wal_senders=0", // no standby copies this cluster
		"max_wal_size=512MB", "checkpoint_timeout=15min",
		"synchronous_commit=on",                        // what was answered is on the disk
		"jit=off", "max_parallel_workers_per_gather=0", // two cores, shared with the probes
		"timezone=UTC", "log_timezone=UTC", "lc_messages=C", "log_line_prefix=%m [%p] ",
		// Rows hold what strangers sent: statements stay out of the log.
		"log_min_messages=warning", "log_min_error_statement=panic", "log_checkpoints=off", "log_autovacuum_min_duration=-1",
		"logging_collector=off", "log_destination=stderr",
	}
	if c.cfg.disposable {
		settings = append(settings, "fsync=off", "max_connections=200", "autovacuum=off")
	}
	args := []string{"-D", c.pgDir}
	for _, s := range append(settings, c.cfg.extra...) {
		args = append(args, "-c", s)
	}
	return args
}

// join looks whether a server is running in the directory: one that answers is
// adopted, one that is stopping is waited for.
func (c *Cluster) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	answers := 0
	for {
		p, ok := readPIDFile(c.pgDir)
		if !ok || !serves(p.pid, c.pgDir) {
			return nil
		}
		ours := c.runDir
		c.runDir, c.port = p.runDir, p.port
		if p.runDir != "" && c.try(ctx) == nil {
			// Once may be the last moment before the interrupt is heard that it
			// got when its parent was killed.
			if answers++; answers == 2 {
				c.log.Info("using the database server that is running", "process", p.pid)
				c.pid, c.adopted = p.pid, true
				return nil
			}
		}
		c.runDir, c.port = ours, c.cfg.port
		if pause(ctx, 150*time.Millisecond) != nil {
			return fmt.Errorf("%w: a database server (process %d) in %s neither answers nor ends: stop it with \"kill -QUIT %d\"", monitor.ErrUnavailable, p.pid, c.pgDir, p.pid)
		}
	}
}

// ready waits until the server answers, and makes the database.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began, told := time.Now(), time.Now()
	for {
		err := c.try(ctx)
		if err == nil {
			break
		}
		if why, final := c.failed(); final {
			return why
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			c.log.Info("waiting for the database", "since", time.Since(began).Round(time.Second), "error", err)
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%w: the database in %s did not answer within %s (%s): see %s", monitor.ErrUnavailable,
				c.pgDir, time.Since(began).Round(time.Second), oneLine{err}, logPath(c.dataDir))
		}
	}
	return c.createDatabase(ctx)
}

// failed reports why the server ended although it was to start, and whether
// trying again is useless.
func (c *Cluster) failed() (error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exits == 0 || c.exits < c.starts {
		return nil, false
	}
	if c.startErr != nil {
		return fmt.Errorf("the database in %s cannot be started: %w", c.pgDir, c.startErr), true
	}
	line := lastComplaint(c.dataDir)
	// What a killed predecessor left behind goes away by itself.
	if passes(line) && c.exits < 20 {
		return nil, false
	}
	return explainExit(line, c.dataDir, c.account), true
}

// try connects once.
func (c *Cluster) try(ctx context.Context) error {
	conn, err := c.connect(ctx, "postgres")
	if err != nil {
		return err
	}
	closeConn(conn)
	return nil
}

func (c *Cluster) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	cfg, err := parseURL(c.url(database))
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func (c *Cluster) createDatabase(ctx context.Context) error {
	conn, err := c.connect(ctx, "postgres")
	if err != nil {
		return fail("make the database", err)
	}
	defer closeConn(conn)
	var there bool
	if err := conn.QueryRow(ctx, statement("cluster_database"), clusterDB).Scan(&there); err != nil {
		return fail("look for the database", err)
	}
	if !there {
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+clusterDB); err != nil {
			return fail("make the database", err)
		}
	}
	return nil
}
