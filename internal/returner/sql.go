package returner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers itself

	"brine/internal/salt"
	"brine/internal/value"
)

// dialect is what differs between databases.
type dialect struct {
	connect func() (*sql.DB, error)
	create  string // makes the table where there is none
	insert  string // a row: fun, jid, return, id, success, full_ret
}

// sender connects for each return: returns are rare, and a connection that is kept
// would be one of each minion at the server.
func (d dialect) sender() sender {
	return func(ctx context.Context, r Return) error {
		db, err := d.connect()
		if err != nil {
			return err
		}
		defer db.Close()
		result, err := value.Encode(r.Return)
		if err != nil {
			return err
		}
		full, err := value.Encode(r.Data())
		if err != nil {
			return err
		}
		row := []any{value.Str(r.Fun), string(r.JID), string(result), string(r.ID), value.Str(r.Success), string(full)}
		if _, err := db.ExecContext(ctx, d.insert, row...); err == nil {
			return nil
		}
		if _, err := db.ExecContext(ctx, d.create); err != nil {
			return fmt.Errorf("make the table salt_returns: %w", err)
		}
		_, err = db.ExecContext(ctx, d.insert, row...)
		return err
	}
}

// setting returns a setting of a returner, by any of its names.
func (h *Host) setting(byDefault string, keys ...string) string {
	for _, key := range keys {
		for _, name := range []string{key, "returner." + key} {
			if v, ok := h.Config[name]; ok && v != nil && value.Str(v) != "" {
				return value.Str(v)
			}
		}
	}
	return byDefault
}

// server is where a database listens and as whom to come, by the settings that begin
// with prefix.
type server struct {
	host, database, user, password string
	port                           int
	tls                            *tls.Config // nil for none
}

func readServer(h *Host, prefix, port string) (server, error) {
	s := server{
		host: h.setting("localhost", prefix+".host"), database: h.setting("salt", prefix+".db"), user: h.setting("salt", prefix+".user"),
		password: h.setting("", prefix+".passwd", prefix+".pass"),
	}
	var err error
	if s.port, err = strconv.Atoi(h.setting(port, prefix+".port")); err != nil || s.port < 1 || s.port > 65535 {
		return server{}, salt.WithHint(errors.New("there is no such port"), "set "+prefix+".port in the minion's configuration to a number")
	}
	local := strings.HasPrefix(s.host, "/") || s.host == "localhost" || net.ParseIP(s.host).IsLoopback()
	s.tls, err = readTLS(h, prefix, s.host, !local)
	return s, err
}

// readTLS returns the settings for TLS. A server's certificate is always checked,
// against the system's authorities or those of ssl_ca; ssl: False does without TLS.
func readTLS(h *Host, prefix, host string, byDefault bool) (*tls.Config, error) {
	file := h.setting("", prefix+".ssl_ca")
	switch h.setting("", prefix+".ssl") {
	case "False":
		return nil, nil
	case "":
		if !byDefault && file == "" {
			return nil, nil
		}
	}
	c := &tls.Config{ServerName: host}
	if file == "" {
		return c, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, salt.WithHint(fmt.Errorf("there is no certificate in %s", file), "set "+prefix+".ssl_ca to a file in PEM")
	}
	return c, nil
}

func openPostgres(h *Host, _ Options) (sender, error) {
	s, err := readServer(h, "postgres", "5432")
	if err != nil {
		return nil, err
	}
	return dialect{
		connect: func() (*sql.DB, error) {
			// Only what stands here counts: the environment may name other servers.
			c, err := pgx.ParseConfig("host=localhost sslmode=disable")
			if err != nil {
				return nil, err
			}
			c.Host, c.Port, c.Database, c.User, c.Password, c.TLSConfig, c.Fallbacks = s.host, uint16(s.port), s.database, s.user, s.password, s.tls, nil
			return stdlib.OpenDB(*c), nil
		},
		create: `CREATE TABLE IF NOT EXISTS salt_returns (fun TEXT NOT NULL, jid VARCHAR(255) NOT NULL, return TEXT NOT NULL, full_ret TEXT,
			id VARCHAR(255) NOT NULL, success VARCHAR(10) NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT now())`,
		insert: `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) VALUES ($1, $2, $3, $4, $5, $6)`,
	}.sender(), nil
}

func openMySQL(h *Host, _ Options) (sender, error) {
	s, err := readServer(h, "mysql", "3306")
	if err != nil {
		return nil, err
	}
	return dialect{
		connect: func() (*sql.DB, error) {
			c := mysql.NewConfig()
			c.Net, c.Addr = "tcp", net.JoinHostPort(s.host, strconv.Itoa(s.port))
			if strings.HasPrefix(s.host, "/") {
				c.Net, c.Addr = "unix", s.host
			}
			c.User, c.Passwd, c.DBName, c.TLS, c.Collation, c.Logger = s.user, s.password, s.database, s.tls, "utf8mb4_bin", &mysql.NopLogger{}
			connector, err := mysql.NewConnector(c)
			if err != nil {
				return nil, err
			}
			return sql.OpenDB(connector), nil
		},
		create: "CREATE TABLE IF NOT EXISTS `salt_returns` (`fun` VARCHAR(190) NOT NULL, `jid` VARCHAR(190) NOT NULL, `return` LONGTEXT NOT NULL, " +
			"`id` VARCHAR(255) NOT NULL, `success` VARCHAR(10) NOT NULL, `full_ret` LONGTEXT NOT NULL, `alter_time` TIMESTAMP DEFAULT CURRENT_TIMESTAMP, " +
			"KEY `id` (`id`(190)), KEY `jid` (`jid`), KEY `fun` (`fun`)) DEFAULT CHARSET=utf8mb4",
		insert: "INSERT INTO `salt_returns` (`fun`, `jid`, `return`, `id`, `success`, `full_ret`) VALUES (?, ?, ?, ?, ?, ?)",
	}.sender(), nil
}

func openSQLite(h *Host, _ Options) (sender, error) {
	file := h.setting("", "sqlite3.database")
	if !strings.HasPrefix(file, "/") {
		return nil, salt.WithHint(errors.New("there is no database"), "set sqlite3.database in the minion's configuration to the path of a file")
	}
	return dialect{
		connect: func() (*sql.DB, error) {
			f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o640) // not readable for all
			if err != nil {
				return nil, err
			}
			f.Close()
			return sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(file)+"?_pragma=busy_timeout(10000)")
		},
		create: `CREATE TABLE IF NOT EXISTS salt_returns (fun TEXT, jid TEXT, return TEXT, id TEXT, success TEXT, full_ret TEXT, date TEXT DEFAULT CURRENT_TIMESTAMP)`,
		insert: `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) VALUES (?, ?, ?, ?, ?, ?)`,
	}.sender(), nil
}
