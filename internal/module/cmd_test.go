package module

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/deadline"
)

func TestCmdRun(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		function string
		cmd      any
		kwargs   map[string]any
		want     any
		code     int
	}{
		"order of both streams":      {"cmd.run", "echo a; echo b >&2; echo c", nil, "a\nb\nc", 0},
		"stdout":                     {"cmd.run_stdout", "echo a; echo b >&2", nil, "a", 0},
		"stderr":                     {"cmd.run_stderr", "echo a; echo b >&2", nil, "b", 0},
		"retcode":                    {"cmd.retcode", "exit 3", nil, 3, 3},
		"output and retcode":         {"cmd.run", "echo out; exit 3", nil, "out", 3},
		"ignored retcode":            {"cmd.retcode", "exit 3", map[string]any{"ignore_retcode": true}, 3, 0},
		"success by code":            {"cmd.retcode", "exit 3", map[string]any{"success_retcodes": []any{int64(3)}}, 0, 0},
		"another code is none":       {"cmd.retcode", "exit 4", map[string]any{"success_retcodes": int64(3)}, 4, 4},
		"success by output":          {"cmd.run", "echo fine; exit 3", map[string]any{"success_stdout": []any{"fine"}}, "fine", 0},
		"success by diagnostics":     {"cmd.run_stderr", "echo fine >&2; exit 3", map[string]any{"success_stderr": "fine"}, "fine", 0},
		"ended by a signal":          {"cmd.retcode", "kill -9 $$", nil, -9, -9},
		"not found by the shell":     {"cmd.retcode", "nosuchprogram 2>/dev/null", nil, 127, 127},
		"a list needs no shell":      {"cmd.run", []any{"echo", "$HOME", "a b", int64(5)}, nil, "$HOME a b 5", 0},
		"words instead of the shell": {"cmd.run", `echo '$HOME'  "a b"`, map[string]any{"python_shell": false}, "$HOME a b", 0},
		"a list to the shell":        {"cmd.run", []any{"echo", "$((1+1))"}, map[string]any{"python_shell": true}, "2", 0},
		"cmd.shell":                  {"cmd.shell", "echo $((1+1))", map[string]any{"python_shell": false}, "2", 0},
		"leading hyphen":             {"cmd.run", "-x 2>/dev/null || echo not an option", nil, "not an option", 0},
		"a number":                   {"cmd.retcode", int64(12345), map[string]any{"hide_output": true}, 127, 127},
		"cwd":                        {"cmd.run", "pwd", map[string]any{"cwd": dir}, dir, 0},
		"stdin":                      {"cmd.run", "cat", map[string]any{"stdin": "one\ntwo"}, "one\ntwo", 0},
		"empty stdin":                {"cmd.run", "cat", nil, "", 0},
		"env":                        {"cmd.run", "echo $A $B", map[string]any{"env": []any{map[string]any{"A": int64(1)}, map[string]any{"B": "x y"}}}, "1 x y", 0},
		"env of None is empty":       {"cmd.run", "echo ${A-unset}", map[string]any{"env": map[string]any{"A": nil}}, "", 0},
		"clean env":                  {"cmd.run", []any{"/usr/bin/env"}, map[string]any{"clean_env": true, "env": map[string]any{"A": "b"}}, "A=b", 0},
		"prepended path":             {"cmd.run", "echo ${PATH%%:*}", map[string]any{"prepend_path": "/opt/x"}, "/opt/x", 0},
		"C locale":                   {"cmd.run", "echo $LC_ALL", nil, "C", 0},
		"kept white space":           {"cmd.run", `printf ' a \n\n'`, map[string]any{"rstrip": false}, " a \n\n", 0},
		"stripped white space":       {"cmd.run", `printf ' a \n\n'`, nil, " a", 0},
		"bytes":                      {"cmd.run", `printf '\377\000\376'`, nil, "\xff\x00\xfe", 0},
		"latin-1":                    {"cmd.run", `printf '\344'`, map[string]any{"output_encoding": "latin-1"}, "ä", 0},
		"hidden":                     {"cmd.run", "echo secret", map[string]any{"hide_output": true}, "", 0},
		"umask":                      {"cmd.run", "umask", map[string]any{"umask": "027"}, "0027", 0},
		"umask without a shell":      {"cmd.run", []any{"sh", "-c", `umask; echo "$1"`, "sh", "a b"}, map[string]any{"umask": "077"}, "0077\na b", 0},
		"another shell":              {"cmd.run", "echo $0", map[string]any{"shell": "/bin/bash"}, "/bin/bash", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := run(t, nil, tt.function, tt.kwargs, tt.cmd)
			if r.Err != nil || r.Retcode != tt.code {
				t.Errorf("retcode %d, err %v; want %d", r.Retcode, r.Err, tt.code)
			}
			same(t, tt.function, r.Return, tt.want)
		})
	}
}

