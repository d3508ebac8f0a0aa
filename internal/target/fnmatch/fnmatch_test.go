package fnmatch

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func TestMatchAsPython(t *testing.T) {
	b, err := os.ReadFile("testdata/fnmatch.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Subjects []string
		Cases    []struct {
			Pattern string
			Match   []string
		}
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all.Cases {
		g := Compile(c.Pattern)
		for _, s := range all.Subjects {
			if got, want := g.Match(s), slices.Contains(c.Match, s); got != want {
				t.Errorf("glob %q on %q = %v, Python says %v", c.Pattern, s, got, want)
			}
		}
	}
}
