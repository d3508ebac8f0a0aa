package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/port"
)

// typed is a command line of a document, with what it is said to print.
type typed struct {
	line   string
	prints []string
}

// typedIn reads the lines that begin with a dollar sign in a part of a document.
func typedIn(t *testing.T, path, heading string) (list []typed) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(b), "\n## "+heading+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	for _, line := range strings.Split(part, "\n") {
		text, shown := strings.CutPrefix(line, "    ")
		command, is := strings.CutPrefix(text, "$ ")
		switch {
		case shown && is:
			list = append(list, typed{line: command})
		case shown && len(list) > 0:
			list[len(list)-1].prints = append(list[len(list)-1].prints, text)
		}
	}
	return list
}

// differs is what is another one with each run: numbers, the kernel, and who runs it.
var differs = regexp.MustCompile(`Linux \S+|user:[\w-]+|\d+`)

// alikeLines are lines as they can be compared: returns come in any order.
func alikeLines(lines []string) string {
	var list []string
	for _, l := range lines {
		if l != "" {
			list = append(list, differs.ReplaceAllString(l, "N"))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// reader is somebody who types what a document shows, in an empty directory.
type reader struct {
	t      *testing.T
	dir    string
	status string // of the last command
	runs   []*exec.Cmd
}

// TestReadmeTour types the tour of the README: every command line prints what stands below it.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	n, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	tour := typedIn(t, "../../README.md", "A quick tour")
	if len(tour) < 15 {
		t.Fatalf("the tour has %d command lines", len(tour))
	}
	r := &reader{t: t, dir: t.TempDir()}
	defer r.leave()
	const shown = "29582"
	for _, step := range tour {
		for i := range step.prints {
			step.prints[i] = strings.ReplaceAll(step.prints[i], shown, fmt.Sprint(n))
		}
		r.follow(step)
	}
}

func (r *reader) follow(step typed) {
	r.t.Helper()
	file, cat := strings.CutPrefix(step.line, "cat ")
	_, err := os.Stat(filepath.Join(r.dir, file))
	line, behind := strings.CutSuffix(step.line, " &")
	switch {
	case cat && err != nil:
		r.write(file, strings.Join(step.prints, "\n")+"\n")
	case behind:
		r.begin(line)
	case step.line == "echo $?":
		if len(step.prints) != 1 || step.prints[0] != r.status {
			r.t.Fatalf("the exit status is %s, want %s", r.status, step.prints)
		}
	default:
		r.typeUntil(step)
	}
}

func (r *reader) write(file, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) shell(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "bash", "-c", line)
	c.Dir = r.dir
	c.Env = []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + r.dir, "GORACE=halt_on_error=1 atexit_sleep_ms=0"}
	return c
}

// begin starts what is to run on, and waits for the file that says it does, where it makes one.
func (r *reader) begin(line string) {
	r.t.Helper()
	c := r.shell(context.Background(), "exec "+line)
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.runs = append(r.runs, c)
	words := strings.Fields(line)
	if at := slices.Index(words, "--ready-file"); at > 0 {
		ready := filepath.Join(r.dir, words[at+1])
		if !poll(func() bool { _, err := os.Stat(ready); return err == nil }) {
			r.t.Fatalf("%s: no file %s", line, ready)
		}
	}
}

// typeUntil types a line as a person does, who reads on while daemons start and keys come: what
// changes nothing is typed until it prints what it should.
func (r *reader) typeUntil(step typed) {
	r.t.Helper()
	changes := strings.Contains(step.line, "fire") || strings.Contains(step.line, " -a ")
	want := alikeLines(step.prints)
	var out []byte
	poll(func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), runTime)
		defer cancel()
		c := r.shell(ctx, step.line)
		out, _ = c.CombinedOutput() // its status is looked at where the document tells it
		r.status = fmt.Sprint(code(c.ProcessState))
		return changes || alikeLines(strings.Split(string(out), "\n")) == want
	})
	if alikeLines(strings.Split(string(out), "\n")) != want {
		r.t.Fatalf("$ %s\nprints\n%s\nREADME.md has\n%s", step.line, out, strings.Join(step.prints, "\n"))
	}
}

// leave ends what runs on, which must end well.
func (r *reader) leave() {
	for _, c := range slices.Backward(r.runs) {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		end := time.AfterFunc(stopTime, func() { _ = c.Process.Kill() })
		if err := c.Wait(); err != nil {
			r.t.Errorf("%s: %v", strings.Join(c.Args, " "), err)
		}
		end.Stop()
	}
}