func TestCmdRunAll(t *testing.T) {
	r := run(t, nil, "cmd.run_all", nil, "echo out; echo err >&2; exit 3")
	if text, _ := value.Encode(r.Return); !strings.HasSuffix(string(text), `,"retcode":3,"stdout":"out","stderr":"err"}`) {
		t.Errorf("cmd.run_all: %s, want Salt's order", text)
	}
	got := wire(t, r.Return).(map[string]any)
	if pid, _ := got["pid"].(int64); pid <= 1 || r.Retcode != 3 {
		t.Errorf("pid %v, retcode %d", got["pid"], r.Retcode)
	}
	delete(got, "pid")
	same(t, "run_all", got, map[string]any{"retcode": 3, "stdout": "out", "stderr": "err"})
	merged := good(t, nil, "cmd.run_all", map[string]any{"redirect_stderr": true}, "echo err >&2").(map[string]any)
	if merged["stdout"] != "err" || merged["stderr"] != "" {
		t.Errorf("redirected: %v", merged)
	}
}

func TestCmdRefusals(t *testing.T) {
	for _, tt := range []struct {
		want   string
		cmd    any
		kwargs map[string]any
	}{
		{`cwd "/nosuch" is not an existing directory`, "true", map[string]any{"cwd": "/nosuch"}},
		{`cwd "tmp" is not an existing directory`, "true", map[string]any{"cwd": "tmp"}},
		{`run "nosuchprogram": executable file not found`, []any{"nosuchprogram"}, nil},
		{`run "/nosuch/shell": no such file`, "true", map[string]any{"shell": "/nosuch/shell"}},
		{"the command is empty", []any{}, nil},
		{"a command is text or a list", " ", nil},
		{"a command is text or a list", map[string]any{}, nil},
		{"open quote", "echo 'a", map[string]any{"python_shell": false}},
		{`user "nosuchuser" does not exist`, "true", map[string]any{"runas": "nosuchuser"}},
		{`group "nosuchgroup" does not exist`, "true", map[string]any{"group": "nosuchgroup"}},
		{"umask must be octal digits as text", "true", map[string]any{"umask": int64(18)}},
		{"umask must be octal digits as text", "true", map[string]any{"umask": "0;id"}},
		{"unknown output_encoding", "true", map[string]any{"output_encoding": "ebcdic"}},
		{"ERROR: command: exit code 3: boo", "echo boo; exit 3", map[string]any{"raise_err": true}},
		{`unknown keyword argument "use_vt"`, "true", map[string]any{"use_vt": true}},
	} {
		bad(t, nil, "cmd.run", tt.want, tt.kwargs, tt.cmd)
	}
}

func TestCmdTimeoutEndsTheWholeGroup(t *testing.T) {
	begin := time.Now()
	r := run(t, nil, "cmd.run", map[string]any{"timeout": 0.2}, "echo begun; sleep 1000 & sleep 1000")
	if r.Return != "begun\nTimed out after 200ms and was killed" || r.Retcode != 1 {
		t.Errorf("got %q, retcode %d", r.Return, r.Retcode)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// running says whether a process with that pid runs; a zombie does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestCmdIsKilledWithItsJob(t *testing.T) {
	for name, script := range map[string]string{
		"ends at SIGTERM":  "echo $$ > FIFO; sleep 1000",
		"ignores SIGTERM":  "trap '' TERM; echo $$ > FIFO; while :; do sleep 1000; done",
		"child of a child": "(trap '' TERM; sh -c 'echo $$ > FIFO; sleep 1000'); true",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fifo := filepath.Join(t.TempDir(), "pid")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			pid := make(chan int, 1)
			go func() {
				text, _ := os.ReadFile(fifo) // until the script has written its pid
				n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
				pid <- n
				cancel(errors.New("job killed by root"))
			}()
			r := Run(ctx, function.Call{Function: "cmd.run", Args: []any{strings.Replace(script, "FIFO", fifo, 1)}})
			if r.Return != "ERROR: job killed by root" {
				t.Errorf("got %v", r.Return)
			}
			waitForEnd(t, deadline.Receive(t, pid, "pid"))
		})
	}
}

