package saltreturner

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/returner/database"
)

// told runs the program with an order on its standard input.
func reported(order string) (code int, said string) {
	var words strings.Builder
	env := &cli.Env{Name: "salt-returner", Stdin: strings.NewReader(order), Stdout: io.Discard, Stderr: &words, Getenv: func(string) string { return "" }}
	return Run(context.Background(), env), words.String()
}

// TestOrders: an order is carried out or the exit code says that it was not, and no password
// is among the words.
func TestOrders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "returns.db")
	good := database.Order{Database: database.Database{Kind: database.SQLite, File: file}, Row: database.Row{Fun: "test.ping", JID: "20261121113344286549", Return: "true", ID: "web1", Success: "True", Full: "{}"}}
	other := good
	other.Database = database.Database{Kind: "oracle", Password: "tops3cret"}
	for _, test := range []struct {
		name  string
		order any
		want  int
	}{
		{"no order", nil, cli.Usage}, {"no JSON", "kind: sqlite3", cli.Usage}, {"an unknown database", other, cli.Failed}, {"a good one", good, 0},
	} {
		text, isText := test.order.(string)
		if !isText && test.order != nil {
			b, err := json.Marshal(test.order)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		code, said := reported(text)
		if code != test.want || (said == "") != (code == 0) || strings.Contains(said, "tops3cret") {
			t.Errorf("%s ends with %d and %q, want %d", test.name, code, said, test.want)
		}
		if _, err := os.Stat(file); (err == nil) != (test.want == 0) {
			t.Errorf("%s: the file of the database: %v", test.name, err)
		}
	}
}
