package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pharos-nostr/pharos/monitor"
)

// How long one call may take, however much the caller's context allows.
const (
	readTimeout  = 15 * time.Second
	writeTimeout = 60 * time.Second // the first fill: tens of thousands of rows in one transaction
	loadTimeout  = 2 * time.Minute
	pingTimeout  = 2 * time.Second
	closeTimeout = 5 * time.Second
)

// Config says which database to use.
type Config struct {
	URL string // a libpq URL or keyword string, as Cluster.URL returns it
	// MaxConns bounds the connections for reads; the leader's comes on top. 0 = 16.
	MaxConns int
	// LockWait is how long Open waits for a leader that is just leaving. 0 = 5 s.
	LockWait time.Duration
	Log      *slog.Logger
}

// Store is the database of the one core that leads. It is safe for concurrent
// use; writes wait for one another. Its methods' errors wrap one of the kinds
// in package monitor where a caller can do something about them:
//
//	ErrUnavailable  the database is away, stopping or full: keep the data, try again
//	ErrConflict     said by each method; after "another core led" nothing can be
//	                written any more and the process must start anew
type Store struct {
	pool   *pgxpool.Pool
	leader *leader
	noRaw  atomic.Bool // KeepRaw(false)

	mu     sync.Mutex
	relays map[monitor.RelayURL]int32 // ids, of relays that were seen in the database
}

// Open connects, takes the leader's lock, migrates the schema and makes the
// partitions for today and the next two days. It fails with
//
//	ErrConflict     another Pharos leads on this database (named), or the
//	                database is newer than this program
//	ErrUnavailable  it cannot be reached
//	ErrInvalid      the URL, the password, the server's version or encoding
//
// each as one sentence that says what to do.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = 16
	}
	if cfg.LockWait <= 0 {
		cfg.LockWait = 5 * time.Second
	}
	connCfg, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	poolCfg, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w database.url: its pool_ settings cannot be read", monitor.ErrInvalid)
	}
	poolCfg.MaxConns = int32(min(cfg.MaxConns, 10_000))
	poolCfg.MinConns = 0
	poolCfg.ConnConfig = connCfg.Copy()
	poolCfg.ConnConfig.RuntimeParams["application_name"] = "pharos reads"

	s := &Store{
		leader: newLeader(connCfg, cfg.Log),
		relays: map[monitor.RelayURL]int32{},
	}
	if err := s.leader.open(ctx, cfg.LockWait); err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), poolCfg); err != nil {
		s.leader.close()
		return nil, fail("prepare the connections", err)
	}
	if err := s.EnsurePartitions(ctx, time.Now()); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// KeepRaw says whether Ingest stores the raw observations; it does at first.
// While they are off, records, documents and sequences are stored all the same:
// verdicts go on where the disk has no room for history.
func (s *Store) KeepRaw(on bool) { s.noRaw.Store(!on) }

// Close gives up the leader's lock and every connection. It waits for calls
// that are under way.
func (s *Store) Close() {
	s.leader.close()
	s.pool.Close()
}

// Ping asks the database for a sign of life, within two seconds.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return fail("ask the database", s.pool.Ping(ctx))
}

// write runs do in one transaction on the leader's connection.
func (s *Store) write(ctx context.Context, what string, do func(context.Context, pgx.Tx) error) error {
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.leader.transaction(bounded, do); err != nil {
		if ctx.Err() != nil && !errors.Is(err, monitor.ErrConflict) {
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
		return fail(what, err)
	}
	return nil
}

// relayIDs returns the ids of urls, of those that the database knows.
func (s *Store) relayIDs(ctx context.Context, tx pgx.Tx, urls []monitor.RelayURL) (map[monitor.RelayURL]int32, error) {
	ids := make(map[monitor.RelayURL]int32, len(urls))
	var unknown []string
	s.mu.Lock()
	for _, u := range urls {
		if id, ok := s.relays[u]; ok {
			ids[u] = id
		} else {
			unknown = append(unknown, text(string(u)))
		}
	}
	s.mu.Unlock()
	if len(unknown) == 0 {
		return ids, nil
	}
	rows, err := tx.Query(ctx, statement("relay_ids"), unknown)
	if err != nil {
		return nil, err
	}
	var id int32
	var url monitor.RelayURL
	_, err = pgx.ForEachRow(rows, []any{&id, &url}, func() error {
		ids[url] = id
		return nil
	})
	return ids, err
}

// remember keeps ids that a committed transaction has seen.
func (s *Store) remember(ids map[monitor.RelayURL]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for u, id := range ids {
		s.relays[u] = id
	}
}
