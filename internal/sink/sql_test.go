package sink

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/test/dbtest"
)

// database is one of the kinds.
type database struct {
	kind     string
	settings string
	db       *sql.DB
	server   *dbtest.Server // nil for sqlite
}

// TestDatabases runs every test with every kind; each begins without a table.
func TestDatabases(t *testing.T) {
	tests := []struct {
		name   string
		server bool // needs one
		run    func(*testing.T, *database)
	}{
		{"every event is held once", false, holdsEveryEventOnce},
		{"another journal is not a repetition", false, tellsJournalsApart},
		{"a refused event stops nobody else", false, buriesWhatIsRefused},
		{"a check makes no table", false, checkMakesNoTable},
		{"away and back", true, awayAndBack},
		{"crashes under load", true, crashesUnderLoad},
		{"a wrong password is not shown", true, hidesThePassword},
		{"it knows its server", true, knowsItsServer},
	}
	for _, kind := range []struct {
		name string
		open func(*testing.T) *database
	}{{"sqlite", openSQLite}, {"mysql", serverOf(dbtest.MariaDB)}, {"postgresql", serverOf(dbtest.PostgreSQL)}} {
		t.Run(kind.name, func(t *testing.T) {
			d := kind.open(t)
			for _, test := range tests {
				if test.server && d.server == nil {
					continue
				}
				if _, err := d.db.Exec("DROP TABLE IF EXISTS salt_events"); err != nil {
					t.Fatal(err)
				}
				t.Run(test.name, func(t *testing.T) { test.run(t, d) })
			}
		})
	}
}

func openSQLite(t *testing.T) *database {
	path := filepath.Join(t.TempDir(), "events?100%.db")
	db, err := sqliteFile{path}.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &database{"sqlite", fmt.Sprintf("sqlite: {path: %q}", path), db, nil}
}

func serverOf(serve func(testing.TB) *dbtest.Server) func(*testing.T) *database {
	return func(t *testing.T) *database {
		s := serve(t)
		return &database{s.Kind, s.Settings(""), s.DB(), s}
	}
}