// waitForEnd waits until the process has ended: SIGKILL works when the kernel
// gets to it.
func waitForEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil || pid == 0 {
		t.Fatalf("pid %d: %v", pid, err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Errorf("the process %d is still there (%v)", pid, err)
	}
}

func TestCmdDoesNotWaitForWhatItLeavesBehind(t *testing.T) {
	begin := time.Now()
	got := good(t, nil, "cmd.run", nil, "sleep 1000 & echo $!").(string)
	pid, err := strconv.Atoi(got)
	if err != nil {
		t.Fatalf("got %q", got)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if !running(pid) {
		t.Error("what the command left behind was killed")
	}
}

func TestCmdLargeOutputArrivesWhole(t *testing.T) {
	r := Run(t.Context(), function.Call{Function: "cmd.run_stdout", Args: []any{"yes | head -c 50000000"}, Kwargs: map[string]any{"rstrip": false}})
	got, _ := r.Return.(string)
	if len(got) != 50_000_000 || strings.Count(got, "y\n") != 25_000_000 {
		t.Errorf("%d bytes arrived, %v", len(got), r.Err)
	}
}

func TestCmdRunsAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the user")
	}
	t.Setenv("ROOTS_SECRET", "x")
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	as := map[string]any{"runas": "nobody", "cwd": "/"}
	if got := good(t, nil, "cmd.run", as, `echo $(id -u) $(id -g) $USER $HOME ${ROOTS_SECRET-none}`); got != nobody.Uid+" "+nobody.Gid+" nobody "+nobody.HomeDir+" none" {
		t.Errorf("got %v", got)
	}
	if groups := good(t, nil, "cmd.run", as, "id -G").(string); slices.Contains(strings.Fields(groups), "0") {
		t.Errorf("the groups of root were kept: %v", groups)
	}
	if got := good(t, nil, "cmd.run", map[string]any{"group": "daemon"}, `echo $(id -un) $(id -gn)`); got != "root daemon" {
		t.Errorf("with another group: %v", got)
	}
	script := filepath.Join(t.TempDir(), "s.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nid -un; stat -c '%U %a' $0 $(dirname $0)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := good(t, nil, "cmd.script", as, script).(map[string]any)
	same(t, "script as nobody", got["stdout"], "nobody\nnobody 700\nnobody 700")
}

func TestCmdScript(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	script := filepath.Join(t.TempDir(), "s.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nfor a; do echo \"<$a>\"; done; cat; exit 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]any{"line": `one "two words" '$HOME'`, "list": []any{"one", "two words", "$HOME"}} {
		r := run(t, nil, "cmd.script", map[string]any{"stdin": "in"}, script, args)
		got := wire(t, r.Return).(map[string]any)
		if got["stdout"] != "<one>\n<two words>\n<$HOME>\nin" || r.Retcode != 5 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if r := run(t, nil, "cmd.script_retcode", nil, "file://"+script); r.Return != 5 || r.Retcode != 5 {
		t.Errorf("script_retcode = %+v", r)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	bad(t, nil, "cmd.script", "not available here", nil, "salt://x.sh")
	bad(t, nil, "cmd.script", "neither an absolute path nor an address", nil, "x.sh")
	bad(t, nil, "cmd.script", "no such file", nil, "/nosuch.sh")
	bad(t, nil, "cmd.script", "cannot run in the background", map[string]any{"bg": true}, script)
	fetched, _ := serving(t, map[string]string{"x.sh": "#!/bin/sh\necho fetched\n"})
	same(t, "fetched script", good(t, fetched, "cmd.script", nil, "salt://x.sh").(map[string]any)["stdout"], "fetched")
}

func TestCmdExecCode(t *testing.T) {
	same(t, "exec_code", good(t, nil, "cmd.exec_code", nil, "sh", []any{"echo a", "echo $1 >&2"}, "b"), "a\nb")
	r := run(t, nil, "cmd.exec_code_all", nil, "sh", "echo a; exit 3")
	if got := wire(t, r.Return).(map[string]any); got["stdout"] != "a" || got["retcode"] != int64(3) || r.Retcode != 3 {
		t.Errorf("got %v", got)
	}
}

func TestCmdInTheBackground(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(marker, 0o600); err != nil {
		t.Fatal(err)
	}
	for function, kwargs := range map[string]map[string]any{"cmd.run_bg": nil, "cmd.run": {"bg": true}} {
		got := good(t, nil, function, kwargs, "echo done > "+marker).(map[string]any)
		if text, err := os.ReadFile(marker); string(text) != "done\n" || got["pid"].(int64) < 2 {
			t.Errorf("%s = %v: wrote %q, %v", function, got, text, err)
		}
	}
}

func TestCmdChroot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root directory")
	}
	got := good(t, nil, "cmd.run_chroot", map[string]any{"cwd": "/tmp"}, "/", []any{"pwd"}).(map[string]any)
	same(t, "pwd", got["stdout"], "/tmp")
	bad(t, nil, "cmd.run_chroot", "is not an existing directory", nil, "/nosuch", "ls")
}

