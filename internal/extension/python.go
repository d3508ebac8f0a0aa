package extension

import (
	"context"
	_ "embed" // the interpreter's file
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Functions is what a module of Python may call of its minion, through __salt__. Whoever
// implements it decides.
type Functions interface {
	// Known tells whether the minion has a function.
	Known(ctx context.Context, f salt.Function) bool
	// Call runs one. The error says why it has failed, or was refused.
	Call(ctx context.Context, c salt.Command) (any, error)
}

// interpreter makes a module of Salt a program that follows the contract. It goes to
// python3 on standard input, so that nothing has to be installed.
//
//go:embed module.py
var interpreter string

// isPython tells whether a file is a module of Python as Salt has them: of that name, and
// no program by itself, which begins with the name of what runs it.
func (s *Set) isPython(path string, info fs.FileInfo) bool {
	if s.kind != Modules && s.kind != Grains || filepath.Ext(path) != ".py" {
		return false
	}
	if info.Mode()&0o111 == 0 {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, 2)
	_, _ = io.ReadFull(f, begin) // what is shorter has no such line
	return string(begin) != "#!"
}

// runPython runs a module of Python. f may be nil.
func runPython(ctx context.Context, p process.Program, f Functions) (process.Ending, error) {
	read := fmt.Sprintf("import sys; exec(compile(sys.stdin.buffer.read(%d), 'salt', 'exec'))", len(interpreter))
	p.Args = slices.Concat([]string{"python3", "-I", "-B", "-c", read}, p.Args)
	stdin := interpreter + *p.Stdin
	p.Stdin = &stdin
	if f == nil {
		return p.Run(ctx)
	}
	p.Args = append(p.Args, "calls")
	return serve(ctx, p, f)
}

// serve runs a program that finds the answers to what it asks of f at its descriptor 3,
// and asks at 4.
func serve(ctx context.Context, p process.Program, f Functions) (process.Ending, error) {
	itsAnswers, answers, err := os.Pipe()
	if err != nil {
		return process.Ending{}, err
	}
	defer itsAnswers.Close()
	defer answers.Close()
	questions, itsQuestions, err := os.Pipe()
	if err != nil {
		return process.Ending{}, err
	}
	defer itsQuestions.Close()
	p.Files = []*os.File{itsAnswers, itsQuestions}
	running, ended := context.WithCancel(ctx)
	var answering sync.WaitGroup
	answering.Go(func() { answer(running, f, questions, answers) })
	defer answering.Wait()
	defer questions.Close()
	defer ended()
	return p.Run(ctx)
}

// question is what a module of Python asks: whether there is a function, or its return.
type question struct {
	Known  salt.Function   `json:"known"`
	Fun    salt.Function   `json:"fun"`
	Args   json.RawMessage `json:"args"`
	Kwargs json.RawMessage `json:"kwargs"`
}

// answer answers what a program asks, one question after the other, until it has ended.
func answer(ctx context.Context, f Functions, questions io.Reader, answers io.Writer) {
	lines := json.NewDecoder(io.LimitReader(questions, maxAnswer))
	for {
		var q question
		if lines.Decode(&q) != nil {
			return // it has ended, or has asked for more than it may: it finds no answer
		}
		result, err := q.answer(ctx, f)
		b, bad := value.Encode(map[string]any{"return": result})
		if err == nil {
			err = bad
		}
		if err != nil {
			b, _ = value.Encode(map[string]any{"error": err.Error()})
		}
		if _, err := answers.Write(append(b, '\n')); err != nil {
			return
		}
	}
}

func (q question) answer(ctx context.Context, f Functions) (any, error) {
	if q.Known != "" {
		return f.Known(ctx, q.Known), nil
	}
	c := salt.Command{Function: q.Fun}
	args, err := value.Decode(q.Args)
	if err != nil {
		return nil, err
	}
	kwargs, err := value.Decode(q.Kwargs)
	if err != nil {
		return nil, err
	}
	c.Args, _ = args.([]any)
	c.Kwargs, _ = kwargs.(map[string]any)
	return f.Call(ctx, c)
}
