// Package migrations holds the database schema's history: numbered SQL files,
// forward only, run by monitor/postgres. A file that was ever released is
// never changed; what follows goes into the next number.
package migrations

import "embed"

// FS holds the files at its root, named NNNNN_what.sql.
//
//go:embed *.sql
var FS embed.FS
