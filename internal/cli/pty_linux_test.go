package cli_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/brinebus/brine/internal/cli"
)

// openPTY returns the person's end and the program's end of a new terminal.
func openPTY(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// echoes says whether the terminal shows what is typed.
func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// prompted hands on what is written to it, and says when the first prompt came.
type prompted struct {
	strings.Builder
	seen chan struct{}
}

func (p *prompted) Write(b []byte) (int, error) {
	if p.Len() == 0 {
		close(p.seen)
	}
	return p.Builder.Write(b)
}

func TestPasswordOnTerminal(t *testing.T) {
	person, program := openPTY(t)
	w := newWorld("")
	stderr := &prompted{seen: make(chan struct{})}
	w.Stdin, w.StdinTTY, w.Stderr = program, true, stderr
	if _, err := person.WriteString("se cret\n"); err != nil { // waits in the terminal
		t.Fatal(err)
	}
	got, err := w.Password(t.Context(), "Password: ")
	if got != "se cret" || err != nil || stderr.String() != "Password: \n" {
		t.Errorf("Password = %q, %v, printed %q", got, err, stderr.String())
	}
	if !echoes(t, program) {
		t.Error("the terminal shows nothing any more")
	}
}

func TestPasswordEndsWithContext(t *testing.T) {
	_, program := openPTY(t)
	w := newWorld("")
	stderr := &prompted{seen: make(chan struct{})}
	w.Stdin, w.StdinTTY, w.Stderr = program, true, stderr
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-stderr.seen
		cancel(&cli.SignalError{Signal: syscall.SIGINT})
	}()
	if _, err := w.Password(ctx, "Password: "); cli.Code(err) != cli.Interrupted {
		t.Errorf("Password = %v, want the signal", err)
	}
	if !echoes(t, program) {
		t.Error("the terminal shows nothing any more")
	}
}