// rows returns "seq tag data" of every row in the order of seq.
func (d *database) rows(t testing.TB) (list []string) {
	t.Helper()
	rows, err := d.db.Query("SELECT seq, tag, data FROM salt_events ORDER BY seq, origin, digest")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var tag, data string
		if err := rows.Scan(&seq, &tag, &data); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%d %s %s", seq, tag, data))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

func (d *database) expectOnce(t testing.TB, n int) {
	t.Helper()
	var count, distinct, sum int
	if err := d.db.QueryRow("SELECT count(*), count(DISTINCT seq), coalesce(sum(seq), 0) FROM salt_events").Scan(&count, &distinct, &sum); err != nil {
		t.Fatal(err)
	}
	if count != n || distinct != n || sum != n*(n+1)/2 {
		t.Errorf("%d rows of %d events with the sum %d, want %d rows and the sum %d", count, distinct, sum, n, n*(n+1)/2)
	}
}

// readable looks into the data of all events with the database's own functions.
func (d *database) readable() error {
	query := map[string]string{
		"postgresql": "SELECT count(data->>'a') FROM salt_events WHERE json_typeof(data) = 'object'",
		"mysql":      "SELECT count(JSON_EXTRACT(data, '$.a')) FROM salt_events WHERE JSON_VALID(data)",
		"sqlite":     "SELECT count(json_extract(data, '$.a')) FROM salt_events WHERE json_valid(data)",
	}[d.kind]
	var n int
	return d.db.QueryRow(query).Scan(&n)
}

// awkward is data that some database could refuse or change.
var awkward = []struct{ name, tag, data string }{
	{"plain", "a/b", `{"a":1}`},
	{"no object", "a/b", `"x"`},
	{"null", "a/b", `null`},
	{"escaped zero", "a/b", `{"a":"\u0000"}`},
	{"half of a surrogate", "a/b", `{"a":"\ud800"}`},
	{"no UTF-8", "a/b", "{\"a\":\"\xff\xfe\"}"},
	{"beyond 64 bits", "a/b", `{"a":123456789012345678901234567890,"b":1e400}`},
	{"quotes", `a'b"c\d%s?$1`, `{"a":"'; DROP TABLE salt_events; --","b":"\\' ? $1 %s"}`},
	{"a long tag", strings.Repeat("🧂", 256), `{}`},
	{"deep", "a/b", strings.Repeat("[", 900) + strings.Repeat("]", 900)},
	{"long", "a/b", `"` + strings.Repeat("x", 3<<20) + `"`},
	{"the same key twice", "a/b", `{"a":1,"a":2}`},
}

func holdsEveryEventOnce(t *testing.T, d *database) {
	table := openOne(t, "r: {to: {"+d.settings+"}}")
	var events []Event
	for i, a := range awkward {
		events = append(events, makeEvent(t, a.tag, a.data, uint64(i+1)))
	}
	events = append(events, makeEvents(t, len(events)+1, 1200)...)
	for range 2 { // the second time is a repetition
		if err := table.write(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	d.expectOnce(t, len(events))
	for i, row := range d.rows(t)[:len(awkward)] {
		want := fmt.Sprintf("%d %s %s", i+1, events[i].Tag, storable(events[i].Data))
		if row != want {
			t.Errorf("%s: got %.200q, want %.200q", awkward[i].name, row, want)
		}
	}
	if err := d.readable(); err != nil {
		t.Errorf("a query over all events: %v", err)
	}
	var stamps int
	if err := d.db.QueryRow("SELECT count(*) FROM salt_events WHERE stamp = '2026-11-21 12:00:00.123456'").Scan(&stamps); err != nil {
		t.Fatal(err)
	}
	if want := len(events) - 4; stamps != want { // data that is not an object has none
		t.Errorf("%d rows have the moment of the event, want %d", stamps, want)
	}
}

// tellsJournalsApart: places begin at 1 again when a
// journal was begun again, and another master has the same ones.
func tellsJournalsApart(t *testing.T, d *database) {
	table := openOne(t, "r: {to: {"+d.settings+"}}")
	for _, data := range []string{`{"a":1}`, `{"a":2}`} {
		if err := table.write(t.Context(), []Event{makeEvent(t, "a", data, 7)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.rows(t); len(got) != 2 {
		t.Errorf("got %q, want both events", got)
	}
}

func awayAndBack(t *testing.T, d *database) {
	s := d.server
	j := newJournal()
	path := filepath.Join(t.TempDir(), "beside.jsonl")
	c := configure(t, "db: {batch: 37, wait: 5ms, timeout: 5s, to: {"+d.settings+"}}", "beside: {to: {file: {path: "+path+"}}, wait: 0s}")
	start(t, j, c)
	j.fire(t, 100)
	j.waitFor(t, "db", 100)
	for range 2 {
		n := j.last()
		s.Stop()
		j.fire(t, 500)
		j.waitFor(t, "beside", uint64(n+500)) // the other rule goes on
		s.Start()
		j.fire(t, 100)
		j.waitFor(t, "db", uint64(n+600))
	}
	d.expectOnce(t, j.last())
}

// crashesUnderLoad stops the server while batches are under way,
// where a commit may have happened although nobody was told.
func crashesUnderLoad(t *testing.T, d *database) {
	s := d.server
	j := newJournal()
	start(t, j, configure(t, "db: {batch: 10, wait: 0s, timeout: 5s, to: {"+d.settings+"}}"))
	for i := range 3 {
		j.fire(t, 2000)
		j.waitFor(t, "db", uint64(2000*i+500))
		s.Stop()
		s.Start()
	}
	j.waitFor(t, "db", 6000)
	d.expectOnce(t, 6000)
}

func buriesWhatIsRefused(t *testing.T, d *database) {
	tables := map[string]string{
		"postgresql": "CREATE TABLE salt_events (origin text, seq bigint, digest bigint, tag text CHECK (length(tag) < 20), sender text, stamp timestamptz, data jsonb, PRIMARY KEY (origin, seq, digest))",
		"mysql":      "CREATE TABLE salt_events (origin VARCHAR(190), seq BIGINT, digest BIGINT, tag VARCHAR(20), sender TEXT, stamp DATETIME(6), data LONGTEXT, PRIMARY KEY (origin, seq, digest))",
		"sqlite":     "CREATE TABLE salt_events (origin, seq, digest, tag CHECK (length(tag) < 20), sender, stamp, data, PRIMARY KEY (origin, seq, digest))",
	}
	if _, err := d.db.Exec(tables[d.kind]); err != nil {
		t.Fatal(err)
	}
	j := newJournal()
	j.fire(t, 60)
	j.add(t, strings.Repeat("long/", 10), `{"a":"\u0000"}`)
	j.fire(t, 60)
	start(t, j, configure(t, "db: {wait: 0s, to: {"+d.settings+"}}"))
	j.waitFor(t, "db", 121)
	if got := d.rows(t); len(got) != 120 {
		t.Errorf("%d rows, want 120", len(got))
	}
	if fmt.Sprint(j.dead) != "[61]" {
		t.Errorf("dead letters: %v, want 61", j.dead)
	}
}

func TestAUserWithoutTheRightToMakeTables(t *testing.T) {
	s := dbtest.PostgreSQL(t)
	s.Exec("CREATE ROLE writer LOGIN PASSWORD '" + dbtest.Password + "'")
	s.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	rule := "r: {to: {" + strings.Replace(s.Settings(""), "user: salt", "user: writer", 1) + "}}"
	if _, err := configure(t, rule).Rules[0].to.open(t.Context(), testLog(t)); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("without a table: %v, want a refusal", err)
	}
	for _, statement := range (postgreSQL{}).create("salt_events") {
		s.Exec(statement)
	}
	s.Exec("GRANT SELECT, INSERT ON salt_events TO writer")
	if err := openOne(t, rule).write(t.Context(), makeEvents(t, 1, 3)); err != nil {
		t.Errorf("with a table: %v", err)
	}
}

func TestCheckMakesNoFile(t *testing.T) {
	dir := t.TempDir()
	c := configure(t, "a: {to: {sqlite: {path: "+dir+"/a}}}", "b: {to: {file: {path: "+dir+"/b}}}", "c: {to: {file: {path: "+dir+"/no/c}}}", "d: {to: {sqlite: {path: "+dir+"/no/d}}}")
	Check(t.Context(), c, func(r Rule, err error) {
		if want := r.Name >= "c"; (err != nil) != want {
			t.Errorf("rule %q: %v, want a mistake: %t", r.Name, err, want)
		}
	})
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("there is now: %v, %v", list, err)
	}
}

func hidesThePassword(t *testing.T, d *database) {
	s := d.server
	defer writeSecret(t, s.PasswordFile, dbtest.Password)
	const wrong = "not-this-one-815"
	writeSecret(t, s.PasswordFile, wrong)
	to := configure(t, "r: {to: {"+s.Settings("")+"}}").Rules[0].to
	_, opening := to.open(t.Context(), testLog(t))
	for _, err := range []error{opening, to.check(t.Context())} {
		if err == nil || strings.Contains(err.Error(), wrong) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want an error without the password", err)
		}
	}
}

func checkMakesNoTable(t *testing.T, d *database) {
	Check(t.Context(), configure(t, "r: {to: {"+d.settings+"}}"), func(_ Rule, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if _, err := d.db.Exec("SELECT * FROM salt_events"); err == nil {
		t.Error("there is a table now")
	}
}

// knowsItsServer tries servers that are not who they should be; none of them may
// get an event or the password.
func knowsItsServer(t *testing.T, d *database) {
	ca, foreign := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	certificate := func(c tls.Certificate) *tls.Certificate { return &c }
	tests := []struct {
		name     string
		cert     *tls.Certificate
		settings string
		good     bool
	}{
		{"good", certificate(ca.server(t, nil, here, later)), "tls: true, ca_file: " + ca.file, true},
		{"good, by another name", certificate(ca.server(t, []string{"db.example"}, nil, later)), "tls: true, server_name: db.example, ca_file: " + ca.file, true},
		{"self-signed", certificate(new(authority).server(t, nil, here, later)), "tls: true", false},
		{"of another authority", certificate(foreign.server(t, nil, here, later)), "tls: true, ca_file: " + ca.file, false},
		{"expired", certificate(ca.server(t, nil, here, time.Now().Add(-time.Hour))), "tls: true, ca_file: " + ca.file, false},
		{"wrong name", certificate(ca.server(t, []string{"other.example"}, nil, later)), "tls: true, ca_file: " + ca.file, false},
		{"no TLS", nil, "tls: true, insecure: true", false},
		{"self-signed, insecure", certificate(new(authority).server(t, nil, here, later)), "tls: true, insecure: true", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			port := d.server.ListenTLS(test.cert)
			rule := fmt.Sprintf("r: {to: {%s: {host: 127.0.0.1, port: %d, database: salt, user: salt, password_file: %s, %s}}}",
				d.kind, port, d.server.PasswordFile, test.settings)
			to := configure(t, rule).Rules[0].to
			got, err := to.open(t.Context(), testLog(t))
			if err == nil {
				got.close()
			}
			for _, err := range []error{err, to.check(t.Context())} {
				if (err == nil) != test.good {
					t.Errorf("let in: %t, want %t: %v", err == nil, test.good, err)
				}
			}
		})
	}
}
