package saltcp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/cli"
)

func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etc/a": 0o644, "etc/sub/b": 0o750, "a": 0o600} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "etc/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestList: where files go, as salt-cp has it.
func TestList(t *testing.T) {
	t.Chdir(tree(t))
	for _, test := range []struct {
		sources, dest string
		tree          bool
		want          string // "" for a wrong command line
	}{
		{"a", "/x", false, "/x"},
		{"a", "/x/", false, "/x/a"},
		{"a etc/sub/b", "/x", false, "/x/a /x/b"},
		{"etc", "/x", true, "/x/etc/a /x/etc/empty/ /x/etc/sub/b"},
		{"etc/.", "/x", true, "/x/etc/a /x/etc/empty/ /x/etc/sub/b"},
		{"etc", "/x", false, ""},
		{"a etc/a", "/x", true, ""},
		{"nosuch", "/x", true, ""},
		{"/dev/null", "/x", true, ""},
	} {
		items, err := list(strings.Fields(test.sources), test.dest, test.tree)
		var got []string
		for _, it := range items {
			name := it.dest
			if it.dir {
				name += "/"
			}
			got = append(got, name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want || (err == nil) != (test.want != "") || err != nil && cli.Code(err) != cli.Usage {
			t.Errorf("%s to %s: %q, %v; want %q", test.sources, test.dest, got, err, test.want)
		}
	}
}

// TestLinksToDirectories are not followed: nothing is copied then.
func TestLinksToDirectories(t *testing.T) {
	dir := tree(t)
	if err := os.Symlink("/", filepath.Join(dir, "etc/root")); err != nil {
		t.Fatal(err)
	}
	if items, err := list([]string{filepath.Join(dir, "etc")}, "/x", true); err == nil {
		t.Errorf("%v", items)
	}
}

// TestWithout: nobody waits again for who is lost, and what is asked for is within what was.
func TestWithout(t *testing.T) {
	for _, test := range []struct{ target, kind, want string }{
		{"web*", "glob", "web* and not L@a,b"},
		{"a,b,c", "list", "L@a,b,c and not L@a,b"},
		{"os:Debian", "grain", "G@os:Debian and not L@a,b"},
		{"web* or db*", "compound", "( web* or db* ) and not L@a,b"},
		{"os:Oracle Linux", "grain", ""}, // no word of a compound target
	} {
		c := &copying{target: brine.Target{Expr: test.target, Type: test.kind, Delimiter: ":"}}
		got, kind := c.without([]string{"a", "b"}), "compound"
		if test.want == "" {
			test.want, kind = test.target, test.kind
		}
		if got.Expr != test.want || got.Type != kind {
			t.Errorf("%s: %s %q", test.target, got.Type, got.Expr)
		}
		if all := c.without(nil); all.Expr != test.target || all.Type != test.kind {
			t.Errorf("%s: %+v", test.target, all)
		}
	}
}
