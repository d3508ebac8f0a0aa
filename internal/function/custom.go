package function

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/salt"
)

// With returns the functions of t and those of the site's own programs. Built-in functions
// stay: a program may add functions to a module, but replaces none. A program without a
// description has no functions here; a call of one returns the reason.
func (t Table) With(ctx context.Context, custom *extension.Set) Table {
	all := slices.Clone(t)
	for _, p := range custom.Programs() {
		d, err := p.Describe(ctx)
		if err != nil {
			continue
		}
		m := programModule(p, d)
		i, found := slices.BinarySearchFunc(all, m.Name, func(o *Module, name string) int { return strings.Compare(o.Name, name) })
		if found {
			all[i] = all[i].with(m)
		} else {
			all = slices.Insert(all, i, m)
		}
	}
	return all
}

// with returns m with those functions of more that it does not have.
func (m *Module) with(more *Module) *Module {
	both := *m
	both.Functions = slices.Clone(m.Functions)
	for _, f := range more.Functions {
		i, found := slices.BinarySearchFunc(both.Functions, f.Name, func(o Function, name string) int { return strings.Compare(o.Name, name) })
		if !found {
			both.Functions = slices.Insert(both.Functions, i, f)
		}
	}
	return &both
}

// custom looks a function up among the site's own programs. It is nil if there is none; the
// error says why a program cannot be used.
func (h *Host) custom(ctx context.Context, name string) (*Function, error) {
	module, short, _ := strings.Cut(name, ".")
	p := h.Custom.Find(module)
	if p == nil {
		return nil, h.Custom.Passed(module)
	}
	d, err := p.Describe(ctx)
	if err != nil {
		return nil, err
	}
	f, ok := d.Functions[short]
	if !ok {
		return nil, nil
	}
	made := programFunction(p, short, f)
	return &made, nil
}

func programModule(p *extension.Program, d extension.Description) *Module {
	m := &Module{Name: p.Name, Doc: d.Doc}
	for _, name := range slices.Sorted(maps.Keys(d.Functions)) {
		m.Functions = append(m.Functions, programFunction(p, name, d.Functions[name]))
	}
	return m
}

func programFunction(p *extension.Program, name string, f extension.Function) Function {
	made := Function{Name: name, Doc: f.Doc, Example: f.Example, Varargs: f.Varargs, Kwargs: f.Kwargs}
	if made.Example == "" {
		made.Example = "salt '*' " + p.Name + "." + name
	}
	for _, a := range f.Args {
		made.Params = append(made.Params, Param{Name: a.Name, Kind: argKind(a.Type), Required: a.Required, Default: a.Default})
	}
	made.Run = func(ctx context.Context, c *Call) (any, error) {
		calls := &within{c: c}
		a, err := p.Call(ctx, name, f, c.request(), extension.Env{ConfigDir: c.Host.ConfigDir, JID: c.JID, Extra: c.Host.Environ, Functions: calls})
		c.SetRetcode(a.Code)
		if a.Code != 0 && calls.refused {
			c.SetRetcode(CodeRefused)
		}
		return a.Value, err
	}
	return made
}

// argKind is the kind of a type that a description can name.
func argKind(name string) Kind {
	switch name {
	case "bool":
		return Bool
	case "dict":
		return Map
	case "float":
		return Float
	case "int":
		return Int
	case "list":
		return List
	case "text":
		return String
	}
	return Any
}

// request is the call as sent to a program.
func (c *Call) request() extension.Request {
	r := c.Host.Request()
	r.JID, r.Args, r.Kwargs = c.JID, slices.Concat(c.bound, c.varargs), c.extra
	return r
}

// Request is what a program gets to know about the minion.
func (h *Host) Request() extension.Request {
	return extension.Request{ID: h.ID, Grains: h.Facts(), Pillar: h.PillarData(), Options: h.Config}
}

// within is what a module of Python can call while one of its functions runs. These functions
// are in its code and not in the arguments, so no decision was made about them: they are only
// for an operator's direct call, not for a stored one.
type within struct {
	c       *Call
	refused bool
}

// Known implements extension.Functions.
func (w *within) Known(ctx context.Context, f salt.Function) bool {
	if _, err := salt.ParseFunction(string(f)); err != nil {
		return false
	}
	_, err := (&Call{Function: f, Host: w.c.Host, table: w.c.table}).find(ctx)
	return err == nil
}

// Call implements extension.Functions.
func (w *within) Call(ctx context.Context, c salt.Command) (any, error) {
	if _, err := salt.ParseFunction(string(c.Function)); err != nil {
		return nil, err
	}
	if !w.c.Reach.Programs {
		w.refused = true
		return nil, &UnjudgedError{Function: w.c.Function, Inner: c.Function}
	}
	inner, err := deeper(ctx)
	if err != nil {
		return nil, err
	}
	r := w.c.table.Run(inner, Call{JID: w.c.JID, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: w.c.Host, Reach: w.c.Reach})
	return r.Return, r.Err
}

type depthKey struct{}

// maxDepth limits programs that call functions of programs: each is a waiting process.
const maxDepth = 8

func deeper(ctx context.Context) (context.Context, error) {
	depth, _ := ctx.Value(depthKey{}).(int)
	if depth == maxDepth {
		return nil, fmt.Errorf("modules call each other more than %d deep", maxDepth)
	}
	return context.WithValue(ctx, depthKey{}, depth+1), nil
}
