package sink

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteFile is a database in a file.
type sqliteFile struct{ path string }

func readSQLite(s *section, origin string) target {
	d := sqliteFile{path: s.needFile("path")}
	return &sqlTarget{dialect: d, name: "sqlite " + d.path, table: tableOf(s), origin: origin}
}

// connect opens the file. A new file is readable only by its owner and its group. Readers do not
// block the sink, nor the sink the readers; committed rows survive a power failure.
func (d sqliteFile) connect() (*sql.DB, error) {
	f, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	f.Close()
	options := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	address := url.URL{Scheme: "file", OmitHost: true, Path: d.path, RawQuery: options.Encode()}
	return sql.Open("sqlite", address.String())
}

func (d sqliteFile) check(ctx context.Context) error {
	if err := writable(d.path); err != nil {
		return err
	}
	if _, err := os.Stat(d.path); err != nil {
		return nil // it will be created
	}
	return ping(ctx, d)
}

func (d sqliteFile) create(table string) []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + table + ` (
			origin TEXT NOT NULL, seq INTEGER NOT NULL, digest INTEGER NOT NULL, tag TEXT NOT NULL, sender TEXT NOT NULL,
			stamp TEXT, data TEXT NOT NULL, PRIMARY KEY (origin, seq, digest)) WITHOUT ROWID`,
		`CREATE INDEX IF NOT EXISTS ` + table + `_tag ON ` + table + ` (tag)`,
		`CREATE INDEX IF NOT EXISTS ` + table + `_stamp ON ` + table + ` (stamp)`,
	}
}

func (d sqliteFile) insert(table string, rows [][]any) (string, []any) {
	textStamps(rows)
	query, args := valuesOf(table, rows)
	return query + " ON CONFLICT DO NOTHING", args
}

func (d sqliteFile) refuses(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH:
		return true
	}
	return false
}
