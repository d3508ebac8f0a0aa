package auth

import (
	"context"
	"os/exec"
	"slices"
	"testing"
)

func TestGroups(t *testing.T) {
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("this system has no getent")
	}
	var u Users
	ctx := context.Background()
	if got := u.Groups(ctx, "root"); !slices.Contains(got, "root") {
		t.Errorf("groups of root: %q, want root among them", got)
	}
	if got := u.Groups(ctx, "no-such-user-here"); len(got) != 0 {
		t.Errorf("groups of an unknown user: %q", got)
	}
	if got := systemGroups(ctx, "--help"); got != nil {
		t.Errorf("groups of an option: %q", got)
	}
	if !u.Exists(ctx, "root") || u.Exists(ctx, "no-such-user-here") {
		t.Error("root exists, no-such-user-here does not")
	}
}

// A lookup that was cut short is an answer of no groups, never a hang.
func TestGroupsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var u Users
	if got := u.Groups(ctx, "root"); len(got) != 0 {
		t.Errorf("groups after the end of the context: %q", got)
	}
}
