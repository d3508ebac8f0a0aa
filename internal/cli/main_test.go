package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/test/deadline"
)

// programs are what a process that this test starts can do.
var programs = map[string]func(context.Context, *cli.Env, *urcli.Context) error{
	"wait": func(ctx context.Context, env *cli.Env, _ *urcli.Context) error {
		fmt.Fprintln(env.Stdout, "ready")
		<-ctx.Done()
		return fmt.Errorf("wait for nothing: %w", ctx.Err())
	},
	"flood": func(_ context.Context, env *cli.Env, _ *urcli.Context) error {
		for {
			if _, err := fmt.Fprintln(env.Stdout, "ready"); err != nil {
				return err
			}
		}
	},
}

func TestMain(m *testing.M) {
	if run := programs[os.Getenv("CLI_TEST_PROGRAM")]; run != nil {
		os.Exit(cli.Main("salt-try", func(ctx context.Context, env *cli.Env) int {
			s := spec()
			s.Run = run
			s.Daemon = os.Getenv("CLI_TEST_DAEMON") != ""
			return env.Run(ctx, s)
		}))
	}
	os.Exit(m.Run())
}

// start runs a program until it is ready. The rest of its output is dropped when
// done is called, which returns the exit code and what stood on standard error.
func start(t *testing.T, env ...string) (p *os.Process, done func() (int, string)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline.Guard(t, func() { _ = cmd.Process.Kill() }, "the program")
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the program printed %q, %v", line, err)
	}
	return cmd.Process, func() (int, string) {
		stdout.Close()
		cmd.Wait() // the code below says it all
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return 128 + int(status.Signal()), stderr.String() // as a shell does
		}
		return status.ExitStatus(), stderr.String()
	}
}

func TestMainEndsAtSignal(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{
		syscall.SIGINT:  cli.Interrupted,
		syscall.SIGTERM: cli.Terminated,
	} {
		p, done := start(t, "CLI_TEST_PROGRAM=wait")
		p.Signal(sig)
		if code, stderr := done(); code != want || stderr != "" {
			t.Errorf("after %v: code %d, stderr %q; want %d and silence", sig, code, stderr, want)
		}
	}
}

func TestMainEndsAtBrokenPipe(t *testing.T) {
	for _, daemon := range []string{"", "yes"} { // by SIGPIPE, by the error of the write
		_, done := start(t, "CLI_TEST_PROGRAM=flood", "CLI_TEST_DAEMON="+daemon)
		if code, stderr := done(); code != cli.BrokenPipe || stderr != "" {
			t.Errorf("daemon %q: code %d, stderr %q; want %d and silence", daemon, code, stderr, cli.BrokenPipe)
		}
	}
}
