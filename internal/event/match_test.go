package event

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/test/documented"
)

// TestMatchVectors runs testdata/tags.json: cases answered by Salt 3006.
func TestMatchVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/tags.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			ID      string
			Type    MatchType `json:"match_type"`
			Tag     string    `json:"event_tag"`
			Search  string
			Verdict any
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 100 {
		t.Fatalf("only %d cases", len(file.Cases))
	}
	var count documented.Comparison
	for _, c := range file.Cases {
		want, decided := c.Verdict.(bool)
		m, err := NewMatcher(c.Type, []string{c.Search})
		if err != nil {
			count.Count(documented.Verdict(false, decided))
			if decided {
				t.Errorf("%s: NewMatcher(%s, %q): %v, want %v", c.ID, c.Type, c.Search, err, want)
			}
			continue
		}
		if !decided {
			count.Count(documented.Laxer)
			t.Errorf("%s: NewMatcher(%s, %q) was accepted; Salt says %v", c.ID, c.Type, c.Search, c.Verdict)
			continue
		}
		got, err := m.Match(c.Tag)
		count.Count(documented.Verdict(got, want))
		if got != want || err != nil {
			t.Errorf("%s: %s %q with %q: %v, %v; want %v", c.ID, c.Type, c.Tag, c.Search, got, err, want)
		}
	}
	count.Stands(t, "tags of events")
}

func TestSeveralPatterns(t *testing.T) {
	for name, c := range map[string]struct {
		how      MatchType
		patterns []string
		yes, no  string
	}{
		"prefixes":      {"", []string{"a/", "b"}, "b/c", "c"},
		"endings":       {EndsWith, []string{"/x", "/y"}, "a/y", "a/z"},
		"none":          {Regex, nil, "anything", ""},
		"glob brackets": {Fnmatch, []string{"[!a]?*", "x[]]"}, "x]", "a"},
		"glob literal":  {Fnmatch, []string{"a[b", "[z-a]"}, "a[b", "ab"},
	} {
		m, err := NewMatcher(c.how, c.patterns)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ok, err := m.Match(c.yes); !ok || err != nil {
			t.Errorf("%s: %q does not match: %v", name, c.yes, err)
		}
		if ok, err := m.Match(c.no); ok && c.no != "" || err != nil {
			t.Errorf("%s: %q matches: %v", name, c.no, err)
		}
	}
}

// FuzzMatcher holds a matcher to its word: no pattern and no tag make it panic,
// and a fnmatch pattern without wildcards is equality.
func FuzzMatcher(f *testing.F) {
	f.Add("fnmatch", "salt/*/[0-9]?", "salt/x/1y")
	f.Add("regex", "a(b|c)*$", "abc")
	f.Add("find", "", "x")
	f.Fuzz(func(t *testing.T, how, pattern, tag string) {
		m, err := NewMatcher(MatchType(how), []string{pattern})
		if err != nil {
			return
		}
		got, err := m.Match(tag)
		if err == nil && how == string(Fnmatch) && fnmatch.Compile(pattern).Prefix() == pattern && CheckTag(tag) == nil && got != (pattern == tag) {
			t.Errorf("%q matches %q: %v", pattern, tag, got)
		}
	})
}
