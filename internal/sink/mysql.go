package sink

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mySQL is a database on a MySQL or MariaDB server.
type mySQL struct{ server }

func readMySQL(s *section, origin string) target {
	d := mySQL{readServer(s, 3306)}
	return &sqlTarget{dialect: d, name: "mysql " + d.String(), table: tableOf(s), origin: origin}
}

func (d mySQL) connect() (*sql.DB, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", net.JoinHostPort(d.host, strconv.Itoa(d.port))
	if strings.HasPrefix(d.host, "/") {
		c.Net, c.Addr = "unix", d.host
	}
	c.User, c.DBName, c.Collation = d.user, d.database, "utf8mb4_bin"
	c.InterpolateParams = true // one round trip for each statement
	c.MaxAllowedPacket = 0     // use the limit of the server
	c.Logger = &mysql.NopLogger{}
	// A value that does not fit is an error; it must not be truncated.
	c.Params = map[string]string{"sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'", "time_zone": "'+00:00'"}
	var err error
	if c.Passwd, err = readSecret(d.password); err != nil {
		return nil, err
	}
	if c.TLS, err = d.tls.config(d.host); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (d mySQL) check(ctx context.Context) error { return ping(ctx, d) }

// create uses a text column for data: the JSON type of MariaDB accepts at most 32 levels.
func (d mySQL) create(table string) []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + table + ` (
			origin VARCHAR(190) NOT NULL, seq BIGINT NOT NULL, digest BIGINT NOT NULL, tag VARCHAR(1024) NOT NULL, sender VARCHAR(300) NOT NULL,
			stamp DATETIME(6) NULL, data LONGTEXT NOT NULL, PRIMARY KEY (origin, seq, digest), KEY tag (tag(190)), KEY stamp (stamp)
		) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`,
	}
}

// insert does not use INSERT IGNORE, which would also truncate values that do not fit.
func (d mySQL) insert(table string, rows [][]any) (string, []any) {
	textStamps(rows)
	query, args := valuesOf(table, rows)
	return query + " ON DUPLICATE KEY UPDATE seq = " + table + ".seq", args
}

// Error codes of the server about values; see its list of errors.
var mysqlValues = []uint16{
	1048, // null in a column that must have a value
	1153, // larger than max_allowed_packet
	1264, // out of range
	1292, // invalid time
	1366, // invalid text for the character set
	1406, // too long
	3140, // invalid JSON
	3819, // violated check, MySQL
	4025, // violated check, MariaDB
}

func (d mySQL) refuses(err error) bool {
	var e *mysql.MySQLError
	return errors.Is(err, mysql.ErrPktTooLarge) || errors.As(err, &e) && slices.Contains(mysqlValues, e.Number)
}