func TestCmdLooksForPrograms(t *testing.T) {
	same(t, "which", good(t, nil, "cmd.which", nil, "sh"), which("sh"))
	same(t, "which nosuch", good(t, nil, "cmd.which", nil, "nosuchprogram"), nil)
	same(t, "has_exec", good(t, nil, "cmd.has_exec", nil, "sh"), true)
	same(t, "has_exec nosuch", good(t, nil, "cmd.has_exec", nil, "nosuchprogram"), false)
	same(t, "which_bin", good(t, nil, "cmd.which_bin", nil, []any{"nosuchprogram", "sh"}), which("sh"))
	same(t, "which_bin nosuch", good(t, nil, "cmd.which_bin", nil, "nosuchprogram"), nil)
	if shells := good(t, nil, "cmd.shells", nil).([]any); !slices.Contains(shells, any("/bin/sh")) {
		t.Errorf("shells = %v", shells)
	}
	info := good(t, nil, "cmd.shell_info", nil, "bash").(map[string]any)
	if info["installed"] != true || !strings.Contains(fmt.Sprint(info["version"]), ".") {
		t.Errorf("shell_info = %v", info)
	}
	same(t, "shell_info", good(t, nil, "cmd.shell_info", nil, "nosuchshell"), map[string]any{"installed": false})
	bad(t, nil, "cmd.tty", "is not a terminal", nil, "../etc/passwd", "x")
}

func TestCmdLogsNeitherCommandNorOutput(t *testing.T) {
	var log strings.Builder
	host := &function.Host{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	run(t, host, "cmd.run", nil, "echo s3cret")
	if !strings.Contains(log.String(), "retcode=0") || strings.Contains(log.String(), "s3cret") {
		t.Errorf("log: %s", log.String())
	}
	log.Reset()
	run(t, host, "cmd.run", map[string]any{"output_loglevel": "quiet"}, "true")
	if log.String() != "" {
		t.Errorf("log: %s", log.String())
	}
}

func TestCmdKeepsTheServiceManagerToItself(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	same(t, "NOTIFY_SOCKET", good(t, nil, "cmd.run", nil, "echo ${NOTIFY_SOCKET-unset}"), "unset")
}

func TestSplitCommand(t *testing.T) {
	for in, want := range map[string][]string{
		``: nil, `  `: nil, `a b`: {"a", "b"}, ` a	b
c`: {"a", "b", "c"}, `'a b' c`: {"a b", "c"}, `"a b"c`: {"a bc"}, `a\ b`: {"a b"}, `''`: {""},
		`"a\"b\x"`: {`a"b\x`}, `'a\'`: {`a\`}, `a''b`: {"ab"}, `$HOME *`: {"$HOME", "*"},
	} {
		if got, err := splitCommand(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("splitCommand(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{`'a`, `"a`, `a\`, `"a\"`} {
		if got, err := splitCommand(in); err == nil || got != nil {
			t.Errorf("splitCommand(%q) = %q, want an error", in, got)
		}
	}
}

func FuzzSplitCommand(f *testing.F) {
	for _, s := range []string{"a b", "it's", `a"b`, "", "\\", "ä\n"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := splitCommand(quoteWord(a) + " " + quoteWord(b))
		if err != nil || !slices.Equal(got, []string{a, b}) {
			t.Errorf("quoted %q and %q came back as %q, %v", a, b, got, err)
		}
		_, _ = splitCommand(a)
	})
}

// quoteWord writes a word so that a POSIX shell reads it as it is.
func quoteWord(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
