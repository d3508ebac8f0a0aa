package driver_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/returner/database"
	"github.com/brinebus/brine/internal/returner/database/driver"
	"github.com/brinebus/brine/test/dbtest"
)

var row = database.Row{Fun: "cmd.run_all", JID: "20261121113344286549", Return: `{"stdout":"OK"}`, ID: "web1", Success: "True", Full: `{"id":"web1"}`}

func TestSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b?#%.db")
	o := database.Order{Database: database.Database{Kind: database.SQLite, File: file}, Row: row}
	for range 2 {
		if err := driver.Insert(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the file: %v, %v; want one that not everybody may read", info, err)
	}
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wantRows(t, db, 2)
}

// TestAnInsertionThatFailsIsNotRepeated: only one into a table that is missing is made again. Here each fails after
// the row is stored, as one does whose answer is lost.
func TestAnInsertionThatFailsIsNotRepeated(t *testing.T) {
	o := database.Order{Database: database.Database{Kind: database.SQLite, File: filepath.Join(t.TempDir(), "x.db")}, Row: row}
	if err := driver.Insert(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+o.Database.File)
	if err == nil {
		_, err = db.Exec("CREATE TRIGGER late AFTER INSERT ON salt_returns BEGIN SELECT RAISE(FAIL, 'no answer'); END")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := driver.Insert(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("the failure: %v", err)
	}
	wantRows(t, db, 2)
}

// wantRows looks at what a database has.
func wantRows(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	var count int
	if err := db.QueryRow("SELECT count(*) FROM salt_returns").Scan(&count); err != nil || count != n {
		t.Fatalf("%d rows, %v; want %d", count, err, n)
	}
	var got database.Row
	if err := db.QueryRow("SELECT fun, jid, id, success, full_ret FROM salt_returns").Scan(&got.Fun, &got.JID, &got.ID, &got.Success, &got.Full); err != nil {
		t.Fatal(err)
	}
	if got.Return = row.Return; got != row {
		t.Errorf("row: %+v, want %+v", got, row)
	}
}

func TestServers(t *testing.T) {
	for kind, start := range map[string]func(testing.TB) *dbtest.Server{database.Postgres: dbtest.PostgreSQL, database.MySQL: dbtest.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			server := start(t)
			port := map[string]int{database.Postgres: 5432, database.MySQL: 3306}[kind]
			o := database.Order{Database: database.Database{Kind: kind, Host: server.Host, Port: port, Name: "salt", User: "salt", Password: dbtest.Password}, Row: row}
			for range 2 {
				if err := driver.Insert(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			wantRows(t, server.DB(), 2)
			server.Stop()
			if err := driver.Insert(t.Context(), o); err == nil || strings.Contains(err.Error(), dbtest.Password) {
				t.Errorf("a server that is away: %v", err)
			}
		})
	}
}

func TestNoSuchKind(t *testing.T) {
	for _, kind := range []string{"", "oracle"} {
		if err := driver.Insert(t.Context(), database.Order{Database: database.Database{Kind: kind}, Row: row}); err == nil {
			t.Errorf("a database of the kind %q has taken a return", kind)
		}
	}
}
