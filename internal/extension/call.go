package extension

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/process"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

const (
	// callTime limits a function that sets no limit itself.
	callTime = time.Hour
	// grainsTime limits a program that collects grains: the start of the minion waits for it.
	grainsTime = 10 * time.Second
	// maxAnswer is the maximum size of an answer, in bytes.
	maxAnswer = 256 << 20
	// maxReason is how much of a program's standard error becomes the error of a failed function.
	maxReason = 4 << 10
	// maxLogged is how much of a program's standard error is logged.
	maxLogged = 32 << 10
)

// Request is what a program reads from standard input.
type Request struct {
	ID      salt.MinionID
	JID     salt.JID
	Args    []any          // the declared ones in order, then the others by position
	Kwargs  map[string]any // others by name
	Grains  map[string]any
	Pillar  map[string]any
	Options map[string]any // the configuration
	Return  map[string]any // for a returner: the return
}

func (r Request) encode(word string) (string, error) {
	m := map[string]any{
		"fun": word, "id": string(r.ID), "jid": string(r.JID), "args": r.Args, "kwargs": r.Kwargs,
		"grains": r.Grains, "pillar": r.Pillar, "options": r.Options,
	}
	for key, v := range m {
		if list, ok := v.([]any); ok && list == nil {
			m[key] = []any{}
		} else if d, ok := v.(map[string]any); ok && d == nil {
			m[key] = map[string]any{}
		}
	}
	if r.Return != nil {
		m["return"] = r.Return
	}
	b, err := value.Encode(m)
	return string(b), err
}

// Env is the environment of a program in addition to that of the daemon.
type Env struct {
	ConfigDir string // SALT_CONFIG_DIR, so that salt-call finds the same minion
	JID       salt.JID
	Extra     []string // NAME=value
	Functions Functions
}

// Answer is the answer of a program.
type Answer struct {
	Value any
	Code  int // exit code
}

// Call calls a function. A program with an exit code other than 0 has failed, but may still have an
// answer; without one, the end of its standard error is the error, together with the code. When ctx
// ends, the program and all its children are ended.
func (p *Program) Call(ctx context.Context, name string, f Function, r Request, env Env) (Answer, error) {
	limit := callTime
	if f.Timeout != nil {
		limit = time.Duration(*f.Timeout * float64(time.Second))
	}
	return p.call(ctx, name, form{text: f.Answer == "text", exact: true}, limit, r, env)
}

// form is the format of a program's output.
type form struct {
	text  bool
	exact bool // it is only passed on; nothing here computes with it
}

func (f form) decode(b []byte) (any, error) {
	if f.exact {
		return value.DecodeExact(b)
	}
	return value.Decode(b)
}

func (p *Program) call(ctx context.Context, word string, as form, limit time.Duration, r Request, env Env) (Answer, error) {
	request, err := r.encode(word)
	if err != nil {
		return Answer{}, err
	}
	e, err := p.run(ctx, word, request, env, limit, maxAnswer)
	if err != nil {
		return Answer{}, err
	}
	p.logStderr(ctx, word, r.JID, e.Stderr)
	e.Stderr = lastOf(e.Stderr, maxReason)
	a := Answer{Code: e.Code}
	var bad error
	if as.text {
		a.Value = strings.TrimRight(e.Stdout, "\r\n")
	} else if strings.TrimSpace(e.Stdout) != "" {
		a.Value, bad = as.decode([]byte(e.Stdout))
	}
	switch {
	case e.Code < 0, e.Code > 0 && (bad != nil || strings.TrimSpace(e.Stdout) == ""):
		return a, e.Failure(p.Name)
	case bad != nil:
		return a, fmt.Errorf("%s answered what is not JSON: %w", p.Name, bad)
	}
	return a, nil
}

// run runs the program in its own process group.
func (p *Program) run(ctx context.Context, word, request string, env Env, limit time.Duration, size int) (process.Ending, error) {
	variables := process.Environ(false)
	if env.ConfigDir != "" {
		variables = append(variables, "SALT_CONFIG_DIR="+env.ConfigDir)
	}
	if env.JID != "" {
		variables = append(variables, "SALT_JID="+string(env.JID))
	}
	program := process.Program{
		Args: []string{p.Path, word}, Dir: "/", Env: append(variables, env.Extra...), Stdin: &request, Timeout: limit, Limit: size,
	}
	e, err := p.start(ctx, program, env.Functions)
	if err == nil && e.TimedOut {
		err = fmt.Errorf("%s ran longer than %v and was ended", p.Name, limit)
	}
	return e, err
}

func (p *Program) start(ctx context.Context, program process.Program, f Functions) (process.Ending, error) {
	if p.python {
		return runPython(ctx, program, f)
	}
	return program.Run(ctx)
}

func lastOf(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// logStderr logs the standard error of a program, line by line.
func (p *Program) logStderr(ctx context.Context, word string, jid salt.JID, text string) {
	if len(text) > maxLogged {
		text = text[:maxLogged] + "..."
	}
	for line := range strings.Lines(text) {
		p.set.log.Log(ctx, slog.LevelInfo, "a program says", "program", p.Name, "fun", word, "jid", jid, "text", strings.TrimRight(line, "\r\n"))
	}
}

// Collect runs all programs of the kind Grains in parallel and merges their grains in the order of
// their names. A program that fails is logged, and adds none.
func (s *Set) Collect(ctx context.Context, r Request, env Env) map[string]any {
	programs := s.Programs()
	found := make([]map[string]any, len(programs))
	var wg sync.WaitGroup
	for i, p := range programs {
		wg.Go(func() {
			a, err := p.call(ctx, "grains", form{}, grainsTime, r, env)
			facts, ok := a.Value.(map[string]any)
			if err == nil && a.Code != 0 {
				err = fmt.Errorf("exit code %d", a.Code)
			}
			if err == nil && !ok {
				err = fmt.Errorf("%s answered no dictionary", p.Name)
			}
			if err != nil {
				s.log.Warn("a program of grains has failed", "program", p.Path, "err", err)
				return
			}
			found[i] = facts
		})
	}
	wg.Wait()
	all := map[string]any{}
	for _, facts := range found {
		maps.Copy(all, facts)
	}
	return all
}

// Return passes a return to a returner.
func (p *Program) Return(ctx context.Context, r Request, env Env) error {
	a, err := p.call(ctx, "returner", form{}, 0, r, env)
	if err == nil && a.Code != 0 {
		err = fmt.Errorf("%s: exit code %d", p.Name, a.Code)
	}
	return err
}

// CacheDir is the directory for programs of a kind that came from the master.
func CacheDir(cacheDir string, kind Kind) string {
	return filepath.Join(cacheDir, "extmods", string(kind))
}
