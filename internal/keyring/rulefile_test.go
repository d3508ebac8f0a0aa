package keyring

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// TestRulesAreCompiledWhenTheyChange: whoever shows new keys without end makes the master neither read nor compile the
// files of rules for each, and each change of a file counts at the next key.
func TestRulesAreCompiledWhenTheyChange(t *testing.T) {
	var text strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&text, "plain-%d\nhost-%d.example.com\n", n, n)
	}
	text.WriteString("web*\ndb\\d+\n")
	f := newRuleFile(filepath.Join(t.TempDir(), "autosign"))
	written := time.Now()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		written = written.Add(-time.Minute) // as if it were some time ago
		if err := os.Chtimes(f.path, written, written); err != nil {
			t.Fatal(err)
		}
	}
	want := func(id salt.MinionID, want bool) {
		t.Helper()
		if got, err := f.lists(id); err != nil || got != want {
			t.Errorf("%s: %t, %v; want %t", id, got, err, want)
		}
	}
	want("web1", false)
	write(text.String())
	for n := range 100 {
		want(salt.MinionID(fmt.Sprint("eve", n)), false)
	}
	for _, id := range []salt.MinionID{"plain-7", "host-7.example.com", "host-7xexample.com", "web1", "we", "db12"} {
		want(id, true)
	}
	want("db12x", false)
	if f.reads != 1 || f.compiled != 1 {
		t.Errorf("the file was read %d times and compiled %d times", f.reads, f.compiled)
	}
	if p := f.patterns; len(p.globs) != 1 || len(p.regexps) != 2 {
		t.Errorf("%d lines are globs and %d regular expressions, want 1 and 2", len(p.globs), len(p.regexps))
	}

	write("eve1\n")
	want("eve1", true)
	want("web1", false)
	write("eve2\n") // of the same length
	want("eve2", true)
	want("eve1", false)

	// A change within the clock's resolution, with the same length, shows only in the text.
	now := time.Now()
	for _, id := range []salt.MinionID{"eve3", "eve4", "eve5"} {
		if err := os.WriteFile(f.path, []byte(id+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f.path, now, now); err != nil {
			t.Fatal(err)
		}
		want(id, true)
	}

	if err := os.Chmod(f.path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got, err := f.lists("eve5"); err == nil || got {
		t.Errorf("a file that all may write: %t, %v", got, err)
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	want("eve5", false)
}

// A line means what it would as an id, as the target of a job that is a glob, and as one that is a regular expression.
func FuzzRules(f *testing.F) {
	for _, line := range []string{
		"web1", "web1.example.com", "web*", "web?", "[wW]eb1", "web[", "db\\d+", "a)|(?:w", "(?i)WEB1", "web1|db1", "web1$", "^web1", "a+b", "w.b1", "web{1}", "web\\", "~%=:@_-", "w e b", "wéb1", "w\xffb1", ".", "..", "", "(?=web)web1", "(a+)+b", "web1#", "[[:alpha:]]*",
	} {
		for _, id := range []string{"web1", "web1.example.com", "web1xexample.com", "a+b", "aab", "WEB1", "db12", "w.b1"} {
			f.Add(line, id)
		}
	}
	f.Fuzz(func(t *testing.T, line, name string) {
		id, err := salt.ParseMinionID(name)
		if err != nil {
			return
		}
		for _, line := range linesOf(line) {
			matches := func(expr string, kind target.Kind) bool {
				x, err := target.Parse(expr, kind, target.Options{})
				if err != nil {
					return false
				}
				ok, err := x.Match(target.Facts{ID: id})
				return ok && err == nil
			}
			want := line == name || matches(line, target.Glob) || matches("(?:"+line+")$", target.PCRE)
			if got := compile([]string{line}).match(name); got != want {
				t.Errorf("the line %q lists %q: %t, want %t", line, name, got, want)
			}
		}
	})
}
