package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// server is the address of a database server and the user that connects to it.
type server struct {
	host     string // the path of a Unix socket or its directory begins with a slash
	port     int
	database string
	user     string
	password string // the file that contains it
	tls      *tlsSettings
}

func readServer(s *section, port int) server {
	d := server{
		host: s.text("host", "localhost"), port: s.number("port", port, 1, 65535),
		database: s.need("database"), user: s.need("user"), password: s.file("password_file"),
	}
	local := strings.HasPrefix(d.host, "/") || loopback(d.host)
	d.tls = readTLS(s, s.flag("tls", !local))
	return d
}

func (d server) String() string {
	return fmt.Sprintf("%s at %s", d.database, d.host)
}

func (d server) insecure() bool { return d.tls != nil && d.tls.insecure }

// postgreSQL is a database of a PostgreSQL server.
type postgreSQL struct{ server }

func readPostgreSQL(s *section, origin string) target {
	d := postgreSQL{readServer(s, 5432)}
	return &sqlTarget{dialect: d, name: "postgresql " + d.String(), table: tableOf(s), origin: origin}
}

func (d postgreSQL) connect() (*sql.DB, error) {
	// Use only these settings: the environment may name other servers.
	c, err := pgx.ParseConfig("host=localhost sslmode=disable")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.Database, c.User = d.host, uint16(d.port), d.database, d.user
	c.Fallbacks, c.RuntimeParams = nil, map[string]string{"application_name": "salt-event sink", "timezone": "UTC"}
	if c.Password, err = readSecret(d.password); err != nil {
		return nil, err
	}
	if c.TLSConfig, err = d.tls.config(d.host); err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*c), nil
}

func (d postgreSQL) check(ctx context.Context) error { return ping(ctx, d) }

func (d postgreSQL) create(table string) []string {
	index := strings.ReplaceAll(table, ".", "_")
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + table + ` (
			origin text NOT NULL, seq bigint NOT NULL, digest bigint NOT NULL, tag text NOT NULL, sender text NOT NULL,
			stamp timestamp with time zone, data json NOT NULL, PRIMARY KEY (origin, seq, digest))`,
		`CREATE INDEX IF NOT EXISTS ` + index + `_tag ON ` + table + ` (tag text_pattern_ops)`,
		`CREATE INDEX IF NOT EXISTS ` + index + `_stamp ON ` + table + ` (stamp)`,
	}
}

// insert returns the same statement for any number of rows, so that the server prepares it once.
func (d postgreSQL) insert(table string, rows [][]any) (string, []any) {
	return "INSERT INTO " + table + " (" + columns + ") SELECT origin, seq, digest, tag, sender, stamp, data::json" +
			" FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::text[]) AS row (" + columns + ")" +
			" ON CONFLICT DO NOTHING",
		[]any{
			column[string](rows, 0), column[int64](rows, 1), column[int64](rows, 2), column[string](rows, 3), column[string](rows, 4),
			column[time.Time](rows, 5), column[string](rows, 6),
		}
}

// column returns the values of one column; nil means null.
func column[T any](rows [][]any, i int) []*T {
	list := make([]*T, len(rows))
	for n, row := range rows {
		if v, ok := row[i].(T); ok {
			list[n] = &v
		}
	}
	return list
}

// refuses reports whether the SQLSTATE is of a class about values: data exceptions, violated
// constraints, program limits.
func (d postgreSQL) refuses(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && len(e.Code) == 5 && slices.Contains([]string{"22", "23", "54"}, e.Code[:2])
}
