package template

import (
	"errors"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
)

// TestAnswer: how the program ended says what of it is the template's fault.
func TestAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		end  process.Ending
		out  string
		want string // "" for no error
		line int
	}{
		"a text":                   {process.Ending{Stdout: "x\n"}, "x\n", "", 0},
		"a mistake":                {process.Ending{Code: 1, Stdout: "half", Stderr: `{"line":3,"text":"x is not defined"}` + "\n"}, "", "template: line 3: x is not defined", 3},
		"killed for its memory":    {process.Ending{Code: -9, Stdout: "half"}, "", "more time, memory or depth", 0},
		"a stack that is too deep": {process.Ending{Code: 2, Stderr: "runtime: goroutine stack exceeds"}, "", "more time, memory or depth", 0},
		"too slow":                 {process.Ending{Stdout: "half", TimedOut: true}, "", "more time, memory or depth", 0},
	} {
		out, err := answer(c.end)
		var m *Mistake
		if out != c.out || (err != nil) != (c.want != "") || err != nil && (!errors.As(err, &m) || m.Line != c.line || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if _, err := answer(process.Ending{Code: 64, Stderr: "wrong"}); err == nil || !strings.Contains(err.Error(), "exit code 64: wrong") {
		t.Errorf("a program that was called wrongly: %v", err)
	}
}

func TestRenderer(t *testing.T) {
	if _, err := Renderer("/nonexistent/salt-template").Render(t.Context(), "{{ 1 }}", nil); salt.Hint(err) == "" {
		t.Errorf("without the program: %v, want a hint", err)
	}
	var m *Mistake
	if _, err := Renderer("true").Render(t.Context(), strings.Repeat("x", MaxText+1), nil); !errors.As(err, &m) {
		t.Errorf("a long template: %v", err)
	}
}
