package module

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeProgram puts a shell script of that name before all other programs. It
// notes its arguments, one call a line, for calls.
func fakeProgram(t testing.TB, name, script string) {
	t.Helper()
	dir := fakeDir(t)
	text := "#!/bin/sh\nfor a in " + name + ` "$@"; do printf '<%s>' "$a"; done >> ` + filepath.Join(dir, "calls") +
		"\necho >> " + filepath.Join(dir, "calls") + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// fakeDir is the folder of the test's fake programs, first in PATH.
func fakeDir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("BRINE_TEST_PROGRAMS"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	t.Setenv("BRINE_TEST_PROGRAMS", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// onlyPrograms hides all programs but the named ones and the fake ones.
func onlyPrograms(t testing.TB, names ...string) {
	t.Helper()
	dir := fakeDir(t)
	for _, name := range names {
		path, ok := which(name).(string)
		if !ok {
			t.Skipf("there is no %s", name)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// calls returns and forgets how the fake programs were called:
// "systemctl", "restart", "--", "x.service" is "<systemctl><restart><--><x.service>".
func calls(t testing.TB) []string {
	t.Helper()
	path := filepath.Join(fakeDir(t), "calls")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func wantCalls(t testing.TB, what string, want ...string) {
	t.Helper()
	if got := calls(t); !slices.Equal(got, want) {
		t.Errorf("%s called\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
