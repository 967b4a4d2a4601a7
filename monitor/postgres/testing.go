package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// TB is what TestDatabase needs of a *testing.T, *testing.B or *testing.F; it
// keeps package testing out of the program.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// TestDatabase returns the URL of a database of this test's own, migrated and
// empty, dropped when the test ends. The first call starts one cluster for the
// whole process; WithTestCluster ends it. Without PostgreSQL's programs the test
// fails, and says how to install them.
func TestDatabase(tb TB) string {
	tb.Helper()
	return tests.database(tb)
}

// EmptyTestDatabase is TestDatabase without a schema.
func EmptyTestDatabase(tb TB) string {
	tb.Helper()
	url := TestDatabase(tb)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatalf("empty a database for this test: %v", err)
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "DROP SCHEMA public CASCADE; CREATE SCHEMA public"); err != nil {
		tb.Fatalf("empty a database for this test: %v", err)
	}
	return url
}

// WithTestCluster wraps the m of a package's TestMain so that the cluster is stopped
// and removed when its tests have run:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(postgres.WithTestCluster(m)) }
func WithTestCluster(m interface{ Run() int }) interface{ Run() int } { return testMain{m} }

type testMain struct{ m interface{ Run() int } }

func (t testMain) Run() int {
	code := t.m.Run()
	if err := tests.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the tests' database:", err)
		return max(code, 1)
	}
	return code
}

const (
	testTemplate = "template_pharos"
	testPrefix   = "pharos-test-"
)

var tests testCluster

// testCluster is the one of this process.
type testCluster struct {
	pgBin   string
	mu      sync.Mutex
	cluster *Cluster
	err     error
	dir     string
	create  sync.Mutex // the template can be copied once at a time
	count   atomic.Int64
}

func (t *testCluster) database(tb TB) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := t.start(ctx)
	if err != nil {
		tb.Fatalf("start a database for tests: %v", err)
	}
	name := fmt.Sprintf("test_%d", t.count.Add(1))
	if err := t.exec(ctx, c, "CREATE DATABASE "+name+" TEMPLATE "+testTemplate); err != nil {
		tb.Fatalf("make a database for this test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := t.exec(ctx, c, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Fatalf("drop this test's database: %v", err)
		}
	})
	return c.url(name)
}

func (t *testCluster) start(ctx context.Context) (*Cluster, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cluster != nil || t.err != nil {
		return t.cluster, t.err
	}
	t.cluster, t.err = t.make(ctx)
	return t.cluster, t.err
}

func (t *testCluster) make(ctx context.Context) (*Cluster, error) {
	base := os.TempDir()
	sweep(base)
	dir, err := os.MkdirTemp(base, testPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	t.dir = dir
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	c, err := StartCluster(ctx, ClusterConfig{DataDir: dir, PgBin: t.pgBin, disposable: true})
	if err != nil {
		return nil, err
	}
	if err := t.exec(ctx, c, "CREATE DATABASE "+testTemplate); err != nil {
		return c, err
	}
	_, err = Migrate(ctx, c.url(testTemplate), false)
	return c, err
}

// exec runs one statement on a connection of its own.
func (t *testCluster) exec(ctx context.Context, c *Cluster, statement string) error {
	t.create.Lock()
	defer t.create.Unlock()
	conn, err := c.connect(ctx, "postgres")
	if err != nil {
		return err
	}
	defer closeConn(conn)
	_, err = conn.Exec(ctx, statement)
	return err
}

func (t *testCluster) stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := t.cluster.Stop(ctx); err != nil {
			return err
		}
		t.cluster = nil
	}
	if t.dir == "" {
		return nil
	}
	return os.RemoveAll(t.dir)
}

// sweep removes what test processes left behind that were killed.
func sweep(base string) {
	left, err := filepath.Glob(filepath.Join(base, testPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		word, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), testPrefix), "-")
		pid, err := strconv.Atoi(word)
		if err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		if p, ok := readPIDFile(filepath.Join(dir, "pg")); ok && serves(p.pid, filepath.Join(dir, "pg")) {
			continue
		}
		_ = os.RemoveAll(dir) // another user's stays
	}
}
