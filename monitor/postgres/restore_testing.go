package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

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
