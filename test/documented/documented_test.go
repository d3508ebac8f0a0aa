package documented

import (
	"slices"
	"testing"
)

func TestMissing(t *testing.T) {
	got := missing("- one and\n  two\n- three\n", []string{"one and two", "three", "four", ""})
	if !slices.Equal(got, []string{"four", ""}) {
		t.Errorf("missing are %q", got)
	}
}
