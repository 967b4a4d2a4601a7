package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// restoredMark is a file in a new cluster that is whole and only waits for its
// place.
const restoredMark = "pharos.restored"

// ClusterRestore is a new private cluster, restored and stopped, beside the
// place where it belongs. Nothing of what was there is changed before Place.
// Whoever has one holds the data directory until Close.
type ClusterRestore struct {
	Content Content

	cluster *Cluster // on the new data
	dir     string   // pg, where they belong
	moved   string   // where what was there went, "" = there was nothing
	placed  bool
	unlock  func()
}

// RestoreCluster makes a new cluster beside the one in cfg.DataDir, with the
// newest programs found, and reads the dump into it. The old one is not
// started and may be of any version. What an interrupted attempt left behind is
// removed first. ErrConflict: a server runs there, or the dump is newer than
// this program.
func RestoreCluster(ctx context.Context, cfg ClusterConfig, dump *io.SectionReader) (_ *ClusterRestore, err error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	r := &ClusterRestore{cluster: c, dir: c.pgDir}
	if c.account, err = prepareDataDir(c.dataDir, r.dir); err != nil {
		return nil, err
	}
	if r.unlock, err = lockDataDir(ctx, c.dataDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := c.finishRestore(); err != nil {
		return nil, err
	}
	if err := awaitEnd(ctx, r.dir); err != nil {
		return nil, err
	}
	if c.bin, err = findBinaries(ctx, cfg.PgBin, os.Getenv("PATH"), searchPatterns, 0); err != nil {
		return nil, err
	}
	c.pgDir = r.dir + freshSuffix
	if err := c.checkAccess(ctx); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(c.pgDir); err == nil {
		c.log.Info("removing what an interrupted attempt left behind", "dir", c.pgDir)
	}
	if err := c.makeData(ctx, c.pgDir); err != nil {
		return nil, err
	}
	if c.runDir, err = makeRunDir(c.dataDir, c.account); err != nil {
		return nil, err
	}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	r.Content, err = c.fill(ctx, dump)
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := errors.Join(err, c.Stop(clean)); err != nil {
		return nil, err
	}
	return r, nil
}

// fill reads the dump into the cluster's database and looks at it.
func (c *Cluster) fill(ctx context.Context, dump *io.SectionReader) (Content, error) {
	cfg, err := parseURL(c.URL())
	if err != nil {
		return Content{}, err
	}
	if err := restoreDump(ctx, Target{Cluster: c, PgBin: c.cfg.PgBin}, c.bin.major, dump); err != nil {
		return Content{}, err
	}
	if ctx.Err() != nil {
		return Content{}, fmt.Errorf("restore the database: %w", context.Cause(ctx))
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return Content{}, fail("look at what was restored", err)
	}
	defer closeConn(conn)
	return verify(ctx, conn)
}

// awaitEnd waits for a server on pgDir that is ending, and refuses one that
// stays.
func awaitEnd(ctx context.Context, pgDir string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for {
		p, ok := readPIDFile(pgDir)
		if !ok || !serves(p.pid, pgDir) {
			return nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%w: a database server (process %d) runs in %s: stop the Pharos that uses it, or the server alone with \"kill -INT %d\", and try again",
				monitor.ErrConflict, p.pid, pgDir, p.pid)
		}
	}
}

// Place puts the new cluster into its place and returns where the old one went,
// "" when there was none. On an error everything is as it was. Should the
// process die in between, the next start finishes it.
func (r *ClusterRestore) Place(now time.Time) (old string, err error) {
	c := r.cluster
	mark := filepath.Join(c.pgDir, restoredMark)
	if err := writeMark(mark); err != nil {
		return "", fmt.Errorf("put the new database in place: %w", err)
	}
	if _, err := os.Lstat(r.dir); err == nil {
		if old, err = AsideName(r.dir, now); err != nil {
			return "", err
		}
		if err := os.Rename(r.dir, old); err != nil {
			return "", fmt.Errorf("the old database %s could not be moved aside: %w: move it away yourself and restore again", r.dir, err)
		}
		r.moved = old
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look at %s: %w", r.dir, err)
	}
	if err := os.Rename(c.pgDir, r.dir); err != nil {
		return "", errors.Join(fmt.Errorf("put the new database in place: %w", err), r.putBack())
	}
	r.placed = true
	if err := syncDir(c.dataDir); err != nil {
		return "", errors.Join(fmt.Errorf("put the new database in place: %w", err), r.Undo())
	}
	_ = os.Remove(filepath.Join(r.dir, restoredMark)) // it says nothing any more
	return r.moved, nil
}

// Undo takes the new cluster out of its place and puts the old one back.
func (r *ClusterRestore) Undo() error {
	if !r.placed {
		return nil
	}
	// Should the process die in between, the next start must not make an empty
	// database in the gap.
	if err := writeMark(filepath.Join(r.dir, restoredMark)); err != nil {
		return fmt.Errorf("take the new database out again: %w", err)
	}
	if err := os.Rename(r.dir, r.cluster.pgDir); err != nil {
		return fmt.Errorf("take the new database out again: %w", err)
	}
	r.placed = false
	return errors.Join(r.putBack(), syncDir(r.cluster.dataDir))
}

func (r *ClusterRestore) putBack() error {
	if r.moved == "" {
		return nil
	}
	if err := os.Rename(r.moved, r.dir); err != nil {
		return fmt.Errorf("the old database could not be put back: %w: rename %s to %s yourself", err, r.moved, r.dir)
	}
	r.moved = ""
	return nil
}

// Close lets go of the data directory and removes a cluster that was not
// placed.
func (r *ClusterRestore) Close() error {
	defer r.unlock()
	if r.placed || r.cluster.pgDir == r.dir {
		return nil
	}
	if err := os.RemoveAll(r.cluster.pgDir); err != nil {
		return fmt.Errorf("remove the unused database %s: %w", r.cluster.pgDir, err)
	}
	return nil
}

// finishRestore puts a restored cluster into its place when a process was
// killed between moving the old one aside and that.
func (c *Cluster) finishRestore() error {
	fresh := c.pgDir + freshSuffix
	if _, err := os.Lstat(c.pgDir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(fresh, restoredMark)); err != nil {
		return nil // none, or not whole
	}
	if err := os.Rename(fresh, c.pgDir); err != nil {
		return fmt.Errorf("finish the restore that was interrupted: %w", err)
	}
	c.log.Warn("finished a restore that was interrupted when the new database was put in place: check the service key, or restore again", "dir", c.pgDir)
	_ = os.Remove(filepath.Join(c.pgDir, restoredMark))
	return syncDir(c.dataDir)
}

func writeMark(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(filepath.Dir(name)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// AsideName is the name, which no file has, under which a restore keeps what has
// its place now. ErrConflict: none is free.
func AsideName(file string, now time.Time) (string, error) {
	name := file + ".old-" + now.UTC().Format("20060102T150405Z")
	for i := 1; i < 1000; i++ {
		try := name
		if i > 1 {
			try = fmt.Sprintf("%s-%d", name, i)
		}
		if _, err := os.Lstat(try); errors.Is(err, fs.ErrNotExist) {
			return try, nil
		}
	}
	return "", fmt.Errorf("%w: no name is free for %s: move the old ones away", monitor.ErrConflict, name)
}
