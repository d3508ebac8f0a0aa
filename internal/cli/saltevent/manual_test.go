package saltevent

import (
	"os"
	"strings"
	"testing"
)

// TestManual: doc/events.md knows every command and every option.
func TestManual(t *testing.T) {
	b, err := os.ReadFile("../../../doc/events.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(b)
	for _, c := range commands {
		if !strings.Contains(manual, "salt-event "+c.name) && !strings.Contains(manual, "`"+c.name+"`") {
			t.Errorf("there is nothing about salt-event %s", c.name)
		}
		for _, f := range c.spec().Flags {
			if name := f.Names()[0]; !strings.Contains(manual, "--"+name) {
				t.Errorf("there is nothing about the option --%s of salt-event %s", name, c.name)
			}
		}
	}
}
