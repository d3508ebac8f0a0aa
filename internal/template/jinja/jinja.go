// Package jinja renders templates in a subset of Jinja. A template can use only the values that it
// is given: no file, no network, only the functions listed here; and a value is never rendered as a
// template.
//
// It limits only the length of the output: the calling program limits time and memory.
package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/parser"

	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/template"
	"github.com/brinebus/brine/internal/value"
)

// The available statements and filters. Those that read other templates, or give a different result
// each time, are not included.
var (
	statements = strings.Fields("break call continue do filter for if macro raw set with")
	filters    = strings.Fields(`abs batch capitalize center count d default dictsort first float format groupby indent int items
		join last length list lower map max min reject rejectattr replace reverse round select selectattr slice sort string
		sum title tojson trim truncate unique upper urlencode wordcount wordwrap`)
	functions = strings.Fields("dict namespace range")
)

// Render returns the output of the template for the values. Every error is a *template.Mistake.
func Render(text string, values map[string]any) (out string, err error) {
	defer func() {
		if p := recover(); p != nil { // the library divides by zero without a check
			out, err = "", &template.Mistake{Text: fmt.Sprintf("it cannot be evaluated: %v", p)}
		}
	}()
	settings := config.New()
	settings.StrictUndefined, settings.KeepTrailingNewline = true, true
	t, err := exec.NewTemplate(name, settings, only(text), environment())
	if err != nil {
		return "", mistake(err)
	}
	names := maps.Clone(values)
	names["salt"] = lookups(values)
	w := &bounded{left: template.MaxOutput}
	if err := t.Execute(w, exec.NewContext(names)); err != nil {
		return "", mistake(err)
	}
	return w.text.String(), nil
}

// environment has what a template may use.
func environment() *exec.Environment {
	structures := map[string]parser.ControlStructureParser{}
	for _, name := range statements {
		structures[name], _ = builtins.ControlStructures.Get(name)
	}
	usable := ownFilters()
	for _, name := range filters {
		usable[name], _ = builtins.Filters.Get(name)
	}
	names := map[string]any{}
	for _, name := range functions {
		names[name], _ = builtins.GlobalFunctions.Get(name)
	}
	return &exec.Environment{
		Context: exec.NewContext(names), Filters: exec.NewFilterSet(usable), Tests: builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(structures), Methods: builtins.Methods,
	}
}

// ownFilters are the filters of Salt that write a value so that YAML, JSON and shells can read it
// back.
func ownFilters() map[string]exec.FilterFunction {
	return map[string]exec.FilterFunction{
		"json": asJSON, "yaml": asJSON, "yaml_encode": asJSON,
		"yaml_dquote": text(func(s string) (string, error) { b, err := value.Encode(s); return string(b), err }),
		"yaml_squote": text(func(s string) (string, error) { return "'" + strings.ReplaceAll(s, "'", "''") + "'", nil }),
		"quote":       text(func(s string) (string, error) { return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'", nil }),
	}
}

// asJSON returns a value as JSON, which is also YAML.
func asJSON(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	b, err := json.Marshal(in.ToGoSimpleType(false))
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(string(b))
}

func text(of func(string) (string, error)) exec.FilterFunction {
	return func(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
		if in.IsError() {
			return in
		}
		s, err := of(in.String())
		if err != nil {
			return exec.AsValue(err)
		}
		return exec.AsSafeValue(s)
	}
}

// lookups are the functions of Salt that templates use most: they look up values that the template
// already has.
func lookups(values map[string]any) map[string]any {
	in := func(name string) func(*exec.Evaluator, *exec.VarArgs) *exec.Value {
		m, _ := values[name].(map[string]any)
		return func(_ *exec.Evaluator, p *exec.VarArgs) *exec.Value {
			if len(p.Args) == 0 || len(p.Args) > 2 {
				return exec.AsValue(errors.New(name + ".get takes a name and a default"))
			}
			if v, ok := target.Lookup(m, p.Args[0].String(), ":"); ok {
				return exec.AsValue(v)
			}
			if len(p.Args) == 2 {
				return p.Args[1]
			}
			return exec.AsValue("")
		}
	}
	return map[string]any{"grains.get": in("grains"), "pillar.get": in("pillar")}
}

// name is the name of the single template.
const name = "template"

// only is a loader with a single template; it implements loaders.Loader.
type only string

var errOther = errors.New("a template cannot read another file")

// Read implements loaders.Loader.
func (o only) Read(which string) (io.Reader, error) {
	if which != name {
		return nil, errOther
	}
	return strings.NewReader(string(o)), nil
}

// Resolve implements loaders.Loader.
func (o only) Resolve(which string) (string, error) {
	if which != name {
		return "", errOther
	}
	return which, nil
}

// Inherit implements loaders.Loader.
func (o only) Inherit(string) (loaders.Loader, error) { return o, nil }

// bounded stores the output of a template up to a limit.
type bounded struct {
	text strings.Builder
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, fmt.Errorf("it makes more than %d bytes", template.MaxOutput)
	}
	return b.text.Write(p)
}

// place and reasons match the useful parts of the library's errors. The errors also quote the
// template, and sometimes values, which must not be logged.
func place() *regexp.Regexp { return regexp.MustCompile(`(?i)\bline[:=]? ?(\d+)`) }

func reasons() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`Unable to evaluate name "(\w{1,64})"`),
		regexp.MustCompile(`(attribute|item|filter|test) '+([\w.-]{1,64})'+ not found`),
		regexp.MustCompile(`salt\['[\w.-]{1,64}'\] is not callable`),
		regexp.MustCompile(`[Uu]nexpected EOF, expected tag [a-z ]+`),
		regexp.MustCompile(`[Uu]nknown controlStructure|Control ?[Ss]tructure '?"?\w{1,64}'?"? not found`),
		regexp.MustCompile(`it makes more than \d+ bytes`),
		regexp.MustCompile(`\w+\.get takes a name and a default`),
	}
}

// mistake returns an error of the library without the text that it quotes.
func mistake(err error) error {
	said := err.Error()
	m := &template.Mistake{Text: "it cannot be read or evaluated as a template"}
	if found := place().FindAllStringSubmatch(said, -1); found != nil {
		m.Line, _ = strconv.Atoi(found[0][1])
	}
	for i, r := range reasons() {
		found := r.FindStringSubmatch(said)
		if found == nil {
			continue
		}
		if m.Text = found[0]; i == 0 {
			m.Text = found[1] + " is not defined"
		}
		break
	}
	return m
}
