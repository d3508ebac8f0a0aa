package netapi_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPepper runs an unchanged pepper. BRINE_PEPPER names the directory of its sources.
func TestPepper(t *testing.T) {
	from := os.Getenv("BRINE_PEPPER")
	if from == "" {
		t.Skip("skipped: BRINE_PEPPER names no directory with the sources of pepper")
	}
	s := start(t)
	a := s.api("A", open)
	run := func(password string, args ...string) (out string, code int) {
		t.Helper()
		c := exec.Command("python3", append([]string{filepath.Join(from, "scripts", "pepper"), "-c", filepath.Join(s.root, "none"), "-u", "http://" + a, "-a", "file", "--username", "admin", "--password", password}, args...)...)
		c.Env = append(os.Environ(), "PYTHONPATH="+from, "HOME="+s.root)
		var b bytes.Buffer
		c.Stdout, c.Stderr = &b, &b
		err := c.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return b.String(), c.ProcessState.ExitCode()
	}
	for _, test := range []struct {
		name string
		args []string
		want []string
	}{
		{"glob", []string{"*", "test.ping"}, []string{`"web1": {`, `"db1": {`}},
		{"list", []string{"-L", "web1,db1", "test.ping"}, []string{`"web1": {`, `"db1": {`}},
		{"grain", []string{"-G", "role:web", "test.ping"}, []string{`"web1": {`}},
		{"compound", []string{"-C", "G@role:web or db1", "test.ping"}, []string{`"web1": {`, `"db1": {`}},
		{"arguments", []string{"web1", "test.arg", "a", "1", "[1, 2]", "k=v"}, []string{`"a"`, `"1"`, `"[1, 2]"`, `"k": "v"`}},
		{"async", []string{"--client=local_async", "*", "test.ping"}, []string{`"jid"`}},
		{"runner", []string{"--client=runner", "manage.up"}, []string{`"web1"`}},
		{"runner with keywords", []string{"--client=runner", "test.arg", "one", "two=what"}, []string{`"one"`, `"what"`}},
		{"wheel", []string{"--client=wheel", "key.finger", "match=web1"}, []string{`"web1": "`}},
		{"nobody", []string{"ghost", "test.ping"}, []string{"{}"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, code := run("adminpw", test.args...)
			for _, want := range test.want {
				if code != 0 || !strings.Contains(out, want) {
					t.Errorf("exit code %d, want %s in:\n%s", code, want, out)
				}
			}
		})
	}
	token := filepath.Join(s.root, "peppertoken")
	if out, code := run("adminpw", "-T", "-x", token, "web1", "test.ping"); code != 0 || !strings.Contains(out, `"web1"`) {
		t.Errorf("a token is kept: %d\n%s", code, out)
	}
	if out, code := run("wrong", "-T", "-x", token, "web1", "test.ping"); code != 0 || !strings.Contains(out, `"web1"`) {
		t.Errorf("by the token that was kept: %d\n%s", code, out)
	}
	if out, code := run("adminpw", "-r", "web1", "test.ping"); code != 0 || !strings.Contains(out, `"web1"`) {
		t.Errorf("by /run: %d\n%s", code, out)
	}
	two := `[{"client":"local","tgt":"web1","fun":"test.ping"},{"client":"runner","fun":"manage.up"}]`
	if out, code := run("adminpw", "--json", two); code != 0 || !strings.Contains(out, `"web1": `) || !strings.Contains(out, `"db1"`) {
		t.Errorf("two chunks: %d\n%s", code, out)
	}
	if out, code := run("adminpw", "--fail-if-incomplete", "--timeout", "1", "*", "test.sleep", "30"); code != 1 || !strings.Contains(out, "Failed") {
		t.Errorf("minions that are late: %d\n%s", code, out)
	}
	if out, code := run("adminpw", "--fail-if-incomplete", "*", "test.ping"); code != 0 {
		t.Errorf("minions that are in time: %d\n%s", code, out)
	}
	if out, code := run("wrong", "*", "test.ping"); code != 1 || !strings.Contains(out, "Authentication denied") {
		t.Errorf("a wrong password: %d\n%s", code, out)
	}
}
