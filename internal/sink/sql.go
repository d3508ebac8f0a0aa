package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// maxOrigin is the width of the column origin.
const maxOrigin = 190

// columns lists the columns of the table, in the order of statements. doc/sink.md describes them.
const columns = "origin, seq, digest, tag, sender, stamp, data"

const columnCount = 7

// Limits of one statement: servers limit its text and its arguments.
const (
	maxRows     = 500
	maxArgument = 1 << 20 // bytes of data in one statement, unless one event is larger
)

// dialect is what differs between databases.
type dialect interface {
	connect() (*sql.DB, error)
	// check tries to connect and creates nothing.
	check(ctx context.Context) error
	// create returns the statements that create the table.
	create(table string) []string
	// insert adds rows, and skips those whose key exists.
	insert(table string, rows [][]any) (query string, args []any)
	// refuses reports whether an error is about the rows and not about the database.
	refuses(err error) bool
}

// sqlTarget is a table of a database.
type sqlTarget struct {
	dialect
	name   string // for messages
	table  string // as written in statements
	origin string
}

func (t *sqlTarget) String() string { return t.name + " table " + t.table }

func (t *sqlTarget) insecure() bool {
	d, ok := t.dialect.(interface{ insecure() bool })
	return ok && d.insecure()
}

// tableOf reads the name of the table, optionally with a schema before it.
func tableOf(s *section) string {
	table := s.text("table", "salt_events")
	schema, name, two := strings.Cut(table, ".")
	if !isName(schema) || two && !isName(name) {
		s.wrong("table", "%q is not the name of a table: letters, digits and _, a schema and a dot before it", table)
	}
	return table
}

// isName reports whether a statement can contain the name without quotes.
func isName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'; !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= 63
}

// ping connects once.
func ping(ctx context.Context, d dialect) error {
	db, err := d.connect()
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// open connects, and creates the table if it is missing.
func (t *sqlTarget) open(ctx context.Context, log *slog.Logger) (destination, error) {
	db, err := t.connect()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := t.prepare(ctx, db, log); err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return &sqlTable{t, db}, nil
}

// prepare first checks whether the table exists: a user who may write to it may not be allowed to
// create it.
func (t *sqlTarget) prepare(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	if t.probe(ctx, db) == nil {
		return nil
	}
	var made error
	for _, statement := range t.create(t.table) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			made = errors.Join(made, err)
		}
	}
	if err := t.probe(ctx, db); err != nil { // otherwise someone created it at the same time
		return errors.Join(err, made)
	}
	log.Info("table made", "table", t.table)
	return nil
}

func (t *sqlTarget) probe(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT "+columns+" FROM "+t.table+" WHERE 1 = 0")
	if err != nil {
		return err
	}
	return errors.Join(rows.Err(), rows.Close())
}

// sqlTable is an open table.
type sqlTable struct {
	*sqlTarget
	db *sql.DB
}

func (t *sqlTable) close() { t.db.Close() }

// write adds all events in one transaction.
func (t *sqlTable) write(ctx context.Context, events []Event) (err error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the error is already returned
		}
	}()
	for _, part := range parts(events) {
		query, args := t.insert(t.table, t.rows(part))
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			if t.refuses(err) {
				return refused(err)
			}
			return err
		}
	}
	return tx.Commit()
}

// parts splits events so that each part fits into one statement.
func parts(events []Event) (list [][]Event) {
	bytes, first := 0, 0
	for i, e := range events {
		if i > first && (i-first >= maxRows || bytes+len(e.Data) > maxArgument) {
			list, bytes, first = append(list, events[first:i]), 0, i
		}
		bytes += len(e.Data)
	}
	return append(list, events[first:])
}

// rows returns the values of the columns, as databases accept them.
func (t *sqlTable) rows(events []Event) [][]any {
	list := make([][]any, len(events))
	for i, e := range events {
		var stamp any
		if moment, ok := e.Stamp(); ok {
			stamp = moment
		}
		list[i] = []any{
			t.origin, int64(e.Seq), e.Digest(), strings.ToValidUTF8(e.Tag, "\ufffd"), strings.ToValidUTF8(e.From, "\ufffd"),
			stamp, storable(e.Data),
		}
	}
	return list
}

// valuesOf returns the statement for databases with question marks as placeholders.
func valuesOf(table string, rows [][]any) (query string, args []any) {
	one := "(?" + strings.Repeat(",?", columnCount-1) + ")"
	for _, row := range rows {
		args = append(args, row...)
	}
	return "INSERT INTO " + table + " (" + columns + ") VALUES " + one + strings.Repeat(","+one, len(rows)-1), args
}

// sqlStamp is the text format of a time, for databases that need text.
const sqlStamp = "2006-01-02 15:04:05.000000"

// textStamps converts the times in rows to text.
func textStamps(rows [][]any) {
	for _, row := range rows {
		if t, ok := row[5].(time.Time); ok {
			row[5] = t.Format(sqlStamp)
		}
	}
}
