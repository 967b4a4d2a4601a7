package postgres

import (
	"context"
	"fmt"

	"github.com/pharos-nostr/pharos/monitor"
)

// ConnectCluster finds the cluster of cfg.DataDir that another process, or
// another part of this one, runs; Stop leaves it alone. ErrNotFound: none is
// running. ErrUnavailable: it does not answer.
func ConnectCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	c, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	close(c.done)
	p, ok := readPIDFile(c.pgDir)
	if !ok || !serves(p.pid, c.pgDir) {
		return nil, fmt.Errorf("%w: no database is running in %s: start Pharos there", monitor.ErrNotFound, c.dataDir)
	}
	c.runDir, c.port = p.runDir, p.port
	if err := c.try(ctx); err != nil {
		return nil, fmt.Errorf("the database in %s is running and does not answer: %w: %w", c.dataDir, monitor.ErrUnavailable, oneLine{err})
	}
	return c, nil
}
