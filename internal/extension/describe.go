package extension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

const (
	// describeTime limits a program that describes itself: it only has to print text.
	describeTime = 10 * time.Second
	// describeLimit is the maximum size of a description, in bytes.
	describeLimit = 1 << 20
)

// Description is what a program prints when it is called with --describe.
type Description struct {
	Doc       string              `json:"doc"`
	Functions map[string]Function `json:"functions"`
}

// Function describes one function of a program.
type Function struct {
	Doc     string   `json:"doc"`
	Example string   `json:"example"`
	Args    []Arg    `json:"args"`
	Varargs bool     `json:"varargs"` // any further arguments by position
	Kwargs  bool     `json:"kwargs"`  // any further arguments by name
	Timeout *float64 `json:"timeout"` // seconds, 0 for no limit; without it, an hour
	Answer  string   `json:"answer"`  // "json", or "text" if the output itself is the return
}

// Arg is a parameter of a function. In JSON it is an object, or only the name if it is required.
type Arg struct {
	Name     string
	Type     string // one of Types
	Required bool   // it has no default
	Default  any
}

// Types are the types of arguments, sorted.
var Types = []string{"any", "bool", "dict", "float", "int", "list", "text"}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Arg) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &a.Name) == nil {
		a.Type, a.Required = "any", true
		return a.check()
	}
	var o struct {
		Name    string          `json:"name"`
		Type    string          `json:"type"`
		Default json.RawMessage `json:"default"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*a = Arg{Name: o.Name, Type: o.Type, Required: o.Default == nil}
	if a.Type == "" {
		a.Type = "any"
	}
	if !a.Required {
		var err error
		if a.Default, err = value.Decode(o.Default); err != nil {
			return err
		}
	}
	return a.check()
}

func (a *Arg) check() error {
	if _, err := salt.ParseFunction("x." + a.Name); err != nil {
		return fmt.Errorf("%q is not the name of an argument", a.Name)
	}
	if !slices.Contains(Types, a.Type) {
		return fmt.Errorf("argument %q: there is no type %q, only %q", a.Name, a.Type, Types)
	}
	return nil
}

// parseDescription parses the output of --describe.
func parseDescription(b []byte) (Description, error) {
	var d Description
	if err := json.Unmarshal(b, &d); err != nil {
		return Description{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Functions)) {
		if err := d.Functions[name].check("x." + name); err != nil {
			return Description{}, fmt.Errorf("function %q: %w", name, err)
		}
	}
	return d, nil
}

func (f Function) check(name string) error {
	if _, err := salt.ParseFunction(name); err != nil {
		return err
	}
	if f.Answer != "" && f.Answer != "json" && f.Answer != "text" {
		return fmt.Errorf("there is no answer %q, only json and text", f.Answer)
	}
	if f.Timeout != nil && (*f.Timeout < 0 || *f.Timeout > 1e9) {
		return fmt.Errorf("%v is not a time limit in seconds", *f.Timeout)
	}
	optional := false
	for i, a := range f.Args {
		if slices.ContainsFunc(f.Args[:i], func(o Arg) bool { return o.Name == a.Name }) {
			return fmt.Errorf("argument %q stands there twice", a.Name)
		}
		if a.Required && optional {
			return fmt.Errorf("the required argument %q follows one with a default", a.Name)
		}
		optional = optional || !a.Required
	}
	return nil
}

// known is the description of a program with its file's state.
type known struct {
	ino          uint64
	size         int64
	mtime, ctime int64
	description  Description
	err          error
}

func (k known) same(o known) bool {
	return k.ino == o.ino && k.size == o.size && k.mtime == o.mtime && k.ctime == o.ctime
}

// Describe returns the description of the program. It runs the program once for each state of its
// file.
func (p *Program) Describe(ctx context.Context) (Description, error) {
	s, _ := posix.StatOf(p.info) // on systems without these numbers, size and time are compared
	now := known{ino: s.Inode, size: p.info.Size(), mtime: p.info.ModTime().UnixNano(), ctime: s.Changed}
	p.set.mu.Lock()
	before, asked := p.set.known[p.Path]
	p.set.mu.Unlock()
	if asked && before.same(now) {
		return before.description, before.err
	}
	now.description, now.err = p.ask(ctx)
	if ctx.Err() != nil {
		return Description{}, context.Cause(ctx)
	}
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	if len(p.set.known) > maxWarned {
		p.set.known = map[string]known{}
	}
	p.set.known[p.Path] = now
	return now.description, now.err
}

func (p *Program) ask(ctx context.Context) (Description, error) {
	e, err := p.run(ctx, "--describe", "{}", Env{}, describeTime, describeLimit)
	if err != nil {
		return Description{}, p.broken(err)
	}
	if e.Code != 0 {
		return Description{}, p.broken(e.Failure("it"))
	}
	d, err := parseDescription([]byte(e.Stdout))
	if err != nil {
		return Description{}, p.broken(fmt.Errorf("its output is not a description: %w", err))
	}
	return d, nil
}

// broken returns the error for a program without a valid description.
func (p *Program) broken(err error) error {
	if p.python && errors.Is(err, exec.ErrNotFound) {
		err = errors.New("it is a module of Python, and this machine has no python3")
	} else if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: the program, or the interpreter that its first line names", err)
	}
	return fmt.Errorf("%s --describe: %w", p.Path, err)
}
