// Package driver inserts returns into databases. Only the program salt-returner links it, no
// daemon; it does not know where the settings come from.
package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers itself

	"github.com/brinebus/brine/internal/returner/database"
)

// dialect is what differs between databases.
type dialect struct {
	connect func(database.Database) (*sql.DB, error)
	create  string           // creates the table if it is missing
	insert  string           // a row: fun, jid, return, id, success, full_ret
	missing func(error) bool // whether an error means that there is no table
}

var dialects = map[string]dialect{
	database.MySQL: {
		connect: connectMySQL,
		create: "CREATE TABLE IF NOT EXISTS `salt_returns` (`fun` VARCHAR(190) NOT NULL, `jid` VARCHAR(190) NOT NULL, `return` LONGTEXT NOT NULL, " +
			"`id` VARCHAR(255) NOT NULL, `success` VARCHAR(10) NOT NULL, `full_ret` LONGTEXT NOT NULL, `alter_time` TIMESTAMP DEFAULT CURRENT_TIMESTAMP, " +
			"KEY `id` (`id`(190)), KEY `jid` (`jid`), KEY `fun` (`fun`)) DEFAULT CHARSET=utf8mb4",
		insert: "INSERT INTO `salt_returns` (`fun`, `jid`, `return`, `id`, `success`, `full_ret`) VALUES (?, ?, ?, ?, ?, ?)",
		missing: func(err error) bool {
			e, ok := errors.AsType[*mysql.MySQLError](err)
			return ok && e.Number == 1146
		},
	},
	database.Postgres: {
		connect: connectPostgres,
		create: `CREATE TABLE IF NOT EXISTS salt_returns (fun TEXT NOT NULL, jid VARCHAR(255) NOT NULL, return TEXT NOT NULL, full_ret TEXT,
			id VARCHAR(255) NOT NULL, success VARCHAR(10) NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT now())`,
		insert: `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) VALUES ($1, $2, $3, $4, $5, $6)`,
		missing: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && e.Code == "42P01"
		},
	},
	database.SQLite: {
		connect: connectSQLite,
		create:  `CREATE TABLE IF NOT EXISTS salt_returns (fun TEXT, jid TEXT, return TEXT, id TEXT, success TEXT, full_ret TEXT, date TEXT DEFAULT CURRENT_TIMESTAMP)`,
		insert:  `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) VALUES (?, ?, ?, ?, ?, ?)`,
		missing: func(err error) bool { return strings.Contains(err.Error(), "no such table") },
	},
}

// Insert inserts the row into the table salt_returns, and creates that if it is missing. It
// connects for each return: returns are rare, and permanent connections would be one for each
// minion at the server.
func Insert(ctx context.Context, o database.Order) error {
	d, known := dialects[o.Database.Kind]
	if !known {
		return fmt.Errorf("there is no database of the kind %q", o.Database.Kind)
	}
	db, err := d.connect(o.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	row := []any{o.Row.Fun, o.Row.JID, o.Row.Return, o.Row.ID, o.Row.Success, o.Row.Full}
	if _, err := db.ExecContext(ctx, d.insert, row...); err == nil || !d.missing(err) {
		return err // an insertion whose answer was lost is not made again
	}
	if _, err := db.ExecContext(ctx, d.create); err != nil {
		return fmt.Errorf("make the table salt_returns: %w", err)
	}
	_, err = db.ExecContext(ctx, d.insert, row...)
	return err
}

func connectPostgres(to database.Database) (*sql.DB, error) {
	secure, err := to.TLS.Config(to.Host)
	if err != nil {
		return nil, err
	}
	// Use only these settings: the environment may name other servers.
	c, err := pgx.ParseConfig("host=localhost sslmode=disable")
	if err != nil {
		return nil, err
	}
	c.Host, c.Port, c.Database, c.User, c.Password, c.TLSConfig, c.Fallbacks = to.Host, uint16(to.Port), to.Name, to.User, to.Password, secure, nil
	return stdlib.OpenDB(*c), nil
}

func connectMySQL(to database.Database) (*sql.DB, error) {
	secure, err := to.TLS.Config(to.Host)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", net.JoinHostPort(to.Host, strconv.Itoa(to.Port))
	if strings.HasPrefix(to.Host, "/") {
		c.Net, c.Addr = "unix", to.Host
	}
	c.User, c.Passwd, c.DBName, c.TLS, c.Collation, c.Logger = to.User, to.Password, to.Name, secure, "utf8mb4_bin", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func connectSQLite(to database.Database) (*sql.DB, error) {
	f, err := os.OpenFile(to.File, os.O_RDWR|os.O_CREATE, 0o640) // not readable by everyone
	if err != nil {
		return nil, err
	}
	f.Close()
	return sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(to.File)+"?_pragma=busy_timeout(10000)")
}
