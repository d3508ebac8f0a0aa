package module

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestProcessNamesAreData: a process has a name and words that are commands to a shell. All
// functions that look at processes tell of it, and run nothing.
func TestProcessNamesAreData(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const name = "$(touch a);`touch b`|touch c"
	text, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("./"+name, "60")
	c.Args[0] = "-x; touch d; $(touch e)"
	if err := c.Start(); err != nil {
		t.Skip("/bin/sleep is not a program of its own here: ", err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	pid := int64(c.Process.Pid)
	reported := false
	for function, args := range map[string][]any{
		"ps.top": nil, "ps.get_pid_list": nil, "ps.proc_info": {pid}, "ps.pgrep": {name}, "status.pid": {name}, "status.procs": nil, "status.all_status": nil,
	} {
		if _, err := exec.LookPath("ps"); err != nil && strings.HasPrefix(function, "status.") {
			continue
		}
		got := run(t, nil, function, nil, args...)
		if s := asText(got.Return); strings.Contains(s, "touch") || strings.Contains(s, strconv.Itoa(int(pid))) {
			reported = true
		}
	}
	if !reported {
		t.Error("no function tells of the process: the test looks at nothing")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("a name was run as a command: %v, %v", entries, err)
	}
}

// TestNamesThatAreReadAreData: what a function has read of the system, and hands to a program,
// is one word there and no option, whoever has named it: a file, or a unit.
func TestNamesThatAreReadAreData(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	const name = "-n $(touch a);`touch b`|touch c"
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	fakeProgram(t, "show", "")
	good(t, nil, "file.find", map[string]any{"type": "f", "exec": "show {}"}, dir)
	wantCalls(t, "file.find", "<show><"+file+">")
	fakeProgram(t, "systemctl", `case "$*" in *list-unit-files*) echo '-H$(touch${IFS}a).service enabled enabled';; esac`)
	good(t, systemdHost(), "service.status", nil, "*")
	if c := calls(t); len(c) != 2 || c[1] != "<systemctl><is-active><--quiet><--><-H$(touch${IFS}a).service>" {
		t.Errorf("service.status ran %q", c)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a name was run as a command: %v, %v", entries, err)
	}
}

// asText is a return as somebody would look through it.
func asText(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var b strings.Builder
		for k, e := range v {
			b.WriteString(k + " " + asText(e) + " ")
		}
		return b.String()
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(asText(e) + " ")
		}
		return b.String()
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// TestScriptsHaveFoldersOfTheirOwn: where a script will lie cannot be foreseen, and nobody
// else can enter or prepare the place.
func TestScriptsHaveFoldersOfTheirOwn(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	script := filepath.Join(t.TempDir(), "s.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $0\nstat -c %a $0 ${0%/*}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 5 {
		out := good(t, nil, "cmd.script", nil, script).(map[string]any)["stdout"].(string)
		path, modes, _ := strings.Cut(out, "\n")
		if seen[filepath.Dir(path)] || filepath.Dir(filepath.Dir(path)) != tmp {
			t.Errorf("the script lay at %s: want a new folder in %s", path, tmp)
		}
		if modes != "700\n700" {
			t.Errorf("modes of the script and its folder: %q, want 700 for both", modes)
		}
		seen[filepath.Dir(path)] = true
	}
}
