package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pharos-nostr/pharos/monitor"
)

// leaderLock is the advisory lock's key: "PHAROS" in ASCII.
const leaderLock = 0x504841524F53

// After a failed attempt to come back the next one waits, doubling between
// these.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// leader is the connection that holds the leader's lock, and on which alone
// anything is written: losing the lock is losing the connection
// (corroboration.md, Several machines).
type leader struct {
	cfg *pgx.ConnConfig
	log *slog.Logger

	// turn holds one token: whoever took it may touch the rest.
	turn   chan struct{}
	conn   *pgx.Conn // nil = lost
	term   int64     // the one in the database when we took the lock
	closed bool
	ousted error // another core led since; for good
	retry  time.Duration
	retryT time.Time // no attempt before
}

func newLeader(cfg *pgx.ConnConfig, log *slog.Logger) *leader {
	cfg = cfg.Copy()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("pharos leader, process %d on %s", os.Getpid(), host)
	cfg.RuntimeParams["application_name"] = name[:min(len(name), 63)]
	// Our side of the leader's session sees a cut as soon as the server's does.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 2,
	}}
	cfg.DialFunc = dialer.DialContext
	l := &leader{cfg: cfg, log: log, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// open takes the lock for the first time, waiting at most wait for its present
// holder, and migrates under it.
func (l *leader) open(ctx context.Context, wait time.Duration) error {
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return explainConnect(err)
	}
	if err := l.begin(ctx, conn, wait); err != nil {
		closeConn(conn)
		return err
	}
	l.conn = conn
	return nil
}

func (l *leader) begin(ctx context.Context, conn *pgx.Conn, wait time.Duration) error {
	if _, err := checkServer(ctx, conn); err != nil {
		return err
	}
	if err := l.lock(ctx, conn, wait); err != nil {
		return err
	}
	names, err := migrate(ctx, l.cfg, false)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		l.log.Info("database migrated", "files", names)
	}
	return fail("begin to lead", conn.QueryRow(ctx, statement("leader_term_first")).Scan(&l.term))
}

// lock takes the advisory lock on conn, asking again for at most wait: the
// session of a process that just died may live on for a moment.
func (l *leader) lock(ctx context.Context, conn *pgx.Conn, wait time.Duration) error {
	if _, err := conn.Exec(ctx, statement("leader_session")); err != nil {
		return fail("prepare the leader's session", err)
	}
	deadline := time.Now().Add(wait)
	for {
		var got bool
		if err := conn.QueryRow(ctx, statement("leader_lock"), int64(leaderLock)).Scan(&got); err != nil {
			return fail("take the leader's lock", err)
		}
		if got {
			return nil
		}
		if !time.Now().Before(deadline) {
			return l.held(ctx, conn)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the leader's lock: %w", err)
		}
	}
}

// held names who holds the lock.
func (l *leader) held(ctx context.Context, conn *pgx.Conn) error {
	var name, host string
	var pid int32
	err := conn.QueryRow(ctx, statement("leader_holder"), int64(leaderLock)).Scan(&name, &host, &pid)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: another Pharos decided on this database until just now: try again", monitor.ErrConflict)
	case err != nil:
		return fail("ask who holds the leader's lock", err)
	}
	return fmt.Errorf("%w: another Pharos (%s, connected from %s, backend %d) decides on this database: stop it, or give this one a database of its own",
		monitor.ErrConflict, name, host, pid)
}

// transaction runs do in one transaction. An error of do, or of the database,
// leaves nothing behind; only when the connection is lost during the commit is
// it unknown whether it took place.
func (l *leader) transaction(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.resume(ctx); err != nil {
		return err
	}
	err := func() error {
		tx, err := l.conn.Begin(ctx)
		if err != nil {
			return err
		}
		err = do(ctx, tx)
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil && !l.conn.IsClosed() {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
			defer cancel()
			if rollback := tx.Rollback(clean); rollback != nil && !errors.Is(rollback, pgx.ErrTxClosed) {
				closeConn(l.conn)
			}
		}
		return err
	}()
	if l.conn.IsClosed() {
		l.conn = nil
		l.retry, l.retryT = 0, time.Time{}
		l.log.Warn("database connection lost, nothing is decided until it is back", "error", err)
		return fmt.Errorf("leader's connection lost: %w: %w", monitor.ErrUnavailable, err)
	}
	return err
}

// resume makes sure that there is a connection with the lock. It makes at most
// one attempt, and none while the last one's back-off runs.
func (l *leader) resume(ctx context.Context) error {
	switch {
	case l.closed:
		return fmt.Errorf("the store is closed: %w", monitor.ErrUnavailable)
	case l.ousted != nil:
		return l.ousted
	case l.conn != nil:
		return nil
	case time.Now().Before(l.retryT):
		return fmt.Errorf("leader's connection lost, next attempt in %s: %w", time.Until(l.retryT).Round(time.Millisecond), monitor.ErrUnavailable)
	}
	err := l.comeBack(ctx)
	if err != nil {
		l.retry = min(max(2*l.retry, firstRetry), lastRetry)
		l.retryT = time.Now().Add(l.retry)
		return err
	}
	l.retry, l.retryT = 0, time.Time{}
	l.log.Info("database connection and leader's lock are back")
	return nil
}

func (l *leader) comeBack(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return err
	}
	// Our own lost session may hold the lock for a moment yet.
	err = l.lock(ctx, conn, time.Second)
	if errors.Is(err, monitor.ErrConflict) {
		var term int64
		if conn.QueryRow(ctx, statement("core_term")).Scan(&term) == nil && term != l.term {
			closeConn(conn)
			return l.oust()
		}
		closeConn(conn)
		return fmt.Errorf("%w: the leader's lock is not free yet (%s)", monitor.ErrUnavailable, err.Error())
	}
	if err != nil {
		closeConn(conn)
		return err
	}
	err = conn.QueryRow(ctx, statement("leader_term_again"), l.term).Scan(&l.term)
	if errors.Is(err, pgx.ErrNoRows) {
		closeConn(conn)
		return l.oust()
	}
	if err != nil {
		closeConn(conn)
		return err
	}
	l.conn = conn
	return nil
}

// oust ends this leader for good: its state is older than the database's.
func (l *leader) oust() error {
	l.ousted = fmt.Errorf("%w: another core led on this database since this one lost its connection: start this process anew", monitor.ErrConflict)
	l.log.Error("another core led meanwhile, this one must start anew")
	return l.ousted
}

func (l *leader) close() {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	l.closed = true
	if l.conn != nil {
		closeConn(l.conn)
		l.conn = nil
	}
}

// closeConn ends a connection whose own errors no longer matter.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
	<-conn.PgConn().CleanupDone()
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
