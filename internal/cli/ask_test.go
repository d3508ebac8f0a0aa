package cli_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/brinebus/brine/internal/cli"
)

func TestConfirm(t *testing.T) {
	const ask = "Proceed? [n/Y] "
	for _, tc := range []struct {
		name, stdin string
		byDefault   bool
		want        bool
		shown       string
	}{
		{"yes", "y\n", false, true, "Proceed? [N/y] "},
		{"no", "No\n", true, false, ask},
		{"an empty line is the default", "\n", true, true, ask},
		{"an empty line is the other default", "\n", false, false, "Proceed? [N/y] "},
		{"asked again", "what\nYES\n", true, true, ask + ask},
		{"no line end", "n", true, false, ask},
		{"line end of another system", "y\r\n", false, true, "Proceed? [N/y] "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(tc.stdin)
			got, err := w.Confirm(t.Context(), "Proceed?", tc.byDefault)
			if err != nil || got != tc.want || w.err.String() != tc.shown || w.out.Len() != 0 {
				t.Errorf("Confirm = %t, %v after %q; want %t after %q", got, err, w.err.String(), tc.want, tc.shown)
			}
		})
	}
}

func TestConfirmWithoutAnswer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stdin io.Reader
		want  error // nil: any
	}{
		{"end of input", strings.NewReader(""), cli.ErrNoInput},
		{"a broken terminal", iotest.ErrReader(syscall.EIO), syscall.EIO},
		{"something else is piped in", strings.NewReader("a\nb\nc\ny\n"), nil},
		{"an endless line", strings.NewReader(strings.Repeat("y", 1<<20)), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld("")
			w.Stdin = tc.stdin
			got, err := w.Confirm(t.Context(), "Proceed?", true)
			if got || err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("Confirm = %t, %v; want false and %v", got, err, tc.want)
			}
		})
	}
}

func TestConfirmLeavesTheRest(t *testing.T) {
	w := newWorld("y\nn\nrest")
	first, err := w.Confirm(t.Context(), "A?", true)
	second, err2 := w.Confirm(t.Context(), "B?", true)
	rest, _ := io.ReadAll(w.Stdin)
	if !first || second || err != nil || err2 != nil || string(rest) != "rest" {
		t.Errorf("answers %t %v, %t %v, rest %q", first, err, second, err2, rest)
	}
}

func TestConfirmEndsWithContext(t *testing.T) {
	w := newWorld("")
	silent, writer := io.Pipe()
	t.Cleanup(func() { writer.Close() })
	w.Stdin = silent
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&cli.SignalError{Signal: syscall.SIGINT})
	if _, err := w.Confirm(ctx, "Proceed?", true); cli.Code(err) != cli.Interrupted {
		t.Errorf("Confirm = %v, want the signal", err)
	}
}

func TestPasswordFromPipe(t *testing.T) {
	w := newWorld(" se cret \n")
	got, err := w.Password(t.Context(), "Password: ")
	if got != " se cret " || err != nil || w.err.Len() != 0 {
		t.Errorf("Password = %q, %v, printed %q", got, err, w.err.String())
	}
}
