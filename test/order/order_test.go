package order

import (
	"fmt"
	"testing"
)

// recorder is a test that notes what it is told.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func TestCheck(t *testing.T) {
	for want, names := range map[string][]string{
		"":                                       {"a", "b", "c"},
		"t: b stands wrong: it belongs behind a": {"a", "c", "d", "b"},
		"t: d stands wrong: it belongs behind c": {"a", "d", "b", "c"},
		"t: a stands wrong: it belongs first":    {"b", "c", "a"},
		"t: b is there twice":                    {"a", "b", "b"},
	} {
		r := &recorder{TB: t}
		if Check(r, "t", names); r.said != want {
			t.Errorf("%v: %q, want %q", names, r.said, want)
		}
	}
}
