package function

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/test/order"
)

var update = flag.Bool("update", false, "rewrite the table in doc/differences.md")

func TestAbsentIsSorted(t *testing.T) {
	for _, list := range [][]Absent{absent, absentPrograms} {
		order.Of(t, "what is absent", list, func(a Absent) string { return a.Name })
		for _, a := range list {
			if a.What == "" || a.Instead == "" || strings.HasSuffix(a.Instead, ".") {
				t.Errorf("%s: what it is and what to do instead, without a full stop", a.Name)
			}
		}
	}
}

// TestAbsentIsDocumented: the table in doc/differences.md is that of the code.
func TestAbsentIsDocumented(t *testing.T) {
	const begin, end = "| Salt | what it is there | here |\n|---|---|---|\n", "\n## Network\n"
	rows := ""
	for _, a := range append(slices.Clone(absentPrograms), absent...) {
		rows += "| `" + a.Name + "` | " + a.What + " | " + a.Instead + " |\n"
	}
	path := filepath.Join("..", "..", "doc", "differences.md")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	was, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("doc/differences.md has no table of what is not here")
	}
	if was == rows {
		return
	}
	if !*update {
		t.Fatal("doc/differences.md is not what the table says: run go test ./internal/function -run Documented -update")
	}
	if err := os.WriteFile(path, []byte(head+begin+rows+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
