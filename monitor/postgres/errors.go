package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pharos-nostr/pharos/monitor"
)

// fail names what was being done when err came, and its kind: ErrUnavailable
// when the database cannot be reached, is stopping or is out of room now, so
// that the caller keeps its data and tries again.
func fail(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, monitor.ErrUnavailable), errors.Is(err, monitor.ErrConflict),
		errors.Is(err, monitor.ErrInvalid), errors.Is(err, monitor.ErrNotFound):
		return fmt.Errorf("%s: %w", what, err)
	case away(err):
		return fmt.Errorf("%s: database %w: %w", what, monitor.ErrUnavailable, oneLine{err})
	}
	return fmt.Errorf("%s: %w", what, oneLine{err})
}

// away reports whether err says that the database is not there now, as opposed
// to a statement that it refused.
func away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", // connection exceptions
			"53", // out of disk, memory or connections
			"57", // shutting down, starting up, cancelled by the operator
			"58": // the system under the server failed
			return true
		}
		switch pg.Code {
		case "25006", // read only: a standby, or one that was demoted
			"40001", "40P01", // serialisation failure, deadlock
			"55P03": // lock not available
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}

// oneLine prints an error of the driver on one line: it lists the addresses
// that it tried on a line each.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }

// explainConnect says in one sentence why a first connection failed and what
// an operator can do about it.
func explainConnect(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "28P01", "28000":
			return fmt.Errorf("%w: the database refused the user or password of database.url (%s): correct them there", monitor.ErrInvalid, pg.Message)
		case "3D000":
			return fmt.Errorf("%w: %s: create it (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0) or correct database.url", monitor.ErrInvalid, pg.Message)
		}
	}
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return fmt.Errorf("database %w: %w: is it running, and is database.url right?", monitor.ErrUnavailable, oneLine{err})
	}
	at := net.JoinHostPort(connect.Config.Host, strconv.Itoa(int(connect.Config.Port)))
	if strings.HasPrefix(connect.Config.Host, "/") {
		at = connect.Config.Host // a socket's directory
	}
	return fmt.Errorf("database %w: nothing answers at %s (%w): is it running, and is database.url right?", monitor.ErrUnavailable, at, root{err})
}

// root prints the innermost cause of an error of the driver, which wraps it in
// a sentence per address that was tried.
type root struct{ error }

func (e root) Unwrap() error { return e.error }

func (e root) Error() string {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.As(e.error, &errno):
		return errno.Error()
	case errors.As(e.error, &dns):
		return dns.Err
	case errors.Is(e.error, context.DeadlineExceeded), pgconn.Timeout(e.error):
		return "no answer in time"
	}
	return oneLine(e).Error()
}
