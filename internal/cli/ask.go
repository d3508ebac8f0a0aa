package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	maxAnswer = 4096 // bytes of a line typed by a person: what a terminal itself allows
	maxAsked  = 3    // how often a question is asked before the input counts as wrong
)

// ErrNoInput is wrapped by the errors of Confirm and Password if Stdin has ended before the
// answer.
var ErrNoInput = errors.New("the input has ended")

// Confirm asks a yes-or-no question, such as "Proceed? [n/Y] "; an empty answer means
// byDefault. The answer is read from Stdin even if it is not a terminal. It fails at the end of
// the input, and after three other words. It also fails when ctx ends during the wait; the read
// is then abandoned, so Stdin cannot be used any more.
func (e *Env) Confirm(ctx context.Context, question string, byDefault bool) (bool, error) {
	choices := "[N/y]"
	if byDefault {
		choices = "[n/Y]"
	}
	for range maxAsked {
		fmt.Fprintf(e.Stderr, "%s %s ", question, choices)
		answer, err := e.readLine(ctx)
		if err != nil {
			fmt.Fprintln(e.Stderr) // the cursor is still after the question
			return false, fmt.Errorf("read the answer to %q: %w", question, err)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "":
			return byDefault, nil
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		}
	}
	return false, fmt.Errorf("no usable answer to %q: want y or n", question)
}

// Ask asks for a line of text and trims spaces. Its errors are those of Confirm.
func (e *Env) Ask(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(e.Stderr, prompt)
	answer, err := e.readLine(ctx)
	if err != nil {
		fmt.Fprintln(e.Stderr)
		return "", fmt.Errorf("read the answer to %q: %w", prompt, err)
	}
	return strings.TrimSpace(answer), nil
}

// Password asks for a secret without showing it. If Stdin is not a terminal it reads a line
// without a prompt. When ctx ends, it is as with Confirm; the terminal shows typed text again.
func (e *Env) Password(ctx context.Context, prompt string) (string, error) {
	if terminal, ok := e.Stdin.(*os.File); ok && e.StdinTTY {
		show, err := hideTyping(int(terminal.Fd()))
		if err != nil {
			return "", fmt.Errorf("hide the password: %w", err)
		}
		defer fmt.Fprintln(e.Stderr) // the line end that was typed is not shown either
		defer show()
		fmt.Fprint(e.Stderr, prompt)
	}
	secret, err := e.readLine(ctx)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return secret, nil
}

// readLine reads a line from Stdin and not a byte more: the rest may be for the next question.
// It returns it without the line end, which the last line may lack.
func (e *Env) readLine(ctx context.Context) (string, error) {
	return unlessDone(ctx, func() (string, error) {
		line, err := scanLine(e.Stdin)
		return strings.TrimSuffix(line, "\r"), err
	})
}

// scanLine reads up to a line feed, which it drops. At the end of the input it returns
// ErrNoInput if it has read nothing.
func scanLine(r io.Reader) (string, error) {
	var line []byte
	letter := make([]byte, 1)
	for len(line) < maxAnswer {
		_, err := io.ReadFull(r, letter)
		switch {
		case err == io.EOF && len(line) == 0:
			return "", ErrNoInput
		case err == io.EOF:
			return string(line), nil
		case err != nil:
			return "", err
		case letter[0] == '\n':
			return string(line), nil
		}
		line = append(line, letter[0])
	}
	return "", errors.New("the line is too long")
}

// unlessDone returns what read returns, or the cause of ctx if that ends first; read then goes
// on in the background, since a read of a terminal cannot be interrupted.
func unlessDone(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	results := make(chan result, 1)
	go func() {
		text, err := read()
		results <- result{text, err}
	}()
	select {
	case r := <-results:
		return r.text, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
