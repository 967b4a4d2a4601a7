package postgres

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements holds every SQL text by its file's name without .sql.
var statements = readStatements()

func readStatements() map[string]string {
	entries, err := sqlFiles.ReadDir("sql")
	if err != nil {
		panic(fmt.Sprintf("read the embedded SQL: %v", err))
	}
	m := make(map[string]string, len(entries))
	for _, e := range entries {
		b, err := sqlFiles.ReadFile("sql/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("read the embedded SQL: %v", err))
		}
		m[strings.TrimSuffix(e.Name(), ".sql")] = string(b)
	}
	return m
}

// statement returns the SQL in sql/name.sql.
func statement(name string) string {
	s, ok := statements[name]
	if !ok {
		panic("no SQL file " + name)
	}
	return s
}
