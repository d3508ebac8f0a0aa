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

// Functions is what a Python module may call on its minion, through __salt__. The implementation
// checks the rights.
type Functions interface {
	// Known reports whether the minion has a function.
	Known(ctx context.Context, f salt.Function) bool
	// Call runs a function. The error says why it failed or was refused.
	Call(ctx context.Context, c salt.Command) (any, error)
}

// interpreter turns a Salt module into a program that follows the contract. python3 reads it from
// standard input, so nothing has to be installed.
//
//go:embed module.py
var interpreter string

// isPython reports whether a file is a Python module as in Salt: with that file name, and without a
// first line that names an interpreter.
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
	_, _ = io.ReadFull(f, begin) // a shorter file has no such line
	return string(begin) != "#!"
}

// runPython runs a Python module. f may be nil.
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

// serve runs a program that writes questions to its descriptor 4 and reads the answers of f from
// descriptor 3.
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

// question is a question of a Python module: whether a function exists, or its return.
type question struct {
	Known  salt.Function   `json:"known"`
	Fun    salt.Function   `json:"fun"`
	Args   json.RawMessage `json:"args"`
	Kwargs json.RawMessage `json:"kwargs"`
}

// answer answers the questions of a program, one after the other, until it has ended.
func answer(ctx context.Context, f Functions, questions io.Reader, answers io.Writer) {
	lines := json.NewDecoder(io.LimitReader(questions, maxAnswer))
	for {
		var q question
		if lines.Decode(&q) != nil {
			return // the program has ended, or sent a question that is too long: it gets no answer
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
